"""The vocabulary of journals: words whose text itself, not only its equality, may affect decisions.

They come from the program: every string in the code that decides, the names of the fields that it reads, and
the same from plugins given as files. They are no secret, so anonymising keeps them. Called by the command
that anonymises.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec

import gangsched.config
import gangsched.core
import gangsched.extenders
import gangsched.kube.watch
import gangsched.model
import gangsched.plugins
from gangsched.extension.loading import module_name
from gangsched.journal.records import HISTORY_OVER, WORKLOAD_OVER

_ROOMS: tuple[ModuleType, ...] = (
    *(gangsched.model, gangsched.config, gangsched.core, gangsched.plugins),
    *(gangsched.kube.watch, gangsched.extenders),
)
_WHY_IT_ENDS = ("gangsched.process.recording", "gangsched.journal.recorder", "gangsched.journal.writing")
_MORE = (
    *("http", "https", "latest", "docker.io", "library", "NV"),
    *("kube-node-lease", "kube-public", "kube-system", "PreemptLowerPriority", "IfNotPresent"),
    *("kubernetes.io/metadata.name", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch"),
    *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/instance-type"),
    *("node-role.kubernetes.io/control-plane", "pod-template-hash", "amd64", "arm64", "linux", "windows"),
)
"""Words known to libraries that we use, and words that every cluster has."""
_MAX_LITERAL = 400
_APART = re.compile(r"[^A-Za-z0-9._/-]+")
_KEY = re.compile(r"[a-z0-9]\.[a-z0-9]|[a-z]+[./]|[./][a-z]+")
_PROSE = re.compile(r"[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")


class Vocabulary(NamedTuple):
    """words: kept everywhere. prose: words from sentences, kept only in sentences."""

    words: frozenset[str]
    prose: frozenset[str]


@cache
def own_words() -> Vocabulary:
    """Returns this program's vocabulary."""
    names = (one.name for room in _ROOMS for one in pkgutil.walk_packages(room.__path__, f"{room.__name__}."))
    own = _words_of(map(importlib.import_module, (*names, *_WHY_IT_ENDS)))
    return own._replace(prose=own.prose.union(*map(_PROSE.findall, (HISTORY_OVER, WORKLOAD_OVER))))


def words_of_plugins(files: Sequence[str]) -> Vocabulary:
    """Returns the vocabulary of plugins given as files, which are loaded."""
    names = sorted({module_name(Path(file)) for file in files})
    return _words_of(sys.modules[name] for name in names)


def _words_of(modules: Iterable[ModuleType]) -> Vocabulary:
    words, prose = set(_MORE), set[str]()
    for module in modules:
        for text, is_piece in _literals(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            # A piece of a message is not a word, unless it is part of a label key.
            if " " in text.replace(r"\ ", "").strip() or (is_piece and not _KEY.search(text)):
                prose.update(_PROSE.findall(text))
            elif len(text) <= _MAX_LITERAL:
                words.update(_words_in(text))
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, msgspec.Struct):
                words.update((one.__name__, *one.__struct_encode_fields__))
    # A name's domain also occurs alone, in the keys of device labels.
    parts = {part for one in words for part in one.split("/") if part}
    return Vocabulary(frozenset(words | parts), frozenset(prose))


def _literals(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yields strings, and whether each is part of a longer one; skips type annotations and docstrings."""
    todo: list[ast.AST] = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value, False
        if isinstance(one, ast.JoinedStr):
            pieces = [each for each in one.values if isinstance(each, ast.Constant)]
            yield from ((str(each.value), True) for each in pieces)
            todo += [each for each in one.values if not isinstance(each, ast.Constant)]
            continue
        for name, value in ast.iter_fields(one):
            if name not in ("annotation", "returns") and not isinstance(value, str):
                below = value if isinstance(value, list) else [value]
                todo += [each for each in below if isinstance(each, ast.AST) and not _is_docstring(each)]


def _is_docstring(one: ast.AST) -> bool:
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)


def _words_in(text: str) -> Iterator[str]:
    """Yields the words in a string or pattern."""
    for one in (text, *_APART.split(text)):
        if _WORD.fullmatch(one):
            yield one.rstrip("./-") or one
