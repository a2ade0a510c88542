"""Devices of ResourceSlices and claims on the dashboard: the map, the pages of a node, a pool and a gang."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.certificates import Pair
from gangsched.core.explaining.claim_views import view_pool
from gangsched.core.types.group import MemberState
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.resource_claims.objects import SLICES, TAINT_RULES, DeviceTaintRule
from gangsched.web.board import cells as codes
from gangsched.web.board.cells import (
    BLOCKED,
    FIRST_GROUP,
    FOREIGN,
    FREE,
    KEPT,
    TAINTED,
    Cells,
    NodeCells,
)
from gangsched.web.board.history import device_use
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish, with_claims
from tests.web.test_access import Server as ApiServer
from tests.web.test_board_pages import board_of
from tests.web.test_server import serving

FABRIC = "fabric.example.com"
BOUND, RESERVED = FIRST_GROUP, FIRST_GROUP + 1


def looked(cells: Cells) -> dict[str, dict[str, list[int]]]:
    return {node.name: node.cells for node in cells.changes(1000).nodes}


def gang(c: ClaimCluster, name: str, n: int, spec: Json) -> ClaimCluster:
    c.submit([c.want(f"{name}-{i}", spec, group=name, min_members=n) for i in range(n)]).run()
    return c


def given(device: str, pool: str, driver: str = DRIVER, **more: Any) -> Json:
    """The status of a claim that somebody else's pod has."""
    result = {"request": "gpu", "driver": driver, "pool": pool, "device": device, **more}
    users = [{"resource": "pods", "name": "x", "uid": "uid-x"}]
    return {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}


def partitions(node: str) -> list[Json]:
    """Two GPUs, each whole or in two halves: a slice with their counters, one with the devices."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    sets = [{"name": f"gpu-{i}", "counters": {"slices": {"value": "2"}}} for i in range(2)]
    devices = [
        {
            "name": name,
            "attributes": {"model": {"string": "H200"}, "type": {"string": kind}},
            "consumesCounters": [{"counterSet": f"gpu-{i}", "counters": {"slices": {"value": str(n)}}}],
        }
        for i in range(2)
        for name, kind, n in ((f"gpu-{i}", "gpu", 2), (f"gpu-{i}-a", "mig", 1), (f"gpu-{i}-b", "mig", 1))
    ]
    own = {"driver": DRIVER, "pool": pool, "nodeName": node}
    return [own | {"sharedCounters": sets, "devices": []}, own | {"devices": devices}]


def fabric(n: int, *, n_slices: int = 1, generation: int = 1) -> list[Json]:
    """A pool that every node reaches; its devices may be shared."""
    pool = {"name": "leaf/a", "generation": generation, "resourceSliceCount": n_slices}
    each = n // n_slices
    return [
        {
            "driver": FABRIC,
            "pool": pool,
            "allNodes": True,
            "devices": [
                {"name": f"port-{k}", "allowMultipleAllocations": True}
                for k in range(at * each, (at + 1) * each)
            ],
        }
        for at in range(n_slices)
    ]


def rule(c: ClaimCluster, pool: str) -> None:
    taint = {"key": "example.com/burn-in", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": DRIVER, "pool": pool}, "taint": taint}
    c.put(TAINT_RULES, {"metadata": {"name": "burn-in", "uid": "uid-r"}, "spec": spec}, DeviceTaintRule)


def crowded() -> ClaimCluster:
    """One of everything: bound, of others, tainted, partitions, a pool of all nodes, a gang that waits."""
    c = ClaimCluster()
    for name in ("n0", "n1"):
        c.node(make_node(name, gpus=0, listed=False, rack="r0")).slice(f"slice-{name}", gpus(name, 8))
    for name in ("n2", "n3"):
        c.node(make_node(name, gpus=0, listed=False, rack="r1"))
    for i, spec in enumerate(partitions("n2")):
        c.slice(f"slice-n2-{i}", spec)
    c.slice("slice-n3", gpus("n3", 8))
    c.slice("fabric", fabric(6)[0])
    rule(c, "n3")
    c.make_claim("theirs", wish(), **given("gpu-7", "n0"))
    for i in range(3):
        c.make_claim(f"port-of-{i}", wish(), **given("port-0", "leaf/a", FABRIC, shareID=f"share-{i}"))
    half = wish(expression=f"device.attributes['{DRIVER}'].?type.orValue('') == 'mig'")
    gang(c, "halves", 1, half)
    gang(c, "train", 3, wish(3, f"device.attributes['{DRIVER}'].model == 'H200'"))
    gang(c, "large", 4, wish(4, f"device.attributes['{DRIVER}'].model == 'H200'"))
    return c


def test_each_device_of_a_slice_has_a_code() -> None:
    cells = Cells(crowded().scheduler)
    changes = cells.changes(1000)
    found = {node.name: node for node in changes.nodes}
    train, halves = (
        FIRST_GROUP + 2 * number
        for name in ("d/train", "d/halves")
        for number, one in changes.groups.items()
        if one == name
    )
    assert found["n0"].cells == {DRIVER: [*[train] * 6, FREE, FOREIGN]}
    assert found["n1"].cells == {DRIVER: [*[train] * 3, *[FREE] * 5]}
    assert found["n2"].cells == {DRIVER: [BLOCKED, halves, *[FREE] * 4]}, (
        "its other half has no counters left"
    )
    assert found["n3"].cells == {DRIVER: [TAINTED] * 8}
    pool = found[f"{FABRIC}/leaf/a"]
    assert pool.row < 0
    assert pool.cells == {FABRIC: [FOREIGN, *[FREE] * 5]}, "once, though four nodes reach it"


def test_a_claim_changes_only_its_node_and_its_pool() -> None:
    c = ClaimCluster().offer("n0", "n1", gpus_each=2)
    c.slice("fabric", fabric(2)[0])
    cells = Cells(c.scheduler)
    assert set(looked(cells)) == {"n0", "n1", f"{FABRIC}/leaf/a"}
    assert looked(cells) == {}
    gang(c, "train", 1, wish())
    assert looked(cells) == {"n0": {DRIVER: [BOUND, FREE]}}
    c.make_claim("theirs", wish(), **given("port-1", "leaf/a", FABRIC))
    assert looked(cells) == {f"{FABRIC}/leaf/a": {FABRIC: [FREE, FOREIGN]}}
    c.tell(ev.ObjectGone(SLICES, "", "fabric", "uid-fabric"))
    changes = cells.changes(1000)
    assert changes.gone == [-1]
    assert all(row >= 0 for row in cells.nodes)


def test_a_claim_that_is_being_written_is_reserved_and_looked_at_until_its_pod_is_bound() -> None:
    c = ClaimCluster().offer("n0", gpus_each=1)
    c.claim_answer = lambda patch: "hold"
    cells = Cells(c.scheduler)
    gang(c, "train", 1, wish())
    assert looked(cells) == {"n0": {DRIVER: [RESERVED]}}
    (member,) = c.group("train").members.values()
    member.state = MemberState.BOUND  # nothing is noted of the row
    assert looked(cells) == {"n0": {DRIVER: [BOUND]}}


def test_devices_of_a_pod_that_was_deleted_by_force_are_kept() -> None:
    c = ClaimCluster().offer("n0", gpus_each=1)
    gang(c, "train", 1, wish())
    pod = c.pod("train-0")
    c.update(pod, status=replace(pod.status, phase="Running", start_time=at(c.now_s))).delete("train-0")
    c.lose("train-0-gpu")
    assert looked(Cells(c.scheduler)) == {"n0": {DRIVER: [KEPT]}}


def test_while_a_driver_writes_its_slices_the_map_stays() -> None:
    c = ClaimCluster().offer("n0", gpus_each=2)
    cells = Cells(c.scheduler)
    before = looked(cells)
    newer = {"name": "n0", "generation": 2, "resourceSliceCount": 2}
    c.slice("slice-n0", gpus("n0", 2) | {"pool": newer})
    for _ in range(3):
        assert looked(cells) == {}
    assert cells.nodes[0].cells == before["n0"]
    assert looked(Cells(c.scheduler)) == {"n0": {DRIVER: []}}, "for whoever comes now"
    c.slice("more", gpus("n0", 2) | {"pool": newer, "devices": [{"name": "gpu-9"}]})
    assert looked(cells) == {"n0": {DRIVER: [FREE] * 3}}


def test_the_work_of_one_look_is_bounded_by_devices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "DEVICES_AT_ONCE", 40)
    c = ClaimCluster()
    c.offer(*(f"n{i}" for i in range(20)), gpus_each=8)
    for i in range(4):
        spec = fabric(30)[0]
        c.slice(f"fabric-{i}", spec | {"pool": spec["pool"] | {"name": f"leaf/{i}"}})
    cells = Cells(c.scheduler)
    seen: dict[int, NodeCells] = {}
    for _ in range(12):
        found = cells.changes(1000).nodes
        assert sum(len(codes) for node in found for codes in node.cells.values()) <= 40 + 30 + 8
        seen |= {node.row: node for node in found}
    assert len(seen) == 24, "all of them come to their turn"
    assert not cells.is_filling


def test_forty_thousand_devices_of_one_pool_make_no_large_row_and_no_large_page() -> None:
    c = ClaimCluster().offer("n0")
    for i, spec in enumerate(fabric(40_000, n_slices=100)):
        c.slice(f"fabric-{i}", spec)
    (pool,) = [node for node in Cells(c.scheduler).changes(1000).nodes if node.row < 0]
    assert len(pool.cells[FABRIC]) == codes.MAX_CELLS
    view = view_pool(c.scheduler, c.scheduler.shared.cache.claims.pools.shared()[0])
    assert (view.n_devices, len(view.devices)) == (40_000, 256)


def test_history_counts_devices_of_slices_and_leaves_partitions_out() -> None:
    c = ClaimCluster().offer("n0", "n1", gpus_each=4)
    for i, spec in enumerate(partitions("n2")):
        c.slice(f"slice-n2-{i}", spec)
    assert device_use(c.scheduler.shared.cache) == (0.0, 0.0)
    gang(c, "train", 1, wish(3))
    assert device_use(c.scheduler.shared.cache) == (0.375, 0.2)


def test_hostile_names_of_drivers_and_pools_are_shown_without_control_characters() -> None:
    c = ClaimCluster().offer("n0")
    bad = "\x1b[31m<img>\u202e"
    c.slice(
        "bad",
        gpus("n0", 1) | {"driver": bad, "pool": {"name": bad, "generation": 1, "resourceSliceCount": 1}},
    )
    shown = "\\x1b[31m<img>\\x202e"
    assert set(looked(Cells(c.scheduler))["n0"]) == {DRIVER, shown}
    pools = c.scheduler.shared.cache.claims.pools.own_at("n0")
    assert shown in {view_pool(c.scheduler, pool).name for pool in pools}


def test_looking_changes_nothing() -> None:
    c = crowded()
    before = c.scheduler.statistics()
    cells = Cells(c.scheduler)
    for _ in range(3):
        cells.changes(1000)
    assert c.scheduler.statistics() == before
    c.scheduler.validate()


# -- pages ---------------------------------------------------------------------------------------------


async def asked(c: ClaimCluster, pair: Pair, path: str) -> Any:
    async with serving(pair, board=board_of(c), api=ApiServer(), always_allow=("/dashboard",)) as client:
        code, body = await client.ask(path)
    return json.loads(body) if code == 200 else code


async def test_a_gangs_page_has_its_claims_with_what_they_ask_for_and_have(pair: Pair) -> None:
    page = await asked(crowded(), pair, "/dashboard/gang/d/train")
    assert page["n_claims"] == 3
    text = f"gpu: 3 of class gpu that pass `device.attributes['{DRIVER}'].model == 'H200'`"
    assert page["claims"][0] == {
        "name": "train-0-gpu",
        "entry": "gpu",
        "pods": ["train-0"],
        "n_pods": 1,
        "asks": [text],
        "state": "allocated",
        "devices": {"gpu": ["n0/gpu-0", "n0/gpu-1", "n0/gpu-2"]},
    }
    assert page["members"][0]["claims"] == ["gpu"]


async def test_a_gang_that_waits_says_so_for_each_claim_and_has_the_funnel(pair: Pair) -> None:
    page = await asked(crowded(), pair, "/dashboard/gang/d/large")
    assert {one["state"] for one in page["claims"]} == {"waits for devices"}
    (about,) = page["explanations"]
    assert (
        "8 of these are tainted (example.com/burn-in), 11 in use (9 by gang d/train"
        in (about["explanation"]["answer"])
    )


async def test_a_claim_that_many_share_is_there_once_and_one_that_is_missing_too(pair: Pair) -> None:
    c = ClaimCluster().offer("n0")
    c.make_claim("one-for-all", wish())
    pods = [
        with_claims(
            make_pod(f"serve-{i}", group="serve", min_members=6, gpus=0), shared={"gpu": "one-for-all"}
        )
        for i in range(6)
    ]
    late = with_claims(make_pod("late-0", group="late", min_members=1, gpus=0), own=("gpu",))
    c.submit([*pods, late]).run()
    page = await asked(c, pair, "/dashboard/gang/d/serve")
    (one,) = page["claims"]
    assert (one["n_pods"], len(one["pods"]), one["devices"]) == (6, 4, {"gpu": ["n0/gpu-0"]})
    page = await asked(c, pair, "/dashboard/gang/d/late")
    (one,) = page["claims"]
    assert (one["name"], one["entry"], one["state"]) == ("", "gpu", "not made yet")


async def test_a_nodes_page_has_its_devices_with_who_has_them(pair: Pair) -> None:
    c = crowded()
    page = await asked(c, pair, "/dashboard/node/n2")
    (pool,) = page["pools"]
    assert page["reaches"] == [f"{FABRIC}/leaf/a"]
    states = {one["name"]: one["state"] for one in pool["devices"]}
    assert states == {"gpu-0": "blocked", "gpu-0-a": "bound"} | dict.fromkeys(
        ("gpu-0-b", "gpu-1", "gpu-1-a", "gpu-1-b"), "free"
    )
    assert pool["devices"][0]["counters"] == ["gpu-0/slices"]
    (user,) = pool["devices"][1]["users"]
    assert (user["group"], user["claim"], user["pods"]) == ("d/halves", "d/halves-0-gpu", ["d/halves-0"])
    (tainted,) = (await asked(c, pair, "/dashboard/node/n3"))["pools"]
    assert {tuple(one["taints"]) for one in tainted["devices"]} == {("example.com/burn-in",)}


async def test_a_device_that_is_held_and_no_longer_listed_stays_on_the_page(pair: Pair) -> None:
    c = ClaimCluster().offer("n0", gpus_each=2)
    gang(c, "train", 1, wish())
    c.slice("slice-n0", gpus("n0", 2) | {"devices": [{"name": "gpu-1"}]})
    (pool,) = (await asked(c, pair, "/dashboard/node/n0"))["pools"]
    assert [(one["name"], one["state"]) for one in pool["devices"]] == [
        ("gpu-1", "free"),
        ("gpu-0", "not listed"),
    ]
    assert pool["devices"][1]["users"][0]["group"] == "d/train"
    newer = {"name": "n0", "generation": 2, "resourceSliceCount": 3}
    c.slice("slice-n0", gpus("n0", 2) | {"pool": newer})
    (pool,) = (await asked(c, pair, "/dashboard/node/n0"))["pools"]
    assert pool["problem"] == "being updated: 1 of 3 slices of generation 2 are there"
    assert [one["name"] for one in pool["devices"]] == ["gpu-0"]


async def test_a_pool_of_several_nodes_has_a_page_of_its_own(pair: Pair) -> None:
    c = crowded()
    pool = await asked(c, pair, f"/dashboard/pool/{FABRIC}/leaf%2Fa")
    assert (pool["driver"], pool["name"], pool["n_devices"]) == (FABRIC, "leaf/a", 6)
    assert [one["n_users"] for one in pool["devices"]] == [3, 0, 0, 0, 0, 0]
    assert await asked(c, pair, f"/dashboard/pool/{FABRIC}/other") == 404


async def test_the_pool_page_needs_the_right_to_read(pair: Pair) -> None:
    async with serving(pair, board=board_of(crowded()), api=ApiServer()) as client:
        code, _ = await client.ask(f"/dashboard/pool/{FABRIC}/leaf%2Fa")
    assert code == 403
