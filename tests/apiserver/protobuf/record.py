"""Records Kubernetes' protobuf field numbers: `python -m tests.apiserver.protobuf.record`.

Writes gangsched/lab/apiserver/protobuf/fields.json.gz from the k8s.io modules that the control plane is built
of: the generated.proto files have numbers and types, the Go files say which fields are inline and which are
pointers. Needs Go and its module cache (`python -m gangsched.lab.controlplane.build` fills it).
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gangsched.lab.apiserver import protobuf, resources

TARGET = Path(protobuf.__file__).with_name("fields.json.gz")
SCALARS = {
    "string": "string",
    "bytes": "bytes",
    "bool": "bool",
    "double": "double",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
    "uint64": "int",
}
APIMACHINERY = ("pkg/apis/meta/v1", "pkg/api/resource", "pkg/runtime", "pkg/util/intstr")
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(
    r"^  (?:(optional|repeated|required) )?(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+)", re.MULTILINE
)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.DOTALL | re.MULTILINE)
_TAG = re.compile(
    r'^\s+(\w*)\s*([*\[\]\w.]+)\s+`json:"([\w-]*)(,[\w,]*)?" protobuf:"[^"]*?name=(\w+)', re.MULTILINE
)


def module(path: str, version: str) -> Path:
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    return Path(cache.stdout.strip()) / f"{path}@{version}"


def newest(path: str) -> str:
    cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    found = Path(cache.stdout.strip(), Path(path).parent).glob(f"{Path(path).name}@v*")
    versions = [each.name.partition("@")[2] for each in found]
    return max(versions, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])


def short(name: str, package: str) -> str:
    """A message's name without what all names begin with."""
    full = name.removeprefix(".") if "." in name else f"{package}.{name}"
    return full.removeprefix("k8s.io.apimachinery.pkg.").removeprefix("k8s.io.api.")


def messages(directory: Path) -> Iterator[tuple[str, protobuf.Fields]]:
    proto = directory / "generated.proto"
    text = re.sub(r"^\s*//.*$", "", proto.read_text(), flags=re.MULTILINE)
    [package] = re.findall(r"^package ([\w.]+);", text, re.MULTILINE)
    tags = _tags(directory)
    for name, body in _MESSAGE.findall(text):
        fields: protobuf.Fields = {}
        for label, type_, of_map, field, number in _FIELD.findall(body):
            inline, pointer = tags.get(name, {}).get(field, (False, False))
            inner = of_map or type_
            kind = SCALARS.get(inner) or short(inner, package)
            if of_map:
                kind = "{}" + kind
            elif label == "repeated":
                kind = "[]" + kind
            elif pointer:
                kind += "?"
            fields[number] = ["" if inline else field, kind]
        yield short(name, package), fields


def _tags(directory: Path) -> dict[str, dict[str, tuple[bool, bool]]]:
    """Struct -> protobuf name -> whether it is inline, whether it is a pointer."""
    found: dict[str, dict[str, tuple[bool, bool]]] = {}
    for path in directory.glob("*.go"):
        for name, body in _STRUCT.findall(path.read_text()):
            known = found.setdefault(name, {})
            for _, type_, json_name, _, field in _TAG.findall(body):
                inline = not json_name
                known[field] = (inline, type_.startswith("*"))
    return found


def reachable(everything: dict[str, protobuf.Fields]) -> dict[str, protobuf.Fields]:
    """Those that bodies for the kinds served can hold."""
    wanted = [protobuf.message_of("v1", "DeleteOptions")]
    for resource in resources.builtin_resources():
        if "create" not in resource.verbs:
            continue
        for version in resource.versions:
            wanted.append(protobuf.message_of(resource.api_version(version), resource.kind))
            for below in resource.subresources:
                group = resource.group if below.group is None else below.group
                api_version = f"{group}/{below.version or version}" if group else below.version or version
                wanted.append(protobuf.message_of(api_version, below.kind))
    kept: dict[str, protobuf.Fields] = {}
    while wanted:
        name = wanted.pop()
        if name in kept or name not in everything:
            continue
        kept[name] = everything[name]
        wanted += [re.sub(r"^(\[\]|\{\})|\?$", "", type_) for _, type_ in kept[name].values()]
    return dict(sorted(kept.items()))


def main() -> None:
    version = newest("k8s.io/api")
    directories = [path.parent for path in module("k8s.io/api", version).glob("*/*/generated.proto")]
    directories += [module("k8s.io/apimachinery", version) / each for each in APIMACHINERY]
    everything = {name: fields for each in directories for name, fields in messages(each)}
    source = f"k8s.io/api and k8s.io/apimachinery {version}"
    document = json.dumps({"source": source, "messages": reachable(everything)}, separators=(",", ":"))
    TARGET.write_bytes(gzip.compress(document.encode(), mtime=0))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes, from {source}")


if __name__ == "__main__":
    main()
