"""Which running groups hold what a refused group lacks, and when each is due to end by its walltime.

Bounded: only the nodes that nearly fit are looked at. The times come from the pods, so nothing here reads a
clock; a time that has passed is shown as stated. Called for the condition if the configuration has
`queueing`, and always by core.explaining.explain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

import numpy as np

from gangsched.core.cycle.shortage import Lack, lacks
from gangsched.core.framework.plan import Shortage
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.states import MemberState
from gangsched.core.why import MAX_NAMED, Why, minute
from gangsched.core.why.nodes import HeldBy, HeldUntil
from gangsched.model.walltime import Walltime

_MAX_ROWS = 64
_MAX_PODS = 1_000
_MAX_MEMBERS = 10_000
# Kubelet admits pods some seconds after they are reserved.
_ABOUT = timedelta(minutes=1)
_BY_PROMISE = "by the walltime that a promised start rests on"
_HOW = {
    "stated": "by its walltime",
    "enforced": "by its activeDeadlineSeconds",
    "predicted": "by its last runs",
    "default": "by the default walltime",
}


Latest = Callable[[Group], datetime | None]
"""The end of a group that a promise rests on, whatever the group states now; None: no promise does."""


class ExpectedEnds:
    """Makes sentences for groups; thousands that wait for the same nodes in a row get the same ones."""

    def __init__(self) -> None:
        self._asked: tuple[object, ...] = ()
        self._answer: tuple[Why, ...] = ()

    def sentences(
        self, short: Shortage, walltimes: Walltimes, revision: Hashable, latest: Latest
    ) -> Sequence[Why]:
        """Names groups that hold what is short and whose end is known, the soonest first. revision: changes
        with pods on nodes, and with what is known about them."""
        for lack in islice(lacks(short), 1):
            rows = _nearest(lack)
            asked = (revision, lack.resource, rows.tobytes())
            if asked != self._asked:
                self._asked, self._answer = asked, tuple(_sentences(lack, rows, short, walltimes, latest))
            return self._answer
        return ()


def _sentences(
    lack: Lack, rows: IntArray, short: Shortage, walltimes: Walltimes, latest: Latest
) -> Iterator[Why]:
    if found := _holders(lack.resource, rows, short, walltimes, latest):
        yield HeldUntil(lack.resource, tuple(found[:MAX_NAMED]), max(len(found) - MAX_NAMED, 0))


def _nearest(lack: Lack) -> IntArray:
    """Rows of the nodes with most of the scarce resource free, though too little."""
    rows = np.flatnonzero(lack.rows)
    nearest: IntArray = rows[np.argsort(-lack.free[rows], kind="stable")][:_MAX_ROWS]
    return nearest


def _holders(
    resource: str, rows: IntArray, short: Shortage, walltimes: Walltimes, latest: Latest
) -> list[HeldBy]:
    """Groups with a known end on these nodes, sorted by that end."""
    base = short.trial.base()
    there = islice((info for row in rows.tolist() for info in base.pods_on(row)), _MAX_PODS)
    amounts: Counter[str] = Counter()
    by_name: dict[str, PodInfo] = {}
    for info in there:
        amount = info.template.requests.get(resource, 0)
        if amount and info.state is MemberState.BOUND:
            name = str(info.group.key) if info.group is not None else info.pod.key
            amounts[name] += amount
            by_name.setdefault(name, info)
    found = []
    for name, info in by_name.items():
        ends, how = _due(info, walltimes, None if info.group is None else latest(info.group))
        if ends is not None:
            kind = "gang" if info.group is not None and info.group.is_gang else "pod"
            found.append(HeldBy(kind, name, amounts[name], ends, how))
    return sorted(found, key=lambda one: (one.ends, one.name))


def end_text(group: Group, walltimes: Walltimes, latest: Latest) -> str:
    """When a running group is due to end, and by what; "" if unknown."""
    first = next((info for info in group.members.values() if info.state is MemberState.BOUND), None)
    if first is None:
        return ""
    ends, how = _due(first, walltimes, latest(group))
    return "" if ends is None else f"{minute(ends)} ({how})"


def _due(info: PodInfo, walltimes: Walltimes, latest: datetime | None) -> tuple[datetime | None, str]:
    """(when the pod is due to end, None if unknown; by what)."""
    walltime, ends = _end(info, walltimes)
    if latest is not None and (ends is None or latest + _ABOUT < ends):
        return latest, _BY_PROMISE
    return ends, _HOW.get(walltime.source, "")


def _end(info: PodInfo, walltimes: Walltimes) -> tuple[Walltime, datetime | None]:
    """(its group's walltime, the end counted from when kubelet admitted the first of its pods)."""
    group = info.group
    if group is None:
        walltime, pods = walltimes.pod_walltime(info.pod), [info.pod]
    elif len(group.members) > _MAX_MEMBERS:
        return Walltime(), None
    else:
        walltime, pods = walltimes.walltime(group), [one.pod for one in group.in_state(MemberState.BOUND)]
    began = [pod.status.start_time for pod in pods if pod.status.start_time is not None]
    if not began or math.isinf(walltime.seconds):
        return walltime, None
    try:
        return walltime, min(began) + timedelta(seconds=walltime.seconds)
    except OverflowError:  # beyond the year 9999
        return walltime, None
