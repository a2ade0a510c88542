"""Ranks along the fabric: who of equal members gets which of their places, and which rank."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, permutations
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.cycle import cycle as cycle_module
from gangsched.core.cycle.ranks import lay_along
from gangsched.core.explaining.explain import explain
from gangsched.core.framework.plan import Plan
from gangsched.core.framework.profile import Demand
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import ContainerPort, Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY, RANK_KEY
from gangsched.telemetry.attributes import of_gang
from gangsched.telemetry.names import RANK_DISTANCE, RANK_DISTANCE_LEAST
from tests.core.claims import ClaimCluster, wish
from tests.core.topologies import BLOCK, RACK, node, racks, within
from tests.support.long import all_but
from tests.support.scenario import Cluster, with_annotations

COMPLETION = "batch.kubernetes.io/job-completion-index"


def indexed(name: str, indexes: Sequence[int], *, needs: int = 0, devices: int = 8, **more: Any) -> list[Pod]:
    """Pods of an Indexed Job, in this order; their names end as the server draws it."""
    drawn = random.Random(name)
    made = []
    n = needs or len(indexes)
    for k in indexes:
        labels = {COMPLETION: str(k)}
        own = f"{name}-{k}-" + "".join(drawn.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        made.append(make_pod(own, group=name, min_members=n, gpus=devices, labels=labels, **more))
    return made


def by_rank(c: Cluster, group: str) -> list[Pod]:
    """The gang's bound pods in the order of their ranks, which are 0, 1, 2 and so on."""
    mine = [p for p in c.pods.values() if (p.metadata.labels or {}).get(GROUP_LABEL) == group]
    found = [p for p in mine if p.spec.node_name]
    found.sort(key=rank)
    assert [rank(p) for p in found] == list(range(len(found)))
    return found


def rank(pod: Pod) -> int:
    return int((pod.metadata.annotations or {})[RANK_KEY])


def index(pod: Pod) -> int:
    return int((pod.metadata.labels or {})[COMPLETION])


def nodes(c: Cluster, group: str) -> list[str]:
    return [p.spec.node_name for p in by_rank(c, group)]


def way(c: Cluster, names: Sequence[str], keys: Sequence[str] = (RACK,)) -> int:
    """The sum of the distances from each of these nodes to the next."""
    return sum(_apart(c, one, other, keys) for one, other in pairwise(names))


def least(c: Cluster, names: Sequence[str], keys: Sequence[str] = (RACK,)) -> int:
    """No order is shorter: every domain used is left once, but the last one."""
    chains = [_chain(c, name, keys) for name in names]
    return sum(len({chain[:n] for chain in chains}) - 1 for n in range(1, len(keys) + 2))


def _apart(c: Cluster, one: str, other: str, keys: Sequence[str]) -> int:
    here, there = _chain(c, one, keys), _chain(c, other, keys)
    return sum(here[:n] != there[:n] for n in range(1, len(here) + 1))


def _chain(c: Cluster, name: str, keys: Sequence[str]) -> tuple[str | None, ...]:
    labels = c.nodes[name].metadata.labels or {}
    return (*(labels.get(key) for key in keys), name)


def shuffled(n: int, seed: int = 1) -> list[int]:
    found = list(range(n))
    random.Random(seed).shuffle(found)
    return found


# -- where each index goes -----------------------------------------------------------------------------


def test_the_indexes_of_a_job_lie_along_the_racks_however_its_pods_came() -> None:
    c = racks(b=3, a=2, c=2).submit(indexed("job", shuffled(7))).run()
    assert [index(p) for p in by_rank(c, "job")] == [0, 1, 2, 3, 4, 5, 6]
    assert nodes(c, "job") == ["a0", "a1", "b0", "b1", "b2", "c0", "c1"]
    assert c.scheduler.statistics()["rank_distance"] == c.scheduler.statistics()["rank_distance_least"] == 8
    c.five_more_turns_change_nothing()


def test_rack_10_comes_after_rack_2_and_node_10_after_node_9() -> None:
    c = Cluster(Settings(topology_key=RACK))
    for rack, names in (("rack-10", ("n1", "n3")), ("rack-2", ("n10", "n9", "n2"))):
        for name in names:
            c.node(node(name, rack=rack))
    c.submit(indexed("job", shuffled(5))).run()
    assert nodes(c, "job") == ["n2", "n9", "n10", "n1", "n3"]


def test_members_of_one_node_lie_beside_each_other() -> None:
    c = racks(a=2, b=2).submit(indexed("job", shuffled(16), devices=2)).run()
    assert nodes(c, "job") == ["a0"] * 4 + ["a1"] * 4 + ["b0"] * 4 + ["b1"] * 4


def test_they_go_depth_first_through_the_labels_that_the_gang_names() -> None:
    """Rack 1 is in both blocks; those are two racks."""
    c = Cluster(Settings(topology_key=RACK))
    for k, at in enumerate(("y1", "x1", "y2", "x2", "y1", "x2")):
        c.node(node(f"n{k}", block=at[0], rack=at[1]))
    c.submit(within(f"preferred: {BLOCK}, preferred: {RACK}", indexed("job", shuffled(6)))).run()
    assert nodes(c, "job") == ["n1", "n3", "n5", "n0", "n4", "n2"]
    assert way(c, nodes(c, "job"), (BLOCK, RACK)) == least(c, nodes(c, "job"), (BLOCK, RACK)) == 1 + 3 + 5


def test_nodes_without_the_label_come_last() -> None:
    c = racks(b=1).node(node("a0")).submit(indexed("job", [1, 0])).run()
    assert nodes(c, "job") == ["b0", "a0"]


def labelled(name: str, labels: Mapping[str, str], **more: Any) -> Pod:
    return make_pod(name, group="g", gpus=8, labels=labels, **more)


J, L = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io"
SERIES: dict[str, Callable[[int], Pod]] = {
    "job": lambda k: labelled(f"j-{k}-x{k:04}", {COMPLETION: str(k)}),
    "jobset": lambda k: labelled(
        f"s-w-{k // 3}-{k % 3}-q", {f"{J}/job-index": str(k // 3), COMPLETION: str(k % 3)}
    ),
    "leaderworkerset": lambda k: labelled("l-0" + f"-{k}" * bool(k), {f"{L}/worker-index": str(k)}),
    "statefulset": lambda k: labelled(f"s-{k}", {"apps.kubernetes.io/pod-index": str(k)}),
    "names": lambda k: labelled(f"w-{k}", {}),
    "names without a hyphen": lambda k: labelled(f"worker{k}", {}),
}


@pytest.mark.parametrize("series", SERIES)
def test_each_controllers_own_index_counts(series: str) -> None:
    pods = with_annotations([SERIES[series](k) for k in shuffled(12)], {MIN_MEMBERS_KEY: "12"})
    c = racks(a=5, b=7).submit(pods).run()
    assert [p.metadata.name for p in by_rank(c, "g")] == [SERIES[series](k).metadata.name for k in range(12)]
    assert nodes(c, "g") == [f"a{k}" for k in range(5)] + [f"b{k}" for k in range(7)]


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "٣", "9" * 11, "9" * 60])
def test_what_is_no_number_is_no_index(number: str) -> None:
    pods = indexed("job", [0, 1, 2])
    labels = {GROUP_LABEL: "job", COMPLETION: number}
    odd = replace(pods[0], metadata=replace(pods[0].metadata, labels=labels))
    c = racks(a=3).submit([odd, pods[2], pods[1]]).run()
    assert [p.metadata.name for p in by_rank(c, "job")][:2] == [p.metadata.name for p in pods[1:]]
    assert nodes(c, "job") == ["a0", "a1", "a2"], "it comes after those that have one"


def test_pods_without_an_index_have_ranks_by_their_places() -> None:
    c = racks(b=2, a=2)
    drawn = ["x7k25", "b4q8z", "dd2vm", "7zzr9"]
    c.submit([make_pod(f"p-{end}", group="g", min_members=4, gpus=8) for end in drawn]).run()
    assert nodes(c, "g") == ["a0", "a1", "b0", "b1"]


# -- what belongs to a place stays there ---------------------------------------------------------------


def test_members_of_two_templates_do_not_change_places() -> None:
    """Each kind lies along its own places."""
    c = racks(a=2, b=2)
    big, small = indexed("job", [3, 1], needs=4), indexed("job", [2, 0], needs=4, devices=2)
    c.submit([*big, *small]).run()
    where = {index(p): p.spec.node_name for p in by_rank(c, "job")}
    assert where[1] < where[3]
    assert where[0] <= where[2]
    assert {where[0], where[2]}.isdisjoint({where[1], where[3]})


def test_a_claim_of_a_pods_own_is_allocated_where_the_pod_goes() -> None:
    c = ClaimCluster().offer("n10", "n2", "n1", gpus_each=2)
    pods = [c.want(f"w-{k}", wish(2), group="w", min_members=3) for k in (2, 0, 1)]
    c.submit(pods).run()
    assert nodes(c, "w") == ["n1", "n2", "n10"]
    assert [c.devices(f"w-{k}-gpu")[0] for k in range(3)] == ["n1/gpu-0", "n2/gpu-0", "n10/gpu-0"]


def places(plan: Plan) -> Counter[tuple[object, ...]]:
    """What a plan gives out: of each kind of pod its nodes, and the devices with them."""
    return Counter((one.info.template.serial, one.row, str(one.allocation)) for one in plan.placements)


KIND = "test/kind"


def mixed(seed: int) -> list[Pod]:
    """A gang of up to three kinds that differ in devices, a port, the rack that they select; its pods come in
    any order, and not all of them are needed."""
    drawn = random.Random(seed)
    made: list[Pod] = []
    for kind in range(drawn.randint(1, 3)):
        devices, port = drawn.choice([1, 2, 4, 8]), drawn.random() < 0.3
        rack = drawn.choice([None, None, "a", "b"])
        for _ in range(drawn.randint(1, 6)):
            pod = make_pod(f"g-{len(made)}", group="g", gpus=devices)
            containers = [
                replace(one, ports=[ContainerPort(host_port=9000 + kind, container_port=1)] if port else None)
                for one in pod.spec.containers
            ]
            spec = replace(pod.spec, containers=containers, node_selector={RACK: rack} if rack else None)
            made.append(with_annotations([replace(pod, spec=spec)], {KIND: str(kind)})[0])
    drawn.shuffle(made)
    return with_annotations(made, {MIN_MEMBERS_KEY: str(drawn.randint(1, len(made)))})


@pytest.mark.parametrize("seed", all_but(40, range(400)))
def test_who_gets_a_place_changes_and_never_the_places(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pods, n_plans = mixed(seed), 0

    def judged(demands: Sequence[Demand], plan: Plan, *rest: Any) -> None:
        nonlocal n_plans
        before = places(plan)
        lay_along(demands, plan, *rest)
        assert places(plan) == before
        assert len({one.info.uid for one in plan.placements}) == len(plan.placements)
        n_plans += 1

    monkeypatch.setattr(cycle_module, "lay_along", judged)
    c = racks(b=(8, 4, 8), a=3, c=(2, 8)).submit(pods).run()
    assert n_plans or not c.n_bound()
    for kind in {(p.metadata.annotations or {})[KIND] for p in pods}:
        mine = [p for p in c.pods.values() if (p.metadata.annotations or {})[KIND] == kind]
        mine.sort(key=lambda p: int(p.metadata.name[2:]))
        bound = [p.spec.node_name for p in mine if p.spec.node_name]
        assert [bool(p.spec.node_name) for p in mine] == [k < len(bound) for k in range(len(mine))]


# -- the least possible --------------------------------------------------------------------------------


def uniform(drawn: random.Random) -> tuple[Cluster, list[Pod], tuple[str, ...]]:
    """Blocks of racks of nodes of which some are in use, and a gang of equal pods."""
    c = Cluster(Settings(topology_key=RACK))
    names, devices = drawn.sample(range(100), 40), drawn.choice([1, 2, 4])
    room = 8 // devices
    for block in range(drawn.randint(1, 3)):
        for rack in range(drawn.randint(1, 3)):
            for _ in range(drawn.randint(1, 4)):
                free = drawn.choice([0, 2, 4, 8, 8])
                c.node(node(f"n{names.pop()}", gpus=free, block=f"b{block}", rack=f"r{rack}"))
                room += free // devices
    c.node(node("n100", block="b0", rack="r0"))
    keys = drawn.choice([(RACK,), (BLOCK, RACK)])
    size = min(drawn.randint(2, 24), room)
    pods = indexed("job", shuffled(size, drawn.randint(0, 99)), devices=devices)
    if len(keys) > 1:
        pods = within(f"preferred: {BLOCK}, preferred: {RACK}", pods)
    return c, pods, keys


@pytest.mark.parametrize("first", all_but(1, range(0, 1000, 50)))
def test_uniform_gangs_have_the_least_possible_sum(first: int) -> None:
    n_farther = 0
    for seed in range(first, first + 50):
        c, pods, keys = uniform(random.Random(seed))
        c.submit(pods).run()
        found = nodes(c, "job")
        assert [index(p) for p in by_rank(c, "job")] == list(range(len(pods))), seed
        assert way(c, found, keys) == least(c, found, keys), seed
        if 2 < len(found) <= 6:
            orders = [way(c, order, keys) for order in permutations(found)]
            assert least(c, found, keys) == min(orders), seed
            n_farther += max(orders) > min(orders)
    assert n_farther, "some gangs could have been farther"


# -- roles, growth, successors -------------------------------------------------------------------------


def with_roles(c: Cluster, sizes: Mapping[str, int]) -> list[Pod]:
    spec = {"minMember": sum(sizes.values()), "minTaskMember": dict(sizes)}
    c.object("volcano", make_pod_group("g", spec=spec))
    return [
        make_pod(
            f"g-{role}-{k}",
            gpus=8,
            labels={GROUP_LABEL: ""},
            annotations={"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": role},
        )
        for role, n in sizes.items()
        for k in reversed(range(n))
    ]


def ranked(c: Cluster) -> list[str]:
    found = sorted((p for p in c.pods.values() if p.spec.node_name), key=rank)
    return [p.metadata.name for p in found]


def test_roles_follow_each_other_by_name_and_the_one_that_leads_comes_first() -> None:
    c = racks(a=4, b=4)
    c.submit(with_roles(c, {"evaluator": 2, "worker": 3, "master": 1})).run()
    assert ranked(c) == [
        *("g-master-0", "g-evaluator-0", "g-evaluator-1"),
        *("g-worker-0", "g-worker-1", "g-worker-2"),
    ]


def test_the_workers_begin_in_the_rack_of_the_master() -> None:
    """The master needs the node of b that has its disk."""
    c = racks(a=2, b=3, c=1)
    pods = with_roles(c, {"worker": 5, "master": 1})
    pods[-1] = replace(pods[-1], spec=replace(pods[-1].spec, node_selector={"kubernetes.io/hostname": "b1"}))
    c.submit(pods).run()
    assert [c.pod(name).spec.node_name for name in ranked(c)] == ["b1", "b0", "b2", "a0", "a1", "c0"]


def test_a_gang_starts_with_its_lowest_indexes_and_grows_at_its_end() -> None:
    c = racks(b=2).submit(indexed("job", [4, 1, 3, 0, 2], needs=2)).run()
    assert [index(p) for p in by_rank(c, "job")] == [0, 1]
    for name in ("a0", "a1", "c0"):
        c.node(node(name, rack=name[0]))
    c.run()
    assert [index(p) for p in by_rank(c, "job")] == [0, 1, 2, 3, 4]
    assert nodes(c, "job") == ["b0", "b1", "a0", "a1", "c0"]


@pytest.mark.parametrize("order", [(3, 4, 6), (6, 4, 3), (4, 6, 3)])
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_a_successor_has_the_rank_of_the_member_with_its_index(
    order: tuple[int, ...], *, together: bool
) -> None:
    c = racks(a=4, b=4).submit(indexed("job", range(8))).run()
    for pod in [p for p in c.pods.values() if index(p) in order]:
        c.delete(pod.metadata.name)
    successors = [
        replace(one, metadata=replace(one.metadata, name=f"{one.metadata.name}x", uid=f"{one.metadata.uid}x"))
        for one in indexed("job", order, needs=8)
    ]
    for some in [successors] if together else [[one] for one in successors]:
        c.submit(some).run()
    assert [index(p) for p in by_rank(c, "job")] == list(range(8))
    if together:
        assert nodes(c, "job") == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]


def test_a_process_that_completes_what_another_has_bound_follows_the_same_order() -> None:
    c = racks(b=2, a=2)
    left = {"a1", "b1"}
    c.answer = lambda bind: "ok" if bind.node not in left else "hold"
    c.submit(indexed("job", shuffled(4))).run()
    assert len(c.held_binds) == 2
    c.answer = lambda bind: "ok"
    c.restart().run().wait(60.0)
    assert [index(p) for p in by_rank(c, "job")] == [0, 1, 2, 3]
    assert nodes(c, "job") == ["a0", "a1", "b0", "b1"]


# -- what people are told ------------------------------------------------------------------------------


def ranks_told(c: Cluster, group: str = "job") -> str:
    [found] = [one for one in c.scheduler.shared.groups.values() if one.key.name == group]
    return explain(c.scheduler, found, c.now_s).ranks


def test_explain_tells_how_near_each_other_the_ranks_are() -> None:
    c = racks(b=2, a=2).submit(indexed("job", shuffled(4))).run()
    assert ranks_told(c) == (
        "The distances from rank to rank add up to 4, the least possible for these places; the widest step,"
        " 2, is from rank 1 on a1 to rank 2 on b0."
    )


def test_explain_tells_what_fixed_places_cost() -> None:
    c = racks(b=2, a=2)
    pods = indexed("job", range(4))
    pods[1] = replace(pods[1], spec=replace(pods[1].spec, node_selector={"kubernetes.io/hostname": "b1"}))
    c.submit(pods).run()
    assert "add up to 6, 4 at least for these places" in ranks_told(c)
    told = c.scheduler.statistics()
    assert (told["rank_distance"], told["rank_distance_least"]) == (6, 4)


def test_its_trace_has_the_distance_and_the_least_possible() -> None:
    c = racks(b=2, a=2).submit(indexed("job", shuffled(4))).run()
    [found] = [one for one in c.scheduler.shared.groups.values() if one.key.name == "job"]
    attributes = of_gang(found)
    assert (attributes[RANK_DISTANCE], attributes[RANK_DISTANCE_LEAST]) == (4, 4)


def test_explain_says_nothing_of_ranks_on_one_node() -> None:
    c = racks(a=1).submit(indexed("job", range(4), devices=2)).run()
    assert ranks_told(c) == ""


def test_a_pod_of_no_gang_has_rank_0() -> None:
    c = racks(a=1).submit(make_pod("lone-7")).run()
    [bind] = c.all(ef.BindPod)
    assert bind.annotations[RANK_KEY] == "0"
