"""NodeName: spec.nodeName names the only node."""

from __future__ import annotations

import numpy as np

from gangsched.core.framework.interface import Change, ClusterChange
from gangsched.plugins.nodes.node_name import NodeName
from tests.plugins.build import Cluster, node, pod


def test_a_pending_pod_names_no_node_and_goes_anywhere() -> None:
    cluster = Cluster(node("a"), node("b"))
    assert NodeName().filter(cluster.state, cluster.template(), cluster.view) is None
    assert NodeName().reasons(cluster.state, cluster.template(), cluster.view) == ()


def test_a_named_node_is_the_only_one() -> None:
    cluster = Cluster(node("a"), node("b"))
    template = cluster.template(pod(nodeName="b"))
    assert cluster.names(NodeName().filter(cluster.state, template, cluster.view)) == ["b"]
    ((reason, rows),) = NodeName().reasons(cluster.state, template, cluster.view)
    assert reason == "node(s) didn't match the requested node name"
    assert cluster.names(rows) == ["a"]


def test_a_node_that_does_not_exist_leaves_none_until_it_comes() -> None:
    cluster = Cluster(node("a"))
    template = cluster.template(pod(nodeName="b"))
    mask = NodeName().filter(cluster.state, template, cluster.view)
    assert mask is not None
    assert not np.any(mask)
    (other,) = cluster.put(node("c"))
    (named,) = cluster.put(node("b"))
    assert not NodeName().cures(other, template, cluster.view)
    assert NodeName().cures(named, template, cluster.view)
    assert NodeName().cures(ClusterChange(Change.NODE_ADDED), template, cluster.view)
