"""Constraints between a gang's own members, and gangs of several templates, against brute force.

Whatever the order in which the usual ways are tried: never "no placement exists" where one does, and never
a placement that breaks a rule.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cycle.cycle import run_cycle
from gangsched.core.framework.extension_points import ExtensionPoints
from gangsched.core.framework.interface import CycleState, IntArray
from gangsched.core.framework.plan import FitError, Plan, SearchOutcome
from gangsched.core.framework.profile import Demand, Profile
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey
from gangsched.plugins.priority_sort import PrioritySort
from gangsched.plugins.resources.devices import Devices
from gangsched.plugins.resources.node_resources_fit import NodeResourcesFit
from tests.core.rules import KEY, Bounded, Neighbours, Rules, may_go, rules_of
from tests.plugins.build import Cluster, node, pod
from tests.support.long import all_but

RACK = "rack"
ENOUGH = 1_000_000


def profile(*filters: Neighbours) -> Profile:
    fit = NodeResourcesFit()
    points = ExtensionPoints(
        queue_sort=PrioritySort(),
        pre_filter=filters,
        filters=filters,
        capacities=(fit, Devices()),
        scores=((fit, 1.0),),
    )
    return Profile("gangsched", points)


class Case:
    """A cluster and groups; each member is (cpu, rules)."""

    def __init__(self, nodes: Sequence[tuple[int, dict[str, str]]], plugin: Neighbours | None) -> None:
        self.profile = profile(*(() if plugin is None else (plugin,)))
        self.cluster = Cluster()
        if self.profile.signing.is_used:
            self.cluster.cache.sign_by({pod("any").spec.scheduler_name: self.profile.signing})
        self.room = [cpu for cpu, _ in nodes]
        self.labels = [labels for _, labels in nodes]
        self.settled: list[list[Rules]] = [[] for _ in nodes]
        for i, (cpu, labels) in enumerate(nodes):
            self.cluster.put(node(f"n{i}", labels=labels, allocatable={"cpu": str(cpu)}))
        self.demands: list[Demand] = []

    def settle(self, row: int, rules: str) -> None:
        """A pod that is there already and takes no room."""
        name = f"old-{sum(map(len, self.settled))}"
        self.cluster.run(_pod(name, 0, rules), f"n{row}")
        self.settled[row].append(rules_of(_pod(name, 0, rules)))

    def gang(self, *members: tuple[int, str], needed: int | None = None) -> None:
        name = f"g{len(self.demands)}"
        pods = [_pod(f"{name}-{i}", cpu, rules) for i, (cpu, rules) in enumerate(members)]
        infos = [PodInfo(one, self.cluster.template(one), one.metadata.uid) for one in pods]
        group = Group(GroupKey("label", "default", name), "gangsched")
        self.demands.append(Demand(group, self.profile, infos, needed or len(infos)))

    def run(self, budget: int = ENOUGH) -> Plan | FitError:
        return run_cycle(self.demands, self.cluster.view, topology_key=RACK, search_budget=budget)

    def exists(self, allowed: dict[str, int] | None = None) -> bool:
        """Whether some order of placing some of the members reaches what is needed; `allowed`: where each
        has to go, and all of them."""
        members = [
            (which, info.pod.metadata.name, info.template.requests["cpu"] // 1000, rules_of(info.pod))
            for which, demand in enumerate(self.demands)
            for info in demand.members
        ]
        goal = [len(d.members) if allowed is not None else d.n_needed for d in self.demands]
        if allowed is not None:
            members = [one for one in members if one[1] in allowed]
            goal = [sum(one[0] == which for one in members) for which in range(len(goal))]
        seen: set[object] = set()

        def reach(free: list[int], on: list[list[tuple[int, int, Rules]]], left: list[int]) -> bool:
            done = [0] * len(goal)
            for those in on:
                for which, _, _ in those:
                    done[which] += 1
            if all(n >= wanted for n, wanted in zip(done, goal, strict=True)):
                return True
            state = tuple(tuple(sorted((a, b, msgspec.json.encode(c)) for a, b, c in those)) for those in on)
            if state in seen:
                return False
            seen.add(state)
            around = [[*self.settled[row], *(c for _, _, c in on[row])] for row in range(len(free))]
            tried: set[object] = set()
            for i in left:
                which, name, cpu, rules = members[i]
                if (which, cpu, rules) in tried and allowed is None:
                    continue
                tried.add((which, cpu, rules))
                for row in range(len(free)) if allowed is None else (allowed[name],):
                    if free[row] >= cpu and may_go(rules, row, self.labels, around):
                        free[row] -= cpu
                        on[row].append((which, cpu, rules))
                        if reach(free, on, [j for j in left if j != i]):
                            return True
                        on[row].pop()
                        free[row] += cpu
            return False

        return reach(list(self.room), [[] for _ in self.room], list(range(len(members))))

    def check(self, answer: Plan | FitError) -> None:
        """The answer is the truth."""
        if isinstance(answer, FitError):
            assert answer.search is not SearchOutcome.GAVE_UP, answer.message
            assert not self.exists(), answer.message
            return
        placed = {p.info.pod.metadata.name: p.row for p in answer.placements}
        assert len(placed) == len(answer.placements)
        for demand in self.demands:
            assert sum(info.pod.metadata.name in placed for info in demand.members) >= demand.n_needed
        assert self.exists(placed), placed


def _pod(name: str, cpu: int, rules: str) -> Pod:
    one = pod(name, requests={"cpu": str(cpu)})
    one.metadata.annotations = {KEY: rules} if rules else None
    return one


def _racks(*cpus: Sequence[int]) -> list[tuple[int, dict[str, str]]]:
    nodes = [(cpu, f"r{rack}") for rack, some in enumerate(cpus) for cpu in some]
    return [(cpu, {"host": f"h{i}", "rack": rack}) for i, (cpu, rack) in enumerate(nodes)]


def test_members_that_want_one_rack_are_all_put_into_one_that_has_room_for_all() -> None:
    case = Case(_racks([4, 1], [3, 3]), Neighbours())
    case.settle(0, "role=w")
    case.settle(2, "role=w")
    case.gang(*[(1, "role=w;near=rack:w")] * 6)
    answer = case.run()
    case.check(answer)
    assert isinstance(answer, Plan)


def test_the_one_whom_the_others_want_to_be_near_is_placed_before_them_and_where_they_have_room() -> None:
    case = Case(_racks([2], [9]), Neighbours())
    case.gang((1, "role=leader"), *[(2, "role=w;near=rack:leader")] * 4)
    answer = case.run()
    case.check(answer)
    assert isinstance(answer, Plan)
    assert {p.row for p in answer.placements} == {1}


def test_one_on_each_node_and_racks_evenly() -> None:
    case = Case(_racks([8, 8, 8], [8, 8], [8]), Neighbours())
    case.gang(*[(1, "role=w;apart=host:w;even=rack:1")] * 6)
    answer = case.run()
    assert isinstance(answer, FitError)
    assert "No placement exists" in answer.message
    case.check(answer)
    four = Case(_racks([8, 8, 8], [8, 8], [8]), Neighbours())
    four.gang(*[(1, "role=w;apart=host:w;even=rack:2")] * 6)
    answer = four.run()
    four.check(answer)
    assert isinstance(answer, Plan)


def test_a_budget_that_is_too_small_is_reported() -> None:
    case = Case(_racks([3, 2, 5], [4, 6, 1]), Neighbours(tells_keys=False))
    case.gang(*[(1, "role=a;apart=host:b")] * 3, *[(1, "role=b;apart=rack:a")] * 3, (1, "role=b;near=rack:z"))
    answer = case.run(budget=5)
    assert isinstance(answer, FitError)
    assert answer.search is SearchOutcome.GAVE_UP
    assert "A placement may exist" in answer.message
    again = case.run(budget=5)
    assert isinstance(again, FitError)
    assert again.message == answer.message, "the same input ends at the same place"
    case.check(case.run())


class Counting(Bounded):
    """Counts how often it is asked for a bound."""

    n_asked = 0

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        self.n_asked += 1
        return super().at_most(state, template, view, room, others)


def test_a_search_among_many_kinds_of_members_does_no_more_work_than_among_few() -> None:
    """One budget, and one node too few: the gang that has all of its members different gives up earlier."""
    n_asked = []
    for n_kinds in (4, 24):
        plugin = Counting()
        case = Case([(1000, {"host": f"h{i}"}) for i in range(23)], plugin)
        case.gang(*[(500 - i % n_kinds, "role=a;apart=host:a") for i in range(24)])
        answer = case.run(budget=60)
        assert isinstance(answer, FitError)
        assert answer.search is SearchOutcome.GAVE_UP
        n_asked.append(plugin.n_asked)
    assert n_asked[1] < 3 * n_asked[0], n_asked


def test_equal_nodes_are_tried_once() -> None:
    case = Case(_racks(*[[8] * 10] * 10), Neighbours())
    case.gang(*[(1, "role=a;apart=rack:a")] * 11)
    answer = case.run(budget=100)
    assert isinstance(answer, FitError)
    assert answer.search is SearchOutcome.PROVED


def test_a_plugin_that_bounds_its_capacity_makes_the_search_unnecessary() -> None:
    nodes = _racks([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    case = Case(nodes, Bounded())
    case.gang(*[(1, "role=a;apart=host:a")] * 11)
    answer = case.run(budget=1)
    assert isinstance(answer, FitError)
    assert answer.search is SearchOutcome.PROVED


def test_members_of_several_sizes_are_packed_where_only_one_order_fits() -> None:
    case = Case([(7, {}), (6, {}), (5, {})], None)
    case.gang((4, ""), (3, ""), (3, ""), (3, ""), (5, ""))
    answer = case.run()
    case.check(answer)
    assert isinstance(answer, Plan)


def test_the_plain_shortage_of_one_template_is_not_searched() -> None:
    case = Case([(2, {}), (2, {})], Neighbours())
    case.gang(*[(1, "")] * 5)
    answer = case.run()
    assert isinstance(answer, FitError)
    assert answer.search is SearchOutcome.NONE


_ROLES = ("a", "b", "c")


def _random_rules(rng: random.Random) -> str:
    said = [f"role={rng.choice(_ROLES)}"]
    if rng.random() < 0.35:
        said.append(f"apart={rng.choice(('host', 'rack'))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.35:
        said.append(f"near={rng.choice(('host', 'rack'))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.25:
        said.append(f"even={rng.choice(('host', 'rack'))}:{rng.choice((1, 2))}")
    return ";".join(said)


def _random_case(rng: random.Random) -> Case:
    plugin = rng.choice((Neighbours(), Neighbours(), Bounded(), Neighbours(tells_keys=False), None))
    nodes = []
    for i in range(rng.randint(2, 5)):
        labels = {"host": f"h{i}", "rack": rng.choice("xyz")}
        for key in list(labels):
            if rng.random() < 0.08:
                del labels[key]
        nodes.append((rng.choice((1, 2, 2, 3, 4)), labels))
    case = Case(nodes, plugin)
    for _ in range(rng.choice((0, 0, 1, 2)) if plugin is not None else 0):
        case.settle(rng.randrange(len(nodes)), _random_rules(rng))
    for _ in range(rng.choice((1, 1, 1, 2))):
        kinds = [
            (rng.choice((1, 1, 2, 3)), _random_rules(rng) if plugin is not None else "")
            for _ in range(rng.randint(1, 3))
        ]
        members = [one for one in kinds for _ in range(rng.randint(1, 3))][: 5 - len(case.demands)]
        needed = len(members) if rng.random() < 0.7 else rng.randint(1, len(members))
        case.gang(*members, needed=needed)
    return case


@pytest.mark.parametrize("block", all_but(2, range(10)))
def test_random_gangs_find_a_placement_exactly_where_one_exists(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        case = _random_case(random.Random(seed))
        try:
            case.check(case.run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", [70, 85, 162, 257, 304, 523, 535, 574, 589, 602])
def test_some_of_them_need_more_than_the_usual_orders(seed: int) -> None:
    case = _random_case(random.Random(seed))
    assert isinstance(case.run(budget=0), FitError)
    assert isinstance(case.run(budget=2000), Plan)


@pytest.mark.parametrize("block", all_but(1, range(4)))
def test_a_short_proof_leaves_the_answer_to_groups_that_start_together_as_it_is(block: int) -> None:
    """With a budget it stands in for the other orders; without one all of them are tried."""
    n_proved = 0
    for seed in range(block * 50, block * 50 + 50):
        rng = random.Random(seed)
        case = Case([(rng.randint(1, 4), {}) for _ in range(rng.randint(2, 4))], None)
        for _ in range(rng.randint(2, 4)):
            case.gang(*[(rng.choice((1, 1, 2, 3)), "")] * rng.randint(2, 3), needed=2)
        ordered, searched = case.run(budget=0), case.run()
        if isinstance(ordered, Plan):
            assert isinstance(searched, Plan)
            assert searched.n_tried == 0
            assert _rows(searched) == _rows(ordered)
        else:
            n_proved += isinstance(searched, FitError)
            case.check(searched)
    assert n_proved


def _rows(plan: Plan) -> list[tuple[str, int]]:
    return [(one.info.pod.metadata.name, one.row) for one in plan.placements]
