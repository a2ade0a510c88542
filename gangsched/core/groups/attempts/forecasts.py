"""Forecasts: reports estimated starts (core.estimates) to users, and counts how good they were.

A group with a claim has no forecast: its claim is better (core.kept.claim_reports). A forecast is the reason
`Forecast` of the condition `gangsched.io/StartPromised`, which is then False, and a sentence in `explain`;
nothing is written on pods. It is rewritten when it changes by more than a minute and by more than a tenth of
the time left, at most once a minute. Once enough estimated groups have started, it names the range in which
four in five start, by how the last ones' waits compared with their first estimates. Called by core.scheduler
with the edge's results, and by core.groups.attempts.attempts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gangsched.core.groups.owners import Owners
from gangsched.core.kept.claim_reports import minute_of
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group
from gangsched.core.types.states import IN_LINE
from gangsched.core.why.kept import DeadlineNear, StartEstimated, StartUnknown
from gangsched.model.effects import START_PROMISED
from gangsched.model.events import StartsEstimated
from gangsched.model.pod_group import CORE, GroupKey
from gangsched.model.text.printable import clean
from gangsched.model.walltime import LATEST_S

RATIOS = (0.25, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 4.0)
FORECAST, UNKNOWN = "Forecast", "Unknown"
_AGAIN_S = 60.0
_AGAIN_SHARE = 0.1
# Shorter estimates say nothing about how good estimates are: a turn may be late by as much.
_LEAST_S = 10.0
# A range is computed from the last hundred starts, and reported once there are twenty.
_LEAST_STARTS, _MOST_STARTS = 20, 100
# A range leaves out one in this many at either end.
_LEFT_OUT = 10
_MINUTE_S = 60.0
# Limit on remembered forecasts. A hundred groups are estimated at a time; groups that fall behind in line are
# remembered until they start.
_MAX_KNOWN = 1_000


class _Forecast(msgspec.Struct, eq=False):
    """One group's forecast. from_s: when it was first estimated; first_s: that estimate of its start.
    reported_s: the start last reported, at wrote_s; None: none, or that it is unknown. between_s: the range
    reported with it."""

    group: Group
    from_s: float
    first_s: float
    reported_s: float | None
    wrote_s: float
    between_s: tuple[float, float] | None = None
    is_warned: bool = False


class Forecasts:
    """Estimates for groups in line, and statistics of how good past estimates were."""

    def __init__(self, shared: SharedState, reporter: Reporter, owners: Owners) -> None:
        self._shared = shared
        self._reporter = reporter
        self._owners = owners
        self._known: dict[GroupKey, _Forecast] = {}
        self.ratios = [0] * (len(RATIOS) + 1)
        """Histogram of starts by (wait after the first estimate) / (wait that it predicted)."""
        self.total_ratio = 0.0
        self._last: deque[float] = deque(maxlen=_MOST_STARTS)
        """The ratios of the last starts."""
        self._spread: tuple[float, float] | None = None

    def range_s(self, in_s: float) -> tuple[float, float] | None:
        """The range, in seconds from now, in which four in five groups with this estimate start, by the last
        starts; None: those are too few, or the estimate is too short."""
        if self._spread is None and len(self._last) >= _LEAST_STARTS:
            # The next start, if it is like them, is within this range with a probability of four in five.
            ratios, n_out = sorted(self._last), (len(self._last) + 1) // _LEFT_OUT - 1
            self._spread = ratios[n_out], ratios[-1 - n_out]
        if self._spread is None or in_s < _LEAST_S:
            return None
        return self._spread[0] * in_s, self._spread[1] * in_s

    def take_estimates(self, event: StartsEstimated) -> None:
        """Takes all present estimates; earlier ones of other groups no longer hold. Nothing is reported for a
        group that was not tried yet, or should start now: most start at once."""
        if self._shared.walltimes is None:
            self._known.clear()
            return
        for key, one in list(self._known.items()):
            group = self._shared.groups.get(key)
            if group is not one.group or group.state not in IN_LINE or self._has_claim(group):
                del self._known[key]
        starts = dict(event.starts)
        for key, at_s in starts.items():
            group = self._shared.groups.get(key)
            if group is None or group.state not in IN_LINE or self._has_claim(group) or not group.attempts:
                continue
            if at_s <= event.from_s:
                continue
            if key not in self._known and len(self._known) < _MAX_KNOWN:
                self._known[key] = _Forecast(group, event.from_s, at_s, None, -_AGAIN_S)
            if key in self._known:
                self._tell(self._known[key], at_s)
        for key, one in self._known.items():
            if key not in starts:
                self._tell(one, None)

    def describe(self, group: Group) -> StartEstimated | None:
        """When the group starts, as last reported; None without an estimate."""
        one = self._known.get(group.key)
        if one is None or one.group is not group or one.reported_s is None:
            return None
        at = minute_of(self._shared, max(one.reported_s, self._shared.now_s))
        return None if at is None else StartEstimated(at, self._between(one))

    def started(self, unit: Sequence[Group]) -> None:
        """Records that the unit's members are reserved. The condition is written with each group's next
        status."""
        if self._shared.walltimes is None:
            self._known.clear()
        for group in unit:
            one = self._known.pop(group.key, None)
            if one is not None and one.group is group and one.first_s >= one.from_s + _LEAST_S:
                ratio = (self._shared.now_s - one.from_s) / (one.first_s - one.from_s)
                self.ratios[bisect_left(RATIOS, ratio)] += 1
                self.total_ratio += ratio
                self._last.append(ratio)
                self._spread = None
            if group.key.dialect != CORE:  # the condition is written on no other
                continue
            if self._reporter.condition(group, START_PROMISED).get("reason") in (FORECAST, UNKNOWN):
                self._reporter.start_promised(
                    group, promised=False, reason="Started", message="it has started", is_written=False
                )

    def rejected(self, unit: Sequence[Group]) -> None:
        """If estimates are off now, withdraws what was reported, by an earlier process too."""
        if self._shared.walltimes is not None:
            return
        self._known.clear()
        for group in unit:
            if self._reporter.condition(group, START_PROMISED).get("reason") == FORECAST:
                self._say_unknown(group)

    def _say_unknown(self, group: Group) -> None:
        self._reporter.start_promised(group, promised=False, reason=UNKNOWN, message=str(StartUnknown()))

    def _tell(self, one: _Forecast, at_s: float | None) -> None:
        now_s, group = self._shared.now_s, one.group
        if now_s < one.wrote_s + _AGAIN_S:
            return
        written = self._reporter.condition(group, START_PROMISED).get("reason")
        if at_s is None:
            if written == FORECAST:
                one.reported_s, one.wrote_s = None, now_s
                self._say_unknown(group)
            return
        self._warn(one, at_s)
        enough_s = max(_AGAIN_S, _AGAIN_SHARE * (at_s - now_s))
        if one.reported_s is None or written != FORECAST or abs(at_s - one.reported_s) > enough_s:
            one.reported_s, one.wrote_s, range_s = at_s, now_s, self.range_s(at_s - now_s)
            one.between_s = None if range_s is None else (now_s + range_s[0], now_s + range_s[1])
            if (told := self.describe(group)) is not None:
                self._reporter.start_promised(group, promised=False, reason=FORECAST, message=str(told))

    def _between(self, one: _Forecast) -> tuple[datetime, datetime] | None:
        """The range in whole minutes, rounded outwards; None: there is none, or it has passed."""
        now_s, ahead_s = self._shared.now_s, self._shared.wall_ahead_s
        if one.between_s is None or ahead_s is None:
            return None
        if not now_s < one.between_s[1] < now_s + LATEST_S:
            return None
        early = datetime.fromtimestamp((max(one.between_s[0], now_s) + ahead_s) // _MINUTE_S * _MINUTE_S, UTC)
        late = datetime.fromtimestamp(-(-(one.between_s[1] + ahead_s) // _MINUTE_S) * _MINUTE_S, UTC)
        return early, late

    def _warn(self, one: _Forecast, at_s: float) -> None:
        """Warns once if, by the estimate, waiting leaves less than half of its controller's deadline."""
        owner, ahead_s = self._owners.owner(one.group.key), self._shared.wall_ahead_s
        if one.is_warned or owner is None or owner.deadline_s is None or ahead_s is None:
            return
        left_s = owner.began_at + owner.deadline_s - (at_s + ahead_s)
        if left_s >= owner.deadline_s / 2:
            return
        one.is_warned = True
        at = minute_of(self._shared, at_s)
        message = clean(str(DeadlineNear(str(owner.named), at, max(left_s, 0.0), owner.deadline_s)))
        self._reporter.event(one.group, "Warning", "DeadlineWhileWaiting", "Scheduling", message)

    def _has_claim(self, group: Group) -> bool:
        claims = self._shared.claims
        return claims is not None and claims.claim(group) is not None
