"""QueueOrder: QueueSort's answers: a group's key, its lane, and the key of a lane.

Lives here: the calls of the one QueueSort plugin, and the default if one fails: the group, or the lane, goes
last. Not here: the line itself (core.state.line.queue, core.state.line.lanes). Rebuilt by core.state.state
for each configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.interface import LaneSortPlugin, PassingPlugin, QueueSortPlugin
from gangsched.core.framework.plugin_calls import PluginError, blamed
from gangsched.core.framework.points.queueing import sees_view
from gangsched.core.framework.supports import SupportsRekey, serves
from gangsched.core.state.pending_hooks import PendingHooks
from gangsched.core.types.group import Group

Key = tuple[Any, ...]
LAST: Key = (1,)
_REKEY_S = 10.0
_SHORTEST_S = 0.1
_POINT = "QueueSort"


class QueueOrder:
    """The order of the line by one plugin."""

    def __init__(
        self,
        sort: QueueSortPlugin,
        view: QueueView | None,
        hooks: PendingHooks,
    ) -> None:
        """hooks: told of the plugin's failures."""
        self._sort = sort
        self._key_sees = view is not None and sees_view(sort.sort_key)
        self._laned = sort if serves(sort, LaneSortPlugin) else None
        self._lane_sees = self._laned is not None and sees_view(self._laned.lane)
        self._passing = sort if serves(sort, PassingPlugin) else None
        self._view = view
        self._hooks = hooks

    @property
    def has_lanes(self) -> bool:
        """Whether the order depends on usage."""
        return self._laned is not None and self._view is not None

    @property
    def rekey_s(self) -> float:
        """After how long the key of a lane is computed again."""
        rekey_s = float(self._sort.rekey_s) if serves(self._sort, SupportsRekey) else _REKEY_S
        return max(_SHORTEST_S, rekey_s)

    def key_or_last(self, group: Group) -> Key:
        """Returns the group's key, within its lane where there are lanes."""
        try:
            return (0, self._key(group))
        except PluginError as error:
            self._hooks.blame(error, group)
            return LAST

    def key_among_all(self, group: Group) -> tuple[Key, PluginError | None]:
        """Returns the group's key among all groups and, if it has none, why; changes nothing.

        With lanes it is the key that the group would have as the first of its lane.
        """
        try:
            if self._laned is None or self._view is None:
                return (0, self._key(group)), None
            return (0, self._lane_key(group), self._lane(group), self._key(group)), None
        except PluginError as error:
            return LAST, error

    def passing(self, group: Group) -> tuple[str, Key, bool]:
        """Returns the group's lane, its key there for counting passes, and whether that differs from the key
        by which it is tried; changes nothing."""
        try:
            lane = "" if self._laned is None or self._view is None else self._lane(group)
            key = (0, self._key(group))
            own: Key | None = None
            if self._passing is not None and self._view is not None:
                own = self._called(self._passing.passing_key, group, self._view)
                own = None if own is None else self._as_key("passing_key", own)
        except PluginError:
            return "", LAST, False
        return (lane, key, False) if own is None else (lane, (0, own), True)

    def lane_place(self, group: Group) -> Key:
        """Returns the lane's key if the group were first in it now; changes nothing."""
        if self._laned is None or self._view is None:
            return ()
        try:
            return (0, self._lane_key(group))
        except PluginError:
            return LAST

    def lane_or_last(self, group: Group) -> str:
        """Returns the group's lane; the one without a name if the plugin fails."""
        try:
            return self._lane(group)
        except PluginError as error:
            self._hooks.blame(error, group)
            return ""

    def lane_key_or_last(self, first: Group) -> Key:
        """Returns the lane's key if the group were first in it now; the last if the plugin fails."""
        try:
            return (0, self._lane_key(first))
        except PluginError as error:
            self._hooks.blame(error, first)
            return LAST

    def _key(self, group: Group) -> Key:
        args = (group, self._view) if self._key_sees else (group,)
        return self._as_key("sort_key", self._called(self._sort.sort_key, *args))

    def _lane(self, group: Group) -> str:
        assert self._laned is not None
        args = (group, self._view) if self._lane_sees else (group,)
        lane: object = self._called(self._laned.lane, *args)
        if not isinstance(lane, str):
            problem = f"lane answered {repr(lane)[:80]}, expected a text"
            raise PluginError(self._sort.name, _POINT, problem)
        return lane

    def _lane_key(self, first: Group) -> Key:
        assert self._laned is not None
        return self._as_key("lane_key", self._called(self._laned.lane_key, first, self._view))

    def _as_key(self, method: str, answer: object) -> Key:
        if isinstance(answer, tuple):
            return answer
        problem = f"{method} answered {repr(answer)[:80]}, expected a tuple of numbers and texts"
        raise PluginError(self._sort.name, _POINT, problem)

    def _called(self, method: Callable[..., Any], *args: object) -> Any:
        try:
            return method(*args)
        except PluginError:
            raise
        except Exception as error:
            raise blamed(self._sort.name, _POINT, error) from error
