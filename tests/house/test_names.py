"""The glossary names classes that exist, and no name of the core, the edge or the model is two of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

REPO = Path(__file__).parents[2]
_CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
_NAMED = re.compile(r"`([A-Z][A-Za-z]+)`")


def classes(*rooms: str) -> Counter[str]:
    """Public classes of these rooms, with how many files each is in."""
    sources = (path for room in rooms for path in (REPO / "gangsched" / room).rglob("*.py"))
    return Counter(name for path in sources for name in _CLASS.findall(path.read_text()))


def ours(page: str) -> list[str]:
    """Classes in the glossary's columns of ours: the second of the first table, the first of the second."""
    _, _, text = page.partition("\n## Glossary\n")
    rows = [line.split("|") for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    assert rows, "the glossary has gone from the page"
    column, found = 2, []
    for row in rows:
        if "our word" in row[1]:
            column = 1
        found += _NAMED.findall(row[column])
    return found


def unknown(page: str) -> list[str]:
    known = classes("core", "kube", "model", "extension", "process", "")
    return [name for name in ours(page) if name not in known]


def test_every_class_in_the_glossary_exists() -> None:
    page = (REPO / "docs" / "architecture.md").read_text()
    assert len(ours(page)) > 60
    assert not unknown(page)


def test_a_class_that_is_gone_is_found() -> None:
    page = (
        "\n## Glossary\n\n| theirs | ours | why |\n|---|---|---|\n| Cache | `Cache`, `World` | |\n\n## More\n"
    )
    assert unknown(page) == ["World"]


def test_no_name_is_two_classes() -> None:
    twice = {name for name, n in classes("core", "kube", "model").items() if n > 1}
    assert not twice


def lookers(source: str) -> list[str]:
    """Methods that are named for looking, which says nothing of what becomes of it."""
    return re.findall(r"^ +def (_?look(?:_\w+)?)\(", source, re.MULTILINE)


def test_a_method_of_the_core_is_named_for_what_it_does() -> None:
    sources = (REPO / "gangsched" / "core").rglob("*.py")
    assert not [f"{path.name}: {name}" for path in sources for name in lookers(path.read_text())]
    assert lookers("class A:\n    def look_at(self): ...\n    def overlook(self): ...\n") == ["look_at"]
