"""SharedState, used by the packages above it; the queue, deadlines, hooks in progress, and the reporter.

Here groups change state and effects are collected. Not here: why a group moves (core.groups), how a bind ends
(core.binding).
"""
