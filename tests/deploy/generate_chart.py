"""Writes what the Helm chart and deploy/all have from deploy/: `python -m tests.deploy.generate_chart` (make
chart).

Lives here: the objects of the base, of its overlays and of the agent's components, as kubectl renders them;
the CRDs; the configuration's fields in the schema of the values; gangsched's own version, wherever a file
needs it. Not here: how values change them (the chart's own templates). A test fails where the chart is not
what this writes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched import __version__
from gangsched.agent.settings import AgentDocument
from gangsched.config.documents.kube import KubeDocument
from gangsched.config.documents.ours import OurDocument
from gangsched.errors import ConfigError
from gangsched.lab.controlplane.assets import find

DEPLOY = Path(__file__).parents[2] / "deploy"
_OF_CHART = "chart/gangsched"
CHART = DEPLOY / _OF_CHART
OVERLAYS = (*("env-hand-off", "device-plugin-hand-off", "metrics-server", "infer-jobs", "default-spreading"),)
COMPONENTS = ("nvidia", "load", "labels", "device-plugin")
FIELDS = {"scheduler": KubeDocument, "gangsched": OurDocument, "agent": AgentDocument}
"""The documents that values are merged into, under `$defs` of the schema."""
_SHAPES: dict[str, Any] = {
    "switch": {
        "type": "object",
        "additionalProperties": False,
        "required": ["enabled"],
        "properties": {"enabled": {"type": "boolean"}},
    },
    "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    "named": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    "quantities": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "requests": {"$ref": "#/$defs/quantities"},
            "limits": {"$ref": "#/$defs/quantities"},
        },
    },
}
VERSIONED = (
    *("deploy/chart/gangsched/Chart.yaml", "deploy/kustomization.yaml", "deploy/agent/kustomization.yaml"),
    *("deploy/all/kustomization.yaml", "Dockerfile", "gangsched/lab/pyproject.toml"),
    *("docs/getting-started.md", "docs/operating.md"),
)
"""Files that name gangsched's version."""
_VERSION = re.compile(r"(gangsched(?::|==)|newTag: |^(?:appV|v)ersion(?:: | = \"))\d+\.\d+\.\d+", re.M)
_MADE = "# Written by `make chart` from deploy/; do not edit.\n"


def kustomize(directory: Path) -> str:
    """What `kubectl apply -k` of this directory would send. Raises: MissingAssets."""
    command = [str(find().path("kubectl")), "kustomize", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def with_version(text: str) -> str:
    """The text of a file with this version, as `gangsched/__init__.py` has it."""
    return _VERSION.sub(rf"\g<1>{__version__}", text)


def files() -> dict[str, str]:
    """Path in deploy/ -> content, of everything that is written."""
    base = kustomize(DEPLOY)
    found = {f"{_OF_CHART}/{path}": text for path, text in of_chart(base).items()}
    found["all/scheduler.yaml"] = _MADE + without_config(base)
    found["all/config/scheduler.yaml"] = (DEPLOY / "config" / "scheduler.yaml").read_text()
    return found


def without_config(base: str) -> str:
    """The base for an overlay that has the ConfigMap of its own, whose hash kustomize puts in."""
    parts = base.split("\n---\n")
    [config] = [one["metadata"]["name"] for one in objects(base) if one["kind"] == "ConfigMap"]
    rest = [text for text in parts if not text.startswith("apiVersion: v1\ndata:")]
    assert len(rest) == len(parts) - 1
    return "\n---\n".join(rest).replace(config, config.rpartition("-")[0])


def of_chart(base: str) -> dict[str, str]:
    """Path in the chart -> content."""
    found = {}
    rest = []
    for text in base.split("\n---\n"):
        [document] = objects(text)
        if document["kind"] == "CustomResourceDefinition":
            found[f"crds/{document['metadata']['name']}.yaml"] = _MADE + text.rstrip("\n") + "\n"
        else:
            rest.append(text)
    found["files/scheduler.yaml"] = _MADE + "\n---\n".join(rest)
    for name in OVERLAYS:
        found[f"files/{name}.yaml"] = _MADE + kustomize(DEPLOY / name)
    agent = kustomize(DEPLOY / "agent")
    found["files/agent.yaml"] = _MADE + agent
    for name in COMPONENTS:
        found[f"files/agent-{name}.yaml"] = _MADE + yaml.dump(
            component(name, objects(agent)), Dumper=_Dumper, sort_keys=False
        )
    found["files/alerts.yaml"] = _MADE + (DEPLOY / "monitoring" / "alerts.yaml").read_text()
    found["values.schema.json"] = schema()
    return found


def component(name: str, agent: list[dict[str, Any]]) -> dict[str, Any]:
    """What one of the agent's components adds: objects, configuration files, a patch of the pod's spec.

    Raises: ValueError where it changes something else, which the chart's template would not know of.
    """
    directory = DEPLOY / f"agent-{name}"
    whole = objects(kustomize(directory))
    known = {_identity(document) for document in agent}
    patch: dict[str, Any] = {}
    made = yaml.safe_load((directory / "component" / "kustomization.yaml").read_text())
    for one in made.get("patches", ()):
        document = yaml.safe_load(one["patch"])
        patch = document["spec"]["template"]["spec"]
        containers = patch.get("containers", [])
        if (
            document["kind"] != "DaemonSet"
            or len(made["patches"]) > 1
            or {*document["spec"], *document["spec"]["template"]} != {"template", "spec"}
            or any({*container} > {"name", "volumeMounts"} for container in containers)
        ):
            raise ValueError(
                f"{directory}: the chart knows patches of the agent's pod spec alone, in one piece"
            )
    config = _config(whole)
    return {
        "config": {file: text for file, text in config.items() if file not in _config(agent)},
        "objects": [document for document in whole if _identity(document) not in known],
        "podSpec": patch,
    }


def _identity(document: dict[str, Any]) -> tuple[str, str]:
    """The ConfigMap's name has its hash, which differs."""
    kind, name = document["kind"], document["metadata"]["name"]
    return kind, "" if kind == "ConfigMap" else name


def _config(documents: list[dict[str, Any]]) -> dict[str, str]:
    [data] = [document["data"] for document in documents if document["kind"] == "ConfigMap"]
    return dict(data)


def schema() -> str:
    """The chart's schema as it is, with the configuration's fields written again."""
    written: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    definitions = dict(_SHAPES)
    for name, document in FIELDS.items():
        made = msgspec.json.schema(document, ref_template=f"#/$defs/{name}.{{name}}")
        of = {f"{name}.{key}": value for key, value in made["$defs"].items()}
        definitions |= {name: {"$ref": made["$ref"]}, **of}
    written["$defs"] = _plain(definitions)
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Without docstrings, which are for readers of the code, and defaults, which the base has."""
    if isinstance(value, dict):
        return {
            key: _plain(one) for key, one in value.items() if key not in ("description", "default", "title")
        }
    return [_plain(one) for one in value] if isinstance(value, list) else value


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as they are written by hand."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def stale() -> Iterator[str]:
    """What `make chart` would change, as paths in deploy/."""
    made = files()
    for path, text in made.items():
        there = DEPLOY / path
        if not there.is_file() or there.read_text() != text:
            yield path
    for folder in ("crds", "files"):
        for there in (CHART / folder).iterdir():
            if (path := f"{_OF_CHART}/{folder}/{there.name}") not in made:
                yield path


def main() -> int:
    """Writes them; takes away what deploy/ has no more."""
    for path in VERSIONED:
        there = DEPLOY.parent / path
        if (now := with_version(there.read_text())) != there.read_text():
            there.write_text(now)
            print(path)
    try:
        made = files()
    except ConfigError as error:
        print(f"chart: {error}", file=sys.stderr)
        return 1
    for path in stale():
        if path in made:
            (DEPLOY / path).write_text(made[path])
        else:
            (DEPLOY / path).unlink()
        print(f"deploy/{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
