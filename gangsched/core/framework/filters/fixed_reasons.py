"""FixedReasons: why nodes are excluded by properties that hold until a node changes.

A pod that does not fit is refused again and again, mostly by the same taints and labels. So the reasons that
Filters give for these are kept as long as the mask that they gave. Called by
core.framework.filters.filtering.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filters.row_cache import n_kept
from gangsched.core.framework.interface import BoolArray, CapacityPlugin, CycleState, FilterPlugin
from gangsched.core.framework.plugin_calls import CallPlugin, PluginError, check_shape, converted
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Because, Why

Said = tuple[str, Sequence[tuple[Why, BoolArray]]]
"""A plugin's name, and its reasons with the rows that each applies to."""


class FixedReasons:
    """The reasons of Filters without PreFilter that do not see pods."""

    def __init__(self, plugins: Sequence[FilterPlugin], ask: CallPlugin) -> None:
        self._plugins = plugins
        self._ask = ask
        self._kept: dict[int, tuple[BoolArray, list[Said]]] = {}
        """By template, with the mask that the reasons belong to."""

    def reasons(
        self, mask: BoolArray, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[Said]:
        """mask: the mask of these Filters for the template."""
        kept = self._kept.get(template.serial)
        if kept is None or kept[0] is not mask:
            answers = reasons_of(self._plugins, self._ask, state, template, view)
            kept = (mask, [(name, reasons) for name, some in answers if (reasons := tuple(some))])
            if len(self._kept) > n_kept(view.n_rows):
                self._kept.clear()
            self._kept[template.serial] = kept
        return kept[1]


def reasons_of(
    plugins: Iterable[FilterPlugin | CapacityPlugin],
    ask: CallPlugin,
    state: CycleState,
    template: PodTemplate,
    view: ClusterView,
) -> Iterator[Said]:
    """Yields each plugin's reasons, calling it on demand. Raises: PluginError."""
    for plugin in plugins:
        answers: list[Any] = ask(
            plugin.name, "Filter", converted, plugin.reasons, list, state, template, view
        )
        for one in answers:
            _check(plugin.name, one, view.n_rows)
        yield plugin.name, answers


def _check(plugin: str, one: object, n_rows: int) -> None:
    """Raises: PluginError."""
    if not isinstance(one, tuple | list) or len(one) != 2 or not isinstance(one[0], str | Because):
        raise PluginError(plugin, "Filter", f"reasons has {type(one).__name__}, expected (text, array)")
    check_shape(plugin, "Filter", one[1], (n_rows,), "b")
