"""Where any way to place a gang and its claims exists, it is found: beside a search through all ways."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from gangsched.lab.sim.objects import make_pod
from gangsched.model.objects import Pod
from tests.core.claims import DRIVER, ClaimCluster, Json, with_claims
from tests.support.long import all_but

_SEEDS = 400
NETWORK = "net"


class Device(NamedTuple):
    """node: "" reached from everywhere."""

    node: str
    name: str
    fast: bool
    numa: int


class Wish(NamedTuple):
    """n devices, perhaps fast ones alone, perhaps all of one NUMA node."""

    n: int
    fast: bool
    one_numa: bool

    def suits(self, devices: tuple[Device, ...]) -> bool:
        if self.fast and not all(one.fast for one in devices):
            return False
        return not self.one_numa or len({one.numa for one in devices}) == 1

    @property
    def spec(self) -> Json:
        selector = [{"cel": {"expression": f"device.attributes['{DRIVER}'].fast"}}] if self.fast else []
        exactly = {"deviceClassName": "gpu", "count": self.n, "allocationMode": "ExactCount"}
        spec: Json = {"requests": [{"name": "gpu", "exactly": {**exactly, "selectors": selector}}]}
        if self.one_numa:
            spec["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]
        return {"devices": spec}


class Case(NamedTuple):
    """pods: each with a wish of its own; shared: of all of them together."""

    devices: list[Device]
    taken: set[Device]
    nodes: list[str]
    pods: list[Wish]
    shared: Wish | None


def case(seed: int) -> Case:
    rng = random.Random(seed)
    nodes = [f"n{i}" for i in range(rng.randint(1, 3))]
    devices = [
        Device(node, f"gpu-{i}", rng.random() < 0.6, rng.randrange(2))
        for node in nodes
        for i in range(rng.randint(0, 4))
    ]
    if rng.random() < 0.3:
        devices += [Device("", f"far-{i}", rng.random() < 0.6, 0) for i in range(rng.randint(1, 3))]
    kinds = [Wish(rng.choice((1, 1, 2, 3)), rng.random() < 0.4, rng.random() < 0.4) for _ in range(2)]
    pods = [rng.choice(kinds) for _ in range(rng.randint(1, 6))]
    shared = rng.choice(kinds) if rng.random() < 0.3 else None
    taken = {one for one in devices if rng.random() < 0.15}
    return Case(devices, taken, nodes, pods, shared)


def is_possible(of: Case) -> bool:
    """Tries all ways."""
    free = [one for one in of.devices if one not in of.taken]

    def place(at: int, left: frozenset[Device], common: tuple[Device, ...]) -> bool:
        if at == len(of.pods):
            return True
        wish = of.pods[at]
        for node in of.nodes:
            if any(one.node not in ("", node) for one in common):
                continue
            here = [one for one in sorted(left) if one.node in ("", node)]
            for some in combinations(here, wish.n):
                if wish.suits(some) and place(at + 1, left - set(some), common):
                    return True
        return False

    if of.shared is None:
        return place(0, frozenset(free), ())
    return any(
        of.shared.suits(some) and place(0, frozenset(free) - set(some), some)
        for some in combinations(free, of.shared.n)
    )


def submitted(of: Case) -> ClaimCluster:
    c = ClaimCluster()
    taken: list[Json] = []
    for node in of.nodes:
        c.offer(node, gpus_each=0)
        _list(c, node, [one for one in of.devices if one.node == node], {"nodeName": node})
    _list(c, NETWORK, [one for one in of.devices if not one.node], {"allNodes": True})
    for i, one in enumerate(sorted(of.taken)):
        pool = one.node or NETWORK
        device = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": one.name}
        user = {"resource": "pods", "name": "x", "uid": "uid-x"}
        taken.append(device)
        c.make_claim(
            f"taken-{i}", {"devices": {}}, allocation={"devices": {"results": [device]}}, reservedFor=[user]
        )
    if of.shared is not None:
        c.make_claim("shared", of.shared.spec)
    pods: list[Pod] = []
    for i, wish in enumerate(of.pods):
        pod = with_claims(
            make_pod(f"g-{i}", gpus=0, group="g", min_members=len(of.pods)),
            own=("gpu",),
            shared={"all": "shared"} if of.shared is not None else None,
        )
        c.make_claim(f"g-{i}-gpu", wish.spec, owner=pod)
        pods.append(pod)
    return c.submit(pods)


def _list(c: ClaimCluster, pool: str, devices: list[Device], where: Json) -> None:
    listed: list[dict[str, Any]] = [
        {"name": one.name, "attributes": {"fast": {"bool": one.fast}, "numa": {"int": one.numa}}}
        for one in devices
    ]
    c.slice(
        f"slice-{pool}",
        {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 2, "resourceSliceCount": 1},
            "devices": listed,
            **where,
        },
    )


@pytest.mark.parametrize("seed", all_but(60, range(_SEEDS)))
def test_what_can_be_placed_is_placed(seed: int) -> None:
    of = case(seed)
    c = submitted(of).run()
    assert c.placed("g") == is_possible(of), f"case({seed})"
    if c.placed("g"):
        taken = [one for i in range(len(of.pods)) for one in c.devices(f"g-{i}-gpu")]
        taken += c.devices("shared") if of.shared is not None else []
        assert len(taken) == len(set(taken))
        assert not {f"{one.node or NETWORK}/{one.name}" for one in of.taken}.intersection(taken)


def test_both_outcomes_are_frequent() -> None:
    found = [is_possible(case(seed)) for seed in range(_SEEDS)]
    assert 0.25 < sum(found) / _SEEDS < 0.75
