"""HAMi's and Volcano's registers, in the forms that their own sources and pages publish."""

from __future__ import annotations

import pytest

from gangsched.agent.sources.registers import (
    HAMI,
    HAMI_KEY,
    VOLCANO,
    VOLCANO_KEY,
    parse_hami,
    parse_volcano,
)
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import Device

# HAMi's protocol page (developers/protocol): two V100; a field that is zero is left out.
HAMI_JSON = (
    '[{"id":"GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec","count":10,"devmem":32768,"devcore":100,'
    '"type":"NVIDIA-Tesla V100-PCIE-32GB","numa":1,"mode":"hami-core","health":true},'
    '{"id":"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448","index":1,"count":10,"devmem":32768,"devcore":100,'
    '"type":"NVIDIA-Tesla V100-PCIE-32GB","mode":"hami-core"}]'
)
V100 = "NVIDIA-Tesla V100-PCIE-32GB"


def test_hami_as_it_writes_now() -> None:
    assert parse_hami(HAMI_JSON) == (
        Device("GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", "Healthy", 1, V100, 32768),
        Device("GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", "Unhealthy", 0, V100, 32768),
    )


def test_hami_as_it_wrote_before() -> None:
    """EncodeNodeDevices: seven fields, and nine since there are index and mode."""
    text = (
        "GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:"
        "GPU-b,10,32768,100,NVIDIA-Tesla V100,1,false,1,hami-core:"
    )
    assert parse_hami(text) == (
        Device("GPU-a", "Healthy", 0, "NVIDIA-Tesla V100", 32768),
        Device("GPU-b", "Unhealthy", 1, "NVIDIA-Tesla V100", 32768),
    )


def test_volcano() -> None:
    """decodeNodeDevices: six fields; five before there was a mode."""
    text = "GPU-a,10,81559,NVIDIA-H100,true,hami-core:GPU-b,10,81559,NVIDIA-H100,false:"
    assert parse_volcano(text) == (
        Device("GPU-a", "Healthy", -1, "NVIDIA-H100", 81559),
        Device("GPU-b", "Unhealthy", -1, "NVIDIA-H100", 81559),
    )
    assert parse_volcano(HAMI_JSON) == parse_hami(HAMI_JSON)


def test_a_gpu_in_mig_mode_is_not_handed_out_whole() -> None:
    [device] = parse_hami('[{"id":"GPU-a","mode":"mig","health":true}]')
    assert device.health == "Unhealthy"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no entry"),
        ("[", "is not a list of devices"),
        ('[{"id":1}]', "is not a list of devices"),
        ('[{"count":1}]', "has 0 characters"),
        ("GPU-a:", "has 1 field; expected id,count,devmem"),
        ("GPU-a,1,2,3,T,0,true,1:", "has 8 fields"),
        ("GPU-a,1,much,3,T,0,true:", "devmem of 'GPU-a' is 'much', not a number"),
        ("GPU-a,1,2,3,T,zero,true:", "numa of 'GPU-a' is 'zero'"),
        ("GPU-a,1,2,3,T,0,yes:", "health of 'GPU-a' is 'yes', neither true nor false"),
        ("GPU-a,1,2,3,T,0,true:GPU-a,1,2,3,T,0,true:", "lists 'GPU-a' twice"),
        ("x" * 64 + ",1,2,3,T,0,true:", "has 64 characters"),
        ('[{"id":"../../..","health":true}]', "would lead out of the directory"),
    ],
)
def test_what_hami_never_writes_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        parse_hami(text)


def test_what_volcano_never_writes_is_refused() -> None:
    with pytest.raises(ParseError, match="has 4 fields; expected id,count,devmem,type,health"):
        parse_volcano("GPU-a,1,2,T:")


def test_a_register_says_what_is_on_the_node() -> None:
    assert HAMI.report({}).looked == "annotation hami.io/node-nvidia-register: not on the node"
    found = HAMI.report({HAMI_KEY: HAMI_JSON})
    assert len(found.places[0].listed["nvidia.com/gpu"]) == 2
    broken = HAMI.report({HAMI_KEY: "x"})
    assert not broken.whole
    assert broken.problems[0].startswith("annotation hami.io/node-nvidia-register: ")
    volcano = VOLCANO.report({VOLCANO_KEY: "GPU-a,10,81559,NVIDIA-H100,true:"})
    assert list(volcano.places[0].listed) == ["volcano.sh/vgpu-number"]
