"""Each judge of the simulation has a name, which its violations begin with, and a line in the catalogue."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gangsched.core.turns import invariants
from gangsched.lab import sim
from gangsched.lab.sim.judges.catalogue import JUDGES
from tests.sim import (
    test_museum,
    test_museum_claims,
    test_museum_constraints,
    test_museum_faults,
    test_museum_room,
    test_museum_waiting,
    test_museum_words,
    test_wire_museum,
)
from tests.support.breaking import SHOWN_BY

ROOM = Path(sim.__file__).parent
# As in f"one-holder: {device} is held by {owners}", of one judge or two.
_VIOLATION = re.compile(r"([a-z]+(?:-[a-z]+)*(?:, [a-z]+(?:-[a-z]+)*)*): ")


def texts() -> Iterator[tuple[str, str]]:
    """Yields where and how each text begins that is yielded, or given to what collects violations."""
    for path in (*sorted(ROOM.rglob("*.py")), Path(invariants.__file__)):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (_collects(node) or path.name == "invariants.py"):
                continue
            for one in ast.walk(node):
                if isinstance(one, ast.JoinedStr) and one.values and isinstance(one.values[0], ast.Constant):
                    yield f"{path.name}:{one.lineno}", str(one.values[0].value)


def _collects(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("judge", "_judge") or "too_many" in ast.unparse(node.func)
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.AugAssign)


def found() -> dict[str, str]:
    names: dict[str, str] = {}
    for where, text in texts():
        if match := _VIOLATION.match(text):
            names |= dict.fromkeys(match[1].split(", "), where)
    return names


def test_every_violation_begins_with_the_name_of_a_judge() -> None:
    assert not {name: where for name, where in found().items() if name not in JUDGES}
    assert not [(where, text) for where, text in texts() if re.match(r"I?\d+(, \d+)*: ", text)]


def test_every_judge_of_the_catalogue_can_find_something() -> None:
    assert not JUDGES.keys() - found().keys()


def test_the_seeds_that_showed_a_mistake_last_are_of_mistakes_that_exist() -> None:
    rooms = (
        *(test_museum, test_museum_claims, test_museum_constraints, test_museum_faults),
        *(test_museum_room, test_museum_waiting, test_museum_words),
    )
    mistakes = {name for room in rooms for name in room.EXHIBITS}
    mistakes |= {mistake.__name__ for mistake in test_wire_museum.EXHIBITS}
    assert not SHOWN_BY.keys() - mistakes
