"""SharedState, which the rooms above hold in common; the queue, hooks that are being asked, and the reporter.

Here groups change state and effects are gathered. Not here: why a group moves (core.groups), how a bind ends
(core.binding).
"""
