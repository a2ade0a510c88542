"""What happened to a gang: GET /story/{namespace}/{name}, its moves in order with their causes.

Lives here: the page's JSON. Not here: the moves themselves (core.state.tables.groups), HTTP
(web.serving.server), the command that requests it (web.commands.story). The core counts seconds of its own
clock; the page shows the time of day.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.core.state.tables.groups import Moved, story
from gangsched.core.types.ended import End, end_of
from gangsched.core.types.group import Group
from gangsched.model.text.printable import clean, clean_for


class Move(msgspec.Struct, frozen=True):
    """One line of a story. before: the state that the group left; seconds: how long it was in it."""

    at: datetime
    before: str
    seconds: float
    state: str
    cause: str


class Story(msgspec.Struct, frozen=True, rename="camel"):
    """A group and its moves, oldest first; a long story loses its oldest moves."""

    group: str
    uid: str
    scheduler: str
    state: str
    seconds: float
    attempts: int
    message: str
    moves: tuple[Move, ...]
    end: End = ""


class Stories:
    """Stories by name; several lone pods may have used one name in turn."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._clock_s = clock_s
        self._wall_s = wall_s

    def as_json(self, name: str, *, to_tenant: bool = False) -> bytes | None:
        """Returns the stories of all groups of that name as JSON; None if there is none. to_tenant: as
        core.explaining.explain."""
        found = [group for key, group in self._scheduler.shared.groups.items() if str(key) == name]
        if not found:
            return None
        now_s = self._clock_s()
        ago_s = self._wall_s() - now_s
        return msgspec.json.encode([story_of(group, now_s, ago_s, to_tenant=to_tenant) for group in found])


def story_of(group: Group, now_s: float, ago_s: float, *, to_tenant: bool = False) -> Story:
    """Returns the group's story at now_s of the core's clock; ago_s: added to it gives the time of day."""
    return Story(
        str(group.key),
        group.key.uid,
        group.scheduler_name,
        group.state.value,
        round(now_s - group.since_s, 3),
        group.attempts,
        clean_for(group.key.namespace, group.message) if to_tenant else clean(group.message),
        tuple(moves_of(story(group), group, ago_s)),
        end_of(group),
    )


def moves_of(moves_made: list[Moved], group: Group, ago_s: float) -> list[Move]:
    """Returns a group's moves with the time of day; ago_s: what to add to the core's clock."""
    moves = []
    before_s = moves_made[0].at_s if moves_made else group.since_s
    for moved in moves_made:
        at = datetime.fromtimestamp(moved.at_s + ago_s, UTC)
        seconds = round(moved.at_s - before_s, 3)
        moves.append(Move(at, moved.before.value, seconds, moved.state.value, moved.cause.value))
        before_s = moved.at_s
    return moves
