"""One function decides where a unit fits: whoever wants to know asks it, on a copy."""

from __future__ import annotations

import ast
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "gangsched"


def test_the_cycle_is_run_in_one_place() -> None:
    runs = {
        path.relative_to(HOUSE).as_posix()
        for path in sorted(HOUSE.rglob("*.py"))
        if "run_cycle" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "run_cycle"
    }
    assert runs == {"core/groups/attempts/placer.py"}, "ask Placer, which has the unit's demand and settings"
