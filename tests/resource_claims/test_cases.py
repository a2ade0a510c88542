"""Cases by chance are the same each time, and the API server takes every object as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.resource_claims.cases import ADMIN_NAMESPACE, Object, case

SEED = 20261203
_GROUP = "/apis/resource.k8s.io/v1"


def test_a_case_is_the_same_whenever_it_is_asked_for() -> None:
    before = [json.dumps(case(SEED, at)) for at in range(20)]
    assert [json.dumps(case(SEED, at)) for at in reversed(range(20))] == before[::-1]
    assert len(set(before)) == 20
    assert json.dumps(case(SEED + 1, 0)) != before[0]


@pytest.mark.real
def test_the_api_server_takes_all_of_it(littered_plane: ControlPlane) -> None:
    namespace = {"name": ADMIN_NAMESPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}}
    littered_plane.request("POST", "/api/v1/namespaces", {"metadata": namespace})
    refused = []
    for at in range(60):
        for path, one in created(at):
            try:
                stored = littered_plane.request("POST", path, one)
                refused += [f"{path}: {change}" for change in changes(one["spec"], stored["spec"], "spec")]
            except ApiError as error:
                refused.append(str(error))
        for path, one in allocated(littered_plane, at):
            try:
                stored = littered_plane.request("PUT", path, one)
                refused += [
                    f"{path}: {change}" for change in changes(one["status"], stored["status"], "status")
                ]
            except ApiError as error:
                refused.append(str(error))
    assert refused == []


def created(at: int) -> Iterator[tuple[str, Object]]:
    """What has a spec, with the path that takes it; nothing of it is kept."""
    one = case(SEED, at)
    for node in one["nodes"]:
        yield "/api/v1/nodes?dryRun=All", {**node, "spec": {}}
    for kind, name in (
        ("slices", "resourceslices"),
        ("classes", "deviceclasses"),
        ("rules", "devicetaintrules"),
    ):
        for each in one[kind]:
            yield f"{_GROUP}/{name}?dryRun=All", each
    for claim in one["claims"]:
        yield f"{_claims_of(claim)}?dryRun=All", claim


def allocated(plane: ControlPlane, at: int) -> Iterator[tuple[str, Object]]:
    """The claims that others have, created, with the path that takes their status."""
    for claim in case(SEED, at)["allocated"]:
        named = deepcopy(claim)
        named["metadata"]["name"] += f"-{at}"
        status = named.pop("status")
        path = _claims_of(claim)
        stored = plane.request("POST", path, named)
        yield f"{path}/{named['metadata']['name']}/status?dryRun=All", {**stored, "status": status}


def _claims_of(claim: Object) -> str:
    return f"{_GROUP}/namespaces/{claim['metadata']['namespace']}/resourceclaims"


def changes(sent: Any, stored: Any, path: str) -> Iterator[str]:
    """Where the server stores something else, but for the times that it sets."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key in sorted((sent.keys() | stored.keys()) - {"timeAdded"}):
            yield from changes(sent.get(key), stored.get(key), f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for at, (one, other) in enumerate(zip(sent, stored, strict=True)):
            yield from changes(one, other, f"{path}[{at}]")
    elif sent != stored:
        yield f"{path}: {sent} is stored as {stored}"
