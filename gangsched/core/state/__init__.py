"""SharedState, which the rooms above share; the queue, the deadlines, hooks in progress, and the reporter.

Here groups change state and effects are collected. Not here: why a group moves (core.groups), how a bind ends
(core.binding).
"""
