"""Plans of claims for gangs that must be in one rack, keep apart, or have unlike members."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.kept import claim_plans
from gangsched.core.kept.claim_plans import ClaimPlans
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.claim import StartClaim
from gangsched.kube.watch.decode import objects
from gangsched.lab.sim.objects import RACK, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    Volume,
)
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.model.stated.topology import TOPOLOGY_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.test_claims import bounded
from tests.support.scenario import Cluster, cluster, gang, lone, with_annotations

BEGAN_S = 1.0
IN_A_RACK = {TOPOLOGY_KEY: f"required: {RACK}"}


def full(ends_s: dict[str, float], *, racks: dict[str, str] | None = None) -> Cluster:
    """Nodes of 8 GPUs, each held by a pod of another scheduler with this end."""
    c = cluster(nodes=0, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    for name, end_s in ends_s.items():
        c.node(make_node(name, rack=(racks or {}).get(name, "")))
        c.submit(on(name, 8, end_s))
    return c


def on(node: str, gpus: int, end_s: float, **more: Any) -> Pod:
    pod = make_pod(f"on-{node}-{gpus}", gpus=gpus, scheduler="another", **more)
    pod = replace(pod, spec=replace(pod.spec, node_name=node))
    return with_annotations([pod], {WALLTIME_KEY: f"{end_s:.0f}s"})[0]


def planned(c: Cluster, name: str = "large") -> StartClaim | None:
    return c.scheduler.attempts.kept.claiming.plans.made(c.claims(), [c.group(name)])


def tries_of(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moments for which the cycle is run from now on."""
    tried: list[float] = []
    plan = ClaimPlans._try

    def noted(self: ClaimPlans, *args: Any, **more: Any) -> Any:
        tried.append(args[1])
        return plan(self, *args, **more)

    monkeypatch.setattr(ClaimPlans, "_try", noted)
    return tried


def test_a_gang_of_one_rack_is_planned_for_when_one_rack_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_s = {"a0": 100.0, "a1": 200.0, "a2": 900.0, "b0": 300.0, "b1": 400.0, "b2": 500.0}
    c = full(ends_s, racks={name: name[0] for name in ends_s})
    c.submit(with_annotations(gang("large", pods=3, gpus=8), IN_A_RACK)).run()
    tried = tries_of(monkeypatch)
    claim = planned(c)
    assert claim is not None
    assert sorted(claim.nodes) == ["b0", "b1", "b2"]
    assert claim.start_s == BEGAN_S + 500.0
    assert tried == [BEGAN_S + 500.0], "no moment is tried at which no rack has room"


@pytest.mark.parametrize("seed", range(40))
def test_the_rack_that_is_free_first_is_claimed(seed: int) -> None:
    rng = Random(seed)
    names = [f"{rack}{k}" for rack in "abc" for k in range(rng.randint(1, 4))]
    ends_s = {name: float(rng.randint(1, 90) * 10) for name in names}
    c = full(ends_s, racks={name: name[0] for name in ends_s})
    size = rng.randint(1, 3)
    c.submit(with_annotations(gang("large", pods=size, gpus=8), IN_A_RACK)).run()
    of_rack = {rack: sorted(s for name, s in ends_s.items() if name[0] == rack) for rack in "abc"}
    first_s = min((ends[size - 1] for ends in of_rack.values() if len(ends) >= size), default=None)
    claim = planned(c)
    assert (claim and claim.start_s - BEGAN_S) == first_s, f"seed {seed}"
    if claim is not None:
        assert len({node[0] for node in claim.nodes}) == 1, f"seed {seed}"


def apart_from(app: str) -> dict[str, Any]:
    term = PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": app}))
    return {"pod_anti_affinity": PodAffinity(required_during_scheduling_ignored_during_execution=[term])}


def test_whom_a_gang_keeps_apart_from_is_waited_for_although_there_is_room() -> None:
    c = full({"n0": 100.0, "n1": 200.0, "n2": 300.0})
    c.node(make_node("n3")).submit(on("n3", 0, 5000.0, labels={"app": "noisy"}))
    c.node(make_node("n4")).submit(on("n4", 0, 150.0, labels={"app": "noisy"}))
    pods = [
        replace(pod, spec=replace(pod.spec, affinity=Affinity(**apart_from("noisy"))))
        for pod in gang("large", pods=2, gpus=8)
    ]
    for node in c.nodes.values():
        c.node(
            replace(
                node, metadata=replace(node.metadata, labels={"kubernetes.io/hostname": node.metadata.name})
            )
        )
    c.submit(pods).run()
    claim = planned(c)
    assert claim is not None
    assert (sorted(claim.nodes), claim.start_s) == (["n0", "n4"], BEGAN_S + 150.0)


def in_the_way(c: Cluster, end_s: float, **more: Any) -> None:
    """A pod that holds nothing and ends, on a node that another holds for long."""
    c.node(make_node("h0", rack="r")).submit(on("h0", 8, 5000.0))
    pod = on("h0", 0, end_s)
    c.submit(replace(pod, spec=replace(pod.spec, **more)))


def test_who_keeps_apart_from_a_gang_is_waited_for_on_whatever_node() -> None:
    ends_s = {"n0": 100.0, "n1": 200.0}
    c = full(ends_s, racks=dict.fromkeys(ends_s, "r"))
    term = PodAffinityTerm(RACK, LabelSelector({"app": "large"}))
    apart = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    in_the_way(c, 300.0, affinity=Affinity(pod_anti_affinity=apart))
    c.submit(gang("large", pods=2, gpus=8, labels={"app": "large"})).run()
    claim = planned(c)
    assert claim is not None
    assert (sorted(claim.nodes), claim.start_s) == (["n0", "n1"], BEGAN_S + 300.0)


@pytest.mark.parametrize(("mode", "start_s"), [("ReadWriteOncePod", 300.0), ("ReadWriteMany", 200.0)])
def test_who_uses_a_claim_of_a_gang_is_waited_for_where_one_pod_may(mode: str, start_s: float) -> None:
    c = full({"n0": 100.0, "n1": 200.0})
    of_claim = msgspec.convert({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, Volume)
    for kind, namespace, name, spec in (
        ("persistentvolumes", "", "pv", {"accessModes": [mode], "capacity": {"storage": "1Gi"}}),
        ("persistentvolumeclaims", "d", "c", {"accessModes": [mode], "volumeName": "pv"}),
    ):
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
        own = {"pv.kubernetes.io/bind-completed": "yes"}
        raw = msgspec.json.encode(
            {"metadata": {**meta, "annotations": own}, "spec": spec, "status": {"phase": "Bound"}}
        )
        c.tell(ev.ObjectPut(kind, objects(kind).decode_object(raw)))
    in_the_way(c, 300.0, volumes=[of_claim])
    one, other = gang("large", pods=2, gpus=8)
    c.submit([replace(one, spec=replace(one.spec, volumes=[of_claim])), other]).run()
    claim = planned(c)
    assert claim is not None
    assert (sorted(claim.nodes), claim.start_s) == (["n0", "n1"], BEGAN_S + start_s)


@pytest.mark.parametrize("seed", range(40))
def test_leaving_out_few_pods_first_finds_the_same_moment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_s(many: int) -> float | None:
        rng = Random(seed)
        monkeypatch.setattr(claim_plans, "_MANY", many)
        c = full({f"n{k}": float(rng.randint(1, 30) * 10) for k in range(rng.randint(3, 9))})
        for k in range(rng.randint(0, 3)):
            c.node(make_node(f"h{k}")).submit(
                on(f"h{k}", 4, 5000.0), on(f"h{k}", 3, rng.randint(1, 30) * 10.0)
            )
        halves = gang("large", pods=rng.randint(1, 4), gpus=4, first=4)
        wholes = gang("large", pods=rng.randint(1, 3), gpus=8)
        both = [*halves, *wholes]
        rng.shuffle(both)
        n_needed = str(len(both))
        c.submit(with_annotations(both, {"gangsched.io/min-members": n_needed})).run()
        claim = planned(c)
        return None if claim is None else claim.start_s

    assert start_s(0) == start_s(1000), f"seed {seed}"


def spread(pods: list[Pod], key: str, skew: int) -> list[Pod]:
    """Spread over this label's values with all pods of app x, of which they are."""
    rule = TopologySpreadConstraint(skew, key, "DoNotSchedule", LabelSelector({"app": "x"}))
    return [
        replace(
            pod,
            metadata=replace(pod.metadata, labels={**(pod.metadata.labels or {}), "app": "x"}),
            spec=replace(pod.spec, topology_spread_constraints=[rule]),
        )
        for pod in pods
    ]


def test_whom_a_gang_is_spread_from_is_waited_for_although_there_is_room() -> None:
    ends_s = {"n0": 100.0, "n1": 200.0, "n2": 300.0, "n3": 5000.0}
    c = full(ends_s, racks={name: name for name in ends_s})
    for name, end_s in (("n4", 150.0), ("n5", 5000.0)):
        c.node(make_node(name, rack=name)).submit(on(name, 0, end_s, labels={"app": "x"}))
    c.submit(spread(gang("large", pods=2, gpus=8), RACK, 1)).run()
    claim = planned(c)
    assert claim is not None
    assert (sorted(claim.nodes), claim.start_s) == (["n0", "n4"], BEGAN_S + 150.0)


@pytest.mark.parametrize("seed", range(40))
def test_only_pods_that_a_constraint_counts_matter_to_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> tuple[float, list[str]] | None:
        rng = Random(seed)
        names = [f"n{k}" for k in range(rng.randint(2, 7))]
        c = full({n: rng.randint(1, 30) * 10.0 for n in names}, racks={n: rng.choice("abc") for n in names})
        for k in range(rng.randint(1, 4)):
            c.node(make_node(f"h{k}", rack=rng.choice("abc"))).submit(
                on(f"h{k}", 0, rng.randint(1, 30) * 10.0, labels={"app": "x"}),
                on(f"h{k}", rng.randint(1, 8), rng.randint(1, 30) * 10.0, labels={"app": "y"}),
            )
        c.submit(spread(gang("large", pods=rng.randint(1, 5), gpus=8), RACK, rng.randint(1, 2))).run()
        claim = planned(c)
        return None if claim is None else (claim.start_s, sorted(claim.nodes))

    def of_all(self: claim_plans.PlanRooms, templates: Any) -> BoolArray:
        return np.ones(self._shared.cache.view.n_rows, dtype=np.bool_)

    of_few = plan()
    monkeypatch.setattr(claim_plans.PlanRooms, "_that_matter", of_all)
    assert plan() == of_few, f"seed {seed}"


def test_a_set_is_claimed_for_as_one_of_its_least_important_and_its_longest_group() -> None:
    c = bounded(nodes=3, bound=1)
    c.submit(lone("y", 8, "600s")).run().submit(lone("z", 8, "300s")).run()
    both = {GROUPS_KEY: '["a", "b"]'}
    c.submit(
        with_annotations(gang("a", pods=1, gpus=8, priority=10), {**both, WALLTIME_KEY: "60s"}),
        with_annotations(gang("b", pods=2, gpus=8), {**both, WALLTIME_KEY: "1h"}),
    ).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").submit(lone("passes", 8, "2h")).run()
    found = c.claim("a")
    assert found is c.claim("b")
    assert (found.priority, found.start_s, found.end_s) == (0, 601.0, 4201.0)
    assert [(one.name, one.end_s) for one in found.blockers] == [("d/z", 301.0), ("d/y", 601.0)]
    assert not c.pod("passes").spec.node_name
    c.submit(lone("more", 8, "2h", priority=5)).run()
    assert c.pod("more").spec.node_name, "it is more important than one of them"
    c.wait(600.0).delete("y", "z", "more").run().wait(2.0)
    assert c.placed("a")
    assert c.placed("b", on=2)


@pytest.mark.parametrize(("n_terms", "most"), [(1, 13), (90, 3)])
def test_who_asks_much_of_other_pods_is_planned_for_in_fewer_tries(
    monkeypatch: pytest.MonkeyPatch, n_terms: int, most: int
) -> None:
    """Both members keep apart from each other's rack, and the other rack is free last."""
    ends_s = {f"n{k:02}": 100.0 * (k + 1) for k in range(30)}
    c = full(ends_s, racks={name: "a" if name < "n28" else "b" for name in ends_s})
    own = PodAffinityTerm(RACK, LabelSelector({"app": "large"}))
    more = [PodAffinityTerm(RACK, LabelSelector({"app": f"v{k}"})) for k in range(n_terms - 1)]
    keeps = PodAffinity(required_during_scheduling_ignored_during_execution=[own, *more])
    pods = [
        replace(pod, spec=replace(pod.spec, affinity=Affinity(pod_anti_affinity=keeps)))
        for pod in gang("large", pods=2, gpus=8, labels={"app": "large"})
    ]
    c.submit(pods).run()
    tried = tries_of(monkeypatch)
    claim = planned(c)
    assert claim is not None
    assert {node[:3] for node in claim.nodes} & {"n28", "n29"}
    assert 1 < len(dict.fromkeys(tried)) <= most
