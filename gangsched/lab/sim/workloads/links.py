"""Workloads of pods that ask for bandwidth, on nodes whose agents report what their links have left.

Everything else is drawn as in lab.sim.workloads.arrivals. What is reported has nothing to do with what pods
ask for: a program that reads from storage may use more, a job that computes less. Not here: what a request
means (lab.sim.judges.places.promised_links).
"""

from __future__ import annotations

import json
from random import Random

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload, preempting_workload, random_workload
from gangsched.lab.sim.world.api import SimApi
from gangsched.model.objects import Pod
from gangsched.model.pod_group import MIN_MEMBERS_KEY
from gangsched.model.stated.bandwidth import (
    DIRECTION_KEY,
    EXPECTED_KEY,
    REMAINING_KEY,
    REQUIRED_KEY,
    SCOPE_KEY,
)

LINK_MBPS = 1000
_REPORTS_UNTIL_S = 44.0
# Often enough for none to be too old, and seldom enough for a run to come to rest in between.
_LATER_S = (88.0, 140.0, 192.0, 244.0, 296.0, 348.0, 400.0)


class Report(msgspec.Struct, frozen=True):
    """An agent writes what its node has left, out and in, of LINK_MBPS; None: text in no known form."""

    at_s: float
    node: str
    left: tuple[int, int] | None

    def happen(self, api: SimApi, timeline: Timeline) -> None:
        node = api.nodes.get(self.node)
        if node is None:
            return
        text = "{"
        if self.left is not None:
            egress, ingress = self.left
            seen = api.wall_time().strftime("%Y-%m-%dT%H:%M:%SZ")
            report = {
                "egressMBps": egress,
                "ingressMBps": ingress,
                "totalMBps": LINK_MBPS,
                "observedAt": seen,
            }
            text = json.dumps(report)
        own = {**(node.metadata.annotations or {}), REMAINING_KEY: text}
        api.put_node(replace(node, metadata=replace(node.metadata, annotations=own)))


def bandwidth_workload(seed: int) -> Workload:
    """Most pods ask for bandwidth; agents report every few seconds, and some fall silent."""
    rng = Random(f"{seed}-links")
    drawn = preempting_workload(seed, stubborn=False) if rng.random() < 0.5 else random_workload(seed)
    reports: list[Report] = []
    for node in drawn.nodes:
        name, at_s = node.metadata.name, rng.uniform(0.0, 3.0)
        falls_silent_s = rng.choice((_REPORTS_UNTIL_S, _REPORTS_UNTIL_S, rng.uniform(0.0, 15.0)))
        while at_s < falls_silent_s:
            reports.append(Report(at_s, name, None if rng.random() < 0.05 else _left(rng)))
            at_s += rng.uniform(3.0, 12.0)
        reports += [Report(later_s, name, (LINK_MBPS, LINK_MBPS)) for later_s in _LATER_S]
    arrivals = tuple(_asking(rng, arrival) for arrival in drawn.arrivals)
    return replace(drawn, arrivals=arrivals, intrusions=(*drawn.intrusions, *reports))


def _left(rng: Random) -> tuple[int, int]:
    busy = rng.choice((0, 0, 100, 300, 600))
    return LINK_MBPS - rng.randint(0, busy), LINK_MBPS - rng.randint(0, busy)


def _asking(rng: Random, arrival: Arrival) -> Arrival:
    if rng.random() < 0.25:
        return arrival
    required = rng.choice((50, 100, 150, 250, 400, 700))
    asked = {
        REQUIRED_KEY: f"{required}MB/s",
        DIRECTION_KEY: rng.choice(("both", "both", "egress", "ingress")),
    }
    if rng.random() < 0.3:
        asked[EXPECTED_KEY] = f"{required + rng.choice((0, 100, 300))}MB/s"
    own = arrival.pods[0].metadata.annotations or {}
    if own.get(MIN_MEMBERS_KEY) == str(len(arrival.pods)) and rng.random() < 0.3:
        asked[SCOPE_KEY] = "group"
    pods = (_annotated(pod, asked) for pod in arrival.pods)
    return replace(arrival, pods=tuple(pods))


def _annotated(pod: Pod, more: dict[str, str]) -> Pod:
    own = {**(pod.metadata.annotations or {}), **more}
    return replace(pod, metadata=replace(pod.metadata, annotations=own))
