"""A question about a recorded day, and its answer: every run of the model, and what is not known.

Lives here: the runs and their order. Not here: reading journals and flags (command), running one day (model),
comparing days (compare).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gangsched.config import SchedulerConfig
from gangsched.core.framework.profile import Profile
from gangsched.errors import ConfigError
from gangsched.lab.counterfactual import gangs
from gangsched.lab.counterfactual.answers import compare, unknown
from gangsched.lab.counterfactual.answers.compare import (
    Difference,
    Distribution,
    Figures,
    ModelError,
    Range,
    Start,
)
from gangsched.lab.counterfactual.day import Day
from gangsched.lab.counterfactual.gangs import Gang
from gangsched.lab.counterfactual.model import Outcome, Plan, Sample, as_recorded, run
from gangsched.model.text.printable import clean, several

Build = Callable[[SchedulerConfig], Mapping[str, Profile]]


class Question(msgspec.Struct, frozen=True):
    """What to change. config: None: as recorded. n_seeds: the number of shaken days."""

    config: SchedulerConfig | None = None
    n_added: int = 0
    like: str = ""
    without: Sequence[str] = ()
    n_seeds: int = 5


class Answer(msgspec.Struct, frozen=True):
    """The result. changes: in words. Times in seconds; began_wall_s since 1970. changed_by: each figure with
    the changes minus the same figure without. gangs: the largest difference first.
    """

    began_wall_s: float
    length_s: float
    n_gangs: int
    n_pods: int
    n_there_before: int
    shaken_by_s: float
    changes: Sequence[str]
    recorded: Figures
    model: Figures
    changed: Figures
    error: ModelError
    changed_by: Mapping[str, Range]
    distribution: Distribution
    only_without: Sequence[str]
    only_with: Sequence[str]
    gangs: Sequence[Difference]
    not_known: Sequence[str]


class Drawn(msgspec.Struct, frozen=True):
    """Further data for the picture: the cluster over time, as recorded, in the model, and changed."""

    recorded: Sequence[Sample]
    model: Sequence[Sample]
    changed: Sequence[Sample]


class _Side(msgspec.Struct, frozen=True):
    """One way of running days."""

    plans: Sequence[Plan]
    alter: Callable[[Day], Day]

    def run(self, day: Day) -> tuple[Day, Outcome]:
        altered = self.alter(day)
        return altered, run(altered, self.plans)


def answer(
    day: Day,
    question: Question,
    recorded: Sequence[tuple[float, SchedulerConfig]],
    build: Build,
    tell: Callable[[int, int], None] = lambda done, all_: None,
) -> tuple[Answer, Drawn]:
    """Runs everything. recorded: configurations and their start times; build: makes fresh profiles of one;
    tell: gets the number of runs done and in all. Raises: ConfigError, GangschedError.
    """
    plans = _plans(question, recorded, build, day)
    if question.n_added:
        gangs.with_nodes(day, question.n_added, question.like)  # reports a mistake before any run
    n_runs = 3 + 2 * question.n_seeds
    as_it_was = _Side([_plan(from_s, config, build) for from_s, config in recorded], lambda day: day)
    tell(0, n_runs)
    samples = as_recorded(day, as_it_was.plans[0])
    tell(1, n_runs)
    _, model = as_it_was.run(day)
    found = gangs.gangs_of(day, model)
    if not found:
        raise ConfigError("no pod came in it that names one of the configuration's schedulers")
    other = _Side(plans, lambda day: _altered(day, question, model))
    tell(2, n_runs)
    altered, changed = other.run(day)
    tell(3, n_runs)
    kept = [one for one in found if all(uid in changed.courses for uid in one.uids)]
    shaken = []
    for seed in range(1, question.n_seeds + 1):
        sides = []
        shaken_day = gangs.shaken(day, found, seed)
        for at, side in enumerate((as_it_was, other)):
            sides.append(_side(*side.run(shaken_day), kept))
            tell(2 + 2 * seed + at, n_runs)
        shaken.append((sides[0], sides[1]))
    theirs = compare.starts_recorded(day, kept), samples
    told = _answer(
        day, question, kept, theirs, _side(day, model, kept), _side(altered, changed, kept), shaken
    )
    not_known = unknown.unknowns(day, found, model, changed, recorded, question.config)
    return msgspec.structs.replace(told, not_known=not_known), Drawn(samples, model.samples, changed.samples)


class _Ran(msgspec.Struct, frozen=True):
    starts: Mapping[str, Start]
    figures: Figures


def _side(day: Day, outcome: Outcome, kept: Sequence[Gang]) -> _Ran:
    starts = compare.starts_in(day, kept, outcome)
    return _Ran(starts, compare.figures_of(starts, outcome.samples, outcome.n_evicted))


def _answer(
    day: Day,
    question: Question,
    kept: Sequence[Gang],
    recorded: tuple[Mapping[str, Start], Sequence[Sample]],
    model: _Ran,
    changed: _Ran,
    shaken: Sequence[tuple[_Ran, _Ran]],
) -> Answer:
    starts, samples = recorded
    n_evicted = sum(life.evicted for life in day.lives.values())
    found = compare.differences(
        *(kept, starts, model.starts, changed.starts),
        [(ours.starts, theirs.starts) for ours, theirs in shaken],
    )
    only_without, only_with = compare.only_in(found)
    return Answer(
        began_wall_s=day.began_wall_s,
        length_s=day.length_s,
        n_gangs=len(kept),
        n_pods=sum(one.n_pods for one in kept),
        n_there_before=sum(one.came_s == 0.0 for one in kept),
        shaken_by_s=gangs.shaken_by_s(day),
        changes=_words(question),
        recorded=compare.figures_of(starts, samples, n_evicted),
        model=model.figures,
        changed=changed.figures,
        error=compare.model_error(starts, model.starts),
        changed_by=compare.changes(
            *(model.figures, changed.figures),
            [(ours.figures, theirs.figures) for ours, theirs in shaken],
        ),
        distribution=compare.distribution(found),
        only_without=only_without,
        only_with=only_with,
        gangs=found,
        not_known=(),
    )


def _plan(from_s: float, config: SchedulerConfig, build: Build) -> Plan:
    return Plan(from_s, config, lambda: build(config))


def _plans(
    question: Question, recorded: Sequence[tuple[float, SchedulerConfig]], build: Build, day: Day
) -> Sequence[Plan]:
    """Raises: ConfigError (recorded pods name a scheduler that the new configuration lacks)."""
    if question.config is None:
        return [_plan(from_s, config, build) for from_s, config in recorded]
    names = {one.scheduler_name for one in question.config.profiles}
    for name in sorted({one.scheduler_name for _, config in recorded for one in config.profiles} - names):
        n = gangs.served(day, (name,))
        if n:
            has = ", ".join(sorted(names))
            problem = f"{n} recorded pods name {name}, and no profile has that schedulerName; it has {has}"
            raise ConfigError(problem, source=question.config.source, path="profiles")
    return [_plan(0.0, question.config, build)]


def _altered(day: Day, question: Question, model: Outcome) -> Day:
    if question.n_added:
        day = gangs.with_nodes(day, question.n_added, question.like)
    return gangs.without(day, model, question.without) if question.without else day


def _words(question: Question) -> list[str]:
    found = [f"the configuration {clean(question.config.source)}"] if question.config is not None else []
    if question.n_added:
        found.append(f"{several(question.n_added, 'more node')} like {clean(question.like)}")
    return found + [f"without {clean(name)}" for name in question.without]
