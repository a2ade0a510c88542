"""Binding a pod to a node: one write that sets the node, merges annotations and labels, and sets
PodScheduled.

Lives here: POST of a Binding, to a pod's subresource or to the collection. Not here: pods otherwise.
Called through the strategies of pods and of bindings.
Source: pkg/registry/core/pod/storage/storage.go (BindingREST), pkg/apis/core/validation (ValidatePodBinding)
of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names
from gangsched.api_rules.status import StatusError, bad_request, not_supported, quoted, required
from gangsched.lab.apiserver.kinds.pods.conditions import set_condition
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.status import conflict
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

BOUND: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class BindingStrategy(Strategy):
    """`bindings`: the body names the pod."""

    def review(self, body: Object, context: Context) -> Object:
        name = (body.get("metadata") or {}).get("name")
        if not name:
            raise bad_request("Name parameter required.")
        return bind(body, context.cluster.resource("pods"), name, context)


def bind(body: Object, pods: Resource, name: str, context: Context) -> Object:
    """Bind the pod `name`. Raises: StatusError."""
    context.cluster.admit_to_namespace(pods, context.namespace, name)
    metadata, target = body.get("metadata") or {}, body.get("target") or {}
    if metadata.get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    if (metadata.get("namespace") or context.namespace) != context.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    node = target.get("name") or ""
    problems = []
    if target.get("kind") not in (None, "", "Node"):
        problems.append(not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    problems += names.subdomain("target.name", node) if node else [required("target.name")]
    if problems:
        text = ", ".join(map(str, problems))
        raise StatusError(500, "", text if len(problems) == 1 else f"[{text}]")

    def assign(pod: Object) -> None:
        _check(pod, name)
        pod["spec"]["nodeName"] = node
        status = pod["status"]
        status.pop("nominatedNodeName", None)
        for key in ("annotations", "labels"):
            if given := metadata.get(key):
                pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **given}
        set_condition(status, "PodScheduled", "True", context.timestamp())

    existing = context.cluster.get(pods, context.namespace, name)
    _check_preconditions(metadata, existing, context.namespace)
    if context.dry_run:
        _check(existing.decode(), name)
    else:
        context.cluster.modify(pods, context.namespace, name, assign)
    return dict(BOUND)


def _check(pod: Object, name: str) -> None:
    spec: dict[str, Any] = pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := spec.get("nodeName"):
        raise conflict("pods/binding", name, f"pod {name} is already assigned to node {quoted(node)}")
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _check_preconditions(metadata: Object, existing: Item, namespace: str) -> None:
    """Raises the errors of etcd3's storage, with the key that the object would have there."""
    why = ""
    if (uid := metadata.get("uid")) and uid != existing.uid:
        why = f"UID in precondition: {uid}, UID in object meta: {existing.uid}"
    elif (version := metadata.get("resourceVersion")) and version != str(existing.revision):
        why = (
            f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: {existing.revision}"
        )
    if why:
        raise conflict(
            "pods",
            existing.name,
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{existing.name}, "
            f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {why}",
        )
