"""Files that kube-scheduler refuses are refused here, at a place in the file; and what only we refuse."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.controlplane.assets import Assets
from tests.differential.resolved import KubeSchedulerReader, ours

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def reader(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> KubeSchedulerReader:
    return KubeSchedulerReader(assets.path("kube-scheduler"), tmp_path_factory.mktemp("refused"))


def plugins(**points: Any) -> dict[str, Any]:
    return {"profiles": [{"schedulerName": "a", "plugins": points}]}


def enabled(*names: str, **extra: Any) -> dict[str, Any]:
    return {"enabled": [{"name": name} | extra for name in names]}


def args(plugin: str, **fields: Any) -> dict[str, Any]:
    return {"profiles": [{"schedulerName": "a", "pluginConfig": [{"name": plugin, "args": fields}]}]}


def extender(**fields: Any) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x"} | fields]}


def fit(**strategy: Any) -> dict[str, Any]:
    return args("NodeResourcesFit", scoringStrategy=strategy)


def shaped(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    return fit(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": shape})


def added(**expression: Any) -> dict[str, Any]:
    term = {"matchExpressions": [expression]}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return args("NodeAffinity", addedAffinity=rules)


def preferred(weight: int, **expression: Any) -> dict[str, Any]:
    one = {"weight": weight, "preference": {"matchExpressions": [expression]}}
    return args("NodeAffinity", addedAffinity={"preferredDuringSchedulingIgnoredDuringExecution": [one]})


def spread(**fields: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"} | fields
    return args("PodTopologySpread", defaultingType="List", defaultConstraints=[constraint])


BOTH: dict[str, dict[str, Any]] = {
    "no such field": {"profilez": []},
    "no such field in a profile": {"profiles": [{"schedulerNam": "a"}]},
    "no parallelism": {"parallelism": 0},
    "a share above all": {"percentageOfNodesToScore": 101},
    "a profile's share below none": {"profiles": [{"schedulerName": "a", "percentageOfNodesToScore": -1}]},
    "no backoff": {"podInitialBackoffSeconds": 0},
    "backoff that shrinks": {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 4},
    "burst below none": {"clientConnection": {"burst": -1}},
    "a lease no longer than its renewal": {
        "leaderElection": {"leaderElect": True, "leaseDuration": "10s", "renewDeadline": "10s"}
    },
    "another lock": {"leaderElection": {"leaderElect": True, "resourceLock": "configmaps"}},
    "two profiles of one name": {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
    "two profiles, one without a name": {"profiles": [{"schedulerName": "a"}, {}]},
    "no such plugin": plugins(filter=enabled("NodePort")),
    "no such plugin for all points": plugins(multiPoint=enabled("Nothing")),
    "a plugin where it does not serve": plugins(score=enabled("NodePorts")),
    "a plugin twice": plugins(filter=enabled("NodePorts", "NodePorts")),
    "a plugin twice for all points": plugins(multiPoint=enabled("NodePorts", "NodePorts")),
    "a plugin with a weight below none": plugins(score=enabled("NodeAffinity", weight=-1)),
    "a point that there is not": plugins(filters=enabled("NodePorts")),
    "nothing to sort the queue": plugins(queueSort={"disabled": [{"name": "*"}]}),
    "nothing to bind with": plugins(bind={"disabled": [{"name": "DefaultBinder"}]}),
    "nothing at all": plugins(multiPoint={"disabled": [{"name": "*"}]}),
    "an extender with a score and no weight": extender(prioritizeVerb="p"),
    "two extenders that bind": {"extenders": [{"urlPrefix": "http://x", "bindVerb": "b"}] * 2},
    "an extender that manages cpu": extender(managedResources=[{"name": "cpu"}]),
    "a resource with two managers": {
        "extenders": [{"urlPrefix": "http://x", "managedResources": [{"name": "a.io/b"}]}] * 2
    },
    "an extender with a field that there is not": extender(filter="f"),
    "arguments twice": {
        "profiles": [{"schedulerName": "a", "pluginConfig": [{"name": "NodeResourcesFit"}] * 2}]
    },
    "arguments of another plugin": args("NodeResourcesFit", kind="NodeAffinityArgs"),
    "an argument that there is not": args("NodeResourcesFit", ignoredResource=["a"]),
    "a strategy without a type": fit(resources=[{"name": "cpu"}]),
    "a strategy that there is not": fit(type="Even"),
    "a weight above 100": fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": 101}]),
    "a weight below none": fit(type="LeastAllocated", resources=[{"name": "cpu", "weight": -1}]),
    "a ratio without its shape": fit(type="RequestedToCapacityRatio"),
    "an empty shape": shaped(),
    "a shape that falls back": shaped((50, 1), (40, 2)),
    "a shape that stands still": shaped((50, 1), (50, 2)),
    "a shape beyond full": shaped((101, 1)),
    "a shape with too good a score": shaped((10, 11)),
    "a shape without its ratio": fit(type="MostAllocated", requestedToCapacityRatio={"shape": []}),
    "an ignored resource without a name": args("NodeResourcesFit", ignoredResources=["a b"]),
    "an ignored group with a slash": args("NodeResourcesFit", ignoredResourceGroups=["a/b"]),
    "an ignored group without a name": args("NodeResourcesFit", ignoredResourceGroups=["a b"]),
    "one resource twice": args(
        "NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": "cpu"}]
    ),
    "a balance with weights": args("NodeResourcesBalancedAllocation", resources=[{"name": "a", "weight": 2}]),
    "In without values": added(key="a", operator="In"),
    "Exists with values": added(key="a", operator="Exists", values=["b"]),
    "Gt with a word": added(key="a", operator="Gt", values=["b"]),
    "Lt with two numbers": added(key="a", operator="Lt", values=["1", "2"]),
    "an operator that there is not": added(key="a", operator="Equals", values=["b"]),
    "a key that no label has": added(key="a b", operator="Exists"),
    "a value that no label has": added(key="a", operator="In", values=["b c"]),
    "a preference that cannot be read": preferred(3, key="a", operator="In"),
    "a filter that ends before it begins": args("DynamicResources", filterTimeout="-1s"),
    "a binding that ends at once": args("DynamicResources", bindingTimeout="500ms"),
    "a weight of affinity above 100": args("InterPodAffinity", hardPodAffinityWeight=101),
    "volumes bound before they are asked": args("VolumeBinding", bindTimeoutSeconds=-1),
    "volumes in a shape that falls back": args(
        "VolumeBinding", shape=[{"utilization": 5, "score": 1}, {"utilization": 4, "score": 1}]
    ),
    "a share of candidates above all": args("DefaultPreemption", minCandidateNodesPercentage=101),
    "candidates below none": args("DefaultPreemption", minCandidateNodesAbsolute=-1),
    "no candidates": args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
    "spread by no skew": spread(maxSkew=0),
    "spread over no key": spread(topologyKey=""),
    "spread over a key that no label has": spread(topologyKey="a b"),
    "spread with a selector": spread(labelSelector={"matchLabels": {"a": "b"}}),
    "spread or else": spread(whenUnsatisfiable="Perhaps"),
    "spread in two ways": args(
        "PodTopologySpread",
        defaultConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
    ),
    "spread by a way that there is not": args("PodTopologySpread", defaultingType="Some"),
}

# Accepted by both; we add a note (tests/test_config.py).
NOTED: dict[str, dict[str, Any]] = {
    "an unknown plugin taken out": plugins(filter={"disabled": [{"name": "NodePort"}]}),
}

# Accepted by kube-scheduler, which then does something else than what was meant, or nothing.
ONLY_WE: dict[str, dict[str, Any]] = {
    "an extender that is asked about victims": extender(preemptVerb="p"),
    "an extender without a scheme": {"extenders": [{"urlPrefix": "x:80"}]},
    "arguments of an unknown plugin": args("NodeResourceFit", scoringStrategy={}),
}


@pytest.mark.parametrize("name", BOTH)
def test_what_they_refuse_is_refused(name: str, reader: KubeSchedulerReader) -> None:
    assert reader.read(BOTH[name]).refusal
    with pytest.raises(ConfigError) as caught:
        ours(BOTH[name])
    assert caught.value.path, "an error names its place in the file"


@pytest.mark.parametrize("name", NOTED)
def test_what_they_accept_and_we_note(name: str, reader: KubeSchedulerReader) -> None:
    assert not reader.read(NOTED[name]).refusal
    assert (
        ours(NOTED[name]).profiles["a"]["filter"]
        == ours({"profiles": [{"schedulerName": "a"}]}).profiles["a"]["filter"]
    )


@pytest.mark.parametrize("name", ONLY_WE)
def test_what_only_we_refuse(name: str, reader: KubeSchedulerReader) -> None:
    assert not reader.read(ONLY_WE[name]).refusal
    with pytest.raises(ConfigError):
        ours(ONLY_WE[name])
