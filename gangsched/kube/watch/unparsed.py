"""What can still be read of objects that do not parse as their kind: name, node, scheduler.

Called by kube.watch.watch_state and kube.watch.decode for refused objects, and by kube.effects for answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.model import bounded
from gangsched.model.events import ObjectRefused
from gangsched.model.objects import ObjectMeta, Pod, PodSpec

MAX_REFUSAL_CHARS = 512


class _Bare(msgspec.Struct, gc=False):
    metadata: ObjectMeta


_decode_bare = bounded.lenient_decoder(_Bare)
_decode_any = bounded.lenient_decoder(dict[str, Any])


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
    """Returns a pod that does not parse, with as much of its metadata and node as can be read."""
    return Pod(
        metadata=read_meta(raw) or ObjectMeta(),
        spec=PodSpec(
            node_name=_at(raw, "spec", "nodeName"), scheduler_name=_at(raw, "spec", "schedulerName")
        ),
    )


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


def _at(raw: bytes | msgspec.Raw, *path: str) -> str:
    """The string at `path`, or "" if there is none."""
    try:
        found: Any = _decode_any(raw)
    except msgspec.MsgspecError:
        return ""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""
