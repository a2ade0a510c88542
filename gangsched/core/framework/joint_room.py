"""Joint room: at most how many pods of several templates a node takes in any mix, as plugins know it.

Each template's capacity alone says nothing of that: a node with room for one pod of either of two kinds may
take one or two. The bound is what tells, before any order of placing is tried, that a group has too many
members for a rack or for the cluster. Called by core.cycle.shared_room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import CapacityPlugin, CycleState, FilterPlugin, IntArray
from gangsched.core.framework.plugin_calls import CallPlugin, check_shape
from gangsched.core.types.pod_template import PodTemplate


class JointRoom:
    """Those plugins of one profile that have `together`."""

    def __init__(self, plugins: Iterable[CapacityPlugin | FilterPlugin], ask: CallPlugin) -> None:
        self._ask = ask
        self._plugins = [(one.name, one.together) for one in plugins if hasattr(one, "together")]

    def of(self, asked: Sequence[tuple[CycleState, PodTemplate]], view: ClusterView) -> IntArray | None:
        """int64[n_rows]; None: no bound is known. A plugin that one of the templates does not concern bounds
        none of them."""
        templates = [template for _, template in asked]
        most: IntArray | None = None
        for name, together in self._plugins:
            if any(name in state.skipped or name in state.unconcerned for state, _ in asked):
                continue
            own = self._ask(name, "Filter", together, templates, view)
            if own is not None:
                check_shape(name, "Filter", own, (view.n_rows,), "iu")
                most = own if most is None else np.minimum(most, own)
        return most
