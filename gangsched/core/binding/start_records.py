"""StartRecords: what each Binding records about its gang's start, and what a later process reads from it.

Whether a gang was once whole decides evictions, so it is read from the cluster's objects, never from one
process's memory. Three facts decide, in this order (`was_whole`):

    the record in a member's Binding     attempt n started the gang with `together` binds, and left some out
    the condition GangWhole of members   False since the gang is in part, has lost members, or is evicted
    kubelet's answer                     a member that was refused before any container ran was never started

A record counts only in a pod that has a node and names the same gang beside it, as the bind wrote them in one
transaction. A tenant that edits it can only have its own gang kept or evicted. Called by core.binding.binder,
core.binding.group_outcome, core.groups.reconciler and core.groups.group_spec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from gangsched.core.state.line.requeue_order import name_of
from gangsched.core.state.reporter import is_bound_where
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.starts import StartCause, move_start
from gangsched.core.types.group import BOUND, DONE, NEVER_S, Group, MemberState, PodInfo
from gangsched.core.why.binds import KubeletRefused
from gangsched.model.effects import GANG_WHOLE, WritePodCondition
from gangsched.model.objects import Condition, Pod
from gangsched.model.pod_group import GANG_KEY, MAX_MEMBERS, START_KEY, PodGroup
from gangsched.model.text.printable import clean

BOUND_IN_PART, EVICTED, LOST_MEMBERS, WHOLE = "BoundInPart", "Evicted", "LostMembers", "Whole"
# Members that carry the condition: a few, as losing one node rarely loses them all, and each is a write.
_N_MARKED = 3
# A record that we wrote is shorter.
_MAX_RECORD = 200
_Time = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799)]  # to the end of the year 9999
_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]


class StartRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """How the gang started with this Binding's attempt.

    together: binds of that attempt, all of which must land for the gang to be whole; 0: it was whole already.
    needs: members that a whole gang has bound. newest: when the newest of those bound together was created,
    in seconds since 1970. left_out: members no newer than that which were not part of the attempt. refused:
    members that kubelet had refused before, so that the attempt does not count on them. evicted: when the
    gang was last evicted for a failed device, as newest; 0: not that this process knows.
    """

    together: _Number = 0
    needs: _Number = 1
    newest: _Time = 0
    left_out: _Number = 0
    refused: _Number = 0
    evicted: _Time = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(StartRecord).decode


class StartRecords:
    """Writes the records of attempts, and the condition of gangs that are not whole."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.device_evictions: dict[str, float] = {}
        """When groups were last evicted for a failed device, by the name that they share with successors."""

    def begin(self, group: Group, members: Sequence[PodInfo]) -> None:
        """Records the attempt that starts with these members, for each of its binds: one that is sent again
        must be the same again."""
        if not group.is_gang:
            return
        evicted, ahead_s = 0, self._shared.wall_ahead_s
        at_s = -NEVER_S
        if group.n_bound:
            at_s = self.evicted_s(group)
        elif self.device_evictions:
            at_s = self.device_evictions.get(name_of(group), -NEVER_S)
        if ahead_s is not None and at_s > -NEVER_S:
            evicted = max(0, int(at_s + ahead_s))
        if group.has_started:
            record = StartRecord(0, group.start_count, evicted=evicted)
        else:
            made = [at for info in members if (at := info.pod.metadata.creation_timestamp) is not None]
            newest = int(max(made).timestamp()) if made else 0
            n_left_out = n_refused = 0
            if len(members) < len(group.members):
                n_left_out = _n_left_out(group, newest)
                n_refused = sum(one.n_refused for one in self._attempts(group).values())
            needs = group.start_count
            record = StartRecord(len(members), needs, newest, n_left_out, n_refused, evicted)
        group.start_record = _encode(record).decode()

    def was_whole(self, group: Group) -> bool:
        """Whether the gang, some of whose members hold nodes, has been whole since the first of those was
        bound."""
        mark = max(
            (
                (info.attempt, one.reason)
                for info in group.in_state(BOUND)
                if (one := _mark(info)) is not None
            ),
            default=(-1, ""),
        )
        attempts = self._attempts(group)
        held = [n for n, one in attempts.items() if one.n_holding]
        if held and _lacks_refused({n: one for n, one in attempts.items() if n >= min(held)}):
            return False  # whatever it was taken for before kubelet refused that member
        if mark[1] == LOST_MEMBERS:
            return True
        if not held:
            return mark[0] < 0 and not _left_out_by_times(group)
        first, last = min(held), attempts[max(held)]
        if any(n >= first and n > mark[0] and _stood(n, attempts) for n in attempts):
            return True
        marked = attempts.get(mark[0])
        if marked is not None and marked.n_landed >= marked.together >= marked.needs:
            return True  # it says that it is in part, and all of its binds have landed since
        is_refused = any(n >= first and one.n_refused for n, one in attempts.items())
        if mark[0] >= 0 or is_refused or _counts_on_refused(max(held), attempts):
            return False
        # Some of that attempt are gone. They had started, unless more wait than it left out.
        return _n_left_out(group, last.newest) <= last.left_out

    def is_evicted(self, group: Group) -> bool:
        """Whether an earlier process has begun to evict the gang as a whole."""
        found = (_mark(info) for info in group.in_state(BOUND))
        return any(one is not None and one.reason == EVICTED for one in found)

    def _attempts(self, group: Group) -> dict[int, _Attempt]:
        """The recorded attempts of members that exist, by number."""
        attempts: dict[int, _Attempt] = {}
        gang, own = str(group.key), group.start_record
        for info in group.members.values():
            if info.state not in (BOUND, DONE, MemberState.FAILED):
                continue
            if info.pod.spec.node_name:
                record = _record(info.pod, gang)
            else:  # this process has bound it, and the watch lags
                record = _read(own) if info.attempt == group.attempts else None
            if record is None:
                continue
            one = attempts.setdefault(info.attempt, _Attempt())
            one.together, one.newest, one.left_out = record.together, record.newest, record.left_out
            one.needs, one.refused = record.needs, record.refused
            if is_refused(info.pod):
                one.n_refused += record.together > 0
                continue
            one.n_landed += 1
            one.n_holding += info.state is BOUND
        return attempts

    def evicted_s(self, group: Group) -> float:
        """When the gang was last evicted for a failed device, by this process' clock or by its members'
        records; -NEVER_S: never. The wall clocks of two processes may differ by seconds."""
        known_s = self.device_evictions.get(name_of(group), -NEVER_S)
        if (ahead_s := self._shared.wall_ahead_s) is None or not group.is_gang:
            return known_s
        gang = str(group.key)
        records = (_record(info.pod, gang) for info in group.in_state(BOUND))
        at = max((one.evicted for one in records if one is not None), default=0)
        if at:
            known_s = max(known_s, min(at - ahead_s, self._shared.now_s))
            self.device_evictions[name_of(group)] = known_s
        return known_s

    # -- the condition ---------------------------------------------------------------------------------

    def mark(self, group: Group, reason: str, message: str) -> None:
        """Writes on a few bound members that their gang is not whole, for people and for the next process."""
        known_reason, known = group.marked
        stay = [info for info in group.in_state(BOUND) if info.pod.metadata.deletion_timestamp is None]
        stay.sort(key=lambda info: (-info.attempt, info.pod.metadata.name))
        chosen = stay[:_N_MARKED]
        if reason == LOST_MEMBERS and group.has_conditions:  # it has started, whatever a process before wrote
            others = ((info, _mark(info)) for info in stay[_N_MARKED:])
            chosen += [info for info, one in others if one is not None and one.reason != reason]
        for info in chosen:
            if reason != known_reason or info.uid not in known:
                self._write(info, "False", reason, message)
        marked = {} if known_reason == WHOLE else known
        group.marked = reason, {**marked, **{info.uid: None for info in chosen}}

    def marked_since_s(self, group: Group, reason: str) -> float:
        """Since when its members say so, on this process' clock; now, if none does or that is unknown."""
        ahead_s, now_s = self._shared.wall_ahead_s, self._shared.now_s
        marks = (_mark(info) for info in group.in_state(BOUND))
        stamps = [one.last_transition_time for one in marks if one is not None and one.reason == reason]
        times = [at.timestamp() for at in stamps if at is not None]
        return now_s if ahead_s is None or not times else min(min(times) - ahead_s, now_s)

    def write_whole(self, group: Group) -> None:
        """Writes that the gang is whole, once on each member that says otherwise or was to; again only where
        another process has written since."""
        reason, known = group.marked
        if reason == WHOLE and not group.doubts:
            return  # written, and perhaps not seen yet
        if not known and not group.has_conditions:
            return
        bound = [info for info in group.in_state(BOUND) if reason != WHOLE or info.uid in group.doubts]
        group.doubts = ()
        marked = [info for info in bound if info.pod.status.conditions and _mark(info) is not None]
        if reason != WHOLE and known:
            marked += [info for info in bound if info.uid in known and info not in marked]
        for info in marked:
            self._write(info, "True", WHOLE, is_bound_where(group))
        if marked:
            answered = {info.uid: _mark(info) for info in marked}
            group.marked = WHOLE, {**known, **answered} if reason == WHOLE else answered

    def correct_others(self, group: Group) -> None:
        """Puts right what another process has written on members of a gang that has started."""
        if not group.lost:
            self.write_whole(group)
            return
        doubted = [group.members[uid] for uid in group.doubts if uid in group.members]
        group.doubts = ()
        for info in doubted:
            if info.state is BOUND and _mark(info) is not None:
                self._write(info, "False", LOST_MEMBERS, str(group.lost))

    def _write(self, info: PodInfo, status: str, reason: str, message: str) -> None:
        meta = info.pod.metadata
        cause_id = info.group.cause_id if info.group is not None else ""
        self._shared.emit(
            WritePodCondition(
                meta.uid, meta.namespace, meta.name, GANG_WHOLE, status, reason, clean(message), cause_id
            )
        )


class _Attempt(msgspec.Struct):
    """One attempt, counted over the members that exist."""

    together: int = 0
    needs: int = 0
    newest: int = 0
    left_out: int = 0
    refused: int = 0
    n_landed: int = 0
    n_refused: int = 0
    n_holding: int = 0


def _stood(number: int, attempts: Mapping[int, _Attempt]) -> bool:
    """Whether the gang was whole once this attempt had landed."""
    one = attempts[number]
    return one.n_landed >= one.together and not _counts_on_refused(number, attempts)


def _lacks_refused(attempts: Mapping[int, _Attempt]) -> bool:
    """Whether kubelet has refused a member of the gang's start, and no later attempt has made good for it."""
    last = max((n for n, one in attempts.items() if one.n_refused), default=None)
    return last is not None and not any(
        n > last and one.together and one.n_landed for n, one in attempts.items()
    )


def _counts_on_refused(number: int, attempts: Mapping[int, _Attempt]) -> bool:
    """Whether the attempt completes a gang of whose earlier members kubelet has refused one since."""
    one = attempts[number]
    n_refused = sum(other.n_refused for n, other in attempts.items() if n < number)
    return 0 < one.together < one.needs and n_refused > one.refused


def numbers_of(group: Group) -> PodGroup | None:
    """Returns the least number that the gang was bound by, from its members' records: its object, or its
    owner, is gone or cannot be read. Nothing else that it asked for is known."""
    gang = str(group.key)
    records = (_record(info.pod, gang) for info in group.in_state(BOUND))
    needs = max((one.needs for one in records if one is not None), default=0)
    return PodGroup(group.key, min_count=needs) if needs else None


def bound_by(group: Group, standing: PodGroup | None) -> tuple[PodGroup | None, str]:
    """What holds of a gang whose object is gone: all that its object asked for, as long as this process knows
    it; else the number in its Bindings, by which no further member can be placed."""
    numbers = standing or numbers_of(group)
    if numbers is None or numbers.api_version or not group.n_pending:
        return numbers, ""
    return (
        numbers,
        f"gang {group.key} has members that are bound, and its PodGroup object is gone",
    )


def note_refusal(info: PodInfo, group: Group, *, before: Pod) -> None:
    """Takes a member's start back if this version shows that kubelet has refused it.

    A member that was seen to run is not refused but has ended: a kubelet that restarts admits its pods again.
    """
    if (
        info.state is MemberState.FAILED
        and group.is_gang
        and before.status.phase != "Running"
        and is_refused(info.pod)
    ):
        status, node = info.pod.status, info.pod.spec.node_name
        group.failed_binds[info.uid] = KubeletRefused(info.pod.key, node, status.reason)
        if group.has_started:
            move_start(group, StartCause.REFUSED)


def note_doubt(info: PodInfo, group: Group, *, before: Pod) -> bool:
    """Whether this version of the member says, unlike the last, that a gang that has started is not whole.

    Conditions are written without a fence, so that a process which no longer leads may have written it: it is
    put right (`StartRecords.whole`), or the next process believes it and evicts a gang that runs.
    """
    now = _condition(info.pod)
    if now is None or now == _condition(before):
        return False
    reason, answered = group.marked
    if reason == WHOLE and info.uid in answered:
        if now.status != "False":  # what was written has come
            group.marked = WHOLE, {uid: one for uid, one in answered.items() if uid != info.uid}
            return False
        if answered[info.uid] is None:  # our own, which is put right already
            group.marked = WHOLE, {**answered, info.uid: now}
            return False
        if answered[info.uid] == now:
            return False
    if now.status != "False" or now.reason == reason or not group.has_started:
        return False
    group.doubts = (*(uid for uid in group.doubts if uid in group.members), info.uid)
    return True


def all_landed(group: Group) -> bool:
    """Whether enough of the gang was started, with those of its last attempt that have already failed: unless
    kubelet refused them, their binds landed all the same."""
    failed = [
        info
        for info in group.in_state(MemberState.FAILED)
        if info.attempt == group.attempts and not (group.is_gang and is_refused(info.pod))
    ]
    return group.is_whole_with(failed)


def is_refused(pod: Pod) -> bool:
    """Whether its node's kubelet has ended the pod before any of its containers ran, so that its Binding has
    failed: it was not admitted, or was evicted or displaced before it started.

    A pod whose own deadline passed has ended by its own will. Source: pkg/kubelet/kubelet.go (rejectPod gives
    a reason and no container statuses), pkg/kubelet/eviction, pkg/kubelet/preemption.
    """
    status = pod.status
    if status.phase != "Failed" or not status.reason or status.reason == "DeadlineExceeded":
        return False
    found = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return not any(one.has_run for one in found)


def _record(pod: Pod, gang: str) -> StartRecord | None:
    annotations = pod.metadata.annotations or {}
    if not pod.spec.node_name or annotations.get(GANG_KEY) != gang:
        return None
    return _read(annotations.get(START_KEY, ""))


def _read(text: str) -> StartRecord | None:
    """Returns the record; None if there is none that we could have written."""
    if not text or len(text) > _MAX_RECORD:
        return None
    try:
        return _decode(text)
    except ValueError:
        return None


def _mark(info: PodInfo) -> Condition | None:
    found = _condition(info.pod)
    return found if found is not None and found.status == "False" else None


def _condition(pod: Pod) -> Condition | None:
    for one in pod.status.conditions or ():
        if one.type == GANG_WHOLE:
            return one
    return None


def _created_s(info: PodInfo) -> int:
    created = info.pod.metadata.creation_timestamp
    return 0 if created is None else int(created.timestamp())


def _n_left_out(group: Group, newest_s: float) -> int:
    """Counts members without a node that were created by then: pending, being deleted, or kept back by
    PreEnqueue's plugins, which a new process asks again. A tie counts: the API server's times are to the
    second."""
    unbound = (
        *group.in_state(MemberState.PENDING),
        *(info for info in group.in_state(MemberState.LEAVING) if not info.pod.spec.node_name),
        *(info for info in group.in_state(MemberState.GATED) if not info.pod.spec.scheduling_gates),
    )
    return sum(_created_s(info) <= newest_s for info in unbound)


def _left_out_by_times(group: Group) -> bool:
    """Whether some member that existed at the last bind has no node: the rule for members without records,
    bound by a version that wrote none, or by others."""
    placed = [info.pod for info in group.members.values() if info.pod.spec.node_name]
    last = max((at.timestamp() for pod in placed if (at := pod.bound_at) is not None), default=math.inf)
    return _n_left_out(group, last) > 0
