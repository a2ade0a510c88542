"""Checks a bind's devices against what the pod asks for, with a parser of its own.

Reads annotations `gangsched.io/device-constraints` and `gangsched.io/require-device-ids`, and the inventory
of the node. Only well-formed annotations are judged. Called by lab.sim.judges.places.binds for every bind.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from gangsched.lab.sim.reading.documents import amount, healthy_ids, ids_in, pod_asks
from gangsched.lab.sim.reading.texts import json_of
from gangsched.model import effects as ef
from gangsched.model.objects import CustomObject, Node, Pod

_CONSTRAINTS, _REQUIRED = "gangsched.io/device-constraints", "gangsched.io/require-device-ids"
KEYS = frozenset((_CONSTRAINTS, _REQUIRED))
_INVENTORY = "gangsched.io/devices"
_FARTHEST_FIRST = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV")
_WORDS = re.compile(r"[a-z0-9.+]+")


def devices_as_asked(bind: ef.BindPod, pod: Pod, node: Node, item: CustomObject | None) -> Iterator[str]:
    """devices-as-asked: a bind gives the pod devices as it asks for them. item: the object of its gang."""
    own = pod.metadata.annotations or {}
    given = ids_in(bind.annotations, bind.labels)
    listed = _listed(node)
    for resource, asked in _object(own.get(_CONSTRAINTS, "")).items():
        if not isinstance(asked, dict) or not any(asked.values()):
            continue
        if not pod_asks(pod.spec).get(resource):
            continue
        devices = [listed.get(resource, {}).get(each) for each in sorted(given.get(resource, ()))]
        if not devices or not all(devices):
            yield (
                f"devices-as-asked: {bind.name} asks for {asked}, and {node.metadata.name} "
                "does not list what it gets"
            )
            continue
        yield from (
            f"devices-as-asked: {bind.name} {why}" for why in _unlike([one for one in devices if one], asked)
        )
    for resource in _needing_ids(own, item, pod):
        if pod_asks(pod.spec).get(resource) and resource not in (healthy_ids(node) or {}):
            yield (
                f"devices-as-asked: {bind.name} must know its {resource}, and {node.metadata.name} lists none"
            )


def _unlike(devices: list[dict[str, Any]], asked: Mapping[str, Any]) -> Iterator[str]:
    ids, homes = [one["id"] for one in devices], {one.get("numa", -1) for one in devices}
    # The NUMA node of a single device need not be known.
    if asked.get("sameNUMA") and len(ids) > 1 and (len(homes) > 1 or _numa(devices) < 0):
        yield f"asks for one NUMA node and is given {ids}"
    wanted = asked.get("linked")
    if wanted:
        least = _nearness("NV1" if wanted is True else wanted)
        for one, other in combinations(devices, 2):
            if _nearness(_path(one, other)) < least:
                yield f"asks for {wanted} between its devices and is given {one['id']} and {other['id']}"
    models = asked.get("model") or []
    for one in devices if models else ():
        if not any(_is_model(each, one.get("model", "")) for each in _texts(models)):
            yield f"asks for {models} and is given a {one.get('model')}"
    memory = amount(str(asked.get("minMemory") or 0)) or 0
    if small := [one["id"] for one in devices if one.get("memoryMiB", 0) * 2**20 < memory]:
        yield f"asks for {asked['minMemory']} each and is given {small}"


def _numa(devices: Sequence[Mapping[str, Any]]) -> int:
    return min(int(one.get("numa", -1)) for one in devices)


def _path(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns the path stated by either device; without one, devices on one NUMA node count as NODE."""
    stated = (one.get("links") or {}).get(other["id"]) or (other.get("links") or {}).get(one["id"])
    return str(stated or ("NODE" if _numa([one]) == _numa([other]) >= 0 else ""))


def _nearness(path: str) -> tuple[int, int]:
    kind, _, lanes = path.partition("NV")
    name = kind or ("NV" if lanes else "")
    return (_FARTHEST_FIRST.index(name) if name in _FARTHEST_FIRST else -1, int(lanes or 0))


def _is_model(wanted: str, model: str) -> bool:
    """Whether the wanted words follow one another, in that order, in the model's name."""
    words, named = _WORDS.findall(wanted.lower()), _WORDS.findall(model.lower())
    return any(named[k : k + len(words)] == words for k in range(len(named)))


def _texts(models: str | list[str]) -> list[str]:
    return [models] if isinstance(models, str) else models


def _needing_ids(own: Mapping[str, str], item: CustomObject | None, pod: Pod) -> Collection[str]:
    named: set[str] = set()
    for stated in (own, (item.metadata.annotations or {}) if item is not None else {}):
        text = stated.get(_REQUIRED, "false")
        if text == "true":
            named |= {resource for resource in pod_asks(pod.spec) if "/" in resource}
        elif text != "false":
            named |= {one.strip() for one in text.split(",")}
    return sorted(named)


def _listed(node: Node) -> dict[str, dict[str, dict[str, Any]]]:
    """Devices by resource and ID."""
    inventory = _object((node.metadata.annotations or {}).get(_INVENTORY, ""))
    return {
        resource: {one["id"]: one for one in devices if isinstance(one, dict) and "id" in one}
        for resource, devices in inventory.items()
        if isinstance(devices, list)
    }


def _object(text: str) -> dict[str, Any]:
    read = json_of(text)
    return read if isinstance(read, dict) else {}
