"""Random pods and random strategic patches of them, for comparing with a real server."""

from __future__ import annotations

from random import Random
from typing import Any

Object = dict[str, Any]
NAMES = ("a", "b", "c", "d")
FINALIZERS = tuple(f"example.com/{name}" for name in NAMES)


def some(rng: Random, choices: tuple[str, ...]) -> list[str]:
    """A few of them, in any order."""
    return rng.sample(choices, rng.randint(0, len(choices)))


def container(rng: Random, name: str) -> Object:
    found: Object = {"name": name, "image": rng.choice(["i", "j"])}
    if rng.random() < 0.6:
        found["env"] = [{"name": key, "value": rng.choice("xyz")} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        found["command"] = [rng.choice("xyz") for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.4:
        found["ports"] = [{"containerPort": ord(key)} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        found["resources"] = {"limits": {"cpu": rng.choice(["1", "500m"])}}
    return found


def pod(rng: Random) -> Object:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "p",
            "labels": dict.fromkeys(some(rng, NAMES), "1"),
            "annotations": dict.fromkeys(some(rng, NAMES), "1"),
            "finalizers": some(rng, FINALIZERS),
        },
        "spec": {
            "containers": [container(rng, name) for name in some(rng, NAMES) or ["a"]],
            "tolerations": [{"key": key, "operator": "Exists"} for key in some(rng, NAMES)],
            "nodeSelector": dict.fromkeys(some(rng, NAMES), "1"),
            "volumes": [{"name": key, "emptyDir": {}} for key in some(rng, NAMES)],
        },
    }


def strategic_patch(rng: Random) -> Object:
    """Of the parts of a pod that may change while it exists only in a dry run of its creation."""
    metadata: Object = {}
    if rng.random() < 0.5:
        metadata["labels"] = _map_patch(rng)
    if rng.random() < 0.3:
        metadata["annotations"] = None if rng.random() < 0.3 else _map_patch(rng)
    if rng.random() < 0.7:
        metadata |= _finalizers(rng)
    spec: Object = {}
    if rng.random() < 0.8:
        spec |= _containers(rng)
    if rng.random() < 0.4:
        spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        spec["nodeSelector"] = _map_patch(rng)
    if rng.random() < 0.4:
        spec["volumes"] = [_volume(rng, key) for key in some(rng, NAMES)]
    return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}


def _map_patch(rng: Random) -> Object:
    found: Object = {key: rng.choice(["1", "2", None]) for key in some(rng, NAMES)}
    if rng.random() < 0.2:
        found["$patch"] = rng.choice(["replace", "delete"])
    return found


def _finalizers(rng: Random) -> Object:
    chosen = some(rng, FINALIZERS)
    match rng.randrange(3):
        case 0:
            return {"finalizers": chosen}
        case 1:
            return {"$deleteFromPrimitiveList/finalizers": chosen}
    order = [each for each in FINALIZERS if each in chosen or rng.random() < 0.5]
    rng.shuffle(order)
    return {
        "finalizers": [each for each in order if each in chosen],
        "$setElementOrder/finalizers": order,
    }


def _containers(rng: Random) -> Object:
    chosen = some(rng, NAMES)
    items: list[Object] = []
    for name in chosen:
        item: Object = {"name": name}
        if rng.random() < 0.2:
            item["$patch"] = "delete"
        else:
            item["image"] = rng.choice(["i", "k"])
            if rng.random() < 0.4:
                item["env"] = [_env(rng, key) for key in some(rng, NAMES)]
            if rng.random() < 0.3:
                item["command"] = rng.choice([None, ["q"], []])
            if rng.random() < 0.3:
                item["resources"] = rng.choice([None, {"limits": {"cpu": None, "memory": "1Gi"}}])
        items.append(item)
    found: Object = {"containers": items}
    if rng.random() < 0.1:
        items.append({"$patch": "replace"})
    elif rng.random() < 0.5:
        found["$setElementOrder/containers"] = [
            {"name": item["name"]} for item in items if "$patch" not in item
        ]
    return found


def _env(rng: Random, key: str) -> Object:
    return {"name": key, "$patch": "delete"} if rng.random() < 0.2 else {"name": key, "value": "new"}


def _volume(rng: Random, key: str) -> Object:
    volume: Object = {"name": key}
    if rng.random() < 0.3:
        volume |= {"$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    elif rng.random() < 0.3:
        volume["$patch"] = "delete"
    else:
        volume["emptyDir"] = {"medium": "Memory"}
    return volume
