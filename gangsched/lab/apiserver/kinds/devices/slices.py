"""Slices: the devices that a driver has, on a node or reachable from several.

Not here: one device of a slice (slice_devices.py). That the slices of a pool fit together (generations,
their number, names used twice) is nobody's to check but the allocator's.
Source: pkg/registry/resource/resourceslice, validateResourceSliceSpec of
pkg/apis/resource/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules.affinity_validation import node_selector
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, invalid_value, required
from gangsched.lab.apiserver.kinds.devices import rules, slice_devices
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

MAX_DEVICES = 128
MAX_DEVICES_WITH_MORE = 64
MAX_COUNTER_SETS = 8
_FIELDS = ("spec.nodeName", "spec.driver", "spec.pool.name")
_PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_ONE_PLACE = f"exactly one of {', '.join(f'`{each}`' for each in _PLACES)} is required"
# Alpha: what a node may skip, and which attribute names the type of a partition.
_GATED = ("skipNodeOperations", "partitionTypeAttribute")


class SliceStrategy(Strategy):
    """ResourceSlices."""

    has_generation = True
    returns_deleted = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        spec = obj["spec"] = obj.get("spec") or {}
        spec["driver"] = driver = spec.get("driver") or ""
        pool = spec["pool"] = spec.get("pool") or {}
        for key, value in (("name", ""), ("generation", 0), ("resourceSliceCount", 0)):
            pool.setdefault(key, value)
        for key in _GATED:
            spec.pop(key, None)
        for device in spec.get("devices") or ():
            slice_devices.default(device, context)
        for counter_set in spec.get("sharedCounters") or ():
            counter_set.setdefault("name", "")
            slice_devices.default_counters(counter_set)
        if driver != driver.lower():
            shown = f'"{driver}" contains uppercase characters'
            context.warn(f"spec.driver: driver names should be lowercase; {shown}")

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        spec, before = new["spec"], old["spec"] if old else None
        problems = rules.driver("spec.driver", spec["driver"]) + _pool(spec["pool"])
        if before is not None:
            problems += _fixed(spec, before)
        problems += _place(spec)
        if "sharedCounters" in spec and "devices" in spec:
            says = "only one of `sharedCounters` or `devices` is allowed"
            problems.append(invalid_value("spec", "", says))
        problems += _devices(spec, before or {})
        sets = spec.get("sharedCounters") or ()
        problems += rules.each("spec.sharedCounters", sets, MAX_COUNTER_SETS, _counter_set)
        if len(sets) <= MAX_COUNTER_SETS:
            problems += rules.unique(
                "spec.sharedCounters",
                sets,
                lambda one: one.get("name") or "",
                lambda one: rules.in_order(one, ("name", "counters")),
            )
        return rules.once(problems)

    def fields(self, obj: Object) -> dict[str, str]:
        spec = obj["spec"]
        values = (spec.get("nodeName") or "", spec["driver"], spec["pool"]["name"])
        return dict(zip(_FIELDS, values, strict=True))

    def field_names(self) -> tuple[str, ...]:
        return _FIELDS


def _pool(pool: Object) -> Problems:
    problems = rules.pool("spec.pool.name", pool["name"])
    count, generation = pool["resourceSliceCount"], pool["generation"]
    if count <= 0:
        at = "spec.pool.resourceSliceCount"
        problems.append(invalid_value(at, count, "must be greater than zero"))
    if generation < 0:
        at = "spec.pool.generation"
        problems.append(invalid_value(at, generation, "must be greater than or equal to zero"))
    return problems


def _fixed(spec: Object, before: Object) -> Problems:
    changed = (
        ("spec.pool.name", spec["pool"]["name"], before["pool"]["name"]),
        ("spec.driver", spec["driver"], before["driver"]),
        ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
    )
    return [rules.immutable(field, now) for field, now, was in changed if now != was]


def _place(spec: Object) -> Problems:
    problems: Problems = []
    given: list[str] = []
    if (name := spec.get("nodeName")) is not None:
        if name:
            given.append("`nodeName`")
            problems += rules.subdomain("spec.nodeName", name)
        else:
            says = "must be either unset or set to a non-empty string"
            problems.append(invalid_value("spec.nodeName", name, says))
    if (selector := spec.get("nodeSelector")) is not None:
        given.append("`nodeSelector`")
        problems += node_selector("spec.nodeSelector", selector)
        problems += _one_term(selector.get("nodeSelectorTerms") or [])
    for key in ("allNodes", "perDeviceNodeSelection"):
        if (value := spec.get(key)) is not None:
            if value:
                given.append(f"`{key}`")
            else:
                says = "must be either unset or set to true"
                problems.append(invalid_value(f"spec.{key}", value, says))
    if not given:
        problems.append(required("spec", _ONE_PLACE))
    elif len(given) > 1:
        says = f"{_ONE_PLACE}, but multiple fields are set"
        problems.append(invalid_value("spec", f"{{{', '.join(given)}}}", says))
    return problems


def _one_term(terms: list[Object]) -> Problems:
    if len(terms) == 1:
        return []
    at, says = "spec.nodeSelector.nodeSelectorTerms", "must have exactly one node selector term"
    if not terms:
        return [FieldProblem(at, "FieldValueInvalid", f"Invalid value: null: {says}")]
    shown = [
        {key: _printed(term.get(key[0].lower() + key[1:])) for key in ("MatchExpressions", "MatchFields")}
        for term in terms
    ]
    return [invalid_value(at, shown, says)]


def _printed(requirements: list[Object] | None) -> Any:
    """As Go prints the internal type."""
    if not requirements:
        return None
    return [
        {
            "Key": each.get("key") or "",
            "Operator": each.get("operator") or "",
            "Values": each.get("values") or None,
        }
        for each in requirements
    ]


def _devices(spec: Object, before: Object) -> Problems:
    devices = spec.get("devices") or []
    has_more = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    limit = MAX_DEVICES_WITH_MORE if has_more else MAX_DEVICES
    known = {each.get("name"): each for each in before.get("devices") or ()}
    each_chooses = bool(spec.get("perDeviceNodeSelection"))

    def device(field: str, found: Object) -> Problems:
        return slice_devices.problems_of(
            field, found, known.get(found.get("name")), each_chooses=each_chooses
        )

    problems = rules.each("spec.devices", devices, limit, device)
    if len(devices) <= limit:
        own = [each.get("name") or "" for each in devices]
        problems += rules.unique("spec.devices", own, lambda name: name)
    return problems


def _counter_set(field: str, found: Object) -> Problems:
    at, name = f"{field}.name", found.get("name") or ""
    problems = slice_devices.counter_name(at, name) if name else [required(at)]
    return problems + slice_devices.counters(f"{field}.counters", found.get("counters"))
