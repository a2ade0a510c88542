"""Floor 3: plugins that are not ours: found, given the API server, and held to their time."""
