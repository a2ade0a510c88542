"""PATCH: the format by content type, from the request to the registry, and the managers of fields.

Lives here: the content types, and converting an object to the request's version for the patch and back. Not
here: the formats, and the bookkeeping of managed fields (patching/). Called by handlers.py. Source:
k8s.io/apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.decode import DecodeFailed, decode
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import StatusError, bad_request, invalid_value, required
from gangsched.lab.apiserver.http.bodies import Expected, decoded
from gangsched.lab.apiserver.http.negotiation import YAML
from gangsched.lab.apiserver.http.requests import Request, Target, WriteOptions, check_name
from gangsched.lab.apiserver.patching.apply import apply
from gangsched.lab.apiserver.patching.managed import track
from gangsched.lab.apiserver.patching.patched import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Patch
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.schema.custom import fill_defaults
from gangsched.lab.apiserver.status import invalid, unsupported_media_type
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

APPLY = "application/apply-patch+yaml"
_FORMATS = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY)
# Programs write these many times a second, and users hardly apply them: their fields get managers only after
# an apply, or when kubectl creates them.
_UNTRACKED = ("/pods", "/nodes", "/events", "coordination.k8s.io/leases")


def schema_of(registry: Registry, target: Target) -> Schema:
    """Answers PATCH requests for the objects at one path, in its version."""
    resource = target.resource
    own = registry.strategy(resource).schema(target.version)
    return own or builtin().builtin(resource.group, target.version, resource.kind)


def tracked(new: Object, old: Object | None, schema: Schema, target: Target, context: Context) -> Object:
    """Returns `new` with its sender as manager of changed fields, if managers are kept; both as stored."""
    resource, meta = target.resource, new.setdefault("metadata", {})
    if schema.custom:
        # Fields set by defaults also belong to the creator of a definition.
        fill_defaults(schema, new)
    by_hand = context.field_manager.startswith("kubectl")
    starts = old is None and (by_hand or resource.storage_key not in _UNTRACKED)
    if starts or (old or {}).get("metadata", {}).get("managedFields") or meta.get("managedFields"):
        new["apiVersion"] = resource.api_version(target.version)
        track(
            old,
            new,
            schema,
            manager=context.field_manager,
            now=context.timestamp(),
            subresource=context.subresource,
            has_status=resource.has_status,
            starts=starts,
        )
    return new


def patch(
    registry: Registry, request: Request, target: Target, options: WriteOptions, context: Context
) -> tuple[Item, bool]:
    """Returns the item and whether it was created. Raises: StatusError."""
    resource = target.resource
    content_type = request.content_type.partition(";")[0].strip()
    if content_type not in _FORMATS:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    if resource.custom and content_type == STRATEGIC_MERGE_PATCH:
        raise unsupported_media_type([each for each in _FORMATS if each != STRATEGIC_MERGE_PATCH])
    schema = schema_of(registry, target)
    if content_type == APPLY:
        change, create = _applying(request, target, schema, options, context)
    else:
        parsed = Patch(request.body, content_type, directive=options.field_validation, warn=context.warn)
        create = None

        def change(live: Object) -> Object:
            return tracked(parsed.applied(live, schema), live, schema, target, context)

    strategy = registry.strategy(resource)

    def changed(old: Object) -> Object:
        new = change(shown(old, strategy, target))
        _check_identity(new, old, target)
        return strategy.to_storage(new, target.version, resource) if strategy.converts else new

    return registry.update(resource, target.namespace, target.name, changed, context=context, create=create)


def shown(old: Object, strategy: Strategy, target: Target) -> Object:
    """Returns a stored object in the request's group and version."""
    resource = target.resource
    found = strategy.from_storage(old, target.version, resource) if strategy.converts else old
    api_version = resource.api_version(target.version)
    rest = {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}
    return {"kind": resource.kind, "apiVersion": api_version} | rest


def _applying(
    request: Request, target: Target, schema: Schema, options: WriteOptions, context: Context
) -> tuple[Callable[[Object], Object], Callable[[], Object] | None]:
    """Returns functions that server-side apply an existing object, or create one."""
    if not options.field_manager:
        problem = required("fieldManager", "is required for apply patch")
        raise invalid("PatchOptions", "", [problem], group="meta.k8s.io")
    resource = target.resource
    api_version = resource.api_version(target.version)
    expected = Expected(resource.kind, api_version, resource.custom, names_itself=True)
    config = decoded(request.body, YAML, expected)
    check_name(config, target)

    def applied(live: Object | None) -> Object:
        merged = apply(
            live,
            config,
            schema,
            manager=options.field_manager,
            force=options.force,
            now=context.timestamp(),
            subresource=context.subresource,
            has_status=resource.has_status,
        )
        try:
            return decode(schema, merged).obj
        except DecodeFailed as failed:
            raise bad_request(f"error decoding patch: {failed}") from None

    return applied, None if target.subresource else lambda: applied(None)


def _check_identity(new: Object, old: Object, target: Target) -> None:
    """A PUT may state these as preconditions; a patch must not change them."""
    check_name(new, target)
    uid = new["metadata"].get("uid")
    if uid and uid != old["metadata"].get("uid"):
        problem = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(target.resource.kind, target.name, [problem], group=target.resource.group)
