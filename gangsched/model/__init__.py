"""Floor 0: frozen values used by all other rooms; no behaviour that needs a clock or the network."""
