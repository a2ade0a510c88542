"""Gangs with constraints between their members that need others' room: against every set of victims there is.

Whoever is taken is taken for a gang that then starts; where some set of victims makes room it is found, or
the answer says that a search ended. What the rules are is told a second time in tests.core.rules.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import msgspec
import pytest

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node
from gangsched.model import effects as ef
from tests.core.rules import Rules, may_go, parse
from tests.core.test_search_in_tree import HOST, RACK, member
from tests.support.long import all_but
from tests.support.scenario import Cluster

N_BLOCKS, N_CASES = 6, 25
_ROLES = ("a", "b", "c")


class Held(NamedTuple):
    name: str
    row: int
    cpu: int
    priority: int
    rules: Rules


class Case:
    """A full cluster, a gang, and what brute force says of both."""

    def __init__(self, rng: random.Random, *, search_placements: int = 100_000) -> None:
        settings = Settings(search_placements=search_placements, topology_key=RACK)
        self.cluster = Cluster(settings)
        self.labels = [{HOST: f"h{i}", RACK: rng.choice("xyz")} for i in range(rng.randint(2, 4))]
        self.room = [rng.choice((1, 2, 3, 4)) for _ in self.labels]
        self.held: list[Held] = []
        for row, room in enumerate(self.room):
            left = room
            while left > 0 and len(self.held) < 7:
                cpu = rng.choice((1, 1, left))
                rules = parse(f"role={rng.choice(_ROLES)}" + rng.choice(("", "", f";apart={HOST}:a")))
                priority = rng.choice((0, 0, 1, 20))
                self.held.append(Held(f"old-{len(self.held)}", row, cpu, priority, rules))
                left -= cpu
        kinds = [(rng.choice((1, 1, 2)), parse(_rules(rng))) for _ in range(rng.choice((1, 2, 3)))]
        self.members = [one for one in kinds for _ in range(rng.randint(1, 2))][:5]

    def run(self) -> frozenset[str] | None:
        """Whom the gang takes; None: it does not start."""
        c = self.cluster
        for row, labels in enumerate(self.labels):
            node = make_node(f"n{row}", gpus=0, cpu=self.room[row])
            meta = msgspec.structs.replace(node.metadata, labels=dict(labels))
            c.node(msgspec.structs.replace(node, metadata=meta))
        for one in self.held:
            pod = member(one.name, one.rules, cpu=one.cpu, priority=one.priority, scheduler="another")
            spec = msgspec.structs.replace(pod.spec, node_name=f"n{one.row}")
            c.submit(msgspec.structs.replace(pod, spec=spec))
        c.run().clear().evictions = "slow"
        names = [f"g-{i}" for i in range(len(self.members))]
        c.submit(
            [
                member(name, rules, cpu=cpu, group="g", min_members=len(names), priority=10)
                for name, (cpu, rules) in zip(names, self.members, strict=True)
            ]
        ).run()
        taken = frozenset(one.name for one in c.effects if isinstance(one, ef.EvictPod | ef.DeletePod))
        if taken:
            c.delete(*sorted(taken)).run()
            assert all(c.pod(name).spec.node_name for name in names), f"{sorted(taken)} went in vain"
        return taken if c.pod(names[0]).spec.node_name else None

    def exists(self, gone: Iterable[str]) -> bool:
        """Whether the gang can be placed without these pods."""
        stay = [one for one in self.held if one.name not in gone]
        seen: set[object] = set()

        def reach(on: list[list[int]]) -> bool:
            placed = [i for those in on for i in those]
            if len(placed) == len(self.members):
                return True
            state = tuple(tuple(sorted(repr(self.members[i]) for i in those)) for those in on)
            if state in seen:
                return False
            seen.add(state)
            around = [
                [*(one.rules for one in stay if one.row == row), *(self.members[i][1] for i in on[row])]
                for row in range(len(on))
            ]
            for i in (i for i in range(len(self.members)) if i not in placed):
                cpu, rules = self.members[i]
                for row, here in enumerate(on):
                    used = sum(one.cpu for one in stay if one.row == row)
                    used += sum(self.members[k][0] for k in here)
                    fits = used + cpu <= self.room[row]
                    if fits and may_go(rules, row, self.labels, around, first_may=True):
                        here.append(i)
                        if reach(on):
                            return True
                        here.pop()
            return False

        return reach([[] for _ in self.room])

    def ways(self) -> Iterable[frozenset[str]]:
        """All sets of victims without whom the gang can be placed, small ones first."""
        may_go = [one.name for one in self.held if one.priority < 10]
        for n in range(len(may_go) + 1):
            for some in combinations(may_go, n):
                if self.exists(some):
                    yield frozenset(some)


def _rules(rng: random.Random) -> str:
    said = [f"role={rng.choice(_ROLES)}"]
    if rng.random() < 0.5:
        said.append(f"apart={rng.choice((HOST, RACK))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.4:
        said.append(f"near={rng.choice((HOST, RACK))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.3:
        said.append(f"even={rng.choice((HOST, RACK))}:1")
    return ";".join(said)


@pytest.mark.parametrize("block", all_but(1, range(N_BLOCKS)))
def test_room_is_made_wherever_it_can_be(block: int) -> None:
    n_taken = n_refused = 0
    for seed in range(block * N_CASES, (block + 1) * N_CASES):
        case = Case(random.Random(f"together-{seed}"))
        taken = case.run()
        if taken is not None:
            assert case.exists(taken), f"seed {seed}: {sorted(taken)} are not enough"
            needless = [one for one in taken if case.exists(taken - {one})]
            assert not needless, f"seed {seed}: of {sorted(taken)} nobody needs {needless}"
            n_taken += 1
            continue
        way = next(iter(case.ways()), None)
        said = case.cluster.said("g-0")
        assert way is None or "may exist" in said, f"seed {seed}: {way} would do: {said}"
        n_refused += 1
    assert n_taken > 5
    assert n_refused > 5


@pytest.mark.parametrize("seed", [450, 1060, 1225])
def test_a_search_that_ended_reports_that(seed: int) -> None:
    """Gangs that fit in an order of placing only that nobody tries first."""
    case = Case(random.Random(f"together-{seed}"), search_placements=1)
    assert case.run() is None
    assert "A placement may exist: the search for one ended at searchPlacements" in case.cluster.said("g-0")
    assert Case(random.Random(f"together-{seed}")).run()
