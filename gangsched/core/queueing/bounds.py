"""Bounds: how many groups may bypass a group that does not fit, by the configuration.

Its queue or `queueing.bound.groups` states a number, or `auto`: by how many groups run when it is first
refused. Called by core.queueing.bypasses and core.groups.limit_line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gangsched.config.queueing import QueueingSettings
from gangsched.core.types.group import BOUND, Group
from gangsched.model.pod_group import GroupKey

_LEAST = 64
_PER_RUNNING = 8
# Factor if groups are not tried in order of arrival: another order needs room.
_REORDERED = 2
# Counting the running groups iterates over all groups.
_COUNT_AGAIN_S = 1.0


class Bounds:
    """Computes each group's bound, and remembers how many groups run.

    bound_of: the bound of the group's queue; None: the settings' bound applies. is_reordered: whether groups
    are not tried in order of arrival where it waits.
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
        """(when the running groups were counted, how many there were); None: not since `configure`."""

    def configure(self, settings: QueueingSettings) -> None:
        """Applies new settings."""
        self.settings, self._running = settings, None

    def protects(self, group: Group) -> bool:
        """Whether passes of the group are counted."""
        return group.is_gang or not self.settings.gangs_alone

    def stated(self, group: Group) -> int | None:
        """The number stated for the group; None: `auto`."""
        own = self._bound_of(group) or self.settings.bound
        return own if isinstance(own, int) else None

    def first(self, group: Group, now_s: float) -> int:
        """The bound of a group that is refused for the first time now."""
        own = self.stated(group)
        if own is not None:
            return own
        if self._running is None or now_s - self._running[0] >= _COUNT_AGAIN_S:
            self._running = (now_s, sum(group.counts[BOUND] > 0 for group in self._groups.values()))
        bound = max(_LEAST, _PER_RUNNING * self._running[1])
        return bound * _REORDERED if self._is_reordered(group) else bound

    def after(self, before: int, group: Group, now_s: float) -> int:
        """The bound of a group after its queue or the settings have changed: the number stated now, or at
        most its former bound."""
        own = self.stated(group)
        return own if own is not None else min(before, self.first(group, now_s))
