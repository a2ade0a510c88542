"""Reasons are values (gangsched.core.why): no code reads a text for what it means, but those of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
# Texts of others, for which there is no value; and where a text is the only memory.
KNOWN: Mapping[str, str] = {
    "gangsched/model/text/server_refusals.py": "the API server's: code and reason leave out what is meant",
    "gangsched/core/kept/eviction_rounds.py": "a pod's condition, in which a count outlasts the process",
    "gangsched/lab/sim/judges/queueing/filling.py": "the same condition, read for itself",
    "gangsched/lab/sim/runs/duel.py": "a defect's text, for the UIDs in it",
    "gangsched/lab/sim/wire/run.py": "the edge's, whose texts are what is tested",
    "gangsched/lab/sim/wire/server.py": "headers of HTTP",
    "gangsched/lab/apiserver/storage/lists.py": "an error of its own, worded for another request",
    "gangsched/lab/apiserver/documents/openapi_descriptions.py": "sources of a package",
    "gangsched/lab/apiserver/patching/json_patch.py": "an error of its own, worded for another request",
    "gangsched/lab/apiserver/simulated/jobs/controller.py": "the API server's",
    "gangsched/lab/apiserver/simulated/nodes/node_agent.py": "the node agent's",
    "gangsched/lab/controlplane/jaeger.py": "the operating system's",
    "gangsched/lab/controlplane/processes.py": "the operating system's",
    "gangsched/lab/demo/scene.py": "the demo's screen shortens what the scheduler tells people",
    "gangsched/lab/demo/shows/summary.py": "likewise",
    "gangsched/api_rules/names.py": "a text of its own, shortened",
    "gangsched/agent/report/notices.py": "keys, which begin with a word",
    "gangsched/command/arguments.py": "argparse's",
    "gangsched/reading/strict.py": "msgspec's",
    "gangsched/process/defects.py": "a traceback's",
    "gangsched/kube/access/loaders.py": "kubernetes_asyncio's",
    "gangsched/telemetry/showing/command.py": "a command line, for the file in it",
}
_TAKEN_APART = frozenset(
    (
        *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"),
        *("split", "rsplit", "find", "rfind", "index", "rindex", "replace", "count"),
    )
)
_MATCHED = frozenset(("compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "split"))
_TOLD = frozenset(("message", "problem", "answer"))
_ENGLISH = re.compile(r"[A-Za-z]{2,}[;:,.]? |[;:,.] [A-Za-z]|^ [A-Za-z]{2}|^[;:,.] ")
_PATTERN = re.compile(r"[A-Za-z]{2,}[;:,.]? [A-Za-z(\[\\]|[)\]+*?] [a-z]{2,}")


def read_texts(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[int]:
    """Yields the lines where a text is searched or taken apart by English words. constants: texts by the name
    that the module has for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.In | ast.NotIn) for one in node.ops):
            within = node.comparators[-1]
            is_told = getattr(within, "attr", "") in _TOLD or _ENGLISH.search(_text(node.left, constants))
            if is_told and not isinstance(within, ast.Tuple | ast.List | ast.Set | ast.Dict):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of, given = node.func.value, _text(node.args[0], constants)
            is_told = getattr(of, "attr", "") in _TOLD or _ENGLISH.search(given)
            is_pattern = node.func.attr in _MATCHED and getattr(of, "id", "") == "re"
            if (node.func.attr in _TAKEN_APART and is_told) or (is_pattern and _PATTERN.search(given)):
                yield node.lineno


def _text(node: ast.AST, constants: Mapping[str, str]) -> str:
    """Returns the text that the expression is, with 0 for what varies; of several, one that is English."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(one.value) if isinstance(one, ast.Constant) else "0" for one in parts)
        case ast.Name(id=name):
            return constants.get(name, "")
        case ast.BinOp(left=left, right=right):
            return _text(left, constants) + _text(right, constants)
        case ast.Tuple(elts=several):
            return next((text for one in several if _ENGLISH.search(text := _text(one, constants))), "")
    return ""


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: text
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if (text := _text(node.value, {}))
    }


def found_in(repo: Path) -> dict[str, list[int]]:
    """File -> its lines that read a text."""
    trees = {
        path.relative_to(repo).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((repo / "gangsched").rglob("*.py"))
    }
    own = {name: _constants(tree) for name, tree in trees.items()}
    found = {}
    for name, tree in trees.items():
        known = dict(own[name])
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                there = own.get(f"{node.module.replace('.', '/')}.py", {})
                known |= {one.asname or one.name: there[one.name] for one in node.names if one.name in there}
        if lines := sorted(set(read_texts(tree, known))):
            found[name] = lines
    return found


def test_no_text_of_ours_is_read_for_what_it_means() -> None:
    found = found_in(REPO)
    new = [f"{name}:{line}" for name, lines in found.items() if name not in KNOWN for line in lines]
    assert not new, "make a value of the reason (gangsched.core.why) and read that: " + ", ".join(new)
    assert not KNOWN.keys() - found.keys(), "these read no text any more"


def test_each_way_of_reading_a_text_is_found() -> None:
    source = """
NOT_NOW = "not now, later"
a = "it is full" in why
b = NOT_NOW in why
c = uid in error.message
d = told.startswith(f"gang {name} waits")
e = told.partition("; it is left")[0]
f = group.message.removeprefix(prefix)
g = re.compile(r"([0-9]+) of ([0-9]+) fit")
h = "it is full" in ("it is full",)
i = name.startswith("kube-")
j = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""
    tree = ast.parse(source)
    assert sorted(set(read_texts(tree, _constants(tree)))) == [3, 4, 5, 6, 7, 8, 9]
