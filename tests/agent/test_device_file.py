"""A file of devices: what it may say, and what is said of one that cannot be used."""

from __future__ import annotations

import json

import pytest

from gangsched.agent.sources.device_file import parse_device_file
from gangsched.errors import ConfigError
from gangsched.model.devices.annotations import Device

GPU = "nvidia.com/gpu"


def test_a_file_says_what_the_annotation_says() -> None:
    text = (
        '{"nvidia.com/gpu":[{"id":"GPU-6f1c","health":"Unhealthy","numa":0,"model":"H100","memoryMiB":81559,'
        '"links":{"GPU-9a2e":"NV18"}},{"id":"GPU-9a2e"}],"example.com/fpga":[]}'
    )
    assert parse_device_file(text) == {
        GPU: (
            Device("GPU-6f1c", "Unhealthy", 0, "H100", 81559, {"GPU-9a2e": "NV18"}),
            Device("GPU-9a2e"),
        ),
        "example.com/fpga": (),
    }


def one(**device: object) -> str:
    return json.dumps({GPU: [{"id": "ok"}, device]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON: line 1, column 1"),
        ('{"a/b": [\n{"id": "x",}\n]}', "is not JSON: line 2, column"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "is a list, not lists of devices by resource"),
        ('{"cpu": []}', "cpu: is not an extended resource"),
        ('{"a/b": {}}', "a/b: is an object, not a list of devices"),
        ('{"a/b": [], "a/b": []}', "a/b: is given twice"),
        ('{"a/b": [{"id": "x", "id": "y"}]}', "id: is given twice"),
        ('{"a/b": [{}]}', r"a/b\[0\]: object missing required field id"),
        ('{"a/b": ["x"]}', r"a/b\[0\]: 'x' is not a mapping"),
        (one(id=1), r'nvidia.com/gpu\[1\].id: 1 is not text; write "1", in quotes'),
        (one(id="x", memoryMib=1), r"gpu\[1\].memoryMib: unknown field; did you mean memoryMiB\?"),
        (one(id="x", memoryMiB="80 GB"), r"gpu\[1\].memoryMiB: '80 GB' is not a whole number"),
        (one(id="x", memoryMiB=-1), r"gpu\[1\].memoryMiB: -1 is less than nothing"),
        (one(id="x", numa=-2), r"gpu\[1\].numa: -2 is not a NUMA node; leave it out"),
        (one(id="x", health="healthy"), r"gpu\[1\].health: 'healthy' is neither .* did you mean Healthy\?"),
        (one(id="x", links={"y": 1}), r"gpu\[1\].links"),
        (one(id="ok"), r"gpu\[1\].id: 'ok' is nvidia.com/gpu\[0\] already"),
        (one(id=""), r"gpu\[1\].id: '' has 0 characters"),
        (one(id="x" * 64), r"gpu\[1\].id: .* has 64 characters: kubelet's limit for a device ID is 63"),
        (one(id="a,b"), r"gpu\[1\].id: 'a,b' cannot be in a list with commas"),
        (one(id="a\nb"), r"gpu\[1\].id: 'a\\nb' cannot be in a list"),
        (one(id="../../etc"), r"gpu\[1\].id: '../../etc' would lead out of the directory"),
        (one(id="a/.."), r"gpu\[1\].id: 'a/..' would lead out"),
        (json.dumps({GPU: [{"id": str(i)} for i in range(4097)]}), "lists 4097 devices, at most 4096"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_are_named_with_their_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_device_file(text)


def test_half_of_a_character_is_a_mistake_as_any_other() -> None:
    """JSON can write it; no encoding of text has it."""
    with pytest.raises(ConfigError, match="half of a character") as caught:
        parse_device_file('{"nvidia.com/gpu": ["\\ud800"]}')
    assert caught.value.path == "nvidia.com/gpu[0]"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a/b": [{"id": "x", "model": "\\ud800"}]}', "a/b[0].model"),
        ('{"a/b": [{"id": "x", "links": {"\\ud800": "PIX"}}]}', "a/b[0].links"),
        ('{"a/b": [{"id": "x", "links": {"y": "\\udc00"}}]}', "a/b[0].links.y"),
        ('{"a/\\ud800": []}', ""),
        ('{"\\ud800": [], "\\ud800": []}', ""),
    ],
)
def test_half_of_a_character_is_a_mistake_wherever_a_text_may_be(text: str, path: str) -> None:
    """Else the agent would stop at writing it, and again at each start."""
    with pytest.raises(ConfigError, match="half of a character") as caught:
        parse_device_file(text)
    assert caught.value.path == path


def test_a_number_of_too_many_digits_is_a_mistake_as_any_other() -> None:
    with pytest.raises(ConfigError, match="has 5000 digits"):
        parse_device_file('{"a/b": [{"id": "x", "numa": ' + "9" * 5000 + "}]}")


@pytest.mark.parametrize("device_id", ["by-path/pci-0000:3b:00.0", "..a", "a..", "a/...", "."])
def test_an_id_may_look_like_a_path_that_stays_inside(device_id: str) -> None:
    assert parse_device_file(one(id=device_id))[GPU][1].id == device_id


def test_the_longest_id_is_taken() -> None:
    assert parse_device_file(json.dumps({GPU: [{"id": "x" * 63}]}))[GPU][0].id == "x" * 63
