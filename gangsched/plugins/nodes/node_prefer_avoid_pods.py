"""NodePreferAvoidPods: avoids nodes that are marked to be kept free of some controller's replicas.

The node lists the controllers in its annotation scheduler.alpha.kubernetes.io/preferAvoidPods, by kind and
UID (ReplicationControllers and ReplicaSets). An older priority function of kube-scheduler, of weight 10,000:
it outweighs everything else. An unreadable annotation is ignored. Source: kubernetes 1.22
`plugins/nodepreferavoidpods/node_prefer_avoid_pods.go`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import msgspec
import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.framework.interface import MAX_SCORE, CycleState, FloatArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.text import bounded

KEY = "scheduler.alpha.kubernetes.io/preferAvoidPods"
WEIGHT = 10_000
_KINDS = ("ReplicationController", "ReplicaSet")


class _Controller(msgspec.Struct, rename="camel"):
    kind: str = ""
    uid: str = ""


class _Signature(msgspec.Struct, rename="camel"):
    pod_controller: _Controller | None = None


class _Entry(msgspec.Struct, rename="camel"):
    pod_signature: _Signature = msgspec.field(default_factory=_Signature)


class _Avoided(msgspec.Struct, rename="camel"):
    prefer_avoid_pods: list[_Entry] = []


_decode = bounded.decoder(_Avoided)


class NodePreferAvoidPods:
    """Score 0 for a node that lists the pod's controller, else 100."""

    name = "NodePreferAvoidPods"
    score_by_row: ClassVar[bool] = True

    def sign(self, pod: Pod) -> Hashable:
        return _controller(pod) or ()

    def score(
        self, state: CycleState, template: PodTemplate, view: NodeQueries, rows: IntArray
    ) -> FloatArray | None:
        """Returns None for pods without such a controller."""
        controller = _controller(template.pod)
        if controller is None:
            return None
        scores: FloatArray = np.full(len(rows), MAX_SCORE)
        for i, row in enumerate(rows):
            node = view.node(int(row))
            text = ((node.metadata.annotations if node is not None else None) or {}).get(KEY)
            if text is not None and controller in _avoided(text):
                scores[i] = 0.0
        return scores


def _controller(pod: Pod) -> tuple[str, str] | None:
    owner = pod.metadata.controller
    return (owner.kind, owner.uid) if owner is not None and owner.kind in _KINDS else None


def _avoided(text: str) -> set[tuple[str, str]]:
    try:
        entries = _decode(text).prefer_avoid_pods
    except msgspec.MsgspecError:
        return set()
    named = (entry.pod_signature.pod_controller for entry in entries)
    return {(one.kind, one.uid) for one in named if one is not None}
