"""How plugins of the points around placing are run: who is in the queue, in which order; binding."""
