"""The device ledger alone: claims, which keep a victim's devices for the pod that it makes room for."""

from __future__ import annotations

import pytest

from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.errors import InvariantError
from gangsched.model.devices.annotations import Device, inventory_annotation, parse_inventory
from gangsched.model.resources import ResourceTable

GPU = "example.com/gpu"
ROW = 3


def ledger(*, sick: str = "") -> DeviceLedger:
    """One node with the devices a, b, c, d."""
    devices = [Device(x, health="Unhealthy" if x == sick else "Healthy") for x in "abcd"]
    made = DeviceLedger(NodeTable(ResourceTable(), capacity=8), [])
    made.set_inventories(ROW, parse_inventory(inventory_annotation({GPU: devices})))
    return made


def free(of: DeviceLedger) -> str:
    inventory = of.inventory(ROW, GPU)
    assert inventory is not None
    ids = inventory.ids_of(of.free_mask(ROW, GPU))
    assert of.columns[GPU].free[ROW] == len(ids)
    return "".join(ids)


def test_a_claimed_device_is_free_for_no_other_also_when_its_holder_is_gone() -> None:
    one = ledger()
    one.hold(ROW, "victim", GPU, "ab")
    one.claim(ROW, "preemptor", GPU, "abc")
    assert one.holders(ROW, GPU)["a"] == ("victim",)
    assert free(one) == "d"
    assert not one.release(ROW, "victim", GPU, "ab")
    assert free(one) == "d"
    with pytest.raises(InvariantError, match="promised to thief"):
        one.promise(ROW, GPU, [("thief", ("a",))])


def test_lifted_claims_are_free_again_but_for_what_is_still_held() -> None:
    one = ledger()
    one.hold(ROW, "victim", GPU, "ab")
    one.claim(ROW, "preemptor", GPU, "abc")
    one.release(ROW, "victim", GPU, "a")
    assert one.claims("preemptor") == [(ROW, GPU, ("a", "b", "c"))]
    assert one.unclaim("preemptor") == [(ROW, GPU)]
    assert free(one) == "acd"
    assert one.unclaim("preemptor") == []
    one.promise(ROW, GPU, [("preemptor", ("a", "c"))])
    assert free(one) == "d"


def test_a_device_has_one_claim_and_a_second_pod_is_our_bug() -> None:
    one = ledger()
    one.claim(ROW, "first", GPU, "a")
    one.claim(ROW, "first", GPU, "ab")
    with pytest.raises(InvariantError, match="claimed for second and for first"):
        one.claim(ROW, "second", GPU, "b")


def test_claims_outlast_a_new_inventory_and_end_with_the_node() -> None:
    one = ledger()
    one.claim(ROW, "preemptor", GPU, "ab")
    one.set_inventories(ROW, parse_inventory(inventory_annotation({GPU: [Device("a"), Device("e")]})))
    assert free(one) == "e"
    one.forget_node(ROW)
    assert one.claims("preemptor") == []
    one.set_inventories(ROW, parse_inventory(inventory_annotation({GPU: [Device("a")]})))
    assert free(one) == "a"


def test_what_was_free_on_a_node_is_gone_with_it() -> None:
    one = ledger()
    one.forget_node(ROW)
    assert GPU not in one.columns
    assert one.freed_by(ROW, GPU, "a", ()) == 0, "its devices are nobody's any more"


def test_a_claim_does_not_make_a_sick_device_free() -> None:
    one = ledger(sick="a")
    one.claim(ROW, "preemptor", GPU, "ab")
    one.unclaim("preemptor")
    assert free(one) == "bcd"
