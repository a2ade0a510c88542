"""What can still be read of objects that do not parse as their kind: name, node, scheduler, other fields.

An unreadable field must not keep the old state of the others: a node whose labels cannot be read may be
cordoned in the same update. Called by kube.watch.watch_state and kube.watch.decode for refused objects, and
by kube.effects for answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields, replace

from gangsched.model.events import ObjectRefused
from gangsched.model.objects import Node, ObjectMeta, Pod
from gangsched.model.resource_claims.objects import ResourceClaim, ResourceSlice
from gangsched.model.text import bounded
from gangsched.model.workloads import PodDisruptionBudget

MAX_REFUSAL_CHARS = 512
_MAX_TOLD_PATHS = 5


class _Bare(msgspec.Struct, gc=False):
    metadata: ObjectMeta


_decode_bare = bounded.lenient_decoder(_Bare)
_decode_any = bounded.lenient_decoder(dict[str, Any])
_NOTHING: Any = object()
_MarkedT = TypeVar("_MarkedT", Pod, ResourceClaim, ResourceSlice)


def read_meta(raw: bytes | msgspec.Raw) -> ObjectMeta | None:
    """Returns the metadata of an object that does not parse otherwise, or None."""
    try:
        return _decode_bare(raw).metadata
    except msgspec.MsgspecError:
        pass
    name = _at(raw, "metadata", "name")
    if not name:
        return None
    return ObjectMeta(
        name=name,
        namespace=_at(raw, "metadata", "namespace"),
        uid=_at(raw, "metadata", "uid"),
        resource_version=_at(raw, "metadata", "resourceVersion"),
    )


def read_pod_leniently(raw: bytes) -> Pod:
    """Returns a pod that does not parse, with as much of it as can be read."""
    found, unread = read_fields(Pod, raw, None)
    return Pod(metadata=read_meta(raw) or ObjectMeta()) if found is None else marked(found, unread)


def refused(kind: str, raw: bytes | msgspec.Raw, error: Exception) -> ObjectRefused:
    """The event for an object that does not parse, with everything still readable."""
    return ObjectRefused(
        kind=kind,
        namespace=_at(raw, "metadata", "namespace"),
        name=_at(raw, "metadata", "name"),
        uid=_at(raw, "metadata", "uid"),
        message=str(error)[:MAX_REFUSAL_CHARS],
        scheduler_name=_at(raw, "spec", "schedulerName"),
        node_name=_at(raw, "spec", "nodeName"),
    )


def read_fields(form: type[Any], raw: bytes | msgspec.Raw, before: Any | None) -> tuple[Any, list[str]]:
    """Reads an object that does not parse field by field; returns it and the paths that cannot be read.

    before: its last state. An unreadable field keeps its value there; without one, it has those elements that
    can be read, or its default. None instead of the object: nothing of it can be read.
    """
    unread: list[str] = []
    try:
        found: Any = _decode_any(raw)
    except msgspec.MsgspecError:
        return None, unread
    return _struct(form, found, before, "", unread), unread


def _struct(form: type[Any], found: dict[str, Any], before: Any, path: str, unread: list[str]) -> Any:
    values = {}
    for field in fields(form):
        if field.encode_name not in found:
            continue
        value, at = found[field.encode_name], f"{path}{field.encode_name}"
        known = getattr(before, field.name, _NOTHING)
        value = _value(field.type, value, known, at, unread)
        if value is not _NOTHING:
            values[field.name] = value
    try:
        return form(**values)
    except TypeError:  # a field that it must have, metadata
        return None


def _value(form: Any, value: Any, known: Any, path: str, unread: list[str]) -> Any:
    try:
        return msgspec.convert(value, form)
    except (msgspec.ValidationError, RecursionError):
        pass
    forms = get_args(form) if get_origin(form) in (Union, UnionType) else (form,)
    inner = next((one for one in forms if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
    if inner is not None and isinstance(value, dict):
        return _struct(inner, value, known if isinstance(known, inner) else None, f"{path}.", unread)
    unread.append(path)
    return known if known is not _NOTHING else _elements(forms, value)


def _elements(forms: tuple[Any, ...], value: Any) -> Any:
    """Those elements of a list or an object that can be read."""
    for form in forms:
        kind, inner = get_origin(form), get_args(form)
        if kind is list and isinstance(value, list):
            read = (_value(inner[0], one, _NOTHING, "", []) for one in value)
            return [one for one in read if one is not _NOTHING]
        if kind is dict and isinstance(value, dict):
            pairs = ((key, _value(inner[1], one, _NOTHING, "", [])) for key, one in value.items())
            return {key: one for key, one in pairs if one is not _NOTHING}
    return _NOTHING


def marked(item: _MarkedT, unread: Sequence[str]) -> _MarkedT:
    """What is not understood holds what is known of it, and is not used: a pod is not placed, a claim gets no
    device, and a slice's devices are not given out.
    """
    return replace(item, unreadable=_named(unread))


def cordoned(node: Node, unread: Sequence[str]) -> Node:
    """Any field but the images, which only score, may be one that keeps pods away."""
    if all(path == "status.images" for path in unread):
        return node
    return replace(node, spec=replace(node.spec, unschedulable=True))


def allowing_none(budget: PodDisruptionBudget, _: Sequence[str]) -> PodDisruptionBudget:
    """A budget that is not understood allows no eviction."""
    return replace(budget, status=replace(budget.status, disruptions_allowed=0))


def _named(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_MAX_TOLD_PATHS]) + (", …" if len(paths) > _MAX_TOLD_PATHS else "")


def _at(raw: bytes | msgspec.Raw, *path: str) -> str:
    """The string at `path`, or "" if there is none."""
    try:
        found: Any = _decode_any(raw)
    except msgspec.MsgspecError:
        return ""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
