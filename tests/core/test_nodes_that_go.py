"""Pods on a node that is deleted count nowhere any more: whoever they kept out is woken at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.kube.watch.decode import objects
from gangsched.lab.sim.objects import RACK, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    Volume,
)
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.support.scenario import Cluster, cluster, gang, with_annotations

HOST = "kubernetes.io/hostname"
DB = LabelSelector({"app": "db"})


def spec_of(pod: Pod, **changes: object) -> Pod:
    return replace(pod, spec=replace(pod.spec, **changes))


def one_claim(pod: Pod) -> Pod:
    """Uses the claim `c`, of access mode ReadWriteOncePod."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    return spec_of(pod, volumes=[msgspec.convert(volume, Volume)])


def keeps_apart(pod: Pod) -> Pod:
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[PodAffinityTerm(RACK, DB)])
    return spec_of(pod, affinity=Affinity(pod_anti_affinity=rule))


def keeps_near(pod: Pod) -> Pod:
    """The node of others of its kind; any, as the first of its kind."""
    term = PodAffinityTerm(HOST, DB)
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    return spec_of(pod, affinity=Affinity(pod_affinity=rule))


def with_a_claim(c: Cluster) -> Cluster:
    for kind, namespace, name, spec in (
        ("persistentvolumes", "", "pv", {"capacity": {"storage": "1Gi"}}),
        ("persistentvolumeclaims", "d", "c", {"volumeName": "pv"}),
    ):
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
        body = {
            "metadata": {**meta, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {**spec, "accessModes": ["ReadWriteOncePod"]},
            "status": {"phase": "Bound"},
        }
        c.tell(ev.ObjectPut(kind, objects(kind).decode_object(msgspec.json.encode(body))))
    return c


@pytest.mark.parametrize("rule", [one_claim, keeps_apart, keeps_near], ids=lambda one: one.__name__)
def test_what_a_pod_on_a_deleted_node_kept_out_starts_at_once(rule: Callable[[Pod], Pod]) -> None:
    c = with_a_claim(cluster(nodes=0))
    for name in ("n0", "n1"):
        node = make_node(name, rack="r")
        labels = {**(node.metadata.labels or {}), HOST: name}
        c.node(replace(node, metadata=replace(node.metadata, labels=labels)))
    there = one_claim(make_pod("there", gpus=8, labels={"app": "db"}))
    c.submit(spec_of(there, node_name="n0")).run()
    c.submit(rule(make_pod("p", gpus=8, labels={"app": "db"}))).run()
    assert c.said("p")
    c.wait(30.0)
    assert not c.pod("p").spec.node_name
    c.drop_node("n0").run().wait(10.0)
    assert c.pod("p").spec.node_name == "n1", c.said("p")


def test_members_that_ran_on_a_deleted_node_bind_the_others_to_its_rack_no_longer() -> None:
    c = cluster(nodes=0).node(make_node("n0", rack="r0")).node(make_node("n1", rack="r1"))
    own = {TOPOLOGY_KEY: f"required: {RACK}"}
    c.submit(with_annotations(gang("a", pods=2, gpus=4), own)).run()
    there = c.pod("a-0").spec.node_name
    [away] = c.nodes.keys() - {there}
    c.delete("a-1").submit(spec_of(make_pod("other", gpus=4), node_name=there)).run()
    later = make_pod("a-2", group="a", min_members=2, gpus=4, annotations=own)
    c.submit(later).run().wait(30.0)
    assert not c.pod("a-2").spec.node_name, "its gang is in the other rack"
    c.drop_node(there).run().wait(10.0)
    assert c.pod("a-2").spec.node_name == away, c.said("a-2")
