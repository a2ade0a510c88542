"""The states of a member, of its Binding and of a group: names only.

Which state follows which is core.state.transitions' table; what has a state is core.types.group's.
"""

from __future__ import annotations

import enum


class MemberState(enum.Enum):
    """The state of one of our pods; exactly one from the moment the watch shows it."""

    # Members are counted by state on every step; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    GATED = "gated"
    PENDING = "pending"
    ASSUMED = "assumed"
    """Reserved (waiting), or its bind is in flight."""
    BOUND = "bound"
    DONE = "done"
    """Its containers succeeded: it holds nothing and still counts for a gang that was whole."""
    FAILED = "failed"
    """It failed: it holds nothing and does not count, as a successor may take its place."""
    LEAVING = "leaving"
    """Unbound and being deleted, or reported gone by the server: does not count."""


class BindState(enum.Enum):
    """What is known about an ASSUMED member's Binding."""

    NONE = "none"
    PREPARING = "preparing"
    """PreBind is not over for the whole gang: nothing was sent."""
    HELD = "held"
    """Its gang is binding, but kubelet could confuse it with another due pod: nothing was sent."""
    SENT = "sent"
    READING = "reading"
    """The outcome is unknown; a GET decides."""
    BUMPING = "bumping"
    """It is given up and may still land; after a bump of its version it cannot, and its room is freed."""


class GroupState(enum.Enum):
    """The rows of core.state.transitions' table."""

    __hash__ = object.__hash__

    GATED = "gated"
    GATHERING = "gathering"
    ACTIVE = "active"
    ASKING = "asking"
    """Extenders are asked about its nodes; back in line when they have answered."""
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"
    UNWINDING = "unwinding"
    DELETED = "deleted"


# Read for every pod in every turn: a module-level name costs a tenth of an Enum attribute.
PENDING, ASSUMED = MemberState.PENDING, MemberState.ASSUMED
BOUND, DONE, LEAVING = MemberState.BOUND, MemberState.DONE, MemberState.LEAVING
ENDED = (MemberState.DONE, MemberState.FAILED)
UNASKED, SENT = BindState.NONE, BindState.SENT
NOT_QUEUED = (GroupState.BOUND, GroupState.DELETED)
"""A group that has started, or of which no pod is left: it has no place in the queue."""
IN_LINE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)
"""A group that is tried, or tried again once something has changed."""
ON_ITS_WAY = (BindState.SENT, BindState.READING, BindState.BUMPING)
"""For these a bind was sent and may take effect."""
