"""The two reserved device fields as labels, for sets of IDs that are short enough for a label's value.

| on | key | value |
|---|---|---|
| Node | `nvidia.com.devices.gangsched.io/gpu` | `g0.g1.g2`: what the node lists of nvidia.com/gpu, in order |
| Node | `nvidia.com.unhealthy-devices.gangsched.io/gpu` | `g2`: the unhealthy ones, never allocated |
| Pod | `main.nvidia.com.allocated-devices.gangsched.io/gpu` | `g0.g1`: what the container main has |

The key's prefix has the resource's domain (and the container, whose name has no dot). The key's name is the
resource's own name. IDs are joined by dots, so no ID may contain one. Both directions are exact. NUMA nodes,
models, memory and links do not fit. If an object has the annotation too, the annotation wins: it has more
detail.

Labels are converted to the text of the equivalent annotation, so code that compares or parses that text need
not know which of the two an object has. Called by all code that reads or writes the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import (
    ALLOCATED_KEY,
    INVENTORY_KEY,
    Allocation,
    Device,
    inventory_annotation,
    parse_allocation,
)
from gangsched.model.objects import Pod
from gangsched.model.text.names import is_qualified_name
from gangsched.model.text.printable import several

INVENTORY_SUFFIX = "devices.gangsched.io"
UNHEALTHY_SUFFIX = "unhealthy-devices.gangsched.io"
ALLOCATED_SUFFIX = "allocated-devices.gangsched.io"
"""The end of a key's prefix."""
SEPARATOR = "."
# apimachinery `pkg/api/validate/content` (label values) and `pkg/util/validation` (DNS-1123 subdomain).
MAX_VALUE_CHARS = 63
MAX_PREFIX_CHARS = 253

_ID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9])?")
_INVENTORY = f".{INVENTORY_SUFFIX}/"
_UNHEALTHY = f".{UNHEALTHY_SUFFIX}/"
_ALLOCATED = f".{ALLOCATED_SUFFIX}/"
_encode = msgspec.json.Encoder().encode
_NONE: Mapping[str, str] = {}


def inventory_text(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> str | None:
    """Returns a Node's list in the format of `gangsched.io/devices`; None without annotation and labels."""
    text = annotations.get(INVENTORY_KEY) if annotations else None
    if text is not None or not labels:
        return text
    labelled = tuple([(key, labels[key]) for key in inventory_keys(labels)])
    return _inventory_text(labelled) if labelled else None


def allocation_text(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> str | None:
    """Returns a Pod's devices in the format of `gangsched.io/allocated-devices`; None without both."""
    text = annotations.get(ALLOCATED_KEY) if annotations else None
    if text is not None or not labels:
        return text
    for key in labels:
        if _ALLOCATED in key:
            return _allocation_text(labels)
    return None


def inventory_labels(listed: Mapping[str, Iterable[Device]]) -> dict[str, str]:
    """Returns labels that list the devices and the unhealthy ones; check `inventory_problem` first."""
    labels: dict[str, str] = {}
    for resource, devices in listed.items():
        there = tuple(devices)
        labels[_key(resource, INVENTORY_SUFFIX)] = SEPARATOR.join([device.id for device in there])
        unhealthy = [device.id for device in there if device.health != "Healthy"]
        if unhealthy:
            labels[_key(resource, UNHEALTHY_SUFFIX)] = SEPARATOR.join(unhealthy)
    return labels


def allocation_labels(allocation: Allocation) -> dict[str, str]:
    """Returns the labels that carry an allocation in the Binding; check `label_room` and `bad_key` first."""
    return {
        allocated_key(resource, container): SEPARATOR.join(ids)
        for container, sets in allocation.items()
        for resource, ids in sets.items()
        if ids
    }


def fits_labels(allocation: Allocation) -> bool:
    """Whether labels can express the allocation."""
    return all(
        not bad_key(resource, container) and label_room(ids) >= len(ids)
        for container, sets in allocation.items()
        for resource, ids in sets.items()
    )


def allocated_key(resource: str, container: str) -> str:
    """The label with a container's devices of a resource, for selectors and an env `fieldRef`."""
    domain, _, name = resource.partition("/")
    return f"{container}.{domain}{_ALLOCATED}{name}"


def bad_key(resource: str, container: str = "") -> str:
    """Why this resource (in this container) has no label key; "" if it has one."""
    key = allocated_key(resource, container) if container else _key(resource, UNHEALTHY_SUFFIX)
    if is_qualified_name(key):
        return ""
    n_chars = len(key.partition("/")[0])
    if n_chars > MAX_PREFIX_CHARS:
        return f"{resource[:80]}: its label's prefix has {n_chars} characters, at most {MAX_PREFIX_CHARS}"
    return f"{resource[:80]!r} does not make a label key: it takes a domain in lower case, a slash and a name"


def label_room(ids: Iterable[str]) -> int:
    """Returns how many of these IDs fit one label, whichever are taken; 0: one ID alone does not fit."""
    n_chars = -len(SEPARATOR)
    room = 0
    for n in sorted([len(each) if _ID.fullmatch(each) else MAX_VALUE_CHARS + 1 for each in ids])[::-1]:
        n_chars += n + len(SEPARATOR)
        if n_chars > MAX_VALUE_CHARS:
            break
        room += 1
    return room


def inventory_problem(resource: str, ids: Sequence[str]) -> str:
    """Returns why a node's list of one resource does not fit labels, and what would; "" if it fits."""
    if problem := bad_key(resource):
        return problem
    for each in ids:
        if not _ID.fullmatch(each):
            return (
                f"{resource}: the ID {each[:80]!r} does not fit a label: letters, digits, - and _ only, the"
                " first and the last a letter or a digit"
            )
    n_chars = len(SEPARATOR.join(ids))
    if n_chars > MAX_VALUE_CHARS:
        return (
            f"{resource}: {len(ids)} IDs joined by {SEPARATOR!r} have {n_chars} characters, a label at most"
            f" {MAX_VALUE_CHARS}: for {len(ids)} devices {_fitting(len(ids))}"
        )
    return ""


def _fitting(n: int) -> str:
    longest = (MAX_VALUE_CHARS + 1) // n - 1
    if longest < 1:
        return f"no label is long enough, it holds {(MAX_VALUE_CHARS + 1) // 2} at most"
    return f"IDs of at most {several(longest, 'character')} fit"


def inventory_keys(labels: Mapping[str, str]) -> list[str]:
    """Returns the keys of a Node's labels that list devices."""
    return sorted(key for key in labels if _INVENTORY in key or _UNHEALTHY in key)


def allocated_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the labels of a Pod that list its devices."""
    return {key: value for key, value in (labels or _NONE).items() if _ALLOCATED in key}


def where_listed(annotations: Mapping[str, str] | None) -> str:
    """Returns whether the annotation or labels carry a Node's list, for an error message."""
    return INVENTORY_KEY if INVENTORY_KEY in (annotations or _NONE) else f"label …{_INVENTORY}…"


def _key(resource: str, suffix: str) -> str:
    domain, _, name = resource.partition("/")
    return f"{domain}.{suffix}/{name}"


def _ids(value: str) -> list[str]:
    return value.split(SEPARATOR) if value else []


@lru_cache(maxsize=8192)
def _inventory_text(labelled: tuple[tuple[str, str], ...]) -> str:
    listed: dict[str, list[str]] = {}
    unhealthy: dict[str, list[str]] = {}
    for key, value in labelled:
        prefix, _, name = key.partition("/")
        for suffix, found in ((INVENTORY_SUFFIX, listed), (UNHEALTHY_SUFFIX, unhealthy)):
            if prefix.endswith(f".{suffix}"):
                found[f"{prefix.removesuffix(f'.{suffix}')}/{name}"] = _ids(value)
    made: dict[str, list[Device]] = {}
    for resource in sorted({*listed, *unhealthy}):
        ids, sick = listed.get(resource, []), unhealthy.get(resource, [])
        made[resource] = [
            Device(each, "Unhealthy" if each in sick else "Healthy")
            for each in (*ids, *(i for i in sick if i not in ids))
        ]
    return inventory_annotation(made)


def _allocation_text(labels: Mapping[str, str]) -> str:
    allocation: dict[str, dict[str, list[str]]] = {}
    for key, value in sorted(labels.items()):
        prefix, _, name = key.partition("/")
        if prefix.endswith(f".{ALLOCATED_SUFFIX}"):
            container, _, domain = prefix.removesuffix(f".{ALLOCATED_SUFFIX}").partition(".")
            allocation.setdefault(container, {})[f"{domain}/{name}"] = _ids(value)
    return _encode(allocation).decode()


def allocation_of(pod: Pod) -> tuple[dict[str, dict[str, tuple[str, ...]]], str]:
    """Returns the devices in a bound pod's annotation or labels, and the problem with them ("": none)."""
    text = allocation_text(pod.metadata.annotations, pod.metadata.labels)
    if text is None:
        return {}, ""
    try:
        return parse_allocation(text), ""
    except ParseError as error:
        return {}, str(error)
