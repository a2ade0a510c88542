"""The README and the pages of docs/ as a reader's program sees them: fences, links, headings, code spans.

Lives here: reading Markdown (markdown-it-py, GitHub's tables), and GitHub's rule for the anchor of a heading.
Not here: what must hold of it (the tests beside it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = (README, *sorted(DOCS.glob("*.md")))
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its first line in the file, counted from 1."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


@dataclass(frozen=True)
class Link:
    page: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}: {self.target}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The page's fenced blocks in these languages, or all of them."""
    return [
        Block(page, token.map[0] + 2, token.info.strip(), token.content)
        for token in _tokens(page)
        if token.type == "fence" and token.map and (not languages or token.info.strip() in languages)
    ]


def blocks_everywhere(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page, *languages)]


def commands(block: Block) -> list[str]:
    """The command lines of a block; one that goes on in the next line is one."""
    lines = (line.strip() for line in block.text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def links(page: Path) -> list[Link]:
    """Targets of links and images."""
    found = []
    for line, token in _inline(page):
        target = token.attrs.get("href" if token.type == "link_open" else "src")
        if token.type in ("link_open", "image") and isinstance(target, str):
            found.append(Link(page, line, target))
    return found


def code_spans(page: Path) -> list[str]:
    return [token.content for _, token in _inline(page) if token.type == "code_inline"]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may end in."""
    found: dict[str, int] = {}
    tokens = _tokens(page)
    for token, heading in pairwise(tokens):
        if token.type == "heading_open":
            words = (one for one in heading.children or () if one.type in ("text", "code_inline"))
            text = "".join(one.content for one in words)
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found[slug] = found.get(slug, 0) + 1
    return {slug if i == 0 else f"{slug}-{i}" for slug, n in found.items() for i in range(n)}


@cache
def _tokens(page: Path) -> list[Token]:
    return _PARSER.parse(page.read_text(encoding="utf-8"))


def _inline(page: Path) -> Iterator[tuple[int, Token]]:
    for token in _tokens(page):
        for child in token.children or ():
            yield (token.map[0] + 1 if token.map else 0), child
