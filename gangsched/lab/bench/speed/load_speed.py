"""Part of `bench --core`: RemainingBandwidth and LoadAware over 5,000 nodes, asked each time.

The plugins are called as core.framework.profile calls them for a template that it has not seen, so nothing
that a profile keeps between cycles helps; between two calls a node reports new figures. Run by core_speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

import msgspec
import numpy as np

from gangsched.core.cache.cache import Cache
from gangsched.core.framework.interface import CycleState
from gangsched.lab.bench.rounds.workload import node_document
from gangsched.model.objects import Node, Pod
from gangsched.model.stated.bandwidth import (
    MEGABYTE,
    REMAINING_KEY,
    REQUIRED_KEY,
    RemainingBandwidth,
    remaining_annotation,
)
from gangsched.model.stated.load import LOAD_KEY, NodeLoad, Performance, Utilisation, load_annotation
from gangsched.plugins.resources import load_aware, remaining_bandwidth

N_NODES = 5000
_N_ASKED = 300
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


class LoadSpeed(msgspec.Struct):
    """Medians over many calls, microseconds."""

    bandwidth_filter_us: float
    bandwidth_score_us: float
    load_score_us: float

    @property
    def total_us(self) -> float:
        """All three."""
        return self.bandwidth_filter_us + self.bandwidth_score_us + self.load_score_us


def measure() -> LoadSpeed:
    """Measures in this process."""
    bandwidth, load = remaining_bandwidth.RemainingBandwidth(), load_aware.LoadAware()
    cache = Cache(node_capacity=N_NODES)
    cache.keep_usage_trackers([bandwidth.usage_tracker, load.usage_tracker])
    for i in range(N_NODES):
        cache.put_node(measured_node(i))
    state, view = CycleState(), cache.view
    template = cache.template_of(_pod())
    bandwidth.pre_filter(state, template, view)
    room = bandwidth.capacity(state, template, view)
    assert room is not None
    rows = np.flatnonzero(room > 0)
    calls: list[Callable[[], Any]] = [
        lambda: bandwidth.capacity(state, template, view),
        lambda: bandwidth.score(state, template, view, rows),
        lambda: load.score(state, template, view, rows),
    ]
    return LoadSpeed(*(_median_us(call, cache, round_) for round_, call in enumerate(calls, start=1)))


def _median_us(call: Callable[[], Any], cache: Cache, round_: int) -> float:
    lasted = []
    for i in range(_N_ASKED):
        cache.put_node(measured_node(i, round_=round_))
        began_s = time.perf_counter()
        call()
        lasted.append(time.perf_counter() - began_s)
    return median(lasted) * 1e6


def measured_node(i: int, *, round_: int = 0) -> Node:
    """Makes a node with measured loads; every fifth is too busy for the pod."""
    document = node_document(i, 8)
    total = 1250 * MEGABYTE
    left = total * (1 + i % 5) // 5 - total // 10 + round_ * MEGABYTE
    share = ((i + round_) % 97) / 100
    performance = Performance(
        cores=16 + i % 3 * 16, mhz=2500, memory_bytes=64e9, network_mbps=1250, disk_mbps=500
    )
    load = NodeLoad(Utilisation(share, share / 2, share / 3, share / 4), performance, _WHEN)
    document["metadata"] |= {
        "uid": f"node-uid-{i}",
        "annotations": {
            REMAINING_KEY: remaining_annotation(RemainingBandwidth(left, left, total, _WHEN)),
            LOAD_KEY: load_annotation(load),
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def _pod() -> Pod:
    metadata = {"name": "p", "namespace": "default", "uid": "p", "annotations": {REQUIRED_KEY: "200MB/s"}}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}, Pod)
