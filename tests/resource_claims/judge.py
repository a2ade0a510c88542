"""Judges an allocation: `faults(case, node, allocations)` says in words which rules it breaks.

It does not search, it replays: devices are taken one after the other in the order of the results, and each
must be one that Kubernetes' allocator might have taken there. Which of several possible devices it is, is
left open. Written from Kubernetes' code, it shares nothing with our allocator but CEL.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from gangsched.model.cel import selector
from gangsched.model.cel.library.amounts import read_quantity
from gangsched.model.cel.selector import SelectableDevice
from gangsched.model.cel.values import SelectorError
from gangsched.model.resource_claims.objects import Attribute
from tests.resource_claims.cases import Case, Object
from tests.resource_claims.pools import DeviceId, Pool, Published, pools

MAX_RESULTS = 32
MAX_INT64 = 2**63 - 1


def faults(case: Case, node: str, allocations: Sequence[Object]) -> list[str]:
    """What is wrong with the results for the case's claims on this node; nothing if they keep the rules."""
    if len(allocations) != len(case["claims"]):
        return [f"{len(allocations)} allocations of {len(case['claims'])} claims"]
    replay = _Replay(case, node)
    return [
        f"{claim['metadata']['name']}: {fault}"
        for claim, allocation in zip(case["claims"], allocations, strict=True)
        for fault in replay.claim(claim, allocation)
    ]


@dataclass(slots=True)
class _Request:
    """A request, or the subrequest that was chosen of it. name: as results have it."""

    name: str
    parent: str
    spec: Object
    device_class: Object
    results: list[Object] = field(default_factory=list)

    @property
    def admin(self) -> bool:
        return bool(self.spec.get("adminAccess"))

    def is_named_in(self, names: Sequence[str]) -> bool:
        return self.name in names or self.parent in names


class _Replay:
    """Takes devices on a node: what is in use, and by how much."""

    def __init__(self, case: Case, node: str) -> None:
        self.node = node
        self.classes = {one["metadata"]["name"]: one for one in case["classes"]}
        self.pools = pools(case, node)
        self.devices = {one.id: (one, pool) for pool in self.pools.values() for one in pool.devices}
        # Of others.
        self.exclusive: set[DeviceId] = set()
        self.shared: set[DeviceId] = set()
        self.consumed: dict[DeviceId, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        self.shares: set[str] = set()
        for claim in case["allocated"]:
            for result in claim["status"]["allocation"]["devices"]["results"]:
                self.hold(result)
        # Of this attempt.
        self.taken: dict[DeviceId, set[str]] = defaultdict(set)
        self.counters: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        self.sharing: set[DeviceId] = set()

    def hold(self, result: Object) -> None:
        if result.get("adminAccess"):
            return
        id = _id(result)
        if "shareID" not in result:
            self.exclusive.add(id)
            return
        self.shared.add(id)
        self.shares.add(result["shareID"])
        for name, quantity in result.get("consumedCapacity", {}).items():
            self.consumed[id][name] += number(quantity)

    def claim(self, claim: Object, allocation: Object) -> Iterator[str]:
        results = allocation["devices"].get("results") or []
        if len(results) > MAX_RESULTS:
            yield f"{len(results)} results"
        requests = list(self.requests(claim, results))
        if [result for one in requests for result in one.results] != list(results):
            names = [one["request"] for one in results]
            yield f"results of no request, of two subrequests, or out of order: {names}"
            return
        for request in requests:
            yield from self.amounts(request)
            for result in request.results:
                yield from self.take(claim["metadata"]["name"], request, result)
        found = [
            (request, self.devices[_id(one)][0])
            for request in requests
            for one in request.results
            if _id(one) in self.devices
        ]
        for constraint in claim["spec"]["devices"].get("constraints", ()):
            names = constraint.get("requests")
            bound = [one for request, one in found if not names or request.is_named_in(names)]
            yield from _constrained(constraint, bound)
        yield from self.node_selector(allocation, [one for _, one in found])
        wanted = list(_configs(claim, requests))
        if (had := allocation["devices"].get("config") or []) != wanted:
            yield f"config {had}, not {wanted}"

    def requests(self, claim: Object, results: Sequence[Object]) -> Iterator[_Request]:
        for request in claim["spec"]["devices"].get("requests", ()):
            chosen = (
                [(request["name"], request["exactly"])]
                if "exactly" in request
                else [(f"{request['name']}/{sub['name']}", sub) for sub in request["firstAvailable"]]
            )
            for name, spec in chosen:
                of_it = [one for one in results if one["request"] == name]
                if of_it or name == request["name"]:
                    yield _Request(name, request["name"], spec, self.classes[spec["deviceClassName"]], of_it)
                    break
            else:
                yield _Request(f"{request['name']}/?", request["name"], {"count": -1}, {"spec": {}})

    def amounts(self, request: _Request) -> Iterator[str]:
        ids = [_id(one) for one in request.results]
        if len(set(ids)) < len(ids):
            yield f"{request.name}: a device twice"
        if request.spec.get("allocationMode") != "All":
            if len(ids) != request.spec["count"]:
                yield f"{request.name}: {len(ids)} devices, not {request.spec['count']}"
            return
        for pool in self.pools.values():
            if pool.why:
                yield f"{request.name}: all devices, and {pool.why}"
        asked = request.spec.get("capacity", {}).get("requests", {})
        every = {
            id
            for id, (one, _) in self.devices.items()
            if one.here and not _unselected(request, one) and not _lacks(one.device, asked, {})
        }
        if set(ids) != every or not every:
            yield f"{request.name}: {sorted(ids)} are not all devices, which are {sorted(every)}"

    def take(self, claim: str, request: _Request, result: Object) -> Iterator[str]:
        """What speaks against this device; then takes it."""
        id, of = _id(result), f"{request.name} on {'/'.join(_id(result))}"
        if id not in self.devices:
            yield f"{of}: no device of a usable pool"
            return
        one, pool = self.devices[id]
        shareable = bool(one.device.get("allowMultipleAllocations"))
        if not one.here:
            yield f"{of}: does not reach the node"
        if request.admin and claim in self.taken[id]:
            yield f"{of}: taken by the same claim"
        if not request.admin and (id in self.exclusive or self.taken[id]):
            yield f"{of}: in use"
        if why := _unselected(request, one):
            yield f"{of}: {why}"
        for taint in one.device.get("taints", ()):
            if taint["effect"] in ("NoSchedule", "NoExecute") and not any(
                _tolerates(each, taint) for each in request.spec.get("tolerations", ())
            ):
                yield f"{of}: taint {taint} is not tolerated"
        asked = request.spec.get("capacity", {}).get("requests", {})
        if why := _lacks(one.device, asked, self.consumed[id]):
            yield f"{of}: {why}"
        in_use = id in self.shared or id in self.sharing
        if one.device.get("consumesCounters") and not (shareable and in_use):
            yield from (f"{of}: {why}" for why in self.count(one, pool))
        yield from (f"{of}: {why}" for why in self.marks(request, result, one))
        if shareable:
            self.sharing.add(id)
            for name, amount in _consumed(one.device, asked).items():
                self.consumed[id][name] += amount if isinstance(amount, Fraction) else 0
        else:
            self.taken[id].add(claim)

    def count(self, one: Published, pool: Pool) -> Iterator[str]:
        key = one.id[:2]
        mine = self.counters[key]
        mine.update(_counters(one))
        left = {name: number(value) for name, value in pool.counters.items()}
        for other in (*pool.devices, *pool.elsewhere):
            if other.id in self.exclusive or other.id in self.shared:
                for name, amount in _counters(other).items():
                    left[name] -= amount
        for name, amount in left.items():
            if amount < mine[name]:
                yield f"counter {name}: {amount} left, {mine[name]} consumed"

    def marks(self, request: _Request, result: Object, one: Published) -> Iterator[str]:
        """What the result has to say about the device and the request."""
        if bool(result.get("adminAccess")) != request.admin:
            yield f"adminAccess is {result.get('adminAccess')}"
        if (result.get("tolerations") or []) != request.spec.get("tolerations", []):
            yield "tolerations are not the request's"
        for name in ("bindingConditions", "bindingFailureConditions"):
            if (result.get(name) or []) != one.device.get(name, []):
                yield f"{name} are not the device's"
        if not one.device.get("allowMultipleAllocations"):
            if "shareID" in result or "consumedCapacity" in result:
                yield "a share of a device that cannot be shared"
            return
        share = result.get("shareID", "")
        if share in self.shares or not _is_uuid(share):
            yield f"share {share!r} is not a new one"
        self.shares.add(share)
        asked = request.spec.get("capacity", {}).get("requests", {})
        had = {name: number(one) for name, one in (result.get("consumedCapacity") or {}).items()}
        if had != (wanted := _consumed(one.device, asked)):
            yield f"consumed capacity {had}, not {wanted}"

    def node_selector(self, allocation: Object, found: Sequence[Published]) -> Iterator[str]:
        wanted: set[Any] = set()
        for one in found:
            place = one.device if one.slice.get("perDeviceNodeSelection") else one.slice
            if "nodeName" in place or one.device.get("bindsToNode"):
                name = {"key": "metadata.name", "operator": "In", "values": [self.node]}
                wanted = _requirements([{"matchFields": [name]}])
                break
            terms = place.get("nodeSelector", {}).get("nodeSelectorTerms", [])
            if len(terms) > 1:
                yield "a device's node selector has several terms"
            wanted |= _requirements(terms)
        terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms", [])
        if len(terms) > 1 or _requirements(terms) != wanted:
            yield f"node selector {terms}, not {wanted}"


def _id(result: Object) -> DeviceId:
    return result["driver"], result["pool"], result["device"]


@lru_cache(maxsize=4096)
def number(quantity: str) -> Fraction:
    """The exact value of a quantity."""
    read = read_quantity(quantity)
    return read.digits * Fraction(10) ** read.exponent


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> selector.DeviceSelector:
    return selector.compile(expression)


def _unselected(request: _Request, one: Published) -> str:
    """Why the class or the request does not select the device."""
    device = SelectableDevice(
        one.id[0],
        {name: msgspec.convert(value, Attribute) for name, value in one.device.get("attributes", {}).items()},
        {name: capacity["value"] for name, capacity in one.device.get("capacity", {}).items()},
        shareable=bool(one.device.get("allowMultipleAllocations")),
    )
    for each in (*request.device_class["spec"].get("selectors", ()), *request.spec.get("selectors", ())):
        expression = each["cel"]["expression"]
        try:
            if not _compiled(expression).matches(device):
                return f"not selected by {expression}"
        except SelectorError as error:
            return f"{expression}: {error}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    exists = toleration.get("operator") == "Exists"
    return exists or toleration.get("value", "") == taint.get("value", "")


def _lacks(device: Object, asked: dict[str, str], used: dict[str, Fraction]) -> str:
    """Why the device has not enough for a request, with that much in use."""
    for name in asked:
        if name not in device.get("capacity", {}):
            return f"no capacity {name}"
    for name, amount in _consumed(device, asked).items():
        if isinstance(amount, str):
            return f"capacity {name}: {amount}"
        if used.get(name, 0) + amount > number(device["capacity"][name]["value"]):
            return f"capacity {name}: not {amount} left"
    return ""


def _consumed(device: Object, asked: dict[str, str]) -> dict[str, Fraction | str]:
    """How much of each capacity a request consumes, or why it may not."""
    return {
        name: _rounded(capacity, asked.get(name)) for name, capacity in device.get("capacity", {}).items()
    }


def _rounded(capacity: Object, asked: str | None) -> Fraction | str:
    policy = capacity.get("requestPolicy") or {}
    valid_range, values = policy.get("validRange"), [number(one) for one in policy.get("validValues", ())]
    if asked is None:
        amount = number(policy.get("default") or capacity["value"])
    else:
        amount = number(asked)
        if valid_range:
            least = number(valid_range["min"])
            if amount < least:
                amount = least
            elif "step" in valid_range:
                # In whole numbers, whatever the quantities are.
                if amount > MAX_INT64:
                    return "more than 64 bits"
                first, step = math.ceil(least), math.ceil(number(valid_range["step"]))
                amount = Fraction(first - (first - math.ceil(amount)) // step * step)
                if amount > MAX_INT64:
                    return "more than 64 bits"
        elif values:
            amount = min((one for one in values if one >= amount), default=amount)
    if amount < 0:
        return "negative"
    if values and amount not in values:
        return f"{amount} is no valid value"
    if valid_range and "max" in valid_range and amount > number(valid_range["max"]):
        return f"{amount} is more than a request may"
    return amount


def _counters(one: Published) -> dict[tuple[str, str], Fraction]:
    return {
        (consumed["counterSet"], name): number(counter["value"])
        for consumed in one.device.get("consumesCounters", ())
        for name, counter in consumed["counters"].items()
    }


def _constrained(constraint: Object, found: Sequence[Published]) -> Iterator[str]:
    name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
    domain, _, short = name.partition("/")
    values = []
    for one in found:
        attributes = one.device.get("attributes", {})
        value = attributes.get(name) or (attributes.get(short) if domain == one.id[0] else None)
        if value is None:
            yield f"{'/'.join(one.id)} has no {name}"
        else:
            values.append(repr(value))
    if "matchAttribute" in constraint and len(set(values)) > 1:
        yield f"{name} is not the same: {values}"
    if "distinctAttribute" in constraint and len(set(values)) < len(values):
        yield f"{name} is not distinct: {values}"


def _requirements(terms: Sequence[Object]) -> set[Any]:
    return {
        (kind, one["key"], one["operator"], frozenset(one.get("values") or ()))
        for term in terms
        for kind in ("matchFields", "matchExpressions")
        for one in term.get(kind) or ()
    }


def _configs(claim: Object, requests: Sequence[_Request]) -> Iterator[Object]:
    """The parameters for drivers, as the result has them."""
    by_class: dict[str, tuple[Object, list[str]]] = {}
    for request in requests:
        of_class = request.device_class
        if of_class["spec"].get("config"):
            by_class.setdefault(of_class["metadata"]["name"], (of_class, []))[1].append(request.name)
    found = [
        ("FromClass", names, config)
        for of_class, names in by_class.values()
        for config in of_class["spec"]["config"]
    ]
    found += [
        ("FromClaim", names, config)
        for config in claim["spec"]["devices"].get("config", ())
        if not (names := config.get("requests", [])) or any(one.is_named_in(names) for one in requests)
    ]
    for source, names, config in found:
        is_all = all(request.is_named_in(names) for request in requests)
        said = {} if is_all or not names else {"requests": names}
        yield {"source": source, **said, "opaque": config["opaque"]}
