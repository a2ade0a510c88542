"""The run as a picture: which job held which device when, and how long jobs of each size waited. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gangsched.lab.bench import svg
from gangsched.lab.bench.queueing.report import OURS, Drawn
from gangsched.lab.bench.queueing.traces.jobs import Job

_WIDTH, _LEFT, _TOP = 980.0, 56.0, 96.0
_CHART_Y, _BARS_Y = 300.0, 170.0
_SIZES = ((1, 1), (2, 4), (5, 16), (17, 64), (65, 10**9))
_MIN_WAIT_S, _MAX_WAIT_S = 10.0, 1e6
_TICKS = ((60.0, "1 min"), (3600.0, "1 h"), (86_400.0, "1 d"))


def picture(drawn: Drawn) -> str:
    """One SVG of one seed."""
    plot = _WIDTH - 2 * _LEFT
    bars_top = _TOP + _CHART_Y + 92
    height = bars_top + _BARS_Y + 84
    span_s = max(at_s + job.run_s for job, at_s in _started(drawn))
    title = f"{len(drawn.workload.jobs)} jobs on {drawn.workload.n_devices} devices"
    parts = [
        svg.text(_LEFT, 34, title, size=17),
        svg.text(
            *(_LEFT, 57),
            f"{drawn.workload.source}, by {OURS}: a row a device, a colour a size; {span_s / 3600:.0f} hours",
            size=12.5,
            colour=svg.DIM,
        ),
        *_sizes_legend(_TOP - 12),
        *_gantt(drawn, span_s, plot),
        svg.line(_LEFT, _TOP + _CHART_Y, plot),
        *_hours(span_s, plot, _TOP + _CHART_Y + 16),
        svg.text(_LEFT, bars_top - 26, "Mean wait by size, logarithmic", size=14),
        *_waits(drawn, bars_top, plot),
    ]
    return svg.document(_WIDTH, height, "Jobs on devices, and waits by size", parts)


def _started(drawn: Drawn) -> Iterator[tuple[Job, float]]:
    return zip(drawn.workload.jobs, drawn.starts[OURS].at_s, strict=True)


def _gantt(drawn: Drawn, span_s: float, plot: float) -> Iterator[str]:
    rows = {device: row for row, device in enumerate(_devices(drawn))}
    step = _CHART_Y / len(rows)
    for (job, at_s), devices in zip(_started(drawn), drawn.starts[OURS].devices, strict=True):
        x, width = _LEFT + plot * at_s / span_s, plot * job.run_s / span_s
        if width < 0.15:
            continue
        for first, last in _stretches(sorted(rows[device] for device in devices)):
            y, high = _TOP + step * first, step * (last - first + 1)
            yield svg.bar(x, y, width, high, _colour(job.n_devices), round_px=0)


def _devices(drawn: Drawn) -> Sequence[str]:
    """Node by node, in the order in which they were first used; those never used have no row."""
    found: dict[str, dict[str, None]] = {}
    for devices in drawn.starts[OURS].devices:
        for device in devices:
            found.setdefault(device.partition("/")[0], {})[device] = None
    return [device for name in sorted(found) for device in found[name]]


def _stretches(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = rows[0]
    for row in rows[1:]:
        if row != last + 1:
            yield first, last
            first = row
        last = row
    yield first, last


def _hours(span_s: float, plot: float, y: float) -> Iterator[str]:
    every_h = next(h for h in (1, 6, 12, 24, 48, 96, 168, 336, 672, 10_000) if span_s / 3600 / h <= 12)
    for h in range(0, int(span_s / 3600) + 1, every_h):
        words = f"{h // 24} d" if h and every_h % 24 == 0 else f"{h} h"
        yield svg.text(_LEFT + plot * h * 3600 / span_s, y, words, size=11, anchor="middle", colour=svg.DIM)


def _sizes_legend(y: float) -> Iterator[str]:
    for k, (low, high) in enumerate(_SIZES):
        words = _size_text(low, high)
        yield from svg.key(_LEFT + 150.0 * k, y, words, svg.COLOURS[k + 1], ink=svg.DIM)


def _size_text(low: int, high: int) -> str:
    if low == high:
        return f"{low} device"
    return f"{low} to {high} devices" if high < 10**9 else f"{low} devices and more"


def _colour(n_devices: int) -> str:
    return svg.COLOURS[1 + next(k for k, (low, high) in enumerate(_SIZES) if low <= n_devices <= high)]


def _waits(drawn: Drawn, top: float, plot: float) -> Iterator[str]:
    floor = top + _BARS_Y
    yield svg.line(_LEFT, floor, plot)
    for seconds, words in _TICKS:
        y = floor - _BARS_Y * _share(seconds)
        yield svg.line(_LEFT, y, plot)
        yield svg.text(_LEFT - 8, y + 4, words, size=11, anchor="end", colour=svg.DIM)
    means = _means(drawn)
    colours = dict(zip(means, (svg.COLOURS * 2)[: len(means)], strict=True))
    group = plot / len(_SIZES)
    width = group * 0.84 / len(means)
    for k, (low, high) in enumerate(_SIZES):
        yield svg.text(
            *(_LEFT + group * (k + 0.5), floor + 17),
            _size_text(low, high),
            size=11.5,
            anchor="middle",
            colour=svg.DIM,
        )
        for i, (policy, by_size) in enumerate(means.items()):
            if (mean_s := by_size[k]) is not None:
                high_px = _BARS_Y * _share(mean_s)
                x = _LEFT + group * (k + 0.08) + width * i
                yield svg.bar(x + 1, floor - high_px, max(width - 2, 1), high_px, colours[policy])
    for i, (policy, colour) in enumerate(colours.items()):
        yield from svg.key(_LEFT + plot / len(colours) * i, floor + 48, policy, colour)


def _share(seconds: float) -> float:
    within = min(max(seconds, _MIN_WAIT_S), _MAX_WAIT_S)
    return math.log(within / _MIN_WAIT_S) / math.log(_MAX_WAIT_S / _MIN_WAIT_S)


def _means(drawn: Drawn) -> Mapping[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for policy, starts in drawn.starts.items():
        found[policy] = []
        for low, high in _SIZES:
            waits = [
                at_s - job.arrival_s
                for job, at_s in zip(drawn.workload.jobs, starts.at_s, strict=True)
                if low <= job.n_devices <= high
            ]
            found[policy].append(sum(waits) / len(waits) if waits else None)
    return found
