"""The admission plugins that every cluster runs, limited to changes of a new pod.

Lives here: Priority, DefaultTolerationSeconds, the QoS class, the service account's name. Not here: defaults
by version (pod_defaults.py). Called by the pods' strategy at creation.
Source: plugin/pkg/admission/{priority,defaulttolerationseconds,serviceaccount} and
pkg/apis/core/v1/helper/qos/qos.go of Kubernetes 1.37.
"""

from __future__ import annotations

import json
from typing import Any

from gangsched.api_rules.canonical import quantity
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.status import forbidden
from gangsched.lab.apiserver.strategy import Context

Object = dict[str, Any]

PREEMPT = "PreemptLowerPriority"
_TOLERATION_S = 300
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admit_priority(pod: Object, context: Context) -> None:
    """Sets priority and preemption policy from the pod's PriorityClass, or the default one. Raises: 403."""
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    value, policy = 0, PREEMPT
    if name:
        item = context.cluster.find(context.cluster.resource("priorityclasses.scheduling.k8s.io"), "", name)
        if item is None:
            raise _refused(pod, f"no PriorityClass with name {name} was found")
        found = item.decode()
        value, policy = found.get("value", 0), found.get("preemptionPolicy", PREEMPT)
    else:
        default = default_priority_class(context)
        if default is not None:
            spec["priorityClassName"] = default["metadata"]["name"]
            value, policy = default.get("value", 0), default.get("preemptionPolicy", PREEMPT)
    given = spec.get("priority")
    if given is not None and given != value:
        raise _refused(
            pod,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    given = spec.get("preemptionPolicy")
    if given is not None and given != policy:
        raise _refused(
            pod,
            f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {policy} from the given PriorityClass name",
        )
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def default_priority_class(context: Context) -> Object | None:
    """Returns the class with globalDefault; of several, the lowest."""
    resource = context.cluster.resource("priorityclasses.scheduling.k8s.io")
    found = [item.decode() for item in context.cluster.list(resource) if b'"globalDefault":true' in item.raw]
    marked = [each for each in found if each.get("globalDefault")]
    return min(marked, key=lambda each: int(each.get("value", 0)), default=None)


def _refused(pod: Object, why: str) -> StatusError:
    return forbidden("pods", pod["metadata"].get("name") or "", why)


def add_default_tolerations(spec: Object) -> None:
    """Tolerates nodes not ready or unreachable for five minutes, unless the pod has its own tolerations."""
    tolerations = spec.get("tolerations") or []
    missing = [
        taint
        for taint in _TAINTS
        if not any(
            each.get("key", taint) == taint and each.get("effect", "NoExecute") == "NoExecute"
            for each in tolerations
        )
    ]
    if missing:
        spec["tolerations"] = tolerations + [
            {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_S}
            for taint in missing
        ]


def reject_runtime_class(pod: Object) -> None:
    """Rejects a RuntimeClass or an overhead: RuntimeClasses are not served here."""
    spec = pod["spec"]
    if name := spec.get("runtimeClassName"):
        raise _refused(pod, f"pod rejected: RuntimeClass {json.dumps(name)} not found")
    if spec.get("overhead"):
        raise _refused(
            pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )


def default_service_account(spec: Object) -> None:
    """Sets only the account's name: no tokens are issued here, so no token volume is mounted."""
    if "serviceAccountName" not in spec:
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"


def qos_class(spec: Object) -> str:
    """Returns the class by the pod's own resources if it has some, else by its containers'."""
    if (own := spec.get("resources")) and (own.get("requests") or own.get("limits")):
        return _class_of(own)
    classes = {
        _class_of(container.get("resources") or {})
        for key in ("initContainers", "containers")
        for container in spec.get(key) or ()
    }
    if not classes:
        return "BestEffort"
    return classes.pop() if len(classes) == 1 else "Burstable"


def _class_of(resources: Object) -> str:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    classes = set()
    for name in ("cpu", "memory"):
        request, limit = (quantity(found.get(name, "0")) for found in (requests, limits))
        if request != limit:
            return "Burstable"
        classes.add("Guaranteed" if request.value else "BestEffort")
    return classes.pop() if len(classes) == 1 else "Burstable"
