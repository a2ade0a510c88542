"""Groups that start together: what is one set, how large it may be, and what working it out costs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.cycle import cycle
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY, MAX_START_TOGETHER
from tests.core.calls import n_calls
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def listing(name: str, others: list[str], *, pods: int = 1, gpus: int = 1, first: int = 0) -> list[Pod]:
    """A group of pods that names these others."""
    own = {GROUPS_KEY: msgspec.json.encode([name, *others]).decode()}
    return with_annotations(gang(name, pods=pods, gpus=gpus, first=first), own)


def chain(n: int, *, reach: int = 1, ring: bool = False) -> list[list[Pod]]:
    """g0, g1, …: each names its `reach` neighbours on both sides; in a ring the ends are neighbours."""
    steps = [k for k in range(-reach, reach + 1) if k]
    made = []
    for i in range(n):
        near = [(i + k) % n if ring else i + k for k in steps]
        made.append(listing(f"g{i}", [f"g{k}" for k in near if 0 <= k < n]))
    return made


def tell_all(c: Cluster, groups: list[list[Pod]]) -> Cluster:
    """All of them in one batch, as a list after a restart tells them."""
    return c.tell(*(ev.PodUpdated(c.store(pod)) for pods in groups for pod in pods))


def test_a_chain_of_as_many_as_may_starts_as_one() -> None:
    c = tell_all(cluster(nodes=8), chain(MAX_START_TOGETHER)).run()
    assert all(c.placed(f"g{i}") for i in range(MAX_START_TOGETHER))


@pytest.mark.parametrize("ring", [False, True], ids=["chain", "ring"])
def test_one_group_too_many_is_refused_with_the_reason_on_each(ring: bool) -> None:
    n = MAX_START_TOGETHER + 1
    c = tell_all(cluster(nodes=10), chain(n, ring=ring)).run()
    for i in range(n):
        assert c.untouched(f"g{i}")
        assert c.said(f"g{i}-0").startswith(
            f"gang d/g{i} starts together with more than 63 other groups, directly (d/g"
        )
    assert c.said("g1-0").endswith(
        "(d/g0, d/g2…) or through them; at most 64 groups may start together: shorten the lists in "
        "gangsched.io/groups"
    )
    c.five_more_turns_change_nothing()


def test_one_group_too_many_returns_all_reservations_and_all_start_when_it_goes() -> None:
    """The last of 64 is still to come, so 63 wait reserved; two come and there are 65."""
    groups = chain(MAX_START_TOGETHER + 1)
    c = tell_all(cluster(nodes=10), groups[1:-1]).run()
    assert {c.state(f"g{i}") for i in range(1, MAX_START_TOGETHER)} == {"waiting"}
    tell_all(c, [groups[0], groups[-1]]).run()
    assert {c.state(f"g{i}") for i in range(MAX_START_TOGETHER + 1)} == {"unschedulable"}
    assert not any(group.n_assumed for group in c.groups())
    # The last is gone, and nobody lists it any more: the edit alone is what cures the set.
    c.delete(f"g{MAX_START_TOGETHER}-0")
    last = c.pod(f"g{MAX_START_TOGETHER - 1}-0")
    (fresh,) = listing(f"g{MAX_START_TOGETHER - 1}", [f"g{MAX_START_TOGETHER - 2}"])
    c.update(last, metadata=fresh.metadata)
    c.run().wait(2.0)
    assert all(c.placed(f"g{i}") for i in range(MAX_START_TOGETHER))


def test_a_set_that_is_cut_in_two_is_tried_on_both_sides_of_the_cut() -> None:
    c = tell_all(cluster(nodes=10), chain(MAX_START_TOGETHER + 1)).run()
    for i in (31, 33):  # g32's neighbours list it no longer, and are not there themselves any more
        c.delete(f"g{i}-0")
    c.wait(20.0)
    rest = [i for i in range(MAX_START_TOGETHER + 1) if i not in (31, 33)]
    assert {c.state(f"g{i}") for i in rest} == {"waiting"}, "each part is placed, and waits for whom it lists"


def test_many_that_list_one_another_cost_little_a_turn() -> None:
    """900 groups of one pod that list 62 neighbours each: every list was walked for every group, and again
    for each that asked Permit, which is 50 million steps in one turn."""
    c = cluster(nodes=2)
    groups = chain(900, reach=31, ring=True)
    events = [ev.PodUpdated(c.store(pod)) for pods in groups for pod in pods]
    heard = n_calls(lambda: c.scheduler.handle(events, c.now_s))
    turns = []
    while c.scheduler.n_active:
        turns.append(n_calls(lambda: c.scheduler.schedule_next(c.now_s)))
    assert len(turns) == 900
    assert heard < 900 * 500
    assert max(turns) < 64 * 64 * 10, "one walk as far as a set may go"
    assert sum(turns) < 900 * 3_000


def test_a_whole_set_is_worked_out_once_for_all_of_its_groups() -> None:
    """64 groups that all name each other."""
    names = [f"g{i}" for i in range(MAX_START_TOGETHER)]
    c = tell_all(cluster(nodes=10), [listing(name, names) for name in names])
    sets, group = c.scheduler.shared.start_together, c.group("g0")
    first = n_calls(lambda: sets.siblings(group))
    assert len(sets.siblings(group)) == MAX_START_TOGETHER - 1
    others = [c.group(name) for name in names[1:]]
    assert first < MAX_START_TOGETHER**2 * 10
    assert n_calls(lambda: [sets.siblings(one) for one in others]) < MAX_START_TOGETHER**2 * 3


def test_a_list_of_too_many_is_refused_with_its_number() -> None:
    c = cluster().submit(listing("a", [f"g{i}" for i in range(MAX_START_TOGETHER)])).run()
    assert c.untouched("a")
    assert "65 groups start together, this one included; at most 64 may" in c.said("a-0")
    assert len(c.all(ef.BindPod)) == 0


def started() -> Cluster:
    """`a` and `b` have started together; then `b` was deleted and somebody took its node."""
    c = cluster(nodes=2, gpus=4).submit(listing("a", ["b"], gpus=2), listing("b", ["a"], gpus=4)).run()
    assert c.placed("a")
    return c.delete("b-0").submit(make_pod("other", gpus=4)).run()


def test_what_a_group_grows_by_does_not_wait_for_the_successor_of_one_that_it_started_with() -> None:
    c = started().submit(listing("b", ["a"], gpus=4)).run()
    assert c.untouched("b")
    c.submit(listing("a", ["b"], gpus=2, first=1)).run()
    assert c.placed("a", on=1)


def test_such_a_successor_does_not_wait_for_what_the_other_grows_by() -> None:
    c = started().submit(make_pod("third", gpus=2)).run()
    c.submit(listing("a", ["b"], gpus=2, first=1)).run()
    assert c.state("a") == "unschedulable"
    c.submit(listing("b", ["a"], gpus=0)).run()
    assert c.placed("b")


def test_a_group_that_failed_before_its_bind_was_answered_has_not_started() -> None:
    """The other's successor waits for one in its place, as for one that failed when it ran."""
    c = cluster(nodes=2)
    c.answer = lambda bind: "ok" if bind.name.startswith("a") else "hold"
    tell_all(c, [listing("a", ["b"]), listing("b", ["a"])]).run()
    [bind] = c.held_binds
    failed = c.phase("b-0", "Failed").commit(bind)
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(failed)).run()
    c.answer = lambda _: "ok"
    c.delete("a-0").submit(listing("a", ["b"], first=1)).run()
    assert c.untouched("a")
    c.submit(listing("b", ["a"], first=1)).run()
    assert c.placed("a")
    assert c.placed("b")


def half_bound(*, taken: int) -> Cluster:
    """`a` is bound in part and `b` not at all, as their binds failed; others take so many GPUs before they
    are tried again."""
    c = cluster(nodes=0).node(make_node("n0", gpus=4)).node(make_node("n1", gpus=1))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "403"
    c.submit(listing("a", ["b"], pods=2, gpus=2), listing("b", ["a"])).run()
    c.answer = lambda bind: "ok"
    return c.submit([make_pod("other", gpus=taken)]).run().clear().wait(3.0)


def test_a_group_that_is_bound_in_part_is_completed_although_the_other_no_longer_fits() -> None:
    c = half_bound(taken=1)
    assert c.placed("a", on=1)
    assert c.untouched("b")


def test_one_that_fits_waits_reserved_for_the_other_that_is_bound_in_part() -> None:
    c = half_bound(taken=2)
    assert c.state("a") == "unschedulable"
    assert c.state("b") == "waiting"
    c.delete("other").run()
    assert c.placed("a", on=1)
    assert c.placed("b")


def test_the_last_of_a_set_starts_it_at_once_although_the_others_rest_after_their_wait() -> None:
    pods = {name: listing(name, [other for other in "abc" if other != name]) for name in "abc"}
    c = cluster(nodes=1).submit(pods["a"], pods["b"]).run().wait(60.5)
    assert {c.state("a"), c.state("b")} == {"backoff"}
    c.submit(pods["c"]).run()
    assert all(c.placed(name) for name in "abc")


def test_what_is_left_of_a_gang_does_not_wait_for_a_partner_that_has_ended_and_is_gone() -> None:
    c = cluster(nodes=2).submit(listing("a", ["b"], pods=3), listing("b", ["a"])).run()
    for name in ("a-0", "a-1"):
        c.phase(name, "Succeeded")
    c.delete("b-0", "a-2").restart().run()
    c.submit(listing("a", ["b"], pods=3)[2:]).run()
    assert c.placed("a")


def test_nobody_waits_for_what_is_left_of_a_gang_that_is_not_recreated() -> None:
    c = cluster(nodes=2).submit(listing("a", ["b"], pods=3), listing("b", ["a"])).run()
    c.phase("a-0", "Succeeded").delete("b-0", "a-1", "a-2").restart().run()
    c.submit(listing("b", ["a"])).run()
    assert c.placed("b")


def ends_made_again(*ends: str) -> Cluster:
    """A chain g0 - g1 - g2 - g3, of which g1 has ended; these are made again."""
    groups = chain(4)
    c = tell_all(cluster(nodes=2), groups).run()
    assert all(c.placed(f"g{i}") for i in range(4))
    c.phase("g1-0", "Succeeded").delete("g0-0", "g2-0", "g3-0").restart().run()
    return c.submit(*(groups[int(name[1:])] for name in ends)).run()


def test_a_group_waits_for_nobody_to_whom_only_one_that_has_ended_ties_it() -> None:
    c = ends_made_again("g0", "g2")
    assert c.placed("g0")
    assert c.state("g2") == "waiting"
    assert "group d/g3 does not exist" in c.said("g2-0")
    c = ends_made_again("g2", "g3")
    assert c.placed("g2")
    assert c.placed("g3")


def test_a_group_that_is_refused_does_not_start_as_another_names_it() -> None:
    c = cluster().submit(listing("b", ["a"]), make_pod("b-x", group="b", scheduler=STRANGER)).run()
    c.submit(listing("a", ["b"])).run()
    assert c.said("b-0").startswith("gang d/b: members name different schedulers")
    assert c.state("a") == "waiting"
    c.five_more_turns_change_nothing()
    c.delete("b-x").wait(2.0)
    assert c.placed("a")
    assert c.placed("b")


def preempting() -> Cluster:
    """Two groups that start together wait for two pods to go."""
    c = cluster(nodes=2, settings=Settings(permit_wait_s=60.0))
    c.submit(make_pod("low-0", gpus=8), make_pod("low-1", gpus=8)).run()
    c.evictions = "slow"
    for name, other in (("a", "b"), ("b", "a")):
        c.submit(important(listing(name, [other], gpus=8), 5))
    c.run()
    assert [c.state("a"), c.state("b")] == ["waiting", "waiting"]
    return c


def test_a_group_whose_partner_is_gone_makes_room_for_itself() -> None:
    c = preempting().delete("a-0").run().wait(3.0)
    assert c.said("b-0") == (
        "gang d/b: preemption: room is reserved on 1 node; waiting for 1 pod of lower priority to go: d/low-0"
    )
    assert c.count("permit_timeouts") == 0
    assert not [one for one in c.all(ef.RecordEvent) if "WaitOnPermit" in one.message]


def test_a_group_that_waited_for_victims_waits_for_its_partner_as_long_as_any() -> None:
    c = preempting().delete("a-0").run().wait(3.0)
    c.delete("low-0").run()
    assert "group d/a does not exist, or does not list this group; for 60 s at most" in c.said("b-0")
    c.wait(59.0)
    assert c.state("b") == "waiting"
    assert c.count("permit_timeouts") == 0
    c.wait(2.0)
    assert c.count("permit_timeouts") == 1


def test_the_end_of_a_pod_that_a_more_important_partner_kept_is_news_to_who_needs_others_too() -> None:
    """a started with b, which is more important than what waits; x shares a's node and is too small."""
    c = cluster(nodes=2)
    pods = [*important(listing("b", ["a"], gpus=8), 20), *listing("a", ["b"], gpus=4)]
    c.submit(pods, make_pod("x-0", gpus=4)).run()
    c.submit(make_pod("high-0", gpus=8, priority=10)).run()
    assert not c.all(ef.EvictPod)
    c.wait(2.0).phase("a-0", "Succeeded").run().wait(0.0)
    assert [e.name for e in c.all(ef.EvictPod)] == ["x-0"]
    assert c.placed("high")


def test_groups_that_are_alike_are_not_tried_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight gangs of whole nodes that could preempt: every order of placing them ends like the first."""
    n_tried = 0
    place_all = cycle._place_all

    def counted(*args: Any) -> Any:
        nonlocal n_tried
        n_tried += 1
        return place_all(*args)

    monkeypatch.setattr(cycle, "_place_all", counted)
    c = cluster(nodes=7).submit(*(gang(f"low-{i}", pods=2, gpus=4) for i in range(7))).run()
    c.evictions = "slow"
    c.submit(*(important(gang(f"first-{i}", pods=2, gpus=8), 1) for i in range(2))).run()
    n_tried = 0
    sets = [
        listing(f"g{i}", [f"g{k}" for k in (i - 1, i + 1) if 0 <= k < 8], pods=2, gpus=8) for i in range(8)
    ]
    c.submit(*(important(pods, 2) for pods in sets)).run()
    assert c.untouched("g0")
    assert 0 < n_tried < 8


def important(pods: list[Pod], priority: int) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, priority=priority)) for pod in pods]


def test_waiting_for_a_group_that_is_being_bound_is_no_failed_attempt() -> None:
    """However often it was in line meanwhile, it starts within a second of the other's last bind."""
    c = cluster(nodes=4)
    c.answer = lambda bind: "422" if bind.group == "d/a" and bind.attempt == 1 else "hold"
    c.submit(listing("a", ["b"])).submit(listing("b", ["a"])).run()
    for k in range(6):
        c.wait(12.0).submit(listing("a", ["b"], first=k + 1)).run()
    assert c.said("a-0").endswith("starts together with d/b, which is binding")
    c.answer = lambda bind: "ok"
    [bind] = c.held_binds
    c.commit(bind)
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).run().wait(1.1).run()
    assert c.placed("a")


def test_a_group_that_is_cut_off_from_the_one_being_bound_does_not_wait_for_it() -> None:
    c = cluster(nodes=4)
    c.answer = lambda bind: {"d/a": "422", "d/d": "hold"}.get(bind.group, "ok")
    c.submit(listing("a", ["b"])).submit(listing("b", ["a", "c"]))
    c.submit(listing("c", ["b", "d"])).submit(listing("d", ["c"])).run()
    c.wait(12.0).submit(listing("a", ["b"], first=1)).run()
    assert c.said("a-1").endswith("starts together with d/d, which is binding")
    c.answer = lambda bind: "ok"
    c.wait(3.0).delete("c-0").run()
    assert c.held_binds
    assert c.placed("a")
