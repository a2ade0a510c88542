"""Bodies to send, as small as they can be, and names that are free."""

from __future__ import annotations

import itertools
from typing import Any

from tests.contract.api import Api, Json
from tests.support.bodies import pod

_numbers = itertools.count()


def unique(word: str) -> str:
    """For what lives in no namespace."""
    return f"{word}-{next(_numbers)}"


def gated(name: str, **rest: Any) -> Json:
    return pod(name, schedulingGates=[{"name": "example.com/wait"}], **rest)


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "data": data or {"a": "1"}}


def binding(name: str, node_name: str = "some-node", **metadata: Any) -> Json:
    """What binds the pod `name`; nobody looks whether there is such a node."""
    return {
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }


def bind(api: Api, name: str, **metadata: Any) -> Json:
    """Bind a pod, and let the real server's cache know: a deletion right behind a binding can meet the pod
    without its node there, and then has no grace."""
    said = api.post(api.at("pods", name, "binding"), binding(name, **metadata)).ok(201)
    bound = api.get(api.at("pods", name)).ok()
    api.get(api.at("pods", name), resourceVersion=bound["metadata"]["resourceVersion"]).ok()
    return said


def condition(type_: str, status: str, **rest: Any) -> Json:
    return {"type": type_, "status": status, **rest}


def details(status: Json) -> Json:
    found: Json = status["details"]
    return found


def causes(status: Json) -> list[tuple[str, str, str]]:
    """reason, field and message of a Status's causes."""
    found = status["details"].get("causes") or ()
    return [(each.get("reason", ""), each.get("field", ""), each.get("message", "")) for each in found]
