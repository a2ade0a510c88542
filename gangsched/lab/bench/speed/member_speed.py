"""What one member of a group costs to decide, all plugins on: the first, and each next equal one.

For groups of 100 on 5,000 nodes; every second rack has a pod that the constraints select. Four ways: pods
without constraints; pods that must be one on each node and even over the racks; and two profiles with a
Python plugin that filters and scores single nodes, sampled as out-of-tree plugins are. One plugin gives its
best nodes the full score; the other finds no node perfect, so that it is called for each. Beside them the
floor: the cost of the plugin's own code, called once for each node to filter and once to score. Each group
has a new template, so nothing that is kept between decisions helps its first member. A process of its own,
run by core_speed: `python -m gangsched.lab.bench.speed.member_speed NODES SIZE ROUNDS`, which prints JSON.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gangsched.config import default_config
from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.framework.filters.per_node import NodeInfos
from gangsched.core.framework.interface import SUCCESS, CycleState, Status
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.extension.budget import TurnBudget, budgeted
from gangsched.extension.signatures import check_hooks
from gangsched.lab.bench.rounds.workload import NAMESPACE, node, node_name
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.process.garbage_collection import collect_rarely

PLAIN = "pods without constraints"
CONSTRAINED = "one a node, even over racks"
BY_NODE = "a plugin that looks at single nodes"
BY_EVERY_NODE = "the same, no node being perfect to it"
N_NODES = 5000
GROUP_SIZE = 100
_LABELS = {"app": "w"}
_BUDGET_S = 1.0


class MemberSpeed(msgspec.Struct):
    """All of it; floor_ms: one value a round."""

    costs: dict[str, MemberCost]
    floor_ms: list[float]


class MemberCost(msgspec.Struct):
    """first_ms: deciding one member alone, two values a group; next_us: each further one of a full group."""

    first_ms: list[float]
    next_us: list[float]


class Cordial:
    """A plugin of ten lines: avoids nodes with a label, prefers those with few pods."""

    name = "Cordial"

    def sign(self, pod: Pod) -> tuple[()]:
        """Signs nothing: the plugin reads only the pod's spec."""
        return ()

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        if node_info.labels.get("company") != "unwanted":
            return SUCCESS
        return Status.unschedulable("node(s) wanted no company")

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 100.0 / (1 + len(node_info.pods))


class Demanding(Cordial):
    """The same with no perfect node: any may still be better than those that were scored."""

    name = "Demanding"

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 50.0 / (1 + len(node_info.pods))


def measure(n_nodes: int, size: int, n_rounds: int) -> dict[str, MemberCost]:
    """Measures all ways, in this process."""
    costs = {}
    for name, spec, kind in (
        (PLAIN, {}, None),
        (CONSTRAINED, _constraints(), None),
        (BY_NODE, {}, Cordial),
        (BY_EVERY_NODE, {}, Demanding),
    ):
        budget = TurnBudget(_BUDGET_S)
        plugins = [budgeted(kind, kind.name, check_hooks(kind, kind.name), budget)()] if kind else []
        costs[name] = _measure(_loaded(n_nodes, plugins), budget, spec, size, n_rounds)
    return costs


def floor_ms(n_nodes: int, n_rounds: int) -> list[float]:
    """Measures the plugin's own code, called once for each node to filter and once to score, in
    milliseconds."""
    view, plugin, pod = _loaded(n_nodes, ()).shared.cache.view, Cordial(), _pod("p", "", 0, {}, 1000)
    infos, state = NodeInfos().at(view, np.arange(view.n_rows)), CycleState()
    costs = []
    for _ in range(n_rounds + 1):
        gc.collect()
        at_s = time.perf_counter()
        for ask in (plugin.filter_node, plugin.score_node):
            [ask(state, pod, info) for info in infos]
        costs.append((time.perf_counter() - at_s) * 1e3)
    return costs[1:]


def _measure(
    scheduler: Scheduler, budget: TurnBudget, spec: Mapping[str, Any], size: int, n_rounds: int
) -> MemberCost:
    collect_rarely()  # as the scheduler's own process does
    cost = MemberCost([], [])
    for number in range(n_rounds + 1):
        # One alone before the group and one after, since either may meet warmer caches.
        before_s, group_s, after_s = (
            _decide(scheduler, budget, spec, n, cpu_milli=1000 + 3 * number + i)
            for i, n in enumerate((1, size, 1))
        )
        if number:  # the first one warms up
            cost.first_ms += [before_s * 1e3, after_s * 1e3]
            cost.next_us.append((group_s - (before_s + after_s) / 2) / (size - 1) * 1e6)
    return cost


def _decide(
    scheduler: Scheduler, budget: TurnBudget, spec: Mapping[str, Any], size: int, *, cpu_milli: int
) -> float:
    """Returns seconds from the group's turn to its binds; then deletes its pods."""
    name, now_s = f"g{cpu_milli}", cpu_milli * 10.0
    pods = [_pod(f"{name}-{i}", name, size, spec, cpu_milli) for i in range(size)]
    scheduler.handle([ev.PodAdded(pod) for pod in pods], now_s)
    gc.collect()
    at_s = time.perf_counter()
    effects = scheduler.schedule_next(now_s + 1) or []
    budget.turn_ended()
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
    scheduler.handle([ev.NodeAdded(node(i, 8)) for i in range(n_nodes)], 0.0)
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
    done = MemberSpeed(measure(n_nodes, size, n_rounds), floor_ms(n_nodes, n_rounds))
    sys.stdout.buffer.write(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
