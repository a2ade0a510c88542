"""Which devices claims get where several would do: what is left serves more, and they lie side by side."""

from __future__ import annotations

import pytest

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from tests.core.claims import ClaimCluster, Json, gpus, wish

ROOT = "resource.kubernetes.io/pcieRoot"
NUMA = "resource.kubernetes.io/numaNode"


def on_roots(*roots: str, name: str = ROOT) -> list[Json]:
    """Devices of node n, each on its root."""
    kind = "string" if name == ROOT else "int"
    value = {"string": str, "int": int}[kind]
    return [
        {"name": f"gpu-{i}", "attributes": {name: {kind: value(root)}, "nth": {"int": i}}}
        for i, root in enumerate(roots)
    ]


def cut(*gpus: str, parts: int = 4) -> list[Json]:
    """Of each GPU: the whole, halves at 0 and 2, and quarters, of memory slices that each takes up."""
    found: list[Json] = []
    for gpu in gpus:
        for size, kind in ((4, "whole"), (2, "half"), (1, "quarter")):
            for at in range(0, parts, size):
                taken = {f"slice-{i}": {"value": "1"} for i in range(at, at + size)}
                found.append(
                    {
                        "name": f"{gpu}-{kind}-{at}",
                        "attributes": {"kind": {"string": kind}},
                        "consumesCounters": [{"counterSet": gpu, "counters": taken}],
                    }
                )
    return found


def partitioned(*gpus_: str) -> ClaimCluster:
    c = ClaimCluster()
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    sets = [{"name": gpu, "counters": {f"slice-{i}": {"value": "1"} for i in range(4)}} for gpu in gpus_]
    c.offer("n", devices=cut(*gpus_), pool=pool)
    counters = gpus("n", 0, pool=pool, sharedCounters=sets)
    del counters["devices"]
    return c.slice("slice-n-counters", counters)


def of_kind(kind: str, count: int = 1) -> Json:
    return wish(count, f"device.attributes['gpu.example.com'].kind == '{kind}'")


def test_partitions_are_taken_from_a_gpu_that_is_cut_already() -> None:
    c = partitioned("a", "b", "c")
    c.submit(c.want("first", of_kind("quarter"))).run()
    assert c.devices("first-gpu") == ["n/a-quarter-0"]
    c.submit(c.want("half", of_kind("half"))).run()
    assert c.devices("half-gpu") == ["n/a-half-2"], "GPU b and c stay whole"
    c.submit(c.want("q", of_kind("quarter"))).run()
    assert c.devices("q-gpu") == ["n/a-quarter-1"]
    c.submit(c.want("w0", of_kind("whole")), c.want("w1", of_kind("whole"))).run()
    assert c.n_bound() == 5


def test_quarters_leave_halves() -> None:
    """One of the half that is begun, though the other half's come first."""
    c = partitioned("a")
    c.submit(c.want("h", of_kind("half"))).run()
    assert c.devices("h-gpu") == ["n/a-half-0"]
    c.submit(c.want("q0", of_kind("quarter"))).run()
    c.submit(c.want("q1", of_kind("quarter"))).run()
    assert [*c.devices("q0-gpu"), *c.devices("q1-gpu")] == ["n/a-quarter-2", "n/a-quarter-3"]
    c = partitioned("a", "b")
    c.submit(c.want("q", of_kind("quarter"))).run()
    c.submit(c.want("two", of_kind("quarter", 2))).run()
    assert c.devices("two-gpu")[0] == "n/a-quarter-1", "the rest of the half, before another GPU is begun"
    assert all(one.startswith("n/a-") for one in c.devices("two-gpu"))


@pytest.mark.parametrize("name", [ROOT, NUMA])
def test_a_claims_devices_lie_side_by_side(name: str) -> None:
    c = ClaimCluster()
    c.offer("n", devices=on_roots("0", "1", "1", "0", "1", name=name))
    c.submit(c.want("p", wish(2))).run()
    assert c.devices("p-gpu") == ["n/gpu-0", "n/gpu-3"], "of the root that has just as many"
    c.submit(c.want("q", wish(3))).run()
    assert c.devices("q-gpu") == ["n/gpu-1", "n/gpu-2", "n/gpu-4"]


def test_single_devices_leave_roots_whole() -> None:
    c = ClaimCluster().offer("n", devices=on_roots("0", "0", "1", "0", "1", "0"))
    c.submit(*(c.want(f"p{i}", wish(1)) for i in range(2))).run()
    assert sorted(c.devices("p0-gpu") + c.devices("p1-gpu")) == ["n/gpu-2", "n/gpu-4"]


def test_members_on_a_node_each_have_theirs_side_by_side() -> None:
    """First come, first served would give the second one a device of each root."""
    c = ClaimCluster().offer("n", devices=on_roots("0", "1", "1", "0", "0", "1"))
    c.submit(*(c.want(f"g-{i}", wish(2), group="g", min_members=2) for i in range(2))).run()
    for i in range(2):
        first, second = (int(one[-1]) for one in c.devices(f"g-{i}-gpu"))
        assert {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1}[first] == {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1}[second]


def test_where_not_all_can_lie_side_by_side_as_many_do_as_can() -> None:
    c = ClaimCluster().offer("n", devices=on_roots("0", "1", "1", "0", "0", "1"))
    c.submit(*(c.want(f"g-{i}", wish(2), group="g", min_members=3) for i in range(3))).run()
    roots = {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1}
    apart = [len({roots[int(one[-1])] for one in c.devices(f"g-{i}-gpu")}) > 1 for i in range(3)]
    assert sorted(apart) == [False, False, True]


def test_a_network_card_lies_beside_the_gpu() -> None:
    """Two requests of one claim, of which a constraint says nothing."""
    cards = on_roots("1", "0")
    for one in cards:
        one["name"] = one["name"].replace("gpu", "nic")
        one["attributes"]["kind"] = {"string": "nic"}
    chips = on_roots("0", "1")
    for one in chips:
        one["attributes"]["kind"] = {"string": "gpu"}
    c = ClaimCluster().offer("n", devices=[*chips, *cards])
    requests = [of_kind(kind)["devices"]["requests"][0] | {"name": kind} for kind in ("gpu", "nic")]
    c.submit(c.want("p", {"devices": {"requests": requests}})).run()
    assert c.devices("p-gpu") == ["n/gpu-0", "n/nic-1"]


def shared(*names: str) -> list[Json]:
    return [
        {"name": one, "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
        for one in names
    ]


def a_share(memory: str) -> Json:
    return wish(1, capacity={"requests": {"memory": memory}})


def test_shares_are_taken_of_a_device_that_is_shared_already() -> None:
    c = ClaimCluster().offer("n", devices=shared("gpu-0", "gpu-1", "gpu-2"))
    c.submit(c.want("big", a_share("60Gi"))).run()
    c.submit(c.want("next", a_share("30Gi"))).run()
    assert c.devices("big-gpu") + c.devices("next-gpu") == ["n/gpu-0", "n/gpu-1"]
    # 20Gi fit both: the fuller one is taken, so that 50Gi are left in one piece.
    c.submit(c.want("small", a_share("20Gi"))).run()
    assert c.devices("small-gpu") == ["n/gpu-0"]
    c.submit(c.want("rest", a_share("50Gi"))).run()
    assert c.devices("rest-gpu") == ["n/gpu-1"]


def test_the_first_alternative_counts_more_than_the_place() -> None:
    """Side by side there are only two of the second one."""
    devices = on_roots("0", "1", "2", "2")
    for at, one in enumerate(devices):
        one["attributes"]["kind"] = {"string": "new" if at < 2 else "old"}
    c = ClaimCluster().offer("n", devices=devices)
    subs = []
    for kind in ("new", "old"):
        exactly = of_kind(kind, 2)["devices"]["requests"][0]["exactly"]
        subs.append({"name": kind, **exactly})
    c.submit(c.want("p", {"devices": {"requests": [{"name": "gpu", "firstAvailable": subs}]}})).run()
    assert c.devices("p-gpu") == ["n/gpu-0", "n/gpu-1"]


def test_upstreams_order_takes_the_first() -> None:
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(order="upstream")))
    c.offer("n", devices=on_roots("0", "1", "1", "0", "1"))
    c.submit(c.want("p", wish(2))).run()
    assert c.devices("p-gpu") == ["n/gpu-0", "n/gpu-1"]


def test_where_a_selector_fails_on_a_device_the_order_is_kubernetes_own() -> None:
    """Which device is tried first decides there whether the pod's attempt ends."""
    devices = on_roots("0", "1", "1")
    devices[1]["attributes"]["kind"] = {"string": "x"}
    devices[0]["attributes"]["kind"] = {"string": "x"}
    c = ClaimCluster().offer("n", devices=devices)
    c.submit(c.want("p", of_kind("x"))).run()
    assert c.devices("p-gpu") == ["n/gpu-0"]


def test_a_pool_that_all_nodes_reach_is_kept_once() -> None:
    """1,000 nodes that reach 1,000 devices would be a million pairs."""
    c = ClaimCluster().offer("n0", "n1", gpus_each=2)
    net = gpus("", 3, pool={"name": "net", "generation": 1, "resourceSliceCount": 1}, allNodes=True)
    del net["nodeName"]
    c.slice("net", net)
    book = c.scheduler.shared.cache.claims
    first, second = (book.offer(c.nodes[name]).devices for name in ("n0", "n1"))
    assert len(first) == len(second) == 5
    assert [pool.id.name for _, pool in first] == ["n0", "n0", "net", "net", "net"]
    assert all(one is other for one, other in zip(first[2:], second[2:], strict=True))
