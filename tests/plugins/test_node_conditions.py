"""NodeConditions: which nodes are unwell for which pods, and what lets a pod in again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import PluginInfo, default_config, parse_config
from gangsched.core.framework.interface import SKIP, SUCCESS
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, Node
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.plugins.nodes.node_conditions import NodeConditions, is_best_effort
from tests.plugins.build import Cluster, node, pod

BUSY = {"cpu": "1"}


def sick(name: str, **conditions: str) -> Node:
    made = node(name)
    listed = [Condition(type=type_, status=status) for type_, status in conditions.items()]
    return replace(made, status=replace(made.status, conditions=listed))


def cluster(*nodes: Node) -> tuple[Cluster, NodeConditions]:
    plugin, made = NodeConditions(), Cluster()
    made.cache.keep_usage_trackers([plugin.usage_tracker])
    for one in nodes:
        made.put(one)
    return made, plugin


@pytest.mark.parametrize(
    ("conditions", "best_effort", "others", "reason"),
    [
        ({"Ready": "True", "MemoryPressure": "False"}, True, True, ""),
        ({}, True, True, ""),
        ({"Ready": "False"}, False, False, "node(s) were not ready"),
        ({"Ready": "Unknown"}, False, False, "node(s) were not ready"),
        ({"NetworkUnavailable": "True"}, False, False, "node(s) had unavailable network"),
        ({"MemoryPressure": "True"}, False, True, "node(s) had memory pressure"),
        ({"DiskPressure": "True"}, False, False, "node(s) had disk pressure"),
        ({"PIDPressure": "Unknown"}, False, False, "node(s) had pid pressure"),
        ({"SomethingElse": "True"}, True, True, ""),
    ],
)
def test_which_pods_a_condition_keeps_off(
    conditions: dict[str, str], best_effort: bool, others: bool, reason: str
) -> None:
    made, plugin = cluster(sick("a", **conditions), sick("well", Ready="True"))
    for template, passes in ((made.template(), best_effort), (made.template(pod(requests=BUSY)), others)):
        mask = plugin.filter(made.state, template, made.view)
        assert made.names(mask) == (["a", "well"] if passes else ["well"])
        said = [why for why, rows in plugin.reasons(made.state, template, made.view) if rows.any()]
        assert said == ([] if passes else [reason])


def test_nothing_is_asked_where_all_are_well() -> None:
    made, plugin = cluster(sick("a", Ready="True"))
    assert plugin.pre_filter(made.state, made.template(), made.view) is SKIP
    made.put(sick("a", Ready="False"))
    assert plugin.pre_filter(made.state, made.template(), made.view) is SUCCESS
    made.cache.remove_node("a")
    assert plugin.pre_filter(made.state, made.template(), made.view) is SKIP


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, True),
        ({"requests": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"cpu": "0"}}, True),
        ({"requests": {"memory": "1"}}, False),
        ({"limits": {"cpu": "1m"}}, False),
    ],
)
def test_best_effort(spec: dict[str, Any], answer: bool) -> None:
    containers = [{"name": "main", "resources": spec}]
    assert is_best_effort(pod(containers=containers).spec) is answer
    assert is_best_effort(pod(initContainers=containers).spec) is answer
    assert is_best_effort(pod(resources=spec).spec) is answer


def test_it_is_off_by_default_and_wakes_pods_that_wait_for_a_condition() -> None:
    assert "NodeConditions" not in default_config(IN_TREE).profiles[0].plugins["filter"]
    assert isinstance(IN_TREE["NodeConditions"], PluginInfo)
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: gangsched, plugins: {multiPoint: {enabled: [{name: NodeConditions}]}}}]
"""
    config = parse_config(text, source="", plugins=IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings, node_capacity=4)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    healthy = make_node("n0")
    unwell = replace(
        healthy, status=replace(healthy.status, conditions=[Condition(type="DiskPressure", status="True")])
    )
    effects = scheduler.handle([ev.NodeAdded(unwell), ev.PodAdded(make_pod("a"))], 1.0)
    effects += scheduler.schedule_next(1.0) or []
    [said] = [one.message for one in effects if isinstance(one, ef.WritePodCondition)]
    assert said.startswith("0/1 nodes are available: 1 node(s) had disk pressure.")
    scheduler.handle([ev.NodeUpdated(healthy)], 3.0)
    effects = scheduler.schedule_next(3.0) or []
    assert [one.node for one in effects if isinstance(one, ef.BindPod)] == ["n0"]
