"""Joint room: at most how many pods of several templates nodes take in any mix, as plugins know it.

The templates' capacities alone do not tell: a node with room for one pod of either of two kinds may take one
or two. This bound shows, before any order of placing is tried, that a group has too many members for a rack
or for the cluster. Called by core.cycle.shared_room and core.cycle.domains.domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import CapacityPlugin, CycleState, FilterPlugin, IntArray
from gangsched.core.framework.plugin_calls import CallPlugin, check_shape, converted
from gangsched.core.framework.supports import SupportsAtMostTogether, SupportsTogether, serves
from gangsched.core.types.templates.pod_template import PodTemplate

_Asked = Sequence[tuple[CycleState, PodTemplate]]


class JointRoom:
    """The plugins of one profile that have `together` or `at_most_together`."""

    def __init__(self, plugins: Iterable[CapacityPlugin | FilterPlugin], ask: CallPlugin) -> None:
        self._ask = ask
        plugins = tuple(plugins)
        self._together = [(one.name, one.together) for one in plugins if serves(one, SupportsTogether)]
        self._at_most = [
            (one.name, one.at_most_together) for one in plugins if serves(one, SupportsAtMostTogether)
        ]

    def upper_bound(self, asked: _Asked, view: ClusterView) -> IntArray | None:
        """int64[n_rows]: the bound on each node; None: no bound is known."""
        templates = [template for _, template in asked]
        most: IntArray | None = None
        for name, together in self._together:
            if _concerns_all(name, asked):
                own = self._ask(name, "Filter", together, templates, view)
                if own is not None:
                    check_shape(name, "Filter", own, (view.n_rows,), "iu")
                    most = own if most is None else np.minimum(most, own)
        return most

    def most(self, asked: _Asked, view: ClusterView, room: IntArray) -> int:
        """Returns the bound for all nodes, if each takes at most `room`."""
        templates = [template for _, template in asked]
        most = int(room.sum())
        room = room.view()
        room.flags.writeable = False
        for name, at_most in self._at_most:
            if most and _concerns_all(name, asked):
                most = min(most, self._ask(name, "Filter", converted, at_most, int, templates, view, room))
        return most


def _concerns_all(name: str, asked: _Asked) -> bool:
    """Whether the plugin concerns all templates; else it bounds none of them."""
    return not any(name in state.skipped or name in state.unconcerned for state, _ in asked)
