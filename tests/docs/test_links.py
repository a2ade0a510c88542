"""No link is dead: pages, headings, pictures and the paths of the source that the text names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import KUBERNETES_VERSION
from tests.docs.pages import DOCS, PAGES, README, ROOT, Link, anchors, code_spans, links, name_of

_OUTSIDE = ("http://", "https://", "mailto:")
# What the text may name as a file of the repository: it begins in one of these and has no blank.
_PATH = re.compile(r"(?:gangsched|config|deploy|tests|docs|\.ci)/[\w./-]+")
MAX_README_LINES = 150


def _problem(link: Link) -> str:
    if link.target.startswith(_OUTSIDE):
        return ""
    path, _, anchor = link.target.partition("#")
    to = (link.page.parent / path).resolve() if path else link.page
    if not to.exists():
        return f"{link}: there is no such file"
    if link.page.parent == DOCS and DOCS not in (to, *to.parents):
        return f"{link}: leaves docs/, and the site has nothing there"
    if anchor and anchor not in anchors(to):
        return f"{link}: {name_of(to)} has no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    problems = [problem for link in links(page) if (problem := _problem(link))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_of_the_source_exist(page: Path) -> None:
    named = [span for span in code_spans(page) if _PATH.fullmatch(span)]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_page_is_reached_from_the_index() -> None:
    linked = {link.target.partition("#")[0] for link in links(DOCS / "README.md")}
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MAX_README_LINES


def test_the_versions_that_are_told_are_those_that_tests_run_on() -> None:
    version = KUBERNETES_VERSION.removeprefix("v")
    for page in (README, DOCS / "operating.md"):
        assert version in page.read_text(encoding="utf-8")


def test_a_dead_link_is_found() -> None:
    assert _problem(Link(DOCS / "gangs.md", 1, "nowhere.md"))
    assert _problem(Link(DOCS / "gangs.md", 1, "devices.md#nowhere"))
    assert _problem(Link(DOCS / "gangs.md", 1, "../README.md"))
    assert not _problem(Link(DOCS / "gangs.md", 1, "devices.md#three-hand-offs"))
