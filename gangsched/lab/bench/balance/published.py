"""The paper's baseline: Kubernetes 1.11's two scores as the paper prints them.

    (1) LeastRequested              ((1 - cpu) * 10 + (1 - memory) * 10) / 2
    (2) BalancedResourceAllocation  10 - |cpu - memory| * 10

where cpu and memory are the requested shares of the capacity, with the pod itself. Kubernetes 1.11 truncated
both to whole numbers, and (2) to 0 for requests above the capacity, which are filtered out here. (1) is an
out-of-tree plugin, loaded as a file by `model`, as a user's is; (2) is NodeResourcesBalancedAllocation with
`formula: AsPrinted`.
"""

from __future__ import annotations

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.framework.interface import MAX_SCORE, CycleState
from gangsched.model.objects import Pod
from gangsched.model.resources import CPU, MEMORY, parse_quantities

_MOST = 10.0


class LeastRequested:
    """Equation 1."""

    name = "LeastRequested"

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        """The published 0..10 as 0..100."""
        cpu, memory = _requested_shares(pod, node_info)
        return ((1 - cpu) * _MOST + (1 - memory) * _MOST) / 2 * (MAX_SCORE / _MOST)


def _requested_shares(pod: Pod, node_info: NodeInfo) -> tuple[float, float]:
    """Requested shares of cpu and memory, with this pod."""
    capacity, requested = node_info.allocatable, node_info.requested
    for container in pod.spec.containers:
        asked = parse_quantities(container.resources.requests) if container.resources else {}
        for name, amount in asked.items():
            requested[name] = requested.get(name, 0) + amount
    return requested[CPU] / capacity[CPU], requested[MEMORY] / capacity[MEMORY]
