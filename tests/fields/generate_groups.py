"""Makes tests/fields/pod_groups.json: the fields of other systems' PodGroups, from their CRDs.

    python -m tests.fields.generate_groups volcano@v1.15.1=PODGROUPS.yaml kai@v0.20.1=PODGROUPS.yaml ...

Each argument is a system, a release of it, and the CRD of that release; several releases of a system are
merged. Where the CRDs are:

    volcano       volcano-sh/volcano, config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml
    kai           kai-scheduler/KAI-Scheduler, deployments/kai-scheduler/crds/scheduling.run.ai_podgroups.yaml
    coscheduling  kubernetes-sigs/scheduler-plugins, config/crd/bases/scheduling.x-k8s.io_podgroups.yaml
    koordinator   koordinator-sh/koordinator, config/crd/bases/scheduling.sigs.k8s.io_podgroups.yaml
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "pod_groups.json"


def paths(schema: dict[str, Any], at: str) -> Iterator[str]:
    """The fields below this one, as in model.fields; `{}` is any key of a map."""
    if schema.get("properties"):
        for name, below in schema["properties"].items():
            yield from paths(below, f"{at}.{name}")
    elif schema.get("type") == "array":
        yield from paths(schema["items"], f"{at}[]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from paths(schema["additionalProperties"], f"{at}.{{}}")
    else:
        yield at


def main(arguments: list[str]) -> None:
    """Writes the file."""
    found: dict[str, dict[str, Any]] = {}
    for argument in arguments:
        release, _, file = argument.partition("=")
        system, _, version = release.partition("@")
        crd = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        own = found.setdefault(system, {"group": crd["spec"]["group"], "releases": [], "fields": {}})
        own["releases"].append(version)
        for served in crd["spec"]["versions"]:
            schema = served["schema"]["openAPIV3Schema"]["properties"]["spec"]
            for path in paths(schema, "spec"):
                releases = own["fields"].setdefault(path, {}).setdefault(served["name"], [])
                releases.append(version)
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print({system: len(own["fields"]) for system, own in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
