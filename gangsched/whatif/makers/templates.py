"""Reads the fields of objects in manifests, and makes pods of their templates; shared by what makes pods.

Each field is checked where it is read. Every error is a ConfigError with the field's path.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gangsched.errors import ConfigError

Json = dict[str, Any]
MAX_PODS = 10_000


def pod_of(template: Json, name: str, owner: Json) -> Json:
    """Returns a pod of a checked template, controlled by `owner`, with labels and annotations to add to."""
    pod = deepcopy({"metadata": template["metadata"], "spec": template["spec"]})
    pod["metadata"] |= {
        "name": name,
        "labels": pod["metadata"].get("labels") or {},
        "annotations": pod["metadata"].get("annotations") or {},
        "ownerReferences": [reference_to(owner)],
    }
    return pod


def reference_to(owner: Json) -> Json:
    """Returns the ownerReference of what this object controls."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def object_of(owner: Json, api_version: str, kind: str, name: str, spec: Json) -> Json:
    """Returns an object that the controller of `owner` makes, in its namespace."""
    namespace = owner["metadata"]["namespace"]
    meta = {"name": name, "namespace": namespace, "ownerReferences": [reference_to(owner)]}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def template_in(where: Json, name: str, field: str) -> Json:
    """Returns a checked pod template, without the lists that scheduling does not read."""
    found = object_in(where, name, field)
    field = f"{field}{name}."
    spec = object_in(found, "spec", field)
    for listed in ("containers", "initContainers"):
        if listed == "containers" or spec.get(listed) is not None:
            for container in list_in(spec, listed, f"{field}spec."):
                container.pop("env", None)
    meta = found["metadata"] = object_in(found, "metadata", field) if found.get("metadata") else {}
    meta.pop("finalizers", None)
    for texts in ("labels", "annotations"):
        if meta.get(texts) is not None:
            object_in(meta, texts, f"{field}metadata.")
    return found


def object_in(where: Json, name: str, field: str = "") -> Json:
    """Returns the object there. `field`: the path to `where`, with its dot at the end."""
    found = where.get(name)
    if not isinstance(found, dict):
        raise ConfigError("is missing, or is not an object", path=f"{field}{name}")
    return found


def optional_in(where: Json, name: str, field: str = "") -> Json:
    """Returns the object there, empty if there is none."""
    return {} if where.get(name) is None else object_in(where, name, field)


def list_in(where: Json, name: str, field: str) -> list[Json]:
    """Returns the list of objects there."""
    found = where.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError("is missing, or is not a list of objects", path=f"{field}{name}")
    return found


def optional_list_in(where: Json, name: str, field: str) -> list[Json]:
    """Returns the list of objects there, empty if there is none."""
    return [] if where.get(name) is None else list_in(where, name, field)


def text_in(where: Json, name: str, default: str, field: str) -> str:
    """Returns the text there, or the default."""
    found = where.get(name)
    if found is None or found == "":
        return default
    if not isinstance(found, str):
        raise ConfigError(f"{str(found)[:80]!r} is not a text", path=f"{field}{name}")
    return found


def count_in(where: Json, name: str, default: int, field: str) -> int:
    """Returns the number there, or the default."""
    found = where.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ConfigError(f"{str(found)[:80]!r} is not a whole number from 0 on", path=f"{field}{name}")
    return found


def bounded(n_pods: int, field: str) -> int:
    """Returns the number, if so many pods may be made."""
    if n_pods > MAX_PODS:
        raise ConfigError(f"makes {n_pods} pods; at most {MAX_PODS} are looked at", path=field)
    return n_pods
