"""Our allocator answers as Kubernetes' does: by chance, and in the tables of its own tests."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from gangsched.model.resource_claims.amounts import billionths
from tests.resource_claims.cases import case
from tests.resource_claims.oracle import ALLOCATED, Answer, ask, differences, kind
from tests.resource_claims.ours import answer
from tests.resource_claims.tables import Table, tables

_SEED, _N = 48, 2500
# Of pools that a node selector cannot be read of, ours gives nothing; Kubernetes ends every pod's attempt.
_UNREADABLE = "failed to parse node selector"


def _listed(theirs: Answer) -> bool:
    return any(_UNREADABLE in one.get("error", "") for one in theirs["nodes"].values())


def _plain(answered: Answer) -> list[object]:
    """An allocation without what may be written in several ways."""
    found: list[object] = []
    for one in answered["allocations"]:
        results = []
        for each in one.get("devices", {}).get("results", ()):
            amounts = {name: billionths(text) for name, text in (each.get("consumedCapacity") or {}).items()}
            device = (each["request"], each["driver"], each["pool"], each["device"], each.get("adminAccess"))
            results.append((device, bool(each.get("shareID")), sorted(amounts.items())))
        config = one.get("devices", {}).get("config") or []
        found.append((results, config, one.get("nodeSelector")))
    return found


def test_random_cases_are_answered_alike_device_by_device() -> None:
    counts: Counter[str] = Counter()
    for at, theirs in enumerate(ask(case(_SEED, at) for at in range(_N))):
        one = case(_SEED, at)
        ours = answer(one)
        found = [] if _listed(theirs) else list(differences(one, theirs, ours))
        assert not found, f"case({_SEED}, {at})"
        for name, answered in theirs["nodes"].items():
            own = ours["nodes"][name]
            counts[kind(answered)] += 1
            if kind(answered) == kind(own) == ALLOCATED:
                assert _plain(own) == _plain(answered), f"case({_SEED}, {at}), {name}"
    assert min(counts[each] for each in ("allocated", "none", "error")) > 100, counts


# The others need features that Kubernetes 1.37 has off.
_TABLES = [one for one in tables() if one.by_default is not None]


@pytest.mark.parametrize("table", _TABLES, ids=lambda one: one.name)
def test_kubernetes_own_tables(table: Table) -> None:
    assert table.by_default is not None
    [own] = answer(table.case)["nodes"].values()
    if "allocations" not in table.by_default:
        assert "allocations" not in own, msgspec.json.encode(own)
        return
    assert _plain(own) == _plain(table.by_default)
