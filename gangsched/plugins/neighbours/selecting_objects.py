"""Which pods belong together by the services that select them and the controllers that own them.

Used by PodTopologySpread's default constraints and SelectorSpread.
Source: kube-scheduler 1.37 `plugins/helper/spread.go` (DefaultSelector).
"""

from __future__ import annotations

from collections.abc import Hashable

from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import Selector, requirements_of, selector_of, size_of

WATCHES = ("services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps")
_CONTROLLERS = {
    ("v1", "ReplicationController"): "replicationcontrollers",
    ("apps/v1", "ReplicaSet"): "replicasets.apps",
    ("apps/v1", "StatefulSet"): "statefulsets.apps",
}


# Of a service and a controller together; people write a handful of labels. Their authors may write as much as
# an object holds (1.5 MiB), and it would be compared with all pods for each kind of pods that they select.
MAX_SIZE = 50


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
    """Combines the selectors of the services and the controller of the template's pods; empty if none, or if
    they have more than MAX_SIZE labels, requirements and values."""
    merged: dict[str, str] = {}
    for _, service in sorted(view.objects_in("services", template.namespace).items(), key=_by_name):
        own = service.spec.selector
        if own is not None and all(template.labels.get(key) == value for key, value in own.items()):
            merged |= own
    controller = controller_of(template.pod)
    owner = None
    if controller is not None:
        owner = view.objects(controller[0]).get((template.namespace, controller[1]))
    wanted = None if owner is None else owner.spec.selector
    if wanted is None or isinstance(wanted, dict):
        merged |= wanted or {}
        return Selector(tuple(requirements_of(merged))) if len(merged) <= MAX_SIZE else Selector()
    if len(merged) + size_of(wanted) > MAX_SIZE:
        return Selector()
    more = selector_of(wanted) or Selector()
    return Selector(tuple(requirements_of(merged))).with_requirements(more.requirements)
