"""Kubernetes' allocator answers what its own tests expect, and cases by chance in every way.

Needs the oracle, which `make controlplane` builds.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest

from tests.resource_claims.cases import Case, Object, case
from tests.resource_claims.judge import faults
from tests.resource_claims.oracle import ALLOCATED, DEADLINE, ERROR, NONE, Answer, ask, differences, kind
from tests.resource_claims.tables import tables

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("oracle")]
SEED = 20261201


def without_features(one: Case) -> Case:
    return {key: value for key, value in one.items() if key != "features"}


def told(answered: Object) -> Object | str:
    """An answer without what is drawn by chance and without the words of errors."""
    if kind(answered) != ALLOCATED:
        return kind(answered)
    told = deepcopy(answered)
    for allocation in told["allocations"]:
        for result in allocation["devices"].get("results") or ():
            result.pop("shareID", None)
    return told


def test_no_table_is_missing() -> None:
    names = [table.name for table in tables()]
    # 279, without the one that is not written down (upstream/print_test.go).
    assert len(names) == len(set(names)) == 278
    assert sum(not table.off for table in tables()) == 232


def test_tables_of_kubernetes_are_facts() -> None:
    asked = [table.case if table.off else without_features(table.case) for table in tables()]
    different = [
        f"{table.name}: {on_node}, not {wanted}"
        for table, answered in zip(tables(), ask(asked), strict=True)
        for on_node in answered["nodes"].values()
        if told(on_node) != told(wanted := table.answer if table.by_default is None else table.by_default)
    ]
    assert different == []


def test_a_search_that_takes_long_is_given_up() -> None:
    # 13 of 26 devices for the first request, in ten million ways, and none has what the second one needs.
    devices = [{"name": f"dev-{at}"} for at in range(26)]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "allNodes": True, "devices": devices}
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 13}
    requests = [{"name": f"req-{at}", "exactly": exactly} for at in range(2)]
    only = {"requests": ["req-1"], "distinctAttribute": "gpu.example.com/none"}
    claim = {
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": requests, "constraints": [only]}},
    }
    one = {
        "nodes": [{"metadata": {"name": "node"}}],
        "slices": [{"metadata": {"name": "slice"}, "spec": spec}],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "rules": [],
        "allocated": [],
        "claims": [claim],
        "timeoutSeconds": 0.2,
    }
    assert next(ask([one])) == {"nodes": {"node": {"error": "deadline"}}}


def test_cases_by_chance_are_answered_in_every_way() -> None:
    counts: Counter[str] = Counter()
    for answered in ask(case(SEED, at) for at in range(1500)):
        counts.update(kind(one) for one in answered["nodes"].values())
    print(counts)
    n_nodes = counts.total()
    assert counts[ALLOCATED] > n_nodes / 3
    assert counts[NONE] > n_nodes / 3
    assert counts[ERROR] > n_nodes / 20
    assert counts[DEADLINE] < n_nodes / 1000


def test_the_judge_accepts_what_kubernetes_allocates() -> None:
    asked = [without_features(table.case) for table in tables() if not table.off]
    asked += [case(SEED, at) for at in range(2500)]
    rejected = [
        f"{name}: {found}"
        for one, answered in zip(asked, ask(asked), strict=True)
        for name, on_node in answered["nodes"].items()
        if kind(on_node) == ALLOCATED
        for found in faults(one, name, on_node["allocations"])
    ]
    assert rejected == []


def test_a_difference_is_named() -> None:
    one = case(SEED, 0)
    name = one["nodes"][0]["metadata"]["name"]
    fits: Answer = {"nodes": {name: {"allocations": []}}}
    not_here = {"nodes": {name: {"error": "invalid resource pools were encountered", "onNode": True}}}
    aborts = {"nodes": {name: {"error": "no class"}}}
    late = {"nodes": {name: {"error": "deadline"}}}
    assert list(differences(one, fits, not_here)) == [f"{name}: none here, there allocated "]
    assert list(differences(one, aborts, not_here)) == [f"{name}: none here, there error no class"]
    assert list(differences(one, not_here, {"nodes": {name: {"none": True}}})) == []
    assert list(differences(one, late, fits)) == []
    assert list(differences(one, fits, fits)) == [f"{name}: 0 allocations of {len(one['claims'])} claims"]
