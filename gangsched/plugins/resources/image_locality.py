"""ImageLocality: prefers nodes that already have the pod's images; larger images count more.

An image's size is scaled by the share of nodes that have it, so that a pod is not drawn to the only node with
its image. The thresholds are kube-scheduler's: below 23 MiB scores 0, 1,000 MiB a container scores 100.
Source: kube-scheduler `plugins/imagelocality/image_locality.go`.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import MAX_SCORE, CycleState, FloatArray, IntArray
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate

_MIB = 2**20
MIN_BYTES = 23 * _MIB
MAX_CONTAINER_BYTES = 1000 * _MIB
# Cached scores per template; cleared all at once, since they are recomputed in microseconds.
_MAX_REMEMBERED = 500

_Mark = tuple[int, int, int]


class ImageLocality:
    """Score by the images already present."""

    name = "ImageLocality"

    def __init__(self) -> None:
        self._scores: PerTemplate[tuple[_Mark, FloatArray | None]] = PerTemplate(_MAX_REMEMBERED)

    def score(
        self, state: CycleState, template: PodTemplate, view: NodeQueries, rows: IntArray
    ) -> FloatArray | None:
        """0 to 100, whole numbers; None when no node has enough of the pod's images to count."""
        mark = (view.image_revision, view.n_nodes, view.n_rows)
        known = self._scores.get(template)
        if known is None or known[0] != mark:
            known = self._scores.put(template, (mark, _scores(template, view)))
        scores = known[1]
        return None if scores is None else scores[rows]


def _scores(template: PodTemplate, view: NodeQueries) -> FloatArray | None:
    """float64[n_rows]; an image used by several containers counts for each of them."""
    total: IntArray | None = None
    for name in template.images:
        image = view.image(name)
        if image is not None:
            if total is None:
                total = np.zeros(view.n_rows, dtype=np.int64)
            total[image.rows()] += int(image.size_bytes * (image.n_nodes / view.n_nodes))
    if total is None or total.max() <= MIN_BYTES:
        return None
    most = MAX_CONTAINER_BYTES * len(template.images)
    above = np.clip(total, MIN_BYTES, most) - MIN_BYTES
    scores: FloatArray = (int(MAX_SCORE) * above // (most - MIN_BYTES)).astype(np.float64)
    return scores
