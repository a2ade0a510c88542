"""What an answer cannot know, in words, with how often it matters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.config import SchedulerConfig
from gangsched.lab.counterfactual.answers.words import duration
from gangsched.lab.counterfactual.day import Day, Ending
from gangsched.lab.counterfactual.gangs import Gang
from gangsched.lab.counterfactual.model import Outcome
from gangsched.model.text.printable import several

_GUESSED = "the limit that their user stated, or the median of the recorded run times that are longer"


def unknowns(
    day: Day,
    gangs: Sequence[Gang],
    model: Outcome,
    changed: Outcome,
    recorded: Sequence[tuple[float, SchedulerConfig]],
    config: SchedulerConfig | None,
) -> list[str]:
    """Returns sentences: general limits first, then those of this day."""
    found = [
        "Whether a job would have run for longer or shorter elsewhere, beside others, or at another time: run"
        " times are as recorded.",
        "Whether users would have sent more, less or something else: what came is as recorded.",
    ]
    found += _run_times(day, gangs, model, changed)
    found += _gaps(day)
    n_before = sum(gang.came_s == 0.0 for gang in gangs)
    if n_before:
        found.append(
            f"How long {several(n_before, 'gang')} had waited before the recording began: they"
            " count from there."
        )
    if day.n_refused:
        found.append(
            f"What {several(day.n_refused, 'bind or eviction', 'binds and evictions')} would have come to,"
            " which failed or had no clear answer: in the model the API server does all at once."
        )
    if day.n_unreadable:
        found.append(
            f"What {several(day.n_unreadable, 'object')} said that could not be read: they are left out."
        )
    every = [*(one for _, one in recorded), *(() if config is None else (config,))]
    if any(one.extenders for one in every):
        found.append("What extenders would have answered: they are not asked, and refuse nothing.")
    missing = [kind for kind in changed.missing if kind not in model.missing]
    if missing:
        names = ", ".join(missing)
        found.append(
            f"Objects of {names}, which the other configuration reads and the journal lacks: none exist."
        )
    if model.n_delayed or changed.n_delayed:
        found.append(
            f"What a user does while a pod of the same name still exists: {several(model.n_delayed, 'pod')}"
            f" without and {changed.n_delayed:,} with the changes came when the earlier one had gone."
        )
    for which, outcome in (("without", model), ("with", changed)):
        if outcome.defects:
            times = several(len(outcome.defects), "time")
            found.append(
                f"What a fault of this program would have done, contained {times} {which} the changes:"
                f" {outcome.defects[0]}"
            )
    return found


def _gaps(day: Day) -> list[str]:
    """Describes all gaps in one sentence."""
    if not day.gaps:
        return []
    lost_s = sum(until_s - from_s for from_s, until_s, _ in day.gaps)
    from_s, until_s, why = max(day.gaps, key=lambda one: one[1] - one[0])
    if len(day.gaps) == 1:
        where = f"{duration(lost_s)} from +{duration(from_s)} on ({why})"
    else:
        where = (
            f"{len(day.gaps):,} gaps, {duration(lost_s)} in all, the longest {duration(until_s - from_s)}"
            f" from +{duration(from_s)} on ({why})"
        )
    return [
        f"What happened while no process recorded: {where}. What came and went then is taken to have done so"
        " when it was seen, and in the model the scheduler ran."
    ]


def _run_times(day: Day, gangs: Sequence[Gang], model: Outcome, changed: Outcome) -> list[str]:
    found = []
    n_running = sum(
        life.bound_s is not None and life.ending is Ending.NOT_ENDED
        for gang in gangs
        for life in (day.lives[uid] for uid in gang.uids)
    )
    if n_running:
        found.append(
            f"When {several(n_running, 'pod')} would have ended that still ran at the end of the"
            f" recording: {_GUESSED}."
        )
    n_lost = sum(life.ending is Ending.CUT_OFF for life in day.lives.values())
    if n_lost:
        found.append(
            f"How much of their work {several(n_lost, 'pod')} kept that were evicted, or whose node went:"
            " they begin anew, with the run time of the pod that was made for them."
        )
    ran = [one for one in changed.courses if changed.courses[one].unknown and day.lives[one].bound_s is None]
    if ran:
        found.append(
            f"How long {several(len(ran), 'pod')} would run that never did in the recording: {_GUESSED}."
        )
    return found
