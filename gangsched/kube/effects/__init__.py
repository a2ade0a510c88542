"""Carries out the core's effects: each goes into its lane, and its outcome comes back as an event.

Called by the assembly. Not here: whether to retry after an unknown outcome; the core decides that.
"""
