"""Which plugins a profile has, point by point, and the order in which they are called.

Filled in by gangsched.plugins from the configuration; core.framework.profile calls them.
"""

from __future__ import annotations

import msgspec

from gangsched.core.framework.interface import (
    BindPlugin,
    CapacityPlugin,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from gangsched.core.framework.points.queueing import AdmitPlugin


class ExtensionPoints(msgspec.Struct, kw_only=True):
    """The plugins of one profile by extension point, in calling order.

    Filters for all nodes at once come before those that declare `sees_pods`, and these before those that look
    at nodes one by one: the costly ones see only the nodes that are left.
    """

    queue_sort: QueueSortPlugin
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    admits: tuple[AdmitPlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filters: tuple[FilterPlugin | NodeFilterPlugin, ...] = ()
    capacities: tuple[CapacityPlugin, ...] = ()
    post_filters: tuple[PostFilterPlugin, ...] = ()
    pre_scores: tuple[PreScorePlugin, ...] = ()
    scores: tuple[tuple[ScorePlugin | NodeScorePlugin, float], ...] = ()
    reserves: tuple[ReservePlugin, ...] = ()
    permits: tuple[PermitPlugin, ...] = ()
    pre_binds: tuple[PreBindPlugin, ...] = ()
    binds: tuple[BindPlugin, ...] = ()
    post_binds: tuple[PostBindPlugin, ...] = ()
    has_default_binder: bool = True
    """Whether the core itself binds pods that `binds` skip."""

    def plugins(self) -> dict[str, Plugin]:
        """Each plugin once, by name."""
        found: dict[str, Plugin] = {self.queue_sort.name: self.queue_sort}
        for name in self.__struct_fields__[1:-1]:
            for listed in getattr(self, name):
                plugin = listed[0] if isinstance(listed, tuple) else listed
                found[plugin.name] = plugin
        return found
