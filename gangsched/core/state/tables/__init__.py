"""The state machines as data: of a group, of a start, of a Binding."""
