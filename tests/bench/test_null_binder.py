"""The null binder's plan file and its reading of answers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gangsched.lab.bench.rounds.null_binder import is_whole, read_plan, write_plan

CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\ncontent-length: 4\r\n\r\n"


def test_a_plan_comes_back_as_it_was_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    requests = [b"POST /a", b"", b"x" * 70_000]
    write_plan(tmp_path / "plan", requests)
    assert read_plan(tmp_path / "plan") == requests
    assert stat.S_IMODE((tmp_path / "plan").stat().st_mode) == 0o600


@pytest.mark.parametrize("missing", [1, 4, 5, 40])
def test_an_answer_is_whole_with_its_last_byte(missing: int) -> None:
    answer = CREATED + b"{..}"
    assert is_whole(answer)
    assert not is_whole(answer[:-missing])


def test_an_answer_without_a_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a length"):
        is_whole(b"HTTP/1.1 201 Created\r\n\r\n{}")
