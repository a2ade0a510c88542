"""Makes tests/fields/kubernetes.json: the fields of the kinds that the scheduler reads, in each Kubernetes.

    python -m tests.fields.generate v0.34.4 v0.35.4 v0.36.3 v0.37.1

Needs a Go toolchain, whose module proxy has k8s.io/api and k8s.io/apimachinery. A type of Go that is a struct
becomes an object of JSON names: {"core/v1.Container": {"image": ["", ""], ...}}, each with the type of the
field ("" if it has no fields of its own) and the versions that have it ("" if all have). As in the JSON, a
pointer is what it points to, `[]` comes before the type of a list, and `{}` before that of a map.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "kubernetes.json"
PACKAGES = (
    "core/v1",
    "storage/v1",
    "scheduling/v1",
    "scheduling/v1alpha1",
    "scheduling/v1alpha2",
    "scheduling/v1beta1",
    "policy/v1",
    "apps/v1",
    "batch/v1",
    "resource/v1",
)
_META = "apis/meta/v1"
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ALIAS = re.compile(r"^type (\w+) (\S+)$", re.MULTILINE)
_FIELD = re.compile(r'^\t(?:(\w+)\s+)?(\S+)\s+`[^`]*json:"([^",]*)[^"]*"')
_IMPORT = re.compile(r'^\t(?:(\w+) )?"k8s\.io/(?:api|apimachinery/pkg)/(\S+)"', re.MULTILINE)

Types = dict[str, dict[str, str]]


def module(name: str, version: str) -> Path:
    """Returns the folder of a Go module, which is downloaded if need be."""
    command = ["go", "mod", "download", "-json", f"k8s.io/{name}@{version}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    return Path(json.loads(found.stdout)["Dir"])


def types_of(version: str) -> Types:
    """Reads all structs of one version, by `package.Name`."""
    found: Types = {}
    for package in PACKAGES:
        path = module("api", version) / package / "types.go"
        if path.exists():
            found |= types_in(package, path.read_text(encoding="utf-8"))
    meta = module("apimachinery", version) / "pkg" / _META / "types.go"
    return found | types_in(_META, meta.read_text(encoding="utf-8"))


def types_in(package: str, text: str) -> Types:
    imports = {name or path.rpartition("/")[2]: path for name, path in _IMPORT.findall(text)}
    aliases = dict(_ALIAS.findall(text))
    structs: Types = {}

    def resolved(kind: str) -> str:
        kind = kind.lstrip("*")
        if kind.startswith("[]"):
            return "[]" + resolved(kind[2:])
        if kind.startswith("map["):
            return "{}" + resolved(kind.partition("]")[2])
        if "." in kind:
            where, _, name = kind.partition(".")
            return f"{imports[where]}.{name}" if where in imports else ""
        if kind in aliases:
            return resolved(aliases[kind])
        return f"{package}.{kind}" if kind[:1].isupper() else ""

    for name, body in _STRUCT.findall(text):
        fields: dict[str, str] = {}
        for line in body.splitlines():
            match = _FIELD.match(line)
            if match is None:
                continue
            own, kind, json_name = match.groups()
            if json_name == "-":
                continue
            if not own and not json_name:
                fields[f"inline {kind.rpartition('.')[2]}"] = resolved(kind)
            else:
                fields[json_name or own] = resolved(kind)
        structs[f"{package}.{name}"] = fields
    return structs


def flat(types: Types) -> Types:
    """Puts embedded structs' fields in their places, and leaves out the types of fields without fields."""
    flat: Types = {}
    for name, fields in types.items():
        found: dict[str, str] = {}
        for field, kind in fields.items():
            if not field.startswith("inline "):
                found[field] = kind if _core(kind) in types else ""
            elif kind in types:
                found |= {key: one if _core(one) in types else "" for key, one in types[kind].items()}
        flat[name] = found
    return flat


def _core(kind: str) -> str:
    return kind.replace("[]", "").replace("{}", "")


def main(versions: list[str]) -> None:
    """Writes the file."""
    by_version = {f"1.{version.split('.')[1]}": flat(types_of(version)) for version in versions}
    merged: dict[str, dict[str, list[str]]] = {}
    for version, types in by_version.items():
        for name, fields in types.items():
            merged.setdefault(name, {})
            for field, kind in fields.items():
                known = merged.setdefault(name, {}).setdefault(field, [kind, ""])
                known[0] = kind or known[0]
                known[1] = f"{known[1]} {version}".strip()
    everywhere = " ".join(by_version)
    reached = _reached(merged)
    text = {
        name: {field: [kind, "" if said == everywhere else said] for field, (kind, said) in fields.items()}
        for name, fields in sorted(merged.items())
        if name in reached
    }
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in text.items()]
    FILE.write_text(
        "{\n" + ",\n".join([f'"versions": {json.dumps(versions)}', *lines]) + "\n}\n", encoding="utf-8"
    )
    print(f"{len(lines)} types, {sum(map(len, text.values()))} fields")


ROOTS = {
    "Pod": "core/v1.Pod",
    "Node": "core/v1.Node",
    "PersistentVolumeClaim": "core/v1.PersistentVolumeClaim",
    "PersistentVolume": "core/v1.PersistentVolume",
    "Service": "core/v1.Service",
    "ReplicationController": "core/v1.ReplicationController",
    "Namespace": "core/v1.Namespace",
    "ReplicaSet": "apps/v1.ReplicaSet",
    "StatefulSet": "apps/v1.StatefulSet",
    "PodDisruptionBudget": "policy/v1.PodDisruptionBudget",
    "PriorityClass": "scheduling/v1.PriorityClass",
    "StorageClass": "storage/v1.StorageClass",
    "CSINode": "storage/v1.CSINode",
    "CSIDriver": "storage/v1.CSIDriver",
    "CSIStorageCapacity": "storage/v1.CSIStorageCapacity",
    "VolumeAttachment": "storage/v1.VolumeAttachment",
    "Job": "batch/v1.Job",
    "DeviceClass": "resource/v1.DeviceClass",
    "ResourceClaim": "resource/v1.ResourceClaim",
    "ResourceSlice": "resource/v1.ResourceSlice",
    "DeviceTaintRule": "resource/v1.DeviceTaintRule",
    "PodGroup v1alpha2": "scheduling/v1alpha2.PodGroup",
    "PodGroup v1beta1": "scheduling/v1beta1.PodGroup",
}
"""The kinds that are read: a name for each version of a kind -> its type."""


def _reached(types: dict[str, dict[str, list[str]]]) -> set[str]:
    found: set[str] = set()
    todo = list(ROOTS.values())
    while todo:
        name = todo.pop()
        if name in types and name not in found:
            found.add(name)
            todo += [_core(kind) for kind, _ in types[name].values()]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
