"""Topology: the node labels whose value a gang's members must, or should, share.

Lives here: reading it, from the annotation `gangsched.io/topology` of pods and PodGroups and from
`spec.schedulingConstraints` of the core API's PodGroup. Not here: placing by it
(core.cycle.domains.topology). Source of the core API's field: KEP-5732; scheduling.k8s.io/v1beta1, PodGroup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gangsched.errors import ParseError
from gangsched.model.text.names import is_qualified_name

TOPOLOGY_KEY = "gangsched.io/topology"
CONSTRAINTS_FIELD = "spec.schedulingConstraints"

MAX_LEVELS = 8
"""Data centre, zone, block, row, rack, host: more is unusual, and each costs a pass over the nodes."""
# A label's key has at most 253 + 1 + 63 characters.
_MAX_TEXT = MAX_LEVELS * 400
_LEVEL = re.compile(r"\s*(required|preferred)\s*:\s*(\S+)\s*")
_EXAMPLE = "'required: topology.example.com/block, preferred: topology.example.com/rack'"


class TopologyLevel(msgspec.Struct, frozen=True, gc=False):
    """One node label. required: all members go to nodes with one value of it; else to nodes with as few
    values as possible.
    """

    key: str
    required: bool = True


Topology = tuple[TopologyLevel, ...]
"""From the widest level to the narrowest; (): no constraint."""


def annotated_topology(annotations: Mapping[str, str] | None) -> Topology:
    """Reads the topology in the annotations of a pod or a PodGroup. Raises: ParseError."""
    text = annotations.get(TOPOLOGY_KEY) if annotations else None
    return () if text is None else parse_topology(text)


@lru_cache(maxsize=256)
def parse_topology(text: str) -> Topology:
    """Parses the annotation: levels separated by commas, the widest first. Raises: ParseError."""
    if len(text) > _MAX_TEXT:
        raise ParseError(
            f"{len(text)} characters; at most {_MAX_TEXT} may describe the topology", field=TOPOLOGY_KEY
        )
    levels = []
    for part in text.split(","):
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise ParseError(
                f"{part.strip()[:80]!r} is not a level of topology; levels are written as {_EXAMPLE}, "
                "the widest first",
                field=TOPOLOGY_KEY,
            )
        levels.append(TopologyLevel(_label_key(match[2], TOPOLOGY_KEY), match[1] == "required"))
    return _checked(levels, TOPOLOGY_KEY)


def parse_constraints(spec: Mapping[str, Any]) -> Topology:
    """Reads a core PodGroup's `spec.schedulingConstraints`. Raises: ParseError, also for an unknown
    constraint: ignoring it would break what the pods' user relies on.
    """
    constraints = spec.get("schedulingConstraints")
    if constraints is None:
        return ()
    if not isinstance(constraints, dict):
        raise ParseError("is not an object", field=CONSTRAINTS_FIELD)
    for name in constraints:
        if name != "topology":
            raise ParseError("is not supported", field=f"{CONSTRAINTS_FIELD}.{name[:80]}")
    field = f"{CONSTRAINTS_FIELD}.topology"
    listed = constraints.get("topology") or []
    if not isinstance(listed, list):
        raise ParseError("is not a list", field=field)
    levels = []
    for i, one in enumerate(listed[: MAX_LEVELS + 1]):
        if not isinstance(one, dict) or not isinstance(one.get("key"), str):
            raise ParseError("is not an object with a key", field=f"{field}[{i}]")
        for name in one:
            if name != "key":
                raise ParseError("is not supported", field=f"{field}[{i}].{name[:80]}")
        levels.append(TopologyLevel(_label_key(one["key"], f"{field}[{i}].key")))
    return _checked(levels, field)


def both(first: Topology, second: Topology) -> Topology:
    """Returns the union of two topologies; a label in both is required if either requires it."""
    required = {level.key for level in (*first, *second) if level.required}
    keys = dict.fromkeys(level.key for level in (*first, *second))
    return tuple(TopologyLevel(key, key in required) for key in keys)


def topology_level(text: object, field: str, *, required: bool) -> TopologyLevel:
    """Returns the level of a label key read from `field`. Raises: ParseError, naming the field."""
    return TopologyLevel(_label_key(text if isinstance(text, str) else "", field), required)


def _label_key(text: str, field: str) -> str:
    if not is_qualified_name(text):
        raise ParseError(f"{text[:80]!r} is not a label key such as topology.example.com/rack", field=field)
    return text


def _checked(levels: Iterable[TopologyLevel], field: str) -> Topology:
    found = tuple(levels)
    if len(found) > MAX_LEVELS:
        raise ParseError(f"more than {MAX_LEVELS} levels", field=field)
    keys: dict[str, None] = {}
    for level in found:
        if level.key in keys:
            raise ParseError(f"{level.key[:80]!r} is named twice", field=field)
        keys[level.key] = None
    return found
