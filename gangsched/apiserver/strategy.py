"""How kinds differ: what the registry asks a kind while it writes its objects.

Lives here: `Strategy`, whose defaults suit a kind without rules of its own, the `Context` of one request, and
what a strategy may ask of the cluster. Not here: the rules that hold for every kind (registry.py) and the
kinds (kinds/). Source of the shape: k8s.io/apiserver pkg/registry/rest (create.go, update.go, delete.go).

The registry writes an object in this order:

    create   prepare_for_create  -> validate(new, None) -> stored -> after_create
    update   prepare_for_update  -> validate(new, old)  -> stored -> after_update     (only if something
    changed) delete   grace_s -> marked with a deletionTimestamp, or gone; gone -> after_delete
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gangsched.apiserver.resources import Resource
from gangsched.apiserver.schema.node import Schema
from gangsched.apiserver.status import FieldProblem, StatusError, method_not_supported
from gangsched.apiserver.store import Item

# An object as a request brings it and as JSON decodes it.
Object = dict[str, Any]


class Cluster(Protocol):
    """The registry as strategies see it: what they may read and write beyond their own object.

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
        """Nothing is created in a namespace that is being deleted or does not exist. Raises: StatusError."""
        ...

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Item:
        """Read, change in place, write: no strategy hook is asked. Nothing is written if nothing changed.

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
    """One request, as far as strategies need it.

    `subresource` is "" for the object itself. `warn` takes a sentence for a Warning header. With `dry_run`
    nothing is stored, and a strategy must not write anything else either.
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
    """As metav1.Time prints it: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Strategy:
    """A kind without rules of its own; kinds with rules override what differs.

    Objects are plain dicts that the strategy may change in place where it says so; metadata that every object
    has (uid, creationTimestamp, resourceVersion, deletionTimestamp, managedFields) is the registry's
    business.
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
        """Defaults and admission, in place; a status sent along is dropped before. Raises: StatusError."""

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        """Defaults and what a request cannot change, in place. Raises: StatusError.

        For `context.subresource` "status" this default keeps all of `old` but its status and what the request
        says in metadata's labels, annotations, finalizers and ownerReferences.
        """
        if context.subresource == "status":
            keep_all_but_status(new, old)
        elif context.resource.has_status:
            keep("status", new, old)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        """Problems of `new`, metadata aside; `old` is None at creation. Both have been prepared."""
        return []

    def changes_generation(self, new: Object, old: Object) -> bool:
        """Whether an update counts for metadata.generation; asked if the kind has one."""
        ignored = ("metadata", "status", "kind", "apiVersion")
        return any(new.get(key) != old.get(key) for key in {*new, *old} if key not in ignored)

    def grace_s(self, obj: Object, requested_s: int | None, context: Context) -> int | None:
        """How long a deletion waits for its confirmation; None or 0: the object is removed at once.

        Asked again for an object that is already being deleted; a longer answer than before has no effect.
        """
        return None

    def before_delete(self, obj: Object, context: Context) -> None:
        """Refuse a deletion by raising StatusError, or change the object before it is marked, in place."""

    def finalizers(self, obj: Object, propagation: str | None) -> list[str]:
        """metadata.finalizers that a deletion with this propagationPolicy starts with.

        By default what the object has, and `foregroundDeletion` or `orphan` where the request asks for it.
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
        """Whether an object marked for deletion may go, once it has no finalizers and its grace is 0."""
        return True

    def fields(self, obj: Object) -> dict[str, str]:
        """What field selectors may name, beyond metadata.name and metadata.namespace: each with its value."""
        return {}

    def field_names(self) -> tuple[str, ...]:
        """The keys of `fields`, for refusing a selector that names another."""
        return ()

    def schema(self, version: str) -> Schema | None:
        """The schema of the kind's objects in a version; None for kinds of the built-in catalog."""
        return None

    def create_subresource(self, body: Object, context: Context) -> Object:
        """POST to `context.subresource` of `context.name`; the answer's object. Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def get_subresource(self, context: Context) -> Object:
        """GET of a subresource other than status. Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "get", group=context.resource.group)

    def connect(self, context: Context) -> Object:
        """A request for a stream into a container (exec and the like). Raises: StatusError."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def computed(self, context: Context) -> Iterable[Object]:
        """The objects of a resource that can be read though nothing is stored, in `context.namespace`."""
        raise method_not_supported(context.resource.plural, "list", group=context.resource.group)

    def review(self, body: Object, context: Context) -> Object:
        """POST to a resource that stores nothing (access reviews, bindings); the answer's object."""
        raise method_not_supported(context.resource.plural, "create", group=context.resource.group)

    def to_storage(self, obj: Object, version: str, resource: Resource) -> Object:
        """An object in `version` of `resource` as it is stored; asked only for kinds that convert."""
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
    """`new` becomes `old` with the new status and the new metadata, its identity and deletion aside."""
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
