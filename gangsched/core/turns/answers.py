"""Answers: passes outcomes of effects and hooks, and people's orders, to the parts that wait for them.

Not here: BindSucceeded, which core.scheduler passes on in runs. Called by core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.state.pending_hooks import BIND, PERMIT, PRE_BIND, PRE_ENQUEUE
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.types.group import GroupState, PodInfo
from gangsched.core.why.released import RejectedBy, VictimNotEvicted
from gangsched.model import events as ev
from gangsched.model.text.printable import marked


class Answers:
    """Passes each answer to its handler."""

    def __init__(self, scheduler: SchedulerParts, permits: Permits) -> None:
        self._scheduler = scheduler
        self._permits = permits
        self._shared = scheduler.shared
        self._reporter = scheduler.reporter
        binder, audit = scheduler.binder, scheduler.audit
        self.handlers: dict[type, Callable[[Any], None]] = {
            ev.BindFailed: binder.failed,
            ev.BindUnknown: binder.unknown,
            ev.BindCancelled: binder.cancelled,
            ev.PodRead: lambda e: self._seen(e, binder.read(e)),
            ev.PodUnread: binder.report_unread,
            ev.PodBumped: lambda e: self._seen(e, binder.fenced.bumped(e)),
            ev.PodPatched: audit.patched,
            ev.PodPatchFailed: audit.patch_failed,
            ev.EvictionSucceeded: lambda e: None,
            ev.EvictionFailed: self._eviction_failed,
            ev.HookAnswered: self._hook_answered,
            ev.GroupAllowed: self._allowed,
            ev.GroupRejected: self._group_rejected,
        }

    def _eviction_failed(self, event: ev.EvictionFailed) -> None:
        if event.uid not in self._shared.victims:
            if not self._scheduler.health.eviction_failed(event):
                self._scheduler.binder.outcome.eviction_failed(event)
            return
        group = self._scheduler.attempts.nominations.refused(event)
        if group is not None:
            why = VictimNotEvicted(event.code, event.message)
            self._scheduler.attempts.commits.give_back(group, why)

    def _seen(self, event: ev.PodRead | ev.PodBumped, info: PodInfo | None) -> None:
        if info is not None and event.pod is not None:
            self._scheduler.membership.put_pods((ev.PodUpdated(event.pod),))
            self._scheduler.membership.come_back(info)

    def _hook_answered(self, event: ev.HookAnswered) -> None:
        call = self._shared.hooks.take(event)
        if call is None:
            return
        if call.point == PERMIT:
            self._permits.answered(call, event)
        elif call.point == PRE_ENQUEUE:
            self._scheduler.membership.pre_enqueue_answered(call, event)
        elif call.point == PRE_BIND:
            self._scheduler.binder.pre_bind.answered(call, event)
        elif call.point == BIND:
            self._scheduler.binder.hook_answered(call, event)

    def _allowed(self, event: ev.GroupAllowed) -> None:
        group = self._shared.groups.get(event.group)
        if self._permits.allow(event) and group is not None:
            what = f"{event.plugin} need not be waited for" if event.plugin else "it need not wait"
            self._reporter.event(
                group, "Normal", "GangAllowed", "Permit", f"{what}, says {marked('user', [event.by])}"
            )

    def _group_rejected(self, event: ev.GroupRejected) -> None:
        group = self._shared.groups.get(event.group)
        if group is not None and group.state is GroupState.WAITING:
            self._scheduler.attempts.commits.give_back(group, RejectedBy(event.by, event.reason))
