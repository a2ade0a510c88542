"""One device of a slice: attributes, capacity and how it may be shared, counters, taints, its node.

Called by slices.py. A capacity and taints that a device had before are not validated again, as there.
Source: validateDevice of pkg/apis/resource/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import ceil

from gangsched.api_rules import names
from gangsched.api_rules.affinity_validation import node_selector
from gangsched.api_rules.names import Problems, name_problems
from gangsched.api_rules.schema.quantities import quantity
from gangsched.api_rules.status import FieldProblem, duplicate_value, forbidden_field, invalid_value, required
from gangsched.lab.apiserver.kinds.devices import rules
from gangsched.lab.apiserver.strategy import Context, Object

MAX_ATTRIBUTES = 32
MAX_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_CONSUMED_SETS = 2
MAX_COUNTERS = 32
MAX_OPTIONS = 10
MAX_INT64 = 2**63 - 1

_KINDS = ("int", "bool", "string", "version")
_ALL_KINDS = ", ".join(f"`{each}`" for each in (*_KINDS, *(f"{each}s" for each in _KINDS)))
_IDENTIFIER = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-{_IDENTIFIER}(\.{_IDENTIFIER})*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?\Z",
    re.ASCII,
)
_SET_BY_SLICE = "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
_ONE_PLACE = f"exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when {_SET_BY_SLICE}"
# Alpha: lists as attributes, groups of partitions, and devices that stand for a node's CPU and memory.
_GATED = "nodeAllocatableResources"


def default(device: Object, context: Context) -> None:
    """Applies defaults, in place, and drops what is alpha."""
    device.pop(_GATED, None)
    for attribute in (device.get("attributes") or {}).values():
        for key in _KINDS:
            attribute.pop(f"{key}s", None)
    for capacity in (device.get("capacity") or {}).values():
        capacity.setdefault("value", "0")
        if (policy := capacity.get("requestPolicy")) is not None:
            policy.setdefault("default", None)
    for consumed in device.get("consumesCounters") or ():
        consumed.pop("compatibilityGroups", None)
        default_counters(consumed)
    for taint in device.get("taints") or ():
        rules.without_empty(taint, ("value",))
        taint.setdefault("timeAdded", context.timestamp())


def default_counters(holder: Object) -> None:
    for counter in (holder.get("counters") or {}).values():
        counter.setdefault("value", "0")


def problems_of(field: str, device: Object, before: Object | None, *, each_chooses: bool) -> Problems:
    """`each_chooses`: the slice leaves it to its devices which nodes reach them."""
    before = before or {}
    problems = names.label(f"{field}.name", device.get("name") or "")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (total := len(attributes) + len(capacity)) > MAX_ATTRIBUTES:
        says = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        problems.append(invalid_value(field, total, says))
    for name, attribute in attributes.items():
        problems += rules.attribute_name(f"{field}.attributes", name)
        problems += _attribute(f"{field}.attributes[{name}]", attribute)
    if capacity != before.get("capacity"):
        shared = bool(device.get("allowMultipleAllocations"))
        for name, amount in capacity.items():
            problems += rules.attribute_name(f"{field}.capacity", name)
            problems += _capacity(f"{field}.capacity[{name}].requestPolicy", amount, shared=shared)
    if device.get("taints") != before.get("taints"):
        problems += rules.each(f"{field}.taints", device.get("taints"), MAX_TAINTS, rules.taint)
    problems += _consumed(f"{field}.consumesCounters", device.get("consumesCounters") or [])
    problems += _place(field, device, each_chooses=each_chooses)
    return problems + rules.binding_conditions(field, device)


def counters(field: str, found: Object | None) -> Problems:
    """A set's counters by name; any amount is valid."""
    if not found:
        return [required(field)]
    if len(found) > MAX_COUNTERS:
        return rules.too_many(field, len(found), MAX_COUNTERS)
    return [problem for name in found for problem in counter_name(field, name)]


def counter_name(field: str, name: str) -> Problems:
    return [invalid_value(field, name, says) for says in name_problems(name, "label", "bytes")]


def _attribute(field: str, attribute: Object) -> Problems:
    given = [key for key in _KINDS if attribute.get(key) is not None]
    problems: Problems = []
    if "version" in given and not _SEMVER.match(attribute["version"]):
        says = "must be a string compatible with semver.org spec 2.0.0"
        problems.append(invalid_value(f"{field}.version", attribute["version"], says))
    problems += [
        rules.too_long(f"{field}.{key}", MAX_VALUE_BYTES)
        for key in ("string", "version")
        if key in given and len(attribute[key].encode()) > MAX_VALUE_BYTES
    ]
    if not given:
        problems.append(invalid_value(field, "", f"must specify one of: {_ALL_KINDS}"))
    elif len(given) > 1:
        says = f"must specify exactly one of: {_ALL_KINDS}"
        problems.append(invalid_value(field, f"{{{', '.join(given)}}}", says))
    return problems


def _consumed(field: str, found: list[Object]) -> Problems:
    if len(found) > MAX_CONSUMED_SETS:
        return rules.too_many(field, len(found), MAX_CONSUMED_SETS)
    problems: Problems = []
    for index, one in enumerate(found):
        at, name = f"{field}[{index}].counterSet", one.get("counterSet") or ""
        problems += counter_name(at, name) if name else [required(at)]
        problems += counters(f"{field}[{index}].counters", one.get("counters"))
    return problems + rules.unique(
        field,
        found,
        lambda one: one.get("counterSet") or "",
        lambda one: rules.in_order(one, ("counterSet", "counters")),
    )


def _place(field: str, device: Object, *, each_chooses: bool) -> Problems:
    name, selector, everywhere = (device.get(key) for key in ("nodeName", "nodeSelector", "allNodes"))
    if not each_chooses:
        if name is None and selector is None and everywhere is None:
            return []
        says = f"`nodeName`, `nodeSelector` and `allNodes` can only be set if {_SET_BY_SLICE}"
        return [FieldProblem(field, "FieldValueInvalid", f"Invalid value: null: {says}")]
    problems: Problems = []
    given: list[str] = []
    if name:
        given.append("`nodeName`")
        problems += rules.subdomain(f"{field}.nodeName", name)
    elif name is not None:
        problems.append(invalid_value(f"{field}.nodeName", name, "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        problems += node_selector(f"{field}.nodeSelector", selector)
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        says = "must be either unset or set to true"
        problems.append(invalid_value(f"{field}.allNodes", everywhere, says))
    if not given:
        problems.append(required(field, _ONE_PLACE))
    elif len(given) > 1:
        problems.append(invalid_value(field, f"{{{', '.join(given)}}}", _ONE_PLACE))
    return problems


def _capacity(field: str, capacity: Object, *, shared: bool) -> Problems:
    """`shared`: several claims may have a part of it each."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return []
    if not shared:
        return [forbidden_field(field, "allowMultipleAllocations must be true")]
    options, span = policy.get("validValues") or [], policy.get("validRange")
    if options and span is not None:
        says = 'cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(field, f"exactly one policy can be specified, {says}")]
    chosen = "validValues" if options else "validRange"
    if not options and span is None:
        return []
    default, total = policy.get("default"), str(capacity.get("value", "0"))
    if default is None:
        return [required(f"{field}.default", f"required when {chosen} is defined")]
    if options:
        return _options(f"{field}.{chosen}", options, default, total)
    return _span(f"{field}.{chosen}", span or {}, default, total)


def _options(field: str, options: list[str], default: str, total: str) -> Problems:
    values = [_value(each) for each in options]
    problems: Problems = [
        invalid_value(f"{field}[{index}]", options[index], "values must be sorted in ascending order")
        for index in range(1, len(values))
        if values[index - 1] > values[index]
    ]
    looked_at = len(values) <= MAX_OPTIONS
    if not looked_at:
        problems += rules.too_many(field, len(values), MAX_OPTIONS)
    else:
        for index, value in enumerate(values):
            if value > _value(total):
                says = f"option is larger than capacity value: {total}"
                problems.append(invalid_value(f"{field}[{index}]", options[index], says))
            if (key := ceil(value)) in map(ceil, values[:index]):
                problems.append(duplicate_value(f"{field}[{index}]", str(key)))
    if not looked_at or _value(default) not in values:
        says = "default value is not valid according to the requestPolicy"
        problems.append(invalid_value(field, default, says))
    return problems


def _span(field: str, span: Object, default: str, total: str) -> Problems:
    low, high, step = span.get("min"), span.get("max"), span.get("step")
    if low is None:
        return [required(f"{field}.min", "required when validRange is defined")]
    problems: Problems = []

    def wrong(key: str, shown: str, says: str) -> None:
        problems.append(invalid_value(f"{field}.{key}", shown, says))

    if _value(low) > _value(total):
        wrong("min", low, f"min is larger than capacity value: {total}")
    if _value(default) < _value(low):
        wrong("default", default, f"default is less than min: {low}")
    if high is not None:
        if _value(low) > _value(high):
            wrong("max", low, f"min is larger than max: {high}")
        if _value(high) > _value(total):
            wrong("max", high, f"max is larger than capacity value: {total}")
        if _value(default) > _value(high):
            wrong("default", default, f"default is more than max: {high}")
    if step is None:
        return problems
    if _value(step) <= 0:
        wrong("step", step, "must be greater than zero")
        return problems
    after = _value(low) + _value(step)
    if after > _value(total):
        wrong("step", step, f"one step {quantity(str(after)).text} is larger than capacity value: {total}")
    return problems + _steps(field, {"default": default, "min": low, "max": high, "step": step})


def _steps(field: str, span: dict[str, str | None]) -> Problems:
    """Whether default and maximum are whole steps from the minimum; all are rounded up to integers, as there
    (fractions are alpha)."""
    given = {key: text for key, text in span.items() if text is not None}
    problems: Problems = []
    for key, text in given.items():
        if _value(text) < 0:
            problems.append(invalid_value(f"{field}.{key}", text, "must be greater than or equal to 0"))
        elif _value(text) > MAX_INT64:
            says = f"must not be larger than {MAX_INT64}"
            problems.append(invalid_value(f"{field}.{key}", text, says))
    if problems:
        return problems
    low, step = given["min"], given["step"]
    for key in ("default", "max"):
        if key in given and (ceil(_value(given[key])) - ceil(_value(low))) % ceil(_value(step)):
            says = f"value is not a multiple of a given step ({step}) from ({low})"
            problems.append(invalid_value(f"{field}.step", given[key], says))
    return problems


def _value(text: str) -> Decimal:
    return quantity(str(text)).value
