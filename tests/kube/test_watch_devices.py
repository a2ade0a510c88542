"""Claims, slices and rules of devices as they are read: whole, in part, and what is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.core.resource_claims.devices import PoolBook
from gangsched.kube.watch.decode import followed
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model.events import Event, KindMissing, ObjectGone, ObjectPut, ObjectRefused
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    MAX_PARAMETER_DEPTH,
    SLICES,
    TAINT_RULES,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from tests.kube.scripted import Request, ScriptedServer, created, status
from tests.kube.test_watch import follow, served
from tests.kube.test_watch_state import line, page

V1 = "resource.k8s.io/v1"
RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "n0", "device": "gpu-0"}


def item(kind: str, name: str, rv: int, **parts: Any) -> dict[str, Any]:
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": str(rv)}
    if kind == "ResourceClaim":
        meta["namespace"] = "ns"
    return {"kind": kind, "apiVersion": V1, "metadata": meta, **parts}


def claim(rv: int = 3, *, config: Any = None, results: Any = None, **meta: Any) -> dict[str, Any]:
    """A claim of one device, allocated if `results` says what it got."""
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    if config is not None:
        spec["devices"]["config"] = config
    made = item("ResourceClaim", "c", rv, spec=spec)
    if results is not None:
        made["status"] = {"allocation": {"devices": {"results": results}}}
    made["metadata"] |= meta
    return made


def slice_of(rv: int = 3, *, devices: Any, node: str = "n0") -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "pool": pool, "nodeName": node, "devices": devices}
    return item("ResourceSlice", f"{node}-slice", rv, spec=spec)


def opaque(parameters: Any) -> list[dict[str, Any]]:
    return [{"opaque": {"driver": "d.example.com", "parameters": parameters}}]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def listed(kind: str, *items: dict[str, Any]) -> tuple[WatchState, list[Any]]:
    state = WatchState(followed(kind))
    wire = followed(kind).kind
    return state, state.page(page(*items, rv=10, kind=wire, api_version=V1))


def only(events: list[Any]) -> Any:
    [put] = [event.object for event in events if isinstance(event, ObjectPut)]
    return put


@pytest.mark.parametrize(
    ("kind", "thing", "form"),
    [
        (CLAIMS, claim(results=[RESULT]), ResourceClaim),
        (SLICES, slice_of(devices=[{"name": "gpu-0"}]), ResourceSlice),
        (TAINT_RULES, item("DeviceTaintRule", "r", 3, spec={"taint": {"key": "k"}}), DeviceTaintRule),
    ],
)
def test_each_kind_is_followed_by_its_name(kind: str, thing: dict[str, Any], form: type[Any]) -> None:
    state, events = listed(kind, thing)
    assert followed(kind).path("v1") == f"/apis/{V1}/{kind.partition('.')[0]}"
    put = only(events)
    assert isinstance(put, form)
    meta = thing["metadata"]
    assert state.lines(line("DELETED", {**thing, "metadata": {**meta, "resourceVersion": "11"}})) == [
        ObjectGone(kind, meta.get("namespace", ""), meta["name"], meta["uid"])
    ]


def test_parameters_stay_the_bytes_that_they_were() -> None:
    odd = '{"z": 1.50,  "a":1e400}'
    body = page(claim(config=opaque("@")), rv=10, kind="ResourceClaim", api_version=V1)
    state = WatchState(followed(CLAIMS))
    put = only(state.page(body.replace(b'"@"', odd.encode())))
    assert bytes(put.spec.devices.config[0].opaque.parameters) == odd.encode()


@pytest.mark.parametrize("depth", [MAX_PARAMETER_DEPTH + 1, 60, 300, 5000])
def test_a_claim_with_parameters_too_deep_is_kept_out_and_holds_what_it_has(depth: int) -> None:
    """However deep the caller is: neither cut short nor a matter of the stack."""
    deep = "[" * depth + "]" * depth
    body = page(claim(config=opaque("@"), results=[RESULT]), rv=10, kind="ResourceClaim", api_version=V1)
    state = WatchState(followed(CLAIMS))
    events = state.page(body.replace(b'"@"', deep.encode()))
    put = only(events)
    assert put.unreadable == "spec.devices.config"
    assert [one.device for one in put.status.allocation.devices.results] == ["gpu-0"]
    [refusal] = [event for event in events if isinstance(event, ObjectRefused)]
    assert (refusal.kind, refusal.namespace, refusal.name) == ("ResourceClaim", "ns", "c")
    assert "a driver's configuration is nested too deeply" in refusal.message
    assert "config[" in refusal.message, "it names the place"


def test_parameters_as_deep_as_may_be_are_carried_along() -> None:
    _, events = listed(CLAIMS, claim(config=opaque(nested(MAX_PARAMETER_DEPTH))))
    assert json.loads(bytes(only(events).spec.devices.config[0].opaque.parameters)) == nested(
        MAX_PARAMETER_DEPTH
    )


def test_huge_parameters_cost_that_claim_alone() -> None:
    other = claim(name="other", uid="u-other")
    _, events = listed(CLAIMS, claim(config=opaque({"a": "x" * 65536})), other)
    puts = {event.object.metadata.name: event.object for event in events if isinstance(event, ObjectPut)}
    assert puts["other"].unreadable == ""
    assert puts["c"].unreadable == "spec.devices.config"


def test_managed_fields_of_any_depth_do_not_matter() -> None:
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    body = page(claim(managedFields="@", results=[RESULT]), rv=10, kind="ResourceClaim", api_version=V1)
    put = only(WatchState(followed(CLAIMS)).page(body.replace(b'"@"', deep.encode())))
    assert put.unreadable == ""


def test_a_result_that_does_not_parse_still_holds_its_device() -> None:
    _, events = listed(CLAIMS, claim(results=[{**RESULT, "tolerations": 5}, {**RESULT, "device": "gpu-1"}]))
    put = only(events)
    assert put.unreadable == "status.allocation.devices.results"
    assert [one.device for one in put.status.allocation.devices.results] == ["gpu-0", "gpu-1"]


def test_a_slice_that_does_not_parse_spoils_its_pool_alone() -> None:
    bad = slice_of(devices=[{"name": "gpu-0"}, {"name": "gpu-1", "taints": 5}])
    _, events = listed(SLICES, bad, slice_of(devices=[{"name": "gpu-0"}], node="n1"))
    book = PoolBook()
    for event in events:
        if isinstance(event, ObjectPut):
            book.put(event.object)
    [pool] = book.at("n0", {})
    assert pool.problem == "slice n0-slice: it cannot be read: spec.devices"
    [pool] = book.at("n1", {})
    assert not pool.problem


def test_a_class_whose_parameters_are_too_deep_is_no_class() -> None:
    made = item("DeviceClass", "gpu", 3, spec={"config": opaque(nested(50)), "selectors": []})
    _, events = listed(DEVICE_CLASSES, made, item("DeviceClass", "plain", 4, spec={}))
    assert only(events).metadata.name == "plain"


@pytest.mark.parametrize("kind", [CLAIMS, SLICES, TAINT_RULES])
async def test_a_server_that_does_not_serve_the_kind_is_told(kind: str) -> None:
    """Before Kubernetes 1.34 there was no v1 of the group, and before 1.37 no rules in it."""
    said: list[Event] = []

    def answer(request: Request) -> bytes:
        path = request.line.split()[1]
        if path == "/apis":
            return created(served("resource.k8s.io/v1beta1"))
        return status(404) if path.startswith(f"/apis/{V1}") else created()

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        await follow(server, followed(kind), emit, lambda: bool(said))
    assert said == [KindMissing(kind)]
