"""How Score plugins are run and weighed."""
