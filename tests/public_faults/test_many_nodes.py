"""Gangs on several nodes: racks that are idle again, domains that are ready late, devices published twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.cache.cache import Cache
from gangsched.core.cycle import claim_allocation
from gangsched.core.resource_claims.book import ClaimBook, Place
from gangsched.core.resource_claims.candidates import Cluster, NodeOffer
from gangsched.core.resource_claims.holdings import Holdings
from gangsched.core.resource_claims.requests import PreparedClaim
from gangsched.core.resource_claims.search.copies import Copies, CopyCount, Digests
from gangsched.core.resource_claims.search.joint import JointSolution, PlacedPods, solve
from gangsched.core.types.cluster_events import ClusterChange
from gangsched.core.types.group import PodInfo
from gangsched.lab.sim.objects import GPU, make_node
from gangsched.model import effects as ef
from gangsched.model.objects import Node
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, DeviceClass
from gangsched.model.selectors import matches_node
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish
from tests.core.test_resource_claims import gang
from tests.public_faults.faults import shows
from tests.support.scenario import gang as plain_gang

CHANNELS = "compute-domain.nvidia.com"
Before = Sequence[tuple[Digests, int]]
DOMAIN = "resource.nvidia.com/computeDomain"


def rack(c: ClaimCluster, *nodes: str) -> None:
    """Nodes of one rack, each with one channel of a ComputeDomain and one daemon of it."""
    for name in nodes:
        c.offer(name, gpus_each=0)
        devices = [
            {"name": f"{kind}-0", "attributes": {"type": {"string": kind}}} for kind in ("channel", "daemon")
        ]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        c.slice(f"domains-{name}", {"driver": CHANNELS, "pool": pool, "nodeName": name, "devices": devices})
    c.device_class(
        "channel", f"device.driver == '{CHANNELS}' && device.attributes['{CHANNELS}'].type == 'channel'"
    )


def channel(domain: str = "") -> Json:
    """The spec of a claim as the driver's template has it, of a domain with this UID."""
    spec = wish(deviceClassName="channel")
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": domain,
    }
    spec["devices"]["config"] = [{"opaque": {"driver": CHANNELS, "parameters": parameters}}]
    return spec


def claims_that_go_stay_counted(patch: pytest.MonkeyPatch) -> None:
    """Memory keeps what a claim had that is deleted."""

    def removed(book: ClaimBook, place: Place) -> None:
        uid = book._named.pop(place, None)
        if uid is not None:
            del book.claims[uid], book._digests[uid]

    patch.setattr(ClaimBook, "_remove_claim", removed)


@shows("I16", claims_that_go_stay_counted)
def test_a_rack_that_is_idle_again_takes_the_next_gang_with_channel_claims() -> None:
    """The gang did not fit an idle rack until the scheduler was restarted.

    github.com/kai-scheduler/KAI-Scheduler/issues/1217
    """
    c = ClaimCluster()
    rack(c, "a", "b", "c", "d")
    for name in ("first", "second", "third"):
        c.submit(gang(c, name, 4, channel())).run()
        assert c.placed(name, on=4)
        for i in range(4):
            c.delete(f"{name}-{i}").lose(f"{name}-{i}-gpu")


def binds_wait_for_the_domain(patch: pytest.MonkeyPatch) -> None:
    """A pod is bound once its node says that it serves the ComputeDomain."""
    are_ready = ClaimWrites.are_ready

    def serve(writes: ClaimWrites, members: Iterable[PodInfo]) -> bool:
        members = list(members)
        nodes = writes._shared.cache.nodes.nodes
        there = [nodes[one.row] for one in members]
        return are_ready(writes, members) and all(
            node is not None and DOMAIN in (node.metadata.labels or {}) for node in there
        )

    patch.setattr(ClaimWrites, "are_ready", serve)


@shows("I21", binds_wait_for_the_domain)
def test_a_whole_gang_is_bound_before_its_compute_domain_is_ready() -> None:
    """The ComputeDomain waited for all pods, and pods for the first ones' readiness: a deadlock.

    The driver labels a node when kubelet prepares the channel of a pod that is bound to it, and channels are
    ready when all nodes of the domain are labelled.
    github.com/ai-dynamo/grove/issues/209
    """
    c = ClaimCluster()
    rack(c, "a", "b")
    c.submit(gang(c, "g", 2, channel("uid-of-g")), gang(c, "next", 2, channel("uid-of-next"))).run()
    assert c.placed("g", on=2)
    for name in ("a", "b"):
        node = c.nodes[name]
        c.node(replace(node, metadata=replace(node.metadata, labels={DOMAIN: "uid-of-g"})))
    c.start("g-0", "g-1").settled()
    assert c.untouched("next"), "one domain a node at a time"


def any_domain_will_do(patch: pytest.MonkeyPatch) -> None:
    """What a node says that it serves is not looked at."""
    make = PreparedClaim.__init__

    def without(one: PreparedClaim, *asked: Any) -> None:
        make(one, *asked)
        one.domains = frozenset()

    patch.setattr(PreparedClaim, "__init__", without)


@shows("I21", any_domain_will_do)
def test_a_gang_is_kept_off_nodes_that_still_serve_another_compute_domain() -> None:
    """Beside that deadlock: the driver refuses to prepare a channel there, so the gang would hang.

    github.com/ai-dynamo/grove/issues/209
    """
    c = ClaimCluster()
    rack(c, "a", "b")
    old = c.nodes["a"]
    c.node(replace(old, metadata=replace(old.metadata, labels={DOMAIN: "uid-of-former"})))
    c.submit(gang(c, "g", 2, channel("uid-of-g"))).run()
    assert c.untouched("g")
    assert "1 node(s) that serve another ComputeDomain" in c.said("g-0")
    c.node(replace(old, metadata=replace(old.metadata, labels={DOMAIN: "uid-of-g"}))).settled()
    assert c.placed("g", on=2)


def nodes_hold_devices_apart(patch: pytest.MonkeyPatch) -> None:
    """A device that is given out on one node counts as free on another that publishes it too."""
    count = Copies.count

    def here(book: ClaimBook, name: str, cluster: Cluster) -> Cluster:
        holdings = Holdings()
        for allocations in book._counted.values():
            for one in allocations:
                if one.node_selector is None or matches_node(one.node_selector, name, {}):
                    holdings.add(one)
        return cluster._replace(holdings=holdings)

    def counted(
        self: Copies, offer: NodeOffer, digests: Digests, before: Before, cluster: Cluster
    ) -> CopyCount:
        return count(self, offer, digests, before, here(self.book, offer.name, cluster))

    def solved(book: ClaimBook, placed: Sequence[PlacedPods], cluster: Cluster, **more: Any) -> JointSolution:
        return solve(book, placed, here(book, placed[0].node.metadata.name, cluster), **more)

    patch.setattr(Copies, "count", counted)
    patch.setattr(claim_allocation, "solve", solved)


@shows("I23", nodes_hold_devices_apart)
def test_a_device_that_several_nodes_publish_is_given_out_once() -> None:
    """The same driver, pool and device were published by several nodes.

    github.com/cilium/cilium/issues/48923
    """
    c = ClaimCluster().offer(
        "a", "b", gpus_each=1, pool={"name": "all", "generation": 1, "resourceSliceCount": 1}
    )
    c.submit(c.want("p", wish())).run().submit(c.want("q", wish())).run()
    assert c.are_bound("p", "q") == [True, False]
    assert "whose devices for request gpu (class gpu) are in use" in c.said("q")
    assert len([one for one in c.all(ef.PatchClaim) if one.is_status]) == 1
    c.delete("p").lose("p-gpu").settled()
    assert c.are_bound("q") == [True]


def both_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A node has the GPUs of its device plugin and those of its ResourceSlices."""
    put = Cache.put_node

    def adds(cache: Cache, node: Node) -> tuple[list[ClusterChange], str]:
        room = dict(node.status.allocatable or {})
        room[GPU] = int(room[GPU]) + len(cache.claims.offer(node).devices)
        return put(cache, replace(node, status=replace(node.status, allocatable=room)))

    patch.setattr(Cache, "put_node", adds)


@shows("I18", both_are_counted)
def test_gpus_that_a_node_offers_in_two_ways_are_counted_once() -> None:
    """GPUs of one node were counted by the device plugin and by DRA.

    Where a plugin offers the resource it serves the pods that request it, and elsewhere the class: two and
    two, whatever else the first node's slices list.
    github.com/kai-scheduler/KAI-Scheduler/pull/1177
    """
    c = ClaimCluster()
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    spec = {"selectors": selectors, "extendedResourceName": GPU}
    c.put(DEVICE_CLASSES, {"metadata": {"name": "gpu", "uid": "uid-gpu"}, "spec": spec}, DeviceClass)
    for name, n_by_plugin in (("both", 2), ("slices", 0)):
        c.slice(f"slice-{name}", gpus(name, 2)).node(make_node(name, gpus=n_by_plugin, listed=False))
    c.submit(plain_gang("five", pods=5), plain_gang("four", pods=4)).run()
    assert c.untouched("five")
    assert c.nodes_of("four") == ["both", "both", "slices", "slices"]
    assert sorted(c.ids("four-0")) == [], "its device plugin chooses"
    assert len(c.resource_claims) == 2
