"""Validation of a pod's volumes and their mounts.

Lives here: the volumes that simulated pods use; sources of single storage vendors are stored unchecked.
Called by pod_validation.py and container_validation.py.
Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.apiserver.kinds import names
from gangsched.apiserver.kinds.names import Problems
from gangsched.apiserver.status import (
    NOT_FOUND,
    duplicate_value,
    field_problem,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)

Object = dict[str, Any]

# In the server's order: of several only the first is kept.
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
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_MODE_SAYS = "must be a number between 0 and 0777 (octal), both inclusive"


def volumes(field: str, found: list[Object]) -> tuple[set[str], Problems]:
    """The names that mounts may use, and the problems."""
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
    elif kind == "hostPath":
        if ".." in source["path"].split("/"):
            problems.append(invalid_value(f"{at}.path", source["path"], "must not contain '..'"))
        if (type_ := source.get("type") or "") not in _HOST_PATH_TYPES:
            problems.append(not_supported(f"{at}.type", type_, _HOST_PATH_TYPES))
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        problems.append(invalid_value(f"{at}.defaultMode", mode, _MODE_SAYS))
    if kind in ("secret", "configMap"):
        for index, item in enumerate(source.get("items") or ()):
            problems += [
                required(f"{at}.items[{index}].{key}") for key in ("key", "path") if not item.get(key)
            ]
    return problems


def mounts(field: str, found: list[Object], known: set[str]) -> Problems:
    problems: Problems = []
    paths: set[str] = set()
    for index, mount in enumerate(found):
        at = f"{field}[{index}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            problems.append(required(f"{at}.name"))
        if name not in known:
            problems.append(field_problem(NOT_FOUND, f"{at}.name", "", name))
        if not path:
            problems.append(required(f"{at}.mountPath"))
        if path in paths:
            problems.append(invalid_value(f"{at}.mountPath", path, "must be unique"))
        paths.add(path)
    return problems
