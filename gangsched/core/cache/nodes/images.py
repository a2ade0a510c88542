"""ImageTable: which container images are on which nodes, as kubelets report them.

Written by core.cache.nodes.table, read through ClusterView.image by the ImageLocality plugin. A kubelet
reports up to fifty images with two names each: strings are kept once for the cluster, and a node costs eight
bytes per name.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from gangsched.core.types.arrays import IntArray
from gangsched.model.objects import NodeImage


class Image:
    """One name of an image. size_bytes: as reported by the first node that has it."""

    __slots__ = ("_rows", "name", "size_bytes")

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self._rows = array("i")

    @property
    def n_nodes(self) -> int:
        return len(self._rows)

    def rows(self) -> IntArray:
        """The nodes that have the image, unordered. Shape: int64[n_nodes]."""
        return np.array(self._rows, dtype=np.int64)

    def add(self, row: int) -> None:
        self._rows.append(row)

    def drop(self, row: int) -> None:
        self._rows.remove(row)


class ImageTable:
    """Images by name; `revision` changes whenever a node's images do."""

    def __init__(self) -> None:
        self.revision = 0
        self._images: dict[str, Image] = {}
        self._on_row: dict[int, tuple[Image, ...]] = {}

    def get(self, name: str) -> Image | None:
        return self._images.get(name)

    def on(self, row: int) -> tuple[Image, ...]:
        """The images of one node."""
        return self._on_row.get(row, ())

    def are(self, row: int, reported: Iterable[NodeImage] | None) -> bool:
        """Whether a report has the images that the row has, in their order."""
        names = dict.fromkeys(name for one in reported or () for name in one.names or ())
        return tuple(names) == tuple(image.name for image in self.on(row))

    def forget(self, row: int) -> None:
        """Does as `put` with no images, for a row that may have been written halfway."""
        self.revision += 1
        self._on_row.pop(row, None)
        for image in list(self._images.values()):
            for _ in range(image.rows().tolist().count(row)):
                image.drop(row)
            if not image.n_nodes:
                del self._images[image.name]

    def put(self, row: int, reported: Iterable[NodeImage] | None) -> None:
        """Takes in a node's report; None or empty: it has no images."""
        before = self._on_row.get(row, ())
        if not reported and not before:
            return
        known = self._images
        now: dict[Image, None] = {}
        for one in reported or ():
            for name in one.names or ():
                image = known.get(name)
                if image is None:
                    image = known[name] = Image(name, one.size_bytes)
                now[image] = None
        after = tuple(now)
        if after == before:
            return
        self.revision += 1
        gone = dict.fromkeys(before)
        for image in after:
            if image in gone:
                del gone[image]
            else:
                image.add(row)
        for image in gone:
            image.drop(row)
            if not image.n_nodes:
                del known[image.name]
        if after:
            self._on_row[row] = after
        else:
            del self._on_row[row]
