"""Floor 1: the edge to an API server: bytes in, events out; effects in, requests out."""
