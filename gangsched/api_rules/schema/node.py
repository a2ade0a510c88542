"""One schema: the values allowed at one place in an object, built-in or custom.

Lives here: `Schema`, which reads an OpenAPI schema once, on demand. Not here: validation (decode.py,
lab.apiserver.schema.custom) and the source of the built-in ones (catalog.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

Spec = dict[str, Any]
Kind = Literal[
    "struct",
    "map",
    "list",
    "string",
    "bytes",
    "time",
    "quantity",
    "integer",
    "number",
    "boolean",
    "int-or-string",
    "any",
]
REF = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
# Objects with arbitrary content from clients, unlike structs without fields.
FREE_FORM = (
    _META + "FieldsV1",
    _META + "Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
)
_TIMES = (_META + "Time", _META + "MicroTime")


class Schema:
    """A node of a schema; references are resolved on demand.

    `spec`: the OpenAPI schema without its reference; `name`: the component by which it was referenced, or "".
    `go` are the Go names recorded for the struct's properties: [type, struct, path].
    """

    def __init__(
        self,
        spec: Spec,
        *,
        name: str = "",
        resolve: Callable[[str], Schema] | None = None,
        go: Mapping[str, Sequence[str]] | None = None,
        go_type: str = "",
        custom: bool = False,
    ) -> None:
        self.spec = spec
        self.name = name
        self.custom = custom
        self.go = go or {}
        self._resolve = resolve
        self._go_type = go_type

    @cached_property
    def kind(self) -> Kind:
        if self.name == _QUANTITY:
            return "quantity"
        if self.name in _TIMES:
            return "time"
        spec = self.spec
        if spec.get("format") == "int-or-string" or spec.get("x-kubernetes-int-or-string"):
            return "int-or-string"
        match spec.get("type"):
            case "string":
                return "bytes" if spec.get("format") == "byte" and not self.custom else "string"
            case "array":
                return "list"
            case "integer":
                return "integer"
            case "number":
                return "number"
            case "boolean":
                return "boolean"
            case "object":
                if self.name in FREE_FORM:
                    return "any"
                return "map" if "properties" not in spec and "additionalProperties" in spec else "struct"
        return "struct" if "properties" in spec else "any"

    @cached_property
    def properties(self) -> dict[str, Schema]:
        found = {}
        for key, spec in self.spec.get("properties", {}).items():
            known = self.go.get(key)
            found[key] = self._child(spec, known[0] if known else "")
        return found

    @cached_property
    def element(self) -> Schema:
        """The schema of a list's items, or of a map's values."""
        spec = self.spec.get("items" if self.kind == "list" else "additionalProperties")
        inner = ""
        for prefix in ("[]", "map[string]"):
            if self._go_type.startswith(prefix):
                inner = self._go_type.removeprefix(prefix)
        return self._child(spec if isinstance(spec, dict) else {}, inner)

    def _child(self, spec: Spec, go_type: str) -> Schema:
        ref = spec.get("$ref")
        over = spec
        if ref is None and len(spec.get("allOf", ())) == 1 and "$ref" in spec["allOf"][0]:
            ref = spec["allOf"][0]["$ref"]
        if ref is None or self._resolve is None or self.custom:
            return Schema(spec, resolve=self._resolve, go_type=go_type, custom=self.custom)
        target = self._resolve(ref.removeprefix(REF))
        over = {key: value for key, value in spec.items() if key not in ("$ref", "allOf")}
        if not over and not go_type:
            return target
        return Schema(
            target.spec | over, name=target.name, resolve=self._resolve, go=target.go, go_type=go_type
        )

    @cached_property
    def required(self) -> frozenset[str]:
        return frozenset(self.spec.get("required") or ())

    @property
    def default(self) -> Any:
        return self.spec.get("default")

    @cached_property
    def preserves_unknown(self) -> bool:
        return bool(self.spec.get("x-kubernetes-preserve-unknown-fields"))

    @cached_property
    def go_type(self) -> str:
        """The type's name in the server's errors."""
        if self._go_type:
            return self._go_type
        match self.kind:
            case "struct":
                package, _, name = self.name.rpartition(".")
                return f"{package.rpartition('.')[2]}.{name}"
            case "list":
                return f"[]{self.element.go_type}"
            case "map":
                return f"map[string]{self.element.go_type}"
            case "bytes":
                return "[]uint8"
            case "integer":
                return str(self.spec.get("format") or "int64")
            case "int-or-string":
                return "int32"
            case "number":
                return "float64"
            case "boolean":
                return "bool"
        return "string"

    @cached_property
    def list_type(self) -> str:
        """`atomic`, `set` or `map`: how server-side apply owns the list."""
        return str(self.spec.get("x-kubernetes-list-type") or "atomic")

    @cached_property
    def list_keys(self) -> tuple[str, ...]:
        return tuple(self.spec.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def is_atomic(self) -> bool:
        """Whether server-side apply owns it as a whole; for lists, maps and structs."""
        if self.kind == "list":
            return self.list_type == "atomic"
        return self.spec.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def merge_key(self) -> str:
        """The key by which strategic merge matches the list's items; "" for scalars."""
        return str(self.spec.get("x-kubernetes-patch-merge-key") or "")

    @cached_property
    def merge_strategies(self) -> tuple[str, ...]:
        """The strategies of strategic merge: `merge`, `replace`, `retainKeys`."""
        strategies = self.spec.get("x-kubernetes-patch-strategy")
        return tuple(strategies.split(",")) if strategies else ()
