"""Which pods are members of which group, and which are kept out of the queue."""
