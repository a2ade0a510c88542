"""Who goes in large clusters, where only the nodes that give room away the cheapest are looked at closely.

The second notion of it all is that of test_least_victims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.framework.interface import CycleState
from gangsched.core.preemption import search
from gangsched.core.preemption.costs import Chosen
from gangsched.core.preemption.victim_trials import VictimTrials
from gangsched.core.preemption.victims import Victims
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import RACK, STRANGER, at, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Affinity, Pod
from gangsched.model.selectors import Selector
from gangsched.model.workloads import PodDisruptionBudget
from gangsched.plugins.resources.node_resources_fit import NodeResourcesFit
from tests.core.test_least_victims import Case, Held, as_kube_scheduler, closed, cluster_of, cost, taken_by
from tests.support.scenario import Cluster, cluster, gang, on_node


def large(seed: int, *, n_nodes: int, asks: list[int], is_lone: bool, guarded: bool = False) -> Case:
    """More nodes than are weighed (a hundred), all of them full."""
    rng = Random(f"large-{seed}")
    room = {f"n{i:03}": rng.choice((4, 8)) for i in range(n_nodes)}
    held = []
    for node, left in room.items():
        k = 0
        while left:
            gpus = min(rng.choice((1, 2, 2, 4)), left)
            priority = rng.choice((0, 1, 2, 3, 5, 20))
            held.append(Held(f"{node}-{k}", node, gpus, priority, guarded=guarded and rng.random() < 0.8))
            left, k = left - gpus, k + 1
    return Case(room, held, rng.choice((0, 3)) if guarded else 0, asks, is_lone)


@pytest.mark.parametrize("seed", range(12))
def test_a_lone_pod_takes_the_cheapest_node_of_all(seed: int) -> None:
    asks = [(1, 2, 4, 8)[seed % 4]]
    case = large(seed, n_nodes=150, asks=asks, is_lone=True)
    taken = taken_by(cluster_of(case, listed=False), case)
    assert taken in as_kube_scheduler(case), f"seed {seed}: {taken}"


@pytest.mark.parametrize("seed", range(6))
def test_budgets_are_kept_if_there_is_a_node_without(seed: int) -> None:
    case = large(seed, n_nodes=150, asks=[4], is_lone=True, guarded=True)
    taken = taken_by(cluster_of(case, listed=False), case)
    assert taken in as_kube_scheduler(case), f"seed {seed}: {taken}"


@pytest.mark.parametrize("seed", range(6))
def test_a_gang_takes_nodes_of_the_lowest_level(seed: int) -> None:
    """Members that fill a node each take the cheapest nodes there are."""
    case = large(seed, n_nodes=400, asks=[8] * 3, is_lone=False)
    taken = taken_by(cluster_of(case, listed=False), case)
    assert taken is not None, f"seed {seed}"
    whole = []
    for node, gpus in case.room.items():
        here = frozenset(one for one in case.held if one.node == node)
        if gpus == 8 and all(one.priority < 10 for one in here):
            whole.append((cost(case, closed(case, here)), here))
    whole.sort(key=lambda one: one[0])
    best = frozenset(one for _, here in whole[:3] for one in here)
    assert cost(case, taken) == cost(case, best), f"seed {seed}: {sorted(taken)}"


def test_a_gang_spares_pods_that_a_budget_guards_at_the_cost_of_a_higher_priority() -> None:
    """There are too many sets of victims to compare them all."""
    room = {f"n{i:02}": 8 for i in range(26)}
    held = [Held(f"old-{i:02}", node, 8, i % 2, guarded=i % 2 == 0) for i, node in enumerate(room)]
    case = Case(room, held, 0, [8] * 4, is_lone=False)
    taken = taken_by(cluster_of(case, listed=False), case)
    assert taken is not None
    assert len(taken) == 4
    assert not any(one.guarded for one in taken), sorted(taken)


def test_who_was_chosen_first_stays_where_what_another_frees_is_enough_for_all() -> None:
    """The small pod would go for the small member, and the large member's node has room for both."""
    room = {"n00": 1} | {f"n{i:02}": 8 for i in range(1, 70)}
    held = [Held(f"old-{node}", node, gpus, 0) for node, gpus in room.items()]
    case = Case(room, held, 0, [1, 2], is_lone=False)
    taken = taken_by(cluster_of(case, listed=False), case)
    assert taken is not None
    assert [one.gpus for one in taken] == [8]


def test_what_cannot_fit_even_then_says_for_how_many_there_would_be_room() -> None:
    case = large(0, n_nodes=150, asks=[8] * 140, is_lone=False)
    c = cluster_of(case, listed=False)
    assert taken_by(c, case) is None
    assert "even with all pods of lower priority gone, gang d/new: " in c.group("new").message


@pytest.mark.parametrize("n_first", [128, 1_000])
def test_that_even_all_victims_are_not_enough_is_found_by_a_sum_where_there_are_many_nodes(
    n_first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And said in the words of those who have placed them all."""
    n_placed, place = 0, VictimTrials.place

    def counted(self: VictimTrials, *args: Any) -> Any:
        nonlocal n_placed
        n_placed += 1
        return place(self, *args)

    monkeypatch.setattr(VictimTrials, "place", counted)
    monkeypatch.setattr(search, "_FIRST_NODES", n_first)
    room = {f"n{i:03}": 8 if i % 15 == 0 else 4 for i in range(150)}
    case = Case(room, [Held(f"old-{one}", one, n, 0) for one, n in room.items()], 0, [8] * 20, is_lone=False)
    c = cluster_of(case, listed=False)
    assert taken_by(c, case) is None
    assert "even with all pods of lower priority gone, gang d/new: 10 of 20 fit" in c.why("new")
    assert (n_placed == 0) is (n_first == 128)


@pytest.mark.parametrize(("n", "fit"), [(3, 3), (4, 3)])
def test_where_few_nodes_are_not_enough_ever_more_are_looked_at(
    n: int, fit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest nodes give room to a member that must be away from its like, in the same domain: the third
    domain is among the last."""
    monkeypatch.setattr(search, "_FIRST_NODES", 1)
    monkeypatch.setattr(search, "_NODES_A_MEMBER", 0)
    monkeypatch.setattr(search, "_WIDER", 2)
    monkeypatch.setattr(search, "_MAX_DOMAINS", 0)
    looked_at: list[int] = []
    ever_more = search._ever_more

    def noted(*args: Any) -> Iterator[list[int]]:
        for rows in ever_more(*args):
            looked_at.append(len(rows))
            yield rows

    monkeypatch.setattr(search, "_ever_more", noted)
    c = Cluster()
    for k in range(24):
        rack = "r0" if k < 6 else "r1" if k < 12 else "r2"
        c.node(make_node(f"n{k:02}", gpus=8, rack=rack, listed=False))
    c.submit([on_node(make_pod(f"low-{k:02}", gpus=8, priority=k // 4), f"n{k:02}") for k in range(24)])
    like = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": RACK}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [like]}}
    pods = gang("new", pods=n, gpus=8, priority=100, labels={"app": "x"})
    pods = [replace(p, spec=replace(p.spec, affinity=msgspec.convert(apart, Affinity))) for p in pods]
    c.submit(pods).run().wait(5.0)
    assert c.placed("new") is (n == fit)
    assert looked_at[:6] == ([1, 2, 4, 8, 16] if n == fit else [1, 2, 4, 8, 16, 24])
    assert len(c.taken()) == (n if n == fit else 0)
    if n == fit:
        racks = [(c.nodes[node].metadata.labels or {})[RACK] for node in c.nodes_of("new")]
        assert sorted(racks) == ["r0", "r1", "r2"]
    else:
        assert "even with all pods of lower priority gone" in c.why("new")


def test_no_pod_is_evicted_where_all_have_a_higher_priority() -> None:
    case = large(1, n_nodes=150, asks=[4], is_lone=True)
    case = case._replace(held=[one._replace(priority=20) for one in case.held])
    assert taken_by(cluster_of(case, listed=False), case) is None


def test_a_rack_is_emptied_and_not_the_cluster_where_a_gang_must_be_away_from_others() -> None:
    """No node alone helps: whoever must be away from a rack's pods needs all of them to go."""
    c = Cluster()
    nodes = []
    for i in range(300):
        node = make_node(f"n{i}", gpus=8, listed=False)
        meta = replace(node.metadata, labels={RACK: f"r{i // 10}"})
        nodes.append(replace(node, metadata=meta))
    pods = []
    for i in range(300):
        for k in range(2):
            priority = 20 if i // 10 < 20 and i % 10 == 0 else (i * 7 + k) % 3
            pod = make_pod(
                f"old-{i}-{k}", gpus=4, priority=priority, labels={"app": "web"}, scheduler=STRANGER
            )
            pods.append(replace(pod, spec=replace(pod.spec, node_name=f"n{i}")))
    c.nodes |= {node.metadata.name: node for node in nodes}
    c.tell(*map(ev.NodeAdded, nodes), *(ev.PodAdded(c.store(pod)) for pod in pods)).run()
    c.clear().evictions = "slow"
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "web"}}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    affinity = msgspec.convert(away, Affinity)
    gang = [make_pod(f"g-{k}", gpus=8, priority=10, group="g", min_members=4) for k in range(4)]
    c.submit([replace(pod, spec=replace(pod.spec, affinity=affinity)) for pod in gang]).run()
    taken = [one.name for one in c.effects if isinstance(one, ef.EvictPod)]
    racks = {int(name.split("-")[1]) // 10 for name in taken}
    assert len(racks) == 1, "one rack is enough"
    assert min(racks) >= 20, "in the others somebody is of higher priority"
    assert len(taken) == 20


def test_no_more_is_asked_than_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds up everybody else, the renewal of the lease too, has an end."""
    n_asked = 0
    ask = VictimTrials.capacity_on

    def counted(self: VictimTrials, *arguments: Any) -> int:
        nonlocal n_asked
        n_asked += 1
        return ask(self, *arguments)

    monkeypatch.setattr(VictimTrials, "capacity_on", counted)
    case = large(3, n_nodes=150, asks=[4], is_lone=True, guarded=True)
    for budget in (50, 200, 1000):
        n_asked = 0
        c = cluster_of(case, listed=False, settings=Settings(search_victims=budget))
        assert taken_by(c, case), "what was found until then is good enough"
        assert 0 < n_asked <= budget + 8, f"{n_asked} with {budget}"


def test_a_large_gang_that_can_lose_some_pods_is_weighed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it loses more than it can spare, each of its other pods was tried, and closed to all of it."""
    n_closed = 0
    close = Victims.closure

    def counted(self: Victims, chosen: Chosen) -> dict[str, PodInfo]:
        nonlocal n_closed
        n_closed += 1
        return close(self, chosen)

    c = cluster(nodes=20).submit(gang("old", pods=80, gpus=2, min_members=76)).run()
    assert c.placed("old", on=20)
    monkeypatch.setattr(Victims, "closure", counted)
    c.clear().submit(gang("new", pods=5, gpus=8, priority=10)).run()
    assert len(c.all(ef.EvictPod)) == 80
    assert c.run().placed("new", on=5)
    assert n_closed < 400, n_closed


def test_a_large_gang_that_goes_as_a_whole_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was put together for each of its pods, to look for a cheaper set."""
    sizes: list[int] = []
    close = Victims.closure

    def noted(self: Victims, chosen: Chosen) -> dict[str, PodInfo]:
        closed = close(self, chosen)
        sizes.append(len(closed))
        return closed

    c = cluster(nodes=20).submit(gang("old", pods=80, gpus=2)).run()
    monkeypatch.setattr(Victims, "closure", noted)
    c.clear().submit(gang("new", pods=5, gpus=8, priority=10)).run()
    assert len(c.all(ef.EvictPod)) == 80
    assert sum(sizes) < 80 * 80, sum(sizes)


def test_many_budgets_are_not_compared_with_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    n_compared = 0
    matches = Selector.matches

    def counted(self: Selector, labels: Mapping[str, str]) -> bool:
        nonlocal n_compared
        n_compared += 1
        return matches(self, labels)

    c = cluster(nodes=20)
    c.submit([make_pod(f"old-{k}", gpus=2, labels={"app": f"a{k % 4}", "pod": f"{k}"}) for k in range(80)])
    assert c.run().placed("old", on=20)
    for k in range(40):
        item = {
            "metadata": {"name": f"pdb-{k}", "namespace": "d", "uid": f"uid-{k}", "resourceVersion": "1"},
            "spec": {"selector": {"matchLabels": {"app": f"a{k}"}}},
            "status": {"disruptionsAllowed": 9 * (k == 1)},
        }
        c.tell(ev.ObjectPut("poddisruptionbudgets.policy", msgspec.convert(item, PodDisruptionBudget)))
    monkeypatch.setattr(Selector, "matches", counted)
    c.clear().submit(gang("new", pods=4, gpus=2, priority=10)).run()
    assert {int(one.name.split("-")[1]) % 4 for one in c.all(ef.EvictPod)} == {1}
    assert c.run().placed("new")
    assert 0 < n_compared <= 40 * 4 * 2, n_compared


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that nodes' capacity was asked for, in each question."""
    found: list[str] = []
    ask = NodeResourcesFit.capacity

    def noted(self: NodeResourcesFit, state: CycleState, template: PodTemplate, *more: Any) -> Any:
        found.append(str(template.serial))
        return ask(self, state, template, *more)

    monkeypatch.setattr(NodeResourcesFit, "capacity", noted)
    return found


def full_racks(**sizes: int) -> Cluster:
    """Each node is full of one pod of priority 0, 1 or 2, in turns."""
    c = Cluster(Settings(topology_key=RACK))
    for rack, n in sizes.items():
        for i in range(n):
            name = f"{rack}-{i:02}"
            c.node(make_node(name, gpus=8, rack=rack))
            pod = make_pod(f"old-{name}", gpus=8, priority=i % 3, scheduler=STRANGER)
            c.tell(ev.PodAdded(c.store(replace(pod, spec=replace(pod.spec, node_name=name)))))
    c.clear().evictions = "slow"
    return c


def all_different(n: int, **more: Any) -> list[Pod]:
    return [
        make_pod(f"g-{k}", gpus=2, cpu=f"{1000 + k}m", priority=10, group="g", min_members=n, **more)
        for k in range(n)
    ]


def test_a_gang_whose_members_all_differ_takes_what_it_needs_for_few_questions(questions: list[str]) -> None:
    """Each cycle asks about every kind, and each set of victims that is tried was a cycle or more."""
    c = full_racks(a=60).submit(all_different(80)).run()
    taken = [one.name for one in c.effects if isinstance(one, ef.EvictPod)]
    assert sorted(taken) == [f"old-a-{i:02}" for i in range(60) if i % 3 == 0]
    assert len(questions) < 10_000


def test_in_many_racks_its_victims_cost_few_questions_too(questions: list[str]) -> None:
    """They were looked for in each of 16 racks, again for each rack and about every kind."""
    c = full_racks(**{f"r{i:02}": 20 for i in range(16)})
    annotations = {"gangsched.io/topology": f"required:{RACK}"}
    c.submit(all_different(60, annotations=annotations)).run()
    taken = [one.name for one in c.effects if isinstance(one, ef.EvictPod)]
    assert len({name.split("-")[1] for name in taken}) == 1
    assert len(taken) == 15
    assert len(questions) < 15_000


def test_whether_pods_that_are_going_anyway_may_stay_costs_few_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A set of large gangs was placed again for each of the first 64 of them, for half a minute."""
    n_cycles = 0
    place = VictimTrials.place

    def counted(self: VictimTrials, chosen: Chosen) -> Any:
        nonlocal n_cycles
        n_cycles += 1
        return place(self, chosen)

    c = Cluster()
    for i in range(100):
        c.node(make_node(f"n{i}", gpus=8, listed=False))
        for k in range(8):
            pod = make_pod(f"old-{i}-{k}", scheduler=STRANGER)
            meta = replace(pod.metadata, deletion_timestamp=at(0.0))
            pod = replace(pod, metadata=meta, spec=replace(pod.spec, node_name=f"n{i}"))
            c.tell(ev.PodAdded(c.store(pod)))
    monkeypatch.setattr(VictimTrials, "place", counted)
    c.submit([make_pod(f"g-{k}", gpus=8, priority=10, group="g", min_members=100) for k in range(100)]).run()
    assert "waiting for 800 pods" in c.said("g-0")
    assert 0 < n_cycles <= 40
