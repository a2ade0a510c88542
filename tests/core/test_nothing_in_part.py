"""Notations of other systems that state more than gangsched does: nothing starts in part without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import Pod, SchedulingGroup
from tests.support.scenario import Cluster, cluster

TREE = "spec.parentCompositePodGroupName"
UNKNOWN = "this version of gangsched does not know the field"
MakePods = Callable[[Cluster], list[Pod]]


def core(spec: dict[str, Any]) -> MakePods:
    def make(c: Cluster) -> list[Pod]:
        c.object("core", make_pod_group("a", spec=spec))
        found = [make_pod(f"a-{k}", gpus=8) for k in range(2)]
        group = SchedulingGroup(pod_group_name="a")
        return [replace(pod, spec=replace(pod.spec, scheduling_group=group)) for pod in found]

    return make


def volcano(**spec: Any) -> MakePods:
    def make(c: Cluster) -> list[Pod]:
        c.object("volcano", make_pod_group("a", spec={"minMember": 2, **spec}))
        own = {"scheduling.k8s.io/group-name": "a"}
        return [make_pod(f"a-{k}", gpus=8, annotations=own) for k in range(2)]

    return make


def kai(**spec: Any) -> MakePods:
    def make(c: Cluster) -> list[Pod]:
        c.object("kai", make_pod_group("a", spec=spec))
        own = {"pod-group-name": "a"}
        leaves = [one for one in spec.get("subGroups", ()) if one.get("minMember")]
        roles = [
            {"kai.scheduler/subgroup-name": leaf["name"]} for leaf in leaves for _ in range(leaf["minMember"])
        ]
        return [
            make_pod(f"a-{k}", gpus=8, annotations=own, labels=role)
            for k, role in enumerate(roles or ({}, {}))
        ]

    return make


def coscheduling(**spec: Any) -> MakePods:
    def make(c: Cluster) -> list[Pod]:
        c.object("coscheduling", make_pod_group("a", spec={"minMember": 2, **spec}))
        return [make_pod(f"a-{k}", gpus=8, labels={"scheduling.x-k8s.io/pod-group": "a"}) for k in range(2)]

    return make


def pods(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> MakePods:
    return lambda c: [make_pod(f"a-{k}", gpus=8, labels=labels, annotations=annotations) for k in range(2)]


def koordinator(**own: str) -> MakePods:
    prefix = "gang.scheduling.koordinator.sh/"
    said = {f"{prefix}name": "a", f"{prefix}min-available": "2"}
    return pods(annotations=said | {prefix + key.replace("_", "-"): text for key, text in own.items()})


GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}
LEAVES = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 1}, {"name": "z", "minMember": 1}]
HELD: dict[str, tuple[MakePods, str]] = {
    "a gang that is a part of a tree": (core(GANG | {"parentCompositePodGroupName": "root"}), TREE),
    "a basic part of a tree": (
        core({"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "root"}),
        TREE,
    ),
    "a word in a claim of the group of a later version": (
        core(GANG | {"resourceClaims": [{"name": "c", "resourceClaimName": "c", "for": "half"}]}),
        "spec.resourceClaims[0].for: " + UNKNOWN,
    ),
    "a policy of a later version": (
        core({"schedulingPolicy": {"elastic": {"max": 4}}}),
        "spec.schedulingPolicy.elastic: " + UNKNOWN,
    ),
    "a word in a policy of a later version": (
        core({"schedulingPolicy": {"gang": {"minCount": 1, "minReplicas": 4}}}),
        "spec.schedulingPolicy.gang.minReplicas: " + UNKNOWN,
    ),
    "a way of disruption of a later version": (
        core(GANG | {"disruptionMode": {"half": {}}}),
        "spec.disruptionMode.half: " + UNKNOWN,
    ),
    "2 of 3 subgroups of KAI": (kai(minSubGroup=2, subGroups=LEAVES), "spec.minSubGroup: 2 of 3 subgroups"),
    "1 of 2 children of a subgroup of KAI": (
        kai(subGroups=[{"name": "top", "minSubGroup": 1}, *({**one, "parent": "top"} for one in LEAVES)]),
        "spec.subGroups[top].minSubGroup: 1 of 3 subgroups",
    ),
    "a field of a later KAI": (
        kai(subGroups=[*LEAVES, {"name": "w", "gang": True}]),
        "spec.subGroups[3].gang: " + UNKNOWN,
    ),
    "Volcano's subgroups": (
        volcano(subGroupPolicy=[{"name": "s", "subGroupSize": 2, "minSubGroups": 1}]),
        "spec.subGroupPolicy",
    ),
    "a field of a later Volcano": (volcano(minTasks=2), "spec.minTasks: " + UNKNOWN),
    "a field of a later PodGroup of coscheduling": (
        coscheduling(maxMember=2),
        "spec.maxMember: " + UNKNOWN,
    ),
    "Koordinator's topology": (
        koordinator(network_topology_spec='{"gatherStrategy":[{"layer":"rack","strategy":"MustGather"}]}'),
        "gang.scheduling.koordinator.sh/network-topology-spec",
    ),
    "an annotation of a later Koordinator": (
        koordinator(min_by_role="2"),
        "gang.scheduling.koordinator.sh/min-by-role: this version of gangsched does not know the annotation",
    ),
    "Kueue's slices without Kueue": (
        pods(annotations={"kueue.x-k8s.io/podset-slice-required-topology": "rack"}),
        "kueue.x-k8s.io/podset-slice-required-topology",
    ),
    "Kueue's topology without Kueue": (
        pods(annotations={"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}),
        "write the annotation gangsched.io/topology: 'required: example.com/rack'",
    ),
    "KAI's segments without its grouper": (
        pods(annotations={"kai.scheduler/segment-size": "2"}),
        "kai.scheduler/segment-size",
    ),
    "Grove's pods without a PodGroup": (pods({"grove.io/podgang": "a-0"}), "grove.io/podgang"),
    "kthena's pods without a PodGroup": (
        pods({"modelserving.volcano.sh/group-name": "a-0"}),
        "modelserving.volcano.sh/group-name",
    ),
}
WISHES: dict[str, tuple[MakePods, str]] = {
    "Volcano's soft topology": (
        volcano(networkTopology={"mode": "soft", "highestTierAllowed": 1}),
        "'preferred: topology.example.com/rack'",
    ),
    "KAI's grace for a wounded group": (
        kai(minMember=2, stalenessGracePeriod="60s"),
        "spec.stalenessGracePeriod",
    ),
    "Koordinator's preferred topology": (
        koordinator(network_topology_spec='{"gatherStrategy":[{"layer":"rack","strategy":"PreferGather"}]}'),
        "gang.scheduling.koordinator.sh/network-topology-spec",
    ),
    "Kueue's preferred topology without Kueue": (
        pods(annotations={"kueue.x-k8s.io/podset-preferred-topology": "example.com/rack"}),
        "'preferred: example.com/rack'",
    ),
    "a role of a DisaggregatedSet": (pods({"disaggregatedset.x-k8s.io/name": "d"}), "all of a slice may be"),
}


@pytest.mark.parametrize("what", HELD)
def test_what_is_not_done_or_not_known_holds_the_pods_and_says_what_to_write(what: str) -> None:
    make, words = HELD[what]
    c = cluster(nodes=8)
    c.submit(make(c)).run().wait(30.0)
    assert not c.all(ef.BindPod)
    assert words in c.said("a-0")
    assert "asks for something that gangsched does not do" in c.said("a-0")


@pytest.mark.parametrize("what", WISHES)
def test_a_wish_that_is_not_granted_is_reported_and_keeps_nothing_from_starting(what: str) -> None:
    make, words = WISHES[what]
    c = cluster(nodes=8)
    c.submit(make(c)).run().wait(30.0)
    assert len(c.all(ef.BindPod)) == 2
    told = [one.message for one in c.all(ef.RecordEvent) if one.reason == "ForeignMarker"]
    assert told
    assert all(words in message for message in told)
    group = c.groups()[0]
    assert words in " ".join(explain(c.scheduler, group, c.now_s).cures)


@pytest.mark.parametrize("what", [*HELD, *WISHES])
@pytest.mark.parametrize("mode", ["warn", "ignore"])
def test_a_profile_may_let_them_start(what: str, mode: str) -> None:
    make, _ = (HELD | WISHES)[what]
    c = cluster(nodes=8, settings=Settings(foreign_markers={"gangsched": mode}))
    pods = make(c)
    c.submit(pods).run().wait(30.0)
    assert len(c.all(ef.BindPod)) == len(pods)
    assert ("ForeignMarker" in c.reasons()) is (mode == "warn")


def test_pods_that_kueue_has_placed_are_left_to_kueue() -> None:
    own = {"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/podset-slice-required-topology": "rack"}
    settings = Settings(infer_gangs={"gangsched": ()})
    c = cluster(nodes=2, settings=settings).submit(make_pod("p", annotations=own)).run()
    assert c.pod("p").spec.node_name


def test_a_subgroup_of_kai_without_a_minimum_keeps_nothing_from_starting() -> None:
    """As Grove's scaled groups, which are added to a PodGroup with a minimum of 0."""
    c = cluster(nodes=2)
    leaves = [{"name": "x", "minMember": 2}, {"name": "y", "minMember": 0}]
    c.submit(kai(minSubGroup=2, subGroups=leaves)(c)).run()
    assert len(c.all(ef.BindPod)) == 2
    more = make_pod(
        "a-9",
        gpus=8,
        annotations={"pod-group-name": "a"},
        labels={"kai.scheduler/subgroup-name": "y"},
    )
    c.submit(more).run()
    assert not c.pod("a-9").spec.node_name
    c.node(make_node("n9", gpus=8)).run().wait(30.0)
    assert c.pod("a-9").spec.node_name


def test_a_part_of_a_tree_that_loses_its_parent_starts() -> None:
    c = cluster(nodes=2)
    c.submit(core(GANG | {"parentCompositePodGroupName": "root"})(c)).run().wait(5.0)
    assert not c.all(ef.BindPod)
    c.object("core", make_pod_group("a", spec=GANG)).run().wait(5.0)
    assert len(c.all(ef.BindPod)) == 2


def test_a_group_that_is_whole_is_left_alone_when_its_object_says_more() -> None:
    c = cluster(nodes=2)
    c.submit(core(GANG)(c)).run()
    assert len(c.all(ef.BindPod)) == 2
    c.object("core", make_pod_group("a", spec=GANG | {"parentCompositePodGroupName": "root"})).run()
    c.five_more_turns_change_nothing()


def test_a_gang_of_kubernetes_1_35_does_not_start_pod_by_pod() -> None:
    c = cluster(nodes=2)
    found = [make_pod(f"a-{k}", gpus=8) for k in range(2)]
    workload = {"name": "w", "podGroup": "workers"}
    c.submit([replace(pod, spec=replace(pod.spec, workload_ref=workload)) for pod in found]).run()
    assert not c.all(ef.BindPod)
    assert "spec.workloadRef: Workloads of scheduling.k8s.io/v1alpha1 are not read" in c.said("a-0")
