"""Gangs in other systems' words: whole or not at all; a minimum for each role; marks not honoured."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from tests.support.scenario import Cluster, cluster

KOORDINATOR = "gang.scheduling.koordinator.sh/"
YUNIKORN = "yunikorn.apache.org/"


def volcano(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    """As Trainer, the MPI operator and KubeRay write it; minResources has more than its pods ask for."""
    spec = {"minMember": n, "queue": "default", "minResources": {"cpu": "8"}}
    c.object("volcano", make_pod_group("a", spec=spec))
    own = {"scheduling.k8s.io/group-name": "a"}
    return [make_pod(f"a-{k}", gpus=gpus, annotations=own) for k in range(n)]


def kai(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    c.object("kai", make_pod_group("a", spec={"minMember": n, "queue": "q"}))
    marks = {"kai.scheduler/queue": "q"}
    return [
        make_pod(f"a-{k}", gpus=gpus, annotations={"pod-group-name": "a"}, labels=marks) for k in range(n)
    ]


def kai_subgroups(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    groups = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": n - 1}]
    c.object("kai", make_pod_group("a", spec={"minMember": n, "subGroups": groups}))
    return [
        make_pod(
            f"a-{k}",
            gpus=gpus,
            annotations={"pod-group-name": "a"},
            labels={"kai.scheduler/subgroup-name": "worker" if k else "leader"},
        )
        for k in range(n)
    ]


def koordinator(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    own = {
        KOORDINATOR + "name": "a",
        KOORDINATOR + "min-available": str(n),
        KOORDINATOR + "waiting-time": "30s",
    }
    return [make_pod(f"a-{k}", gpus=gpus, annotations=own) for k in range(n)]


def koordinator_object(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    c.object(
        "coscheduling",
        make_pod_group("a", spec={"minMember": n}, annotations={KOORDINATOR + "mode": "Strict"}),
    )
    marks = {"pod-group.scheduling.sigs.k8s.io": "a"}
    return [make_pod(f"a-{k}", gpus=gpus, labels=marks) for k in range(n)]


def yunikorn(c: Cluster, n: int, gpus: int = 8) -> list[Pod]:
    """The first pod says the task groups for all."""
    groups = [{"name": "head", "minMember": 1}, {"name": "worker", "minMember": n - 1}]
    pods = []
    for k in range(n):
        own = {YUNIKORN + "task-group-name": "worker" if k else "head"}
        own |= {} if k else {YUNIKORN + "task-groups": json.dumps(groups)}
        pods.append(make_pod(f"a-{k}", gpus=gpus, labels={"applicationId": "a"}, annotations=own))
    return pods


SYSTEMS = [volcano, kai, kai_subgroups, koordinator, koordinator_object, yunikorn]
each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)
System = Callable[[Cluster, int], list[Pod]]


@each_system
def test_a_gang_that_fits_is_bound_whole(system: System) -> None:
    c = cluster(nodes=4)
    c.submit(system(c, 4)).run()
    assert c.placed("a", on=4)
    c.five_more_turns_change_nothing()


@each_system
def test_a_gang_for_which_one_node_is_missing_is_not_bound_at_all(system: System) -> None:
    c = cluster(nodes=3)
    c.submit(system(c, 4)).run()
    assert c.untouched("a")
    assert not c.all(ef.BindPod)
    assert c.node(make_node("n9")).wait(11.0).placed("a", on=4)


@each_system
@pytest.mark.parametrize("backwards", [False, True])
def test_a_gang_of_which_one_member_is_missing_waits_for_it(system: System, *, backwards: bool) -> None:
    c = cluster(nodes=4)
    pods = system(c, 4)
    if backwards:
        pods = pods[::-1]
    c.submit(pods[:3]).run().wait(6.0)
    assert not c.all(ef.BindPod)
    assert "waits for members: 3 of 4 exist" in c.said(pods[1].metadata.name) or backwards
    assert c.submit(pods[3]).run().placed("a", on=4)


@each_system
def test_a_restart_in_the_middle_of_a_gang_completes_it(system: System) -> None:
    c = cluster(nodes=4)
    c.answer = lambda bind: "ok" if bind.name in ("a-0", "a-1") else "hold"
    c.submit(system(c, 4)).run()
    assert len(c.held_binds) == 2
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert c.placed("a", on=4)


# -- roles -------------------------------------------------------------------------------------------


def tasks(
    c: Cluster, wanted: dict[str, int], pods: dict[str, int], gpus: dict[str, int], **more: Any
) -> list[Pod]:
    spec = {"minMember": sum(wanted.values()), "minTaskMember": wanted}
    c.object("volcano", make_pod_group("a", spec={**spec, **more}))
    return [
        make_pod(
            f"a-{role}-{k}",
            gpus=gpus[role],
            annotations={"scheduling.k8s.io/group-name": "a", "volcano.sh/task-spec": role},
        )
        for role, n in pods.items()
        for k in range(n)
    ]


def n_bound(c: Cluster, role: str) -> int:
    return sum(bool(p.spec.node_name) for p in c.pods.values() if p.metadata.name.startswith(f"a-{role}-"))


def test_enough_members_and_too_few_of_one_role_are_not_enough() -> None:
    c = cluster(nodes=8)
    c.submit(tasks(c, {"ps": 2, "worker": 4}, {"ps": 4, "worker": 2}, {"ps": 1, "worker": 8})).run().wait(6.0)
    assert not c.all(ef.BindPod)
    assert c.said("a-ps-0") == "gang d/a waits for members: 6 of 6 exist; role worker: 2 of 4"
    own = c.pod("a-worker-0")
    for k in (2, 3):
        c.submit(replace(own, metadata=replace(own.metadata, name=f"a-worker-{k}", uid=f"w{k}"))).run()
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (4, 4)


@pytest.mark.parametrize("alike", [True, False], ids=["of one shape", "of two shapes"])
def test_room_goes_to_what_each_role_needs_before_anybody_else(*, alike: bool) -> None:
    """Eight pods of which six have room: not six of the one role that comes first."""
    gpus = {"ps": 8, "worker": 8 if alike else 7}
    c = cluster(nodes=6)
    c.submit(tasks(c, {"ps": 3, "worker": 3}, {"ps": 5, "worker": 3}, gpus)).run()
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (3, 3)


@pytest.mark.parametrize("alike", [True, False], ids=["of one shape", "of two shapes"])
def test_a_role_that_does_not_fit_is_named_and_nothing_is_bound(*, alike: bool) -> None:
    gpus = {"ps": 8, "worker": 8 if alike else 7}
    c = cluster(nodes=5)
    c.submit(tasks(c, {"ps": 3, "worker": 3}, {"ps": 5, "worker": 5}, gpus)).run()
    assert not c.all(ef.BindPod)
    assert ": 2 of 3 fit; member a-" in c.said("a-ps-0")
    assert "gang d/a: role " in c.said("a-ps-0")
    c.node(make_node("n9")).wait(11.0)
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (3, 3)


@pytest.mark.parametrize("alike", [True, False], ids=["of one shape", "of two shapes"])
def test_a_role_that_has_its_least_is_not_blamed_for_the_whole(*, alike: bool) -> None:
    """Five are needed, one of them a worker: with room for four, it is not workers that are missing."""
    gpus = {"ps": 8, "worker": 8 if alike else 7}
    c = cluster(nodes=4)
    c.submit(tasks(c, {"ps": 2, "worker": 1}, {"ps": 2, "worker": 3}, gpus, minMember=5)).run()
    said = c.said("a-ps-0")
    assert said.startswith("gang d/a: 4 of 5 fit; member a-worker-")
    assert "with nothing else running, 4 of 5 would fit" in said or not alike


def test_the_members_of_a_role_that_fit_are_found_among_those_that_do_not() -> None:
    """Half of the workers ask for a node that nobody has; of the others there are as many as it takes."""
    c = cluster(nodes=4)
    pods = tasks(c, {"ps": 1, "worker": 2}, {"ps": 1, "worker": 4}, {"ps": 1, "worker": 8})
    for i in (1, 2):
        pods[i] = replace(pods[i], spec=replace(pods[i].spec, node_selector={"gone": "yes"}))
    c.submit(pods).run()
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (1, 2)


def test_a_gang_whose_role_lost_a_member_while_it_was_being_bound_is_completed() -> None:
    c = cluster(nodes=8)
    c.answer = lambda bind: "404" if bind.name == "a-worker-1" else "ok"
    c.submit(tasks(c, {"ps": 1, "worker": 2}, {"ps": 2, "worker": 2}, {"ps": 1, "worker": 8})).run()
    c.answer = lambda bind: "ok"
    c.delete("a-worker-1").run()
    own = c.pod("a-worker-0")
    c.submit(
        replace(
            own,
            metadata=replace(own.metadata, name="a-worker-2", uid="w2"),
            spec=replace(own.spec, node_name=""),
        )
    ).run()
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (2, 2)
    c.five_more_turns_change_nothing()


def test_a_member_of_no_subgroup_is_refused_with_the_names() -> None:
    c = cluster()
    pods = kai_subgroups(c, 3)
    c.submit(
        pods,
        make_pod("a-9", annotations={"pod-group-name": "a"}, labels={"kai.scheduler/subgroup-name": "wrkr"}),
    )
    c.run()
    assert not c.all(ef.BindPod)
    assert c.said("a-0") == (
        "gang d/a: member a-9 has role 'wrkr', which is not one of the group's: 'leader', 'worker'"
    )
    assert c.delete("a-9").run().wait(2.0).placed("a")


def test_two_members_that_say_different_task_groups_are_refused() -> None:
    c = cluster()
    pods = yunikorn(c, 3)
    own = {
        **(pods[2].metadata.annotations or {}),
        YUNIKORN + "task-groups": '[{"name":"worker","minMember":9}]',
    }
    pods[2] = replace(pods[2], metadata=replace(pods[2].metadata, annotations=own))
    c.submit(pods).run()
    assert not c.all(ef.BindPod)
    assert "members disagree on yunikorn.apache.org/task-groups" in c.said("a-0")


# -- groups that start together, objects of two API groups ---------------------------------------------


def test_koordinators_gang_groups_start_together() -> None:
    c = cluster(nodes=4)
    for name in ("a", "b"):
        own = {
            KOORDINATOR + "name": name,
            KOORDINATOR + "min-available": "2",
            KOORDINATOR + "groups": '["d/a","d/b"]',
        }
        assert not c.all(ef.BindPod)
        c.submit([make_pod(f"{name}-{k}", gpus=8, annotations=own) for k in range(2)]).run()
    assert c.placed("a")
    assert c.placed("b")


# -- marks that we cannot honour -------------------------------------------------------------------------


MARKED = {"scheduling.volcano.sh/group-min-member": "2"}


def test_a_pod_with_a_mark_that_we_cannot_honour_is_refused_with_the_reason() -> None:
    c = cluster().submit(make_pod("p", annotations=MARKED)).run()
    assert not c.pod("p").spec.node_name
    assert c.said("p").startswith(
        "pod d/p asks for something that gangsched does not do: scheduling.volcano.sh/group-min-member: "
    )
    pod = c.pod("p")
    c.update(pod, metadata=replace(pod.metadata, annotations={})).run().wait(2.0)
    assert c.pod("p").spec.node_name


@pytest.mark.parametrize(("mode", "n_events"), [("warn", 1), ("ignore", 0)])
def test_marks_are_reported_or_ignored_as_the_profile_says(mode: str, n_events: int) -> None:
    settings = Settings(foreign_markers={"gangsched": mode})
    c = cluster(settings=settings).submit(make_pod("p", annotations=MARKED)).run()
    assert c.pod("p").spec.node_name
    assert c.reasons().count("ForeignMarker") == n_events


@pytest.mark.parametrize("mode", ["warn", "ignore"])
def test_a_new_configuration_lets_what_was_refused_start(mode: str) -> None:
    c = cluster()
    c.object("volcano", make_pod_group("a", spec={"minMember": 2, "networkTopology": {"mode": "hard"}}))
    own = {"scheduling.k8s.io/group-name": "a"}
    c.submit([make_pod(f"a-{k}", gpus=8, annotations=own) for k in range(2)]).run()
    assert c.untouched("a")
    assert "gang d/a asks for something that gangsched does not do: spec.networkTopology" in c.said("a-0")
    settings = Settings(foreign_markers={"gangsched": mode})
    c.reconfigure(settings).run().wait(11.0)
    assert c.placed("a")


@pytest.mark.parametrize("label", ["gangsched.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name"])
def test_a_group_label_without_a_number_is_refused_with_what_to_write(label: str) -> None:
    c = cluster().submit(*(make_pod(f"a-{k}", labels={label: "a"}) for k in range(2))).run()
    assert c.untouched("a")
    assert f"the label {label} alone does not say how many pods start together" in c.said("a-0")


def test_a_gang_that_is_corrected_has_its_turn_before_a_younger_one() -> None:
    """What was wrong was never tried, so correcting it is no failed attempt and costs no backoff."""
    c = cluster(nodes=1)
    spec = {"minMember": 2, "queue": "q"}
    c.object("kai", make_pod_group("a", spec={**spec, "newPolicy": {"mode": "x"}}))
    marks = {"kai.scheduler/queue": "q"}
    own = {"pod-group-name": "a"}
    c.submit([make_pod(f"a-{k}", gpus=4, annotations=own, labels=marks) for k in range(2)]).run()
    assert "newPolicy" in c.said("a-0")
    c.wait(0.2).object("kai", make_pod_group("a", spec=spec))
    c.submit(make_pod("younger", gpus=8)).run()
    assert c.placed("a")
    assert not c.pod("younger").spec.node_name


def test_a_gang_that_is_wrong_as_written_takes_no_turn_when_others_change() -> None:
    c = cluster(nodes=1)
    c.object("kai", make_pod_group("a", spec={"minMember": 2, "queue": "q", "newPolicy": {"mode": "x"}}))
    own, marks = {"pod-group-name": "a"}, {"kai.scheduler/queue": "q"}
    c.submit([make_pod(f"a-{k}", gpus=4, annotations=own, labels=marks) for k in range(2)]).run()
    state, moves = c.state("a"), len(c.group("a").moves)
    for k in range(3):
        c.wait(30.0).object("kai", make_pod_group(f"b{k}", spec={"minMember": 2, "queue": "q"}))
        c.node(make_node(f"more-{k}", gpus=8))
    assert (c.state("a"), len(c.group("a").moves)) == (state, moves)
