"""kubelet's messages: the pods of its Pods API, and the lists of its PodResources API, read into values.

Apart from `plan`: an agent that asks kubelet nothing loads no gRPC. Not here: the requests (`kubelet`).
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from gangsched.agent.kubelet_api import pod_pb2, podresources_pb2
from gangsched.agent.plugins.plan import Given, PlannedPod, Sets, planned_sets
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import MAX_ID_LENGTH

_TERMINAL = ("Succeeded", "Failed")


def pods_of_kubelet(raw: Iterable[bytes]) -> tuple[PlannedPod, ...]:
    """Returns the live pods of kubelet's ListPods. Raises: ParseError."""
    pods = []
    for one in raw:
        try:
            pod = pod_pb2.Pod.FromString(one)
        except DecodeError as error:
            raise ParseError(f"kubelet shows a pod that cannot be read: {error}") from None
        if pod.status.phase in _TERMINAL:
            continue
        meta = pod.metadata
        pods.append(
            PlannedPod(
                meta.uid,
                meta.namespace,
                meta.name,
                planned_sets(meta.annotations, meta.labels),
                pod.status.HasField("startTime"),
                meta.HasField("deletionTimestamp"),
            )
        )
    return tuple(pods)


def given_by_kubelet(listed: podresources_pb2.ListPodResourcesResponse) -> Given:
    """Reads the answer of PodResources List, without IDs too long for any inventory."""
    given: dict[tuple[str, str], Sets] = {}
    for pod in listed.pod_resources:
        containers: dict[str, dict[str, frozenset[str]]] = {}
        for container in pod.containers:
            sets: dict[str, set[str]] = {}
            # One entry for each NUMA node of the devices, or for each device.
            for part in container.devices:
                ids = (one for one in part.device_ids if one and len(one) <= MAX_ID_LENGTH)
                sets.setdefault(part.resource_name, set()).update(ids)
            containers[container.name] = {name: frozenset(ids) for name, ids in sets.items()}
        given[pod.namespace, pod.name] = containers
    return given
