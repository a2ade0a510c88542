"""Each field of other systems' PodGroups is classified: read, without effect for a reason, or not done.

For a new release of one of them run `python -m tests.fields.generate_groups` with its CRD added. Then read
the fields that these tests name, or list them in the dialect (gangsched.model.dialects): an object that has
one that is not listed is refused.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.model.dialects.dialect import Dialect
from gangsched.model.fields import EVERYTHING, Fields, Known, steps, tree_of
from gangsched.model.pod_group import CORE, DIALECTS
from tests.fields.generate_groups import FILE

SYSTEMS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
BY_GROUP: dict[str, Dialect] = {kind.api_group: one for one in DIALECTS for kind in one.kinds}


def fields_of(system: str) -> Fields:
    return BY_GROUP[SYSTEMS[system]["group"]].fields


def unclassified(paths: list[str], fields: Fields) -> list[str]:
    """Those that are in none of the lists."""
    whole = (f"{path}.{EVERYTHING}" for path in (*fields.refused, *fields.wishes))
    tree = tree_of((*fields.read, *fields.without_effect, *whole))

    def is_known(path: str) -> bool:
        at = tree
        for step in steps(path):
            if EVERYTHING in at:
                return True
            if step not in at:
                return False
            at = at[step]
        return not at or EVERYTHING in at

    return [path for path in paths if not is_known(path)]


def test_every_system_with_objects_of_its_own_has_its_crd_here() -> None:
    groups = {one["group"] for one in SYSTEMS.values()}
    assert groups == {kind.api_group for one in DIALECTS if one.name != CORE for kind in one.kinds}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_field_of_its_crd_is_classified(system: str) -> None:
    assert unclassified(list(SYSTEMS[system]["fields"]), fields_of(system)) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_version_that_is_read_is_served(system: str) -> None:
    served = {version for by in SYSTEMS[system]["fields"].values() for version in by}
    own = SYSTEMS[system]["group"]
    read = {v for kind in BY_GROUP[own].kinds if kind.api_group == own for v in kind.versions}
    assert read <= served


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_field_is_listed_that_no_release_has(system: str) -> None:
    fields = fields_of(system)
    there = [steps(path) for path in SYSTEMS[system]["fields"]]
    listed = (*fields.read, *fields.without_effect, *fields.refused, *fields.wishes)
    at = [[step for step in steps(path) if step != EVERYTHING] for path in listed]
    assert [path for path in at if not any(one[: len(path)] == path for one in there)] == []
    assert all((*fields.without_effect.values(), *fields.refused.values(), *fields.wishes.values()))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("at", ["spec.gangMode", "spec.minMember.atLeast"])
def test_a_field_of_the_next_release_is_named_and_refused(system: str, at: str) -> None:
    assert unclassified([at], fields_of(system)) == [at]
    _, first, *rest = steps(at)
    value: Any = {rest[0]: 1} if rest else True
    refused = Known(fields_of(system)).search({first: value}).unsupported
    assert any("does not know the field" in one for one in refused)
