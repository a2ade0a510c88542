"""Objects as stored bytes: the order of keys, and their form in a list or in another version.

Lives here: dict -> Item, raw bytes -> bytes of a response. Not here: what an object may contain. Called by
the registry, lists and watches.

`raw` is a fixed head (kind and apiVersion as stored) and the rest, which begins with metadata. So another
version needs only another head, and a list item is the rest without a head.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.storage.store import Item

# As k8s.io/apimachinery's ObjectMeta orders them; other keys are not stored.
METADATA_FIELDS = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_EMPTY: tuple[Any, ...] = (None, "", {}, [])

encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def head(resource: Resource, version: str) -> bytes:
    """Returns the begin of an object of this kind: `{"kind":…,"apiVersion":…,`, reversed for custom kinds."""
    kind = b'"kind":' + encode(resource.kind)
    api_version = b'"apiVersion":' + encode(resource.api_version(version))
    parts = (api_version, kind) if resource.custom else (kind, api_version)
    return b"{" + b",".join(parts) + b","


def as_item(resource: Resource, obj: dict[str, Any], revision: int, fields: dict[str, str]) -> Item:
    """The object as it is stored at `revision`; dry runs, which store nothing, use revision 0."""
    given = obj["metadata"]
    metadata = {key: given[key] for key in METADATA_FIELDS if key in given and given[key] not in _EMPTY}
    if revision:
        # At its fixed place: code that replaces it in the bytes takes the first match.
        metadata = {
            key: value
            for key in METADATA_FIELDS
            if (value := str(revision) if key == "resourceVersion" else metadata.get(key)) is not None
        }
    rest = {"metadata": metadata}
    for key, value in obj.items():
        if key not in ("metadata", "kind", "apiVersion"):
            rest[key] = value
    return Item(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        revision=revision,
        raw=head(resource, resource.version) + encode(rest)[1:],
        labels=metadata.get("labels", {}),
        fields=fields,
    )


def at_revision(item: Item, revision: int) -> Item:
    """The same object with another resourceVersion."""
    raw = item.raw.replace(b'"resourceVersion":"%d"' % item.revision, b'"resourceVersion":"%d"' % revision, 1)
    return Item(item.namespace, item.name, item.uid, revision, raw, item.labels, item.fields)


def in_version(resource: Resource, version: str, raw: bytes) -> bytes:
    """Returns a stored object in another version of its resource."""
    if version == resource.version:
        return raw
    return head(resource, version) + raw[len(head(resource, resource.version)) :]


def in_list(resource: Resource, version: str, raw: bytes) -> bytes:
    """A stored object as an item of a list: built-in kinds do not repeat kind and apiVersion there."""
    if resource.custom:
        return in_version(resource, version, raw)
    return b"{" + raw[len(head(resource, resource.version)) :]
