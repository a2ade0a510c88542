"""Faults of our own in the log: each kind once with its story, and then a line a minute with how many."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from gangsched.core.turns.steps import Defect
from gangsched.process.defects import AGAIN_S, Defects


def story(line: int) -> str:
    place = f'  File "core/cache/cache.py", line {line}, in place'
    return f"Traceback (most recent call last):\n{place}\nKeyError: 1\n"


@pytest.fixture
def said() -> Any:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_each_kind_is_reported_once_with_its_story(said: list[dict[str, Any]]) -> None:
    now = [0.0]
    defects = Defects(clock=lambda: now[0])
    for i in range(1_000):
        defects.tell(Defect("PodAdded", f"d/bad{i}", "KeyError: 1", story(7)))
    defects.tell(Defect("PodAdded", "d/other", "KeyError: 1", story(8)))
    assert [(line["about"], "line" in line["story"]) for line in said] == [
        ("d/bad0", True),
        ("d/other", True),
    ]
    now[0] = AGAIN_S + 1
    defects.tell(Defect("PodAdded", "d/late", "KeyError: 1", story(7)))
    assert (said[-1]["about"], said[-1]["story"]) == ("d/late", "")


def test_the_number_of_unreported_defects_is_reported(said: list[dict[str, Any]]) -> None:
    defects = Defects(clock=lambda: 0.0)
    for _ in range(5):
        defects.tell(Defect("PodAdded", "d/bad", "KeyError: 1", story(7)))
    defects.tell(Defect("NodeAdded", "n0", "KeyError: 1", story(7)))
    assert said[-1]["n_more_like_it"] == 4
