"""NewerFields: fields of pods that the API server knows and this version does not, and which pods have them.

The API server drops what it does not know, so a field that is unknown here means a newer Kubernetes. It is
asked once, at start, and only if its version is newer than the newest that is known: nothing is decoded twice
otherwise. Each such field is logged once. A field that may decide where or when a pod starts holds the pods
that have it, with the reason: by its place, beside what is read of affinity, spread, resources, groups and
the like, or by its name. Not here: the fields that are known (model.known_fields), and the requests
(gangsched.process.following). Called by kube.watch.pod_reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import structlog

from gangsched.model.fields import EVERYTHING, Tree
from gangsched.model.known_fields import tree_of_pods
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

NEWEST = (1, 37)
"""The newest Kubernetes in the list of known fields."""
DOCUMENT = "/openapi/v3/api/v1"
"""Where the API server describes pods."""
_POD_SPEC = "io.k8s.api.core.v1.PodSpec"
_REFERENCE = "#/components/schemas/"
_MAX_FIELDS = 64
_MAX_DEPTH = 12
# Places and names of what decides where or when a pod starts; the rest is the kubelet's business.
_PLACES = re.compile(
    r"spec\.(affinity|topologySpreadConstraints|tolerations|schedulingGates|schedulingGroup|resourceClaims"
    r"|resources|overhead|nodeSelector)\b|\.resources\b"
)
_NAMES = re.compile(
    "schedul|placement|affinity|topolog|node|priorit|preempt|resource|device|gang|group|claim|workload|toler",
    re.IGNORECASE,
)


class _Schema(msgspec.Struct):
    properties: dict[str, Any] = {}


class _Components(msgspec.Struct):
    schemas: dict[str, _Schema] = {}


class _Document(msgspec.Struct):
    components: _Components = msgspec.field(default_factory=_Components)


_decode = bounded.lenient_decoder(_Document)


class NewerFields:
    """Finds the unknown fields in a pod's spec, as JSON."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        """paths: as in model.fields, those below `spec`."""
        self.holding = tuple(path for path in paths if is_scheduling(path))
        self._decode = msgspec.json.Decoder(_probe(self.holding)).decode

    def problem(self, spec: bytes | msgspec.Raw) -> str:
        """Returns why a pod with this spec is held; "" if it has none of the fields. Raises: nothing."""
        try:
            found = next(_set(self._decode(spec), "spec"), "")
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return ""  # its own decoder reports it
        if not found:
            return ""
        known = ".".join(map(str, NEWEST))
        return (
            f"{found}: this version of gangsched does not know the field (it knows Kubernetes up to "
            f"{known}), so it cannot tell whether the pod may start without it; remove it, or use a version "
            "that knows it"
        )


def newer_fields(document: bytes) -> NewerFields | None:
    """Returns the fields of pods in this OpenAPI document that are not known, and logs them; None if none of
    them may decide about scheduling. Raises: msgspec.MsgspecError.
    """
    schemas = _decode(document).components.schemas
    paths = tuple(_unknown(schemas, _POD_SPEC, tree_of_pods().get("spec", {}), "spec"))[:_MAX_FIELDS]
    for path in paths:
        then = "pods that have it are held" if is_scheduling(path) else "it is taken to decide nothing here"
        _log.warning("the API server knows a field of pods that this version does not", field=path, then=then)
    return NewerFields(paths) if any(map(is_scheduling, paths)) else None


def is_scheduling(path: str) -> bool:
    """Whether the field may decide where or when a pod starts, by its place or its name."""
    return _PLACES.search(path) is not None or _NAMES.search(path.rpartition(".")[2]) is not None


def _unknown(
    schemas: Mapping[str, _Schema], name: str, known: Tree, at: str, depth: int = 0
) -> Iterator[str]:
    schema = schemas.get(name)
    if schema is None or depth > _MAX_DEPTH:
        return
    for field, value in schema.properties.items():
        below = known.get(field)
        if below is None:
            yield f"{at}.{field}"
            continue
        path, inner = f"{at}.{field}", value
        while isinstance(inner, dict) and isinstance(inner.get("items"), dict):
            inner, path, below = inner["items"], f"{path}[]", below.get("[]", below)
        reference = _reference(inner)
        if reference and EVERYTHING not in below:
            yield from _unknown(schemas, reference, below, path, depth + 1)


def _reference(value: object) -> str:
    """Returns the schema that a property refers to, by itself or in an allOf beside its description."""
    while isinstance(value, dict):
        found = value.get("$ref")
        if isinstance(found, str):
            return found.removeprefix(_REFERENCE)
        each = value.get("allOf")
        value = each[0] if isinstance(each, list) and each else None
    return ""


def _probe(paths: tuple[str, ...]) -> type[msgspec.Struct]:
    """Returns a struct that decodes nothing of a spec but these fields."""
    tree: dict[str, Any] = {}
    for path in paths:
        at = tree
        for step in path.split(".")[1:]:
            at = at.setdefault(step, {})
    return _struct(tree)


def _struct(tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for i, (step, below) in enumerate(tree.items()):
        names[f"f{i}"] = step.removesuffix("[]")
        kind: Any = _struct(below) | None if below else Any
        fields.append((f"f{i}", list[kind] | None if step.endswith("[]") else kind, None))
    return msgspec.defstruct("Probe", fields, rename=names, gc=False)


def _set(found: object, at: str) -> Iterator[str]:
    """Yields the paths of the fields that are set."""
    if isinstance(found, list) and found and isinstance(found[0], msgspec.Struct | None):
        for i, one in enumerate(found):
            yield from _set(one, f"{at}[{i}]")
    elif isinstance(found, msgspec.Struct):
        for field in msgspec.structs.fields(found):
            yield from _set(getattr(found, field.name), f"{at}.{field.encode_name}")
    elif found is not None:
        yield at
