"""NodeDeclaredFeatures: keeps pods off nodes whose kubelet does not do what the pod asks for.

Kubelets declare in status.declaredFeatures what they do beyond what every version does; what a pod needs of
it is inferred from its spec. In a cluster in which no kubelet declares anything (before 1.36 the feature is
off) nothing is known, and no node is refused. Sources: KEP-5328; kube-scheduler 1.37
`plugins/nodedeclaredfeatures`, k8s.io/component-helpers `nodedeclaredfeatures/features`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.framework.interface import BoolArray, Change, ClusterChange, CycleState
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import PodSpec

REASON = "node(s) didn't match Pod's required features"
RESTARTS_ALL = "RestartAllContainersOnContainerExits"
USERS_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
MOUNT_OPTIONS = "VolumeBindMountOptions"
_RESTART_ALL = "RestartAllContainers"


def required_features(spec: PodSpec) -> frozenset[str]:
    """Returns the features that a node must declare to run the pod; nearly always none."""
    found = set()
    if spec.host_network and spec.host_users is False:
        found.add(USERS_ON_HOST_NETWORK)
    for container in (*spec.containers, *(spec.init_containers or ())):
        if container.volume_mounts:
            found.add(MOUNT_OPTIONS)
        if any(rule.action == _RESTART_ALL for rule in container.restart_policy_rules or ()):
            found.add(RESTARTS_ALL)
    return frozenset(found)


class NodeDeclaredFeatures:
    """Filter on status.declaredFeatures."""

    name = "NodeDeclaredFeatures"
    # A change of status.declaredFeatures is reported as NODE_LABELS.
    cured_by = Change.NODE_ADDED | Change.NODE_LABELS

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        needed = required_features(template.spec)
        if not needed:
            return None
        mask = np.zeros(view.n_rows, dtype=np.bool_)
        is_declared = False
        for row in np.flatnonzero(view.live).tolist():
            declared = _declared(view, row)
            is_declared = is_declared or bool(declared)
            mask[row] = needed.issubset(declared)
        return mask if is_declared else None

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else ((REASON, ~mask),)

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if template is None or change.row < 0:
            return True
        return required_features(template.spec).issubset(_declared(view, change.row))


def _declared(view: ClusterView, row: int) -> Sequence[str]:
    node = view.node(row)
    return () if node is None else node.status.declared_features or ()
