"""Modules that comments and docstrings speak of exist: a stranger follows them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

REPO = Path(__file__).parents[2]
HOUSE = REPO / "gangsched"
ROOMS = sorted(path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists())
# With `gangsched` before it or without; "podgroups.core" and "self.core.x" are none.
_DOTTED = re.compile(rf"(?<![\w./\-])(?:gangsched\.)?((?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]\w*)+)")
_FILE = re.compile(rf"(?<![\w./\-])(?:gangsched/)?((?:{'|'.join(ROOMS)})(?:/\w+)*/\w+\.py)\b")
_IMPORT = re.compile(r"^ *(?:from [\w.]+ )?import .*$", re.MULTILINE)
_TEST = re.compile(r"(?<![\w./\-])(tests/[\w/]+\.py)\b")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that stand alone, and comments, with their lines.

    A file is taken apart, which takes long, only where something in it looks like a mention, and into tokens
    only where a comment may have one.
    """
    source = path.read_text()
    if not mentions(_IMPORT.sub("", source)):
        return
    for node in ast.walk(ast.parse(source)):
        alone = node.value if isinstance(node, ast.Expr) else None
        if isinstance(alone, ast.Constant) and isinstance(alone.value, str):
            yield alone.lineno, alone.value
    if any(mentions(line.partition("#")[2]) for line in source.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def mentions(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_DOTTED, _FILE, _TEST))


def exists(mention: str) -> bool:
    """A module, or a name in one: its last parts may be a class and its method."""
    parts = mention.split(".")
    for n in range(len(parts), 0, -1):
        module = HOUSE.joinpath(*parts[:n])
        file = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__init__.py"
        if file.exists():
            rest = parts[n : n + 1]
            return not rest or re.search(rf"\b{rest[0]}\b", file.read_text()) is not None
    return False


def stale(path: Path) -> Iterator[str]:
    for line, text in texts(path):
        place = f"{path.relative_to(REPO)}:{line}"
        for mention in _DOTTED.findall(text):
            if not exists(mention):
                yield f"{place}: {mention}"
        yield from (f"{place}: {file}" for file in _FILE.findall(text) if not (HOUSE / file).exists())
        yield from (f"{place}: {file}" for file in _TEST.findall(text) if not (REPO / file).exists())


def unknown_commands(path: Path) -> Iterator[str]:
    """What a list of words runs with "-m" and is neither the name of a module nor taken from one."""
    source = path.read_text()
    for words in ast.walk(ast.parse(source)) if '"-m"' in source else ():
        if not isinstance(words, ast.List | ast.Tuple):
            continue
        for flag, after in pairwise(words.elts):
            if not (isinstance(flag, ast.Constant) and flag.value == "-m"):
                continue
            place = f"{path.relative_to(REPO)}:{after.lineno}"
            if isinstance(after, ast.JoinedStr):
                yield f"{place}: write the module's whole name, or take its __name__"
            name = str(after.value) if isinstance(after, ast.Constant) else ""
            if name.startswith("gangsched.") and not exists(name.removeprefix("gangsched.")):
                yield f"{place}: {name}"


def test_every_module_that_is_mentioned_exists() -> None:
    sources = [*HOUSE.rglob("*.py"), *(REPO / "tests").rglob("*.py")]
    assert len(sources) > 500
    found = [one for path in sources if "_pb2" not in path.name for one in stale(path)]
    found += [one for path in sources for one in unknown_commands(path)]
    assert not found, "\n".join(found)


def test_a_module_that_is_gone_is_found(tmp_path: Path) -> None:
    assert exists("core.scheduler")
    assert exists("core.scheduler.Scheduler")
    assert not exists("core.no_such_room")
    assert not exists("core.scheduler.NoSuchClass")
