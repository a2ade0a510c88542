"""Reasons why a gang is not complete: what is to define it, and the members that are missing."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.why import Because, Why
from gangsched.model.text.printable import several

MAX_ROLES = 3
"""How many roles one message names."""

RolesShort = tuple[tuple[str, int, int], ...]
"""(role, how many of it there are, how many it needs) of the roles that lack members."""


def roles_text(short: Sequence[tuple[str, int, int]], n_others: int = 0) -> str:
    """Names roles that lack members, behind how many members there are in all. n_others: others that do."""
    text = "".join(f"; role {role}: {n} of {wanted}" for role, n, wanted in short[:MAX_ROLES])
    n_more = n_others + max(0, len(short) - MAX_ROLES)
    return text + (f"; and {several(n_more, 'role')} more" if n_more > 0 else "")


# -- what is to define it ----------------------------------------------------------------------------------


class DefinitionMissing(Because, frozen=True):
    """A gang's object does not exist, or nothing else defines it. missing: what it waits for."""

    gang: str
    missing: Why

    def __str__(self) -> str:
        return f"gang {self.gang} waits for {self.missing}"


class ObjectMissing(Because, frozen=True):
    """The object that defines a gang does not exist."""

    what: str

    def __str__(self) -> str:
        return f"its {self.what}, which does not exist (yet)"


class OwnerUnseen(Because, frozen=True):
    """The object that a gang's number depends on has not been seen."""

    owner: str

    def __str__(self) -> str:
        return f"{self.owner}, which has not been seen (yet)"


class OwnerUnserved(Because, frozen=True):
    """The API server serves no object of the kind that a gang's number depends on, or not to us."""

    owner: str

    def __str__(self) -> str:
        return (
            f"{self.owner}, but the API server does not serve this kind or does not let the scheduler read "
            "it; inferGangs or a label on the namespace turns this off"
        )


class OwnerNotReady(Because, frozen=True):
    """The object that a gang's number depends on does not state it yet. waits: why, in its kind's words."""

    owner: str
    waits: str

    def __str__(self) -> str:
        return f"{self.owner}, which {self.waits}"


# -- the members that are missing --------------------------------------------------------------------------


class MembersMissing(Because, frozen=True):
    """A gang has been incomplete for a while. more: what else is known of why."""

    gang: str
    n_existing: int
    n_needed: int
    n_gated: int
    roles: RolesShort
    more: tuple[Why, ...]

    def __str__(self) -> str:
        text = f"gang {self.gang} waits for members: {self.n_existing} of {self.n_needed} exist"
        gated = f", {self.n_gated} more are gated" if self.n_gated else ""
        return f"{text}{gated}{roles_text(self.roles)}" + "".join(f"; {one}" for one in self.more)


class EndedDeleted(Because, frozen=True):
    """Members that had ended were deleted, so that others may wait for them for ever."""

    n: int

    def __str__(self) -> str:
        return (
            f"members that ended and were deleted: {self.n}; what has ended counts only while its pod "
            "exists: lower the number to what is still to run, or delete the others too so that their "
            "controller makes all of them again"
        )


class NeverAtOnce(Because, frozen=True):
    """What makes the members never makes all of them at once. why, cure: in its kind's words."""

    owner: str
    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.owner} never has all its pods at once: {self.why}; {self.cure}"


class MembersLeft(Because, frozen=True):
    """Members that waited have left, and too few are there."""

    n_existing: int
    n_needed: int
    roles: RolesShort

    def __str__(self) -> str:
        return f"{self.n_existing} of {self.n_needed} members are left{roles_text(self.roles)}"


# -- a gang that has started, and has lost members ---------------------------------------------------------


class Short(Because, frozen=True):
    """What a gang that has started lacks by now. roles: the first few; n_others: how many more lack some."""

    n_running: int
    n_needed: int
    roles: RolesShort
    n_others: int

    @property
    def n_missing(self) -> int:
        """How many members would be enough, as far as is named here."""
        return max(self.n_needed - self.n_running, sum(least - n for _, n, least in self.roles))

    def __str__(self) -> str:
        return f"{self.n_running} of {self.n_needed} members run{roles_text(self.roles, self.n_others)}"


class MembersLost(Because, frozen=True):
    """A gang that has started lacks members. within_s: so long after the first loss the rest is evicted; 0:
    never. moves: only once it would start again at once."""

    gang: str
    lacking: Short
    within_s: float
    moves: bool = False

    def __str__(self) -> str:
        text = f"gang {self.gang} has lost members: {self.lacking}"
        if not self.within_s:
            return text
        text += f"; {self.within_s:g} s after the first loss the rest is evicted"
        return f"{text}, once all of it would start again at once" if self.moves else text


class NotRecovered(Because, frozen=True):
    """What is left of a gang is evicted: it has not got back in time what it lost. moves: all of it would
    start again now."""

    gang: str
    lacking: Short
    moves: bool = False

    def __str__(self) -> str:
        text = f"gang {self.gang} is evicted: it has not recovered in time: {self.lacking}"
        return f"{text}; all of it would start again now" if self.moves else text


class CannotMove(Because, frozen=True):
    """A gang that has not recovered in time is to be evicted only once it would start again, and would not.
    why: for what reason."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} has not recovered in time and stays where it is: {self.why}"
