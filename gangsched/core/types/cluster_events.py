"""Changes: what an event changed in the cluster, in the words in which plugins name what may cure their "no".

Made by core.cache.cache and core.cache.node_table as events are applied; heard by core.state.queue, which
asks the plugins.
"""

from __future__ import annotations

import enum

import msgspec

from gangsched.model.objects import Pod


class Change(enum.Flag):
    """What an event changed in the cluster, as a plugin names what can cure its rejections.

    Source of the idea: kube-scheduler's EventsToRegister and QueueingHint (KEP-4247).
    """

    NONE = 0
    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()
    """What was on it is nowhere now, which evens out what it made uneven. Its row says nothing any more."""
    NODE_ALLOCATABLE = enum.auto()
    NODE_LABELS = enum.auto()
    NODE_TAINTS = enum.auto()
    """Taints or spec.unschedulable."""
    NODE_DEVICES = enum.auto()
    ROOM_FREED = enum.auto()
    """A pod that held room on a node is gone, ended, or its reservation was given back."""
    NODE_REPORT = enum.auto()
    """A node says that it has more left than before: of bandwidth, or of what else a usage tracker counts."""
    GROUP_CHANGED = enum.auto()
    """A member appeared, or the group's own numbers or object changed."""
    SIBLING_CHANGED = enum.auto()
    """A group named in start_together changed its state."""
    POD_ADDED = enum.auto()
    """A pod has come to a node, promised or bound. Told only while some pod or plugin asks about pods."""
    POD_LABELS = enum.auto()
    """A pod that is on a node has other labels now, or is being deleted. Told as POD_ADDED is."""
    OBJECT = enum.auto()
    """An object of another kind appeared, changed or went; `kind` says which kind."""


class ClusterChange(msgspec.Struct, frozen=True, gc=False):
    """One change, with enough detail for a plugin to say "that does not help me"."""

    what: Change
    row: int = -1
    resources: frozenset[str] = frozenset()
    """For ROOM_FREED, NODE_ALLOCATABLE and NODE_DEVICES: the resource names of which there is more now."""
    ports: bool = False
    pod: Pod | None = None
    """For ROOM_FREED, POD_ADDED and POD_LABELS: the pod; None where several changes are heard as one."""
    kind: str = ""
