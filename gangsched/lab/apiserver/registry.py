"""Reads and writes objects of any kind by Kubernetes' rules.

Lives here: create, update, the shortcuts for calls in process, and the single place where a change becomes a
stored item. Not here: differences between kinds (strategy.py, kinds/), deletion (deletion.py), lists with
pages (lab.apiserver.storage.lists), HTTP. Called by the HTTP face, by the strategies, and by the simulated
cluster in process. Source of the order of checks: k8s.io/apiserver pkg/registry/generic/registry/store.go,
pkg/registry/rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any
from uuid import UUID

from gangsched.api_rules.status import Cause, FieldProblem, StatusError, bad_request, invalid_value
from gangsched.lab.apiserver import metadata
from gangsched.lab.apiserver.deletion import DeleteOptions, Deletions
from gangsched.lab.apiserver.resources import Resource, Resources, builtin_resources
from gangsched.lab.apiserver.status import already_exists, conflict, forbidden, invalid, not_found
from gangsched.lab.apiserver.storage import codec
from gangsched.lab.apiserver.storage.store import Item, Store, key_of
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
# etcd's --max-request-bytes: no object is larger.
MAX_OBJECT_BYTES = 3 * 2**19
# How often to generate another name when one is taken.
MAX_NAME_TRIES = 8
_ANY = Strategy()

Change = Callable[[Object], Object]


class Registry:
    """All resources behind one set of rules; every call is synchronous and takes effect at once.

    Times come from `now`, UIDs and generated names from `rng`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        rng: Random,
        strategies: Mapping[str, Strategy] | None = None,
        resources: Resources | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store or Store()
        self.resources = resources or builtin_resources()
        self.now = now
        self.rng = rng
        self._strategies = dict(strategies or {})
        self._deletions = Deletions(self)
        self._gone: list[Callable[[str], None]] = []

    # Methods for strategies: strategy.Cluster.

    def resource(self, name: str) -> Resource:
        return self.resources.get(name)

    def strategy(self, resource: Resource) -> Strategy:
        return self._strategies.get(resource.key, _ANY)

    def serve(self, resource: Resource, strategy: Strategy) -> None:
        self._strategies[resource.key] = strategy
        self.resources.add(resource)

    def unserve(self, key: str) -> None:
        self.resources.remove(key)
        self._strategies.pop(key, None)
        for item in self.store.items(key):
            self._remove(key, item)
        for listener in tuple(self._gone):
            listener(key)

    def on_unserved(self, listener: Callable[[str], None]) -> None:
        """Registers a listener, called with a resource's key once it is no longer served."""
        self._gone.append(listener)

    def context(self, resource: Resource, namespace: str = "", name: str = "") -> Context:
        """Returns the context of a write made in process, without a user."""
        return Context(self, resource, resource.version, namespace, name, self.now())

    def find(self, resource: Resource, namespace: str, name: str) -> Item | None:
        return self.store.get(resource.storage_key, namespace, name)

    def get(self, resource: Resource, namespace: str, name: str) -> Item:
        """Raises: StatusError (404)."""
        item = self.store.get(resource.storage_key, namespace, name)
        if item is None:
            raise not_found(resource.plural, name, group=resource.group)
        return item

    def list(self, resource: Resource, namespace: str = "") -> list[Item]:
        return self.store.items(resource.storage_key, namespace)

    # Writing.

    def create(
        self, resource: Resource, obj: Object, *, namespace: str = "", context: Context | None = None
    ) -> Item:
        """Store a new object; `obj` then belongs to the registry. Raises: StatusError."""
        context = context or self.context(resource, namespace)
        strategy = self.strategy(resource)
        meta = obj.setdefault("metadata", {})
        self._in_namespace(resource, meta, context)
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self.admit_to_namespace(resource, meta.get("namespace") or "", meta.get("name") or "")
        tries = MAX_NAME_TRIES if not meta.get("name") and meta.get("generateName") else 1
        for last in (*[False] * (tries - 1), True):
            if tries > 1:
                meta["name"] = metadata.generated_name(meta["generateName"], self.rng)
            if last or self.find(resource, meta.get("namespace", ""), meta["name"]) is None:
                break
        context.name = meta.get("name") or ""
        meta["uid"] = self.new_uid()
        meta["creationTimestamp"] = context.timestamp()
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(key, None)
        if strategy.has_generation:
            meta["generation"] = 1
        if resource.has_status and not strategy.keeps_status:
            obj.pop("status", None)
        strategy.prepare_for_create(obj, context)
        self._validate(obj, None, [], strategy, context)
        if self.find(resource, meta.get("namespace", ""), meta["name"]) is not None:
            raise already_exists(resource.plural, meta["name"], group=resource.group)
        item = self._put(obj, strategy, context)
        if not context.dry_run:
            strategy.after_create(item, context)
        return item

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Change,
        *,
        context: Context | None = None,
        create: Callable[[], Object] | None = None,
    ) -> tuple[Item, bool]:
        """Write the result of `change`; returns the item and whether it was created.

        `change` gets a copy that it may modify, and returns the whole new object. With `create`, an object
        that does not exist is created from the result. Raises: StatusError.
        """
        context = context or self.context(resource, namespace, name)
        existing = self.find(resource, namespace, name)
        if existing is None:
            if create is None:
                raise not_found(resource.plural, name, group=resource.group)
            made = create()
            if uid := (made.get("metadata") or {}).get("uid"):
                raise self._uid_conflict(resource, namespace, name, uid, "")
            return self.create(resource, made, namespace=namespace, context=context), True
        old = existing.decode()
        new = change(existing.decode())
        strategy = self.strategy(resource)
        self._check_identity(new, existing, strategy, context)
        meta_problems = metadata.carry_over(new["metadata"], old["metadata"])
        strategy.prepare_for_update(new, old, context)
        if strategy.has_generation and not context.subresource:
            self._count_generation(new, old, strategy)
        self._validate(new, old, meta_problems, strategy, context)
        return self.write(existing, old, new, context), False

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Item:
        """Read, change in place and write, without any rules. Raises: StatusError (404)."""
        existing = self.get(resource, namespace, name)
        new = existing.decode()
        change(new)
        return self.write(existing, existing.decode(), new, self.context(resource, namespace, name))

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        options: DeleteOptions | None = None,
        context: Context | None = None,
    ) -> Item | None:
        """Delete the object or begin to; returns what is left, None if it is gone. Raises: StatusError."""
        context = context or self.context(resource, namespace, name)
        options = options or DeleteOptions(grace_s=grace_s, uid=uid, propagation=propagation)
        return self._deletions.delete(self.get(resource, namespace, name), options, context).left

    @property
    def deletions(self) -> Deletions:
        return self._deletions

    # The last step of every write.

    def write(self, existing: Item, old: Object, new: Object, context: Context) -> Item:
        """Replace `existing` by `new`, or remove it if its deletion waited for this. No write if equal."""
        if new == old:
            return existing
        strategy = self.strategy(context.resource)
        if _may_go(new) and strategy.is_gone(new):
            self.remove(existing, context)
            # The change itself is never stored: watchers get the old object, the sender of the request the
            # new one.
            return codec.as_item(
                self._stored_as(context.resource), new, existing.revision, strategy.fields(new)
            )
        return self.replace(existing, new, context)

    def replace(self, existing: Item, new: Object, context: Context) -> Item:
        """Store `new` in place of `existing`, whatever its deletion fields."""
        strategy = self.strategy(context.resource)
        item = self._put(new, strategy, context)
        if not context.dry_run:
            strategy.after_update(item, existing, context)
        return item

    def remove(self, existing: Item, context: Context) -> Item:
        """Remove the object for good; returns its last state, at the revision of its removal."""
        if context.dry_run:
            return existing
        item = self._remove(context.resource.storage_key, existing)
        self.strategy(context.resource).after_delete(item, context)
        return item

    def _remove(self, collection: str, existing: Item) -> Item:
        item = codec.at_revision(existing, self.store.revision + 1)
        self.store.remove(collection, item)
        return item

    def _stored_as(self, resource: Resource) -> Resource:
        """Returns the resource in whose form the objects are stored: another one if two groups show the same
        objects.
        """
        group, _, plural = resource.storage.partition("/")
        return (resource.storage and self.resources.by_key(group, plural)) or resource

    def _put(self, obj: Object, strategy: Strategy, context: Context) -> Item:
        resource = self._stored_as(context.resource)
        fields = strategy.fields(obj)
        if context.dry_run:
            return codec.as_item(resource, obj, 0, fields)
        item = codec.as_item(resource, obj, self.store.revision + 1, fields)
        if len(item.raw) > MAX_OBJECT_BYTES:
            raise StatusError(500, "", "etcdserver: request is too large")
        self.store.put(resource.storage_key, item)
        return item

    def new_uid(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))

    def _in_namespace(self, resource: Resource, meta: dict[str, Any], context: Context) -> None:
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        meta["namespace"] = meta.get("namespace") or context.namespace
        if meta["namespace"] != context.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )

    def admit_to_namespace(self, resource: Resource, name: str, object_name: str) -> None:
        """Checks like the NamespaceLifecycle admission plugin, also for subresources. Raises: StatusError."""
        if not resource.namespaced:
            return
        namespace = self.store.get("/namespaces", "", name)
        if namespace is None:
            raise not_found("namespaces", name)
        if namespace.fields.get("status.phase") == "Terminating":
            raise forbidden(
                resource.plural,
                object_name,
                f"unable to create new content in namespace {name} because it is being terminated",
                group=resource.group,
                causes=[
                    Cause(
                        "NamespaceTerminating", f"namespace {name} is being terminated", "metadata.namespace"
                    )
                ],
            )

    def _check_identity(self, new: Object, existing: Item, strategy: Strategy, context: Context) -> None:
        """Checks the preconditions in an update's metadata, and the names that it must not change."""
        resource, meta = context.resource, new.setdefault("metadata", {})
        meta["name"] = meta.get("name") or existing.name
        if resource.namespaced:
            meta["namespace"] = meta.get("namespace") or existing.namespace
        else:
            meta.pop("namespace", None)
        if meta.get("uid") and meta["uid"] != existing.uid:
            raise self._uid_conflict(resource, existing.namespace, existing.name, meta["uid"], existing.uid)
        version = meta.get("resourceVersion") or ""
        if version in ("", "0"):
            if not strategy.allows_unconditional_update:
                problem = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(resource.plural, existing.name, [problem], group=resource.group)
        elif version != str(existing.revision):
            raise conflict(resource.plural, existing.name, MODIFIED, group=resource.group)
        meta["resourceVersion"] = str(existing.revision)

    def _uid_conflict(
        self, resource: Resource, namespace: str, name: str, wanted: str, found: str
    ) -> StatusError:
        """Returns the error of etcd3's storage, with the key that the object would have there; `found` is ""
        if there is none.
        """
        group = f"{resource.group}/" if resource.custom else ""
        where = f"{group}{resource.plural}/{key_of(namespace, name)}"
        return conflict(
            resource.plural,
            name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{where}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
            f"UID in object meta: {found}",
            group=resource.group,
        )

    def _count_generation(self, new: Object, old: Object, strategy: Strategy) -> None:
        if strategy.changes_generation(new, old):
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1

    def _validate(
        self,
        new: Object,
        old: Object | None,
        meta_problems: Sequence[FieldProblem],
        strategy: Strategy,
        context: Context,
    ) -> None:
        resource, meta = context.resource, new["metadata"]
        found = list(meta_problems)
        if old is None or _changed(meta, old["metadata"]):
            found += metadata.problems(meta, namespaced=resource.namespaced, name_rule=strategy.name_rule)
        found += strategy.validate(new, old, context)
        if found:
            named = self._stored_as(resource)
            raise invalid(named.kind, meta.get("name") or "", found, group=named.group)


def _changed(meta: dict[str, Any], before: dict[str, Any]) -> bool:
    keys = ("name", "labels", "annotations", "ownerReferences", "finalizers")
    return any(meta.get(key) != before.get(key) for key in keys)


def _may_go(obj: Object) -> bool:
    """Whether it is marked for deletion and nothing is left to wait for."""
    meta = obj["metadata"]
    return bool(
        meta.get("deletionTimestamp")
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )


def utc_now() -> datetime:
    return datetime.now(UTC)
