"""A pod's index: the number that its controller has given it among its siblings.

Lives here: reading it. Not here: which place it gets by it (core.cycle.ranks). Sources: the Job controller's
completion index, JobSet's job index, LeaderWorkerSet's worker index, StatefulSet's pod index.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.objects import ObjectMeta
from gangsched.model.owners.job_sets import ROLE_KEY
from gangsched.model.owners.jobs import INDEX_KEY as COMPLETION_KEY
from gangsched.model.owners.leader_worker_sets import REPLICA_KEY, WORKER_KEY

JOB_INDEX_KEY = "jobset.sigs.k8s.io/job-index"
POD_INDEX_KEY = "apps.kubernetes.io/pod-index"

_LABELS = (COMPLETION_KEY, WORKER_KEY, POD_INDEX_KEY)
# A longer number is no index.
_MAX_DIGITS = 10
_NOTHING: Mapping[str, str] = {}
_DIGITS = "0123456789"
# What the API server appends to a generateName, as x7k25: so many of these, of which no words are made.
# Source: k8s.io/apiserver `pkg/storage/names/generate.go`, apimachinery `pkg/util/rand`.
_N_RANDOM = 5
_RANDOM = frozenset("bcdfghjklmnpqrstvwxz2456789")

Index = tuple[str, int, int]
"""By it siblings are sorted: what it counts within, its owner's name or the rest of its own; the number of
its Job or replica there; its number."""


def states_index(meta: ObjectMeta) -> bool:
    """Whether its labels, or a Job's annotation, state an index, readable or not."""
    labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
    return not labels.keys().isdisjoint(_LABELS) or COMPLETION_KEY in annotations


def index_of(meta: ObjectMeta, *, is_stated: bool) -> Index | None:
    """Returns what labels, or a Job's annotation, state (is_stated: whether `states_index`); else the number
    at the name's end; None: neither."""
    if is_stated and (stated := _stated(meta, meta.labels or _NOTHING)) is not None:
        return stated
    name = meta.name
    series, _, last = name.rpartition("-")
    if last.isdecimal() and len(last) <= _MAX_DIGITS:  # as most controllers number them
        return series, 0, int(last)
    series = name.rstrip(_DIGITS)
    n_digits = len(name) - len(series)
    if not 0 < n_digits <= _MAX_DIGITS or _is_drawn(series, name):
        return None
    return series, 0, int(name[-n_digits:])


def _stated(meta: ObjectMeta, labels: Mapping[str, str]) -> Index | None:
    completion = labels.get(COMPLETION_KEY) or (meta.annotations or _NOTHING).get(COMPLETION_KEY)
    if completion is not None:
        job = _number(labels.get(JOB_INDEX_KEY))
        return _index(_owner(meta) if job is None else labels.get(ROLE_KEY, ""), job or 0, completion)
    if (worker := labels.get(WORKER_KEY)) is not None:
        return _index("", _number(labels.get(REPLICA_KEY)) or 0, worker)
    return _index(_owner(meta), 0, labels.get(POD_INDEX_KEY))


def _is_drawn(series: str, name: str) -> bool:
    """Whether the number is part of a random suffix."""
    if not series or series[-1] == "-":
        return False
    last = name.rpartition("-")[2]
    return len(last) == _N_RANDOM and _RANDOM.issuperset(last)


def _index(series: str, outer: int, text: str | None) -> Index | None:
    number = _number(text)
    return None if number is None else (series, outer, number)


def _number(text: str | None) -> int | None:
    if not text or len(text) > _MAX_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return int(text)


def _owner(meta: ObjectMeta) -> str:
    return next((one.name for one in meta.owner_references or () if one.controller), "")
