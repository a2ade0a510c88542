"""Floor 0: frozen values that every other room speaks in; no behaviour that needs a clock or the network."""
