"""Differences between kinds: the hooks that the registry calls while it writes a kind's objects.

Lives here: `Strategy`, whose defaults suit a kind without its own rules, the `Context` of one request, and
what a strategy may request from the cluster. Not here: the rules for every kind (registry.py) and the kinds
(kinds/). Source of the shape: k8s.io/apiserver pkg/registry/rest (create.go, update.go, delete.go).

The registry writes an object in this order:

    create   prepare_for_create  -> validate(new, None) -> stored -> after_create
    update   prepare_for_update  -> validate(new, old)  -> stored -> after_update  (only if something changed)
    delete   grace_s -> marked with a deletionTimestamp, or gone; gone -> after_delete
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import FieldProblem, StatusError
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.status import method_not_supported
from gangsched.lab.apiserver.storage.store import Item

# An object as in a request, decoded from JSON.
Object = dict[str, Any]


class Cluster(Protocol):
    """The registry for strategies: what they may read and write besides their own object.

    Every call takes effect at once (or not at all, with a StatusError); nothing here waits.
    """

    def resource(self, name: str) -> Resource:
        """By plural with its group: `pods`, `jobs.batch`. Raises: KeyError."""
        ...

    def find(self, resource: Resource, namespace: str, name: str) -> Item | None: ...

    def get(self, resource: Resource, namespace: str, name: str) -> Item:
        """Raises: StatusError (404)."""
        ...

    def list(self, resource: Resource, namespace: str = "") -> Iterable[Item]: ...

    def create(self, resource: Resource, obj: Object, *, namespace: str = "") -> Item: ...

    def admit_to_namespace(self, resource: Resource, name: str, object_name: str) -> None:
        """Rejects creation in a namespace that is being deleted or does not exist. Raises: StatusError."""
        ...

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Item:
        """Read, change in place, write, without any strategy hook. Writes nothing if nothing changed.

        An exception from `change` goes to the caller, and nothing is written.
        """
        ...

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str | None = None,
    ) -> Item | None: ...

    def serve(self, resource: Resource, strategy: Strategy) -> None:
        """Serve a resource from now on, or serve it differently."""
        ...

    def unserve(self, key: str) -> None:
        """Stop serving it and forget its objects; watches on them end."""
        ...


class Context(msgspec.Struct):
    """The part of one request that strategies need.

    `subresource` is "" for the object itself. `warn` takes a sentence for a Warning header. With `dry_run`
    nothing is stored, and a strategy must not write anything either.
    """

    cluster: Cluster
    resource: Resource
    version: str
    namespace: str
    name: str
    now: datetime
    subresource: str = ""
    dry_run: bool = False
    user: str = "system:admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")
    field_manager: str = ""
    warnings: list[str] = msgspec.field(default_factory=list)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def timestamp(self) -> str:
        """Now, as metav1.Time prints it."""
        return timestamp(self.now)


def timestamp(moment: datetime) -> str:
    """Formats a time like metav1.Time: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Strategy:
    """A kind without its own rules; kinds with rules override what differs.

    Objects are plain dicts, which a method may change in place if it says so. The registry handles the
    metadata of every object (uid, creationTimestamp, resourceVersion, deletionTimestamp, managedFields).
    """

    # metadata.generation is 1 at creation and rises when anything but metadata and status changes.
    has_generation = False
    # A PUT to a name that does not exist creates the object.
    creates_on_update = False
    # A PUT may leave out metadata.resourceVersion.
    allows_unconditional_update = True
    # A status sent along with a new object is stored (nodes: a kubelet registers with one).
    keeps_status = False
    # A deletion is answered with the object instead of a Status (ReturnDeletedObject).
    returns_deleted = False
    # A deletion that waits writes deletionGracePeriodSeconds beside its deletionTimestamp.
    says_grace = True
    # The rule for names: "subdomain", "label", "label1035", "path" (rbac) or "any".
    name_rule = "subdomain"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Applies defaults and admission, in place; a status was dropped before. Raises: StatusError."""

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        """Applies defaults and restores what a request cannot change, in place. Raises: StatusError.

        For `context.subresource` "status" this default keeps all of `old` except the status and the request's
        labels, annotations, finalizers and ownerReferences.
        """
        if context.subresource == "status":
            keep_all_but_status(new, old)
        elif context.resource.has_status:
            keep("status", new, old)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        """Returns problems of `new`, except metadata; `old` is None at creation. Both have been prepared."""
        return []

    def changes_generation(self, new: Object, old: Object) -> bool:
        """Whether an update counts for metadata.generation; called if the kind has one."""
        ignored = ("metadata", "status", "kind", "apiVersion")
        return any(new.get(key) != old.get(key) for key in {*new, *old} if key not in ignored)

    def grace_s(self, obj: Object, requested_s: int | None, context: Context) -> int | None:
        """Returns how long a deletion waits for its confirmation; None or 0: the object is removed at once.

        Called again for an object that is already being deleted; a longer answer than before has no effect.
        """
        return None

    def before_delete(self, obj: Object, context: Context) -> None:
        """Reject a deletion by raising StatusError, or change the object in place before it is marked."""

    def finalizers(self, obj: Object, propagation: str | None) -> list[str]:
        """Returns the metadata.finalizers with which a deletion with this propagationPolicy starts.

        By default those of the object, and `foregroundDeletion` or `orphan` if requested.
        """
        kept = [
            each
            for each in obj["metadata"].get("finalizers") or ()
            if propagation is None or each not in ("orphan", "foregroundDeletion")
        ]
        if propagation == "Orphan":
            kept.append("orphan")
        elif propagation == "Foreground":
            kept.append("foregroundDeletion")
        return kept

    def is_gone(self, obj: Object) -> bool:
        """Whether an object marked for deletion, without finalizers and grace, may be removed."""
        return True

    def fields(self, obj: Object) -> dict[str, str]:
        """Returns fields and values for field selectors, besides metadata.name and metadata.namespace."""
        return {}

    def field_names(self) -> tuple[str, ...]:
        """Returns the keys of `fields`, to reject a selector that names another field."""
        return ()

    def schema(self, version: str) -> Schema | None:
        """Returns the schema of the kind's objects in a version; None for kinds of the built-in catalog."""
        return None

    def create_subresource(self, body: Object, context: Context) -> Object:
        """Handles a POST to `context.subresource` of an object; returns the answer. Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def get_subresource(self, context: Context) -> Object:
        """Handles a GET of a subresource other than status. Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "get", group=context.resource.group)

    def connect(self, context: Context) -> Object:
        """Handles a request for a stream into a container (exec and the like). Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def computed(self, context: Context) -> Iterable[Object]:
        """Returns the computed objects of a resource that is not stored, in `context.namespace`."""
        raise method_not_supported(context.resource.plural, "list", group=context.resource.group)

    def review(self, body: Object, context: Context) -> Object:
        """Handles a POST to a resource that stores nothing (access reviews, bindings); returns the answer."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def to_storage(self, obj: Object, version: str, resource: Resource) -> Object:
        """Converts an object in `version` of `resource` to its stored form; only for kinds that convert."""
        return obj

    def from_storage(self, obj: Object, version: str, resource: Resource) -> Object:
        """The reverse of to_storage. The registry sets kind and apiVersion itself."""
        return obj

    # True: to_storage and from_storage are needed for resources whose storage is another's (Events).
    converts = False

    def after_create(self, item: Item, context: Context) -> None:
        """Called once the object is stored; not for dry runs."""

    def after_update(self, item: Item, before: Item, context: Context) -> None:
        """Called once the change is stored; not for dry runs, nor if nothing changed."""

    def after_delete(self, item: Item, context: Context) -> None:
        """Called once the object is gone; not for dry runs."""


def keep(key: str, new: Object, old: Object) -> None:
    """Gives `new` the value that `old` has under `key`, or none."""
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def keep_all_but_status(new: Object, old: Object) -> None:
    """Makes `new` equal `old` with the new status and metadata, except identity and deletion."""
    for key in {*new, *old} - {"status", "metadata"}:
        keep(key, new, old)
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"):
        keep(key, new["metadata"], old["metadata"])


__all__ = [
    "Cluster",
    "Context",
    "Object",
    "StatusError",
    "Strategy",
    "keep",
    "keep_all_but_status",
    "timestamp",
]
