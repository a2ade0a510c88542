"""In several processes, files of long tests are begun before those that are over soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import longest_first


class Item:
    """As much of a collected test as is looked at."""

    def __init__(self, name: str, timeout_s: float | None = None) -> None:
        self.name = name
        self.path = Path(name.partition("::")[0])
        self._marker = pytest.mark.timeout(timeout_s).mark if timeout_s is not None else None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._marker if name == "timeout" else None


def test_files_of_long_timeouts_come_first_and_then_those_with_the_most_tests() -> None:
    items = [Item("few::a"), Item("many::a"), Item("many::b"), Item("long::a"), Item("long::b", 400.0)]
    items += [Item("longer::a", 600.0), Item("few::b"), Item("many::c")]
    assert [item.name for item in longest_first(items)] == [  # type: ignore[arg-type]
        *("longer::a", "long::a", "long::b"),
        *("many::a", "many::b", "many::c"),
        *("few::a", "few::b"),
    ]
