"""Compares the recording, the recorded configuration in the model, and the same with changes. Pure.

The difference between the first two is the model's error, the difference between the last two its claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

import msgspec

from gangsched.lab.bench.figures import percentile
from gangsched.lab.counterfactual.day import Day
from gangsched.lab.counterfactual.gangs import Gang
from gangsched.lab.counterfactual.model import Outcome, Sample

SAME_S = 1.0
"""Starts no farther apart than this count as the same."""


class Figures(msgspec.Struct, frozen=True):
    """Figures of a day. Waits of gangs that did not start last until the end of the recording, or until they
    were withdrawn. used, split: means over time, as in Sample; a split of None counts as 0.
    """

    mean_wait_s: float
    p95_wait_s: float
    n_started: int
    n_not_started: int
    n_evicted: int
    used: float
    split: float


class Range(msgspec.Struct, frozen=True):
    """A difference on the unshaken day, and its least and greatest value over n shaken days."""

    value: float
    low: float
    high: float
    n: int


class Start(msgspec.Struct, frozen=True):
    """One gang: when it started, None if it did not, and how long it waited, until the end in that case."""

    started_s: float | None
    wait_s: float


class Difference(msgspec.Struct, frozen=True):
    """One gang; by_s: how much longer it waits with the changes than without, both in the model."""

    gang: str
    n_pods: int
    came_s: float
    recorded: Start
    model: Start
    changed: Start
    by_s: Range


class Distribution(msgspec.Struct, frozen=True):
    """How starts moved, for gangs that started in both: totals in seconds, percentiles of differences."""

    n_earlier: int
    n_later: int
    n_same: int
    earlier_s: float
    later_s: float
    p5_s: float
    median_s: float
    p95_s: float


class ModelError(msgspec.Struct, frozen=True):
    """The recorded configuration in the model against the recording. n_both: gangs started in both.

    within_1s: the share of them that started within a second of the recorded time. only_*: names.
    """

    n_both: int
    within_1s: float
    median_s: float
    p95_s: float
    largest_s: float
    only_recorded: Sequence[str]
    only_model: Sequence[str]


def starts_recorded(day: Day, gangs: Sequence[Gang]) -> dict[str, Start]:
    """Returns the recorded starts, by the gang's name."""
    found = {}
    for gang in gangs:
        lives = [day.lives[uid] for uid in gang.uids]
        bound = [one.bound_s for one in lives if one.bound_s is not None]
        gone = [one.gone_s for one in lives if one.gone_s is not None]
        found[gang.name] = _start(gang.came_s, bound, gone, day.length_s)
    return found


def starts_in(day: Day, gangs: Sequence[Gang], outcome: Outcome) -> dict[str, Start]:
    """Returns the starts of gangs in an outcome; `day`: the one that was run, which may be shaken."""
    found = {}
    for gang in gangs:
        courses = [outcome.courses[uid] for uid in gang.uids if uid in outcome.courses]
        if courses:
            bound = [one.bound_s for one in courses if one.bound_s is not None]
            gone = [one.gone_s for one in courses if one.gone_s is not None]
            came_s = min(one.came_s for one in courses)
            found[gang.name] = _start(came_s, bound, gone, day.length_s)
    return found


def _start(came_s: float, bound: Sequence[float], gone: Sequence[float], end_s: float) -> Start:
    if bound:
        return Start(min(bound), max(min(bound) - came_s, 0.0))
    return Start(None, max((max(gone) if gone else end_s) - came_s, 0.0))


def figures_of(starts: Mapping[str, Start], samples: Sequence[Sample], n_evicted: int) -> Figures:
    """Computes the figures over all these gangs."""
    waits = [one.wait_s for one in starts.values()]
    n_started = sum(one.started_s is not None for one in starts.values())
    return Figures(
        mean_wait_s=fmean(waits) if waits else 0.0,
        p95_wait_s=percentile(waits, 0.95) if waits else 0.0,
        n_started=n_started,
        n_not_started=len(waits) - n_started,
        n_evicted=n_evicted,
        used=fmean(one.used for one in samples),
        split=fmean(one.split or 0.0 for one in samples),
    )


def changes(model: Figures, changed: Figures, shaken: Sequence[tuple[Figures, Figures]]) -> dict[str, Range]:
    """Returns each figure's difference, by its name; shaken: both sides of each shaken day."""
    found = {}
    for name in Figures.__struct_fields__:
        by = [getattr(theirs, name) - getattr(ours, name) for ours, theirs in shaken]
        value = getattr(changed, name) - getattr(model, name)
        found[name] = Range(value, min(by, default=value), max(by, default=value), len(by))
    return found


def differences(
    gangs: Sequence[Gang],
    recorded: Mapping[str, Start],
    model: Mapping[str, Start],
    changed: Mapping[str, Start],
    shaken: Sequence[tuple[Mapping[str, Start], Mapping[str, Start]]],
) -> list[Difference]:
    """Returns differences of the gangs that are in all of them, the largest first."""
    found = []
    for gang in gangs:
        name = gang.name
        if name not in changed:
            continue
        value = changed[name].wait_s - model[name].wait_s
        by = [theirs[name].wait_s - ours[name].wait_s for ours, theirs in shaken]
        by_s = Range(value, min(by, default=value), max(by, default=value), len(by))
        sides = (recorded[name], model[name], changed[name])
        found.append(Difference(name, gang.n_pods, gang.came_s, *sides, by_s))
    return sorted(found, key=lambda one: (-abs(one.by_s.value), one.came_s, one.gang))


def distribution(found: Sequence[Difference]) -> Distribution:
    """Returns the distribution over gangs that started in both."""
    by = [
        one.by_s.value
        for one in found
        if one.model.started_s is not None and one.changed.started_s is not None
    ]
    earlier = [-one for one in by if one < -SAME_S]
    later = [one for one in by if one > SAME_S]
    shares = [percentile(by, share) if by else 0.0 for share in (0.05, 0.5, 0.95)]
    n_same = len(by) - len(earlier) - len(later)
    return Distribution(len(earlier), len(later), n_same, sum(earlier), sum(later), *shares)


def model_error(recorded: Mapping[str, Start], model: Mapping[str, Start]) -> ModelError:
    """Returns how far the model is from the recording."""
    both = [
        abs(one.wait_s - model[name].wait_s)
        for name, one in recorded.items()
        if one.started_s is not None and model[name].started_s is not None
    ]
    return ModelError(
        n_both=len(both),
        within_1s=sum(one <= SAME_S for one in both) / len(both) if both else 1.0,
        median_s=median(both) if both else 0.0,
        p95_s=percentile(both, 0.95) if both else 0.0,
        largest_s=max(both, default=0.0),
        only_recorded=_only(recorded, model),
        only_model=_only(model, recorded),
    )


def _only(one: Mapping[str, Start], other: Mapping[str, Start]) -> list[str]:
    """Returns gangs that started in the first but not in the second."""
    return [
        name
        for name, start in one.items()
        if start.started_s is not None and name in other and other[name].started_s is None
    ]


def only_in(found: Sequence[Difference]) -> tuple[list[str], list[str]]:
    """Returns gangs that started only without the changes, and only with them."""
    model = [one.gang for one in found if one.changed.started_s is None and one.model.started_s is not None]
    changed = [one.gang for one in found if one.model.started_s is None and one.changed.started_s is not None]
    return model, changed
