"""/queues and `gangsched queues`: what each queue holds and is due."""

from __future__ import annotations

import io
import json

import pytest
from msgspec.structs import replace
from rich.console import Console

from gangsched.web.commands.queues import print_queues
from gangsched.web.metrics.queues_families import queues_families
from gangsched.web.pages.answers import QueueShare, QueuesPage
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.queues import queues_page
from tests.core.queued import GPU, pods, queued
from tests.support.scenario import Cluster

TREE = """
queues:
- name: research
  share: 2
  guaranteed: {nvidia.com/gpu: 4}
  limit: {nvidia.com/gpu: 6}
  queues: [{name: nlp, guaranteed: {nvidia.com/gpu: 2}, namespaces: [nlp]}, {name: cv, namespaces: [cv]}]
"""


def page_of(c: Cluster) -> QueuesPage:
    return queues_page(c.scheduler.shared)


def test_each_queue_is_reported_with_all_below_it() -> None:
    c = queued(TREE, gpus=8)
    c.submit(pods("nlp", "n", gpus=4), pods("cv", "v", gpus=2)).run().submit(pods("cv", "w", gpus=2)).run()
    page = json.loads(Queue(c.scheduler).queues())
    rows = {row["queue"]: row for row in page["queues"]}
    assert [*rows] == ["research", "nlp", "cv", "/other"]
    assert (rows["research"]["used"][GPU], rows["research"]["borrowed"]) == (6, {GPU: 2})
    assert (rows["nlp"]["depth"], rows["nlp"]["borrowed"], rows["nlp"]["shareUsed"]) == (1, {GPU: 2}, 0.5)
    assert (rows["research"]["waiting"], rows["cv"]["waiting"], rows["nlp"]["waiting"]) == (1, 1, 0)
    assert (rows["research"]["pods"], rows["/other"]["pods"]) == (2, 0)


def test_the_table_has_a_line_for_each_resource() -> None:
    c = queued(TREE, gpus=8)
    c.submit(pods("nlp", "n", gpus=4)).run()
    out = io.StringIO()
    print_queues(page_of(c), Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert lines[0].split()[:2] == ["QUEUE", "SHARE"]
    assert lines[1].split() == ["research", "2", "50.0%", "0.0%", "0.234", "0", "1", GPU, "4", "4", "-", "6"]
    assert any(line.startswith("  nlp") and line.split()[-4:] == ["2", "4", "2", "-"] for line in lines)


def test_a_queue_that_has_only_pods_has_its_line() -> None:
    """One with a limit of pods alone, and one whose pods ask for nothing."""
    c = queued("queues: [{name: few, limit: {pods: 3}, namespaces: [few]}, {name: bare, namespaces: [bare]}]")
    [bare] = pods("bare", "b", gpus=0)
    asks_nothing = [replace(one, resources=None) for one in bare.spec.containers]
    c.submit(replace(bare, spec=replace(bare.spec, containers=asks_nothing))).run()
    out = io.StringIO()
    print_queues(page_of(c), Console(file=out, width=200))
    _, *lines = (line.split() for line in out.getvalue().splitlines())
    assert [(line[0], *line[5:]) for line in lines] == [
        ("few", "0", "0", "pods", "-", "-", "-", "3"),
        ("bare", "0", "1", "-", "-", "-", "-"),
        ("/other", "0", "0", "-", "-", "-", "-"),
    ]


@pytest.mark.parametrize(
    ("resource", "amount", "told"),
    [
        ("memory", 64 * 2**30, "64Gi"),
        ("memory", 3 * 2**29, "1.5Gi"),
        ("memory", 64 * 2**30 - 1, "63.99Gi"),
        ("memory", 20 * 2**40, "20480Gi"),
        ("memory", 512 * 2**20, "512Mi"),
        ("memory", 1_500_000_000, "1.39Gi"),
        ("memory", 100, "100"),
        ("memory", 0, "0"),
        ("memory", -(3 * 2**29), "-1.5Gi"),
        ("ephemeral-storage", 10 * 2**10, "10Ki"),
        ("hugepages-2Mi", 2**30, "1Gi"),
        ("cpu", 2500, "2500m"),
        ("cpu", 4000, "4"),
        (GPU, 2**30, str(2**30)),
    ],
)
def test_memory_is_reported_as_people_write_it(resource: str, amount: int, told: str) -> None:
    share = QueueShare(
        "research", 0, 1.0, {resource: amount}, {}, {resource: amount}, {}, 1, 0.0, 0.0, 0.0, 0
    )
    out = io.StringIO()
    print_queues(QueuesPage((share,)), Console(file=out, width=200))
    assert out.getvalue().splitlines()[1].split()[-4:] == ["-", told, "-", told]


def test_without_queues_it_says_so() -> None:
    c = queued("")
    assert json.loads(Queue(c.scheduler).queues()) == {"queues": [], "leads": True, "leader": ""}
    out = io.StringIO()
    print_queues(page_of(c), Console(file=out, width=80))
    assert out.getvalue() == "No queues are configured.\n"


def test_metrics_tell_the_same_in_prometheus_units() -> None:
    c = queued(TREE, gpus=8)
    c.submit(pods("nlp", "n", gpus=4)).run().submit(pods("cv", "w", gpus=4)).run()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in queues_families(page_of(c))
        for sample in family.samples
    }
    assert found["gangsched_queue_used", "research", GPU] == 4
    assert found["gangsched_queue_used", "research", "cpu"] == 1
    assert found["gangsched_queue_guaranteed", "nlp", GPU] == 2
    assert found["gangsched_queue_limit", "research", GPU] == 6
    assert found["gangsched_queue_share_used", "nlp"] == 0.5
    assert found["gangsched_queue_waiting", "cv"] == 1
