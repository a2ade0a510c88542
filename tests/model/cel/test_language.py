"""The language and its libraries: language.jsonl has an expression a line, and what cel-go makes of it.

That these are cel-go's answers is checked by test_oracle.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.cel.questions import answer

DEVICE: dict[str, Any] = {
    "driver": "",
    "attributes": {"d/v": {"version": "1.0.0"}, "d/a": {"int": -1}},
    "capacity": {"d/m": {"value": "1"}},
}
CASES: list[dict[str, str]] = [
    json.loads(line) for line in (Path(__file__).parent / "language.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[case["expression"][:60] for case in CASES])
def test_case(case: dict[str, str]) -> None:
    assert answer({"expression": case["expression"], **DEVICE}) == case["answer"]
