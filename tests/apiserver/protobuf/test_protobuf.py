"""Protobuf as the real server writes it reads as the JSON that it writes of the same object."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any

import pytest

from gangsched.lab.apiserver import protobuf
from gangsched.lab.controlplane.processes import ControlPlane

NAMESPACE = "/api/v1/namespaces/default"
OBJECTS: dict[str, dict[str, Any]] = {
    f"{NAMESPACE}/pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "protobuf", "labels": {"a": "b"}, "finalizers": ["example.com/kept"]},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "resources": {"limits": {"cpu": "1500m", "nvidia.com/gpu": "8"}},
                    "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "readinessProbe": {"httpGet": {"port": "web"}, "failureThreshold": 2},
                    "livenessProbe": {"tcpSocket": {"port": 8080}},
                    "securityContext": {"privileged": False, "runAsUser": 0},
                }
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
        },
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "protobuf"},
        "spec": {
            "backoffLimit": 0,
            "suspend": False,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
            },
        },
    },
    f"{NAMESPACE}/secrets": {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "protobuf"},
        "data": {"key": "AAEC"},
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "protobuf"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-02T03:04:05.000678Z"},
    },
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "protobuf"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
    },
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "protobuf"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": "gpu.example.com",
                            "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
                            "capacity": {"requests": {"memory": "1Gi"}},
                        },
                    },
                    {
                        "name": "any",
                        "firstAvailable": [{"name": "big", "deviceClassName": "big.example.com"}],
                    },
                ],
                "constraints": [{"matchAttribute": "example.com/numa"}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"n": 1, "on": False}}}],
            }
        },
    },
    "/apis/resource.k8s.io/v1/resourceslices": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "protobuf"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "model": {"string": "H100"},
                        "shared": {"bool": True},
                        "driver": {"version": "1.2.3"},
                        "index": {"int": 7},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                    "consumesCounters": [{"counterSet": "c", "counters": {"slices": {"value": "7"}}}],
                }
            ],
        },
    },
}


@pytest.mark.real
@pytest.mark.parametrize("collection", OBJECTS)
def test_it_reads_as_the_json_of_the_same_object(fresh_cluster: ControlPlane, collection: str) -> None:
    fresh_cluster.request("POST", collection, OBJECTS[collection])
    path = f"{collection}/protobuf"
    try:
        wanted = fresh_cluster.request("GET", path)
        assert without_zeros(protobuf.decoded(as_protobuf(fresh_cluster, path))) == without_zeros(wanted)
    finally:
        fresh_cluster.request("DELETE", path, {"propagationPolicy": "Background"})


def test_a_body_that_is_no_object_is_refused() -> None:
    for body in (b"", b"{}", protobuf.MAGIC + b"\x0a\xff", protobuf.MAGIC + b"\x0b"):
        with pytest.raises(protobuf.BadProtobuf):
            protobuf.decoded(body)


def test_a_kind_that_is_not_known_is_named() -> None:
    type_meta = b"\x0a\x02v1\x12\x05Thing"
    with pytest.raises(protobuf.BadProtobuf, match='no kind "Thing" is registered for version "v1"'):
        protobuf.decoded(protobuf.MAGIC + b"\x0a" + bytes([len(type_meta)]) + type_meta)


def as_protobuf(control_plane: ControlPlane, path: str) -> bytes:
    request = urllib.request.Request(
        control_plane.base_url + path,
        headers={"Authorization": f"Bearer {control_plane.token}", "Accept": protobuf.PROTOBUF},
    )
    context = ssl.create_default_context(cafile=str(control_plane.ca_file))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(request, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def without_zeros(value: Any) -> Any:
    """JSON writes some fields that are empty; protobuf has no way to tell them from absent ones."""
    if isinstance(value, dict):
        # Of a status the numbers are no pointers: JSON has their zeros and protobuf reads as without.
        if value and all(type(each) is int and not each for each in value.values()):
            return {}
        shown = {key: without_zeros(each) for key, each in value.items()}
        return {key: each for key, each in shown.items() if each not in ({}, None, "") or key == "emptyDir"}
    return [without_zeros(each) for each in value] if isinstance(value, list) else value
