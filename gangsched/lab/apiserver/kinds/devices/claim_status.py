"""A claim's status: the allocation, for whom it is reserved, and what drivers say of its devices.

Called by claims.py. Nothing here knows which devices exist: that a device is in two claims is not seen.
Source: validateResourceClaimStatusUpdate of pkg/apis/resource/validation/validation.go,
pkg/registry/resource/resourceclaim/strategy.go of Kubernetes 1.37.
"""

from __future__ import annotations

from ipaddress import ip_interface

from gangsched.api_rules import names
from gangsched.api_rules.affinity_validation import node_selector
from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value, required
from gangsched.lab.apiserver.kinds.devices import rules, specs
from gangsched.lab.apiserver.kinds.devices.specs import RequestNames
from gangsched.lab.apiserver.strategy import Context, Object

MAX_CONSUMERS = 256
MAX_RESULTS = 32
MAX_DATA_BYTES = 10 * 1024
MAX_IPS = 16
MAX_CONDITIONS = 8

_CONSUMER = ("apiGroup", "resource", "name", "uid")
_DEVICE = ("driver", "pool", "device", "shareID", "conditions", "data", "networkData")
_CONDITION = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
_SOURCES = ("FromClaim", "FromClass")
_NETWORK_BYTES = {"interfaceName": 256, "hardwareAddress": 128}
# Which operations a node skips is alpha (DRAOptionalNodeOperations).
_GATED = "skipNodeOperations"

DeviceKey = tuple[str, str, str, str]


def prepare(status: Object | None, before: Object) -> Object:
    """Returns the status as it is stored: with defaults, and without devices that were taken back."""
    status = status or {}
    allocation = status.get("allocation")
    if allocation is not None:
        devices = allocation["devices"] = allocation.get("devices") or {}
        for result in devices.get("results") or ():
            result.pop(_GATED, None)
            specs.default_tolerations(result)
        for config in devices.get("config") or ():
            rules.without_empty(config, ("source",))
    for consumer in status.get("reservedFor") or ():
        rules.without_empty(consumer, ("apiGroup",))
    taken_back = _allocated(before) - _allocated(status)
    kept = [each for each in status.get("devices") or () if _key(each) not in taken_back]
    for device in kept:
        device["conditions"] = [
            rules.in_order({"message": "", **condition}, _CONDITION)
            for condition in device.get("conditions") or ()
        ] or None
        rules.without_empty(device.get("networkData") or {}, ("interfaceName", "hardwareAddress"))
    status["devices"] = kept
    return {key: value for key, value in status.items() if value or key == "allocation"}


def _key(found: Object) -> DeviceKey:
    return (
        found.get("driver") or "",
        found.get("pool") or "",
        found.get("device") or "",
        found.get("shareID") or "",
    )


def _allocated(status: Object) -> set[DeviceKey]:
    allocation = status.get("allocation") or {}
    return {_key(result) for result in (allocation.get("devices") or {}).get("results") or ()}


def problems_of(new: Object, old: Object, context: Context) -> Problems:
    """Both are whole claims, prepared."""
    status, before = new["status"], old.get("status") or {}
    known = specs.request_names(new["spec"])
    problems = _admin(status, before, context)
    consumers = status.get("reservedFor") or []
    problems += rules.each("status.reservedFor", consumers, MAX_CONSUMERS, _consumer)
    if len(consumers) <= MAX_CONSUMERS:
        problems += rules.unique(
            "status.reservedFor",
            consumers,
            lambda one: one.get("uid") or "",
            lambda one: rules.in_order(one, _CONSUMER),
        )
    problems += _devices(status)
    if consumers:
        problems += _reservations(consumers, status, before, new["metadata"])
    allocation, allocated_before = status.get("allocation"), before.get("allocation")
    if allocation is not None and allocated_before is not None:
        if allocation != allocated_before:
            says = "Invalid value: null: field cannot be modified once set"
            problems.append(FieldProblem("status.allocation", "FieldValueInvalid", says))
    elif allocation is not None:
        problems += _allocation("status.allocation", allocation, known)
    return problems


def _admin(status: Object, before: Object, context: Context) -> Problems:
    def granted(of: Object) -> int | None:
        allocation = of.get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        return next((index for index, result in enumerate(results) if result.get("adminAccess")), None)

    index = granted(status)
    if index is None or granted(before) is not None:
        return []
    return specs.without_label(f"status.allocation.devices.results[{index}].adminAccess", context)


def _consumer(field: str, found: Object) -> Problems:
    return [required(f"{field}.{key}") for key in ("resource", "name", "uid") if not found.get(key)]


def _reservations(consumers: list[Object], status: Object, before: Object, metadata: Object) -> Problems:
    if status.get("allocation") is None:
        says = "may not be specified when `allocated` is not set"
        return [forbidden_field("status.reservedFor", says)]
    known = before.get("reservedFor") or ()
    if metadata.get("deletionTimestamp") and any(each not in known for each in consumers):
        says = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        return [forbidden_field("status.reservedFor", says)]
    return []


def _allocation(field: str, allocation: Object, known: RequestNames) -> Problems:
    def result(field: str, found: Object) -> Problems:
        return _result(field, found, known)

    def config(field: str, found: Object) -> Problems:
        source = found.get("source") or ""
        at = f"{field}.source"
        problems = names.one_of(at, source, _SOURCES) if source else [required(at)]
        problems += specs.references(f"{field}.requests", found.get("requests"), known)
        return problems + rules.opaque(field, found)

    devices = allocation["devices"]
    problems = rules.each(f"{field}.devices.results", devices.get("results"), MAX_RESULTS, result)
    problems += rules.each(f"{field}.devices.config", devices.get("config"), 2 * specs.MAX_CONFIG, config)
    if (selector := allocation.get("nodeSelector")) is not None:
        problems += node_selector(f"{field}.nodeSelector", selector)
    return problems


def _result(field: str, found: Object, known: RequestNames) -> Problems:
    problems = specs.reference(f"{field}.request", found.get("request") or "", known)
    problems += rules.declared_driver(f"{field}.driver", found.get("driver") or "")
    problems += rules.declared_pool(f"{field}.pool", found.get("pool") or "")
    problems += names.label(f"{field}.device", found.get("device") or "")
    problems += rules.binding_conditions(field, found)
    problems += rules.tolerations(f"{field}.tolerations", found.get("tolerations"))
    return problems + rules.share_id(f"{field}.shareID", found.get("shareID"))


def _devices(status: Object) -> Problems:
    found = status.get("devices") or []
    allocated = _allocated(status)
    problems: Problems = []
    for index, device in enumerate(found):
        at = f"status.devices[{index}]"
        problems += rules.driver(f"{at}.driver", device.get("driver") or "")
        problems += rules.pool(f"{at}.pool", device.get("pool") or "")
        problems += names.label(f"{at}.device", device.get("device") or "")
        problems += rules.share_id(f"{at}.shareID", device.get("shareID"))
        if (key := _key(device)) not in allocated:
            shown = dict(zip(("Driver", "Pool", "Device", "ShareID"), key, strict=True))
            problems.append(invalid_value(at, shown, "must be an allocated device in the claim"))
        conditions = device.get("conditions") or ()
        if len(conditions) > MAX_CONDITIONS:
            problems += rules.too_many(f"{at}.conditions", len(conditions), MAX_CONDITIONS)
        problems += rules.conditions(f"{at}.conditions", conditions)
        if (data := device.get("data")) is not None:
            problems += rules.raw(f"{at}.data", data, MAX_DATA_BYTES)
        problems += _network(f"{at}.networkData", device.get("networkData") or {})
    return problems + rules.unique(
        "status.devices", found, _key, lambda device: rules.in_order(device, _DEVICE)
    )


def _network(field: str, found: Object) -> Problems:
    problems: Problems = [
        rules.too_long(f"{field}.{key}", limit)
        for key, limit in _NETWORK_BYTES.items()
        if len((found.get(key) or "").encode()) > limit
    ]
    addresses = found.get("ips") or ()
    problems += rules.each(f"{field}.ips", addresses, MAX_IPS, _interface)
    if len(addresses) <= MAX_IPS:
        problems += rules.unique(f"{field}.ips", addresses, lambda address: address)
    return problems


def _interface(field: str, value: str) -> Problems:
    says = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    if "/" not in value:
        return [invalid_value(field, value, says)]
    try:
        ip_interface(value)
    except ValueError:
        return [invalid_value(field, value, says)]
    return []
