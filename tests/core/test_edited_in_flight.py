"""Pods that are edited, or whose statement of their group is read otherwise, while their binds are on their
way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.framework.interface import Status
from gangsched.core.groups.members.membership import Membership
from gangsched.lab.sim.objects import GPU, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY, Device, inventory_annotation
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.objects import Container, Pod, PodSpec, ResourceRequirements, SchedulingGroup
from gangsched.model.pod_group import GROUPS_KEY
from tests.core.plugins import Permitter, with_plugins
from tests.core.test_containment import Guarded, fails
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def held(c: Cluster, *pods: Pod) -> ef.BindPod:
    """They are placed, and the bind of the first is on its way."""
    c.answer = lambda bind: "hold"
    c.submit(*pods).run()
    c.answer = lambda bind: "ok"
    return c.held_binds[0]


def refused(c: Cluster, bind: ef.BindPod) -> Cluster:
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))
    return c.run()


def belongs_to(c: Cluster, name: str) -> str:
    info = c.pod_info(name)
    assert info.group is not None
    return info.group.key.name


def now_of(c: Cluster, name: str, *, group: str, pods: int) -> Pod:
    """The pod's edited version."""
    [other] = gang(group, pods=1, min_members=pods)
    pod = c.pod(name)
    return replace(pod, metadata=replace(other.metadata, name=name, uid=pod.metadata.uid))


def test_a_pod_of_another_group_by_now_starts_with_that_once_its_bind_has_failed() -> None:
    c = cluster(nodes=2)
    bind = held(c, *gang("a", pods=1, gpus=8))
    c.update(now_of(c, "a-0", group="b", pods=2)).submit(gang("b", pods=1, first=1, min_members=2, gpus=8))
    assert c.run().state("b") == "gathering"
    assert belongs_to(refused(c, bind), "a-0") == "b"
    assert c.wait(60.0).state("b") == "bound"
    assert c.pod("a-0").spec.node_name
    assert c.pod("b-1").spec.node_name
    assert c.group_names() == ["d/b"]
    c.five_more_turns_change_nothing()


def test_a_number_that_is_stated_meanwhile_counts_once_the_bind_has_failed() -> None:
    c = cluster(nodes=2)
    bind = held(c, *gang("a", pods=1, gpus=8))
    c.update(now_of(c, "a-0", group="a", pods=2))
    refused(c, bind).wait(60.0)
    assert (c.group("a").min_count, c.state("a")) == (2, "gathering")
    assert c.submit(gang("a", pods=1, first=1, min_members=2, gpus=8)).run().placed("a", on=2)


@pytest.mark.parametrize("first", ["the answer", "the watch"])
def test_a_pod_that_is_bound_belongs_to_the_group_that_it_names_then(first: str) -> None:
    c = cluster(nodes=2)
    bind = held(c, *gang("a", pods=1, gpus=8))
    c.update(now_of(c, "a-0", group="b", pods=1))
    assert belongs_to(c, "a-0") == "a"
    answer, seen = ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind))
    for event in (answer, seen) if first == "the answer" else (seen, answer):
        c.tell(event).run()
        assert c.pod_info(bind.name).node_name == bind.node
    assert belongs_to(c, "a-0") == "b"
    c.submit(gang("q", pods=2, gpus=8)).run()
    assert c.untouched("q"), "its devices stay its own"
    c.five_more_turns_change_nothing()


def test_a_pod_that_is_gone_before_its_bind_is_answered_moves_nowhere() -> None:
    c = cluster(nodes=2)
    bind = held(c, *gang("a", pods=1, gpus=8))
    c.update(now_of(c, "a-0", group="b", pods=2)).delete("a-0")
    assert not refused(c, bind).groups()
    assert c.submit(gang("q", pods=2, gpus=8)).run().placed("q", on=2)


def test_a_pod_that_our_code_fails_on_meanwhile_moves_once_it_is_well() -> None:
    guarded = Guarded()
    c = guarded.cluster
    bind = held(c, *gang("a", pods=1, gpus=8))
    c.update(now_of(c, "a-0", group="b", pods=1))
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Membership, "_state_of", fails)
        c.update(c.pod("a-0"))
    n = len(guarded.defects)
    assert belongs_to(refused(c, bind).wait(5.0), "a-0") == "b"
    assert c.pod("a-0").spec.node_name
    assert len(guarded.defects) == n


def basic_beside(own: str) -> tuple[Cluster, Pod]:
    """A pod that names a core PodGroup, which is basic, and another group, which counts."""
    c = cluster(nodes=2).object("core", make_pod_group("g", spec={"schedulingPolicy": {"basic": {}}}))
    pod = make_pod("p-0", gpus=8, group=own, min_members=1)
    return c, replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup("g")))


def now_a_gang(c: Cluster) -> Cluster:
    return c.object("core", make_pod_group("g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})).run()


def test_a_pod_whose_second_group_is_a_gang_by_now_is_refused_once_its_bind_has_failed() -> None:
    c, pod = basic_beside("a")
    bind = held(c, pod)
    refused(now_a_gang(c), bind).wait(60.0)
    assert not c.pod("p-0").spec.node_name
    assert "g" in c.said("p-0"), c.said("p-0")


def test_a_pod_of_another_group_by_now_keeps_its_room_between_the_answer_and_the_watch() -> None:
    c, pod = basic_beside("a")
    bind = held(c, pod)
    now_a_gang(c.tell(ev.BindSucceeded(bind.uid, bind.attempt)).run())
    c.submit(gang("q", pods=2, gpus=8)).run()
    assert c.untouched("q"), "one of the two nodes is taken"
    c.tell(ev.PodUpdated(c.commit(bind))).run().wait(60.0)
    assert c.pod_info(bind.name).node_name == bind.node
    assert belongs_to(c, "p-0") != "a"
    assert len(c.all(ef.BindPod)) == 1
    c.five_more_turns_change_nothing()


def of_60_cores(c: Cluster, name: str) -> PodSpec:
    larger = ResourceRequirements(requests={"cpu": "60", "memory": "1Gi"})
    return replace(c.pod(name).spec, containers=[Container(name="main", resources=larger)])


@pytest.mark.parametrize("told", ["before its bind", "with its bind"])
@pytest.mark.parametrize("first", ["the answer", "the watch"])
def test_a_pod_that_is_resized_counts_as_it_is_once_it_is_bound(told: str, first: str) -> None:
    c = cluster(nodes=1)
    bind = held(c, make_pod("p", gpus=0, cpu="1"))
    pod, resized = c.pod("p"), of_60_cores(c, "p")
    if told == "before its bind":
        c.update(pod, spec=resized)
    else:
        c.store(pod, spec=resized)
    answer, seen = ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind))
    for event in (answer, seen) if first == "the answer" else (seen, answer):
        c.tell(event)
    c.submit(make_pod("q", gpus=0, cpu="60")).run()
    assert not c.pod("q").spec.node_name, "64 cores are there"
    assert c.submit(make_pod("r", gpus=0, cpu="4")).run().pod("r").spec.node_name


def test_a_pod_that_is_resized_while_its_gang_waits_is_placed_as_it_is() -> None:
    c = cluster(nodes=2).submit(make_pod("x", gpus=0, cpu="10")).run()
    both = {GROUPS_KEY: '["d/a", "d/b"]'}
    a, b = (with_annotations(gang(name, pods=1, gpus=0, cpu="1"), both) for name in "ab")
    c.submit(a).run()
    assert c.state("a") == "waiting"
    assert c.pod_info("a-0").node_name == c.pod("x").spec.node_name
    c.update(c.pod("a-0"), spec=of_60_cores(c, "a-0")).submit(b).run()
    assert c.placed("a")
    assert c.placed("b")
    assert c.pod("a-0").spec.node_name != c.pod("x").spec.node_name


def asks_for(model: str) -> dict[str, str]:
    return {CONSTRAINTS_KEY: f'{{"nvidia.com/gpu":{{"model":"{model}"}}}}'}


@pytest.mark.parametrize("waits_for", ["its set", "a Permit plugin"])
def test_a_pod_that_asks_for_other_devices_while_its_gang_waits_gets_those(waits_for: str) -> None:
    both = {GROUPS_KEY: '["d/a", "d/b"]'} if waits_for == "its set" else {}
    says = Status() if waits_for == "its set" else Status.wait("w")
    devices = [Device(f"n-{k}", model="old" if k < 2 else "new") for k in range(4)]
    listed = make_node("n", gpus=4, annotations={INVENTORY_KEY: inventory_annotation({GPU: devices})})
    c = with_plugins(Permitter("P", lambda group: says), nodes=0).node(listed)
    a, b = (with_annotations(gang(name, pods=1), both) for name in "ab")
    c.submit(with_annotations(a, asks_for("old"))).run()
    assert c.state("a") == "waiting"
    own = {**(c.pod("a-0").metadata.annotations or {}), **asks_for("new")}
    c.update(c.pod("a-0"), metadata=replace(c.pod("a-0").metadata, annotations=own))
    if waits_for == "its set":
        c.submit(b).run()
    else:
        for _ in range(2):  # also what is reserved instead
            c.tell(ev.GroupAllowed(c.group("a").key, "", "alice")).run()
    assert c.ids("a-0") <= {"n-2", "n-3"}
    assert c.placed("a")
