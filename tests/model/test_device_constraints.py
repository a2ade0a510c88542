"""gangsched.io/device-constraints: what users write, and what they are told when it is wrong."""

from __future__ import annotations

import pytest

from gangsched.errors import ParseError
from gangsched.model.devices.constraints import DeviceConstraint, parse_constraints
from gangsched.model.devices.links import link_weight

GPU = "nvidia.com/gpu"


def asked(text: str) -> DeviceConstraint:
    return parse_constraints(f'{{"{GPU}":{text}}}')[GPU]


def test_everything_that_can_be_asked() -> None:
    text = '{"sameNUMA":true,"linked":"NV4","model":["H200","H100"],"minMemory":"80Gi"}'
    assert asked(text) == DeviceConstraint(True, link_weight("NV4"), ("H100", "H200"), 81920)


def test_linked_is_any_nvlink() -> None:
    assert asked('{"linked":true}').link_weight == link_weight("NV1")
    assert asked('{"linked":"PIX"}').link_weight == link_weight("PIX") < link_weight("NV1")


def test_what_asks_for_nothing_is_no_constraint() -> None:
    assert parse_constraints(f'{{"{GPU}":{{}},"a.b/c":{{"linked":false,"sameNUMA":false}}}}') == {}


@pytest.mark.parametrize(
    ("wanted", "model", "is_one"),
    [
        ("H100", "H100", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100", "NVIDIA-H100-80GB", True),
        ("A10", "NVIDIA A100", False),
        ("A100", "NVIDIA A10", False),
        ("H100 NVL", "NVIDIA H100 PCIe", False),
        ("H100", "", False),
    ],
)
def test_a_model_is_named_by_whole_words(wanted: str, model: str, is_one: bool) -> None:
    assert asked(f'{{"model":"{wanted}"}}').admits(model, 0) is is_one


def test_memory_is_compared_in_full() -> None:
    constraint = asked('{"minMemory":"79Gi"}')
    assert constraint.described == "with at least 79Gi each"
    assert constraint.admits("", 81559)
    assert not constraint.admits("", 80895)
    assert not constraint.admits("", 0), "a device whose memory is not known does not have it"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not of the form"),
        ("[]", "is not of the form"),
        ('{"cpu":{"sameNUMA":true}}', "'cpu' is not an extended resource"),
        (f'{{"{GPU}":{{"sameNuma":true}}}}', "sameNuma.*what can be asked: sameNUMA, linked"),
        (f'{{"{GPU}":{{"sameNUMA":"yes"}}}}', "Expected `bool`, got `str`.*sameNUMA"),
        (f'{{"{GPU}":{{"linked":"NVLINK"}}}}', "'NVLINK' is not a kind of path.*NV4.*PIX"),
        (f'{{"{GPU}":{{"minMemory":80}}}}', 'minMemory: 80 has no unit; write it as "80Gi"'),
        (f'{{"{GPU}":{{"minMemory":"80 GB"}}}}', "minMemory: '80 GB' is not a quantity"),
        (f'{{"{GPU}":{{"minMemory":"-1Gi"}}}}', "not greater than 0"),
        (f'{{"{GPU}":{{"model":[]}}}}', "model: an empty name"),
        (f'{{"{GPU}":{{"model":["a"," "]}}}}', "model: an empty name"),
        (" " * 9000, "9000 characters"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(ParseError, match=says) as caught:
        parse_constraints(text)
    assert "gangsched.io/device-constraints" in str(caught.value)
