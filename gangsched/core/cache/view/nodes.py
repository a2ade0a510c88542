"""NodeQueries: labels, taints and images of nodes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from gangsched.core.cache.nodes.images import Image
from gangsched.core.cache.nodes.table import CodeArray, LabelColumn, Notes
from gangsched.core.cache.view.rows import RowQueries, shown
from gangsched.core.types.arrays import BoolArray
from gangsched.model.objects import Node, Taint

# Users name what notes are about, and each may have one for every node.
_MAX_NOTED = 16


class NodeQueries(RowQueries):
    """Properties of nodes, whatever runs on them."""

    __slots__ = ()

    def node(self, row: int) -> Node | None:
        return self._nodes.nodes[row]

    @property
    def unschedulable(self) -> BoolArray:
        return shown(self._nodes.unschedulable[: self._nodes.n_rows])

    @property
    def taint_class(self) -> CodeArray:
        """int32[n_rows], an index into taint_classes."""
        return shown(self._nodes.taint_class[: self._nodes.n_rows])

    @property
    def taint_classes(self) -> Mapping[tuple[Taint, ...], int]:
        """Every distinct list of taints that a node has had, with its code."""
        return self._nodes.taint_classes

    def label(self, key: str) -> tuple[CodeArray, Mapping[str, int]]:
        """One label over all nodes: (int32[n_rows] codes, -1 where absent; value -> code)."""
        column: LabelColumn = self._nodes.label_column(key)
        return shown(column.codes[: self._nodes.n_rows]), column.values

    def noted(self, about: Hashable) -> dict[int, Any]:
        """What its caller has worked out by row from names and labels: empty again once a node comes, goes or
        changes these."""
        nodes = self._nodes
        noted = nodes.noted
        if noted is None or nodes.noted_at != nodes.static_revision or len(noted) > _MAX_NOTED:
            noted = nodes.noted = Notes()
            nodes.noted_at = nodes.static_revision
        return noted.setdefault(about, {})

    def image(self, name: str) -> Image | None:
        """Returns an image and its nodes, by a name that nodes report; None: on no node."""
        return self._nodes.images.get(name)

    def images_on(self, row: int) -> tuple[str, ...]:
        """The names of the images on a node."""
        return tuple(image.name for image in self._nodes.images.on(row))

    @property
    def image_revision(self) -> int:
        """Changes whenever a node's images change."""
        return self._nodes.images.revision
