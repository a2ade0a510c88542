"""ClaimsTold: says of claims, where users look, when a gang starts.

On its object as the condition `gangsched.io/StartPromised`, in what its pods are told, and as an event. A
start is promised where it rests on nothing but stated ends, else it is estimated; the two words are never
mixed. A time is told anew when it changes by more than a minute and a tenth of what is left. Called by
core.groups.claiming.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gangsched.core.state.reporter import START_PROMISED, Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, GroupState

_ANEW_S = 60.0
_ANEW_SHARE = 0.1
_LATEST_S = 400 * 366 * 86_400.0
_STARTED = (GroupState.WAITING, GroupState.BINDING, GroupState.BOUND)
_CLAIMED, _ESTIMATED = "Claimed", "Estimated"
_TAKEN = "the room that was kept for it is taken"


def was_claimed(group: Group) -> bool:
    """Whether its object says that room is kept for it, as the last process wrote it."""
    conditions = group.definition.status.get("conditions") if group.definition is not None else None
    return isinstance(conditions, list) and any(
        isinstance(one, Mapping)
        and one.get("type") == START_PROMISED
        and one.get("reason") in (_CLAIMED, _ESTIMATED)
        for one in conditions
    )


class ClaimsTold:
    """Tells of claims as they are made, move and end."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter

    def words(self, claim: StartClaim) -> str:
        """A sentence for the claim's gangs and pods."""
        now_s = self._shared.now_s
        enough_s = max(_ANEW_S, _ANEW_SHARE * (claim.start_s - now_s))
        if abs(claim.start_s - claim.told_s) > enough_s or claim.told_promise != claim.is_promise:
            claim.told_s, claim.told_promise = claim.start_s, claim.is_promise
        n_nodes = len(claim.nodes)
        nodes = f"{n_nodes} node{'s' if n_nodes != 1 else ''}"
        if claim.told_promise:
            return f"It starts{self._by(claim.told_s, 'by')}: room is kept for it on {nodes}."
        n = sum(not one.is_stated for one in claim.blockers)
        about = self._by(claim.told_s, "about")
        return f"An estimate: it starts{about}; room is kept for it on {nodes}; no end stated by {n} there."

    def started(self, group: Group) -> None:
        """It is reserved, and its object tells of an earlier process' claim."""
        self._say(group, "Started", _TAKEN)

    def made(self, claim: StartClaim) -> None:
        """A new claim stands."""
        self._tell(claim)
        for group in claim.unit:
            self._reporter.event(group, "Normal", "RoomClaimed", "Scheduling", self.words(claim))

    def moved(self, claim: StartClaim) -> None:
        """The claim is somewhere else, or starts at another time."""
        self._tell(claim)

    def ended(self, claim: StartClaim) -> None:
        """The claim stands no more."""
        for group in claim.unit:
            if group.state is GroupState.DELETED:
                continue
            if group.state in _STARTED and group.preemption is None:
                self.started(group)
            else:
                self._say(group, "Withdrawn", "no room is kept for it any more")

    def _tell(self, claim: StartClaim) -> None:
        words = self.words(claim)
        for group in claim.unit:
            if claim.told_promise:
                self._say(group, _CLAIMED, words, promised=True)
            else:
                self._say(group, _ESTIMATED, words)

    def _say(self, group: Group, reason: str, message: str, *, promised: bool = False) -> None:
        self._reporter.start_promised(group, promised=promised, reason=reason, message=message)

    def _by(self, at_s: float, preposition: str) -> str:
        """In whole minutes, rounded up; "" where the time of day is not known, or too far away to be said."""
        ahead_s = self._shared.wall_ahead_s
        if ahead_s is None or not at_s - self._shared.now_s < _LATEST_S:
            return ""
        at = datetime.fromtimestamp(at_s + ahead_s, UTC)
        whole = at.replace(second=0, microsecond=0) + timedelta(minutes=at.second > 0 or at.microsecond > 0)
        return f" {preposition} {whole:%Y-%m-%d %H:%M} UTC"
