"""The bytes of our Node object: reading it, and the patch that writes our annotations. No I/O.

Called by `app`, which sends and receives them. The patch carries the Node's UID, so that a Node recreated
under the same name does not get its predecessor's devices, and the resourceVersion that was read, so that no
concurrent write is overwritten unseen. A real API server answers 422 to the first, 409 to the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.transport.http1 import segment
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.devices.labels import INVENTORY_SUFFIX, inventory_text
from gangsched.model.text import bounded

# apimachinery `pkg/api/validation/objectmeta.go`, TotalAnnotationSizeLimitB: all keys and values together.
MAX_ANNOTATION_BYTES = 256 * 1024
MANAGER_PREFIX = "gangsched-agent"
_MAX_MANAGER_CHARS = 128
_NONE: Mapping[str, str | None] = {}


class SeenNode(msgspec.Struct, frozen=True):
    """value: of `gangsched.io/devices`, or the labels in its format; None if the Node lists nothing.
    annotations, labels: all of them. writer: the value's writer according to the API server: field manager
    and time.
    """

    uid: str
    resource_version: str
    value: str | None = None
    writer: str = ""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Manager(msgspec.Struct, gc=False, rename="camel"):
    manager: str = ""
    time: str = ""
    fields: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="fieldsV1")


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    managed_fields: list[_Manager] | None = None


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta


_decode = bounded.lenient_decoder(_Node)
_encode = msgspec.json.Encoder().encode
_OURS = f'"f:{INVENTORY_KEY}":'.encode()
_OUR_LABELS = f".{INVENTORY_SUFFIX}/".encode()


def read_node(body: bytes) -> SeenNode:
    """Decodes the Node in an answer. Raises: ApiError."""
    try:
        meta = _decode(body).metadata
    except msgspec.MsgspecError as error:
        raise ApiError(f"the Node is not readable: {error}") from None
    annotations = meta.annotations or {}
    value = inventory_text(annotations, meta.labels)
    ours = _OURS if INVENTORY_KEY in annotations else _OUR_LABELS
    return SeenNode(
        uid=meta.uid,
        resource_version=meta.resource_version,
        value=value,
        writer=_writer(meta.managed_fields or [], ours),
        annotations=annotations,
        labels=meta.labels or {},
    )


def annotation_bytes(annotations: Mapping[str, str | None]) -> int:
    """Returns their part of the size that annotations of an object may have; None: to be removed."""
    return sum(len(k.encode()) + len(text.encode()) for k, text in annotations.items() if text is not None)


def _writer(managers: list[_Manager], ours: bytes) -> str:
    for entry in managers:
        if ours in bytes(entry.fields):
            return f"{entry.manager!r} at {entry.time}"
    return ""


def node_path(name: str, *, manager: str = "") -> str:
    """Path of the Node; with `manager`, for writing under that field manager."""
    path = f"/api/v1/nodes/{segment(name)}"
    return f"{path}?{urlencode({'fieldManager': manager})}" if manager else path


def manager_name(instance: str) -> str:
    """This agent's field manager; agents of different instances have different ones."""
    clean = "".join(char for char in instance if char.isprintable())
    return f"{MANAGER_PREFIX}_{clean}"[:_MAX_MANAGER_CHARS]


def node_patch(
    uid: str,
    resource_version: str,
    annotations: Mapping[str, str | None],
    labels: Mapping[str, str | None] = _NONE,
) -> bytes:
    """A merge patch of exactly these annotations and labels; None: remove."""
    metadata: dict[str, object] = {"uid": uid, "resourceVersion": resource_version}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"labels": labels} if labels else {}
    return _encode({"metadata": metadata})


def measurements_patch(annotations: Mapping[str, str]) -> bytes:
    """A merge patch of annotations whose latest value counts, without preconditions."""
    return _encode({"metadata": {"annotations": dict(annotations)}})
