"""ConfigMaps and Secrets that a pod needs before it can start.

Lives here: finding the first missing one, in kubelet's words. Not here: waiting for it (kubelets.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.strategy import Object


class Missing(NamedTuple):
    """An event's reason and message; `waiting`: the containers' waiting reason, if it changes.

    `mismatch` is set if devices were allocated wrongly.
    """

    reason: str
    message: str
    waiting: str = ""
    field: str = ""
    mismatch: str = ""


def missing(obj: Object, api: Api) -> Missing | None:
    """The first reference to a missing object; optional references are ignored."""
    spec, namespace = obj["spec"], obj["metadata"]["namespace"]
    for volume in spec.get("volumes") or ():
        for kind, name in _of_volume(volume):
            if not _exists(api, kind, namespace, name):
                return Missing(
                    "FailedMount",
                    f'MountVolume.SetUp failed for volume "{volume["name"]}" : {kind} "{name}" not found',
                )
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for kind, name in _of_environment(container):
            if not _exists(api, kind, namespace, name):
                return Missing(
                    "Failed",
                    f'Error: {kind} "{name}" not found',
                    "CreateContainerConfigError",
                    f"spec.containers{{{container['name']}}}",
                )
    return None


def _of_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    config_map, secret = volume.get("configMap"), volume.get("secret")
    if config_map and not config_map.get("optional"):
        yield "configmap", config_map.get("name", "")
    if secret and not secret.get("optional"):
        yield "secret", secret.get("secretName", "")


def _of_environment(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sources = [each.get("valueFrom") or {} for each in container.get("env") or ()]
    for source in (*sources, *(container.get("envFrom") or ())):
        for kind, keys in (
            ("configmap", ("configMapKeyRef", "configMapRef")),
            ("secret", ("secretKeyRef", "secretRef")),
        ):
            for key in keys:
                wanted = source.get(key)
                if wanted and not wanted.get("optional"):
                    yield kind, wanted.get("name", "")


def _exists(api: Api, kind: str, namespace: str, name: str) -> bool:
    resource = api.resources.get("configmaps" if kind == "configmap" else "secrets")
    return api.find(resource, namespace, name) is not None
