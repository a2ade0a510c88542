"""What another process does about claims that an earlier one has told in the conditions of gangs' objects."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import Pod, SchedulingGroup
from tests.core.queued import queued, reconfigured, settings_of
from tests.core.test_claims import condition
from tests.support.scenario import Cluster, lone

HARD = "queueing: {bound: {groups: 1, mode: hard}}"
_ROOM = "\nqueues: [{name: all, limit: {nvidia.com/gpu: 24}, namespaces: [d]}]"
_NO_ROOM = _ROOM.replace("24", "20")


def large() -> list[Pod]:
    group = SchedulingGroup(pod_group_name="large")
    pods = [make_pod(f"large-{k}", gpus=8) for k in range(2)]
    return [replace(pod, spec=replace(pod.spec, scheduling_group=group)) for pod in pods]


def promised(ours: str = HARD) -> Cluster:
    """A gang of both nodes, with an object, is promised a start; one node is free until then."""
    c = queued(ours, nodes=2).submit(lone("holds", 8, "600s")).run()
    c.object("core", make_pod_group("large", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}))
    c.submit(large()).run().submit(lone("before", 8, "10s")).run().delete("before").run()
    c.submit(lone("passes", 8, "2h")).run().wait(2.0)
    assert condition(c)["reason"] == "Claimed"
    return c.delete("passes").run()


def restarted(c: Cluster, ours: str = HARD) -> Cluster:
    """Another process with this configuration finds the object as the first has written it."""
    written = c.all(ef.WritePodGroupStatus)[-1].status
    c.objects["core", "large"] = replace(c.objects["core", "large"], status=dict(written))
    c.settings = settings_of(ours)[1]
    return c.clear().restart().run().wait(2.0)


OFF = "queueing: {bound: {mode: off}}"


@pytest.mark.parametrize("mode", ["queueing: {bound: {groups: 1, mode: shadow}}", OFF])
def test_where_no_room_is_kept_any_more_the_promise_is_withdrawn(mode: str) -> None:
    c = restarted(promised(), mode)
    assert c.state("large") == "unschedulable"
    assert (condition(c)["status"], condition(c)["reason"]) == ("False", "Withdrawn")


def test_a_start_ends_the_promise_where_no_room_is_kept_any_more() -> None:
    c = restarted(promised().delete("holds"), OFF)
    assert c.placed("large")
    assert condition(c)["reason"] == "Started"


def test_a_promise_is_withdrawn_that_cannot_be_kept() -> None:
    c = promised()
    del c.nodes["n1"]
    assert condition(restarted(c))["reason"] == "Withdrawn"
    c.wait(60.0).node(make_node("n1", gpus=8)).run()
    c.submit(lone("passes", 8, "2h")).run().wait(2.0)
    assert "passes" not in c.bound(), "it was at its bound"
    assert condition(c)["reason"] == "Claimed"


def test_who_is_kept_out_at_first_by_a_limit_has_its_claim_again() -> None:
    c = restarted(promised(HARD + _ROOM), HARD + _NO_ROOM)
    assert "8 of 20 nvidia.com/gpu used, needs 16" in c.said("large-0")
    assert c.claim("large").start_s == 601.0
    reconfigured(c, HARD + _ROOM).run().submit(lone("passes", 8, "2h")).run()
    assert "passes" not in c.bound()
    c.delete("holds").run().wait(2.0)
    assert c.placed("large", on=2)
    assert not c.claims().all
