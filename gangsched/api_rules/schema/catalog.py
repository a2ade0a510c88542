"""Sources of a kind's schema: the recorded structure of the built-in kinds, or a CRD.

Lives here: `Catalog` and the recorded file. The record, structure.json.gz, contains the components of the
served kinds in the /openapi/v3 of the kube-apiserver named in its `source`, without descriptions, and the Go
names that the server's errors use. `python -m tests.apiserver.schema.record` regenerates it. Not here: using
schemas. Called by whatif, and by the embedded API server's registry, kinds and OpenAPI documents.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from gangsched.api_rules.schema.node import Schema, Spec

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_RECORD = "structure.json.gz"


class Catalog:
    """Schemas by component name or by group, version and kind; each is built once."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.source: str = recorded.get("source", "")
        self.schemas: dict[str, Spec] = recorded["schemas"]
        self._go: dict[str, Any] = recorded["go"]
        self._built: dict[str, Schema] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        for name, schema in self.schemas.items():
            for each in schema.get("x-kubernetes-group-version-kind", ()):
                self._names[each["group"], each["version"], each["kind"]] = name

    def named(self, name: str) -> Schema:
        """By the component's name. Raises: KeyError."""
        found = self._built.get(name)
        if found is None:
            found = Schema(self.schemas[name], name=name, resolve=self.named, go=self._go.get(name))
            self._built[name] = found
        return found

    def name_of(self, group: str, version: str, kind: str) -> str | None:
        """Returns the component's name, such as `io.k8s.api.core.v1.Pod`."""
        return self._names.get((group, version, kind))

    def builtin(self, group: str, version: str, kind: str) -> Schema:
        """Raises: KeyError for a kind that was not recorded."""
        return self.named(self._names[group, version, kind])

    def custom(self, openapi_v3_schema: Spec | None) -> Schema:
        """Returns the schema of a CRD's version, with the kind, apiVersion and metadata of every object."""
        spec = dict(openapi_v3_schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        return CustomRoot(spec, metadata=self.named(OBJECT_META))


class CustomRoot(Schema):
    """A custom object's schema; its rules for metadata are used in validation, the rest of metadata is built
    in.
    """

    def __init__(self, spec: Spec, *, metadata: Schema) -> None:
        declared = spec.get("properties", {})
        text = {"type": "string"}
        spec["properties"] = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}} | declared
        super().__init__(spec, custom=True)
        self.declared_metadata: Spec = declared.get("metadata", {})
        self.properties["metadata"] = metadata


def name_of(schemas: Mapping[str, Spec], group: str, version: str, kind: str) -> str | None:
    """The component that describes a kind."""
    return Catalog({"schemas": schemas, "go": {}}).name_of(group, version, kind)


@cache
def builtin() -> Catalog:
    """The recorded structure; read on first use, in a few milliseconds."""
    packed = resources.files(__package__).joinpath(_RECORD).read_bytes()
    return Catalog(msgspec.json.decode(gzip.decompress(packed)))
