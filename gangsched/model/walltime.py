"""Walltime: how long a pod or a group runs, as its annotations, a label or a field state it.

Lives here: what one object states, and what is wrong with it. Not here: predictions and defaults, and a
gang's walltime as derived from its members' (core.queueing.walltimes). An unreadable statement never makes a
pod unschedulable: it counts as not stated, and is reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from gangsched.errors import ParseError
from gangsched.model.dialects.numbers import parse_duration_s
from gangsched.model.objects import ObjectMeta, Pod

WALLTIME_KEY = "gangsched.io/walltime"
SLURM_WALLTIME_KEY = "slurmjob.slinky.slurm.net/timelimit"
KUEUE_WALLTIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
DEADLINE_FIELD = "spec.activeDeadlineSeconds"

WALLTIME_ANNOTATIONS = frozenset((WALLTIME_KEY, SLURM_WALLTIME_KEY))

Source = Literal["stated", "enforced", "predicted", "default", "never"]
SOURCES: tuple[Source, ...] = ("stated", "enforced", "predicted", "default", "never")
"""The highest precedence first."""

LATEST_S = 400 * 366 * 86_400.0
"""A time as far ahead as this is in no calendar, and is not shown as a date."""

# Pods of these controllers are replaced when they end, and those of a node (mirror pods) return with it: such
# a pod frees nothing when it ends.
_ENDLESS = frozenset(("ReplicaSet", "DaemonSet", "Node"))
_WHOLE = re.compile(r"[0-9]{1,9}")


class Walltime(msgspec.Struct, frozen=True, gc=False):
    """How long a pod or a group runs, as far as known. seconds: inf if it never ends. field: where it is
    stated. problems: fields that could not be read."""

    seconds: float = math.inf
    source: Source = "never"
    field: str = ""
    problems: tuple[str, ...] = ()


def pod_walltime(pod: Pod) -> Walltime:
    """Reads the pod's own walltime. With both a statement and a deadline, the shorter one ends the pod."""
    for owner in pod.metadata.owner_references or ():
        if owner.controller and owner.kind in _ENDLESS:
            return Walltime(field=f"its {owner.kind} replaces pods that end")
    stated = stated_walltime(pod.metadata.labels, pod.metadata.annotations)
    deadline = pod.spec.active_deadline_seconds
    if deadline is None or not 0 < deadline < stated.seconds:
        return stated
    return Walltime(float(deadline), "enforced", DEADLINE_FIELD, stated.problems)


def states_walltime(meta: ObjectMeta) -> bool:
    """Whether a pod's metadata has a key that states its walltime, whatever it says."""
    labels, annotations = meta.labels, meta.annotations
    if annotations and not WALLTIME_ANNOTATIONS.isdisjoint(annotations):
        return True
    return labels is not None and KUEUE_WALLTIME_LABEL in labels


def stated_walltime(labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> Walltime:
    """Reads the walltime in an object's metadata; of several, the first readable one."""
    problems: list[str] = []
    for name, key, read in _STATEMENTS:
        found = labels if name == "labels" else annotations
        text = found.get(key) if found else None
        if text is not None:
            where = f"metadata.{name}: {key}"
            try:
                return Walltime(read(text, where), "stated", where, tuple(problems))
            except ParseError as error:
                problems.append(str(error))
    return Walltime(problems=tuple(problems)) if problems else _UNSTATED


def _counted(unit_s: int, unit: str) -> Callable[[str, str], float]:
    def read(text: str, where: str) -> float:
        if not _WHOLE.fullmatch(text) or not int(text):
            raise ParseError(f"{text[:80]!r} is not a whole number of {unit} above 0", field=where)
        return float(int(text) * unit_s)

    return read


_UNSTATED = Walltime()
_STATEMENTS: tuple[tuple[str, str, Callable[[str, str], float]], ...] = (
    ("annotations", WALLTIME_KEY, parse_duration_s),
    ("annotations", SLURM_WALLTIME_KEY, _counted(60, "minutes")),
    ("labels", KUEUE_WALLTIME_LABEL, _counted(1, "seconds")),
)
