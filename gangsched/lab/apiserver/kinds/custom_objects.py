"""Objects whose kind a CustomResourceDefinition defines.

Lives here: their strategy, with the schema of each version. Not here: the definition (definitions.py), the
schema's own rules (schema/). CEL rules and selectable fields are accepted but not used.
Source: k8s.io/apiextensions-apiserver pkg/registry/customresource/strategy.go of Kubernetes 1.37.
"""

from __future__ import annotations

import re

from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import FieldProblem
from gangsched.lab.apiserver.schema.custom import fill_defaults, validate_custom
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep

_PART = re.compile(r"\.([^.\[\]]+)")


class CustomStrategy(Strategy):
    has_generation = True
    allows_unconditional_update = False

    def __init__(self, definition: Object) -> None:
        catalog = builtin()
        versions = definition["spec"]["versions"]
        self._schemas = {
            each["name"]: catalog.custom((each.get("schema") or {}).get("openAPIV3Schema"))
            for each in versions
        }
        self._with_status = {
            each["name"] for each in versions if "status" in (each.get("subresources") or {})
        }

    def schema(self, version: str) -> Schema | None:
        return self._schemas.get(version)

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        if context.version in self._with_status:
            obj.pop("status", None)
        fill_defaults(self._schemas[context.version], obj)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            # The request cannot change its metadata either, except managedFields.
            for key in {*new, *old} - {"status", "metadata"}:
                keep(key, new, old)
            version = new["metadata"].get("resourceVersion")
            managed = new["metadata"].get("managedFields")
            new["metadata"] = dict(old["metadata"], resourceVersion=version)
            keep("managedFields", new["metadata"], {"managedFields": managed} if managed else {})
        elif context.version in self._with_status:
            keep("status", new, old)
        fill_defaults(self._schemas[context.version], new)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        return validate_custom(self._schemas[context.version], new)

    def changes_generation(self, new: Object, old: Object) -> bool:
        """Without a status subresource, the status is a field like any other."""
        ignored = {"metadata", "kind", "apiVersion"} | ({"status"} if self._with_status else set())
        return any(new.get(key) != old.get(key) for key in {*new, *old} - ignored)
