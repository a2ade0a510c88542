"""The tables of Kubernetes' own tests of its allocator, of allocator_cases.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tests.resource_claims.cases import Case, Object

_FILE = Path(__file__).parent / "allocator_cases.jsonl"


class Table(NamedTuple):
    """A case of one node, and what is answered there.

    case: with the features that the test has on. off: those of them that Kubernetes 1.37 has off. answer:
    what the test expects. by_default: the answer with the features that 1.37 has on; None where `off` names
    some.
    """

    name: str
    case: Case
    off: list[str]
    answer: Object
    by_default: Object | None


def tables() -> list[Table]:
    """All of them, by name."""
    return [_table(json.loads(line)) for line in _FILE.read_text().splitlines()]


def _table(line: Case) -> Table:
    name, off, answer = line.pop("case"), line.pop("off", []), line.pop("answer")
    by_default = line.pop("defaults", None if off else answer)
    objects = {kind: line[kind] or [] for kind in ("nodes", "slices", "classes", "allocated", "claims")}
    return Table(name, {**objects, "rules": [], "features": line["features"]}, off, answer, by_default)
