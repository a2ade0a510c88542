"""The status of a group's object, in the words of each API: what is written, and how seldom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod, PodStatus
from gangsched.model.pod_group import COSCHEDULING, COSCHEDULING_LABEL
from tests.support.scenario import Cluster, cluster

COSCHEDULED = "scheduling.x-k8s.io/v1alpha1"
KOORDINATOR = "scheduling.sigs.k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
KAI = "scheduling.run.ai/v2alpha2"
ALL = (COSCHEDULED, KOORDINATOR, VOLCANO, KAI)


def gang_of(version: str, *, nodes: int, pods: int = 2, exist: int = 2, status: Any = None) -> Cluster:
    """A gang whose object was read in this version; each of its pods fills a node."""
    c = shows(cluster(nodes=nodes), version, min_member=pods, status=status)
    members = [make_pod(f"a-{k}", gpus=8, labels={COSCHEDULING_LABEL: "a"}) for k in range(exist)]
    return c.submit(members).run()


def shows(
    c: Cluster, version: str, *, min_member: int | str = 2, status: Any = None, **group: Any
) -> Cluster:
    """The watch tells of the object. Which dialect's it is decides only who reads its spec."""
    item = make_pod_group("a", spec={"minMember": min_member}, **group)
    item = replace(item, status=status, metadata=replace(item.metadata, resource_version=c._next()))
    return c.tell(ev.PodGroupUpdated(COSCHEDULING, version, item))


def written(c: Cluster) -> list[dict[str, Any]]:
    return [dict(effect.status) for effect in c.all(ef.WritePodGroupStatus)]


def phases(c: Cluster) -> list[str]:
    return [status["phase"] for status in written(c)]


@pytest.mark.parametrize("version", [COSCHEDULED, KOORDINATOR])
def test_coscheduling_tells_scheduled_running_finished(version: str) -> None:
    c = gang_of(version, nodes=2)
    c.phase("a-0", "Running").phase("a-1", "Running").phase("a-0", "Succeeded").phase("a-1", "Succeeded")
    assert phases(c) == ["Scheduled", "Running", "Finished"]
    assert written(c)[-1] == {"phase": "Finished", "scheduled": 2, "running": 0, "succeeded": 2, "failed": 0}


def test_coscheduling_tells_a_gang_that_has_no_room_and_one_that_failed() -> None:
    c = gang_of(COSCHEDULED, nodes=1)
    c.node(make_node("n9")).wait(2.0)
    c.phase("a-0", "Running").phase("a-1", "Running").phase("a-0", "Failed").phase("a-1", "Failed")
    assert phases(c) == ["Pending", "Scheduled", "Running", "Failed"]


def test_volcano_tells_running_from_the_bind_on_and_counts_when_all_run() -> None:
    c = gang_of(VOLCANO, nodes=2)
    (bound,) = written(c)
    (condition,) = bound["conditions"]
    assert (bound["phase"], bound["running"]) == ("Running", 0)
    assert (condition["type"], condition["status"]) == ("Scheduled", "True")
    c.clear().phase("a-0", "Running").phase("a-1", "Running")
    assert [(status["phase"], status["running"]) for status in written(c)] == [("Running", 2)]
    c.clear().phase("a-0", "Succeeded").phase("a-1", "Succeeded")
    assert phases(c)[-1] == "Completed"


def test_volcano_tells_why_a_gang_is_pending_and_takes_it_back() -> None:
    c = gang_of(VOLCANO, nodes=1)
    (pending,) = written(c)
    (condition,) = pending["conditions"]
    assert (pending["phase"], condition["type"], condition["reason"]) == (
        *("Pending", "Unschedulable", "NotEnoughResources"),
    )
    assert "Insufficient" in condition["message"]
    # As the watch shows it, beside a condition of somebody else's.
    foreign = {"type": "Other", "status": "True"}
    status = {**pending, "conditions": [foreign, {**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    shows(c, VOLCANO, status=status)
    c.node(make_node("n9")).wait(2.0)
    assert [one["type"] for one in written(c)[-1]["conditions"]] == ["Other", "Scheduled"]


def test_volcano_tells_a_gang_whose_pods_are_missing() -> None:
    c = gang_of(VOLCANO, nodes=2, exist=1).wait(6.0)
    (condition,) = written(c)[-1]["conditions"]
    assert condition["reason"] == "NotEnoughTasks"


def test_volcano_keeps_what_its_controllers_wait_for() -> None:
    c = gang_of(VOLCANO, nodes=1, status={"phase": "Inqueue"})
    assert phases(c) == ["Inqueue"], "its pods are created from here on: it must not go back to Pending"


def test_kai_tells_a_group_without_room_by_node_pool() -> None:
    theirs = {"type": "UnschedulableOnNodePool", "nodePool": "other", "transitionID": "4"}
    c = gang_of(KAI, nodes=1, status={"schedulingConditions": [theirs]})
    (pending,) = written(c)
    other, mine = pending["schedulingConditions"]
    assert other == theirs
    assert (mine["type"], mine["nodePool"], mine["status"]) == ("UnschedulableOnNodePool", "default", "True")
    assert (mine["transitionID"], pending["pending"]) == ("5", 2), "the latest of the list"
    shows(c, KAI, status=pending)
    c.node(make_node("n9")).wait(2.0)
    assert written(c)[-1]["schedulingConditions"] == [theirs]


@pytest.mark.parametrize("version", ALL)
def test_what_the_object_says_already_is_not_written_again(version: str) -> None:
    c = gang_of(version, nodes=1)
    (pending,) = written(c)
    for field in ("conditions", "schedulingConditions"):
        if field in pending:
            pending[field] = [{**c, "lastTransitionTime": "2026-01-01T00:00:00Z"} for c in pending[field]]
    shows(c, version, status=pending)
    c.clear().wait(60.0)
    assert written(c) == []


@pytest.mark.parametrize("version", ALL)
def test_a_gang_that_starts_costs_two_writes_however_large_it_is(version: str) -> None:
    c = gang_of(version, nodes=12, pods=12, exist=12)
    for k in range(12):
        c.phase(f"a-{k}", "Running")
    assert len(written(c)) == 2


@pytest.mark.parametrize("version", [*ALL, "scheduling.k8s.io/v1beta1"])
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_a_process_that_finds_a_gang_started_says_so_where_the_one_before_it_could_not(
    version: str, phase: str
) -> None:
    c = gang_of(version, nodes=2)
    said = written(c)[-1]
    for name in ("a-0", "a-1"):
        c.store(c.pod(name), status=PodStatus(phase))
    c.clear()
    c.scheduler, c.received = c.make(c.settings), Received()
    members: list[ev.Event] = [ev.PodAdded(pod) for pod in c.pods.values()]
    synced = [ev.KindSynced(kind) for kind in c.scheduler.kinds]
    shows(c, version).tell(*(ev.NodeAdded(node) for node in c.nodes.values()), *members, *synced)
    [now] = written(c)
    assert now.keys() == said.keys()
    if "phase" in said:
        ended = {VOLCANO: "Completed"}.get(version, "Finished")
        assert now["phase"] == ("Running" if phase == "Running" else ended)
    c.clear().tell(*members).wait(30.0)
    assert written(c) == [], "once"


@pytest.mark.parametrize("version", [*ALL, "scheduling.k8s.io/v1beta1"])
def test_an_object_that_is_replaced_while_its_gang_runs_says_so_too(version: str) -> None:
    c = gang_of(version, nodes=2).phase("a-0", "Running").phase("a-1", "Running")
    old = make_pod_group("a", spec={"minMember": 2})
    c.clear().tell(ev.PodGroupDeleted(COSCHEDULING, version, old))
    new = replace(old, metadata=replace(old.metadata, uid="uid-anew", resource_version=c._next()))
    c.tell(ev.PodGroupAdded(COSCHEDULING, version, new)).run()
    assert [effect.uid for effect in c.all(ef.WritePodGroupStatus)] == ["uid-anew"]
    c.five_more_turns_change_nothing()


def replaced_by(c: Cluster, pod: Pod) -> Pod:
    """The pod made again, as its controller does; the server has it now."""
    meta = replace(pod.metadata, uid=f"{pod.metadata.uid}-anew", annotations={}, resource_version=c._next())
    del c.pods[pod.metadata.uid]
    made = Pod(meta, replace(pod.spec, node_name=""))
    c.pods[meta.uid] = made
    return made


@pytest.mark.parametrize("version", [*ALL, "scheduling.k8s.io/v1beta1"])
def test_an_object_that_is_made_again_before_its_gang_starts_again_says_so_in_the_same_words(
    version: str,
) -> None:
    """They were written before, to another object of that name."""
    c = gang_of(version, nodes=2)
    said, whole = written(c)[-1], dict(c.nodes)
    old, pods = make_pod_group("a", spec={"minMember": 2}), [c.pod("a-0"), c.pod("a-1")]
    for node in whole.values():
        c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    remade = [replaced_by(c, pod) for pod in pods]
    c.tell(*(ev.PodDeleted(pod) for pod in pods), *(ev.PodAdded(pod) for pod in remade)).run().clear()
    c.tell(ev.PodGroupDeleted(COSCHEDULING, version, old))
    new = replace(old, metadata=replace(old.metadata, uid="uid-anew", resource_version=c._next()))
    c.tell(ev.PodGroupAdded(COSCHEDULING, version, new))
    for node in whole.values():
        c.node(node)
    last = c.run().wait(15.0).all(ef.WritePodGroupStatus)[-1]
    assert last.uid == "uid-anew"
    assert last.status.keys() == said.keys()


def test_a_gang_that_was_scheduled_stays_so_when_its_object_is_spoiled_before_the_watch_shows_it() -> None:
    c = gang_of("scheduling.k8s.io/v1beta1", nodes=2)
    assert written(c)[-1]["conditions"][0]["status"] == "True"
    shows(c.clear(), "scheduling.k8s.io/v1beta1", min_member="NaN").run()
    assert written(c) == []


@pytest.mark.parametrize("version", ALL)
def test_a_status_that_somebody_else_spoiled_is_written_over(version: str) -> None:
    status = {"conditions": 7, "schedulingConditions": [3], "running": "x", "phase": []}
    c = gang_of(version, nodes=1, status=status)
    c.node(make_node("n9")).wait(2.0)
    c.phase("a-0", "Running").phase("a-1", "Running")
    assert len(written(c)) == 3


@pytest.mark.parametrize("version", [COSCHEDULED, VOLCANO])
def test_a_gang_that_holds_its_room_and_waits_reports_that(version: str) -> None:
    together = {"gangsched.io/groups": '["a","b"]'}
    c = shows(cluster(nodes=2), version, min_member=1, annotations=together)
    c.submit(make_pod("a-0", labels={COSCHEDULING_LABEL: "a"})).run()
    assert phases(c) == ["PreScheduling" if version == COSCHEDULED else "Inqueue"]


def test_each_member_that_runs_is_counted_once() -> None:
    c = gang_of(COSCHEDULED, nodes=3, pods=3, exist=3).clear()
    c.phase("a-0", "Running").phase("a-1", "Running")
    assert not written(c), "one of three has not started"
    c.phase("a-2", "Running")
    assert [(status["phase"], status["running"]) for status in written(c)] == [("Running", 3)]
