"""Makes tests/fields/owners.json: the fields of other projects' controllers' objects, from their Go types.

    python -m tests.fields.generate_owners JobSet@v0.12.0=TYPES.go RayCluster@v1.6.0=TYPES.go ...

Each argument is a kind, a release of its project, and the file with the types of that release; several
releases of a kind are merged. Types of other packages are left out, pods' templates among them. Where the
types are:

    JobSet           kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go
    LeaderWorkerSet  kubernetes-sigs/lws, api/leaderworkerset/v1/leaderworkerset_types.go
    RayCluster       ray-project/kuberay, ray-operator/apis/ray/v1/raycluster_types.go
    Workload         kubernetes-sigs/kueue, apis/kueue/v1beta2/workload_types.go
    MPIJob           kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.fields.generate import flat, types_in

FILE = Path(__file__).parent / "owners.json"


def main(arguments: list[str]) -> None:
    """Writes the file."""
    found: dict[str, dict[str, Any]] = {}
    for argument in arguments:
        release, _, file = argument.partition("=")
        kind, _, version = release.partition("@")
        own = found.setdefault(kind, {"releases": [], "types": {}})
        own["releases"].append(version)
        for name, fields in flat(types_in("of", Path(file).read_text(encoding="utf-8"))).items():
            own["types"].setdefault(name, {}).update({field: [one, ""] for field, one in fields.items()})
    for kind, own in found.items():
        own["types"] = {name: own["types"][name] for name in sorted(reached(own["types"], f"of.{kind}"))}
    FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print({kind: sum(map(len, own["types"].values())) for kind, own in found.items()})


def reached(types: dict[str, dict[str, list[str]]], root: str) -> set[str]:
    """The type and those of its fields."""
    found, todo = set[str](), [root]
    while todo:
        name = todo.pop()
        if name in types and name not in found:
            found.add(name)
            todo += [kind.replace("[]", "").replace("{}", "") for kind, _ in types[name].values()]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
