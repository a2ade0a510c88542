"""kube-scheduler's plugins that we do not have: the points they serve, and what happens instead.

Lives here: what it takes to read a file that names them as kube-scheduler does. Not here: plugins (each has
its own file, which takes precedence over an entry here). Called by config.profiles. Points, weights and
arguments: kube-scheduler 1.37, as printed by `kube-scheduler -v=2` at start.
"""

from __future__ import annotations

import msgspec

from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s

_FILTERS = ("preFilter", "filter")
_SCORES = ("preScore", "score")


class DynamicResourcesArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Read and validated; claims are not allocated here."""

    filter_timeout: str = "10s"
    binding_timeout: str = "10m"

    def __post_init__(self) -> None:
        try:
            filter_s = duration_s(self.filter_timeout, "filterTimeout")
            binding_s = duration_s(self.binding_timeout, "bindingTimeout")
        except ConfigError as error:
            raise ValueError(f"{error.path}: {error.message}") from None
        if filter_s < 0:
            raise ValueError(f"filterTimeout: {self.filter_timeout} is below zero")
        if binding_s < 1:
            raise ValueError(f"bindingTimeout: {self.binding_timeout} is below 1s")


class Absent(msgspec.Struct, frozen=True):
    """instead: what happens to pods that need it. gate: the feature gate that it depends on, if any."""

    name: str
    points: tuple[str, ...]
    instead: str
    args_type: type[msgspec.Struct] | None = None
    gate: str = ""


ABSENT = {
    one.name: one
    for one in (
        Absent(
            "DynamicResources",
            ("preEnqueue", *_FILTERS, "postFilter", "score", "reserve", "preBind", "podGroupPostFilter"),
            "pods with spec.resourceClaims are refused",
            DynamicResourcesArgs,
        ),
        Absent(
            "DeferredPodScheduling",
            (*_FILTERS, "permit"),
            "nothing is deferred",
            gate="InPlacePodVerticalScalingSchedulerPreemption",
        ),
        Absent(
            "TopologyPlacementGenerator",
            ("placementGenerate",),
            "gangs are packed into few nodes and few racks",
            gate="TopologyAwareWorkloadScheduling",
        ),
        Absent(
            "PodGroupPodsCount",
            ("placementScore",),
            "gangs are placed whole or not at all",
            gate="TopologyAwareWorkloadScheduling",
        ),
    )
}
