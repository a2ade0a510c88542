"""ObjectQueries: objects other than nodes and pods, of kinds that an enabled plugin watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangsched.core.cache.object_store import Name, ObjectStore


class ObjectQueries:
    """Objects as last seen; a Trial has the same."""

    __slots__ = ()
    _objects: ObjectStore

    def objects(self, kind: str) -> Mapping[Name, Any]:
        """(namespace, name) -> object, of a kind that an enabled plugin `watches`; empty for other kinds."""
        return self._objects.objects(kind)

    def objects_in(self, kind: str, namespace: str) -> Mapping[str, Any]:
        """name -> object: the objects of `kind` in one namespace."""
        return self._objects.in_namespace(kind, namespace)

    def objects_revision(self, kind: str) -> int:
        """Changes whenever objects(kind) does."""
        return self._objects.revision(kind)

    def objects_since(self, kind: str, revision: int) -> Sequence[Name] | None:
        """The objects(kind) that have changed or gone since their revision was this, some more than once;
        None: too long ago to know."""
        return self._objects.changed_since(kind, revision)

    @property
    def n_object_changes(self) -> int:
        """Changes whenever objects() of any kind does."""
        return self._objects.n_changes
