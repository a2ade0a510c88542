"""Records the structure of the kinds served: `python -m tests.apiserver.schema.record`.

Writes gangsched/api_rules/schema/structure.json.gz: the schemas in a kube-apiserver's /openapi/v3 that
the kinds served can reach, without their descriptions; and what only its refusals tell: the Go types that
they name. Needs a real control plane (`python -m gangsched.lab.controlplane.build`).
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from gangsched.api_rules.schema import catalog
from gangsched.errors import ApiError
from gangsched.lab.apiserver import resources
from gangsched.lab.controlplane.processes import ControlPlane

Spec = dict[str, Any]
TARGET = Path(catalog.__file__).with_name("structure.json.gz")
REF = "#/components/schemas/"
ALSO_SERVED = (
    ("", "v1", "DeleteOptions"),
    ("", "v1", "Status"),
    ("", "v1", "WatchEvent"),
)
_REFUSAL = re.compile(
    r"cannot unmarshal \w+(?: [-0-9.e+]+)? into Go struct field (\w+)\.(\S*) of type ([^\"\\]+)"
)


def structure(control_plane: ControlPlane) -> Spec:
    """Name -> schema, for all that the kinds served reach."""
    schemas: Spec = {}
    groups = {resource.group or "api" for resource in resources.builtin_resources()}
    for path, entry in control_plane.request("GET", "/openapi/v3")["paths"].items():
        if path.startswith(("api/", "apis/")) and path.rpartition("/")[0].rpartition("/")[2] in groups:
            document = control_plane.request("GET", entry["serverRelativeURL"])
            schemas |= document.get("components", {}).get("schemas", {})
    served = _served()
    wanted = [
        name
        for name, schema in schemas.items()
        if any(
            (each["group"], each["version"], each["kind"]) in served
            for each in schema.get("x-kubernetes-group-version-kind", ())
        )
    ]
    kept: Spec = {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = _bare(schemas[name])
            wanted += [ref.removeprefix(REF) for ref in _references(kept[name])]
    for schema in kept.values():
        kinds = schema.get("x-kubernetes-group-version-kind")
        if kinds:
            schema["x-kubernetes-group-version-kind"] = [
                each for each in kinds if (each["group"], each["version"], each["kind"]) in served
            ]
    return dict(sorted(kept.items()))


def _served() -> set[tuple[str, str, str]]:
    found = set(ALSO_SERVED)
    for resource in resources.builtin_resources():
        for version in resource.versions:
            found.add((resource.group, version, resource.kind))
            if resource.stored:
                found.add((resource.group, version, resource.list_kind))
            for sub in resource.subresources:
                group = resource.group if sub.group is None else sub.group
                found.add((group, sub.version or version, sub.kind))
    return found


def _bare(schema: Any) -> Any:
    """Without descriptions; a property may be named so."""
    if isinstance(schema, list):
        return [_bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _bare(value)
        for key, value in schema.items()
        if key != "description" or not isinstance(value, str)
    }


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [ref for each in schema for ref in _references(each)]
    if not isinstance(schema, dict):
        return []
    here = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return here + [ref for value in schema.values() for ref in _references(value)]


class Prober:
    """Sends, for each property of each schema once, an object that is wrong there alone."""

    def __init__(self, control_plane: ControlPlane, schemas: Spec) -> None:
        self._control_plane = control_plane
        self._schemas = schemas
        self._seen: set[str] = set()
        self.found: dict[str, dict[str, list[str]]] = {}

    def probe(self, url: str, head: Spec, name: str) -> None:
        todo: list[tuple[str, list[Any], str]] = [(name, [], "")]
        while todo:
            name, steps, path = todo.pop(0)
            if name in self._seen:
                continue
            self._seen.add(name)
            for key, schema in self._schemas[name].get("properties", {}).items():
                if not steps and key in ("kind", "apiVersion"):
                    continue
                said = self._ask(url, head, [*steps, key], _wrong_value(self._schemas, schema))
                if said is None:
                    continue
                owner, where, go_type = said
                component = where[len(path) :].lstrip(".")
                self.found.setdefault(name, {})[key] = [go_type, owner, component]
                for target, more in _below(schema):
                    todo.append((target, [*steps, key, *more], where))

    def _ask(self, url: str, head: Spec, steps: list[Any], value: Any) -> tuple[str, str, str] | None:
        for step in reversed(steps):
            value = [value] if step == 0 else {step: value}
        body = {**value, **head}
        if "metadata" in value and isinstance(value["metadata"], dict):
            body["metadata"] = value["metadata"] | {"name": "x"}
        try:
            self._control_plane.request("POST", url + "?dryRun=All", body)
        except ApiError as error:
            status = str(error)[str(error).index("{") :]
            found = _REFUSAL.search(json.loads(status)["message"])
            return (found[1], found[2], found[3]) if found else None
        return None


def _wrong_value(schemas: Spec, schema: Spec) -> Any:
    target = schema
    while ref := next(iter(_references({k: v for k, v in target.items() if k in ("$ref", "allOf")})), None):
        target = schemas[ref.removeprefix(REF)]
    return 5 if target.get("type") == "string" else "x"


def _below(schema: Spec) -> list[tuple[str, list[Any]]]:
    """The schemas that a property refers to, each with the steps from it."""
    for key, steps in (("items", [0]), ("additionalProperties", ["k"])):
        if isinstance(schema.get(key), dict):
            return [(target, [*steps, *more]) for target, more in _below(schema[key])]
    refs = _references({key: value for key, value in schema.items() if key in ("$ref", "allOf")})
    return [(ref.removeprefix(REF), []) for ref in refs]


def go_types(control_plane: ControlPlane, schemas: Spec) -> Spec:
    """Schema -> property -> [Go type, struct, path], where the schema's own names do not tell them."""
    prober = Prober(control_plane, schemas)
    for resource in resources.builtin_resources():
        for version in resource.versions:
            root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
            url = f"{root}/namespaces/default/{resource.plural}"
            kind = {"kind": resource.kind, "apiVersion": resource.api_version(version)}
            if not resource.namespaced:
                url = f"{root}/{resource.plural}"
            name = catalog.name_of(schemas, resource.group, version, resource.kind)
            if name:
                prober.probe(url, kind, name)
    derived = catalog.Catalog({"schemas": schemas, "go": {}})
    kept: Spec = {}
    for name, properties in prober.found.items():
        for key, (go_type, owner, component) in properties.items():
            schema = derived.named(name).properties[key]
            usual = [schema.go_type, name.rpartition(".")[2], key]
            if [go_type, owner, component] != usual:
                kept.setdefault(name, {})[key] = [go_type, owner, component]
    return kept


def main() -> None:
    with ControlPlane(unsafe_no_fsync=True) as control_plane:
        version = control_plane.request("GET", "/version")["gitVersion"]
        schemas = structure(control_plane)
        recorded = {"source": f"kube-apiserver {version}", "schemas": schemas}
        recorded["go"] = go_types(control_plane, schemas)
    text = json.dumps(recorded, separators=(",", ":"), sort_keys=True)
    # Without a time in its head, so that the same structure is the same file.
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{TARGET.name}: {len(schemas)} schemas, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
