"""Parses a JSON file of devices into the model's type; errors name the place and what would be correct.

The format is the annotation's own: {"resource": [{"id": …, "health": …, "numa": …, "model": …,
"memoryMiB": …, "links": {"id": "kind"}}]}. Pure: text in. Called by `files`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gangsched.agent.report.inventory import HEALTHY, UNHEALTHY
from gangsched.errors import ConfigError
from gangsched.model.devices.annotations import MAX_DEVICES, MAX_ID_LENGTH, Device
from gangsched.model.resources import is_extended
from gangsched.model.text import bounded
from gangsched.reading.strict import decode, join, nearest

# A node's annotations have 256 KiB in all; a larger file is not a device list.
MAX_FILE_BYTES = 2**20
_EXAMPLE = '{"example.com/fpga": [{"id": "fpga-0", "health": "Healthy"}]}'


def parse_device_file(text: str) -> dict[str, tuple[Device, ...]]:
    """Raises: ConfigError with the place in the file."""
    document = _json(text)
    _check_text(document, "")
    if not isinstance(document, dict):
        raise ConfigError(f"is {_kind(document)}, not lists of devices by resource, as {_EXAMPLE} is")
    for resource, devices in document.items():
        if not is_extended(resource):
            raise ConfigError(
                "is not an extended resource: it needs a domain of its own, as nvidia.com/gpu has",
                path=resource[:80],
            )
        if not isinstance(devices, list):
            raise ConfigError(f"is {_kind(devices)}, not a list of devices", path=resource)
    listed: dict[str, tuple[Device, ...]] = {}
    for resource, devices in document.items():
        # One by one: the decoder's error does not give the key of a mapping.
        listed[resource] = tuple(decode(Device, one, f"{resource}[{i}]") for i, one in enumerate(devices))
        _check(resource, listed[resource])
    return listed


def check_id(device_id: str) -> str:
    """Returns the problem with an ID, or ""."""
    if not device_id or len(device_id) > MAX_ID_LENGTH:
        return (
            f"{device_id[:80]!r} has {len(device_id)} characters: kubelet's limit for a device ID is"
            f" {MAX_ID_LENGTH}, and it needs one"
        )
    if "," in device_id or " " in device_id or not device_id.isprintable():
        return f"{device_id!r} cannot be in a list with commas between, in which pods get their IDs"
    if ".." in device_id.split("/"):
        return f"{device_id!r} would lead out of the directory of a path with {{id}} in it, as in `plugins`"
    return ""


def _check(resource: str, devices: Sequence[Device]) -> None:
    if len(devices) > MAX_DEVICES:
        raise ConfigError(f"lists {len(devices)} devices, at most {MAX_DEVICES}", path=resource)
    first: dict[str, int] = {}
    for i, device in enumerate(devices):
        path = f"{resource}[{i}]"
        problem = check_id(device.id)
        if problem:
            raise ConfigError(problem, path=f"{path}.id")
        if device.id in first:
            raise ConfigError(
                f"{device.id!r} is {resource}[{first[device.id]}] already; each device needs its own ID",
                path=f"{path}.id",
            )
        first[device.id] = i
        if device.health not in (HEALTHY, UNHEALTHY):
            hint = nearest(device.health, (HEALTHY, UNHEALTHY))
            raise ConfigError(
                f"{device.health!r} is neither {HEALTHY} nor {UNHEALTHY}{hint}", path=f"{path}.health"
            )
        if device.memory_mib < 0:
            raise ConfigError(f"{device.memory_mib} is less than nothing", path=f"{path}.memoryMiB")
        if device.numa < -1:
            raise ConfigError(
                f"{device.numa} is not a NUMA node; leave it out where it is not known", path=f"{path}.numa"
            )


def _json(text: str) -> Any:
    try:
        bounded.check(text, max_bytes=MAX_FILE_BYTES)
        return json.loads(text, object_pairs_hook=_each_once)
    except (bounded.TooLong, bounded.TooDeep) as error:
        raise ConfigError(f"{error}; expected {_EXAMPLE}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"is not JSON: {where}: {error.msg}; expected {_EXAMPLE}") from None
    except ValueError as error:  # Python's limit for the digits of a number
        raise ConfigError(f"is not JSON: {error}; expected {_EXAMPLE}") from None


def _check_text(value: object, path: str) -> None:
    """Raises: ConfigError for a lone surrogate, "\\ud800": it could neither be written nor logged."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError("a text in it has half of a character", path=path) from None
    elif isinstance(value, list):
        for i, one in enumerate(value):
            _check_text(one, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            _check_text(key, path)
            _check_text(one, join(path, key))


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            _check_text(key, "")
            raise ConfigError("is given twice", path=key)
        found[key] = value
    return found


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
