"""ObjectStore: objects of kinds other than pods, nodes and groups, as last received from the API server.

Written by core.turns.event_handlers from ObjectPut and ObjectGone, read by plugins through the view. Only
kinds that an enabled plugin lists in its `watches` are followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gangsched.model.objects import ObjectMeta, PlainObject
from gangsched.model.owners import Owner, OwnerName

# Number of a kind's latest changes whose names are kept.
_MAX_JOURNAL = 4096

Name = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is ""."""


class ObjectStore:
    """Objects by kind, as the plugin names it: "services", "replicasets.apps"."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[Name, Any]] = {}
        self.workloads: dict[OwnerName, Owner] = {}
        """Kueue's Workloads of which something is admitted."""
        self._in_namespaces: dict[tuple[str, str], dict[str, Any]] = {}
        """The same by (kind, namespace) and name: a full namespace does not slow down queries for the
        rest."""
        self._revisions: dict[str, int] = {}
        self._journals: dict[str, list[Name]] = {}
        """By kind, the names of changed objects, latest last."""
        self.asked_for: dict[str, None] = {}
        """Kinds to be followed from now on, as a message depends on them."""
        self.n_changes = 0
        """Changes whenever any kind's revision does."""

    def objects(self, kind: str) -> Mapping[Name, Any]:
        """Returns all objects of a kind; empty if the kind is not followed."""
        return self._kinds.get(kind, {})

    def in_namespace(self, kind: str, namespace: str) -> Mapping[str, Any]:
        """Returns a kind's objects in one namespace, by name."""
        return self._in_namespaces.get((kind, namespace), {})

    def revision(self, kind: str) -> int:
        """Changes whenever an object of the kind appears, goes, or changes its content."""
        return self._revisions.get(kind, 0)

    def changed_since(self, kind: str, revision: int) -> Sequence[Name] | None:
        """Returns the objects of a kind that changed or went since its revision was this, some more than
        once; None: too long ago to know."""
        n, journal = self.revision(kind) - revision, self._journals.get(kind, [])
        return None if n > len(journal) else journal[len(journal) - n :]

    def put(self, kind: str, obj: Any) -> bool:
        """Stores an object; False when its content is unchanged, or older than the known one."""
        name = (obj.metadata.namespace, obj.metadata.name)
        known = self._kinds.setdefault(kind, {})
        before = known.get(name)
        if before is not None and not _newer(obj.metadata, before.metadata):
            return False
        known[name] = obj
        self._in_namespaces.setdefault((kind, name[0]), {})[name[1]] = obj
        if before is not None and _said(before) == _said(obj):
            return False
        self._changed(kind, name)
        return True

    def remove(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        """Removes an object; False when it is not known, or another object has its name now."""
        known = self._kinds.get(kind, {})
        before = known.get((namespace, name))
        if before is None or before.metadata.uid != uid:
            return False
        del known[namespace, name]
        there = self._in_namespaces[kind, namespace]
        del there[name]
        if not there:
            del self._in_namespaces[kind, namespace]
        self._changed(kind, (namespace, name))
        return True

    def _changed(self, kind: str, name: Name) -> None:
        self._revisions[kind] = self.revision(kind) + 1
        journal = self._journals.setdefault(kind, [])
        journal.append(name)
        if len(journal) > _MAX_JOURNAL:
            del journal[: _MAX_JOURNAL // 2]
        self.n_changes += 1


def _newer(meta: ObjectMeta, known: ObjectMeta) -> bool:
    new, old = meta.resource_version, known.resource_version
    if meta.uid == known.uid and new.isdecimal() and old.isdecimal():
        return int(new) > int(old)
    return new != old or meta.uid != known.uid


def _said(obj: Any) -> Any:
    """Returns the object's content without the fields that every write changes."""
    if isinstance(obj, PlainObject):
        meta = dict(obj.get("metadata") or {})
        for key in ("resourceVersion", "generation", "managedFields"):
            meta.pop(key, None)
        return {**obj, "metadata": meta}
    return msgspec.structs.replace(
        obj, metadata=msgspec.structs.replace(obj.metadata, resource_version="", generation=0)
    )
