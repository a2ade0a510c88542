"""The checkers' own reading of quantities, devices and gangs, against documents and against the parsers."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.lab.sim.objects import inventory, make_node, make_pod, make_pod_group
from gangsched.lab.sim.reading import documents as reading
from gangsched.model.devices import annotations as devices
from gangsched.model.devices import labels as device_labels
from gangsched.model.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from gangsched.model.pod_group import group_key
from gangsched.model.resources import pod_requests
from gangsched.model.stated.topology import TOPOLOGY_KEY, parse_topology
from gangsched.model.text import quantity


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("2", 2), ("500m", 1), ("1.5Gi", 3 * 2**29), ("1e3", 1000), ("1E", 10**18), ("7Ei", 7 * 2**60),
        ("99999999999E", 99999999999 * 10**18), (".5k", 500), ("1.", 1), ("-3", -3), ("1n", 1), ("0", 0),
    ],
)  # fmt: skip
def test_a_quantity_is_read_exactly(text: str, whole: int) -> None:
    assert reading.amount(text) == whole


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1/2", "1_0", "--1", "1e", "1e3m", "0x1", "inf", "nan", "٣", "1KI"]
)
def test_what_is_no_quantity_is_read_as_none(text: str) -> None:
    assert reading.amount(text) is None
    with pytest.raises(ParseError):
        quantity.to_int(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    number=st.one_of(st.integers(-1000, 10**12).map(str), st.decimals(0, 10**6, places=3).map(str)),
    suffix=st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e0", "e3", "E-2"]),
)
def test_both_readings_of_a_quantity_agree(number: str, suffix: str) -> None:
    text = number + suffix
    for ours, theirs in (
        (reading.amount(text), quantity.to_int(text)),
        (reading.amount(text, milli=True), quantity.to_milli(text)),
    ):
        assert ours is not None
        assert ours == theirs or (reading.is_vast(ours) and reading.is_vast(theirs))


_asked = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9), max_size=3)
_container = st.builds(
    lambda name, requests, limits, always: Container(
        name=name,
        resources=ResourceRequirements(requests=requests, limits=limits),
        restart_policy="Always" if always else None,
    ),
    st.sampled_from("abc"), _asked, _asked, st.booleans(),
)  # fmt: skip


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    containers=st.lists(_container, min_size=1, max_size=3),
    init=st.lists(_container, max_size=4),
    overhead=_asked,
    whole=st.none() | _asked,
)
def test_both_readings_of_what_a_pod_asks_for_agree(
    containers: list[Container],
    init: list[Container],
    overhead: dict[str, str | int | float],
    whole: dict[str, str | int | float] | None,
) -> None:
    resources = ResourceRequirements(requests=whole) if whole is not None else None
    spec = PodSpec(containers=containers, init_containers=init, overhead=overhead, resources=resources)
    assert reading.pod_asks(spec) == pod_requests(spec)


def test_a_pod_of_which_nothing_can_be_read_is_one_pod() -> None:
    assert reading.pod_asks(make_pod("p", cpu="garbage").spec) == {"pods": 1}
    assert reading.pod_asks(make_pod("p", cpu="-1").spec) == {"pods": 1}


def _labels(resource: str, listed: str) -> dict[str, str]:
    return device_labels.inventory_labels({resource: devices.parse_devices(listed)[resource]})


@pytest.mark.parametrize("unhealthy", [(), (1,), (0, 3)])
def test_healthy_ids_are_read_from_annotations_and_labels(unhealthy: tuple[int, ...]) -> None:
    text = inventory("n", 4, unhealthy=unhealthy)
    parsed = devices.parse_inventory(text)["nvidia.com/gpu"]
    expected = {"nvidia.com/gpu": frozenset(parsed.ids_of(parsed.healthy))}
    node = make_node("n", gpus=4, annotations={devices.INVENTORY_KEY: text})
    assert reading.healthy_ids(node) == expected
    meta = ObjectMeta(name="n", labels=_labels("nvidia.com/gpu", text))
    assert reading.healthy_ids(msgspec.structs.replace(node, metadata=meta)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "null", '{"cpu":[]}', '{"a.b/c":{}}', '{"a.b/c":[{"id":""}]}', '{"a.b/c":[{"id":1}]}',
        '{"a.b/c":[{"id":"x"},{"id":"x"}]}', '{"a.b/c":[{"id":"x","numa":"1"}]}',
        '{"a.b/c":[{"health":"Healthy"}]}',
        '{"a.b/c":[{"id":"x","links":[]}]}', '{"a.b/c":[{"id":"' + "x" * 64 + '"}]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_an_unreadable_list_of_devices_is_rejected_by_both_parsers(text: str) -> None:
    assert reading.healthy_ids(make_node("n", annotations={devices.INVENTORY_KEY: text})) is None
    with pytest.raises(ParseError):
        devices.parse_inventory(text)


def test_given_devices_are_read_from_annotations_and_labels() -> None:
    allocation: devices.Allocation = {
        "main": {"nvidia.com/gpu": ("a", "b")},
        "side": {"nvidia.com/gpu": ("c",)},
    }
    expected = {"nvidia.com/gpu": frozenset("abc")}
    assert reading.ids_in(devices.allocation_annotations(allocation)) == expected
    assert reading.ids_in({}, device_labels.allocation_labels(allocation)) == expected
    assert reading.given({devices.ALLOCATED_KEY: "[]"}) is None


_name = st.sampled_from(["", "a", "b"])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    labels=st.dictionaries(
        st.sampled_from(
            [
                "gangsched.io/pod-group",
                "scheduling.x-k8s.io/pod-group",
                "pod-group.scheduling.sigs.k8s.io",
                "pod-group.scheduling.sigs.k8s.io/name",
                "yunikorn.apache.org/app-id",
                "applicationId",
                "spark-app-selector",
            ]
        ),
        _name,
    ),
    annotations=st.dictionaries(
        st.sampled_from(
            [
                "scheduling.k8s.io/group-name",
                "scheduling.volcano.sh/group-name",
                "pod-group-name",
                "gang.scheduling.koordinator.sh/name",
                "yunikorn.apache.org/app-id",
                "yunikorn.apache.org/task-groups",
                "yunikorn.apache.org/task-group-name",
            ]
        ),
        _name,
        max_size=3,
    ),
)
def test_both_readings_of_a_pods_gang_agree(labels: dict[str, str], annotations: dict[str, str]) -> None:
    pod = Pod(metadata=ObjectMeta(name="p", namespace="d", uid="u", labels=labels, annotations=annotations))
    found = reading.gang_of(pod)
    try:
        key = group_key(pod)
    except ParseError:
        assert found is None
    else:
        assert found is not None
        assert tuple(found) == tuple(key)


def test_vast_amounts_are_vast() -> None:
    assert reading.is_vast(int(Fraction(2) ** 50))
    assert not reading.is_vast(10**15)


@pytest.mark.parametrize(
    "text",
    [
        "required: example.com/rack",
        "required: example.com/block, preferred: example.com/rack",
        "preferred: rack",
        " required :  a , required:b,preferred: c ",
    ],
)
def test_both_readings_of_what_a_gang_requires_agree(text: str) -> None:
    pod = make_pod("a", annotations={TOPOLOGY_KEY: text})
    required = [level.key for level in parse_topology(text) if level.required]
    assert list(reading.required_labels(pod, None)) == required
    constraints = {"topology": [{"key": "example.com/zone"}]}
    item = make_pod_group("g", spec={"schedulingConstraints": constraints})
    assert list(reading.required_labels(pod, item)) == [*required, "example.com/zone"]
