"""Reasons as values, and the words for each.

A reason is kept as what it names (nodes, members, devices, amounts, other groups), and becomes text only
where it leaves the core: in a condition, an event, an answer of `explain`. What decides, explains or judges
reads the values and never a text. Names of other namespaces' objects are marked in the words
(model.text.printable), so that administrators and tenants each get their own rendering of one value.

What somebody else has said (a plugin of users, the API server, a field that does not parse) is a text from
the start and stays one. Here: what all reasons share; the modules beside it have them by subject. Not here:
what decides. Called by all rooms of the core, and by plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice

import msgspec

from gangsched.model.text.printable import MAX_MESSAGE

# A reason's words with their marked names, before they are rendered; what a server answers is of any length.
_MAX_MARKED = 8 * MAX_MESSAGE
# This many things are named in a reason.
MAX_NAMED = 3


class Because(msgspec.Struct, frozen=True):
    """A reason of ours; its text is a sentence with the names in it marked."""


Why = Because | str
"""A reason of ours, or what somebody else has said."""


def words(why: Why) -> str:
    """Tells the reason with its names marked, cut to size."""
    return str(why)[:_MAX_MARKED]


def parts_of(why: Why) -> Iterator[Why]:
    """Yields the reason and all that it is made of, from the whole to the parts."""
    yield why
    if isinstance(why, Because):
        for name in why.__struct_fields__:
            held = getattr(why, name)
            for one in held if isinstance(held, tuple) else (held,):
                if isinstance(one, Because):
                    yield from parts_of(one)


def is_about(why: Why, *kinds: type[Because]) -> bool:
    """Whether it is one of these kinds of reasons, or has one in it."""
    return any(isinstance(one, kinds) for one in parts_of(why))


# -- one after the other, and about whom -------------------------------------------------------------------


class Several(Because, frozen=True):
    """Reasons, one after the other."""

    parts: tuple[Why, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))


def together(*whys: Why) -> Why:
    """Joins reasons; what is joined already is not nested."""
    found: list[Why] = []
    for why in whys:
        found += each_of(why)
    return found[0] if len(found) == 1 else Several(tuple(found))


def beyond(beginning: Why, whole: Why) -> tuple[Why, ...] | None:
    """Returns what `whole` adds to its beginning; None: it begins otherwise."""
    begun, found = each_of(beginning), each_of(whole)
    return found[len(begun) :] if found[: len(begun)] == begun else None


def each_of(why: Why) -> tuple[Why, ...]:
    """Returns the reasons that were joined, or this one alone."""
    return why.parts if isinstance(why, Several) else (why,)


class OfGang(Because, frozen=True):
    """A reason that concerns a whole gang."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang}: {self.why}"


class OfMember(Because, frozen=True):
    """Why a member is refused; in a gang, all of whose members get the message."""

    member: str
    why: Why

    def __str__(self) -> str:
        return f"member {self.member}: {self.why}"


def without_gang(gang: str, why: Why) -> Why:
    """Leaves out the gang's name in front, which is there already."""
    first, *rest = each_of(why)
    return together(first.why, *rest) if isinstance(first, OfGang) and first.gang == gang else why


class OfPlugin(Because, frozen=True):
    """Why a plugin keeps a group out, whatever room it has."""

    plugin: str
    why: Why

    def __str__(self) -> str:
        return f"{self.plugin}: {self.why}"


def time_text(preposition: str, at: datetime | None) -> str:
    """ " by 2026-01-02 03:04 UTC"; "" if it is not known."""
    return "" if at is None else f" {preposition} {at:%Y-%m-%d %H:%M} UTC"


def named(amounts: Mapping[str, int | str]) -> str:
    """ "a (16), b (8), 2 more"."""
    parts = [f"{name} ({n})" if len(amounts) > 1 else name for name, n in islice(amounts.items(), MAX_NAMED)]
    more = len(amounts) - len(parts)
    return ", ".join(parts) + (f", {more} more" if more else "")


def minute(at: datetime) -> str:
    """The time of an end that is known to the minute at best."""
    return f"about {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
