"""Metrics of bounds, claims, promised starts and walltimes. Called by web.metrics.page."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from gangsched.core.groups.attempts.forecasts import RATIOS
from gangsched.core.queueing.bypasses import BUCKETS
from gangsched.core.queueing.claims import ERRORS_S
from gangsched.model.text.printable import clean
from gangsched.web.metrics.families import counter_family, gauge_family, histogram_family
from gangsched.web.metrics.measures import Distribution
from gangsched.web.metrics.reading import ClaimsReading, QueueingReading


def queueing_families(reading: QueueingReading) -> Iterator[Metric]:
    """Metrics of passes over groups, and of how many walltimes are known."""
    at_start = Distribution(tuple(map(float, BUCKETS)))
    at_start.counts, at_start.total = [*reading.at_start], reading.total_at_start
    yield histogram_family(
        "gangsched_bypasses",
        "Groups that started in front of one that did not fit at first, by the time it started.",
        (),
        {(): at_start},
    )
    yield gauge_family(
        "gangsched_bypasses_most",
        "The most groups that started in front of one that still waits.",
        (),
        {(): reading.most},
    )
    yield counter_family(
        "gangsched_would_be_claimed",
        "Groups that came to their bound when another group was about to start in front of them.",
        (),
        {(): reading.n_claimed},
    )
    yield gauge_family(
        "gangsched_at_bound", "Groups at their bound that still wait.", (), {(): reading.n_claimed_now}
    )
    yield gauge_family(
        "gangsched_walltime_groups",
        "Groups that have not ended, by the source of their walltime: stated, enforced, predicted, default,"
        " never.",
        ("source",),
        {(source,): n for source, n in reading.walltimes.items()},
    )
    yield counter_family(
        "gangsched_overrun_evictions",
        "Pods evicted as they ran past their walltime: for a claim, or for the walltime alone.",
        ("for",),
        {(what,): n for what, n in reading.overruns.items()},
    )
    ratios = Distribution(RATIOS)
    ratios.counts, ratios.total = [*reading.ratios], reading.total_ratio
    yield histogram_family(
        "gangsched_estimate_ratio",
        "How long groups waited after the first estimate, divided by the estimated wait: 1 is right.",
        (),
        {(): ratios},
    )
    if reading.claims is not None:
        yield from _claims(reading.claims)


def _claims(reading: ClaimsReading) -> Iterator[Metric]:
    """Metrics of room kept for groups at their bound, and of the accuracy of promised starts."""
    yield gauge_family(
        "gangsched_claims",
        "Groups that room is kept for, by whether their start is promised or estimated.",
        ("state",),
        {("promised",): reading.n_promised, ("estimated",): reading.n_estimated},
    )
    yield gauge_family(
        "gangsched_claimed_idle",
        "The share of the cluster's resource that is kept for groups and free, from 0 to 1.",
        ("resource",),
        {(clean(resource),): share for resource, share in reading.idle.items()},
    )
    yield gauge_family(
        "gangsched_claims_too_idle",
        "Groups at their bound whose claim would keep too much idle, in mode budget.",
        (),
        {(): reading.n_too_idle},
    )
    yield counter_family(
        "gangsched_promises",
        "Groups that were promised a start and have started: kept (within 60 s), else why they were late.",
        ("outcome",),
        {(outcome,): n for outcome, n in reading.promises.items()},
    )
    errors = Distribution(ERRORS_S)
    errors.counts, errors.total = [*reading.errors], reading.total_error_s
    yield histogram_family(
        "gangsched_promise_error_seconds",
        "How much later than first promised groups started.",
        (),
        {(): errors},
    )
