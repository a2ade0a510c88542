"""The same as test_search, with InterPodAffinity and PodTopologySpread, through the whole core."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Affinity, Pod, PodSpec, TopologySpreadConstraint
from tests.core.rules import Rules, may_go, parse
from tests.support.long import all_but
from tests.support.scenario import Cluster

HOST, RACK = "host", "rack"


def spec_of(rules: Rules) -> dict[str, Any]:
    """The rules in Kubernetes' words."""

    def terms(wanted: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"role": role}}} for key, role in wanted
            ]
        }

    spread = [
        {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"role": rules.role}},
        }
        for key, skew in rules.even
    ]
    affinity = {"podAffinity": terms(rules.near), "podAntiAffinity": terms(rules.apart)}
    return {"affinity": affinity, "topologySpreadConstraints": spread}


def member(name: str, rules: Rules, *, cpu: int, **more: Any) -> Pod:
    pod = make_pod(name, gpus=0, cpu=str(cpu), labels={"role": rules.role}, **more)
    wire = spec_of(rules)
    spread = msgspec.convert(wire["topologySpreadConstraints"], list[TopologySpreadConstraint])
    own: PodSpec = msgspec.structs.replace(
        pod.spec,
        affinity=msgspec.convert(wire["affinity"], Affinity),
        topology_spread_constraints=spread or None,
    )
    return msgspec.structs.replace(pod, spec=own)


class Case:
    """A cluster, a gang that has not been placed yet, and what brute force says of it."""

    def __init__(self, rng: random.Random, *, same_rules: bool = False) -> None:
        """same_rules: its members differ in size alone."""
        self.cluster = Cluster(Settings(search_placements=1_000_000, topology_key=RACK))
        self.labels: list[Mapping[str, str]] = []
        self.room: list[int] = []
        for i in range(rng.randint(2, 5)):
            labels = {HOST: f"h{i}", RACK: rng.choice("xyz")}
            for key in list(labels):
                if rng.random() < 0.08:
                    del labels[key]
            self.labels.append(labels)
            self.room.append(rng.choice((1, 2, 2, 3, 4)))
            node = make_node(f"n{i}", gpus=0, cpu=self.room[i])
            meta = msgspec.structs.replace(node.metadata, labels=dict(labels))
            self.cluster.node(msgspec.structs.replace(node, metadata=meta))
        self.settled: list[list[Rules]] = [[] for _ in self.room]
        for k in range(rng.choice((0, 0, 1, 2))):
            row = rng.randrange(len(self.room))
            rules = parse(_random_rules(rng))
            pod = member(f"old-{k}", rules, cpu=0, scheduler="another")
            placed = msgspec.structs.replace(pod.spec, node_name=f"n{row}")
            self.cluster.submit(msgspec.structs.replace(pod, spec=placed))
            self.settled[row].append(rules)
        kinds = [(rng.choice((1, 1, 2, 3)), parse(_random_rules(rng))) for _ in range(rng.randint(1, 3))]
        if same_rules:
            kinds = [(cpu, kinds[0][1]) for cpu in rng.sample((1, 2, 3), rng.randint(2, 3))]
        self.members = [one for one in kinds for _ in range(rng.randint(1, 3))][:5]
        n = len(self.members)
        self.needed = n if rng.random() < 0.7 else rng.randint(1, n)

    def run(self) -> dict[str, int]:
        """Where each member went."""
        pods = [
            member(f"g-{i}", rules, cpu=cpu, group="g", min_members=self.needed)
            for i, (cpu, rules) in enumerate(self.members)
        ]
        self.cluster.submit(pods).run()
        nodes = {pod.metadata.name: self.cluster.pod(pod.metadata.name).spec.node_name for pod in pods}
        return {name: int(node[1:]) for name, node in nodes.items() if node}

    def exists(self, at: Mapping[str, int] | None = None) -> bool:
        """Some order of placing what is needed; with `at`: of placing exactly these, there."""
        names = [f"g-{i}" for i in range(len(self.members))]
        wanted = self.needed if at is None else len(at)
        seen: set[object] = set()

        def reach(on: list[list[int]]) -> bool:
            placed = [i for those in on for i in those]
            if len(placed) == wanted:
                return True
            state = tuple(tuple(sorted(repr(self.members[i]) for i in those)) for those in on)
            if at is None and state in seen:
                return False
            seen.add(state)
            around = [[*self.settled[row], *(self.members[i][1] for i in on[row])] for row in range(len(on))]
            for i, (cpu, rules) in enumerate(self.members):
                if i in placed or (at is not None and names[i] not in at):
                    continue
                for row in range(len(on)) if at is None else (at[names[i]],):
                    used = sum(self.members[k][0] for k in on[row])
                    fits = used + cpu <= self.room[row]
                    if fits and may_go(rules, row, self.labels, around, first_may=True):
                        on[row].append(i)
                        if reach(on):
                            return True
                        on[row].pop()
            return False

        return reach([[] for _ in self.room])


_ROLES = ("a", "b", "c")


def _random_rules(rng: random.Random) -> str:
    said = [f"role={rng.choice(_ROLES)}"]
    if rng.random() < 0.35:
        said.append(f"apart={rng.choice((HOST, RACK))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.35:
        said.append(f"near={rng.choice((HOST, RACK))}:{rng.choice(_ROLES)}")
    if rng.random() < 0.25:
        said.append(f"even={rng.choice((HOST, RACK))}:{rng.choice((1, 2))}")
    return ";".join(said)


@pytest.mark.parametrize("same_rules", [False, True])
@pytest.mark.parametrize("block", all_but(1, range(8)))
def test_a_gang_is_placed_exactly_where_its_constraints_can_be_kept(block: int, same_rules: bool) -> None:
    for seed in range(block * 50, block * 50 + 50):
        case = Case(random.Random(seed), same_rules=same_rules)
        at = case.run()
        if at:
            assert len(at) >= case.needed, f"seed {seed}"
            assert case.exists(at), f"seed {seed}: {at} breaks a rule"
            continue
        assert not case.exists(), f"seed {seed}: {case.cluster.said('g-0')}"
        assert "A placement may exist" not in case.cluster.said("g-0"), f"seed {seed}"
