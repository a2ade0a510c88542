"""Gangs with resource claims that make room for themselves on a real API server: victims are evicted, their
claims are deallocated, and the gang gets the devices. No more pods go than a search of all sets needs, in
GANGSCHED_PREEMPTED_CASES random pools."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from random import Random
from typing import NamedTuple

import pytest

from tests.real.claimed import ClaimCluster, request, wish
from tests.real.picture import node_of
from tests.real.test_preemption import priority_class

pytestmark = pytest.mark.real

SEED = 18
N_CASES = int(os.environ.get("GANGSCHED_PREEMPTED_CASES", "4"))


@pytest.fixture
def cluster(claim_cluster: ClaimCluster) -> ClaimCluster:
    """Devices in claims of one or of two, and pods of higher priority."""
    c = claim_cluster
    priority_class(c.plane, "high")
    c.device_class()
    c.template("one", wish())
    c.template("two", wish(request(count=2)))
    return c


# -- what is needed at least -----------------------------------------------------------------------------


class Runs(NamedTuple):
    """A bound pod of a gang, and the number of devices that it has on its node."""

    name: str
    gang: str
    node: str
    n_devices: int


def running(cluster: ClaimCluster, gangs: Sequence[str]) -> list[Runs]:
    pods = [(gang, pod) for gang in gangs for pod in cluster.members(gang)]
    n = {pod["metadata"]["name"]: len(cluster.devices_of(pod["metadata"]["name"])) for _, pod in pods}
    return [
        Runs(name := pod["metadata"]["name"], gang, node, n[name])
        for gang, pod in pods
        if (node := node_of(pod))
    ]


def may_stay(pods: Sequence[Runs], least: dict[str, int]) -> bool:
    """Whether each gang has as many pods as it needs, or none."""
    left = Counter(pod.gang for pod in pods)
    return all(n >= least[gang] for gang, n in left.items())


def fits(room: dict[str, int], pods: Sequence[Runs], n_pods: int, n_each: int) -> bool:
    """Whether so many more pods find so many devices each on one node, beside these."""
    free = Counter(room)
    free.subtract({node: sum(pod.n_devices for pod in pods if pod.node == node) for node in room})
    return sum(n // n_each for n in free.values()) >= n_pods


def least_victims(
    room: dict[str, int], pods: Sequence[Runs], least: dict[str, int], n_pods: int, n_each: int
) -> int | None:
    """How many pods have to go; None: there would be no room without all of them either."""
    for n in range(len(pods) + 1):
        for stay in combinations(pods, len(pods) - n):
            if may_stay(stay, least) and fits(room, stay, n_pods, n_each):
                return n
    return None


@pytest.mark.parametrize("case", range(N_CASES))
def test_no_more_pods_go_than_have_to(cluster: ClaimCluster, case: int) -> None:
    """The pool is full of gangs of all sizes, some of which can spare a pod."""
    c, rng = cluster, Random(SEED + case)
    room = {f"n{i}": rng.randint(2, 4) for i in range(3)}
    for i, n in enumerate(room.values()):
        c.offer(1, devices=n, first=i)
    c.schedule()
    lows: list[str] = []
    n_left = sum(room.values())
    while n_left:
        n_pods = rng.randint(1, min(3, n_left))
        name = f"low{len(lows)}"
        c.claiming(name, pods=n_pods, min_count=max(n_pods - rng.randint(0, 1), 1))
        c.whole(name, pods=n_pods)
        lows.append(name)
        n_left -= n_pods
    n_pods, n_each = rng.choice(((1, 1), (1, 2), (2, 1), (2, 2), (3, 1)))
    pods = running(c, lows)
    needed = least_victims(room, pods, {name: c.gangs[name] for name in lows}, n_pods, n_each)
    what = f"case {case}: {n_pods} pods with {n_each} devices, beside {pods}"
    assert needed, what
    c.claiming("high", pods=n_pods, own={1: "one", 2: "two"}[n_each], priorityClassName="high")
    c.whole("high")
    assert len(c.devices_of("high")) == n_pods * n_each
    gone = {pod.name for pod in pods} - {*c.picture.pods}
    assert len(gone) == needed, f"{what}: {gone} went, {needed} had to"
    for name in lows:
        c.unchanged(name, for_s=0.1)


def test_the_search_of_all_sets_finds_the_smallest() -> None:
    pods = [Runs("a-0", "a", "n0", 1), Runs("a-1", "a", "n1", 1), Runs("b-0", "b", "n1", 1)]
    room, both = {"n0": 1, "n1": 2}, {"a": 2, "b": 1}
    assert least_victims(room, pods, both, 1, 1) == 1, "b"
    assert least_victims(room, pods, both, 2, 1) == 2, "a"
    assert least_victims(room, pods, both, 1, 2) == 3, "a pod of a takes the other one along"
    assert least_victims(room, pods, {"a": 1, "b": 1}, 1, 2) == 2, "b, and the pod of a beside it"
    assert least_victims(room, pods, both, 1, 3) is None


# -- claims that are not free with their pod --------------------------------------------------------------


def test_a_pod_that_shares_its_claim_with_one_that_stays_is_spared(cluster: ClaimCluster) -> None:
    """Once it has the claim for itself it goes."""
    c = cluster
    c.offer(1, devices=2)
    c.claim("both", wish(request(count=2)))
    c.schedule()
    c.claiming("kept", pods=1, own="", shared="both", priorityClassName="high")
    c.claiming("low", pods=1, own="", shared="both")
    c.whole("kept", "low")
    c.claiming("high", pods=2, priorityClassName="high")
    c.held("high", says="whose devices for request gpu (class gpu) are in use")
    c.unchanged("low")
    c.delete("kept")
    c.whole("high")
    assert not c.members("low")
    assert len({*c.devices_of("high")}) == 2


@contextmanager
def silent_controller(cluster: ClaimCluster) -> Iterator[None]:
    """It takes no step, and is not gone either."""
    assert cluster.plane.controllers is not None
    process = cluster.plane.controllers.process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_victims_claims_are_given_back_where_the_controller_is_silent(cluster: ClaimCluster) -> None:
    """Nobody else does it: what is allocated stays so while it is stopped."""
    c = cluster
    c.offer(1, devices=2)
    c.claim("pair", wish(request(count=2)))
    c.schedule()
    c.claiming("low", pods=2)
    c.whole("low")
    left = c.claims_of_gang("low")
    with silent_controller(c):
        c.claiming("high", pods=2, own="", shared="pair", priorityClassName="high")
        c.held("high", says="to be given back: default/low-0-own")
        c.whole("high")
        there = c.claims.pods
        names = [claim["metadata"]["name"] for claim in left]
        assert not [name for name in names if "allocation" in there[name].get("status", {})]
        assert not [name for name in names if there[name]["status"].get("reservedFor")]
