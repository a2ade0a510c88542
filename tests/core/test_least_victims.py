"""Who goes, against every set that there is: 500 small random cases and a second, simple notion of it all.

A gang's victims cost exactly what the cheapest set costs. A lone pod's are kube-scheduler's: per node by
letting off the important (which may take two small pods for one large of the same priority), then the
cheapest node; the rule is written down here a second time, as simply as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import GPU, STRANGER, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import allocation_annotations
from gangsched.model.objects import Pod
from gangsched.model.pod_group import DISRUPTION_KEY, GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.workloads import PodDisruptionBudget
from tests.support.long import all_but
from tests.support.scenario import Cluster, gang

N_CASES = 500
OFFSET = 2**31
Set = frozenset["Held"]
Key = tuple[int, int, int, int]


class Held(NamedTuple):
    """A pod that holds GPUs. gang: its gang's name, "" for none; keep: so many of it must stay, or none."""

    name: str
    node: str
    gpus: int
    priority: int
    gang: str = ""
    keep: int = 0
    guarded: bool = False


class Case(NamedTuple):
    room: dict[str, int]
    held: list[Held]
    allowed: int
    asks: list[int]
    is_lone: bool


def draw(seed: int) -> Case:
    rng = Random(f"victims-{seed}")
    room = {f"n{i}": rng.choice((4, 8)) for i in range(rng.randint(1, 3))}
    free = dict(room)
    held: list[Held] = []

    def put(name: str, priority: int, group: str = "", keep: int = 0) -> None:
        gpus = rng.choice((1, 2, 2, 4))
        nodes = [node for node, left in free.items() if left >= gpus]
        if nodes:
            node = rng.choice(nodes)
            free[node] -= gpus
            held.append(Held(name, node, gpus, priority, group, keep, rng.random() < 0.5 and not group))

    for k in range(rng.randint(0, 5)):
        put(f"one-{k}", rng.choice((0, 0, 1, 2, 20)))
    for g in range(rng.choice((0, 1, 1, 2))):
        priority, n = rng.choice((0, 1, 2, 20)), rng.randint(2, 3)
        before = len(held)
        for k in range(n):
            put(f"g{g}-{k}", priority, f"g{g}")
        n_put = len(held) - before
        keep = rng.choice((n_put, n_put, max(1, n_put - 1)))
        held[before:] = [one._replace(keep=keep) for one in held[before:]]
    is_lone = seed % 3 == 0
    asks = [rng.choice((1, 2, 4, 8))] * (1 if is_lone else rng.randint(1, 3))
    if not is_lone and len(asks) > 1 and rng.random() < 0.3:
        asks[0] = rng.choice((1, 2, 4))
    return Case(room, held, rng.choice((0, 0, 1, 9)), asks, is_lone)


# -- the second notion -------------------------------------------------------------------------------------


def fits(case: Case, gone: Iterable[Held]) -> bool:
    free = dict(case.room)
    for one in set(case.held) - set(gone):
        free[one.node] -= one.gpus

    def place(asks: list[int]) -> bool:
        if not asks:
            return True
        for node in free:
            if free[node] >= asks[0]:
                free[node] -= asks[0]
                done = place(asks[1:])
                free[node] += asks[0]
                if done:
                    return True
        return False

    return place(sorted(case.asks, reverse=True))


def closed(case: Case, gone: Set) -> Set:
    """A gang that would keep too few keeps none."""
    for name in {one.gang for one in gone if one.gang}:
        members = {one for one in case.held if one.gang == name}
        if len(members - gone) < next(iter(members)).keep:
            gone |= members
    return gone


def violations(case: Case, gone: Iterable[Held]) -> int:
    return max(0, sum(one.guarded for one in gone) - case.allowed)


def cost(case: Case, gone: Iterable[Held]) -> Key:
    some = list(gone)
    if not some:
        return (0, -OFFSET, 0, 0)
    total = sum(one.priority + OFFSET for one in some)
    return (violations(case, some), max(one.priority for one in some), total, len(some))


def cheapest(case: Case) -> Key | None:
    """Every set of pods of lower priority, closed; None: none makes room."""
    may_go = [one for one in case.held if one.priority < 10]
    best: Key | None = None
    for n in range(len(may_go) + 1):
        for some in combinations(may_go, n):
            gone = closed(case, frozenset(some))
            price = cost(case, gone)
            if (best is None or price < best) and fits(case, gone):
                best = price
    return best


def as_kube_scheduler(case: Case) -> list[Set]:
    """For one pod: each node's victims by letting off the important; those of the cheapest nodes.

    Who goes against the budget is told once, of all who may go there.
    """
    found: list[tuple[Key, Set]] = []
    for node in case.room:
        here = closed(case, frozenset(o for o in case.held if o.node == node and o.priority < 10))
        if not here or not fits_on(case, node, here):
            continue
        gone = set(here)
        for part in in_order(case, here):
            left = closed(case, frozenset(gone - part))
            if len(left) < len(gone) and fits_on(case, node, left):
                gone = set(left)
        _, *rest = cost(case, gone)
        found.append(((len(against(case, here) & gone), rest[0], rest[1], rest[2]), frozenset(gone)))
    least = min((key for key, _ in found), default=None)
    return [gone for key, gone in found if key == least]


def fits_on(case: Case, node: str, gone: Iterable[Held]) -> bool:
    used = sum(one.gpus for one in set(case.held) - set(gone) if one.node == node)
    return case.room[node] - used >= case.asks[0]


def against(case: Case, here: Set) -> Set:
    """For whom the budget has nothing left, as it is used up by the most important."""
    guarded = sorted((one for one in here if one.guarded), key=lambda one: (-one.priority, one.name))
    return frozenset(guarded[case.allowed :])


def in_order(case: Case, here: Set) -> Iterator[Set]:
    """What can be let off one by one, the most important first, those that a budget guards before others."""
    parts: list[Set] = []
    for one in here:
        members = frozenset(o for o in case.held if o.gang == one.gang) if one.gang else frozenset([one])
        part = members if members <= here else frozenset([one])
        if part not in parts:
            parts.append(part)

    def importance(part: Set) -> tuple[object, ...]:
        highest = max(one.priority for one in part)
        return (
            not part & against(case, here),
            -highest,
            len(part) == 1,
            -len(part),
            min(one.name for one in part),
        )

    yield from sorted(parts, key=importance)


# -- the scheduler -----------------------------------------------------------------------------------------


def cluster_of(case: Case, *, listed: bool, settings: Settings | None = None) -> Cluster:
    c = Cluster(settings)
    nodes = [make_node(name, gpus=gpus, listed=listed) for name, gpus in case.room.items()]
    c.nodes |= {node.metadata.name: node for node in nodes}
    taken = dict.fromkeys(case.room, 0)
    pods = [c.store(bound(one, taken, listed=listed)) for one in case.held]
    c.tell(*map(ev.NodeAdded, nodes), *map(ev.PodAdded, pods))
    item = {
        "metadata": {"name": "pdb", "namespace": "d", "uid": "uid-pdb", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"guarded": "yes"}}},
        "status": {"disruptionsAllowed": case.allowed},
    }
    c.tell(ev.ObjectPut("poddisruptionbudgets.policy", msgspec.convert(item, PodDisruptionBudget)))
    return c.run()


def bound(one: Held, taken: dict[str, int], *, listed: bool) -> Pod:
    labels = {"guarded": "yes"} if one.guarded else {}
    own: Mapping[str, str] = {}
    if listed:
        first = taken[one.node]
        ids = tuple(f"GPU-{one.node}-{k}" for k in range(first, first + one.gpus))
        taken[one.node] = first + one.gpus
        own = allocation_annotations({"main": {GPU: ids}})
    if one.gang:
        labels[GROUP_LABEL] = one.gang
        own = {**own, MIN_MEMBERS_KEY: str(one.keep), DISRUPTION_KEY: "all"}
        if one.keep < 3:
            own.pop(DISRUPTION_KEY)
    scheduler = "gangsched" if one.gang else STRANGER
    pod = make_pod(
        one.name, gpus=one.gpus, priority=one.priority, labels=labels, annotations=own, scheduler=scheduler
    )
    return replace(pod, spec=replace(pod.spec, node_name=one.node))


def taken_by(c: Cluster, case: Case) -> Set | None:
    """Whom the scheduler takes for the case's pods; None: it does not place them."""
    c.clear().evictions = "slow"
    if case.is_lone:
        c.submit(make_pod("new-0", gpus=case.asks[0], priority=10))
    else:
        pods = [
            replace(pod, spec=make_pod("x", gpus=gpus, priority=10).spec)
            for pod, gpus in zip(gang("new", pods=len(case.asks)), case.asks, strict=True)
        ]
        for pod in pods:
            c.tell(ev.PodAdded(c.store(pod)))
    c.run()
    names = {e.name for e in c.effects if isinstance(e, ef.EvictPod | ef.DeletePod)}
    if not names and not c.placed("new"):
        return None
    c.delete(*sorted(names)).run()
    assert c.placed("new"), "somebody was taken and the pods do not start"
    return frozenset(one for one in case.held if one.name in names)


@pytest.mark.parametrize("block", all_but(1, range(10)))
def test_no_pod_is_evicted_without_need(block: int) -> None:
    for seed in range(block * N_CASES // 10, (block + 1) * N_CASES // 10):
        case = draw(seed)
        taken = taken_by(cluster_of(case, listed=seed % 2 == 0), case)
        best = cheapest(case)
        if taken is None or best is None:
            assert taken is None, f"seed {seed}: {case}: {taken}, and nobody would be enough"
            assert best is None, f"seed {seed}: {case}: there is room at {best}"
            continue
        price = cost(case, taken)
        assert closed(case, taken) == taken, f"seed {seed}: {case}: {taken} leaves part of a gang"
        if case.is_lone and taken:
            assert best <= price
            assert taken in as_kube_scheduler(case), f"seed {seed}: {case}: {sorted(taken)}"
        else:
            assert price == best, f"seed {seed}: {case}: {sorted(taken)}"


def with_some_to_spare(seed: int) -> Case:
    """One pod asks for room that gangs hold which can lose some of their pods."""
    rng = Random(f"spare-{seed}")
    room = {f"n{i}": 8 for i in range(rng.randint(1, 3))}
    free, held = dict(room), list[Held]()
    for g in range(rng.randint(1, 2)):
        priority, keep = rng.choice((0, 1)), rng.choice((1, 2, 2))
        for k in range(rng.randint(3, 5)):
            gpus = rng.choice((1, 2, 2, 4))
            if nodes := [node for node, left in free.items() if left >= gpus]:
                node = rng.choice(nodes)
                free[node] -= gpus
                held.append(Held(f"g{g}-{k}", node, gpus, priority, f"g{g}", keep))
    return Case(room, held, 0, [rng.choice((2, 4, 8))], is_lone=True)


def test_a_pod_takes_no_more_of_a_gang_than_it_needs() -> None:
    n_parts = 0
    for seed in range(60):
        case = with_some_to_spare(seed)
        taken = taken_by(cluster_of(case, listed=seed % 2 == 0), case) or frozenset()
        assert closed(case, taken) == taken, f"seed {seed}: {case}: {sorted(taken)} leaves part of a gang"
        for n in range(len(taken)):
            for some in combinations(taken, n):
                less = closed(case, frozenset(some))
                assert not (less < taken and fits(case, less)), f"seed {seed}: {case}: {sorted(taken)}"
        n_parts += any(one.gang == other.gang for one in taken for other in set(case.held) - taken)
    assert n_parts > 20


def test_the_cases_are_of_all_sorts() -> None:
    prices = [cheapest(draw(seed)) for seed in range(N_CASES)]
    assert sum(price is None for price in prices) > 30
    assert sum(price is not None and price[3] == 0 for price in prices) > 30
    assert sum(price is not None and price[3] > 1 for price in prices) > 60
    assert sum(price is not None and price[0] > 0 for price in prices) > 10
