"""Reasons why a unit fits nowhere: where its pods cannot go, and what is short there."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from gangsched.core.why import MAX_NAMED, Because, Why, each_of, minute, named, together
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import marked, several


class Insufficient(Because, frozen=True):
    """kube-scheduler's reason for nodes with too little of something."""

    what: str

    def __str__(self) -> str:
        return f"Insufficient {self.what}"


class UntoleratedTaint(Because, frozen=True):
    """A taint that the pod does not tolerate; without a key: one of several others."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        text = "node(s) had untolerated taint(s)"
        if not self.key:
            return text
        value = f"={self.value}" if self.value else ""
        return f"{text} {{{self.key}{value}:{self.effect}}}"


class Excluded(Because, frozen=True):
    """How many nodes a plugin excludes, and its reason."""

    n: int
    plugin: str
    why: Why

    def __str__(self) -> str:
        return f"{self.n} {self.why}"


class NodesExcluded(Because, frozen=True):
    """kube-scheduler's sentence: each node is counted under the first reason that excludes it."""

    n_nodes: int
    by: tuple[Excluded, ...]

    def __str__(self) -> str:
        text = ", ".join(map(str, self.by))
        return f"0/{self.n_nodes} nodes are available" + (f": {text}." if text else ".")


class FewFit(Because, frozen=True):
    """How many members of a gang fit, and why one does not. role: of which they are counted; "": of all."""

    role: str
    n_fit: int
    n_wanted: int
    member: str
    why: Why

    def __str__(self) -> str:
        role = f"role {self.role}: " if self.role else ""
        return f"{role}{self.n_fit} of {self.n_wanted} fit; member {self.member}: {self.why}"


class NearestDomain(Because, frozen=True):
    """Why no domain takes a group, and what the nearest one lacks."""

    said: str
    where: str
    why: Why

    def __str__(self) -> str:
        return f"{self.said}. In {self.where}: {self.why}"


class SearchEnd(Enum):
    """How the search for placements in other orders ended."""

    PROVED = "No placement exists: every order of placing them ends like this."
    PROVED_THERE = "There every order of placing them ends like this."
    """What is proved is proved of one domain alone."""
    GAVE_UP = "A placement may exist: the search for one ended at searchPlacements."
    IN_TURNS = (
        "A placement may exist: only some of the many domains are tried at a time, and the others later."
    )
    """Only other domains are untried."""


class Searched(Because, frozen=True):
    """How the search for placements in other orders ended."""

    end: SearchEnd

    def __str__(self) -> str:
        return self.end.value


class DeviceSetsGivenUp(Because, frozen=True):
    """The search for sets of devices ended at its budget on these nodes."""

    nodes: tuple[str, ...]

    def __str__(self) -> str:
        some = ", ".join(self.nodes[:MAX_NAMED]) + (", ..." if len(self.nodes) > MAX_NAMED else "")
        return f"A placement may exist: the search for sets of devices was given up on {some}."


def proved_there(why: Why) -> Why:
    """Limits what is proved to one domain."""
    proved, there = Searched(SearchEnd.PROVED), Searched(SearchEnd.PROVED_THERE)
    return together(*(there if one == proved else one for one in each_of(why)))


class TooFewNodes(Because, frozen=True):
    """Waiting does not help: n_fit of n_wanted would fit with nothing else running."""

    n_fit: int
    n_wanted: int

    def __str__(self) -> str:
        if self.n_wanted == 1:
            return "No node that suits it is large enough, even with nothing else running."
        return f"Too few nodes suit it: with nothing else running, {self.n_fit} of {self.n_wanted} would fit."


class TakenByItself(Because, frozen=True):
    """How many nodes had room until other members of the gang were placed there."""

    n_nodes: int

    def __str__(self) -> str:
        return f"Of these, {self.n_nodes} had room until its other members were placed there."


class ReservedBy(Because, frozen=True):
    """Who has reserved how much of what is short. by: (the name, marked, and the amount)."""

    resource: str
    by: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        amount = amount_text(self.resource, sum(n for _, n in self.by))
        by_name = {name: amount_text(self.resource, n) for name, n in self.by}
        return f"{amount} {self.resource} are reserved by {named(by_name)}."


class UnhealthyDevices(Because, frozen=True):
    """(ID, node) of unhealthy devices where room is short; n_more are not named."""

    devices: tuple[tuple[str, str], ...]
    n_more: int

    def __str__(self) -> str:
        more = f", {self.n_more} more" if self.n_more else ""
        return f"Unhealthy: {', '.join(f'{one} on {node}' for one, node in self.devices)}{more}."


class FormerRevisions(Because, frozen=True):
    """Pods of an owner's former revisions hold room. update: what its update does, in its kind's words."""

    n: int
    owner: str
    update: str

    def __str__(self) -> str:
        whose = f"{several(self.n, 'pod')} of former revisions of {self.owner}"
        return f"{whose} hold room, and its update waits for them; {self.update}."


class HeldBy(Because, frozen=True):
    """A group, or another scheduler's pod, that holds what is short, and when it is due to end, by what."""

    kind: str
    name: str
    amount: int
    ends: datetime
    how: str


class HeldUntil(Because, frozen=True):
    """Who holds what is short and has a known end, the soonest first; n_more are not named."""

    resource: str
    by: tuple[HeldBy, ...]
    n_more: int

    def __str__(self) -> str:
        parts: list[str] = []
        for one in self.by:
            amount = amount_text(self.resource, one.amount)
            what = amount if parts else f"holds {amount} {self.resource}"
            parts.append(f"{marked(one.kind, [one.name])} {what} until {minute(one.ends)} ({one.how})")
        if self.n_more:
            parts.append(f"{self.n_more} more have a known end")
        return "; ".join(parts) + "."
