"""The configuration changes under a running scheduler on a real kube-apiserver."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.cluster import Cluster
from tests.real.picture import node_of
from tests.real.process import Scheduler
from tests.real.test_plugins import own_plugin, schedule

pytestmark = pytest.mark.real

APPROVAL = """
class Approval:
    name = "Approval"

    def permit(self, group, siblings):
        return Status.wait("nobody has approved it", timeout_s=600)
"""


def rewrite(path: Path, profiles: list[dict[str, Any]], **settings: Any) -> None:
    """The file as an editor replaces it."""
    kube, ours = yaml.safe_load_all(path.read_text())
    text = yaml.safe_dump_all([{**kube, "profiles": profiles}, {**ours, **settings}])
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def says(cluster: Cluster, scheduler: Scheduler, words: str, *, times: int = 1) -> None:
    cluster.eventually(lambda: scheduler.said.count(words) >= times, f"the log says {words!r}")


def test_a_changed_file_takes_over_or_is_refused_with_its_place(cluster: Cluster) -> None:
    cluster.nodes(3)
    cluster.ours.add("other")
    scheduler = schedule(cluster, own_plugin(cluster, APPROVAL), "Approval")
    path = cluster.directory / "plugged-0.yaml"
    cluster.gang("a", pods=2)
    cluster.held("a", says="waits: nobody has approved it")
    cluster.pod("early", gpus=4, scheduler="other")
    plugins = {"multiPoint": {"enabled": [{"name": "Approval"}]}}

    rewrite(path, [{"schedulerName": "gangsched", "plugins": plugins}], settleSecond=3)
    says(cluster, scheduler, "the configuration is wrong; the old one stays in effect")
    assert "settleSecond: unknown field; did you mean settleSeconds?" in scheduler.said
    cluster.unchanged("a", for_s=0.5)

    kube, ours = yaml.safe_load_all(path.read_text())
    del ours["settleSecond"]
    path.write_text(yaml.safe_dump_all([kube, ours]))
    both: list[dict[str, Any]] = [
        {"schedulerName": "gangsched", "plugins": plugins},
        {"schedulerName": "other"},
    ]
    rewrite(path, both)
    says(cluster, scheduler, "another configuration is in effect")
    cluster.whole("early")
    assert cluster.n_bound("a") == 0
    cluster.unchanged("a", for_s=0.5)

    rewrite(path, [{"schedulerName": "gangsched"}])
    cluster.whole("a")
    cluster.pod("late", gpus=4, scheduler="other")
    says(cluster, scheduler, "another configuration is in effect", times=2)
    cluster.picture.until(lambda: cluster.members("late"), "the pod is there")
    cluster.unchanged("late", for_s=0.5)
    assert not node_of(cluster.members("late")[0])

    scheduler.process.send_signal(signal.SIGHUP)
    says(cluster, scheduler, "configuration read again, nothing changes now")
    rewrite(path, both[1:])
    cluster.whole("late")


GATE = """
class Gate:
    name = "Gate"
    watches = ("configmaps",)

    def pre_filter(self, state, template, view):
        is_open = ("default", "open") in view.objects("configmaps")
        return SUCCESS if is_open else Status.unschedulable("the gate is closed")
"""
MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def test_a_plugin_that_comes_is_told_of_the_kinds_that_it_reads(cluster: Cluster) -> None:
    """Without the right to read them the old configuration stays; with it they are listed and followed."""
    cluster.nodes(1)
    scheduler = schedule(cluster, own_plugin(cluster, GATE))
    path = cluster.directory / "plugged-0.yaml"
    cluster.pod("early", gpus=1)
    cluster.whole("early")
    plugins = {"multiPoint": {"enabled": [{"name": "Gate"}]}}
    rewrite(path, [{"schedulerName": "gangsched", "plugins": plugins}])
    says(cluster, scheduler, "its plugins read configmaps, which the scheduler may not")
    cluster.pod("still", gpus=1)
    cluster.whole("still")

    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
    cluster.plane.request("POST", ROLES, {"metadata": {"name": "maps"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}
    body = {"metadata": {"name": "maps"}, "roleRef": reference, "subjects": [group]}
    cluster.plane.request("POST", BINDINGS, body)
    try:
        cluster.eventually(lambda: _taken(scheduler), "the configuration takes over")
        cluster.pod("late", gpus=1)
        cluster.held("late", says="the gate is closed", members=1)
        cluster.plane.request("POST", MAPS, {"metadata": {"name": "open"}})
        cluster.whole("late")
    finally:
        cluster.plane.kubectl("delete", "clusterrole/maps", "clusterrolebinding/maps")
        cluster.plane.kubectl("delete", "configmap", "open", "--ignore-not-found")


def _taken(scheduler: Scheduler) -> bool:
    """The right takes a moment to be known; who asks again is told then."""
    scheduler.process.send_signal(signal.SIGHUP)
    return "another configuration is in effect" in scheduler.said
