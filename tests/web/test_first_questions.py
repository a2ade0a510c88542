"""What a newcomer reads first: gangs that can never be complete, gangs that have ended, lost nodes."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import at, make_node
from gangsched.model import events as ev
from gangsched.model.objects import OwnerReference, Pod
from gangsched.model.owners import READ_KINDS, Owner
from gangsched.web.commands.explain import print_page
from gangsched.web.commands.gang_start import start_of
from gangsched.web.commands.gangs import gangs_of
from gangsched.web.commands.story import print_story
from gangsched.web.pages.explanations import Page
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.stories import story_of
from tests.support.scenario import Cluster, cluster, gang


def read(kind: str, spec: dict[str, Any], name: str = "minbig") -> Owner:
    """As the API server's JSON is read."""
    known = READ_KINDS[kind]
    item = {"kind": kind, "metadata": {"name": name, "namespace": "d", "uid": f"u-{name}"}, "spec": spec}
    return known.read(msgspec.json.decode(json.dumps(item), type=known.wire))


def made_by(owner: Owner, pods: list[Pod]) -> list[Pod]:
    named = owner.named
    reference = OwnerReference("v1", named.kind, named.name, owner.uid, controller=True)
    return [replace(p, metadata=replace(p.metadata, owner_references=(reference,))) for p in pods]


def printed(c: Cluster, name: str) -> str:
    """What `gangsched explain` prints of it."""
    group = c.group(name)
    out = io.StringIO()
    page = Page(leads=True, explanation=explain(c.scheduler, group, c.now_s), moves=(), trace="")
    print_page(page, Console(file=out, width=1000))
    return out.getvalue()


CONTROLLERS = [
    ("Job", {"parallelism": 4, "completions": 4}, "Job minbig makes 4 at once (parallelism, completions)"),
    ("Job", {"parallelism": 8, "completions": 4}, "Job minbig makes 4 at once (parallelism, completions)"),
    ("StatefulSet", {"replicas": 4}, "StatefulSet minbig makes 4 at once (replicas)"),
    (
        "JobSet",
        {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2}}}]},
        "JobSet minbig makes 4 at once (replicas x parallelism)",
    ),
    (
        "LeaderWorkerSet",
        {"replicas": 2, "leaderWorkerTemplate": {"size": 2}},
        "LeaderWorkerSet minbig makes 4 at once (replicas x size)",
    ),
    (
        "RayCluster",
        {"workerGroupSpecs": [{"groupName": "w", "replicas": 3}]},
        "RayCluster minbig makes 4 at once (replicas)",
    ),
    (
        "MPIJob",
        {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 3}}},
        "MPIJob minbig makes 4 at once (replicas)",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "told"), CONTROLLERS)
def test_a_minimum_above_what_its_controller_makes_is_named_with_both_numbers(
    kind: str, spec: dict[str, Any], told: str
) -> None:
    owner = read(kind, spec)
    c = cluster(nodes=4)
    c.tell(ev.OwnerPut(owner))
    c.submit(made_by(owner, gang("minbig", pods=4, gpus=1, min_members=8))).run()
    text = printed(c, "minbig")
    assert "d/minbig: 4 of 8 members exist, 4 are missing. No more will come as it is written." in text
    assert f"To do: gangsched.io/min-members is 8 and {told}: set them equal, or create" in text
    assert "ResourceQuota" not in text


def test_a_controller_that_makes_enough_or_may_make_more_is_asked_about_its_events() -> None:
    growing = {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"groupName": "w", "replicas": 3}]}
    for kind, spec in (("Job", {"parallelism": 8, "completions": 8}), ("RayCluster", growing)):
        owner = read(kind, spec)
        c = cluster(nodes=4)
        c.tell(ev.OwnerPut(owner))
        c.submit(made_by(owner, gang("minbig", pods=4, gpus=1, min_members=8))).run()
        text = printed(c, "minbig")
        assert "No more will come" not in text
        assert "creates its pods: see whether it could" in text


def test_two_controllers_of_one_gang_are_added_up() -> None:
    c = cluster(nodes=4)
    pods = gang("both", pods=4, gpus=1, min_members=8)
    for name, some in (("a", pods[:2]), ("b", pods[2:])):
        owner = read("Job", {"parallelism": 2, "completions": 2}, name)
        c.tell(ev.OwnerPut(owner))
        c.submit(made_by(owner, some))
    assert "and Job a, Job b make 4 at once (" in printed(c.run(), "both")


def ended(*phases: str) -> Cluster:
    c = cluster(nodes=2).submit(gang("ok", pods=len(phases), gpus=1)).run()
    for number, phase in enumerate(phases):
        c.phase(f"ok-{number}", phase)
    return c.run()


@pytest.mark.parametrize(
    ("phases", "answer", "state"),
    [
        (
            ("Succeeded",) * 2,
            "d/ok: It has ended: 2 of 2 members have succeeded.\nsucceeded; bound ",
            "succeeded",
        ),
        (
            ("Succeeded", "Failed"),
            "d/ok: It has ended: 1 of 2 members has succeeded, 1 has failed.",
            "failed",
        ),
        (("Failed",) * 2, "d/ok: It has ended: 2 of 2 members have failed.", "failed"),
        (
            ("Succeeded", "Running"),
            "d/ok: It has started: 2 of 2 members are bound; 1 has succeeded.",
            "running",
        ),
    ],
)
def test_a_gang_that_has_ended_is_not_called_bound(phases: tuple[str, ...], answer: str, state: str) -> None:
    c = ended(*phases)
    text = printed(c, "ok")
    assert text.startswith(answer), text
    [row] = gangs_of(c.scheduler, at(c.now_s))
    assert row.state == state
    [group] = c.groups()
    out = io.StringIO()
    print_story(story_of(group, c.now_s, 0.0), Console(file=out, width=200))
    first = out.getvalue().splitlines()[0]
    told = explain(c.scheduler, group, c.now_s)
    if state == "running":
        assert first.startswith("d/ok has been bound for ")
        return
    assert first.startswith(f"d/ok has {state}; it was bound ")
    assert " bound, " not in text
    if told.state == "bound":
        assert start_of(told, None, at(c.now_s)).text == "it has started, and has ended"
    if state == "failed":
        assert "To do: See why pod ok-" in text
        assert "kubectl -n d logs ok-" in text


def test_a_gang_all_of_which_failed_waits_for_others_and_says_so() -> None:
    c = ended("Failed", "Failed")
    assert "It waits for others in their place: 0 of 2 members exist, 2 are missing." in printed(c, "ok")
    [row] = json.loads(Queue(c.scheduler, clock_s=lambda: c.now_s).as_json(""))["rows"]
    assert row["why"] == "2 have failed; 0 of 2 members exist"


def test_waiting_is_not_called_useless_above_a_node_to_bring_back() -> None:
    c = cluster(nodes=1)
    cordoned = make_node("n8")
    c.node(replace(cordoned, spec=replace(cordoned.spec, unschedulable=True)))
    c.submit(gang("train", pods=2, gpus=8)).run()
    text = printed(c, "train")
    assert "Waiting does not help" not in text
    assert text.index("To do: Uncordon node n8 ") < text.index("To do: Or add 1 such node (")
