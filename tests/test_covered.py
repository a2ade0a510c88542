"""`make coverage`: the Python that it counts on, and its table."""

from __future__ import annotations

import pytest

from tests import covered


def test_without_a_python_that_counts_at_little_cost_it_says_which_are_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(covered, "find_python", lambda _: None)
    assert covered.main([]) == 2
    assert "coverage needs Python 3.12 or 3.13; none is on the PATH" in capsys.readouterr().err


def test_the_table_adds_up_by_room() -> None:
    def of(n: int, n_missed: int) -> dict[str, dict[str, int]]:
        return {"summary": {"num_statements": n, "missing_lines": n_missed}}

    files = {
        "gangsched/signals.py": of(10, 0),
        "gangsched/core/scheduler.py": of(60, 6),
        "gangsched/core/cache/cache.py": of(40, 4),
        "gangsched/model/empty.py": of(0, 0),
    }
    assert [line.split() for line in covered.table(files).splitlines()] == [
        ["room", "lines", "missed", "run"],
        ["gangsched", "10", "0", "100%"],
        ["gangsched/core", "100", "10", "90%"],
        ["gangsched/model", "0", "0", "100%"],
        ["all", "110", "10", "91%"],
    ]
