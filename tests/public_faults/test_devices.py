"""Which devices a pod gets on one node: counters, shares, choices, and how long the search takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.resource_claims import candidates, devices
from gangsched.core.resource_claims.candidates import AllocationError, Candidate, Cluster, NodeOffer
from gangsched.core.resource_claims.devices import ListedDevice, Pool
from gangsched.core.resource_claims.holdings import Tried
from gangsched.core.resource_claims.requests import Request
from gangsched.core.resource_claims.results import allocation
from gangsched.core.resource_claims.search import allocator, copies, joint
from gangsched.core.resource_claims.search.allocator import STEPS, Ask, Solution, _Search
from gangsched.core.resource_claims.search.copies import Copies, CopyCount
from gangsched.model import events as ev
from gangsched.model.resource_claims.objects import SLICES, ResourceSlice
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish
from tests.core.test_resource_claims import gang
from tests.public_faults.faults import shows

KIND, SLOT = f"{DRIVER}/kind", f"{DRIVER}/slot"


def counted(c: ClaimCluster, node: str, size: int, devices: Sequence[Json], *, generation: int = 1) -> None:
    """A node's devices in one slice, and in another the counter `parts` of their GPU, of this size."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": 2}
    own = {"driver": DRIVER, "pool": pool, "nodeName": node}
    counters = [{"name": "gpu", "counters": {"parts": {"value": str(size)}}}]
    c.slice(f"counters-{node}", {**own, "sharedCounters": counters})
    c.slice(f"slice-{node}", {**own, "devices": list(devices)})


def device(name: str, parts: int, **attributes: str) -> Json:
    """A device that consumes so many of the counter."""
    used = [{"counterSet": "gpu", "counters": {"parts": {"value": str(parts)}}}]
    values = {key: {"string": value} for key, value in attributes.items()}
    return {"name": name, "attributes": values, "consumesCounters": used}


def split(c: ClaimCluster, node: str = "n") -> None:
    """One GPU, to be given out as a whole or in halves."""
    c.offer(node, gpus_each=0)
    halves = [device(f"half-{i}", 1, kind="half") for i in range(2)]
    counted(c, node, 2, [device("whole", 2, kind="whole"), *halves])


def of_kind(kind: str) -> list[Json]:
    return [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}]


def choice(*kinds: str) -> Json:
    """The spec of a claim for a device of the first of these kinds that there is."""
    listed = [
        {"name": kind, "deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}
        | {"selectors": of_kind(kind)}
        for kind in kinds
    ]
    return {"devices": {"requests": [{"name": "gpu", "firstAvailable": listed}]}}


def member_by_member(patch: pytest.MonkeyPatch) -> None:
    """What an earlier member was given is not given back for a later one."""
    allocate = allocator.allocate

    def greedy(asks: Sequence[Ask], cluster: Cluster, *, steps: int = STEPS) -> Solution:
        holdings, found = cluster.holdings.copy(), Solution([])
        for ask in asks:
            own = allocate([ask._replace(like=-1)], cluster._replace(holdings=holdings), steps=steps)
            if own.chosen is None or found.chosen is None:
                return own
            found.chosen.extend(own.chosen)
            holdings.add(allocation(ask.claim, own.chosen[0], ask.place.name, lambda: "share"))
        return found

    patch.setattr(copies, "allocate", greedy)
    patch.setattr(joint, "allocate", greedy)


@shows("I6", member_by_member)
def test_a_gang_gets_two_halves_where_its_first_member_alone_would_get_the_whole() -> None:
    """It was refused though two halves fit.

    github.com/kubernetes/kubernetes/issues/138765
    """
    c = ClaimCluster()
    split(c)
    c.submit(gang(c, "g", 2, choice("whole", "half"))).run()
    assert c.placed("g")
    assert sorted(c.devices("g-0-gpu") + c.devices("g-1-gpu")) == ["n/half-0", "n/half-1"]


def the_rejected_keep_their_counters(patch: pytest.MonkeyPatch) -> None:
    """A device that was tried in vain is given back, and what it consumes is not."""
    consume = Tried.consume

    def only_more(tried: Tried, device: ListedDevice, n: int = 1) -> None:
        if n > 0:
            consume(tried, device, n)

    patch.setattr(Tried, "consume", only_more)


@shows("I7", the_rejected_keep_their_counters)
def test_a_device_that_was_tried_in_vain_keeps_no_counters_from_those_that_fit() -> None:
    """A pod that fits stayed pending.

    github.com/kubernetes/kubernetes/issues/140436
    """
    c = ClaimCluster().offer("n", gpus_each=0)
    counted(c, "n", 2, [device("alone", 1, slot="a"), *(device(f"pair-{i}", 1, slot="b") for i in range(2))])
    spec = wish(2)
    spec["devices"]["constraints"] = [{"matchAttribute": SLOT}]
    c.submit(c.want("p", spec)).run()
    assert c.devices("p-gpu") == ["n/pair-0", "n/pair-1"]


def all_lose_their_pool(patch: pytest.MonkeyPatch) -> None:
    """Devices of a request for all of them are tried without the counters of their pool."""
    admits = candidates._admits

    def loses(request: Any, one: Candidate, place: Any, cluster: Cluster) -> bool:
        if request.is_all:
            one.pool = Pool(one.pool.id)
        return admits(request, one, place, cluster)

    patch.setattr(candidates, "_admits", loses)


@shows("I8", all_lose_their_pool)
def test_all_devices_are_given_though_they_consume_counters() -> None:
    """The scheduler panicked on All with devices that consume counters.

    github.com/kubernetes/kubernetes/pull/138885
    """
    c = ClaimCluster().offer("n", gpus_each=0)
    counted(c, "n", 2, [device(f"half-{i}", 1) for i in range(2)])
    c.submit(c.want("p", wish(0, allocationMode="All"))).run()
    assert c.devices("p-gpu") == ["n/half-0", "n/half-1"]
    c = ClaimCluster().offer("n", gpus_each=0)
    counted(c, "n", 1, [device(f"half-{i}", 1) for i in range(2)])
    c.submit(c.want("p", wish(0, allocationMode="All"))).run()
    assert not c.n_bound()
    assert "cannot allocate all claims" in c.said("p")


def a_full_device_ends_the_search(patch: pytest.MonkeyPatch) -> None:
    """Where a device has too little left, no other one is tried."""
    has_capacity = _Search._has_capacity

    def ends(search: _Search, one: Candidate, own: Tried | None) -> bool:
        if not has_capacity(search, one, own):
            raise AllocationError("the device is full")
        return True

    patch.setattr(_Search, "_has_capacity", ends)


@shows("I9", a_full_device_ends_the_search)
def test_when_the_first_device_to_be_shared_is_full_the_next_one_is_shared() -> None:
    """The first one was full, and the next was not tried.

    github.com/kubernetes/kubernetes/issues/133705
    """
    c = ClaimCluster().offer("n", gpus_each=0)
    shared = [
        {"name": f"gpu-{i}", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "10Gi"}}}
        for i in range(2)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    c.slice("slice-n", {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": shared})
    share = wish(capacity={"requests": {"memory": "6Gi"}})
    c.submit(*(c.want(name, share) for name in "pqr")).run()
    assert c.are_bound("p", "q", "r") == [True, True, False]
    assert [c.devices(f"{name}-gpu") for name in "pq"] == [["n/gpu-0"], ["n/gpu-1"]]


def each_is_tried(patch: pytest.MonkeyPatch) -> None:
    """Devices that could change places are tried each for itself."""
    patch.setattr(_Search, "kind", lambda search, one: None)


def each_node_is_searched(patch: pytest.MonkeyPatch) -> None:
    """Nodes whose devices are equal are searched each for itself."""
    kind = Copies._kind
    patch.setattr(Copies, "_kind", lambda self, offer, kinds: (offer.name, kind(self, offer, kinds)))


@shows("I10", each_is_tried, each_node_is_searched)
def test_a_claim_that_fits_nowhere_is_refused_by_one_short_search() -> None:
    """The search was very slow, worst where nothing fits.

    github.com/kubernetes/kubernetes/issues/131730
    """
    c = ClaimCluster()
    for i in range(30):
        c.offer(f"n{i}", gpus_each=32)
    spec = wish(9)
    [first] = spec["devices"]["requests"]
    more = {"name": "more", "exactly": first["exactly"] | {"count": 8}}  # of each half there are 16
    spec["devices"]["requests"].append(more)
    spec["devices"]["constraints"] = [{"matchAttribute": f"{DRIVER}/numa"}]
    with pytest.MonkeyPatch.context() as patch:
        n_searches, n_steps = counting(patch)
        c.submit(c.want("p", spec)).run()
    assert "30 cannot allocate all claims" in c.said("p")
    assert len(n_searches) <= 2
    assert len(n_steps) < 2_000


def counting(patch: pytest.MonkeyPatch) -> tuple[list[None], list[None]]:
    """Returns a list that grows with each kind of node that is searched, and one with each step."""
    n_searches: list[None] = []
    n_steps: list[None] = []
    counted_, spend = Copies._counted, _Search.spend

    def searched(*asked: Any) -> CopyCount:
        n_searches.append(None)
        return counted_(*asked)

    def spent(search: _Search) -> bool:
        n_steps.append(None)
        return spend(search)

    patch.setattr(Copies, "_counted", searched)
    patch.setattr(_Search, "spend", spent)
    return n_searches, n_steps


def counters_are_not_read(patch: pytest.MonkeyPatch) -> None:
    """Slices with counters are dropped, as by an allocator with its features off."""
    make = devices._Slice.__init__

    def drops(one: devices._Slice, raw: ResourceSlice) -> None:
        make(one, raw)
        one.is_left_out = one.is_left_out or one.has_counters

    patch.setattr(devices._Slice, "__init__", drops)


@shows("I17", counters_are_not_read)
def test_partitions_of_a_gpu_are_given_out() -> None:
    """Slices with shared counters were dropped: no MIG.

    github.com/kai-scheduler/KAI-Scheduler/issues/2100
    """
    c = ClaimCluster()
    split(c)
    c.submit(c.want("p", choice("half")), c.want("q", choice("whole", "half"))).run()
    assert [c.devices("p-gpu"), c.devices("q-gpu")] == [["n/half-0"], ["n/half-1"]]


def unusable_is_absent(patch: pytest.MonkeyPatch) -> None:
    """A pool of which nothing can be given out is passed over."""
    lack_of = Copies._lack_of

    def without(self: Copies, offer: NodeOffer, request: Request) -> str:
        usable = [one for one in offer.pools if not one.problem]
        return lack_of(self, NodeOffer(usable, offer.name, offer.labels), request)

    patch.setattr(Copies, "_lack_of", without)


@shows("I17", unusable_is_absent)
def test_a_pool_that_cannot_be_used_is_told_with_the_reason() -> None:
    """Slices with shared counters were dropped, and no reason given.

    github.com/kai-scheduler/KAI-Scheduler/issues/2100
    """
    c = ClaimCluster()
    split(c)
    split(c, "m")
    counted(c, "n", 2, [device("half-0", 1) | {"consumesCounters": [{"counterSet": "gone", "counters": {}}]}])
    c.others.pop((SLICES, "counters-m"))
    c.tell(ev.ObjectGone(SLICES, "", "counters-m", "uid-counters-m"))
    c.submit(c.want("p", choice("half"))).run()
    whose = f"1 node(s) whose pool of {DRIVER} is"
    assert f"{whose} invalid (counter set gone not found)" in c.said("p")
    assert f"{whose} being updated (1 of 2 slices of generation 1 are there)" in c.said("p")


def every_generation_counts(patch: pytest.MonkeyPatch) -> None:
    """A pool's devices are those of all its slices."""
    put = devices.PoolBook.put

    def forgets(book: devices.PoolBook, one: ResourceSlice) -> None:
        put(book, one)
        every = book._of_pool[one.pool_id].values()
        for known in every:
            spec = known.raw.spec
            pool = replace(spec.pool, generation=1, resource_slice_count=len(every))
            known.raw = replace(known.raw, spec=replace(spec, pool=pool))

    patch.setattr(devices.PoolBook, "put", forgets)


@shows("I22", every_generation_counts)
def test_devices_of_a_pools_old_generation_are_not_counted_beside_the_new() -> None:
    """Devices of old and new pool generations were counted together.

    github.com/kubernetes-sigs/kueue/issues/14573
    """
    c = ClaimCluster().offer("n", gpus_each=2)
    renamed = gpus("n", 2, pool={"name": "n", "generation": 2, "resourceSliceCount": 1})
    for i, one in enumerate(renamed["devices"]):
        one["name"] = f"renamed-{i}"
    c.slice("slice-n-2", renamed)
    c.submit(c.want("p", wish(2)), c.want("q", wish())).run()
    assert c.devices("p-gpu") == ["n/renamed-0", "n/renamed-1"]
    assert c.are_bound("p", "q") == [True, False]
