"""One turn: what happens to each event and deadline, in which order, and what contains a fault."""
