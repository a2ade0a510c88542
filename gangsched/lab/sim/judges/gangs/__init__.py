"""Judges of how gangs start, run in part, wait, and lose members."""
