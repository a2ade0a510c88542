"""HalfBound: how long each gang has run in part without ever having been whole, judged by what runs.

A member that its kubelet refused has never started: its Binding is one that failed.

Kept by lab.sim.runs.driver over a whole run; read from the store (lab.sim.reading.store_index), never from
the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from gangsched.lab.sim.objects import at
from gangsched.lab.sim.reading.documents import Gang, gang_of, is_refused, start_of
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.api import SimApi
from gangsched.model.objects import Condition, Pod

_NEVER = at(0.0)


class HalfBound:
    """whole-in-time, refused-members: gangs of the store that run in part, and since when; the latter where a
    kubelet has refused a member.

    A member whose deletion the scheduler has not received yet counts: it cannot know whether the member went
    just before the last bind or just after it.
    """

    def __init__(self) -> None:
        self.since_s: dict[Gang, float] = {}
        self._whole: set[Gang] = set()
        self._least: dict[Gang, int] = {}
        self._gone: dict[Gang, int] = {}
        self._refused: dict[Gang, int] = {}
        """Gangs with refused members, and how many when last looked at."""
        self._looked_at: dict[Gang, None] = {}
        """Gangs looked at since the last excuse."""
        self._excused_at = -1
        self._compared: tuple[Received, int, int] | None = None
        """What `_gone` was computed from."""

    def update(self, api: SimApi, received: Received, now_s: float) -> None:
        """Checks the gangs that have changed. Called after every turn in which anything happened, so that a
        gang that is whole only for a moment is seen."""
        index = api.index
        touched, index.touched = index.touched, {}
        if index.renewed:
            self._looked_at |= index.renewed
            index.renewed = {}
        now = (received, received.n_inputs, index.n_comings)
        if now != self._compared:
            gone = self._gone_of(api, received)
            touched |= dict.fromkeys(self._gone) | dict.fromkeys(gone)
            self._compared, self._gone = now, gone
        if not touched:
            return
        self._looked_at |= touched
        for gang in touched:
            self._check_gang(gang, api, now_s)

    def _gone_of(self, api: SimApi, received: Received) -> dict[Gang, int]:
        """By gang: the number of members that ran and are gone, which the process has not received yet."""
        gone: dict[Gang, int] = {}
        uids, there = received.pods.keys(), api.index.uids
        for uid in () if uids <= there else uids - there:
            was_bound = received.pods[uid].spec.node_name or uid in received.answered
            gang = gang_of(received.pods[uid]) if was_bound and not is_refused(received.pods[uid]) else None
            if gang is not None:
                gone[gang] = gone.get(gang, 0) + 1
        return gone

    def _check_gang(self, gang: Gang, api: SimApi, now_s: float) -> None:
        least = self._least_of(gang, api)
        if least is None or gang not in api.index.members:
            for kept in (self.since_s, self._least, self._refused):
                kept.pop(gang, None)
            self._whole.discard(gang)
            return
        n_refused = api.index.n_refused.get(gang, 0)
        n_bound = api.index.n_bound.get(gang, 0) - n_refused
        n_gone = self._gone.get(gang, 0)
        if n_bound + n_gone >= least:
            self._whole.add(gang)
        elif not n_bound + n_gone or (
            n_refused > self._refused.get(gang, 0) and _starts_with(api.index.members[gang].values())
        ):
            self._whole.discard(gang)
        if n_refused or gang in self._refused:
            self._refused[gang] = n_refused
        runs_in_part = api.index.n_running.get(gang) and n_bound < least and gang not in self._whole
        if runs_in_part and not api.index.disagree(gang):
            self.since_s.setdefault(gang, now_s)
        else:
            self.since_s.pop(gang, None)

    def _least_of(self, gang: Gang, api: SimApi) -> int | None:
        """Returns the gang's minimum; while its object is gone or cannot be read, the last one stated."""
        least = api.index.least(gang)
        if least is None:
            return self._least.get(gang)
        self._least[gang] = least
        return least

    def excuse(self, api: SimApi) -> None:
        """Excuses gangs that a process starting now cannot distinguish from ones that were whole and lost
        members.

        Too few of their members exist, or some were created after the last bind or after the newest member
        that the gang started with, and the process before could not say on a member that its gang is in part.
        Looks at what has changed, and at what `update` has looked at since.
        """
        if self._excused_at == api.n_changes:
            return
        self._excused_at = api.n_changes
        due, self._looked_at = {**self._looked_at, **api.index.touched, **api.index.renewed}, {}
        for gang in due:
            members = api.index.members.get(gang)
            if members is None:
                continue
            if any(map(_says_in_part, members.values())):
                continue
            least = api.index.least(gang)
            if least is None:
                least = max((one.get("needs", 0) for one in map(start_of, members.values())), default=0)
            if not least:  # and its Bindings do not say by what it was bound
                self._whole.add(gang)
                self.since_s.pop(gang, None)
                continue
            self._least[gang] = least
            bound = [pod for pod in members.values() if pod.spec.node_name]
            if not bound:
                continue
            times = [c.last_transition_time or _NEVER for pod in bound for c in _binding_of(pod)]
            newest_s = max((start_of(pod).get("newest", 0) for pod in bound), default=0)
            last = max(times, default=_NEVER)
            if newest_s:
                last = min(last, datetime.fromtimestamp(newest_s, UTC))
            then = [
                pod
                for pod in members.values()
                if pod.spec.node_name or (pod.metadata.creation_timestamp or _NEVER) <= last
            ]
            if len(then) < least:
                self._whole.add(gang)
                self.since_s.pop(gang, None)

    def too_long(self, api: SimApi, now_s: float, limit_s: float, *, calm_since_s: float) -> Iterator[str]:
        """whole-in-time: after faults stop no gang stays half bound for longer than the settle limit. The
        time of a gang whose object the process cannot know yet begins once that kind has been listed."""
        unread = api.unread_dialects
        for gang, since_s in self.since_s.items():
            if gang.dialect in unread:
                self.since_s[gang] = now_s
            elif now_s - max(since_s, calm_since_s) > limit_s:
                since = f"gang {gang} has been half bound since {since_s:.1f}, it is {now_s:.1f}"
                is_refused_one = gang in self._refused
                yield f"refused-members: {since}" if is_refused_one else f"whole-in-time: {since}"


def _starts_with(pods: Iterable[Pod]) -> bool:
    """Whether a refused one of these was among those that its gang started with."""
    return any(start_of(pod).get("together", 0) > 0 for pod in pods if is_refused(pod))


def _says_in_part(pod: Pod) -> bool:
    """Whether an earlier process has marked the pod: its gang is in part."""
    runs = bool(pod.spec.node_name) and not pod.is_terminal
    found = [c for c in pod.status.conditions or () if c.type == "gangsched.io/GangWhole"]
    return runs and any(c.status == "False" and c.reason == "BoundInPart" for c in found)


def _binding_of(pod: Pod) -> list[Condition]:
    return [c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "True"]
