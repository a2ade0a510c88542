"""Which pod holds which device of which node: reserved, bound, or not known."""
