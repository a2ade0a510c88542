"""Metrics of queues. Called by web.metrics.page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from gangsched.web.metrics.families import gauge_family
from gangsched.web.pages.answers import Amounts, QueueShare, QueuesPage

# As elsewhere in metrics: cpu in cores.
_CPU = "cpu"


def queues_families(page: QueuesPage) -> Iterator[Metric]:
    """Metrics of what each queue uses and is entitled to."""

    def by_resource(of: Callable[[QueueShare], Amounts]) -> dict[tuple[str, str], float]:
        return {
            (row.queue, resource): amount / 1000 if resource == _CPU else amount
            for row in page.queues
            for resource, amount in of(row).items()
        }

    def by_queue(of: Callable[[QueueShare], float]) -> dict[tuple[str], float]:
        return {(row.queue,): of(row) for row in page.queues}

    yield gauge_family(
        "gangsched_queue_used",
        "What a queue's pods hold, with all queues below it; cpu in cores.",
        ("queue", "resource"),
        by_resource(lambda row: row.used),
    )
    yield gauge_family(
        "gangsched_queue_guaranteed",
        "What is guaranteed to a queue, as far as the cluster has as much.",
        ("queue", "resource"),
        by_resource(lambda row: row.guaranteed),
    )
    yield gauge_family(
        "gangsched_queue_limit",
        "What a queue may hold at most.",
        ("queue", "resource"),
        by_resource(lambda row: row.limit),
    )
    yield gauge_family(
        "gangsched_queue_share_used",
        "The largest part of the cluster that a queue holds of a compared resource, 0 to 1.",
        ("queue",),
        by_queue(lambda row: row.share_used),
    )
    yield gauge_family(
        "gangsched_queue_share_decayed",
        "The largest part that a queue held lately, decayed by fairness.halfLife.",
        ("queue",),
        by_queue(lambda row: row.share_decayed),
    )
    yield gauge_family(
        "gangsched_queue_waiting",
        "Groups of a queue that have not started.",
        ("queue",),
        by_queue(lambda row: row.waiting),
    )
