"""NodeUnschedulable: cordons, and who may pass them."""

from __future__ import annotations

import pytest

from gangsched.plugins.nodes.node_unschedulable import NodeUnschedulable
from tests.plugins.build import Cluster, node, pod


def test_a_cordoned_node_takes_no_pods() -> None:
    cluster = Cluster(node("open"), node("cordoned", unschedulable=True))
    plugin, template = NodeUnschedulable(), cluster.template()
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["open"]
    ((reason, rows),) = plugin.reasons(cluster.state, template, cluster.view)
    assert reason == "node(s) were unschedulable"
    assert cluster.names(rows) == ["cordoned"]


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute", "operator": "Exists"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_the_toleration_of_a_cordon_passes_it(toleration: dict[str, str], passes: bool) -> None:
    cluster = Cluster(node("cordoned", unschedulable=True))
    template = cluster.template(pod(tolerations=[toleration]))
    mask = NodeUnschedulable().filter(cluster.state, template, cluster.view)
    assert cluster.names(mask) == (["cordoned"] if passes else [])


def test_only_an_uncordoned_node_cures() -> None:
    cluster = Cluster(node("a", unschedulable=True))
    plugin, template = NodeUnschedulable(), cluster.template()
    (still_cordoned,) = cluster.put(node("b", unschedulable=True))
    assert not plugin.cures(still_cordoned, template, cluster.view)
    (uncordoned,) = cluster.put(node("a"))
    assert uncordoned.what & plugin.cured_by
    assert plugin.cures(uncordoned, template, cluster.view)
