"""Floor 0: frozen values that every other room uses. Nothing here needs a clock or the network."""
