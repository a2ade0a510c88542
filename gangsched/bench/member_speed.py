"""What one member of a group costs to decide, all plugins on: the first, and each next that is equal to it.

For groups of 100 on 5,000 nodes, every second rack with a pod that the constraints speak of. Three ways: pods
without constraints; pods that must be one on each node and even over the racks; and a profile that has a
Filter and a Score in Python for single nodes too. Each group is a template that was never seen, so nothing
that is kept between decisions helps its first member. A process of its own, run by core_speed:
`python -m gangsched.bench.member_speed NODES SIZE ROUNDS`, which prints its figures as JSON.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gangsched.bench.workload import NAMESPACE, node_document, node_name
from gangsched.config import default_config
from gangsched.core.framework import SUCCESS, CycleState, Status
from gangsched.core.node_info import NodeInfo
from gangsched.core.runtime import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles

PLAIN = "pods without constraints"
CONSTRAINED = "one a node, even over racks"
BY_NODE = "a plugin that looks at single nodes"
N_NODES = 5000
GROUP_SIZE = 100
_LABELS = {"app": "w"}


class MemberCost(msgspec.Struct):
    """One value a group. first_ms: deciding one member alone; next_us: each further one of a full group."""

    first_ms: list[float]
    next_us: list[float]


class Cordial:
    """Ten lines of somebody's Python: keeps away from nodes with a label, prefers those with few pods."""

    name = "Cordial"

    def sign(self, pod: Pod) -> tuple[()]:
        """It reads nothing of a pod but its spec."""
        return ()

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        if node_info.labels.get("company") != "unwanted":
            return SUCCESS
        return Status.unschedulable("node(s) wanted no company")

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 100.0 / (1 + len(node_info.pods))


def measure(n_nodes: int, size: int, n_rounds: int) -> dict[str, MemberCost]:
    """All three ways, in this process."""
    costs = {}
    for name, spec, plugins in (
        (PLAIN, {}, ()),
        (CONSTRAINED, _constraints(), ()),
        (BY_NODE, {}, (Cordial(),)),
    ):
        costs[name] = _measure(_loaded(n_nodes, plugins), spec, size, n_rounds)
    return costs


def _measure(scheduler: Scheduler, spec: Mapping[str, Any], size: int, n_rounds: int) -> MemberCost:
    gc.set_threshold(200_000)  # as the scheduler's own process has it
    cost = MemberCost([], [])
    for number in range(n_rounds + 1):
        alone_s = _decide(scheduler, spec, 1, cpu_milli=1000 + 2 * number)
        group_s = _decide(scheduler, spec, size, cpu_milli=1001 + 2 * number)
        if number:  # the first one warms up
            cost.first_ms.append(alone_s * 1e3)
            cost.next_us.append((group_s - alone_s) / (size - 1) * 1e6)
    return cost


def _decide(scheduler: Scheduler, spec: Mapping[str, Any], size: int, *, cpu_milli: int) -> float:
    """Seconds from the group's turn to its binds; then its pods are gone again."""
    name, now_s = f"g{cpu_milli}", cpu_milli * 10.0
    pods = [_pod(f"{name}-{i}", name, size, spec, cpu_milli) for i in range(size)]
    scheduler.handle([ev.PodAdded(pod) for pod in pods], now_s)
    gc.collect()
    at_s = time.perf_counter()
    effects = scheduler.schedule_next(now_s + 1) or []
    lasted_s = time.perf_counter() - at_s
    binds = [effect for effect in effects if isinstance(effect, ef.BindPod)]
    if len(binds) != size:
        raise GangschedError(f"{len(binds)} of {size} pods were placed")
    scheduler.handle([ev.BindSucceeded(bind.uid, bind.attempt) for bind in binds], now_s + 2)
    scheduler.handle([ev.PodDeleted(pod) for pod in pods], now_s + 3)
    return lasted_s


def _loaded(n_nodes: int, plugins: Sequence[Any]) -> Scheduler:
    config = default_config(IN_TREE)
    profiles = {name: _with(profile, plugins) for name, profile in build_profiles(config).items()}
    scheduler = Scheduler(profiles, config.settings)
    scheduler.handle([ev.NodeAdded(_node(i)) for i in range(n_nodes)], 0.0)
    others = [_pod(f"other-{i}", "", 0, {"nodeName": node_name(i)}, 500) for i in range(0, n_nodes, 32)]
    scheduler.handle([ev.PodAdded(pod) for pod in others], 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    return scheduler


def _with(profile: Profile, plugins: Sequence[Any]) -> Profile:
    points = profile.points
    filters, scores = (*points.filters, *plugins), (*points.scores, *((one, 1.0) for one in plugins))
    return Profile(profile.scheduler_name, msgspec.structs.replace(points, filters=filters, scores=scores))


def _constraints() -> dict[str, Any]:
    selector = {"matchLabels": _LABELS}
    apart = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    even = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return {"affinity": {"podAntiAffinity": required}, "topologySpreadConstraints": [even]}


def _node(i: int) -> Node:
    document = node_document(i, 8)
    document["metadata"] |= {"uid": f"node-uid-{i}", "resourceVersion": str(i + 1)}
    document["metadata"]["labels"] |= {"kubernetes.io/hostname": node_name(i)}
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def _pod(name: str, group: str, size: int, spec: Mapping[str, Any], cpu_milli: int) -> Pod:
    labels = dict(_LABELS) | ({GROUP_LABEL: group} if group else {})
    requests = {"cpu": f"{cpu_milli}m", "memory": "1Gi"}
    document = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": {MIN_MEMBERS_KEY: str(size)} if group else {},
        },
        "spec": {
            "schedulerName": "gangsched",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            **spec,
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def main(arguments: Sequence[str]) -> int:
    """The process."""
    n_nodes, size, n_rounds = (int(value) for value in arguments)
    sys.stdout.buffer.write(msgspec.json.encode(measure(n_nodes, size, n_rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
