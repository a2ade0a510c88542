"""Random configurations for server-side apply by several managers, for comparing with a real server."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.apiserver.patching.pods import FINALIZERS, NAMES, some, strategic_patch

Object = dict[str, Any]
MANAGERS = ("one", "two", "kubectl")


def config_map(rng: Random) -> Object:
    metadata: Object = {"name": "applied"}
    if rng.random() < 0.5:
        metadata["labels"] = {key: rng.choice("12") for key in some(rng, NAMES)}
    if rng.random() < 0.3:
        metadata["finalizers"] = some(rng, FINALIZERS)
    found: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    if rng.random() < 0.8:
        found["data"] = {key: rng.choice("12") for key in some(rng, NAMES)}
    return found


def deployment(rng: Random) -> Object:
    containers = [_container(rng, name) for name in some(rng, ("a", "b", "c"))]
    pod_spec: Object = {"containers": containers or [_container(rng, "a")]}
    if rng.random() < 0.4:
        pod_spec["tolerations"] = [{"key": key, "operator": "Exists"} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        pod_spec["nodeSelector"] = {key: rng.choice("12") for key in some(rng, NAMES)}
    if rng.random() < 0.4:
        pod_spec["volumes"] = [{"name": key, "emptyDir": {}} for key in some(rng, NAMES)]
    if rng.random() < 0.3:
        pod_spec["securityContext"] = {}
    spec: Object = {
        "selector": {"matchLabels": {"of": "it"}},
        "template": {"metadata": {"labels": {"of": "it"}}, "spec": pod_spec},
    }
    if rng.random() < 0.5:
        spec["replicas"] = 0
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "applied", "labels": {key: rng.choice("12") for key in some(rng, NAMES)}},
        "spec": spec,
    }


def _container(rng: Random, name: str) -> Object:
    found: Object = {"name": name, "image": rng.choice("ij")}
    if rng.random() < 0.5:
        found["env"] = [{"name": key, "value": rng.choice("12")} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        found["ports"] = [{"containerPort": ord(key)} for key in some(rng, NAMES)]
    if rng.random() < 0.4:
        found["resources"] = {"limits": dict.fromkeys(some(rng, ("cpu", "memory")), "1")}
    if rng.random() < 0.4:
        found["command"] = [rng.choice("xyz")]
    return found


def template_patch(rng: Random) -> Object:
    return {"spec": {"template": strategic_patch(rng)}}
