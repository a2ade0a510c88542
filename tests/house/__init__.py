"""The house itself: what comments, layers and docs promise about the code."""
