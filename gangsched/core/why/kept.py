"""Reasons about what is kept for a group, and from it by those before it in line."""

from __future__ import annotations

from datetime import datetime

from gangsched.core.why import Because, time_text
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import marked, several


class StartKept(Because, frozen=True):
    """A group has a claim. at: its start, in whole minutes; None: the time of day is unknown. n_unstated: how
    many pods on its nodes state no end, so that the start is an estimate."""

    at: datetime | None
    is_promise: bool
    n_nodes: int
    n_unstated: int

    def __str__(self) -> str:
        nodes = f"{self.n_nodes} node{'s' if self.n_nodes != 1 else ''}"
        if self.is_promise:
            return f"It starts{time_text('by', self.at)}: room is kept for it on {nodes}."
        about, n = time_text("about", self.at), self.n_unstated
        return f"An estimate: it starts{about}; room is kept for it on {nodes}; no end stated by {n} there."


class StartEstimated(Because, frozen=True):
    """When a group without a claim starts, by estimate. between: when four in five such groups start."""

    at: datetime
    between: tuple[datetime, datetime] | None

    def __str__(self) -> str:
        range_ = ""
        if self.between is not None:
            early, late = self.between
            clock = "%H:%M" if early.date() == late.date() == self.at.date() else "%Y-%m-%d %H:%M"
            range_ = f", four in five between {early:{clock}} and {late:{clock}} UTC,"
        about = time_text("about", self.at)
        return f"An estimate: it starts{about}{range_} if nothing else comes; no room is kept for it."


class StartUnknown(Because, frozen=True):
    """A start that was estimated is not known any more."""

    def __str__(self) -> str:
        return "It is not known when it starts: what it waits for may never end."


class DeadlineNear(Because, frozen=True):
    """A group's controller ends it at a deadline that counts while its pods wait. at: when it starts, by
    estimate; left_s: what is then left of whole_s."""

    owner: str
    at: datetime | None
    left_s: float
    whole_s: float

    def __str__(self) -> str:
        return (
            f"an estimate: if it starts{time_text('about', self.at)}, {self.left_s / 60.0:.0f} of"
            f" {self.whole_s / 60.0:.0f} minutes are left until {self.owner} is ended, as its"
            " activeDeadlineSeconds count while its pods wait; those of its pods count from their start"
        )


class KeptForClaim(Because, frozen=True):
    """Free room that a claim keeps from a group, and when its own group starts."""

    resource: str
    amount: int
    kind: str
    name: str
    at: datetime | None
    is_promise: bool

    def __str__(self) -> str:
        amount = f"{amount_text(self.resource, self.amount)} {self.resource}"
        kept = f"{amount} are kept for {marked(self.kind, [self.name])}"
        if self.is_promise:
            return f"{kept}, which is promised to start{time_text('by', self.at)}."
        return f"{kept}, which may start{time_text('about', self.at)}."


class KeptLater(Because, frozen=True):
    """A group has been passed as often as its bound allows, and its claim would keep too much idle."""

    bound: int
    at: datetime | None
    resource: str

    def __str__(self) -> str:
        about = time_text("about", self.at)
        when = f" from{about}" if about else " later"
        return (
            f"It has reached its bound of {self.bound}, and room will be kept for it{when}:"
            f" until then that would keep too much {self.resource} idle."
        )


class PassedAtLimit(Because, frozen=True):
    """How many groups have passed one that a limit keeps out; is_kept: and no further ones do."""

    n: int
    bound: int
    is_kept: bool

    def __str__(self) -> str:
        is_kept = ", and what it needs is kept for it there" if self.is_kept else ""
        return f"{several(self.n, 'group')} passed it there (at most {self.bound} may){is_kept}."


class ClaimsFirst(Because, frozen=True):
    """A start would pass several groups that are at their bounds."""

    def __str__(self) -> str:
        return "groups ahead of it have been passed as often as allowed: room is kept for them first"
