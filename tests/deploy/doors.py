"""Every way by which somebody can try to write an annotation or a label of a pod, as functions of one shape.

Lives here: the ways, and who goes them (a token of the API server). Not here: what must come of it
(test_reserved_keys.py). The pods are in a namespace of their own, where no scheduler looks for work.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.labels import ALLOCATED_SUFFIX

Json = dict[str, Any]

NAMESPACE = "doors"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODE = "elsewhere"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
FORCED = "fieldManager=somebody&force=true"


class Answer(NamedTuple):
    """What the API server said."""

    code: int
    body: Json

    @property
    def message(self) -> str:
        said: str = self.body.get("message", "")
        return said


class Person:
    """Somebody with a token; `acts_as` are the impersonated user and its groups."""

    def __init__(self, plane: ControlPlane, token: str, acts_as: tuple[str, ...] = ()) -> None:
        self._plane = plane
        self._headers = [("Authorization", f"Bearer {token}")]
        if acts_as:
            self._headers.append(("Impersonate-User", acts_as[0]))
            self._headers += [("Impersonate-Group", group) for group in acts_as[1:]]

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """One request; whatever the answer is, it is returned."""
        context = ssl.create_default_context(cafile=str(self._plane.ca_file))
        connection = http.client.HTTPSConnection("127.0.0.1", self._plane.port, timeout=30, context=context)
        try:
            connection.putrequest(method, path)
            for name, value in [*self._headers, ("Content-Type", kind)]:
                connection.putheader(name, value)
            data = b"" if body is None else json.dumps(body).encode()
            connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        finally:
            connection.close()


def new_pod(name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """One that nobody schedules."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, **_parted(annotations or {})},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox"}],
            **spec,
        },
    }


def _parted(keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The labels that say what a pod has go where labels go, all others where annotations do."""
    labels = {key: value for key, value in keys.items() if ALLOCATED_SUFFIX in key}
    annotations = {key: value for key, value in keys.items() if key not in labels}
    return {"annotations": annotations, **({"labels": labels} if labels else {})}


def _annotated(keys: Mapping[str, str]) -> Json:
    return {"metadata": _parted(keys)}


def _applied(name: str, keys: Mapping[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **_parted(keys)}}


def _replaced(who: Person, name: str, keys: Mapping[str, str], subresource: str = "") -> Answer:
    pod = who.send("GET", f"{PODS}/{name}").body
    for field, values in _parted(keys).items():
        pod["metadata"].setdefault(field, {}).update(values)
    return who.send("PUT", f"{PODS}/{name}{subresource}", pod)


def _bound(who: Person, path: str, name: str, keys: Mapping[str, str]) -> Answer:
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    kind = {"apiVersion": "v1", "kind": "Binding"}
    metadata = {"name": name, **_parted(keys)}
    return who.send("POST", path, {**kind, "metadata": metadata, "target": target})


def create(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("POST", PODS, new_pod(name, keys))


def create_on_a_node(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("POST", PODS, new_pod(name, keys, nodeName=NODE))


def create_by_apply(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}?{FORCED}", new_pod(name, keys), APPLY)


def replace(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return _replaced(who, name, keys)


def merge_patch(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}", _annotated(keys), MERGE)


def strategic_patch(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}", _annotated(keys), STRATEGIC)


def json_patch(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    patch = [{"op": "add", "path": f"/metadata/{field}", "value": v} for field, v in _parted(keys).items()]
    return who.send("PATCH", f"{PODS}/{name}", patch, JSON_PATCH)


def apply(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}?{FORCED}", _applied(name, keys), APPLY)


def replace_status(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return _replaced(who, name, keys, "/status")


def patch_status(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}/status", _annotated(keys), MERGE)


def apply_status(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}/status?{FORCED}", _applied(name, keys), APPLY)


def bind(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return _bound(who, f"{PODS}/{name}/binding", name, keys)


def bind_the_old_way(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return _bound(who, f"/api/v1/namespaces/{NAMESPACE}/bindings", name, keys)


def patch_ephemeral_containers(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    shell = {"name": "shell", "image": "busybox"}
    patch = {**_annotated(keys), "spec": {"ephemeralContainers": [shell]}}
    return who.send("PATCH", f"{PODS}/{name}/ephemeralcontainers", patch, STRATEGIC)


def replace_at_resize(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return _replaced(who, name, keys, "/resize")


def patch_at_resize(who: Person, name: str, keys: Mapping[str, str]) -> Answer:
    return who.send("PATCH", f"{PODS}/{name}/resize", _annotated(keys), MERGE)


Door = Callable[[Person, str, Mapping[str, str]], Answer]

CREATING: tuple[Door, ...] = (create, create_on_a_node, create_by_apply)
"""The pod must not be there before."""
CHANGING: tuple[Door, ...] = (
    replace,
    merge_patch,
    strategic_patch,
    json_patch,
    apply,
    replace_status,
    patch_status,
    apply_status,
)
BINDING: tuple[Door, ...] = (bind, bind_the_old_way)
OPEN: tuple[Door, ...] = (*CREATING, *CHANGING, *BINDING)
CLOSED: tuple[Door, ...] = (patch_ephemeral_containers, replace_at_resize, patch_at_resize)
"""Kubernetes itself keeps a pod's annotations as they are when these are written."""
