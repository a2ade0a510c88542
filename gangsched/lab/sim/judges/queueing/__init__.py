"""Judges of the order in which groups start: waking, overtaking, claims, limits, guarantees and walltimes."""
