"""ClaimReports: tells users when a gang with a claim will start.

It writes the condition `gangsched.io/StartPromised` on the gang's object, a sentence in its pods' conditions,
and an event. A start that depends only on stated ends is called promised, any other estimated; the two words
are never mixed. A time is rewritten when it changes by more than a minute and by more than a tenth of the
time left. Called by core.kept.claiming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from gangsched.core.cycle.shortage import lacks
from gangsched.core.framework.plan import Shortage
from gangsched.core.queueing.claims import Claims
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, GroupState
from gangsched.core.why import Why
from gangsched.core.why.kept import KeptForClaim, KeptLater, StartKept
from gangsched.model.effects import START_PROMISED
from gangsched.model.pod_group import CORE
from gangsched.model.text.printable import marked
from gangsched.model.walltime import LATEST_S

_AGAIN_S = 60.0
_AGAIN_SHARE = 0.1
_STARTED = (GroupState.WAITING, GroupState.BINDING, GroupState.BOUND)
_CLAIMED, _ESTIMATED = "Claimed", "Estimated"
_TAKEN = "it has its room: the claim has ended"
_NONE_KEPT = "no room is kept for it any more"


def had_claim(group: Group) -> bool:
    """Whether an earlier process kept room for the group, according to its object. For a group that became
    complete only after this process began to decide, none did: someone else wrote the condition."""
    return group.first_complete_s < 0.0 and was_claimed(group)


def was_claimed(group: Group) -> bool:
    """Whether the group's object says that room is kept for it, or was."""
    if group.key.dialect != CORE:  # the condition is written on no other
        return False
    conditions = group.definition.status.get("conditions") if group.definition is not None else None
    return isinstance(conditions, list) and any(
        isinstance(one, Mapping)
        and one.get("type") == START_PROMISED
        and one.get("reason") in (_CLAIMED, _ESTIMATED)
        for one in conditions
    )


def minute_of(shared: SharedState, at_s: float) -> datetime | None:
    """The time in whole minutes, rounded up; None if the time of day is unknown, or `at_s` too far away."""
    ahead_s = shared.wall_ahead_s
    if ahead_s is None or not at_s - shared.now_s < LATEST_S:
        return None
    at = datetime.fromtimestamp(at_s + ahead_s, UTC)
    return at.replace(second=0, microsecond=0) + timedelta(minutes=at.second > 0 or at.microsecond > 0)


def latest_end(shared: SharedState, group: Group) -> datetime | None:
    """The end of a running group that a promise rests on, whatever the group states now; None: no promise
    rests on it, or the time of day is unknown."""
    if shared.ends is None or shared.wall_ahead_s is None:
        return None
    at_s = shared.ends.fixed_s(group)
    return datetime.fromtimestamp(at_s + shared.wall_ahead_s, UTC) if at_s < shared.now_s + LATEST_S else None


class ClaimReports:
    """Writes conditions and events as claims are made, move and end."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter

    def words(self, claim: StartClaim) -> StartKept:
        """A sentence for the claim's gangs and pods."""
        now_s = self._shared.now_s
        enough_s = max(_AGAIN_S, _AGAIN_SHARE * (claim.start_s - now_s))
        if abs(claim.start_s - claim.reported_s) > enough_s or claim.reported_promise != claim.is_promise:
            claim.reported_s, claim.reported_promise = claim.start_s, claim.is_promise
        return self.last_words(claim)

    def last_words(self, claim: StartClaim) -> StartKept:
        """The sentence as last written."""
        is_promise = claim.reported_promise
        n_unstated = 0 if is_promise else sum(not one.is_stated for one in claim.blockers)
        at = minute_of(self._shared, claim.reported_s)
        return StartKept(at, is_promise, len(claim.nodes), n_unstated)

    def kept(self, claims: Sequence[StartClaim], short: Shortage) -> Iterator[KeptForClaim]:
        """Sentences for a group to which claims leave too little room: what is free but kept, for which
        claims."""
        standing = self._shared.claims
        assert standing is not None
        for lack in islice(lacks(short), 1):
            column = short.template.columns[short.template.names.index(lack.resource)]
            free, given = short.trial.base().free(column), Counter[int]()
            for claim in claims:
                kept = Counter[int]()
                for one in standing.kept_now([claim]):
                    if (row := short.trial.row_of(one.node_name)) is not None and lack.rows[row]:
                        kept[row] += (one.keeps or one.template).requests.get(lack.resource, 0)
                n = 0
                for row, amount in kept.items():
                    own = min(amount, max(free.item(row) - given[row], 0))
                    given[row] += own
                    n += own
                if n:
                    at, of = minute_of(self._shared, claim.reported_s), claim.unit[0]
                    kind, name = "gang" if of.is_gang else "pod", str(of.key)
                    yield KeptForClaim(lack.resource, n, kind, name, at, claim.reported_promise)

    def why_none(self, group: Group) -> Why:
        """A sentence for a group at its bound whose claim would keep too much idle; "" for other groups."""
        claims, bypasses = self._shared.claims, self._shared.queue.bypasses
        too_idle = claims.too_idle.get(group.key) if claims is not None else None
        passed = bypasses.count(group) if bypasses is not None else None
        if too_idle is None or passed is None:
            return ""
        at = minute_of(self._shared, too_idle.from_s)
        return KeptLater(passed.bound, at, too_idle.resource)

    def started(self, group: Group) -> None:
        """Writes that the group is reserved; its object may still show an earlier process' claim."""
        self._say(group, "Started", _TAKEN)

    def withdrawn(self, unit: Sequence[Group]) -> None:
        """Writes that no room is kept, for groups whose objects still show an earlier process' claim."""
        for group in unit:
            if was_claimed(group):
                self._say(group, "Withdrawn", _NONE_KEPT)

    def made(self, claim: StartClaim) -> None:
        """Reports a new claim."""
        self._tell(claim)
        for group in claim.unit:
            self._reporter.event(group, "Normal", "RoomClaimed", "Scheduling", str(self.words(claim)))

    def moved(self, claim: StartClaim) -> None:
        """Reports a claim that has new nodes or a new start time."""
        self._tell(claim)

    def ended(self, claims: Claims) -> None:
        """Reports the claims that have ended."""
        for group in (group for claim in claims.ended for group in claim.unit):
            if group.state is GroupState.DELETED:
                continue
            if group.state in _STARTED and group.preemption is None:
                self.started(group)
            else:
                self._say(group, "Withdrawn", _NONE_KEPT)
        claims.ended.clear()

    def extended(self, claims: Claims) -> None:
        """Reports pods given longer walltimes that do not count because a promise rests on the shorter
        ones."""
        ends = self._shared.ends
        for info in ends.extended if ends is not None else ():
            by_it = (str(o.unit[0].key) for o in claims.all if any(b.uid == info.uid for b in o.blockers))
            whose = marked("gang", [first]) if (first := next(by_it, "")) else "another"
            message = (
                f"its longer walltime does not count: the start of {whose} was promised by the shorter one"
            )
            self._reporter.pod_event(info.pod, "Warning", "WalltimeKept", "Scheduling", message)
        if ends is not None:
            ends.extended.clear()

    def _tell(self, claim: StartClaim) -> None:
        words = str(self.words(claim))
        for group in claim.unit:
            if claim.reported_promise:
                self._say(group, _CLAIMED, words, promised=True)
            else:
                self._say(group, _ESTIMATED, words)

    def _say(self, group: Group, reason: str, message: str, *, promised: bool = False) -> None:
        self._reporter.start_promised(group, promised=promised, reason=reason, message=message)
