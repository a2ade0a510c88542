"""What replaces an evicted pod takes its place in the queue: once, and nobody else does."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.lab.sim.objects import inventory, make_node, make_pod
from gangsched.model.devices.annotations import INVENTORY_KEY
from tests.support.scenario import Cluster, gang


def failed(c: Cluster, node: str, *numbers: int) -> None:
    now = c.nodes[node]
    own = {**(now.metadata.annotations or {}), INVENTORY_KEY: inventory(node, 8, unhealthy=numbers)}
    c.node(replace(now, metadata=replace(now.metadata, annotations=own)))


def test_a_gang_that_has_its_evicted_member_back_leaves_no_place_to_the_next_of_its_name() -> None:
    c = Cluster(Settings(devices=DeviceSettings(on_failure="evictMember", failure_grace_s=5.0)))
    for name in ("n0", "n1"):
        c.node(make_node(name))
    c.submit(gang("a", pods=2, gpus=8)).run()
    failed(c, c.pod("a-1").spec.node_name, 0)
    c.wait(6.0)
    failed(c, "n0")
    failed(c, "n1")
    c.submit(make_pod("a-2", group="a", min_members=2, gpus=8)).run()
    assert c.placed("a"), "it is whole again"
    c.delete("a-0", "a-2").submit(gang("other", pods=2, gpus=8)).run()
    c.wait(60.0).submit(gang("newer", pods=2, gpus=8)).run()
    c.wait(60.0).submit(gang("a", pods=2, gpus=8, first=3)).run()
    c.wait(60.0).delete("other-0", "other-1").run().wait(20.0)
    assert (c.placed("newer"), c.untouched("a")) == (True, True)
