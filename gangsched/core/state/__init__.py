"""What the rooms above share: the world of one turn, the queue, hooks that are being asked, and the reporter.

Here groups change state and effects are gathered. Not here: why a group moves (core.groups), how a bind ends
(core.binding).
"""
