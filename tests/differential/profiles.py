"""The configuration that both schedulers read: profiles that between them use every argument."""

from __future__ import annotations

import json
from typing import Any

from gangsched.config import SchedulerConfig, parse_config
from gangsched.plugins import IN_TREE

GPU = "example.com/gpu"
TPU = "example.com/tpu"
NIC = "vendor.io/nic"
_ZONE = "topology.kubernetes.io/zone"


def _fit(kind: str, shape: list[tuple[int, int]] | None = None, **weights: int) -> dict[str, Any]:
    names = {"disk": "ephemeral-storage", "gpu": GPU}
    resources = [{"name": names.get(name, name), "weight": weight} for name, weight in weights.items()]
    strategy: dict[str, Any] = {"type": kind, "resources": resources}
    if shape:
        points = [{"utilization": utilization, "score": score} for utilization, score in shape]
        strategy["requestedToCapacityRatio"] = {"shape": points}
    return {"scoringStrategy": strategy}


def _terms(*requirements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"matchExpressions": [one]} for one in requirements]


def _listed(*constraints: tuple[str, int, str]) -> dict[str, Any]:
    names = ("topologyKey", "maxSkew", "whenUnsatisfiable")
    listed = [dict(zip(names, one, strict=True)) for one in constraints]
    return {"defaultingType": "List", "defaultConstraints": listed}


_ADDED = {
    "addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": _terms({"key": "zone", "operator": "NotIn", "values": ["c"]})
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 30, "preference": term}
            for term in _terms({"key": "disk", "operator": "In", "values": ["ssd"]})
        ],
    }
}
_EVEN = {"resources": [{"name": name} for name in ("cpu", "memory", "ephemeral-storage", GPU)]}
_ONE = {"resources": [{"name": "memory", "weight": 1}]}
_BLIND = {"ignoredResources": [TPU], "ignoredResourceGroups": ["vendor.io"]}
_OTHER_WEIGHTS = {
    "enabled": [{"name": "NodeResourcesFit", "weight": 7}, {"name": "ImageLocality", "weight": 3}],
    "disabled": [
        {"name": name} for name in ("NodeResourcesFit", "ImageLocality", "NodeResourcesBalancedAllocation")
    ],
}

ARGS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "most": {"NodeResourcesFit": _fit("MostAllocated", gpu=5, cpu=1, memory=1)},
    "least": {"NodeResourcesFit": _fit("LeastAllocated", cpu=1, memory=3, disk=2, gpu=5)},
    "ratio": {
        "NodeResourcesFit": _fit(
            "RequestedToCapacityRatio", [(0, 0), (35, 8), (100, 10)], gpu=3, cpu=2, memory=1
        )
    },
    "falling": {
        "NodeResourcesFit": _fit("RequestedToCapacityRatio", [(10, 10), (60, 3), (90, 0)], cpu=1, memory=4)
    },
    "even": {"NodeResourcesBalancedAllocation": _EVEN},
    "one": {"NodeResourcesBalancedAllocation": _ONE},
    "added": {"NodeAffinity": _ADDED},
    "blind": {"NodeResourcesFit": _BLIND},
    "weights": {},
}
NAMES = tuple(ARGS)
# For pods that say things of each other.
ARGS |= {
    "hard": {"InterPodAffinity": {"hardPodAffinityWeight": 40}},
    "ignoring": {"InterPodAffinity": {"ignorePreferredTermsOfExistingPods": True}},
    "listed": {"PodTopologySpread": _listed(("rack", 1, "ScheduleAnyway"), (_ZONE, 2, "ScheduleAnyway"))},
    "listed-hard": {"PodTopologySpread": _listed((_ZONE, 2, "DoNotSchedule"))},
    "unspread": {"PodTopologySpread": _listed()},
    "older": {},
}


def document() -> dict[str, Any]:
    """profiles of a KubeSchedulerConfiguration; nobody is preempted, so that a refusal stays one."""
    profiles = []
    for name, args in ARGS.items():
        plugins: dict[str, Any] = {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}
        if name == "weights":
            plugins["score"] = _OTHER_WEIGHTS
        config = [{"name": plugin, "args": given} for plugin, given in args.items()]
        profiles.append({"schedulerName": name, "plugins": plugins, "pluginConfig": config})
    # A pod that was refused must not be tried again while others are decided.
    return {"profiles": profiles, "podInitialBackoffSeconds": 600, "podMaxBackoffSeconds": 600}


def ours() -> SchedulerConfig:
    """The same file, read by us."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return parse_config(json.dumps(head | document()), source="profiles.py", plugins=IN_TREE)
