"""The life of a group: who belongs to it, how many it wants, its turn, its waits, and the table of its
states.

Called by core.scheduler. Not here: one placement (core.cycle), one bind (core.binding).
"""
