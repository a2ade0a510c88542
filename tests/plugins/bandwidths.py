"""Clusters whose nodes report bandwidth, for tests of RemainingBandwidth: amounts in MB/s, times in seconds.

`rbw(("n1", 1500, 600))` is a node of 1500 MB/s with 600 used both ways.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from gangsched.config import SchedulerConfig, Settings, default_config, parse_config
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Node, Pod
from gangsched.model.stated.bandwidth import REMAINING_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def report(total: float, egress_used: float, ingress_used: float | None = None, at_s: float = 0.0) -> str:
    """A node's annotation."""
    ingress = egress_used if ingress_used is None else ingress_used
    when = (EPOCH + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps(
        {
            "egressMBps": total - egress_used,
            "ingressMBps": total - ingress,
            "totalMBps": total,
            "observedAt": when,
        }
    )


def node(name: str, annotation: str | None, **more: Any) -> Node:
    annotations = {} if annotation is None else {REMAINING_KEY: annotation}
    return make_node(name, gpus=0, annotations=annotations, **more)


def asking(name: str, required: str = "", expected: str = "", **more: Any) -> Pod:
    """A lone pod; `more` may have annotations, group and min_members."""
    annotations = dict(more.pop("annotations", {}))
    if required:
        annotations["gangsched.io/required-rbw"] = required
    if expected:
        annotations["gangsched.io/expected-rbw"] = expected
    return make_pod(name, gpus=0, annotations=annotations, cpu=more.pop("cpu", "100m"), **more)


def config(
    args: Mapping[str, Any], *, only: bool = True, name: str = "RemainingBandwidth"
) -> SchedulerConfig:
    """`only`: no other plugin scores, so that what it prefers can be seen."""
    if not args and not only:
        return default_config(IN_TREE)
    scores = f"{{disabled: [{{name: '*'}}], enabled: [{{name: {name}}}]}}" if only else "{}"
    plugins = f"{{multiPoint: {{enabled: [{{name: {name}}}]}}, score: {scores}}}"
    text = (
        f"{_HEAD}profiles:\n- schedulerName: gangsched\n  plugins: {plugins}\n"
        f"  pluginConfig: [{{name: {name}, args: {json.dumps(dict(args))}}}]\n"
    )
    return parse_config(text, source="test", plugins=IN_TREE)


def cluster(*nodes: Node, only: bool = True, name: str = "RemainingBandwidth", **args: Any) -> Cluster:
    """A scheduler with the plugin's args in the file's spelling, and these nodes."""
    read = config(args, only=only, name=name)

    def make(settings: Settings) -> Scheduler:
        return Scheduler(build_profiles(read), settings, node_capacity=4)

    made = Cluster(make=make)
    for one in nodes:
        made.node(one)
    return made


def rbw(*nodes: tuple[str, float, float], only: bool = True, **args: Any) -> Cluster:
    """Nodes of (name, total, used)."""
    return cluster(*(node(name, report(total, used)) for name, total, used in nodes), only=only, **args)


def beat(where: Cluster, name: str, total: float, used: float, ingress_used: float | None = None) -> None:
    """The node's next heartbeat, now."""
    known = where.nodes[name]
    annotations = {
        **(known.metadata.annotations or {}),
        REMAINING_KEY: report(total, used, ingress_used, where.now_s),
    }
    where.node(replace(known, metadata=replace(known.metadata, annotations=annotations)))


def on(where: Cluster, name: str) -> str:
    """Where the pod is."""
    return where.pod(name).spec.node_name
