"""Changes of the cluster, in the terms in which plugins declare what may cure their rejections.

Made by core.cache.cache and core.cache.nodes.table as events are applied; processed by core.state.line.queue,
which calls the plugins.
"""

from __future__ import annotations

import enum

import msgspec

from gangsched.model.objects import Pod


class Change(enum.Flag):
    """A kind of change, by which a plugin declares what can cure its rejections.

    Source of the idea: kube-scheduler's EventsToRegister and QueueingHint (KEP-4247).
    """

    NONE = 0
    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()
    """Its pods no longer count anywhere, which may even out a spread. Its row no longer has data."""
    NODE_ALLOCATABLE = enum.auto()
    NODE_LABELS = enum.auto()
    """Labels or status.declaredFeatures."""
    NODE_TAINTS = enum.auto()
    """Taints or spec.unschedulable."""
    NODE_DEVICES = enum.auto()
    ROOM_FREED = enum.auto()
    """A pod that held resources on a node is gone or ended, or its reservation was released."""
    NODE_REPORT = enum.auto()
    """A node reports more left than before, of bandwidth or of anything else that a usage tracker counts."""
    GROUP_CHANGED = enum.auto()
    """A member appeared, or the group's own numbers or object changed."""
    SIBLING_CHANGED = enum.auto()
    """A group named in start_together changed its state."""
    POD_ADDED = enum.auto()
    """A pod came to a node, reserved or bound. Emitted only while some pod or plugin looks at pods."""
    POD_LABELS = enum.auto()
    """A pod on a node has new labels, or is being deleted. Emitted under the same condition as POD_ADDED."""
    OBJECT = enum.auto()
    """An object of another kind appeared, changed or was deleted; `kind` names the kind."""
    BORROWED = enum.auto()
    """A queue holds more than its guarantee now; other queues may get the excess back."""


class ClusterChange(msgspec.Struct, frozen=True, gc=False):
    """One change, with enough detail for a plugin to tell that it does not help."""

    what: Change
    row: int = -1
    resources: frozenset[str] = frozenset()
    """For ROOM_FREED, NODE_ALLOCATABLE and NODE_DEVICES: the resource names with more available now."""
    ports: bool = False
    pod: Pod | None = None
    """For ROOM_FREED, POD_ADDED and POD_LABELS: the pod; None if several changes were merged."""
    was_kept: bool = False
    """For ROOM_FREED: whether units of higher priority may have been unable to evict the pod."""
    kind: str = ""
