"""Devices as labels: what fits is said exactly, read back as it was, what does not is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import (
    ALLOCATED_KEY,
    INVENTORY_KEY,
    Device,
    inventory_annotation,
    parse_allocation,
    parse_devices,
    parse_inventory,
)
from gangsched.model.devices.labels import (
    MAX_PREFIX_CHARS,
    MAX_VALUE_CHARS,
    allocated_key,
    allocated_labels,
    allocation_labels,
    allocation_text,
    bad_key,
    fits_labels,
    inventory_keys,
    inventory_labels,
    inventory_problem,
    inventory_text,
    label_room,
    where_listed,
)
from gangsched.model.text.names import is_label_value, is_qualified_name

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"

ids = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_]{0,8}[A-Za-z0-9])?", fullmatch=True)
words = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
names = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)
resources = st.builds(
    lambda domain, name: f"{'.'.join(domain)}/{name}", st.lists(words, min_size=1, max_size=4), names
)
sets = st.lists(ids, unique=True, max_size=8).filter(lambda some: len(".".join(some)) <= MAX_VALUE_CHARS)
inventories = st.dictionaries(
    resources,
    st.tuples(sets, st.integers(0, 255)).map(
        lambda drawn: [
            Device(one, "Unhealthy" if drawn[1] >> k & 1 else "Healthy") for k, one in enumerate(drawn[0])
        ]
    ),
    max_size=4,
)
allocations = st.dictionaries(
    words, st.dictionaries(resources, sets.filter(bool).map(tuple), min_size=1, max_size=3), max_size=3
)


@given(inventories)
def test_a_nodes_list_comes_back_as_it_was_with_its_health(listed: dict[str, list[Device]]) -> None:
    labels = inventory_labels(listed)
    assert all(not inventory_problem(name, [one.id for one in some]) for name, some in listed.items())
    assert all(is_qualified_name(key) and is_label_value(value) for key, value in labels.items())
    others = {"kubernetes.io/hostname": "n0", "gpu.nvidia.com.visible-devices.gangsched.io/c": "x"}
    text = inventory_text({"a": "b"}, {**others, **labels})
    assert (text is None) == (not listed)
    assert text is None or parse_devices(text) == listed
    assert inventory_keys({**others, **labels}) == sorted(labels)


@given(allocations)
def test_an_allocation_comes_back_as_it_was(allocation: dict[str, dict[str, tuple[str, ...]]]) -> None:
    labels = allocation_labels(allocation)
    assert fits_labels(allocation)
    assert all(is_qualified_name(key) and is_label_value(value) for key, value in labels.items())
    text = allocation_text(None, {"app": "x", **labels})
    assert parse_allocation(text or "{}") == allocation
    assert allocated_labels({"app": "x", **labels}) == labels


@given(st.lists(ids, unique=True, max_size=40))
def test_a_labels_room_is_kept_whichever_devices_are_taken(some: list[str]) -> None:
    room = label_room(some)
    longest = sorted(some, key=len, reverse=True)
    assert len(".".join(longest[:room])) <= MAX_VALUE_CHARS
    assert room == len(some) or len(".".join(longest[: room + 1])) > MAX_VALUE_CHARS


def test_what_a_node_and_a_pod_look_like() -> None:
    listed = {GPU: [Device("g0"), Device("g1", "Unhealthy"), Device("g2")], MIG: [Device("m_0")]}
    assert inventory_labels(listed) == {
        "nvidia.com.devices.gangsched.io/gpu": "g0.g1.g2",
        "nvidia.com.unhealthy-devices.gangsched.io/gpu": "g1",
        "nvidia.com.devices.gangsched.io/mig-1g.5gb": "m_0",
    }
    assert allocation_labels({"trainer": {GPU: ("g0", "g2")}, "side": {MIG: ("m_0",)}}) == {
        "trainer.nvidia.com.allocated-devices.gangsched.io/gpu": "g0.g2",
        "side.nvidia.com.allocated-devices.gangsched.io/mig-1g.5gb": "m_0",
    }


def test_where_both_are_there_the_annotation_counts() -> None:
    text = inventory_annotation({GPU: [Device("a", numa=1)]})
    assert inventory_text({INVENTORY_KEY: text}, inventory_labels({GPU: [Device("b")]})) == text
    given_text = '{"main":{"nvidia.com/gpu":["a"]}}'
    labels = allocation_labels({"main": {GPU: ("b",)}})
    assert allocation_text({ALLOCATED_KEY: given_text}, labels) == given_text
    assert inventory_text({}, None) is None is allocation_text(None, {"app": "x"})


def test_a_resource_without_devices_stays_listed() -> None:
    labels = inventory_labels({GPU: []})
    assert labels == {"nvidia.com.devices.gangsched.io/gpu": ""}
    assert parse_inventory(inventory_text(None, labels) or "")[GPU].ids == ()


def test_what_only_the_second_label_names_is_listed_and_unhealthy() -> None:
    """Somebody wrote one of the two by hand: a device that may be sick is given to nobody."""
    text = inventory_text(None, {"x.io.unhealthy-devices.gangsched.io/a": "1.2"})
    assert parse_devices(text or "") == {"x.io/a": [Device("1", "Unhealthy"), Device("2", "Unhealthy")]}


@pytest.mark.parametrize("value", ["a..b", "a.b.a"])
def test_labels_that_list_nonsense_are_refused_as_the_annotation_would_be(value: str) -> None:
    text = inventory_text(None, {"x.io.devices.gangsched.io/a": value})
    with pytest.raises(ParseError, match=r"x\.io/a"):
        parse_inventory(text or "")
    assert where_listed({}) == "label ….devices.gangsched.io/…"
    assert where_listed({INVENTORY_KEY: ""}) == INVENTORY_KEY


def test_eight_short_ids_fit_to_the_last_character() -> None:
    seven = [f"n1-gpu{k}" for k in range(8)]
    assert len(".".join(seven)) == MAX_VALUE_CHARS
    assert label_room(seven) == 8
    assert inventory_problem(GPU, seven) == ""


@pytest.mark.parametrize(
    ("some", "why"),
    [
        (
            [f"GPU-6f1c9a2e-{k:04}" for k in range(4)],
            "nvidia.com/gpu: 4 IDs joined by '.' have 71 characters, a label at most 63: for 4 devices IDs of"
            " at most 15 characters fit",
        ),
        ([str(k) for k in range(10, 50)], "no label is long enough, it holds 32 at most"),
        (["0000:3b:00"], "the ID '0000:3b:00' does not fit a label"),
        (["a.b"], "the ID 'a.b' does not fit a label"),
        (["-a"], "the first and the last a letter or a digit"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_limit_and_an_example(some: list[str], why: str) -> None:
    assert why in inventory_problem(GPU, some)
    assert label_room(some) < len(some)


def test_a_resource_of_which_no_key_can_be_made_is_refused() -> None:
    long = "a." * 108 + "io/gpu"
    assert bad_key(long) == ""
    assert bad_key(long, "trainer") != ""
    assert f"at most {MAX_PREFIX_CHARS}" in bad_key(long, "trainer")
    assert "does not make a label key" in inventory_problem("Not A Domain/gpu", ["a"])
    assert not fits_labels({"trainer": {long: ("a",)}})
    assert fits_labels({"trainer": {GPU: ("a",)}})


def test_the_key_is_what_a_field_ref_names() -> None:
    assert allocated_key(GPU, "main") == "main.nvidia.com.allocated-devices.gangsched.io/gpu"
    text = allocation_text(None, {allocated_key(GPU, "main"): "a.b"})
    assert json.loads(text or "") == {"main": {GPU: ["a", "b"]}}
