"""The life of a group: its members, its size, its turn, its waits, and moves between its states.

Called by core.scheduler. Not here: one placement (core.cycle), one bind (core.binding).
"""
