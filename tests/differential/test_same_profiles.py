"""kube-scheduler and we, reading the same configuration files: the same plugins in the same order at every
point, the same weights and arguments; and the same files are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from gangsched.config.documents.absent import ABSENT
from gangsched.errors import ConfigError
from gangsched.lab.controlplane.assets import Assets
from gangsched.plugins import IN_TREE
from gangsched.reading.durations import duration_s
from tests.differential.draw_config import OURS, THEIRS, draw_config
from tests.differential.resolved import KubeSchedulerReader, Points, Resolved, ours

pytestmark = pytest.mark.real

N_SEEDS = 60
GANG = "GangScheduling"
GATE = "--feature-gates=GenericWorkload=true"

# What the two lists may differ in, and why. Whatever else differs fails.
DIFFERENCES = {
    "not there": "a plugin of kube-scheduler's that is not in gangsched.plugins is in none of our lists; "
    "config.documents.absent says what is done instead",
    "ours": "Devices, RemainingBandwidth and others are ours; pods that do not ask for them pass by them",
    "gang": "GangScheduling is a default of ours; kube-scheduler has it by the gate GenericWorkload",
    "placement": "placementScore has weights in kube-scheduler; here nothing scores whole placements",
}
NOT_THERE = frozenset(name for name in ABSENT if name not in IN_TREE)


@pytest.fixture(scope="module")
def reader(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> KubeSchedulerReader:
    return KubeSchedulerReader(assets.path("kube-scheduler"), tmp_path_factory.mktemp("resolved"))


@pytest.fixture(scope="module")
def theirs_of(reader: KubeSchedulerReader) -> Callable[[int], Resolved]:
    """What kube-scheduler makes of the random file of a seed; it is started once for each."""
    return cache(lambda seed: reader.read(draw_config(seed), GATE))


def compared(points: Points, *, gang: bool) -> Points:
    """Without what DIFFERENCES says, and without empty points."""
    left_out = OURS | NOT_THERE | (frozenset() if gang else {GANG})
    found = {
        point: [(name, 0 if point == "placementScore" else weight) for name, weight in listed]
        for point, listed in points.items()
    }
    kept = {point: [one for one in listed if one[0] not in left_out] for point, listed in found.items()}
    return {point: listed for point, listed in kept.items() if listed}


def args_of(resolved: Resolved, profile: str) -> dict[str, Any]:
    """By plugin, as data: what is empty is left out; what the profile does not run is not asked about."""
    ran = {name for listed in resolved.profiles[profile].values() for name, _ in listed}
    asked = ran - OURS - NOT_THERE
    return {name: _bare(args) for name, args in resolved.args[profile].items() if name in asked}


# kube-scheduler reads the limit of volumes from its environment (KUBE_MAX_PD_VOLS), and has no field for it;
# nor for the formula of NodeResourcesBalancedAllocation.
NOT_COMPARED = ("apiVersion", "kind", "maxPdVolumes", "formula")


# kube-scheduler writes 10m as 10m0s.
_DURATIONS = ("filterTimeout", "bindingTimeout")


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        value |= {key: duration_s(value[key], key) for key in _DURATIONS if value.get(key)}
        bare = {key: _bare(one) for key, one in value.items() if key not in NOT_COMPARED}
        return {key: one for key, one in bare.items() if one not in (None, [], {}, "")}
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def differing(theirs: Resolved, mine: Resolved, *, gang: bool) -> Iterator[str]:
    if list(theirs.profiles) != list(mine.profiles):
        yield f"profiles: theirs {list(theirs.profiles)}, ours {list(mine.profiles)}"
        return
    for name in theirs.profiles:
        left, right = (compared(one.profiles[name], gang=gang) for one in (theirs, mine))
        for point in sorted({*left, *right}):
            if left.get(point) != right.get(point):
                yield f"{name}.{point}: theirs {left.get(point)}, ours {right.get(point)}"
        left, right = args_of(theirs, name), args_of(mine, name)
        for plugin in sorted({*left, *right}):
            if left.get(plugin, {}) != right.get(plugin, {}):
                yield f"{name} {plugin}: theirs {left.get(plugin)}, ours {right.get(plugin)}"


DEFAULTS: dict[str, Any] = {}
SEVERAL: dict[str, Any] = {
    "percentageOfNodesToScore": 30,
    "podInitialBackoffSeconds": 2,
    "leaderElection": {"leaderElect": True, "resourceName": "mine"},
    "extenders": [
        {
            "urlPrefix": "http://127.0.0.1:8888",
            "filterVerb": "filter",
            "nodeCacheCapable": True,
            "managedResources": [{"name": "example.com/licence", "ignoredByScheduler": True}],
        }
    ],
    "profiles": [
        {"schedulerName": "default-scheduler"},
        {
            "schedulerName": "packing",
            "plugins": {
                "score": {
                    "disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "ImageLocality"}],
                    "enabled": [{"name": "NodeResourcesFit", "weight": 10}],
                },
                "filter": {"enabled": [{"name": "NodePorts"}]},
            },
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "RequestedToCapacityRatio",
                            "resources": [{"name": "nvidia.com/gpu", "weight": 3}],
                            "requestedToCapacityRatio": {
                                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
                            },
                        }
                    },
                },
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}},
            ],
        },
        {
            "schedulerName": "bare",
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [
                        {"name": "NodeAffinity", "weight": 4},
                        {"name": "DefaultBinder"},
                        {"name": "NodeResourcesFit"},
                        {"name": "PrioritySort"},
                    ],
                },
                "score": {"enabled": [{"name": "ImageLocality", "weight": 2}]},
            },
        },
    ],
}


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("document", [DEFAULTS, SEVERAL], ids=["defaults", "several"])
def test_its_own_files_come_to_the_same(
    document: dict[str, Any], gang: bool, reader: KubeSchedulerReader
) -> None:
    theirs = reader.read(document, *([GATE] if gang else []))
    assert not theirs.refusal
    assert not list(differing(theirs, ours(document), gang=gang))


def test_the_file_that_it_writes_itself_comes_to_the_same(reader: KubeSchedulerReader) -> None:
    theirs = reader.read(SEVERAL)
    assert not list(differing(theirs, ours(theirs.document), gang=False))


@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_random_files_come_to_the_same(seed: int, theirs_of: Callable[[int], Resolved]) -> None:
    document, theirs = draw_config(seed), theirs_of(seed)
    if theirs.refusal:
        with pytest.raises(ConfigError):
            ours(document)
        return
    mine = ours(document)
    wrong = list(differing(theirs, mine, gang=True))
    assert not wrong, f"seed {seed}: " + "\n".join(wrong)


def test_every_plugin_of_theirs_is_known_here() -> None:
    """There, or named with what is done instead."""
    assert set(IN_TREE) | set(ABSENT) >= THEIRS


def test_most_random_files_are_valid(theirs_of: Callable[[int], Resolved]) -> None:
    """Else the test above would compare refusals."""
    n_refused = sum(bool(theirs_of(seed).refusal) for seed in range(N_SEEDS))
    assert n_refused <= N_SEEDS // 4


def test_what_is_not_there_serves_the_points_that_it_serves_there(reader: KubeSchedulerReader) -> None:
    gates = ",".join(f"{one.gate}=true" for one in ABSENT.values() if one.gate)
    points = reader.read({}, f"{GATE},{gates}").profiles["default-scheduler"]
    for name in sorted(NOT_THERE):
        there = {point for point, listed in points.items() if name in [one for one, _ in listed]}
        assert there == set(ABSENT[name].points), name
