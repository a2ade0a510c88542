"""Carrying out the core's effects: each goes into its lane, and what came of it comes back as an event.

Called by the assembly. Not here: whether to try again after an unknown outcome: that is the core's.
"""
