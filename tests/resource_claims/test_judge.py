"""The judge sees what an allocation breaks: Kubernetes' own are spoiled, or their cluster is.

Needs the oracle, which `make controlplane` builds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import NamedTuple

import pytest

from tests.resource_claims.cases import DRIVERS, Case, Object, case
from tests.resource_claims.judge import faults, number
from tests.resource_claims.oracle import ask

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("oracle")]
SEED = 20261202


class Allocated(NamedTuple):
    """What Kubernetes has allocated on one node, to be spoiled; rng: chooses where."""

    case: Case
    node: str
    allocations: list[Object]
    rng: random.Random

    def results(self) -> list[tuple[Object, Object]]:
        """Each with the request or subrequest that it is for."""
        found = []
        for claim, allocation in zip(self.case["claims"], self.allocations, strict=True):
            asked = {}
            for request in claim["spec"]["devices"]["requests"]:
                asked[request["name"]] = request.get("exactly")
                for sub in request.get("firstAvailable", ()):
                    asked[f"{request['name']}/{sub['name']}"] = sub
            found += [(asked[one["request"]], one) for one in allocation["devices"].get("results") or ()]
        return found

    def device(self, result: Object) -> Object:
        """The published device. Raises: ValueError if several slices have one of that name."""
        device: Object
        [device] = [
            device
            for spec in (one["spec"] for one in self.case["slices"])
            if (spec["driver"], spec["pool"]["name"]) == (result["driver"], result["pool"])
            for device in spec.get("devices", ())
            if device["name"] == result["device"]
        ]
        return device

    def is_known(self, result: Object) -> bool:
        try:
            return bool(self.device(result))
        except ValueError:
            return False

    def one(self, *, of: Callable[[Object, Object], bool] = lambda asked, result: True) -> Object:
        """One of the results for which that holds. Raises: IndexError."""
        return self.rng.choice([result for asked, result in self.results() if of(asked, result)])

    def hold(self, result: Object) -> None:
        """Gives the device of a result to another claim as well."""
        held = {"request": "req", **{name: result[name] for name in ("driver", "pool", "device")}}
        held |= {name: result[name] for name in ("shareID", "consumedCapacity") if name in result}
        if "shareID" in held:
            held["shareID"] = "00000000-0000-4000-8000-999999999999"
        self.case["allocated"].append({"status": {"allocation": {"devices": {"results": [held]}}}})


def exclusive(asked: Object, result: Object) -> bool:
    return "shareID" not in result and not asked.get("adminAccess")


def in_use(of: Allocated) -> None:
    of.hold(of.one(of=exclusive))


def another_device(of: Allocated) -> None:
    of.one()["device"] = "dev-77"


def another_pool(of: Allocated) -> None:
    of.one()["pool"] = "pool-none"


def left_out(of: Allocated) -> None:
    results = of.rng.choice(
        [one["devices"]["results"] for one in of.allocations if one["devices"].get("results")]
    )
    results.pop(of.rng.randrange(len(results)))


def twice(of: Allocated) -> None:
    results = of.rng.choice(
        [one["devices"]["results"] for one in of.allocations if one["devices"].get("results")]
    )
    results.append(deepcopy(results[-1]))


def of_another_request(of: Allocated) -> None:
    of.one()["request"] = "req-none"


def tainted(of: Allocated) -> None:
    result = of.one(of=lambda asked, _: not asked.get("tolerations"))
    selector = {name: result[name] for name in ("driver", "pool", "device")}
    taint = {"key": "spoiled", "effect": of.rng.choice(("NoSchedule", "NoExecute"))}
    of.case["rules"].append({"spec": {"deviceSelector": selector, "taint": taint}})


def not_selected(of: Allocated) -> None:
    asked, _ = of.rng.choice(of.results())
    asked["selectors"] = [{"cel": {"expression": "false"}}]


def not_of_the_class(of: Allocated) -> None:
    asked, _ = of.rng.choice(of.results())
    for one in of.case["classes"]:
        if one["metadata"]["name"] == asked["deviceClassName"]:
            one["spec"]["selectors"] = [{"cel": {"expression": 'device.attributes["none"].none'}}]


def not_the_same(of: Allocated) -> None:
    """Of two devices of a claim with an attribute that differs."""
    constrain(of, "matchAttribute", lambda one, other: one != other)


def not_distinct(of: Allocated) -> None:
    constrain(of, "distinctAttribute", lambda one, other: one == other)


def constrain(of: Allocated, kind: str, breaks: Callable[[Object, Object], bool]) -> None:
    found = []
    for claim, allocation in zip(of.case["claims"], of.allocations, strict=True):
        known = [one for one in allocation["devices"].get("results") or () if of.is_known(one)]
        values = [
            (name if "/" in name else f"{one['driver']}/{name}", value)
            for one in known
            for name, value in of.device(one).get("attributes", {}).items()
        ]
        found += [
            (claim, name)
            for at, (name, value) in enumerate(values)
            if any(name == other and breaks(value, theirs) for other, theirs in values[at + 1 :])
        ]
    claim, name = of.rng.choice(found)
    claim["spec"]["devices"].setdefault("constraints", []).append({kind: name})


def no_such_attribute(of: Allocated) -> None:
    claim = of.rng.choice(
        [
            claim
            for claim, one in zip(of.case["claims"], of.allocations, strict=True)
            if one["devices"].get("results")
        ]
    )
    claim["spec"]["devices"].setdefault("constraints", []).append({"matchAttribute": f"{DRIVERS[0]}/none"})


def over_capacity(of: Allocated) -> None:
    result = of.one(
        of=lambda _, one: any(number(had) > 0 for had in one.get("consumedCapacity", {}).values())
    )
    for _ in range(80):
        of.hold(result)


def more_than_there_is(of: Allocated) -> None:
    asked, result = of.rng.choice([one for one in of.results() if of.is_known(one[1])])
    name = of.rng.choice(sorted(of.device(result)["capacity"]))
    asked["capacity"] = {"requests": {name: "30E"}}


def no_such_capacity(of: Allocated) -> None:
    asked, _ = of.rng.choice(of.results())
    asked["capacity"] = {"requests": {"none": "1"}}


def consumes_less(of: Allocated) -> None:
    had = of.one(of=lambda _, one: "consumedCapacity" in one)["consumedCapacity"]
    name = of.rng.choice(sorted(had))
    had[name] = "77"


def not_shared(of: Allocated) -> None:
    of.one(of=lambda _, one: "shareID" in one).pop("shareID")


def shared(of: Allocated) -> None:
    of.one(of=lambda _, one: "shareID" not in one)["shareID"] = "00000000-0000-4000-8000-888888888888"


def no_counters_left(of: Allocated) -> None:
    # A share of a device that is in use consumes none.
    result = of.one(
        of=lambda asked, one: exclusive(asked, one) and of.is_known(one) and counts(of.device(one))
    )
    [consumed, *_] = of.device(result)["consumesCounters"]
    for one in of.case["slices"]:
        spec = one["spec"]
        if (spec["driver"], spec["pool"]["name"]) == (result["driver"], result["pool"]):
            for counter_set in spec.get("sharedCounters", ()):
                if counter_set["name"] == consumed["counterSet"]:
                    for counter in counter_set["counters"].values():
                        counter["value"] = "0"


def counts(device: Object) -> bool:
    return any(
        number(one["value"]) > 0
        for consumed in device.get("consumesCounters", ())
        for one in consumed["counters"].values()
    )


def other_tolerations(of: Allocated) -> None:
    of.one().setdefault("tolerations", []).append({"operator": "Exists"})


def other_admin_access(of: Allocated) -> None:
    result = of.one()
    result["adminAccess"] = not result.get("adminAccess")


def other_conditions(of: Allocated) -> None:
    of.one().setdefault("bindingConditions", []).append("example.com/spoiled")


def other_nodes(of: Allocated) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-none"]}]}
    of.rng.choice(of.allocations)["nodeSelector"] = {"nodeSelectorTerms": [term]}


def other_config(of: Allocated) -> None:
    devices = of.rng.choice(of.allocations)["devices"]
    if devices.get("config"):
        devices["config"].pop()
    else:
        devices["config"] = [{"source": "FromClass", "opaque": {"driver": DRIVERS[0], "parameters": {}}}]


def out_of_date(of: Allocated) -> None:
    """A newer generation reaches the node, with other devices."""
    publish(of, [{"name": "dev-88"}], generation=100, count=1)


def incomplete(of: Allocated) -> None:
    """A newer generation reaches the node in part, with the same devices."""
    publish(of, [deepcopy(of.device(of.one(of=lambda _, one: of.is_known(one))))], generation=100, count=2)


def invalid(of: Allocated) -> None:
    """A newer generation has two devices of one name."""
    for _ in range(2):
        publish(of, [{"name": "dev-0"}], generation=100, count=2)


def publish(of: Allocated, devices: list[Object], *, generation: int, count: int) -> None:
    for result in (one for _, one in of.results()):
        pool = {"name": result["pool"], "generation": generation, "resourceSliceCount": count}
        spec = {"driver": result["driver"], "pool": pool, "nodeName": of.node, "devices": devices}
        of.case["slices"].append({"metadata": {"name": f"spoiled-{len(of.case['slices'])}"}, "spec": spec})


SPOILS: tuple[Callable[[Allocated], None], ...] = (
    in_use, another_device, another_pool, left_out, twice, of_another_request, tainted, not_selected,
    not_of_the_class, not_the_same, not_distinct, no_such_attribute, over_capacity, more_than_there_is,
    no_such_capacity, consumes_less, not_shared, shared, no_counters_left, other_tolerations,
    other_admin_access, other_conditions, other_nodes, other_config, out_of_date, incomplete, invalid,
)  # fmt: skip


@pytest.fixture(scope="module")
def allocated() -> list[tuple[Case, str, list[Object]]]:
    """A few hundred nodes on which Kubernetes has allocated devices."""
    asked = [case(SEED, at) for at in range(700)]
    return [
        (one, name, on_node["allocations"])
        for one, answered in zip(asked, ask(asked), strict=True)
        for name, on_node in answered["nodes"].items()
        if any(each["devices"].get("results") for each in on_node.get("allocations", ()))
    ]


def spoiled(
    allocated: list[tuple[Case, str, list[Object]]], spoil: Callable[[Allocated], None]
) -> Iterator[Allocated]:
    """Those that can be spoiled so."""
    for at, (one, name, allocations) in enumerate(allocated):
        of = Allocated(deepcopy(one), name, deepcopy(allocations), random.Random(at))
        try:
            spoil(of)
        except (IndexError, KeyError, ValueError):
            continue
        yield of


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_spoiled_allocation_is_rejected(
    oracle: None, allocated: list[tuple[Case, str, list[Object]]], spoil: Callable[[Allocated], None]
) -> None:
    n_spoiled = 0
    missed = []
    for of in spoiled(allocated, spoil):
        n_spoiled += 1
        if not faults(of.case, of.node, of.allocations):
            missed.append((of.case["claims"], of.allocations))
    print(f"{n_spoiled} spoiled")
    assert n_spoiled > 15
    assert missed == []
