"""Kubernetes' own cases of selectors and of derived attributes, 111 in upstream.jsonl.

Source: k8s.io/dynamic-resource-allocation v0.37.1, the tables of `cel/compile_test.go`, printed from a copy
of the module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gangsched.model.cel.compiler import compile_tree
from gangsched.model.cel.library.amounts import read_semver
from gangsched.model.cel.selector import compile
from gangsched.model.cel.syntax import parse
from gangsched.model.cel.values import Run, SelectorError
from tests.model.cel.questions import ERROR, NO, REFUSED, YES, answer, view

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "upstream.jsonl").read_text().splitlines()
]
# What it refuses while a gate is off it has not stored. Its types are right as well.
LEFT_TO_THE_API_SERVER = {
    "macro-compilation-error-new-expressions",
    "includes-function-compilation-error",
    "allow_multiple_allocations_disabled",
}


def has_lists(case: dict[str, Any]) -> bool:
    """Whether the device has a list as an attribute, which is alpha."""
    return any(kind.endswith("s") for one in case.get("attributes", {}).values() for kind in one)


def of(*answers: str) -> list[Any]:
    """The cases with these answers whose devices have no lists."""
    found = [case for case in CASES if case["answer"] in answers and not has_lists(case)]
    return [pytest.param(case, id=case["case"]) for case in found]


def test_none_of_them_is_missing() -> None:
    assert len(CASES) == 111
    assert len({case["case"] for case in CASES}) == 111


@pytest.mark.parametrize("case", of(YES, NO, ERROR))
def test_a_device_is_selected_or_not(case: dict[str, Any]) -> None:
    assert answer(case) == case["answer"]


@pytest.mark.parametrize("case", of("value", "compiles"))
def test_an_expression_has_a_value(case: dict[str, Any]) -> None:
    compiled = compile_tree(parse(case["expression"]), case["expression"])
    if case["answer"] == "value":
        found = compiled.step(Run(view(case).variables, compiled.n_slots))
        assert json.dumps(found) == json.dumps(value_of(case["value"]))


def value_of(written: Any) -> Any:
    """A value as it is written in the file: a version is an object, to tell it from a string."""
    if isinstance(written, list):
        return [value_of(one) for one in written]
    return read_semver(written["version"]) if isinstance(written, dict) else written


@pytest.mark.parametrize("case", of(REFUSED))
def test_what_the_api_server_refuses_selects_nothing(case: dict[str, Any]) -> None:
    if case["case"] in LEFT_TO_THE_API_SERVER:
        compile(case["expression"])
    else:
        assert answer(case) == ERROR


@pytest.mark.parametrize("case", [pytest.param(one, id=one["case"]) for one in CASES if has_lists(one)])
def test_a_device_with_lists_is_refused_by_name(case: dict[str, Any]) -> None:
    (name,) = case["attributes"]
    with pytest.raises(SelectorError, match=f"attribute {name} is a list, which is alpha in Kubernetes 1.37"):
        view(case)
