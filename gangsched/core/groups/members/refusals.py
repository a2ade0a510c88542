"""Refusals: why a gang's missing members do not exist, by their controller's Events.

A ResourceQuota or an admission webhook refuses pods before they exist; the controller reports that in an
Event of its own object. For a gang that has been incomplete for a while these Events are read, and again each
time it has waited twice as long, at least every ten minutes. Called by core.groups.reconciler and
core.scheduler.
"""

from __future__ import annotations

from itertools import islice

from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import Group, GroupState
from gangsched.model.effects import ReadRefusals
from gangsched.model.events import RefusalsRead
from gangsched.model.objects import OwnerReference
from gangsched.model.pod_group import GroupKey
from gangsched.model.text.printable import clean

_SOONEST_S, _LATEST_S = 30.0, 600.0
# Limits on members searched for controllers, and on controllers whose Events are read.
_MAX_MEMBERS = 1_000
_MAX_OWNERS = 4
_MAX_TOLD = 4_096
_MAX_CHARS = 400


class Refusals:
    """Reads the Events of controllers of gathering gangs, and keeps their refusals."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._refusals: dict[GroupKey, dict[str, str]] = {}
        """Group -> "Kind name" of a controller -> its refusal."""
        self._due: Deadlines[GroupKey] = Deadlines(shared.timers, DeadlineKind.REFUSALS)

    def sentence(self, group: Group) -> str:
        """The refusals as a sentence without a full stop; "" if none is known."""
        refusals = self._refusals.get(group.key, {})
        return "; ".join(f"{owner} could not create more: {message}" for owner, message in refusals.items())

    def ask(self, group: Group) -> None:
        """Requests the Events, unless a request is recent."""
        shared = self._shared
        if group.key in self._due:
            return
        wait_s = min(max(shared.now_s - group.since_s, _SOONEST_S), _LATEST_S)
        self._due.set(group.key, shared.now_s + wait_s)
        for owner in _owners(group):
            of = owner.uid, owner.kind, group.key.namespace, owner.name
            shared.emit(ReadRefusals(*of, group.key, group.cause_id))

    def take(self, event: RefusalsRead) -> Group | None:
        """Records what was read; returns the group if it gathers and this is new."""
        key, owner = event.group, f"{event.kind} {event.name}"
        group = self._shared.groups.get(key)
        if group is None or group.state is not GroupState.GATHERING:
            self._refusals.pop(key, None)
            return None
        refusals = self._refusals.pop(key, {})
        before = refusals.pop(owner, "")
        message = clean(event.message)[:_MAX_CHARS].rstrip(". ")
        if message:
            refusals[owner] = message
        if refusals:
            self._refusals[key] = refusals
            if len(self._refusals) > _MAX_TOLD:
                del self._refusals[next(iter(self._refusals))]
        return group if message != before else None

    def advance(self) -> None:
        """Asks again about gangs that still gather."""
        for key in self._due.take(self._shared.now_s):
            group = self._shared.groups.get(key)
            if group is not None and group.state is GroupState.GATHERING and group.definition is not None:
                self.ask(group)
            else:
                self._refusals.pop(key, None)


def _owners(group: Group) -> list[OwnerReference]:
    """The controllers of its members, a few of them."""
    found: dict[str, OwnerReference] = {}
    for info in islice(group.members.values(), _MAX_MEMBERS):
        for owner in info.pod.metadata.owner_references or ():
            if owner.controller and owner.uid.replace("-", "").isalnum():
                found.setdefault(owner.uid, owner)
        if len(found) >= _MAX_OWNERS:
            break
    return list(found.values())[:_MAX_OWNERS]
