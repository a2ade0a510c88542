"""The managers of an object's fields: reads, updates and writes metadata.managedFields.

Lives here: the managers of one object, and what an ordinary write does to them. Not here: applying
(apply.py). Called by apply.py and, for creates, updates and patches, by the HTTP face. Source:
k8s.io/apimachinery pkg/util/managedfields/internal and sigs.k8s.io/structured-merge-diff merge/update.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gangsched.api_rules.schema.node import Schema
from gangsched.lab.apiserver.patching.fieldsets import (
    EMPTY,
    FieldSet,
    Path,
    field,
    from_fields_v1,
    to_fields_v1,
    without_prefix,
)
from gangsched.lab.apiserver.patching.typed import Difference, compare

Object = dict[str, Any]
APPLY, UPDATE = "Apply", "Update"
MAX_UPDATE_MANAGERS = 10
_ANCIENT = "ancient-changes"
# These have no manager: the server writes them, or they identify the object.
_STRIPPED: FieldSet = frozenset(
    [(field("apiVersion"),), (field("kind"),), (field("metadata"),)]
    + [
        (field("metadata"), field(name))
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ]
)


class Manager(NamedTuple):
    """A manager and its operation; an applier is the same in every version."""

    name: str
    operation: str
    api_version: str
    subresource: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)


class Entry(NamedTuple):
    manager: Manager
    fields: FieldSet
    time: str | None


Managers = dict[tuple[str, str, str, str], Entry]


def read(obj: Object) -> Managers:
    """Reads the managers; leaves out entries that cannot be parsed."""
    found: Managers = {}
    for entry in (obj.get("metadata") or {}).get("managedFields") or ():
        if not isinstance(entry, dict) or not entry.get("operation"):
            continue
        manager = Manager(
            entry.get("manager") or "",
            entry["operation"],
            entry.get("apiVersion") or "",
            entry.get("subresource") or "",
        )
        fields = from_fields_v1(entry.get("fieldsV1") or {})
        found[manager.identity] = Entry(manager, fields, entry.get("time"))
    return found


def write(obj: Object, managers: Managers) -> None:
    """Writes the managers into `obj`, in the server's order."""
    entries = sorted(
        managers.values(),
        key=lambda entry: (
            entry.manager.operation,
            entry.time or "",
            entry.manager.name,
            entry.manager.api_version,
            entry.manager.subresource,
        ),
    )
    encoded = [_encoded(entry) for entry in entries]
    if encoded:
        obj["metadata"]["managedFields"] = encoded
    else:
        obj["metadata"].pop("managedFields", None)


def _encoded(entry: Entry) -> Object:
    manager = entry.manager
    shown = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(entry.fields),
        "subresource": manager.subresource,
    }
    return {key: value for key, value in shown.items() if value or key == "fieldsV1"}


def reset_fields(schema: Schema, subresource: str) -> tuple[Path, ...]:
    """Returns fields that a request to the object or its subresource cannot set and does not own."""
    if subresource == "status":
        names = [
            name for name in schema.properties if name not in ("status", "metadata", "kind", "apiVersion")
        ]
        return tuple((field(name),) for name in names)
    return ((field("status"),),)


def without_managed_fields(obj: Object) -> Object:
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    return obj | {"metadata": meta}


def empty_object(schema: Schema) -> Object:
    """A built-in kind before anything is set: structs exist, and required lists are null."""
    found: Object = {}
    for key, each in schema.properties.items() if not schema.custom else ():
        if each.kind == "struct" and each.spec.get("default") == {}:
            found[key] = empty_object(each)
        elif each.kind in ("list", "map") and key in schema.required:
            found[key] = None
    return found


def track(
    old: Object | None,
    new: Object,
    schema: Schema,
    *,
    manager: str,
    now: str,
    subresource: str = "",
    has_status: bool = True,
    starts: bool = False,
) -> None:
    """Update the managers in `new` after an ordinary create, update or patch by `manager`.

    `old` is None at creation; `now` is the time as printed in metadata. An object without managers gets its
    first one with the first apply, or here if `starts`; otherwise this does nothing. `has_status`: the kind's
    status is a subresource.
    """
    managers = read(old or {})
    if not subresource and (given := read(new)):
        managers = given
    elif not subresource and old is not None and new["metadata"].get("managedFields") == [{}]:
        # This is how clients reset it.
        managers = {}
    if not managers and not (starts and old is None):
        new["metadata"].pop("managedFields", None)
        return
    before = without_managed_fields(old) if old is not None else empty_object(schema)
    after = without_managed_fields(new)
    reset = reset_fields(schema, subresource) if has_status else ()
    api_version = new.get("apiVersion", "")
    who = Manager(manager or "unknown", UPDATE, api_version, subresource)
    managers = updated(before, after, schema, managers, who, now, reset)
    write(new, _capped(managers))


def updated(
    before: Object,
    after: Object,
    schema: Schema,
    managers: Managers,
    who: Manager,
    now: str,
    reset: Iterable[Path],
) -> Managers:
    """Moves the changed fields from the other managers to `who`."""
    change = filtered(compare(schema, before, after), reset)
    taken = change.added | change.modified
    found: Managers = {}
    for identity, entry in managers.items():
        fields = entry.fields - taken - change.removed
        if fields:
            found[identity] = entry._replace(fields=fields)
    gained = without_prefix(taken, reset) - _STRIPPED
    if gained:
        previous = found.get(who.identity)
        fields = gained | (previous.fields if previous is not None else EMPTY)
        found[who.identity] = Entry(who, fields, now)
    return found


def filtered(change: Difference, reset: Iterable[Path]) -> Difference:
    return Difference(*(without_prefix(fields, reset) for fields in change))


def stripped(fields: FieldSet) -> FieldSet:
    return fields - _STRIPPED


def _capped(managers: Managers) -> Managers:
    """Merges the oldest updaters into one per version if there are too many."""
    updaters = sorted(
        (entry for entry in managers.values() if entry.manager.operation == UPDATE),
        key=lambda entry: (entry.time or "", entry.manager.identity),
    )
    found = dict(managers)
    n_left = len(updaters)
    first: dict[str, tuple[str, str, str, str]] = {}
    for entry in updaters:
        if n_left <= MAX_UPDATE_MANAGERS:
            break
        version = entry.manager.api_version
        bucket = Manager(_ANCIENT, UPDATE, version, "")
        if version not in first:
            first[version] = entry.manager.identity
            continue
        if bucket.identity not in found:
            found[bucket.identity] = found.pop(first[version])._replace(manager=bucket)
        merged = found.pop(entry.manager.identity).fields | found[bucket.identity].fields
        found[bucket.identity] = Entry(bucket, merged, entry.time)
        n_left -= 1
    return found
