"""Looks up claims and volumes for the four volume plugins.

Sources: k8s.io/component-helpers `storage/volume/helpers.go` and `pv_helpers.go`, `storage/ephemeral`.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.framework.interface import BoolArray
from gangsched.model.objects import LabelSelector, NodeSelectorTerm, SelectorRequirement
from gangsched.model.storage import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from gangsched.plugins.nodes.node_selector import EVERYWHERE, Asked, match_any_term

WAITS = "WaitForFirstConsumer"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def not_found(kind: str, name: str) -> str:
    """Returns the message in kube-scheduler's words."""
    return f'{kind} "{name}" not found'


def lost(claim: PersistentVolumeClaim) -> str:
    """Returns the message in kube-scheduler's words."""
    volume = claim.spec.volume_name
    return f'persistentvolumeclaim "{claim.metadata.name}" bound to non-existent persistentvolume "{volume}"'


def claim_of(view: ObjectQueries, key: tuple[str, str]) -> PersistentVolumeClaim | None:
    found: PersistentVolumeClaim | None = view.objects(CLAIMS).get(key)
    return found


def volume_of(view: ObjectQueries, name: str) -> PersistentVolume | None:
    found: PersistentVolume | None = view.objects(VOLUMES).get(("", name))
    return found


def class_of(view: ObjectQueries, name: str) -> StorageClass | None:
    found: StorageClass | None = view.objects(CLASSES).get(("", name))
    return found


def class_name(one: PersistentVolumeClaim | PersistentVolume) -> str:
    """Returns the storage class from the older annotation or the spec; "" for none."""
    return (one.metadata.annotations or {}).get(_BETA_CLASS, one.spec.storage_class_name or "")


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether it is bound and the volume controller has finished."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


def on_nodes(volume: PersistentVolume, view: NodeQueries, at: slice = EVERYWHERE) -> BoolArray | None:
    """Returns those of these rows whose node can reach the volume, by its node affinity; None: all of
    them."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    return match_any_term(affinity.required.node_selector_terms or (), view, at)


def selected_nodes(selector: LabelSelector, view: NodeQueries) -> BoolArray:
    """Returns the nodes whose labels a label selector matches; an empty selector matches all of them."""
    found = list(selector.match_expressions or ())
    found += [SelectorRequirement(k, "In", [v]) for k, v in (selector.match_labels or {}).items()]
    if not found:
        return np.ones(view.n_rows, dtype=np.bool_)
    return Asked(view, EVERYWHERE).term(NodeSelectorTerm(found))
