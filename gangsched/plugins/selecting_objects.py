"""Which pods belong together by the services that select them and the controllers that own them.

Used by PodTopologySpread's default constraints and SelectorSpread.
Source: kube-scheduler 1.37 `plugins/helper/spread.go` (DefaultSelector).
"""

from __future__ import annotations

from collections.abc import Hashable

from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import Selector, requirements_of, selector_of

WATCHES = ("services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps")
_CONTROLLERS = {
    ("v1", "ReplicationController"): "replicationcontrollers",
    ("apps/v1", "ReplicaSet"): "replicasets.apps",
    ("apps/v1", "StatefulSet"): "statefulsets.apps",
}


def controller_of(pod: Pod) -> tuple[str, str] | None:
    """Returns (kind as in WATCHES, name) of the controller of the pod's replicas; None: of none of these
    kinds."""
    owner = pod.metadata.controller
    kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
    return (kind, owner.name) if owner is not None and kind else None


def sign(pod: Pod) -> Hashable:
    """Returns the pod's metadata that matters besides the labels that services select by."""
    return controller_of(pod) or ()


def revision(view: ObjectQueries) -> tuple[int, ...]:
    """Changes whenever the results of selector_for may."""
    return tuple(view.objects_revision(kind) for kind in WATCHES)


def _by_name(one: tuple[str, object]) -> str:
    return one[0]


def selector_for(template: PodTemplate, view: ObjectQueries) -> Selector:
    """Combines the selectors of the services and the controller of the template's pods; empty if none."""
    merged: dict[str, str] = {}
    for _, service in sorted(view.objects_in("services", template.namespace).items(), key=_by_name):
        wanted = service.spec.selector
        if wanted is not None and all(template.labels.get(key) == value for key, value in wanted.items()):
            merged |= wanted
    controller = controller_of(template.pod)
    owner = None
    if controller is not None:
        owner = view.objects(controller[0]).get((template.namespace, controller[1]))
    if owner is None:
        return Selector(tuple(requirements_of(merged)))
    if isinstance(owner.spec.selector, dict) or owner.spec.selector is None:
        return Selector(tuple(requirements_of(merged | (owner.spec.selector or {}))))
    own = selector_of(owner.spec.selector) or Selector()
    return Selector(tuple(requirements_of(merged))).with_requirements(own.requirements)
