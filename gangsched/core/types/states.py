"""The states of a member, of its Binding and of a group: names only.

Not here: which state may follow which (core.state.tables.groups), what has a state (core.types.group).
"""

from __future__ import annotations

import enum


class MemberState(enum.Enum):
    """The state of one of our pods, which has exactly one from when the watch first shows it."""

    # Members are counted by state on every step; Enum's own hash is a call into Python.
    __hash__ = object.__hash__

    GATED = "gated"
    PENDING = "pending"
    ASSUMED = "assumed"
    """Reserved (waiting), or its bind is in flight."""
    BOUND = "bound"
    DONE = "done"
    """Its containers succeeded: it holds nothing but still counts for a gang that was whole."""
    FAILED = "failed"
    """It failed: it holds nothing and does not count, as a successor may replace it."""
    LEAVING = "leaving"
    """Unbound and being deleted, or reported gone by the server; it does not count."""


class BindState(enum.Enum):
    """What is known about an ASSUMED member's Binding; the rows of core.state.tables.binds."""

    __hash__ = object.__hash__

    NONE = "none"
    PREPARING = "preparing"
    """PreBind has not finished for the whole gang; nothing was sent."""
    HELD = "held"
    """Its gang is binding, but kubelet could confuse it with another pod due now; nothing was sent."""
    SENT = "sent"
    READING = "reading"
    """The outcome is unknown; a GET decides."""
    BUMPING = "bumping"
    """It is given up but may still land; after a bump of the pod's version it cannot, and room is freed."""


class GroupState(enum.Enum):
    """The rows of core.state.tables.groups' table."""

    __hash__ = object.__hash__

    GATED = "gated"
    GATHERING = "gathering"
    ACTIVE = "active"
    ASKING = "asking"
    """Extenders are being asked about its nodes; it is back in line when they have answered."""
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    WAITING = "waiting"
    BINDING = "binding"
    BOUND = "bound"
    UNWINDING = "unwinding"
    DELETED = "deleted"


class StartState(enum.Enum):
    """How far a gang's start has come; the rows of core.state.tables.starts."""

    __hash__ = object.__hash__

    NOT_STARTED = "not started"
    COMPLETING = "completing"
    STARTED = "started"


# Read for every pod or group in every turn: a module-level name costs a tenth of an Enum attribute.
PENDING, ASSUMED = MemberState.PENDING, MemberState.ASSUMED
BOUND, DONE, LEAVING = MemberState.BOUND, MemberState.DONE, MemberState.LEAVING
AT_THE_GATE = (MemberState.GATED, MemberState.PENDING)
"""States of members whose PreEnqueue may change."""
ENDED = (MemberState.DONE, MemberState.FAILED)
UNASKED, SENT = BindState.NONE, BindState.SENT
GATHERING, ASKING = GroupState.GATHERING, GroupState.ASKING
WAITING, BINDING = GroupState.WAITING, GroupState.BINDING
NOT_STARTED, COMPLETING, STARTED = StartState.NOT_STARTED, StartState.COMPLETING, StartState.STARTED
NOT_QUEUED = (GroupState.BOUND, GroupState.DELETED)
"""States of groups without a place in the queue: started, or no pod is left."""
IN_LINE = (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)
"""States of groups that are tried, or tried again once something has changed."""
ON_ITS_WAY = (BindState.SENT, BindState.READING, BindState.BUMPING)
"""States in which a bind was sent and may take effect."""
