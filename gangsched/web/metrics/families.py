"""Families: one metric's values by their labels, as prometheus_client writes them. Called by
web.metrics.page.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Exemplar

from gangsched.web.metrics.measures import Distribution

Labels = tuple[str, ...]
KeyT = TypeVar("KeyT", bound=Labels)


def counter_family(name: str, about: str, labels: Labels, values: Mapping[KeyT, float]) -> Metric:
    """A counter: values by their label values, which only grow."""
    family = CounterMetricFamily(name, about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def gauge_family(name: str, about: str, labels: Labels, values: Mapping[KeyT, float]) -> Metric:
    """A gauge: values by their label values."""
    family = GaugeMetricFamily(name, about, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram_family(name: str, about: str, labels: Labels, values: Mapping[KeyT, Distribution]) -> Metric:
    """A histogram: distributions by their label values; a bucket carries the trace of one of its
    observations."""
    family = HistogramMetricFamily(name, about, labels=labels)
    for key, of in values.items():
        bounds = [*(repr(bound).removesuffix(".0") for bound in of.bounds), "+Inf"]
        counts = zip(bounds, accumulate(of.counts), strict=True)
        buckets = [_bucket(of, i, bound, n) for i, (bound, n) in enumerate(counts)]
        family.add_metric(key, buckets, of.total)
    return family


def _bucket(
    of: Distribution, i: int, bound: str, count: int
) -> tuple[str, float] | tuple[str, float, Exemplar]:
    traced = of.exemplars.get(i)
    return (bound, count) if traced is None else (bound, count, Exemplar({"trace_id": traced[0]}, traced[1]))
