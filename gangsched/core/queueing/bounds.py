"""Bounds: how many groups may start in front of one that does not fit, by the configuration.

A number that its queue or `queueing.bound.groups` states; `auto`: by how many groups run when it is first
refused. Called by core.queueing.bypasses and core.groups.limit_line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gangsched.config.queueing import QueueingSettings
from gangsched.core.types.group import BOUND, Group
from gangsched.model.pod_group import GroupKey

_LEAST = 64
_PER_RUNNING = 8
# Where groups are tried in another order than they came: that order needs room.
_REORDERED = 2
# Counting the groups that run is a walk over all of them.
_COUNT_AGAIN_S = 1.0


class Bounds:
    """Tells each group's, and remembers how many groups run.

    bound_of: the bound of the group's queue, None: it has none, so that the settings' holds. is_reordered:
    whether groups are tried in another order where it waits.
    """

    def __init__(
        self,
        settings: QueueingSettings,
        groups: Mapping[GroupKey, Group],
        bound_of: Callable[[Group], int | str | None],
        is_reordered: Callable[[Group], bool],
    ) -> None:
        self.settings = settings
        self._groups = groups
        self._bound_of = bound_of
        self._is_reordered = is_reordered
        self._running: tuple[float, int] | None = None
        """When groups that run were counted, and how many there were; None: not since it was configured."""

    def configure(self, settings: QueueingSettings) -> None:
        """Other settings are in effect."""
        self.settings, self._running = settings, None

    def stated(self, group: Group) -> int | None:
        """A number that is stated for it; None: `auto`."""
        own = self._bound_of(group) or self.settings.bound
        return own if isinstance(own, int) else None

    def first(self, group: Group, now_s: float) -> int:
        """What holds for it, if it is refused for the first time now."""
        own = self.stated(group)
        if own is not None:
            return own
        if self._running is None or now_s - self._running[0] >= _COUNT_AGAIN_S:
            self._running = (now_s, sum(group.counts[BOUND] > 0 for group in self._groups.values()))
        bound = max(_LEAST, _PER_RUNNING * self._running[1])
        return bound * _REORDERED if self._is_reordered(group) else bound

    def after(self, before: int, group: Group, now_s: float) -> int:
        """What holds for it, once its queue or the settings are others: a number that is stated now, or no
        more than before."""
        own = self.stated(group)
        return own if own is not None else min(before, self.first(group, now_s))
