"""Floor 1: decisions and state, synchronous and pure; told of events, answers with effects."""
