"""Reads configuration files strictly: durations, limits, names; and which plugins we lack."""
