"""Judges of who starts when: waking, overtaking, claims, limits, guarantees and walltimes."""
