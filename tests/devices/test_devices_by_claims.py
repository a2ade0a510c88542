"""`gangsched devices`: devices of ResourceSlices, and who has them by resource claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from gangsched.command.cli import main
from gangsched.devices.claims import with_claims
from gangsched.devices.report import DeviceRow, Published, is_sick, make_map
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.resource_claims.objects import DeviceTaintRule, ResourceClaim, ResourceSlice
from tests.core import claims as made
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish
from tests.core.test_kubelets_word import says
from tests.devices.test_devices_command import NOBODY, served


def published(c: ClaimCluster, rules: list[Json] | None = None) -> Published:
    slices = [one for one in c.others.values() if isinstance(one, ResourceSlice)]
    claims = msgspec.convert(list(c.resource_claims.values()), list[ResourceClaim], strict=False)
    return Published(slices, claims, msgspec.convert(rules or [], list[DeviceTaintRule], strict=False))


def rows(c: ClaimCluster, *names: str, rules: list[Json] | None = None) -> dict[str, DeviceRow]:
    """By pool and device: the rows of these nodes."""
    pods, nodes = list(c.pods.values()), [make_node(name, gpus=0, listed=False) for name in names]
    maps = with_claims(make_map(nodes, pods), nodes, pods, published(c, rules))
    return {f"{one.name}/{row.id}": row for one in maps for row in one.devices}


def gang(c: ClaimCluster, name: str, n: int) -> list[Any]:
    return [c.want(f"{name}-{i}", wish(), group=name, min_members=n) for i in range(n)]


def test_a_device_is_shown_with_its_claim_pod_and_gang() -> None:
    c = ClaimCluster().offer("n", gpus_each=3)
    c.submit(gang(c, "g", 2)).run()
    found = rows(c, "n")
    assert {name: row.state for name, row in found.items()} == {
        "n/gpu-0": "allocated",
        "n/gpu-1": "allocated",
        "n/gpu-2": "free",
    }
    taken = found["n/gpu-0"]
    assert (taken.claims, taken.resource) == (("d/g-0-gpu",), DRIVER)
    assert [(one.pod, one.gang) for one in taken.holders] == [("d/g-0", "d/g")]


def test_what_is_allocated_for_pods_that_are_not_bound_is_reserved() -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2)).run()
    found = rows(c, "n")
    assert (found["n/gpu-0"].state, found["n/gpu-0"].reserved_by) == ("reserved", "d/g")
    assert found["n/gpu-1"].state == "free"


def test_a_taint_is_shown_as_the_devices_health() -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    rule = {
        "metadata": {"name": "r", "uid": "r"},
        "spec": {
            "deviceSelector": {"device": "gpu-1"},
            "taint": {"key": "example.com/burn-in", "effect": "NoSchedule"},
        },
    }
    found = rows(c, "n", rules=[rule])
    assert [row.health for row in found.values()] == ["Healthy", "tainted: example.com/burn-in"]


def test_a_device_in_two_claims_and_one_that_is_listed_no_more_are_seen() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    for name, device in (("one", "gpu-0"), ("two", "gpu-0"), ("old", "gpu-7")):
        result = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": device}
        c.make_claim(name, wish(), allocation={"devices": {"results": [result]}})
    found = rows(c, "n")
    assert {name: (row.state, row.health) for name, row in found.items()} == {
        "n/gpu-0": ("claimed twice", "Healthy"),
        "n/gpu-7": ("reserved", "not listed"),
    }


def test_what_lacks_its_pools_counters_is_not_free() -> None:
    c = ClaimCluster().offer("n", gpus_each=0)
    takes = [{"counterSet": "gpu", "counters": {"slices": {"value": "2"}}}]
    halves = [{"name": name, "consumesCounters": takes} for name in ("a", "b")]
    counters = [{"name": "gpu", "counters": {"slices": {"value": "3"}}}]
    pool = {"name": "n", "generation": 2, "resourceSliceCount": 2}
    c.slice("devices", gpus("n", 0) | {"devices": halves, "pool": pool})
    c.slice("counters", gpus("n", 0) | {"devices": [], "sharedCounters": counters, "pool": pool})
    assert [row.state for row in rows(c, "n").values()] == ["free", "free"]
    c.submit(c.want("p", wish())).run()
    assert [row.state for row in rows(c, "n").values()] == ["allocated", "blocked"]


def test_a_pool_that_several_nodes_reach_is_shown_once() -> None:
    c = ClaimCluster().offer("n", "m", gpus_each=0)
    spec = gpus("fabric", 2)
    del spec["nodeName"]
    c.slice("fabric", spec | {"allNodes": True})
    assert list(rows(c, "n", "m")) == ["pool fabric/gpu-0", "pool fabric/gpu-1"]


def test_a_pool_that_is_being_updated_is_told() -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    pool = {"name": "n", "generation": 4, "resourceSliceCount": 3}
    c.slice("newer", gpus("n", 2) | {"pool": pool})
    node = make_node("n", gpus=0, listed=False)
    slices = [one for one in c.others.values() if isinstance(one, ResourceSlice)]
    [one] = with_claims([], [node], [], Published(slices))
    said = "is being updated, and none of its devices is given out: 1 of 3 slices of generation 4 are there"
    assert one.problems == (f"resource pool {DRIVER}/n {said}",)


def test_the_command_reads_slices_and_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served([make_node("n0", gpus=0, listed=False)], [], tmp_path) as path:

        async def publish() -> None:
            client = ApiClient(await load_credentials(kubeconfig=path))
            group = "/apis/resource.k8s.io/v1"
            body = {"metadata": {"name": "s"}, "spec": gpus("n0", 2)}
            await client.post(f"{group}/resourceslices", json.dumps(body).encode())
            claims = f"{group}/namespaces/default/resourceclaims"
            body = {"metadata": {"name": "mine"}, "spec": wish()}
            await client.post(claims, json.dumps(body).encode())
            result = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "gpu-1"}
            status = {"status": {"allocation": {"devices": {"results": [result]}}}}
            await client.patch(f"{claims}/mine/status", json.dumps(status).encode())
            client.close()

        anyio.run(publish)
        assert main(["devices", "--all", "--kubeconfig", path, NOBODY]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][-2:] == ["SINCE", "CLAIM"]
    assert lines[1] == ["n0", DRIVER, "gpu-0", "Healthy", "free", "-", "-", "-", "-"]
    assert lines[2][:5] == ["n0", DRIVER, "gpu-1", "Healthy", "reserved"]
    assert lines[2][-1] == "default/mine"


@pytest.mark.parametrize(
    ("health", "shown", "is_wrong"),
    [("Unhealthy", "Unhealthy (kubelet)", True), ("Unknown", "Unknown (kubelet)", False)],
)
def test_what_a_kubelet_says_of_a_device_is_shown_as_its_word(
    health: str, shown: str, is_wrong: bool
) -> None:
    c = ClaimCluster().offer("n", gpus_each=2)
    c.make_claim("shared", wish())
    c.submit(
        [made.with_claims(make_pod(name, gpus=0), shared={"gpu": "shared"}) for name in ("a", "b")]
    ).run()
    for name in ("a", "b"):
        says(c, name, "claim:gpu", {f"{DRIVER}/n/gpu-0": health})
    found = rows(c, "n")
    assert (found["n/gpu-0"].health, found["n/gpu-1"].health) == (shown, "Healthy")
    assert is_sick(found["n/gpu-0"]) is is_wrong


def test_a_device_that_only_kubelet_can_name_is_told_of_with_the_pod() -> None:
    c = ClaimCluster().offer("n")
    c.submit(c.want("a", wish(2))).run()
    says(c, "a", "claim:gpu", {"k8s.example.com/claim=x": "Unhealthy"})
    pods, nodes = list(c.pods.values()), [make_node("n", gpus=0, listed=False)]
    [one] = with_claims(make_map(nodes, pods), nodes, pods, published(c))
    assert one.problems == (
        "pod d/a: k8s.example.com/claim=x of resource claim d/a-gpu is Unhealthy, says its kubelet",
    )
