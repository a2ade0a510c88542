"""NodeUnschedulable: keeps new pods off cordoned nodes, unless they tolerate the taint of a cordon.

Source: kube-scheduler `plugins/nodeunschedulable/node_unschedulable.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import BoolArray, Change, ClusterChange, CycleState
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Taint
from gangsched.plugins.nodes.taint_toleration import Tolerations

REASON = "node(s) were unschedulable"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """Filter on spec.unschedulable."""

    name = "NodeUnschedulable"
    # A change of spec.unschedulable is reported as NODE_TAINTS.
    cured_by = Change.NODE_ADDED | Change.NODE_TAINTS

    def filter(self, state: CycleState, template: PodTemplate, view: NodeQueries) -> BoolArray | None:
        cordoned = view.unschedulable
        if not np.count_nonzero(cordoned) or Tolerations(template.spec.tolerations).accept(CORDON):
            return None
        return ~cordoned

    def reasons(
        self, state: CycleState, template: PodTemplate, view: NodeQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else ((REASON, ~mask),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: NodeQueries) -> bool:
        return change.row < 0 or not view.unschedulable[change.row]
