"""The recount of the core's invariants sees each of its tables that is spoilt by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.invariants import Recount, find_broken
from gangsched.core.types.group import GroupState, MemberState, PodInfo
from tests.support.inside import Inside
from tests.support.scenario import Cluster, cluster, gang

GPU = "nvidia.com/gpu"


def running() -> Cluster:
    """Gang a is bound on two nodes, gang b waits for room."""
    return (
        cluster(nodes=2, gpus=4)
        .submit(gang("a", pods=2, gpus=4))
        .run()
        .submit(gang("b", pods=2, gpus=1))
        .run()
    )


def _info(scheduler: Scheduler, name: str) -> PodInfo:
    return Inside(scheduler).pod_info(name)


def _owned_twice(scheduler: Scheduler) -> None:
    one, other = _info(scheduler, "a-0"), _info(scheduler, "a-1")
    other.node_name, other.row, other.ids = one.node_name, one.row, one.ids


def _on_another_row(scheduler: Scheduler) -> None:
    _info(scheduler, "a-0").row += 1


def _on_a_row_without_a_node(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").row = 0


def _used(scheduler: Scheduler) -> None:
    Inside(scheduler).node_table().free[0, 1] += 1


def _padded(scheduler: Scheduler) -> None:
    Inside(scheduler).node_table().padding[0, 0] += 1


def _by_node(scheduler: Scheduler) -> None:
    scheduler.shared.cache.by_node["n0"].clear()


def _priority(scheduler: Scheduler) -> None:
    scheduler.shared.cache.priorities[7] = 1


def _ledger(scheduler: Scheduler) -> None:
    Inside(scheduler).ledger().columns[GPU].at[0].held.popitem()


def _ledger_of_a_pod_on_the_node(scheduler: Scheduler) -> None:
    _info(scheduler, "a-0").ids = {}


def _counts(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").group.counts[MemberState.DONE] += 1  # type: ignore[union-attr]


def _state(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").state = MemberState.GATED


def _in_two_groups(scheduler: Scheduler) -> None:
    one, other = _info(scheduler, "a-0"), _info(scheduler, "b-0")
    assert other.group is not None
    other.group.members[one.uid] = one
    other.group.counts[one.state] += 1


def _in_no_group(scheduler: Scheduler) -> None:
    info = _info(scheduler, "b-0")
    assert info.group is not None
    del info.group.members[info.uid]
    info.group.counts[info.state] -= 1


def _in_another_group_than_it_says(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").group = _info(scheduler, "a-0").group


def _unknown_member(scheduler: Scheduler) -> None:
    info = _info(scheduler, "b-0")
    scheduler.shared.cache.pods.pop(info.uid)


def _holds_devices(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").ids = {GPU: ("x",)}


def _active(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").group.state = GroupState.ACTIVE  # type: ignore[union-attr]


def _in_line(scheduler: Scheduler) -> None:
    _info(scheduler, "b-0").group.active_token = 99  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_owned_twice, "one-holder: device"),
        (_on_another_row, "is counted on row"),
        (_on_a_row_without_a_node, "is on no node"),
        (_used, "pods add up to"),
        (_padded, "for pods without requests"),
        (_by_node, "pods are known on"),
        (_priority, "pods by priority"),
        (_ledger, "ledger"),
        (_ledger_of_a_pod_on_the_node, "ledger"),
        (_counts, "counts differ"),
        (_state, "counts differ"),
        (_in_two_groups, "does not know its group"),
        (_in_no_group, "is in no group"),
        (_in_another_group_than_it_says, "does not know its group"),
        (_unknown_member, "does not know its group"),
        (_holds_devices, "holds devices"),
        (_active, "active and not in line"),
        (_in_line, "groups in line"),
    ],
)
def test_what_is_spoilt_is_reported(spoil: Callable[[Scheduler], None], told: str) -> None:
    """By a recount that found all sound just before, as by one that starts over."""
    scheduler = running().scheduler
    again = Recount(scheduler.shared)
    assert again.find_broken() == []
    spoil(scheduler)
    broken = again.find_broken()
    assert any(told in problem for problem in broken), broken
    assert broken == find_broken(scheduler.shared) == again.find_broken()
