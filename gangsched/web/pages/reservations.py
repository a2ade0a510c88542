"""Reservations not yet bound, by group and node: GET /reservations. No object of the API server has them;
only the scheduler that made them knows them. Lives here: the page's JSON, for `gangsched devices`. Not here:
HTTP (web.serving.server), groups that wait in Permit, and who may release them (waiting).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, Group, MemberState, PodInfo
from gangsched.model.resources import is_extended
from gangsched.model.text.printable import clean
from gangsched.web.pages.answers import Reservation, ReservationsPage

# A row takes some microseconds of the scheduler's loop.
MAX_ROWS = 5_000


class Reservations:
    """Makes the page from the scheduler's present state."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        may_act: Callable[[], bool] = lambda: True,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._may_act = may_act
        self._clock_s = clock_s

    def listed(self) -> bytes:
        """Returns a ReservationsPage as JSON."""
        rows = [*islice(self._rows(self._clock_s()), MAX_ROWS + 1)]
        page = ReservationsPage(self._may_act(), tuple(rows[:MAX_ROWS]), len(rows) > MAX_ROWS)
        return msgspec.json.encode(page)

    def _rows(self, now_s: float) -> Iterator[Reservation]:
        shared = self._scheduler.shared
        for group in shared.groups.values():
            if group.n_assumed:
                yield from _of_group(group, now_s)
        for one in shared.cache.nominated.values():
            group_of = one.info.group
            left_s = _left_s(group_of, now_s) if group_of is not None else None
            for resource, amount in _extended(one.info):
                yield Reservation(
                    _name(one.info), clean(one.node_name), clean(resource), amount, (), False, left_s
                )


def _of_group(group: Group, now_s: float) -> Iterator[Reservation]:
    amounts: dict[tuple[str, str], int] = {}
    ids: dict[tuple[str, str], list[str]] = {}
    for info in group.in_state(MemberState.ASSUMED):
        for resource, amount in _extended(info):
            at = info.node_name, resource
            amounts[at] = amounts.get(at, 0) + amount
            ids.setdefault(at, []).extend(info.ids.get(resource, ()))
    left_s, name = _left_s(group, now_s), clean(str(group.key))
    for (node, resource), amount in amounts.items():
        own = tuple(clean(one) for one in ids[node, resource])
        yield Reservation(name, clean(node), clean(resource), amount, own, True, left_s)


def _left_s(group: Group, now_s: float) -> float | None:
    deadline_s = group.preemption.deadline_s if group.preemption is not None else group.deadline_s
    return None if deadline_s >= NEVER_S else round(max(deadline_s - now_s, 0.0), 3)


def _extended(info: PodInfo) -> Iterator[tuple[str, int]]:
    return ((name, n) for name, n in info.template.requests.items() if n and is_extended(name))


def _name(info: PodInfo) -> str:
    return clean(str(info.group.key) if info.group is not None else info.pod.key)
