"""ResourceColumns: which resource names are counted, one column of the nodes' arrays each.

Nodes offer names, and pods ask for them; a column for each costs memory on every node, so at most
MAX_RESOURCES names are counted. A name that nodes offer and no pod asks for gives its column up to a new name
when there is no other; names that pods ask for come first, and a name that no node offers needs no column. So
one node with invented names takes nothing from the others. Called by core.cache.cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.template_table import TemplateTable
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import NO_ROW, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.resources import ALWAYS_COUNTED, MAX_RESOURCES
from gangsched.model.text.printable import several

# Of names that are not counted, in a message.
_MAX_SHOWN, _MAX_CHARS = 3, 80


class ResourceColumns:
    """Makes columns, and counts the pods in them."""

    def __init__(
        self,
        nodes: NodeTable,
        pods: Mapping[str, PodInfo],
        nominated: Mapping[str, Nominated],
        templates: TemplateTable,
    ) -> None:
        self._nodes = nodes
        self._table = nodes.table
        self._pods = pods
        self._nominated = nominated
        self._templates = templates

    def offered(self, names: Collection[str]) -> tuple[list[ClusterChange], str]:
        """Counts the names that a node offers; returns what other nodes offer by that, and which names are
        not counted ("": none)."""
        new = [name for name in names if name not in self._table]
        if not new:
            return [], ""
        changes, made = self._make(new)
        left = [name for name in new if name not in made]
        if not left:
            return changes, ""
        shown = ", ".join(name[:_MAX_CHARS] for name in left[:_MAX_SHOWN]) + ", …" * (len(left) > _MAX_SHOWN)
        return changes, (
            f"{several(len(left), 'resource name')} not counted ({shown}): nodes have more than "
            f"{MAX_RESOURCES}, and those that pods request come first"
        )

    def asked(self, template: PodTemplate) -> None:
        """Counts the names that a new template requests, where nodes offer them and they have no column."""
        offered = [name for name in template.missing if self._nodes.is_offered(name)]
        if offered:
            self._make(offered, asked=offered)
            template.resolve(self._table)

    def _make(
        self, names: Iterable[str], asked: Collection[str] = ()
    ) -> tuple[list[ClusterChange], dict[str, None]]:
        made: dict[str, None] = {}
        replaced: list[str] = []
        unused: list[int] | None = None
        wanted: Collection[str] = ()
        for name in names:
            if len(self._table) >= MAX_RESOURCES:
                if unused is None:
                    wanted = {*asked, *self._requested()}
                    unused = self._unused({*wanted, *made})
                # The last of them are those that no node offers; the others only yield to what pods request.
                if not unused or (self._is_offered(unused[-1]) and name not in wanted):
                    continue
                replaced.append(self._table.rename(unused.pop(), name))
            self._table.column(name)
            made[name] = None
        if not made:
            return [], made
        self._nodes.fit_columns()
        changes = []
        for name in made:
            for row in self._nodes.fill_column(self._table.column(name), name):
                changes.append(ClusterChange(Change.NODE_ALLOCATABLE, row, frozenset({name})))
        self._resolve({*made, *replaced})
        return changes, made

    def _requested(self) -> set[str]:
        live = {id(info.template): info.template for info in self._infos()}
        return {name for template in live.values() for name in template.requests}

    def _unused(self, wanted: Collection[str]) -> list[int]:
        """Columns that no pod uses or waits for, those that no node offers last."""
        names = enumerate(self._table.names[ALWAYS_COUNTED:], start=ALWAYS_COUNTED)
        found = [column for column, name in names if name not in wanted]
        return sorted(found, key=lambda column: (not self._is_offered(column), column))

    def _is_offered(self, column: int) -> bool:
        return self._nodes.is_offered(self._table.names[column])

    def _infos(self) -> list[PodInfo]:
        return [*self._pods.values(), *(one.info for one in self._nominated.values())]

    def _resolve(self, names: Collection[str]) -> None:
        """Finds the columns of templates that request these names again, and counts their pods by them."""
        nodes = self._nodes
        counted = [info for info in self._pods.values() if info.row != NO_ROW and _asks(info.template, names)]
        for info in counted:
            nodes.use(info.row, info.template.columns, info.template.amounts, -1)
        live = {id(info.template): info.template for info in self._infos()}
        for template in (*live.values(), *self._templates.all):
            if _asks(template, names):
                template.resolve(self._table)
        for info in counted:
            nodes.use(info.row, info.template.columns, info.template.amounts, 1)


def _asks(template: PodTemplate, names: Collection[str]) -> bool:
    return any(name in names for name in template.requests)
