"""What an agent says of who has which device: the annotation there and back, and what is refused."""

from __future__ import annotations

import pytest

from gangsched.errors import ParseError
from gangsched.model.devices.report import DeviceReport, PodDevices, parse_report, report_annotation

GPU = "nvidia.com/gpu"
ONE = PodDevices("u1", "d", "w-0", {"main": {GPU: ("a", "b")}})
TWO = PodDevices("u2", "d", "w-1", {"main": {GPU: ("c",)}, "side": {GPU: ("d",)}})


def test_written_values_are_read_back() -> None:
    assert parse_report(report_annotation([GPU], [ONE, TWO])) == DeviceReport((GPU,), (ONE, TWO))
    assert parse_report(report_annotation([GPU], [])) == DeviceReport((GPU,), ())


def test_the_same_facts_give_the_same_bytes() -> None:
    turned = PodDevices("u1", "d", "w-0", {"main": {GPU: ("b", "a")}})
    assert report_annotation([GPU, "x/y"], [ONE, TWO]) == report_annotation(["x/y", GPU], [TWO, turned])


def test_containers_of_one_pod_may_share_a_device() -> None:
    """A plain init container's devices go on to the others."""
    shared = PodDevices("u1", "d", "w-0", {"init": {GPU: ("a",)}, "main": {GPU: ("a",)}})
    assert parse_report(report_annotation([GPU], [shared])).pods == (shared,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a report of devices"),
        ('{"pods":[{"uid":"u"}]}', "namespace"),
        ('{"pods":[{"uid":"","namespace":"d","name":"p","containers":{}}]}', "d/p has no uid"),
        (
            '{"pods":[{"uid":"u","namespace":"d","name":"p","containers":{"m":{"a/b":["x"]}}},'
            '{"uid":"v","namespace":"d","name":"q","containers":{"m":{"a/b":["x"]}}}]}',
            "x of a/b is reported for two pods, u and v",
        ),
        (
            '{"pods":[{"uid":"u","namespace":"d","name":"p","containers":{"m":{"a/b":[""]}}}]}',
            "'' is not a device ID",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        parse_report(text)
