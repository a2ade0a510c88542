"""One group's turn, from the front of the queue to reserved, waiting or rejected."""
