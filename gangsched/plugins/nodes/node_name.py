"""NodeName: a template that names its node can go only there.

Pending pods name none (a binding sets the field), so this filter almost never applies.
Source: kube-scheduler `plugins/nodename/node_name.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import BoolArray, Change, ClusterChange, CycleState
from gangsched.core.types.templates.pod_template import PodTemplate

REASON = "node(s) didn't match the requested node name"


class NodeName:
    """Filter on spec.nodeName."""

    name = "NodeName"
    cured_by = Change.NODE_ADDED

    def filter(self, state: CycleState, template: PodTemplate, view: RowQueries) -> BoolArray | None:
        wanted = template.spec.node_name
        if not wanted:
            return None
        mask = np.zeros(view.n_rows, dtype=np.bool_)
        row = view.row_of(wanted)
        if row is not None:
            mask[row] = True
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: RowQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else ((REASON, ~mask),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: RowQueries) -> bool:
        return template is None or change.row < 0 or view.name(change.row) == template.spec.node_name
