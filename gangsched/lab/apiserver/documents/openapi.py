"""The OpenAPI documents that kubectl uses to validate, patch and explain.

Lives here: /openapi/v3 with a document per group and version, made from the recorded structure or from CRDs'
schemas. Not here: schemas (schema/), descriptions (openapi_descriptions.py). Called by documents.py.
Operations contain what kubectl reads: the kind, the parameters of writes, the patch formats. Source of the
shape: the documents of a real kube-apiserver.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from gangsched.api_rules.schema.catalog import OBJECT_META, Catalog, builtin
from gangsched.api_rules.schema.node import REF, Schema
from gangsched.lab.apiserver.documents import openapi_descriptions
from gangsched.lab.apiserver.resources import Resource, Resources

Spec = dict[str, Any]
ROOT = "/openapi/v3"
JSON = "application/json"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PATCH, _STATUS, _DELETE_OPTIONS = _META + "Patch", _META + "Status", _META + "DeleteOptions"
_PATCH_FORMATS = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS = ("continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "watch")
_encode = msgspec.json.Encoder().encode

SchemaOf = Callable[[Resource, str], Schema | None]


class OpenApiDocument(NamedTuple):
    """`etag` is unquoted; the document at the address with that hash never changes."""

    body: bytes
    etag: str


class OpenApi:
    """The documents, made on request and cached until the table of resources changes.

    `schema_of` returns a custom resource's schema in a version, None for built-in ones.
    """

    def __init__(self, resources: Resources, schema_of: SchemaOf, *, catalog: Catalog | None = None) -> None:
        self._resources = resources
        self._schema_of = schema_of
        self._catalog = catalog
        self._revision = -1
        self._kept: dict[str, OpenApiDocument] = {}

    def answer(self, path: str) -> OpenApiDocument | None:
        """Returns the document at /openapi/v3 or below it; None if there is none."""
        if self._revision != self._resources.revision:
            self._kept.clear()
            self._revision = self._resources.revision
        path = path.rstrip("/")
        if path not in self._kept:
            made = self._made(path)
            if made is None:
                return None
            self._kept[path] = made
        return self._kept[path]

    def _made(self, path: str) -> OpenApiDocument | None:
        if path == ROOT:
            return _hashed(_encode({"paths": dict(sorted(self._index().items()))}))
        group_version = self._versions().get(path.removeprefix(ROOT + "/"))
        if group_version is None or not path.startswith(ROOT + "/"):
            return None
        body = _encode(self._document(*group_version))
        return OpenApiDocument(body, self._hash(*group_version))

    def _known(self) -> Catalog:
        self._catalog = self._catalog or builtin()
        return self._catalog

    def _versions(self) -> dict[str, tuple[str, str]]:
        """`api/v1`, `apis/batch/v1` -> group and version."""
        return {
            (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
            for group, versions in self._resources.groups().items()
            for version in versions
        }

    def _index(self) -> Spec:
        return {
            path: {"serverRelativeURL": f"{ROOT}/{path}?hash={self._hash(*group_version)}"}
            for path, group_version in self._versions().items()
        }

    def _hash(self, group: str, version: str) -> str:
        """Returns a hash of the document's inputs, under which clients cache it on disk."""
        found = hashlib.sha512(f"{self._known().source} {group}/{version}".encode())
        for resource in self._resources.of_version(group, version):
            schema = self._schema_of(resource, version)
            found.update(repr(resource).encode())
            if schema is not None:
                found.update(_encode(schema.spec))
        return found.hexdigest().upper()

    def _document(self, group: str, version: str) -> Spec:
        resources = self._resources.of_version(group, version)
        schemas: Spec = {}
        wanted = [_STATUS, _DELETE_OPTIONS]
        for resource in resources:
            schema = self._schema_of(resource, version)
            if schema is not None:
                schemas |= _custom_schemas(resource, version, schema)
                wanted += [OBJECT_META, _META + "ListMeta"]
                continue
            kinds = [(group, version, resource.kind), (group, version, resource.list_kind)]
            for sub in resource.subresources:
                sub_group = group if sub.group is None else sub.group
                kinds.append((sub_group, sub.version or version, sub.kind))
            wanted += [name for kind in kinds if (name := self._known().name_of(*kind))]
        schemas |= self._described(wanted)
        schemas[_PATCH] = {"type": "object"}
        paths: Spec = {}
        for resource in resources:
            paths |= _paths(resource, version, self._name(resource, version))
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.37"},
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": dict(sorted(schemas.items()))},
        }

    def _name(self, resource: Resource, version: str) -> str:
        if resource.custom:
            return _custom_name(resource, version)
        return self._known().name_of(resource.group, version, resource.kind) or _STATUS

    def _described(self, wanted: Iterable[str]) -> Spec:
        """Returns the schemas and the ones they refer to, with known descriptions."""
        found: Spec = {}
        left = list(wanted)
        while left:
            name = left.pop()
            if name in found:
                continue
            schema = found[name] = self._known().schemas[name]
            left += _references(schema)
            descriptions = openapi_descriptions.of_fields(name)
            if descriptions:
                properties = schema.get("properties", {})
                described = {
                    key: {"description": descriptions[key]} | value if key in descriptions else value
                    for key, value in properties.items()
                }
                found[name] = schema | {"properties": described}
        return found


def _hashed(body: bytes) -> OpenApiDocument:
    return OpenApiDocument(body, hashlib.sha512(body).hexdigest().upper())


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [ref for each in schema for ref in _references(each)]
    if not isinstance(schema, dict):
        return []
    ref = schema.get("$ref")
    here = [ref.removeprefix(REF)] if isinstance(ref, str) else []
    return here + [each for value in schema.values() for each in _references(value)]


def _custom_name(resource: Resource, version: str) -> str:
    return ".".join([*reversed(resource.group.split(".")), version, resource.kind])


def _custom_schemas(resource: Resource, version: str, schema: Schema) -> Spec:
    name = _custom_name(resource, version)
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    meta = {"allOf": [{"$ref": REF + OBJECT_META}]}
    # Every object has kind and apiVersion: take their descriptions from a kind whose model is installed.
    descriptions = openapi_descriptions.of_fields("io.k8s.api.core.v1.ConfigMap")
    text = {"type": "string"}
    head = {
        key: text | ({"description": descriptions[key]} if key in descriptions else {})
        for key in ("apiVersion", "kind")
    }
    own = schema.spec | {"properties": schema.spec.get("properties", {}) | head | {"metadata": meta}}
    listed = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": REF + name}},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"{REF}{_META}ListMeta"}]},
        },
        "x-kubernetes-group-version-kind": [kind | {"kind": resource.list_kind}],
    }
    return {name: own | {"x-kubernetes-group-version-kind": [kind]}, f"{name}List": listed}


def _paths(resource: Resource, version: str, name: str) -> Spec:
    """Returns the resource's paths with its verbs."""
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    space = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{root}{space}/{resource.plural}"
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    found: Spec = {collection: _operations(resource.verbs, kind, name, _COLLECTION, resource)}
    if space and "list" in resource.verbs:
        found[f"{root}/{resource.plural}"] = _operations(("list",), kind, name, _COLLECTION, resource)
    item = f"{collection}/{{name}}"
    if resource.stored:
        found[item] = _operations(resource.verbs, kind, name, _ITEM, resource)
    for sub in resource.subresources:
        if sub.connects:
            continue  # clients open a stream there without looking it up
        below = {
            "group": resource.group if sub.group is None else sub.group,
            "version": sub.version or version,
            "kind": sub.kind,
        }
        found[f"{item}/{sub.name}"] = _operations(sub.verbs, below, name, _SUBRESOURCE, resource)
    return {path: operations for path, operations in found.items() if operations}


# Verb -> HTTP method, for each sort of path.
_COLLECTION = {"list": "get", "create": "post", "deletecollection": "delete"}
_ITEM = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_SUBRESOURCE = {"get": "get", "create": "post", "update": "put", "patch": "patch"}


def _operations(
    verbs: Iterable[str], kind: Spec, name: str, methods: dict[str, str], resource: Resource
) -> Spec:
    found: Spec = {}
    for verb, method in methods.items():
        if verb not in verbs:
            continue
        parameters: tuple[str, ...] = ()
        content: tuple[str, ...] = ()
        body = name
        match verb:
            case "list":
                parameters = _LIST_PARAMETERS
            case "patch":
                parameters, body = (*_WRITE_PARAMETERS, "force"), _PATCH
                content = _PATCH_FORMATS[:3] if resource.custom else _PATCH_FORMATS
            case "create" | "update":
                parameters, content = _WRITE_PARAMETERS, ("*/*",)
            case "delete" | "deletecollection":
                parameters, content, body = ("dryRun",), ("*/*",), _DELETE_OPTIONS
        action = {"create": "post", "update": "put"}.get(verb, verb)
        found[method] = _operation(action, kind, parameters, content, body)
    return found


def _operation(
    action: str, kind: Spec, parameters: Iterable[str], content: tuple[str, ...], body: str
) -> Spec:
    found: Spec = {
        "parameters": [
            {"name": each, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for each in parameters
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    }
    if content:
        schema = {"schema": {"$ref": REF + body}}
        found["requestBody"] = {"content": dict.fromkeys(content, schema)}
    return found
