"""Random KubeSchedulerConfigurations: profiles that name every plugin at every point it serves, in any order.

Lives here: drawing. Most are valid; what is not, both sides must refuse.
"""

from __future__ import annotations

from random import Random
from typing import Any

from gangsched.config.documents.absent import ABSENT
from gangsched.plugins import IN_TREE

Json = dict[str, Any]

# Source: kubernetes 1.37 `pkg/scheduler/framework/plugins/names/names.go`.
THEIRS = frozenset(
    (
        *("DefaultBinder", "DefaultPreemption", "DeferredPodScheduling", "DynamicResources"),
        *("GangScheduling", "ImageLocality", "InterPodAffinity", "NodeAffinity", "NodeDeclaredFeatures"),
        *("NodeName", "NodePorts", "NodeResourcesBalancedAllocation", "NodeResourcesFit"),
        *("NodeUnschedulable", "NodeVolumeLimits", "PodGroupPodsCount", "PodTopologySpread"),
        *("PrioritySort", "SchedulingGates", "TaintToleration", "TopologyPlacementGenerator"),
        *("VolumeBinding", "VolumeRestrictions", "VolumeZone"),
    )
)
# Ours alone; kube-scheduler would not know them.
OURS = frozenset(IN_TREE) - THEIRS
SERVES: dict[str, tuple[str, ...]] = {
    **{name: one.points for name, one in ABSENT.items()},
    **{name: tuple(sorted(info.points)) for name, info in IN_TREE.items() if name in THEIRS},
}
NAMES = tuple(sorted(SERVES))
# Whether queueSort is the same for all profiles is asked of what is written there, of what it means here;
# a plugin that is enabled at podGroupPostFilter alone gets no default arguments there, and fails.
_NOT_DRAWN = {"queueSort", "podGroupPostFilter"}
POINTS = tuple(sorted({point for name in NAMES for point in SERVES[name]} - _NOT_DRAWN))
# One of each and no other: a profile without is refused, and more than one kind there is not.
_ONLY = ("PrioritySort", "DefaultBinder")


def draw_config(seed: int) -> Json:
    rng = Random(seed)
    profiles = [_profile(rng, f"p{i}") for i in range(rng.randint(1, 5))]
    document: Json = {"profiles": profiles}
    if rng.random() < 0.3:
        document["percentageOfNodesToScore"] = rng.randint(0, 100)
    if len(profiles) == 1 and rng.random() < 0.3:
        del profiles[0]["schedulerName"]
    return document


def _profile(rng: Random, name: str) -> Json:
    plugins: Json = {}
    if rng.random() < 0.7:
        plugins["multiPoint"] = _multi_point(rng)
    for point in POINTS:
        if rng.random() < 0.35:
            plugins[point] = _point(rng, point)
    profile: Json = {"schedulerName": name, "plugins": plugins}
    config = [{"name": plugin, "args": args} for plugin, args in _args(rng).items() if rng.random() < 0.4]
    if config:
        profile["pluginConfig"] = config
    if rng.random() < 0.2:
        profile["percentageOfNodesToScore"] = rng.randint(0, 100)
    return profile


def _multi_point(rng: Random) -> Json:
    everything = rng.random() < 0.3
    disabled = ["*"] if everything else rng.sample([n for n in NAMES if n not in _ONLY], rng.randint(0, 5))
    enabled = rng.sample(NAMES, rng.randint(0, 7))
    if everything:
        enabled = [name for name in enabled if name not in _ONLY]
        for name in _ONLY:
            enabled.insert(rng.randrange(len(enabled) + 1), name)
    return _set(rng, enabled, disabled)


def _point(rng: Random, point: str) -> Json:
    serving = [name for name in NAMES if point in SERVES[name]]
    if point == "bind":
        return _set(rng, serving, rng.choice([[], ["*"], serving]))
    disabled = ["*"] if rng.random() < 0.3 else rng.sample(serving, rng.randint(0, len(serving)))
    return _set(rng, rng.sample(serving, rng.randint(0, len(serving))), disabled)


def _set(rng: Random, enabled: list[str], disabled: list[str]) -> Json:
    listed: list[Json] = []
    for name in enabled:
        ref: Json = {"name": name}
        if rng.random() < 0.5:
            ref["weight"] = rng.choice((0, 1, 2, 5, 100))
        listed.append(ref)
    return {"enabled": listed, "disabled": [{"name": name} for name in disabled]}


def _args(rng: Random) -> Json:
    names = ["cpu", "memory", "example.com/gpu"]
    resources = [{"name": name, "weight": rng.choice((0, 1, 7))} for name in rng.sample(names, 2)]
    kind = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    strategy: Json = {"type": kind}
    if rng.random() < 0.7:
        strategy["resources"] = resources
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": _shape(rng)}
    fit: Json = {"scoringStrategy": strategy} if rng.random() < 0.8 else {}
    if rng.random() < 0.5:
        fit |= {"ignoredResources": ["example.com/tpu"], "ignoredResourceGroups": ["vendor.io"]}
    return {
        "NodeResourcesFit": fit,
        "NodeResourcesBalancedAllocation": {"resources": [{"name": name} for name in names]},
        "NodeAffinity": _affinity(rng),
        "InterPodAffinity": {
            "hardPodAffinityWeight": rng.randint(0, 100),
            "ignorePreferredTermsOfExistingPods": rng.random() < 0.5,
        },
        "PodTopologySpread": rng.choice(
            [
                {},
                {"defaultingType": "List"},
                {
                    "defaultingType": "List",
                    "defaultConstraints": [
                        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
                    ],
                },
            ]
        ),
        "VolumeBinding": {"bindTimeoutSeconds": rng.randint(0, 900), "shape": _shape(rng)},
        "DefaultPreemption": {"minCandidateNodesPercentage": rng.randint(1, 100)},
        "DynamicResources": {"filterTimeout": "3s", "bindingTimeout": "90s"},
    }


def _shape(rng: Random) -> list[Json]:
    places = sorted(rng.sample(range(101), rng.randint(1, 4)))
    return [{"utilization": place, "score": rng.randint(0, 10)} for place in places]


def _affinity(rng: Random) -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
    required = {"nodeSelectorTerms": rng.choice([[term], [term, by_name]])}
    preferred = [{"weight": rng.randint(1, 100), "preference": rng.choice((term, by_name))}]
    return {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }
