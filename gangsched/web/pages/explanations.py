"""Why a gang does not run: GET /explain/{namespace}/{name}.

Lives here: the page's JSON, and one answer for concurrent requests. Not here: the explanation itself
(core.explaining.explain), HTTP (web.serving.server), the command that requests it (web.commands.explain).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from gangsched.config import TracingSettings
from gangsched.core.explaining.explain import Explanation, explain
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.tables.groups import story
from gangsched.core.types.group import Group
from gangsched.model.text.printable import clean
from gangsched.web.pages.stories import Move, moves_of

# Explaining may cost a whole cycle: requests within this time get the same answer.
_FRESH_S = 1.0
_MAX_KEPT = 64
# Several lone pods may have used one name in turn.
_MAX_GROUPS = 5
_MAX_MOVES = 8


class Page(msgspec.Struct, frozen=True):
    """One group. moves: its last moves; trace: where its trace is, "" without tracing; leads: whether this
    replica decides anything. instead: why this comes from the API server's lists rather than a scheduler.
    """

    leads: bool
    explanation: Explanation
    moves: tuple[Move, ...]
    trace: str
    instead: str = ""


class Explanations:
    """Explains groups by name."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        tracing: Callable[[], TracingSettings] = TracingSettings,
        may_act: Callable[[], bool] = lambda: True,
        clock_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._tracing = tracing
        self._may_act = may_act
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._kept: dict[tuple[str, bool], tuple[float, bytes]] = {}

    def as_json(self, name: str, *, to_tenant: bool = False) -> bytes | None:
        """Returns JSON with a Page for each group of that name; None if there is none. to_tenant: as
        core.explaining.explain."""
        now_s = self._clock_s()
        kept = self._kept.get((name, to_tenant))
        if kept is not None and now_s - kept[0] < _FRESH_S:
            return kept[1]
        found = [group for key, group in self._scheduler.shared.groups.items() if str(key) == name]
        if not found:
            return None
        pages = [self._page(group, now_s, to_tenant=to_tenant) for group in found[:_MAX_GROUPS]]
        body = msgspec.json.encode(pages)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[name, to_tenant] = now_s, body
        return body

    def _page(self, group: Group, now_s: float, *, to_tenant: bool) -> Page:
        ago_s = self._wall_s() - now_s
        moves = moves_of(story(group), group, ago_s)
        explanation = explain(self._scheduler, group, now_s, ago_s=ago_s, to_tenant=to_tenant)
        return Page(self._may_act(), explanation, tuple(moves[-_MAX_MOVES:]), self._trace(group))

    def _trace(self, group: Group) -> str:
        tracing, name = self._tracing(), clean(str(group.key))
        if tracing.file:
            return f"gangsched trace {name} --file {tracing.file}"
        if not tracing.endpoint:
            return ""
        return f"gangsched trace {name} --jaeger URL (traces go to {tracing.endpoint})"


def path_of(namespace: str, name: str) -> str:
    """The page's path."""
    return f"/explain/{quote(namespace, safe='')}/{quote(name, safe='')}"
