"""Devices: capacity by free healthy devices; nodes without an inventory have no limit from it."""

from __future__ import annotations

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Change, ClusterChange
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.plugins.resources.devices import Devices
from tests.plugins.build import GPU, Cluster, node, pod

NIC = "example.com/nic"


def cluster() -> Cluster:
    return Cluster(
        node("four", inventory={GPU: ["g0", "g1", "g2", "g3"]}, allocatable={GPU: "4"}),
        node("sick", inventory={GPU: ["s0", "s1!", "s2!", "s3!"]}, allocatable={GPU: "4"}),
        node("counts", allocatable={GPU: "4"}),
    )


def test_capacity_is_free_healthy_devices_by_request() -> None:
    some = cluster()
    plugin = Devices()
    for amount, expected in ((1, [4, 1, NO_LIMIT]), (2, [2, 0, NO_LIMIT]), (3, [1, 0, NO_LIMIT])):
        template = some.template(pod(requests={GPU: str(amount)}))
        room = plugin.capacity(some.state, template, some.view)
        assert room is not None
        assert room.tolist() == expected


def test_a_pod_without_devices_is_not_limited() -> None:
    some = cluster()
    assert Devices().capacity(some.state, some.template(pod(requests={"cpu": "1"})), some.view) is None
    unlisted = some.template(pod(requests={NIC: "1"}))
    assert Devices().capacity(some.state, unlisted, some.view) is None


def test_the_scarcest_resource_decides() -> None:
    some = Cluster(node("a", inventory={GPU: ["g0", "g1", "g2", "g3"], NIC: ["n0"]}))
    room = Devices().capacity(some.state, some.template(pod(requests={GPU: "1", NIC: "1"})), some.view)
    assert room is not None
    assert room.tolist() == [1]


def test_devices_taken_on_a_trial_are_gone_there_only() -> None:
    some = cluster()
    template = some.template(pod(requests={GPU: "1"}))
    trial = Trial(some.view)
    trial.take_devices(0, GPU, template, [0b0001, 0b0010, 0b0100], trial.device_mask(0, GPU))
    room = Devices().capacity(some.state, template, trial)
    assert room is not None
    assert room[0] == 1
    unchanged = Devices().capacity(some.state, template, some.view)
    assert unchanged is not None
    assert unchanged[0] == 4


def test_reasons_name_the_resource() -> None:
    some = cluster()
    ((reason, rows),) = Devices().reasons(some.state, some.template(pod(requests={GPU: "2"})), some.view)
    assert str(reason) == f"Insufficient healthy devices of {GPU}"
    assert some.names(rows) == ["sick"]


def test_cured_only_by_devices_of_its_own_on_a_node_that_has_enough() -> None:
    some = cluster()
    plugin, template = Devices(), some.template(pod(requests={GPU: "2"}))
    gpus, nics = frozenset({GPU}), frozenset({NIC})
    assert plugin.cures(ClusterChange(Change.NODE_DEVICES, 0, gpus), template, some.view)
    assert not plugin.cures(ClusterChange(Change.NODE_DEVICES, 0, nics), template, some.view)
    assert not plugin.cures(ClusterChange(Change.NODE_DEVICES, 1, gpus), template, some.view)
    assert plugin.cures(ClusterChange(Change.NODE_ADDED, 2), template, some.view)
    assert plugin.cures(ClusterChange(Change.ROOM_FREED, 0, gpus), template, some.view)
    healed = some.put(node("sick", inventory={GPU: ["s0", "s1", "s2!", "s3!"]}, allocatable={GPU: "4"}))
    assert [change.what for change in healed] == [Change.NODE_DEVICES]
    assert plugin.cures(healed[0], template, some.view)


def test_pods_of_several_kinds_share_what_the_least_of_them_leaves() -> None:
    some = cluster()
    pair, triple = (some.template(pod(requests={GPU: n})) for n in "23")
    np.testing.assert_array_equal(Devices().together([triple, pair], some.view), [2, 0, NO_LIMIT])
    without = some.template(pod(requests={"cpu": "1"}))
    assert Devices().together([pair, without], some.view) is None
