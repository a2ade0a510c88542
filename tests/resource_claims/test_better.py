"""The better devices are found where Kubernetes' allocator finds some, keep its rules, and are no worse."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gangsched.core.resource_claims.search.better import allocate_better
from tests.resource_claims.cases import Case, case
from tests.resource_claims.judge import faults
from tests.resource_claims.ours import answer

_SEED, _N = 82, 1500
_ROOT = "resource.kubernetes.io/pcieRoot"


def _roots(one: Case) -> dict[tuple[str, str, str], str]:
    """The PCIe roots of devices of which only one slice says something: no node sees another version."""
    listed = [
        ((spec["driver"], spec["pool"]["name"], device["name"]), device.get("attributes") or {})
        for spec in (each["spec"] for each in one["slices"])
        for device in spec.get("devices") or ()
    ]
    n_listed = Counter(device for device, _ in listed)
    return {
        device: attributes[_ROOT]["string"]
        for device, attributes in listed
        if n_listed[device] == 1 and "string" in attributes.get(_ROOT, ())
    }


def _apart(allocations: list[Any], roots: dict[tuple[str, str, str], str]) -> int:
    """How many claims have devices of more than one PCIe root; admin access moves nothing."""
    n = 0
    for one in allocations:
        own = [each for each in one["devices"].get("results") or () if not each.get("adminAccess")]
        ids = [(each["driver"], each["pool"], each["device"]) for each in own]
        n += len({roots[id_] for id_ in ids if id_ in roots}) > 1
    return n


def _known(allocations: list[Any], roots: dict[tuple[str, str, str], str]) -> bool:
    return all(
        (each["driver"], each["pool"], each["device"]) in roots
        for one in allocations
        for each in one["devices"].get("results") or ()
    )


def _nth(one: Case, allocations: list[Any]) -> list[int]:
    """Which alternative of each list each claim is served, all together."""
    found = []
    for claim, allocation in zip(one["claims"], allocations, strict=True):
        served = {each["request"] for each in allocation["devices"].get("results") or ()}
        found.append(
            sum(
                at
                for request in claim["spec"]["devices"].get("requests") or ()
                for at, sub in enumerate(request.get("firstAvailable") or ())
                if f"{request['name']}/{sub['name']}" in served
            )
        )
    return found


def test_random_cases_are_as_feasible_and_no_worse() -> None:
    counts: Counter[str] = Counter()
    for at in range(_N):
        one, roots = case(_SEED, at), _roots(case(_SEED, at))
        first, better = answer(one), answer(one, finds=allocate_better)
        for name, plain in first["nodes"].items():
            mine, where = better["nodes"][name], f"case({_SEED}, {at}), {name}"
            assert plain.keys() == mine.keys(), where
            if "allocations" not in plain:
                assert plain == mine, where
                continue
            assert not faults(one, name, mine["allocations"]), where
            nth, nth_first = (_nth(one, each["allocations"]) for each in (mine, plain))
            assert all(a <= b for a, b in zip(nth, nth_first, strict=True)), where
            before, after = (_apart(each["allocations"], roots) for each in (plain, mine))
            # Of a device that two slices list in two ways, it is not known here which one the node sees.
            if _known(plain["allocations"], roots) and nth == nth_first:
                assert after <= before, where
                counts["compared"] += 1
            counts["closer"] += after < before
            counts["others"] += plain != mine
            counts["all"] += 1
    # Enough of them have a choice, or nothing is shown.
    assert counts["closer"] > 20, counts
    assert counts["compared"] > 200, counts
    assert counts["others"] > counts["all"] / 10, counts
