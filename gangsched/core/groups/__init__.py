"""The life of a group: its members, its size, its turn, its waits, and its changes of state.

Called by core.scheduler. Not here: one placement (core.cycle), one bind (core.binding).
"""
