"""Hostile objects for the fuzz runs: on a real API server, and told to the core as they come."""
