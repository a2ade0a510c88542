"""NodeDeclaredFeatures: what a pod needs its kubelet to do, and which nodes say that they do it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.model.objects import Node
from gangsched.plugins.nodes.node_declared_features import NodeDeclaredFeatures, required_features
from tests.plugins.build import Cluster, node, pod

RESTARTS = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}
MOUNTS = {"volumeMounts": [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]}


def declaring(name: str, *features: str) -> Node:
    made = node(name)
    return replace(made, status=replace(made.status, declared_features=list(features) or None))


def with_container(**fields: Any) -> Any:
    return pod(containers=[{"name": "main", **fields}])


@pytest.mark.parametrize(
    ("one", "needed"),
    [
        (pod(), set()),
        (with_container(restartPolicyRules=[{"action": "Restart"}]), set()),
        (with_container(volumeMounts=[{"name": "v", "mountPath": "/v"}]), set()),
        (with_container(**RESTARTS), {"RestartAllContainersOnContainerExits"}),
        (pod(initContainers=[{"name": "i", **RESTARTS}]), {"RestartAllContainersOnContainerExits"}),
        (with_container(**MOUNTS), {"VolumeBindMountOptions"}),
        (pod(hostNetwork=True, hostUsers=False), {"UserNamespacesHostNetworkSupport"}),
        (pod(hostNetwork=True, hostUsers=True), set()),
        (pod(hostNetwork=True), set()),
        (pod(hostUsers=False), set()),
    ],
)
def test_what_a_pod_needs_follows_from_its_spec(one: Any, needed: set[str]) -> None:
    assert required_features(one.spec) == needed


def test_only_nodes_that_declare_it_take_the_pod() -> None:
    feature = "RestartAllContainersOnContainerExits"
    c = Cluster(declaring("old"), declaring("other", "ExtendWebSocketsToKubelet"), declaring("new", feature))
    plugin, template = NodeDeclaredFeatures(), c.template(with_container(**RESTARTS))
    assert c.names(plugin.filter(c.state, template, c.view)) == ["new"]
    ((reason, rows),) = plugin.reasons(c.state, template, c.view)
    assert (reason, c.names(rows)) == ("node(s) didn't match Pod's required features", ["old", "other"])
    assert plugin.filter(c.state, c.template(), c.view) is None


def test_where_no_kubelet_declares_anything_nothing_is_known() -> None:
    c = Cluster(declaring("a"), declaring("b"))
    assert NodeDeclaredFeatures().filter(c.state, c.template(with_container(**RESTARTS)), c.view) is None


def test_an_updated_kubelet_cures() -> None:
    feature = "RestartAllContainersOnContainerExits"
    c = Cluster(declaring("a", "Other"), declaring("b", "Other"))
    plugin, template = NodeDeclaredFeatures(), c.template(with_container(**RESTARTS))
    before = c.view.static_revision
    (other,) = c.put(declaring("b", "Another"))
    assert not plugin.cures(other, template, c.view)
    (updated,) = c.put(declaring("b", "Another", feature))
    assert updated.what & plugin.cured_by
    assert plugin.cures(updated, template, c.view)
    assert c.view.static_revision > before  # masks are kept by it


def test_random_names_of_mounts_do_not_tell_pods_apart() -> None:
    c = Cluster(node("a"))
    tokens = [with_container(volumeMounts=[{"name": f"token-{k}", "mountPath": "/t"}]) for k in range(2)]
    assert c.template(tokens[0]) is c.template(tokens[1])
