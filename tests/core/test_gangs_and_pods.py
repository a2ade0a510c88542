"""Gangs whose members say things of each other and of other pods: held among the gang's own members too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings, parse_config
from gangsched.core.framework.interface import Status
from gangsched.core.scheduler import Scheduler
from gangsched.kube.watch.decode import objects
from gangsched.lab.sim.making import scheduler_of
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Affinity, Pod, PodResourceClaim, TopologySpreadConstraint, Volume
from gangsched.model.stated.topology import TOPOLOGY_KEY
from gangsched.plugins import IN_TREE
from tests.support.scenario import Cluster, gang, with_annotations

HOST, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def without(plugin: str) -> Callable[[Settings], Scheduler]:
    """Makes schedulers whose profile does not have the plugin."""
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: gangsched,"
        f" plugins: {{multiPoint: {{disabled: [{{name: {plugin}}}]}}}}}}]"
    )
    config = parse_config(text, source="x", plugins=IN_TREE)
    return lambda settings: scheduler_of(config, settings)


def racks(n_nodes: int, n_racks: int, *, gpus: int = 8, **options: Any) -> Cluster:
    c = Cluster(**options)
    for i in range(n_nodes):
        one = make_node(f"n{i}", gpus=gpus)
        labels = {HOST: f"n{i}", RACK: f"r{i % n_racks}"}
        c.node(replace(one, metadata=replace(one.metadata, labels=labels)))
    return c


def saying(pods: list[Pod], *, app: str, **spec: Any) -> list[Pod]:
    """The pods with a label `app`, and more in their spec."""
    made = []
    for pod in pods:
        labels = {**(pod.metadata.labels or {}), "app": app}
        meta = replace(pod.metadata, labels=labels)
        made.append(replace(pod, metadata=meta, spec=replace(pod.spec, **spec)))
    return made


def terms(kind: str, app: str, key: str) -> Affinity:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return msgspec.convert({kind: {REQUIRED: [term]}}, Affinity)


def nodes_of(c: Cluster, group: str) -> list[str]:
    return sorted(info.node_name for info in c.group(group).members.values())


def test_members_that_want_a_node_each_get_one_each() -> None:
    c = racks(4, 2)
    alone = terms("podAntiAffinity", "a", HOST)
    c.submit(saying(gang("a", pods=4, gpus=1), app="a", affinity=alone)).run()
    assert nodes_of(c, "a") == ["n0", "n1", "n2", "n3"]


def test_with_too_few_nodes_for_one_each_no_member_is_placed_and_a_further_node_cures_it() -> None:
    c = racks(3, 3)
    alone = terms("podAntiAffinity", "a", HOST)
    c.submit(saying(gang("a", pods=4, gpus=1), app="a", affinity=alone)).run()
    assert c.state("a") == "unschedulable"
    assert not any(nodes_of(c, "a"))
    assert "3 of 4 fit" in c.group("a").message
    assert "3 node(s) didn't match pod anti-affinity rules" in c.group("a").message
    c.wait(20.0)
    assert c.state("a") == "unschedulable"
    one = make_node("n3", gpus=8)
    c.node(replace(one, metadata=replace(one.metadata, labels={HOST: "n3"}))).run()
    assert nodes_of(c, "a") == ["n0", "n1", "n2", "n3"]


def test_members_are_spread_over_racks() -> None:
    c = racks(6, 3)
    constraint = msgspec.convert(
        {
            "maxSkew": 1,
            "topologyKey": RACK,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}},
        },
        TopologySpreadConstraint,
    )
    members = gang("a", pods=6, gpus=1)
    c.submit(saying(members, app="a", topology_spread_constraints=[constraint])).run()
    taken = [int(name[1:]) % 3 for name in nodes_of(c, "a")]
    assert sorted(taken) == [0, 0, 1, 1, 2, 2]


def test_members_of_another_template_are_kept_off_by_what_their_siblings_say() -> None:
    """The plain members say nothing; the first one does not want them on its node."""
    c = racks(2, 1)
    members = gang("a", pods=3, gpus=1)
    shy = saying(members[:1], app="leader", affinity=terms("podAntiAffinity", "worker", HOST))
    c.submit([*shy, *saying(members[1:], app="worker")]).run()
    leader = next(
        i for i in c.group("a").members.values() if (i.pod.metadata.labels or {})["app"] == "leader"
    )
    others = {i.node_name for i in c.group("a").members.values() if i is not leader}
    assert leader.node_name
    assert leader.node_name not in others


def test_a_pod_that_wants_to_be_near_another_is_woken_when_that_one_comes() -> None:
    c = racks(2, 2)
    [near] = saying([make_pod("near")], app="x", affinity=terms("podAffinity", "web", RACK))
    c.submit(near).run()
    assert c.state("near") == "unschedulable"
    c.wait(5.0).submit(saying([make_pod("db")], app="db")).run()
    assert c.state("near") == "unschedulable", "not the one it waits for"
    c.submit(saying([make_pod("web")], app="web")).run()
    assert c.state("near") == "bound"
    assert nodes_of(c, "near") == nodes_of(c, "web")


def test_a_pod_is_woken_when_the_one_it_wants_to_be_away_from_goes() -> None:
    c = racks(1, 1)
    c.submit(saying([make_pod("web")], app="web")).run()
    [shy] = saying([make_pod("shy")], app="shy", affinity=terms("podAntiAffinity", "web", HOST))
    c.submit(shy).run().wait(5.0)
    assert c.state("shy") == "unschedulable"
    c.delete("web").run()
    assert c.state("shy") == "bound"


def test_a_profile_without_the_plugin_refuses_what_it_cannot_see_to() -> None:
    c = Cluster(make=without("InterPodAffinity"))
    c.node(make_node("n0"))
    [shy] = saying([make_pod("shy")], app="shy", affinity=terms("podAntiAffinity", "web", HOST))
    c.submit(shy).run()
    assert c.state("shy") == "unschedulable"
    assert "the filter InterPodAffinity, which enforces it, is not enabled" in c.group("shy").message


def stored(c: Cluster, name: str, host: str) -> None:
    """A claim that waits for its pod, and a volume for it on one node."""
    expression = {"key": HOST, "operator": "In", "values": [host]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"of-{name}"}
    disk = {**spec, "capacity": {"storage": "1Gi"}, "nodeAffinity": affinity}
    waits = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    for kind, namespace, body in (
        ("storageclasses.storage.k8s.io", "", waits),
        ("persistentvolumes", "", {"spec": disk, "status": {"phase": "Available"}}),
        ("persistentvolumeclaims", "d", {"spec": spec}),
    ):
        called = f"of-{name}" if kind.startswith("storageclasses") else name
        meta = {"name": called, "namespace": namespace, "uid": f"{kind}-{name}", "resourceVersion": "1"}
        raw = msgspec.json.encode({"metadata": meta, **body})
        c.tell(ev.ObjectPut(kind, objects(kind).decode_object(raw)))


def with_claim(c: Cluster, pod: Pod, host: str) -> Pod:
    """The pod with a claim of its name, whose volume is on one node."""
    stored(c, pod.metadata.name, host)
    source = {"name": "v", "persistentVolumeClaim": {"claimName": pod.metadata.name}}
    return replace(pod, spec=replace(pod.spec, volumes=[msgspec.convert(source, Volume)]))


def test_a_gangs_claims_are_bound_before_any_of_its_members_is() -> None:
    c = racks(3, 1)
    c.hook = lambda hook: None
    first, second = gang("a", pods=2, gpus=1)
    c.submit(with_claim(c, first, "n2"), with_claim(c, second, "n1")).run()
    asked = list(c.held_hooks)
    assert [(hook.point, hook.plugin, hook.node_name) for hook in asked] == [
        ("PreBind", "VolumeBinding", "n2"),
        ("PreBind", "VolumeBinding", "n1"),
    ]
    c.say(asked[0], Status())
    assert c.group("a").n_bound == 0, "the other one's claim is not bound yet"
    c.say(asked[1], Status())
    assert nodes_of(c, "a") == ["n1", "n2"]
    assert c.state("a") == "bound"


def test_a_gang_is_told_which_member_cannot_be_placed_at_all() -> None:
    """All its members are told the same, and the others ask for nothing unusual."""
    c = racks(3, 1, make=without("DynamicResources"))
    first, second = gang("a", pods=2, gpus=1)
    claims = [PodResourceClaim("gpu", resource_claim_name="mine")]
    c.submit(first, replace(second, spec=replace(second.spec, resource_claims=claims))).run()
    said = "the filter DynamicResources, which enforces it, is not enabled in this profile"
    assert c.group("a").message == f"gang d/a: member a-1: spec.resourceClaims: {said}"
    assert c.said("a-0") == c.said("a-1") == c.group("a").message


@pytest.mark.parametrize("asks", [{}, {TOPOLOGY_KEY: f"required: {RACK}"}])
def test_a_gang_names_the_member_with_a_missing_claim(asks: dict[str, str]) -> None:
    c = racks(3, 1)
    first, second = with_annotations(gang("a", pods=2, gpus=1), asks)
    source = {"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}
    volumes = [msgspec.convert(source, Volume)]
    c.submit(first, replace(second, spec=replace(second.spec, volumes=volumes))).run()
    assert c.group("a").message == 'gang d/a: member a-1: persistentvolumeclaim "gone" not found'


def test_what_an_attempt_gives_back_the_next_one_may_have() -> None:
    c = racks(1, 1)
    c.hook = lambda hook: None
    [pod] = gang("a", pods=1, gpus=1)
    c.submit(with_claim(c, pod, "n0")).run()
    [hook] = c.held_hooks
    c.say(hook, Status.unschedulable("the object has been modified"))
    assert c.group("a").n_assumed == 0
    c.wait(400.0)
    [again] = c.held_hooks
    c.say(again, Status())
    assert nodes_of(c, "a") == ["n0"]


def test_a_gang_refused_for_an_annotation_is_tried_again_once_that_reads() -> None:
    """What a plugin reads of a pod's metadata may change while the pod waits; nothing else will wake it."""
    c = Cluster().node(make_node("n0"))
    own = {"requiredRBW": "much"}
    pods = [make_pod(f"a-{k}", group="a", min_members=2, annotations=own) for k in range(2)]
    c.submit(pods).run()
    assert "requiredRBW" in c.group("a").message
    for pod in pods:
        now = c.pod(pod.metadata.name)
        said = {key: v for key, v in (now.metadata.annotations or {}).items() if key not in own}
        c.update(now, metadata=replace(now.metadata, annotations=said))
    c.wait(2.0).run()
    assert c.placed("a", on=1)
