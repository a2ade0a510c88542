"""Each field of other projects' controllers' objects is read, or decides nothing for a reason.

For a new release of one of them run `python -m tests.fields.generate_owners` with its types added. Then read
the fields that these tests name, or list them in gangsched.model.owners.known_fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.model.fields import EVERYTHING, Tree, paths_of, steps, tree_of
from gangsched.model.owners import OWNER_KINDS
from gangsched.model.owners.known_fields import OWNERS
from tests.fields.generate_owners import FILE

SHARED = {"status.reclaimablePods[].resourceUsage"}
"""Assignments are decoded by the same struct."""
KINDS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def read(kind: str) -> tuple[str, ...]:
    return paths_of(OWNER_KINDS[kind].wire)


def leaves(types: dict[str, Any], name: str, at: str = "") -> Iterator[str]:
    """Paths of what has no fields of its own here."""
    for field, (kind, _) in types[name].items():
        path = f"{at}.{field}" if at else field
        while kind[:2] in ("[]", "{}"):
            path, kind = path + ("[]" if kind[:2] == "[]" else ".{}"), kind[2:]
        if kind in types:
            yield from leaves(types, kind, path)
        else:
            yield path.removesuffix("[]").removesuffix(".{}")


def is_known(path: str, tree: Tree) -> bool:
    at = tree
    for step in steps(path):
        if EVERYTHING in at:
            return True
        if step not in at:
            return False
        at = at[step]
    return True


def unknown(kind: str, types: dict[str, Any]) -> list[str]:
    tree = tree_of((*read(kind), *OWNERS[kind].without_effect))
    return [path for path in leaves(types, f"of.{kind}") if not is_known(path, tree)]


def test_every_kind_of_another_project_has_its_types_here() -> None:
    others = {kind for kind, one in OWNER_KINDS.items() if one.group != "batch"}
    assert others == {*KINDS} == {*OWNERS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_read_or_decides_nothing_for_a_reason(kind: str) -> None:
    assert unknown(kind, KINDS[kind]["types"]) == []
    assert all(OWNERS[kind].without_effect.values())


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_listed_or_read_that_no_release_has(kind: str) -> None:
    """Of pods' templates and metadata only that they are there: their types are another project's."""
    there = [steps(path) for path in leaves(KINDS[kind]["types"], f"of.{kind}")]

    def exists(path: str) -> bool:
        own = [step for step in steps(path) if step != EVERYTHING]
        return any(one[: len(own)] == own or own[: len(one)] == one for one in there)

    missing = [path for path in (*read(kind), *OWNERS[kind].without_effect) if not exists(path)]
    assert {*missing} <= SHARED
    assert {*read(kind)}.isdisjoint(OWNERS[kind].without_effect)


@pytest.mark.parametrize(("kind", "type_"), [("JobSet", "ReplicatedJob"), ("RayCluster", "WorkerGroupSpec")])
def test_a_field_of_the_next_release_is_named(kind: str, type_: str) -> None:
    types = KINDS[kind]["types"]
    more = types | {f"of.{type_}": {**types[f"of.{type_}"], "startsWith": ["", ""]}}
    assert len(unknown(kind, more)) == 1
