"""kube-scheduler's plugins that we do not have: the points they serve, and what happens instead.

Lives here: what it takes to read a file that names them as kube-scheduler does. Not here: plugins (each has
its own file, which takes precedence over an entry here). Called by config.profiles. Points, weights and
arguments: kube-scheduler 1.37, as printed by `kube-scheduler -v=2` at start.
"""

from __future__ import annotations

import msgspec

_FILTERS = ("preFilter", "filter")


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
