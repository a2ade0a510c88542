"""What a node sees of the published devices: slices that reach it, put together to pools.

Of Kubernetes' `structured/internal/incubating/pools_incubating.go`, for the judge; it makes nothing faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.resource_claims.cases import Case, Object

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class Published:
    """A device with its slice's spec. here: it reaches the node."""

    id: DeviceId
    device: Object
    slice: Object
    here: bool


@dataclass(slots=True)
class Pool:
    """A pool as one node sees it; `why` it gives nothing, if so."""

    why: str = ""
    devices: list[Published] = field(default_factory=list)
    """In slices that reach the node, in the order in which Kubernetes takes them."""
    elsewhere: list[Published] = field(default_factory=list)
    """In the pool's other slices, as far as these had to be looked at."""
    counters: dict[tuple[str, str], str] = field(default_factory=dict)
    """By set and name."""


def pools(case: Case, node: str) -> dict[tuple[str, str], Pool]:
    """Those with a slice that reaches the node, by driver and name."""
    [of_node] = [one for one in case["nodes"] if one["metadata"]["name"] == node]
    found: dict[tuple[str, str], Pool] = {}
    specs = [(one["metadata"]["name"], _tainted(case, one["spec"])) for one in case["slices"]]
    for key in {_key(spec) for _, spec in specs if _reaches(spec, of_node)}:
        of_pool = [(name, spec) for name, spec in specs if _key(spec) == key]
        pool = _pool(key, of_pool, of_node)
        if pool is not None:
            found[key] = pool
    return found


def _key(spec: Object) -> tuple[str, str]:
    return spec["driver"], spec["pool"]["name"]


def _pool(key: tuple[str, str], of_pool: Sequence[tuple[str, Object]], node: Object) -> Pool | None:
    reaching = [one for one in of_pool if _reaches(one[1], node)]
    generation = max(spec["pool"]["generation"] for _, spec in reaching)
    reaching = [one for one in reaching if one[1]["pool"]["generation"] == generation]
    others: list[tuple[str, Object]] = []
    # Those of node names come first.
    count = sorted(reaching, key=lambda one: "nodeName" not in one[1])[0][1]["pool"]["resourceSliceCount"]
    if len(reaching) != count:
        if any(spec["pool"]["generation"] > generation for _, spec in of_pool):
            return None
        same = [one for one in of_pool if one[1]["pool"]["generation"] == generation]
        if len(same) != count:
            return Pool(why=f"pool {key} is incomplete")
        others = [one for one in same if one not in reaching]
    pool = Pool()
    sets: Counter[str] = Counter()
    for _, spec in (*reaching, *others):
        for one in spec.get("sharedCounters", ()):
            sets[one["name"]] += 1
            pool.counters |= {
                (one["name"], name): counter["value"] for name, counter in one["counters"].items()
            }
    pool.devices = [
        one for _, spec in sorted(reaching, key=lambda one: one[0]) for one in _devices(key, spec, node)
    ]
    pool.elsewhere = [one for _, spec in others for one in _devices(key, spec, node)]
    names = Counter(one.id for one in pool.devices)
    unknown = [
        one.id
        for one in (*pool.devices, *pool.elsewhere)
        for consumed in one.device.get("consumesCounters", ())
        for name in consumed["counters"]
        if (consumed["counterSet"], name) not in pool.counters
    ]
    if max(names.values(), default=0) > 1 or max(sets.values(), default=0) > 1 or unknown:
        return Pool(why=f"pool {key} is invalid")
    return pool


def _devices(key: tuple[str, str], spec: Object, node: Object) -> Iterator[Published]:
    if spec.get("sharedCounters"):
        return
    for device in spec.get("devices", ()):
        place = device if spec.get("perDeviceNodeSelection") else spec
        yield Published((*key, device["name"]), device, spec, here=_at(place, node))


def _reaches(spec: Object, node: Object) -> bool:
    if spec.get("perDeviceNodeSelection"):
        return any(_at(device, node) for device in spec.get("devices", ()))
    return _at(spec, node)


def _at(place: Object, node: Object) -> bool:
    if name := place.get("nodeName"):
        return bool(name == node["metadata"]["name"])
    if place.get("allNodes"):
        return True
    terms = place.get("nodeSelector", {}).get("nodeSelectorTerms", ())
    return any(_matches(term, node) for term in terms)


def _matches(term: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels", {})
    fields = {"metadata.name": node["metadata"]["name"]}
    met = [_met(one, labels) for one in term.get("matchExpressions", ())]
    met += [_met(one, fields) for one in term.get("matchFields", ())]
    return bool(met) and all(met)


def _met(requirement: Object, labels: dict[str, str]) -> bool:
    value = labels.get(requirement["key"])
    match requirement["operator"]:
        case "In":
            return value in requirement["values"]
        case "NotIn":
            return value not in requirement["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    [bound] = requirement["values"]
    try:
        above = int(value or "none") - int(bound)
    except ValueError:
        return False
    return above > 0 if requirement["operator"] == "Gt" else above < 0


def _tainted(case: Case, spec: Object) -> Object:
    """The spec with the taints of rules."""
    devices = [
        {**device, "taints": [*device.get("taints", ()), *_taints(case, spec, device)]}
        for device in spec.get("devices", ())
    ]
    return {**spec, "devices": devices} if devices else spec


def _taints(case: Case, spec: Object, device: Object) -> Iterator[Any]:
    is_of = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
    for rule in case["rules"]:
        selector = rule["spec"].get("deviceSelector")
        if selector is not None and selector.items() <= is_of.items():
            yield rule["spec"]["taint"]
