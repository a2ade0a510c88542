"""The bug museum's second room: mistakes of our own, put back one at a time in hostile storms.

As in the first (test_museum), each must be caught within a bound of seeds, by the invariant that it breaks,
and the unbroken scheduler must come through the seed that caught it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.binding import binder
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.device_audit import device_health
from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members import membership, pod_versions
from gangsched.core.kept.nominations import Nominations
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.start_together import StartTogether
from gangsched.core.types.group import NEVER_S, Group, MemberState, PodInfo
from gangsched.core.types.templates import pod_template
from gangsched.core.why import Why
from gangsched.lab.sim.faults.mischief import DEEDS
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import Key, make_node, make_pod
from gangsched.lab.sim.reading.documents import MARK
from gangsched.lab.sim.runs.storms import HOSTILE, ROUGH, STORMS, Case, Storm, case
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.streams import Item, Stream
from gangsched.lab.sim.world.weather import CALM, STORM, BindFate
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model import resources
from gangsched.model.devices import unwell
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.devices.required_ids import NONE_REQUIRED
from gangsched.model.dialects.dialect import PodGroup
from gangsched.model.text import bounded, quantity
from gangsched.plugins import gang_scheduling
from tests.support.breaking import searched

MAX_SEEDS = 40
BUT_DEVICES = frozenset(DEEDS) - {"break_device"}
Patch = pytest.MonkeyPatch


def _receiving(change: Callable[[ev.Event], ev.Event | None]) -> Callable[[Settings], Scheduler]:
    """A scheduler that receives something else: each event as `change` returns it, or not at all."""

    def make(settings: Settings) -> Scheduler:
        scheduler = make_scheduler(settings)
        handle = scheduler.handle

        def changed(events: Sequence[ev.Event], now_s: float) -> list[ef.Effect]:
            return handle([one for event in events if (one := change(event)) is not None], now_s)

        scheduler.handle = changed  # type: ignore[method-assign]
        return scheduler

    return make


# -- others' mistakes that the first room had no place for -------------------------------------------------


def m4_the_standby_ignores_its_leader(patch: Patch) -> Storm:
    """M4: a process that takes over knows bound pods as they were before its predecessor bound them."""

    def make(settings: Settings) -> Scheduler:
        scheduler = make_scheduler(settings)
        handle = scheduler.handle

        def ignoring(events: Sequence[ev.Event], now_s: float) -> list[ef.Effect]:
            return handle(events if scheduler.is_synced else list(map(_before_its_bind, events)), now_s)

        scheduler.handle = ignoring  # type: ignore[method-assign]
        return scheduler

    return replace(STORMS["storm"], make=make)


def _before_its_bind(event: ev.Event) -> ev.Event:
    if not isinstance(event, ev.PodAdded | ev.PodUpdated) or not event.pod.spec.node_name:
        return event
    own = {k: v for k, v in (event.pod.metadata.annotations or {}).items() if k not in (MARK, ALLOCATED_KEY)}
    meta = replace(event.pod.metadata, annotations=own)
    return type(event)(replace(event.pod, metadata=meta, spec=replace(event.pod.spec, node_name="")))


def m5_in_flight_and_allocated_are_kept_apart(patch: Patch) -> Storm:
    """M5: the answer to a bind ends what was in flight; what is allocated begins with the watch."""

    def make(settings: Settings) -> Scheduler:
        scheduler = make_scheduler(settings)

        def answered(event: ev.BindSucceeded) -> None:
            info = scheduler.shared.cache.pods.get(event.uid)
            if info is not None and info.state is MemberState.ASSUMED:
                for resource, ids in info.ids.items():
                    scheduler.shared.cache.ledger.release(info.row, info.uid, resource, ids)

        scheduler._on_run.pop(ev.BindSucceeded, None)
        scheduler._on_event[ev.BindSucceeded] = answered
        scheduler.validate = lambda: None  # type: ignore[method-assign]
        return scheduler

    return replace(STORMS["storm"], make=make)


def m6_the_annotation_is_written_before_the_bind(patch: Patch) -> Storm:
    """M6: a patch states which devices, and the Binding, which may come to nothing, only the node."""

    def make(settings: Settings) -> Scheduler:
        scheduler = make_scheduler(settings)
        schedule = scheduler.schedule

        def in_two(group: object, now_s: float) -> list[ef.Effect]:
            return [one for effect in schedule(group, now_s) for one in _in_two(effect)]  # type: ignore[arg-type]

        scheduler.schedule = in_two  # type: ignore[method-assign]
        return scheduler

    return replace(STORMS["storm"], make=make)


def _in_two(effect: ef.Effect) -> list[ef.Effect]:
    if not isinstance(effect, ef.BindPod) or ALLOCATED_KEY not in effect.annotations:
        return [effect]
    rest = {key: value for key, value in effect.annotations.items() if "devices" not in key}
    return [replace(effect, annotations=rest)]


def m10_the_first_list_is_an_old_one(patch: Patch) -> Storm:
    """M10: a process that starts lists from a cache that lags: pods as they were three seconds ago."""
    past: list[tuple[float, list[tuple[Key, Item]]]] = []
    listed = Stream._listed

    def old(self: Stream, connection: int) -> None:
        now_s, store = self._timeline.now_s, self._store
        if self.kind == "pods":
            past[:] = [entry for entry in past if entry[0] <= now_s]  # another seed begins at 0
            then = [pods for at_s, pods in past if at_s <= now_s - 3.0]
            if not self._known and then:
                self._store = lambda: then[-1]
        listed(self, connection)
        self._store = store

    send = Stream.send

    def noting(self: Stream, key: Key, item: Item, *, deleted: bool = False) -> None:
        send(self, key, item, deleted=deleted)
        if self.kind == "pods":
            past.append((self._timeline.now_s, list(self._store())))

    patch.setattr(Stream, "_listed", old)
    patch.setattr(Stream, "send", noting)
    return STORMS["storm"]


def m11_durations_by_the_wall_clock(patch: Patch) -> Storm:
    """M11: time is read from the machine's clock, which is set back by an hour after 20 s."""

    def make(settings: Settings) -> Scheduler:
        scheduler = make_scheduler(settings)
        handle, advance, schedule_next = scheduler.handle, scheduler.advance, scheduler.schedule_next
        deadline_s = scheduler.next_deadline_s
        ahead_s = 0.0

        def wall_s(now_s: float) -> float:
            nonlocal ahead_s
            ahead_s = 4000.0 if now_s < 20.0 else 400.0
            return now_s + ahead_s

        def due_s() -> float | None:
            when_s = deadline_s()
            return None if when_s is None else when_s - ahead_s

        scheduler.handle = lambda events, now_s: handle(events, wall_s(now_s))  # type: ignore[method-assign]
        scheduler.advance = lambda now_s: advance(wall_s(now_s))  # type: ignore[method-assign]
        scheduler.schedule_next = lambda now_s: schedule_next(wall_s(now_s))  # type: ignore[method-assign]
        scheduler.next_deadline_s = due_s  # type: ignore[method-assign]
        return scheduler

    return replace(STORMS["one-process"], make=make)


# -- our own ----------------------------------------------------------------------------------------------


def sums_of_quantities_overflow(patch: Patch) -> Storm:
    """Quantities end at 2^62, so three of them are more than an int64 holds."""

    def unbounded(total: dict[str, int], more: dict[str, int]) -> None:
        for name, amount in more.items():
            total[name] = total.get(name, 0) + amount

    patch.setattr(resources, "_add", unbounded)
    patch.setattr(quantity, "_clamp", lambda value: int(Decimal(value)))
    quantity.to_int.cache_clear()
    quantity.to_milli.cache_clear()
    return STORMS["hostile"]


def depth_is_not_bounded(patch: Patch) -> Storm:
    """Device constraints are decoded however deep they are nested."""
    patch.setattr(bounded, "check", lambda *args, **kwargs: None)
    return replace(STORMS["hostile"], rates=replace(HOSTILE, misuse_per_s=3.0))


def a_bare_404_frees_a_pod(patch: Patch) -> Storm:
    """Whatever comes with the number 404 is taken for the API server's word that the pod is gone."""

    def believed(event: ev.Event) -> ev.Event:
        if isinstance(event, ev.BindUnknown) and event.message == BindFate.PROXIED.value:
            return ev.BindFailed(event.uid, event.attempt, 404, "", "404 page not found")
        return ev.PodRead(event.uid, None) if isinstance(event, ev.PodUnread) else event

    return Storm("", rates=replace(ROUGH, proxied=0.2), make=_receiving(believed))


def a_pod_reported_gone_is_gone_for_ever(patch: Patch) -> Storm:
    """A pod of which a 404 was believed stays LEAVING: neither a later version nor a read brings it back."""
    keep = membership.Membership._state_of

    def kept(self: membership.Membership, info: object, pod: object) -> MemberState:
        was: MemberState = info.state  # type: ignore[attr-defined]
        found = keep(self, info, pod)  # type: ignore[arg-type]
        return was if was is MemberState.LEAVING and found is MemberState.PENDING else found

    def gone(event: ev.Event) -> ev.Event:
        if isinstance(event, ev.BindUnknown) and event.message == BindFate.PROXIED.value:
            return ev.BindFailed(event.uid, event.attempt, 404, "NotFound", "404 page not found")
        return event

    def make(settings: Settings) -> Scheduler:
        scheduler = _receiving(gone)(settings)
        scheduler.shared.read_gone_at = lambda when_s, info: None  # type: ignore[method-assign]
        return scheduler

    patch.setattr(membership.Membership, "_state_of", kept)
    # Room for everybody: what it took twice does not hide what it has forgotten.
    pods = tuple(make_pod(f"a-{k}", group="a", min_members=4) for k in range(4))
    workload = Workload(tuple(make_node(f"n{i}") for i in range(4)), (Arrival(1.0, pods),))
    rates = replace(CALM, proxied=0.3)
    return Storm("", lambda seed: workload, rates=rates, make=make)


def an_edited_annotation_is_not_read_again(patch: Patch) -> Storm:
    """A gang refused for what its user has mended since waits for the five-minute flush."""
    for module in (membership, pod_versions):
        patch.setattr(module, "is_edited", lambda old, pod: False)
    return replace(STORMS["hostile"], rates=replace(HOSTILE, misuse_per_s=3.0))


def a_parser_reads_half(patch: Patch) -> Storm:
    """Requests are read wrongly everywhere alike: only a second parser can see it."""
    right = resources.parse_quantities

    def wrong(quantities: resources.Quantities | None) -> dict[str, int]:
        return {n: a // 2 if n == "nvidia.com/gpu" and a < 8 else a for n, a in right(quantities).items()}

    patch.setattr(resources, "parse_quantities", wrong)
    return STORMS["storm"]


def a_member_that_has_succeeded_is_gone_with_its_gang(patch: Patch) -> Storm:
    """A gang that is evicted whole waits for members too that no controller makes any more."""
    right = GroupOutcome.unwound

    def wrong(self: GroupOutcome, group: Group) -> None:
        for info in group.in_state(MemberState.DONE) if not group.counts[MemberState.BOUND] else ():
            group.move(info, MemberState.LEAVING)
        right(self, group)

    patch.setattr(GroupOutcome, "unwound", wrong)
    sick = STORMS["sick"]
    others = tuple(name for name in DEEDS if name != "break_device")
    return replace(sick, rates=replace(sick.rates, without=others))


def a_group_that_starts_with_others_waits_for_none(patch: Patch) -> Storm:
    """Groups that list one another are placed together where they are there at once, and do not wait."""
    patch.setattr(gang_scheduling, "_missing", lambda name, sibling: "")
    return STORMS["storm"]


def a_name_means_any_group_of_that_name(patch: Patch) -> Storm:
    """A list means the first group of a name, also where another of that name is in its own words."""

    def first(self: StartTogether, name: str, dialect: str) -> Group | None:
        keys = self._listing.get(name)
        return self._groups.get(keys[0]) if keys else None

    patch.setattr(StartTogether, "_meant", first)
    return STORMS["storm"]


def ranks_are_counted_from_0_again(patch: Patch) -> Storm:
    """A pod that replaces a lost member, or joins later, gets a rank as if it were among the first."""

    def assign(group: Group, members: list[PodInfo], *_: object) -> None:
        for rank, info in enumerate(info for info in members if info.rank < 0):
            info.rank = rank

    patch.setattr(binder, "assign_ranks", assign)
    return STORMS["storm"]


def roles_do_not_count(patch: Patch) -> Storm:
    """As many as a gang needs start, whatever they are to be."""
    patch.setattr(Group, "missing_roles", lambda self: [])
    patch.setattr(Group, "short_roles", lambda self: {})
    return STORMS["wordings"]


def the_total_is_not_waited_for(patch: Patch) -> Storm:
    """A gang starts with its least members, although it states how many must be there."""
    right = gang_scheduling.GangScheduling.permit

    def permit(self: gang_scheduling.GangScheduling, group: Group, siblings: Mapping[str, Group]) -> Status:
        status = right(self, group, siblings)
        return SUCCESS if "members are here" in status.reason else status

    patch.setattr(gang_scheduling.GangScheduling, "permit", permit)
    return STORMS["storm"]


def how_devices_lie_is_not_looked_at(patch: Patch) -> Storm:
    patch.setattr(pod_template, "parse_constraints", lambda text: {})
    return STORMS["wordings"]


def whether_ids_are_known_is_not_looked_at(patch: Patch) -> Storm:
    patch.setattr(pod_template, "parse_required_ids", lambda text: NONE_REQUIRED)
    return STORMS["wordings"]


def a_wait_restarts_with_each_member(patch: Patch) -> Storm:
    """Whoever comes late to a gang that waits gives it all of its time once more."""
    right = Attempts._hold

    def hold(self: Attempts, group: Group, status: Status) -> None:
        group.deadline_s = NEVER_S
        right(self, group, status)

    patch.setattr(Attempts, "_hold", hold)
    return STORMS["late"]


def victims_are_waited_for_without_end(patch: Patch) -> Storm:
    """Room is kept from all others until its victims are gone, whenever that is."""
    right = Nominations.again

    def again(self: Nominations, group: Group) -> bool:
        if group.preemption is not None:
            group.preemption.deadline_s = NEVER_S
        return right(self, group)

    patch.setattr(Nominations, "again", again)
    return STORMS["late"]


def no_object_is_needed(patch: Patch) -> Storm:
    """A gang whose object has not been read starts with one member."""
    right = GroupSpecs._spec_of

    def spec_of(self: GroupSpecs, group: Group, info: PodInfo | None) -> tuple[PodGroup | None, Why]:
        found, problem = right(self, group, info)
        if found is None and not problem and group.members:
            return PodGroup(group.key), ""
        return found, problem

    patch.setattr(GroupSpecs, "_spec_of", spec_of)
    return STORMS["wordings"]


def every_kind_is_waited_for(patch: Patch) -> Storm:
    """Nothing is decided while one CRD has a broken conversion webhook."""
    right = Scheduler._kind_read

    def heard(self: Scheduler, kind: str, *, is_served: bool | None, why_not: str = "") -> None:
        if is_served is not None:
            right(self, kind, is_served=is_served, why_not=why_not)

    patch.setattr(Scheduler, "_kind_read", heard)
    return STORMS["wordings"]


def what_a_killed_process_left_unwritten_stays_so(patch: Patch) -> Storm:
    patch.setattr(Reporter, "found_started", lambda self, group: None)
    return STORMS["wordings"]


def a_refused_eviction_is_repeated_for_ever(patch: Patch) -> Storm:
    """Also once the device is well again."""
    patch.setattr(device_health, "_goes", lambda failure: failure.is_acted_on)
    return replace(STORMS["sick"], rates=replace(STORM, eviction_refused=0.9, without=BUT_DEVICES))


def kubelets_word_is_not_read(patch: Patch) -> Storm:
    """What they write into pods' statuses, of devices."""
    patch.setattr(device_health, "told_by_kubelet", lambda pod, ids, claims: iter(()))
    return STORMS["unwell"]


def what_kubelets_do_not_know_is_sick(patch: Patch) -> Storm:
    """As where a driver is gone for a moment."""
    right = unwell.told_by_kubelet

    def told(*of: Any) -> list[unwell.Told]:
        return [one._replace(health="Unhealthy") for one in right(*of)]

    patch.setattr(device_health, "told_by_kubelet", told)
    return STORMS["unwell"]


def what_kubelets_know_no_longer_is_well(patch: Patch) -> Storm:
    """As where the driver of a sick device has gone with it."""
    right = unwell.told_by_kubelet

    def told(*of: Any) -> list[unwell.Told]:
        return [one for one in right(*of) if one.health == "Unhealthy"]

    patch.setattr(device_health, "told_by_kubelet", told)
    return STORMS["unwell"]


def kubelets_own_ids_are_the_pods(patch: Patch) -> Storm:
    """Also where the pod was given others by environment."""
    right = unwell.told_by_kubelet
    patch.setattr(device_health, "told_by_kubelet", lambda pod, ids, claims: right(pod, {}, claims))
    return STORMS["unwell"]


# The mistake, and how what is found must begin.
EXHIBITS: dict[str, tuple[Callable[[Patch], Storm], tuple[str, ...]]] = {
    "M4 the standby ignores its leader": (m4_the_standby_ignores_its_leader, ("one-holder:", "room:")),
    "M5 in flight and allocated are kept apart": (
        m5_in_flight_and_allocated_are_kept_apart,
        ("one-holder:",),
    ),
    "M6 the annotation is written before the bind": (
        m6_the_annotation_is_written_before_the_bind,
        ("devices-as-bound:",),
    ),
    "M10 the first list is an old one": (
        m10_the_first_list_is_an_old_one,
        ("one-holder:", "room:", "whole-in-time"),
    ),
    "M11 durations by the wall clock": (
        m11_durations_by_the_wall_clock,
        ("whole-in-time:", "nothing-starves:", "pages-true:"),
    ),
    "sums of quantities overflow": (sums_of_quantities_overflow, ("core raised OverflowError",)),
    "depth is not bounded": (depth_is_not_bounded, ("core raised RecursionError",)),
    "a bare 404 frees a pod": (
        a_bare_404_frees_a_pod,
        ("one-holder:", "room:", "whole-in-time", "nothing-forgotten:"),
    ),
    "a pod reported gone is gone for ever": (
        a_pod_reported_gone_is_gone_for_ever,
        ("nothing-forgotten:", "pages-true:", "conditions-true:"),
    ),
    "an edited annotation is not read again": (an_edited_annotation_is_not_read_again, ("nothing-starves:",)),
    "a member that has succeeded is gone": (
        a_member_that_has_succeeded_is_gone_with_its_gang,
        ("nothing-forgotten:", "pages-true:", "conditions-true:"),
    ),
    "sets do not wait": (a_group_that_starts_with_others_waits_for_none, ("sets-start-together:",)),
    "a name means any group": (
        a_name_means_any_group_of_that_name,
        ("sets-start-together:", "nothing-starves:"),
    ),
    "ranks are counted from 0 again": (ranks_are_counted_from_0_again, ("ranks-unique:",)),
    "roles do not count": (roles_do_not_count, ("starts-whole:",)),
    "the total is not waited for": (the_total_is_not_waited_for, ("starts-whole:",)),
    "how devices lie is not looked at": (how_devices_lie_is_not_looked_at, ("devices-as-asked:",)),
    "whether IDs are known is not looked at": (
        whether_ids_are_known_is_not_looked_at,
        ("devices-as-asked:",),
    ),
    "a wait restarts with each member": (a_wait_restarts_with_each_member, ("room-held-briefly:",)),
    "victims are waited for without end": (victims_are_waited_for_without_end, ("room-held-briefly:",)),
    "no object is needed": (no_object_is_needed, ("starts-whole:",)),
    "every kind is waited for": (every_kind_is_waited_for, ("nothing-starves: nothing has been decided",)),
    "left unwritten": (what_a_killed_process_left_unwritten_stays_so, ("group-status:",)),
    "a refused eviction is repeated": (a_refused_eviction_is_repeated_for_ever, ("failed-devices:",)),
    "kubelet's word is not read": (kubelets_word_is_not_read, ("failed-devices:",)),
    "what kubelets do not know is sick": (what_kubelets_do_not_know_is_sick, ("failed-devices:",)),
    "what kubelets know no longer is well": (what_kubelets_know_no_longer_is_well, ("failed-devices:",)),
    "kubelet's own IDs are the pod's": (kubelets_own_ids_are_the_pods, ("failed-devices:",)),
    "a parser reads half": (a_parser_reads_half, ("room:", "devices-as-bound:", "cache-is-store:")),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str, monkeypatch: Patch) -> None:
    if exhibit == "depth is not bounded" and sys.version_info >= (3, 14):
        pytest.skip("as deep as an annotation can be, this Python's stack reaches; see it with Python 3.13")
    put_back, found_by = EXHIBITS[exhibit]
    with monkeypatch.context() as patch:
        storm = put_back(patch)
        cases = (case(storm, seed) for seed in searched(exhibit, MAX_SEEDS))
        caught = next((one for one in cases if _breaks(one, found_by)), None)
    quantity.to_int.cache_clear()
    quantity.to_milli.cache_clear()
    assert caught is not None, f"{exhibit}: not caught in {MAX_SEEDS} seeds"
    mended = case(replace(storm, make=make_scheduler), caught.seed).failure()
    assert mended is None, f"broken without the mistake too: {mended}"


def _breaks(one: Case, found_by: tuple[str, ...]) -> bool:
    broken = one.failure()
    return broken is not None and broken.problem.split(" s: ", 1)[1].startswith(found_by)
