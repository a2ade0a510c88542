"""Pods that come one after the other and differ in their names alone; and such that differ all the same."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from typing import ClassVar

from msgspec.structs import replace

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.framework.interface import SUCCESS, CycleState, Status
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod
from gangsched.model.objects import (
    Affinity,
    ContainerPort,
    LabelSelector,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
)
from gangsched.model.pod_group import GROUP_LABEL
from tests.core.plugins import with_plugins
from tests.support.scenario import Cluster, cluster, gang


def members(c: Cluster, group: str) -> list[str]:
    return [info.pod.metadata.name for info in c.group(group).members.values()]


def test_members_that_are_reported_in_turns_join_their_own_groups() -> None:
    c, a, b = cluster(), gang("a", pods=3), gang("b", pods=3)
    lone = [make_pod(f"lone-{k}") for k in range(4)]
    c.submit(list(chain.from_iterable(zip(a, b, lone, strict=False))), lone[3]).run()
    assert members(c, "a") == ["a-0", "a-1", "a-2"]
    assert members(c, "b") == ["b-0", "b-1", "b-2"]
    assert [members(c, pod.metadata.name) for pod in lone] == [[f"lone-{k}"] for k in range(4)]
    assert c.placed("a")
    assert c.placed("b")
    assert c.placed("lone")


def test_one_that_asks_for_more_is_not_taken_for_the_one_before_it() -> None:
    c = cluster(nodes=1, gpus=4).submit(make_pod("a-0", gpus=1), make_pod("b-0", gpus=4)).run()
    assert c.placed("a")
    assert c.said("b-0").startswith("0/1 nodes are available: 1 Insufficient")
    assert c.submit(make_pod("a-1", gpus=1)).run().placed("a")


def test_a_pod_like_one_that_changed_its_group_joins_the_group_it_names() -> None:
    """With its bind on the way that pod stays in the group in which it was promised its place."""
    c = cluster().submit(gang("b", pods=1, min_members=2))
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2)).run()
    meta = c.pod("a-1").metadata
    c.update(c.pod("a-1"), metadata=replace(meta, labels={**(meta.labels or {}), GROUP_LABEL: "b"}))
    assert members(c, "a") == ["a-0", "a-1"]
    c.submit(gang("b", pods=1, min_members=2, first=1), gang("a", pods=1, min_members=2, first=2))
    assert members(c, "b") == ["b-0", "b-1"]
    assert members(c, "a") == ["a-0", "a-1", "a-2"]


def test_pods_that_come_after_a_selector_are_distinguished_by_its_labels() -> None:
    def web(k: int) -> Pod:
        return make_pod(f"web-{k}", gpus=0, labels={"app": "web"})

    away = PodAffinityTerm("kubernetes.io/hostname", LabelSelector(match_labels={"app": "web"}))
    wish = PodAffinity(required_during_scheduling_ignored_during_execution=[away])
    c = Cluster()
    for name in ("n0", "n1"):
        node = make_node(name)
        c.node(replace(node, metadata=replace(node.metadata, labels={"kubernetes.io/hostname": name})))
    c.submit(web(0)).run()
    elsewhere = "n1" if c.pod("web-0").spec.node_name == "n0" else "n0"
    shy = make_pod("shy-0", gpus=0, scheduler=STRANGER)
    spec = replace(shy.spec, affinity=Affinity(pod_anti_affinity=wish), node_name=elsewhere)
    c.submit(replace(shy, spec=spec), *(web(k) for k in range(1, 7))).run()
    assert c.placed("web", on=1)
    assert c.pod("web-6").spec.node_name == c.pod("web-0").spec.node_name


def test_a_plugin_that_reads_the_name_is_asked_of_each() -> None:
    class ByName:
        name = "ByName"

        def sign(self, pod: Pod) -> Hashable:
            return pod.metadata.name

        def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
            wanted = pod.metadata.name.replace("p-", "n")
            return SUCCESS if node_info.node.metadata.name == wanted else Status.unschedulable("not mine")

    c = with_plugins(ByName())
    for k in range(3):
        c.node(make_node(f"n{k}"))
    c.submit(*(make_pod(f"p-{k}") for k in range(3))).run()
    assert [c.pod(f"p-{k}").spec.node_name for k in range(3)] == ["n0", "n1", "n2"]


def test_a_plugin_that_reads_owners_is_called_for_pods_that_have_one() -> None:
    class ByOwner:
        name = "ByOwner"
        signs_owners: ClassVar[bool] = True

        def sign(self, pod: Pod) -> Hashable:
            return tuple(owner.name for owner in pod.metadata.owner_references or ())

        def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
            owners = pod.metadata.owner_references
            wanted = owners[0].name if owners else "n0"
            return SUCCESS if node_info.node.metadata.name == wanted else Status.unschedulable("not mine")

    c = with_plugins(ByOwner())
    for k in range(3):
        c.node(make_node(f"n{k}"))
    for k, owner in enumerate(("", "n1", "n2", "")):
        pod = make_pod(f"p-{k}")
        owners = [OwnerReference(name=owner, uid=owner, controller=True)] if owner else None
        c.submit(replace(pod, metadata=replace(pod.metadata, owner_references=owners))).run()
    assert [c.pod(f"p-{k}").spec.node_name for k in range(4)] == ["n0", "n1", "n2", "n0"]


def test_equal_members_of_many_gangs_are_one_problem() -> None:
    c = cluster().submit(*(gang(name, pods=2) for name in ("a", "b", "c")))
    assert len({info.template.serial for info in c.pod_infos().values()}) == 1
    port = ContainerPort(host_port=80)
    other = make_pod("d-0")
    (container,) = other.spec.containers
    c.submit(replace(other, spec=replace(other.spec, containers=[replace(container, ports=[port])])))
    assert len({info.template.serial for info in c.pod_infos().values()}) == 2
