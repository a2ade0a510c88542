"""PATCH: which format by which content type, from the request to the registry.

Lives here: the content types, and the way of an object through its version to the patch and back. Not here:
the formats (patching/). Called by handlers.py. Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from gangsched.apiserver.patching.patched import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Patch
from gangsched.apiserver.registry import Registry
from gangsched.apiserver.requests import Request, Target, WriteOptions, check_name
from gangsched.apiserver.schema.catalog import builtin
from gangsched.apiserver.schema.node import Schema
from gangsched.apiserver.status import bad_request, invalid, invalid_value, unsupported_media_type
from gangsched.apiserver.store import Item
from gangsched.apiserver.strategy import Context, Object

_FORMATS = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)


def schema_of(registry: Registry, target: Target) -> Schema:
    """Of the objects at a path, in its version."""
    resource = target.resource
    own = registry.strategy(resource).schema(target.version)
    return own or builtin().builtin(resource.group, target.version, resource.kind)


def patch(
    registry: Registry, request: Request, target: Target, options: WriteOptions, context: Context
) -> tuple[Item, bool]:
    """Answers with the item and whether it was created. Raises: StatusError."""
    resource = target.resource
    content_type = request.content_type.partition(";")[0].strip()
    formats = [each for each in _FORMATS if not (resource.custom and each == STRATEGIC_MERGE_PATCH)]
    if content_type not in formats:
        raise unsupported_media_type(formats)
    schema = schema_of(registry, target)
    strategy = registry.strategy(resource)
    api_version = resource.api_version(target.version)
    parsed = Patch(request.body, content_type, directive=options.field_validation, warn=context.warn)

    def change(old: Object) -> Object:
        shown = strategy.from_storage(old, target.version, resource) if strategy.converts else old
        shown = {"kind": resource.kind, "apiVersion": api_version} | {
            key: value for key, value in shown.items() if key not in ("kind", "apiVersion")
        }
        new = parsed.applied(shown, schema)
        _check_identity(new, old, target)
        check_name(new, target)
        return strategy.to_storage(new, target.version, resource) if strategy.converts else new

    return registry.update(resource, target.namespace, target.name, change, context=context)


def _check_identity(new: Object, old: Object, target: Target) -> None:
    """What a PUT may bring along as a precondition, a patch must not change."""
    meta, resource = new.get("metadata") or {}, target.resource
    if (meta.get("namespace") or target.namespace) != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    uid = meta.get("uid")
    if uid and uid != old["metadata"].get("uid"):
        problem = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(resource.kind, target.name, [problem], group=resource.group)
