"""State is data: no part of the core has a function of another, except where it is declared here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import msgspec
import pytest

from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.plugins import IN_TREE, build_profiles
from tests.journal.day.making import QUEUES

CORE = Path(__file__).parents[2] / "gangsched" / "core"
_CODE = (FunctionType, MethodType, BuiltinFunctionType, partial)
# Tables of what the scheduler does, and what it is given: a generator's choice, and who is told of faults.
DECLARED = re.compile(
    r"_on_event\b|_on_run\b|_phases\b|_overdue\._deadlines\b|reconciler\._reconcile_in\b"
    r"|ties\.pick\b|_steps\._faults\._guard\b|(_objects|_answers)\.handlers\b"
    r"|shared\.profiles\b"  # plugins, and how they are called
)


def functions(one: Any, place: str = "", seen: set[int] | None = None) -> Iterator[str]:
    """Where an object, and what it is made of, has a function or a method."""
    known = set() if seen is None else seen
    if id(one) in known or isinstance(one, Enum | type | msgspec.Struct):
        return
    known.add(id(one))
    if isinstance(one, _CODE):
        yield place
    elif isinstance(one, dict):
        for key, value in one.items():
            yield from functions(value, f"{place}[{key!r}]", known)
    elif isinstance(one, list | tuple | set | frozenset):
        for at, value in enumerate(one):
            yield from functions(value, f"{place}[{at}]", known)
    elif type(one).__module__.startswith("gangsched."):
        for name, value in _attributes(one):
            yield from functions(value, f"{place}.{name}" if place else name, known)


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for kind in type(one).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(one, name):
                yield name, getattr(one, name)


def test_a_core_has_no_functions_but_those_of_its_tables() -> None:
    config = parse_config(QUEUES, source="", plugins=IN_TREE)
    scheduler = Scheduler(
        build_profiles(config), config.settings, pick=first_of, guard=print, wall_ahead_s=0.0
    )
    found = [*functions(scheduler)]
    assert any(place.startswith("_on_event") for place in found), "the search finds none at all"
    assert [place for place in found if not DECLARED.match(place)] == []


def methods(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Names that are methods of some class, and data of none."""
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                named[True].add(node.attr)
            for one in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(one, ast.FunctionDef):
                    named[any("property" in ast.unparse(it) for it in one.decorator_list)].add(one.name)
                elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                    named[True].add(one.target.id)
    return frozenset(named[False] - named[True])


def given_away(tree: ast.Module, names: frozenset[str]) -> list[str]:
    """Assignments of a function, a method or a partial to an attribute of another object."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_anothers = any(
                isinstance(one, ast.Attribute) and ast.unparse(one.value) not in ("self", "cls")
                for one in targets
            )
            if is_anothers and _is_function(node.value, names):
                found.append(ast.unparse(node))
    return found


def _is_function(value: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in ("partial", "functools.partial")
    is_method = isinstance(value, ast.Attribute) and value.attr in names
    return isinstance(value, ast.Lambda) or (is_method and ast.unparse(value).startswith("self."))


def test_no_part_gives_another_a_function() -> None:
    trees = {path: ast.parse(path.read_text()) for path in sorted(CORE.rglob("*.py"))}
    names = methods(trees.values())
    assert "flush_changes" in names
    found = {path.name: given_away(tree, names) for path, tree in trees.items()}
    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.parametrize(
    "line",
    [
        "self.shared.on_changes = self.note",
        "view.promised = lambda: []",
        "self.room.place = partial(place, self)",
    ],
)
def test_a_function_that_is_given_away_is_found(line: str) -> None:
    assert given_away(ast.parse(line), frozenset({"note"})) == [line]


def test_what_is_data_is_none() -> None:
    for line in ("self.view.going = self.victims", "self.note = self.note", "group.message = why"):
        assert not given_away(ast.parse(line), frozenset({"note"}))
