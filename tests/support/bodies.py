"""Pods, gangs and nodes as a request brings them: JSON, no more in it than is asked for.

The same as objects in memory are gangsched.lab.sim.objects; a cluster that schedules those in virtual time is
tests/support/scenario.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY

Json = dict[str, Any]


def container(name: str = "main", **rest: Any) -> Json:
    return {"name": name, "image": "busybox", **rest}


def pod(
    name: str,
    *,
    cpu: str = "",
    limits: Mapping[str, str | int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Json:
    """A pod of one container, which requests `cpu` and is limited to `limits` (devices, say)."""
    marks = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    asked: Json = {}
    if cpu:
        asked["requests"] = {"cpu": cpu}
    if limits:
        asked["limits"] = {resource: str(amount) for resource, amount in limits.items()}
    main = container(resources=asked) if asked else container()
    return {
        "metadata": {"name": name, **{key: of for key, of in marks.items() if of}, **(metadata or {})},
        "spec": {"containers": [main], **spec},
    }


def member(
    gang: str, k: int, *, needed: int, annotations: Mapping[str, str] | None = None, **rest: Any
) -> Json:
    """Pod `gang`-`k` of a gang that starts with `needed`, in our own words and for our scheduler."""
    return pod(
        f"{gang}-{k}",
        labels={GROUP_LABEL: gang},
        annotations={MIN_MEMBERS_KEY: str(needed), **(annotations or {})},
        **{"schedulerName": "gangsched", **rest},
    )


def gang(name: str, *, pods: int, **rest: Any) -> list[Json]:
    """All the members of a gang, each of which is needed."""
    return [member(name, k, needed=pods, **rest) for k in range(pods)]


def node(
    name: str,
    *,
    has: Mapping[str, str | int] | None = None,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> Json:
    """A node with this capacity, all of which pods may have; without `has` it has not said any."""
    made: Json = {"metadata": {"name": name, **metadata}}
    if spec:
        made["spec"] = dict(spec)
    if has:
        own = {resource: str(amount) for resource, amount in has.items()}
        made["status"] = {"allocatable": own, "capacity": own}
    return made


def pod_group_definition(group: str, version: str) -> Json:
    """The CRD of another system's PodGroup, as far as the server must know it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
