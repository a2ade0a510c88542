"""PartialBinds: what becomes of a gang that was bound in part: completed, or unwound, as its policy states.

Members, least numbers and policies are read separately from what the process received
(lab.sim.reading.documents). Not here: how long a gang may stay bound in part
(lab.sim.judges.gangs.half_bound). Called by lab.sim.judges.step_judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.reading.documents import OF_OBJECTS, Gang, gang_of, is_refused, needed_by
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.reading.roles import missing_roles
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

POLICY_KEY = "gangsched.io/on-partial-bind"
COMPLETE, UNWIND = "complete", "unwind"
_OTHER_REASONS = frozenset(("DeviceEviction", "OverrunEviction"))
_ALONE, _FAILED = "pod", "Failed"
_SLACK_S = 1.0
_SOON_S = 5.0
"""A gang that is unwound at once is evicted within this time of the last answer to its binds."""


class PartialBinds:
    """partial-bind-policy: a gang that this process has bound in part is not unwound before half of the
    settle limit where its policy is to complete it, and at once where it is to unwind it; one that was whole
    is never unwound."""

    def __init__(self, settings: Settings) -> None:
        self._since_s: dict[Gang, float] = {}
        """By gang that is bound in part: when it first had no bind on its way."""
        self._still_s: dict[Gang, float] = {}
        """Likewise: since when, besides, none of its pods goes."""
        self._known: set[Gang] = set()
        """Gangs of which this process has seen every bind, and which are not evicted for another reason."""
        self._whole: set[Gang] = set()
        self._asked: set[str] = set()
        """UIDs of pods whose eviction this process has requested."""
        self._n_changes = -1
        self.take(settings)

    def take(self, settings: Settings) -> None:
        """These settings are in effect from now on; gangs bound in part by now are not judged any more."""
        self._settings = settings
        self._known -= self._since_s.keys()
        self._since_s.clear()
        self._still_s.clear()

    def check(
        self, scheduler: Scheduler, effects: Sequence[ef.Effect], received: Received, now_s: float
    ) -> Iterator[str]:
        """After every step, before its effects are sent."""
        if not scheduler.is_synced:
            return  # what is listed so far may be a part
        if received.n_inputs != self._n_changes or any(isinstance(one, ef.BindPod) for one in effects):
            self._n_changes = received.n_inputs
            self._note(received, now_s)
        for effect in effects:
            if isinstance(effect, ef.RecordEvent) and effect.reason in _OTHER_REASONS:
                pod = received.pods.get(effect.uid)
                if pod is not None and (gang := gang_of(pod)) is not None:
                    self._known.discard(gang)
        evicted: set[Gang | None] = set()
        for effect in effects:
            if isinstance(effect, ef.EvictPod):
                self._asked.add(effect.uid)
                pod = received.pods.get(effect.uid)
                gang = gang_of(pod) if pod is not None else None
                by = effect.cause_id.rpartition("#")[0]
                if pod is not None and gang is not None and by == str(gang):
                    yield from self._may_unwind(gang, pod, received, now_s)
                evicted |= {gang}
        self._known -= evicted
        if self._settings.allow_eviction:
            yield from self._unwound(scheduler, received, now_s)

    def _may_unwind(self, gang: Gang, pod: Pod, received: Received, now_s: float) -> Iterator[str]:
        if gang.dialect == _ALONE or gang not in self._known:
            return
        if gang in self._whole:
            yield f"partial-bind-policy: {gang} is unwound, and it was whole"
        elif self._policy(gang, pod, received) == COMPLETE:
            since_s = self._since_s.get(gang, now_s)
            if now_s < since_s + self._settings.settle_s / 2 - _SLACK_S:
                yield f"partial-bind-policy: {gang} is unwound at {now_s:g}, bound in part since {since_s:g}"

    def _unwound(self, scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
        for gang, since_s in self._still_s.items():
            if now_s <= since_s + _SOON_S:
                continue
            running = [pod for pod in received.pods.values() if pod.spec.node_name and gang_of(pod) == gang]
            is_asked = any(pod.metadata.uid in self._asked for pod in running)
            if (
                is_asked
                or not running
                or any(map(_goes, running))
                or self._policy(gang, running[0], received) != UNWIND
            ):
                continue
            infos = (scheduler.shared.cache.pods.get(pod.metadata.uid) for pod in running)
            states = {info.group.state for info in infos if info is not None and info.group is not None}
            if GroupState.BINDING not in states:
                yield (
                    f"partial-bind-policy: {gang} has been bound in part since {since_s:g}, "
                    f"and is not unwound at {now_s:g}"
                )

    def _note(self, received: Received, now_s: float) -> None:
        members: dict[Gang, list[Pod]] = {}
        for pod in received.pods.values():
            if (gang := gang_of(pod)) is not None and gang.dialect != _ALONE:
                members.setdefault(gang, []).append(pod)
        before, self._since_s = self._since_s, {}
        still, self._still_s = self._still_s, {}
        sent = received.promised.by_uid.keys() - received.answered
        for gang, pods in members.items():
            on_its_way = any(pod.metadata.uid in sent for pod in pods)
            needed = needed_by(gang, pods, received.groups.get(gang))
            there = [pod for pod in pods if _is_there(pod, received)]
            n_failed = sum(pod.status.phase == _FAILED for pod in there)
            if any(map(is_refused, there)):
                self._known.discard(gang)  # bound in part again, since some time (refused-members)
            if all(pod.is_terminal for pod in there):
                self._whole.discard(gang)
                # Those whose binds are on their way complete it, in its former time. Else those that have
                # succeeded count for the next start.
                if not there or not on_its_way:
                    self._known.add(gang)
            elif needed is None or any(missing_roles(gang.dialect, there, received.groups.get(gang))):
                self._known.discard(gang)
            elif len(there) - n_failed >= needed:
                self._whole.add(gang)
            elif len(there) >= needed:  # whether those that failed count depends on the attempt
                self._known.discard(gang)
            elif gang in self._known and gang not in self._whole:
                is_bound = any(_is_there(pod, received) and not pod.is_terminal for pod in pods)
                if is_bound and (gang in before or not on_its_way):
                    self._since_s[gang] = before.get(gang, now_s)
                    if not any(map(_goes, pods)):
                        self._still_s[gang] = still.get(gang, now_s)
        self._known &= members.keys()
        self._whole &= members.keys()

    def _policy(self, gang: Gang, pod: Pod, received: Received) -> str:
        """By the gang's object, or its pods, or the configuration."""
        item = received.groups.get(gang)
        if gang.dialect in OF_OBJECTS:
            own = item.metadata.annotations if item is not None else None
        else:
            own = pod.metadata.annotations
        return (own or {}).get(POLICY_KEY) or self._settings.on_partial_bind


def _is_there(pod: Pod, received: Received) -> bool:
    """Whether it is on a node, or was."""
    return bool(pod.spec.node_name) or pod.metadata.uid in received.answered


def _goes(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None
