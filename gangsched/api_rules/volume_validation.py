"""Validation of a pod's volumes and their mounts.

Lives here: names, and that each volume has one source with its required fields. The rest of a source is
stored unchecked: nothing mounts it.
Called by pod_validation.py and container_validation.py.
Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import NOT_FOUND, duplicate_value, field_problem, forbidden_field, required

Object = dict[str, Any]

# In the server's order: only the first of several is kept.
_SOURCES = (
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "storageos",
    "portworxVolume",
    "vsphereVolume",
    "photonPersistentDisk",
    "azureDisk",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
_NEEDS = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
}


def volumes(field: str, found: list[Object]) -> tuple[set[str], Problems]:
    """Returns the names that mounts may use, and the problems."""
    known: set[str] = set()
    problems: Problems = []
    for index, volume in enumerate(found):
        at = f"{field}[{index}]"
        name = volume.get("name") or ""
        wrong = _source(at, volume)
        if not name:
            wrong.append(required(f"{at}.name"))
        else:
            wrong += names.label(f"{at}.name", name)
        if name in known:
            wrong.append(duplicate_value(f"{at}.name", name))
        if not wrong:
            known.add(name)
        problems += wrong
    return known, problems


def _source(field: str, volume: Object) -> Problems:
    problems: Problems = []
    kinds = [kind for kind in _SOURCES if kind in volume]
    if not kinds:
        return [required(field, "must specify a volume type")]
    for kind in kinds[1:]:
        problems.append(forbidden_field(f"{field}.{kind}", "may not specify more than 1 volume type"))
    kind = kinds[0]
    source, at = volume[kind] or {}, f"{field}.{kind}"
    if (key := _NEEDS.get(kind)) and not source.get(key):
        problems.append(required(f"{at}.{key}"))
    return problems


def mounts(field: str, found: list[Object], known: set[str]) -> Problems:
    problems: Problems = []
    for index, mount in enumerate(found):
        at = f"{field}[{index}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            problems.append(required(f"{at}.name"))
        if name not in known:
            problems.append(field_problem(NOT_FOUND, f"{at}.name", "", name))
        if not path:
            problems.append(required(f"{at}.mountPath"))
    return problems
