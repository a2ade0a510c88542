"""Every message that the scheduler puts on a pod, a group or a node, or says about itself, from its source.

A message is a text of the rooms below that is neither a docstring nor an error of ours: what varies in it is
shown as `…`. Not among them: details of bytes on a connection, the configuration file's mistakes, which name
their own cure, and what answers a person at a command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.docs.pages import ROOT

ROOMS = (
    "core",
    "plugins",
    "model",
    "extenders",
    "shadow/judge.py",
    "extension/budget.py",
    "extension/runner.py",
    "extension/outside.py",
    "agent/plugins/hand_off.py",
    *(
        "agent/app.py",
        "agent/report/holders.py",
        "agent/report/notices.py",
        "agent/probes/gaps.py",
        "agent/probes/running.py",
    ),
    *("extension/loading.py", "extension/reload.py", "extension/signatures.py"),
    *("process/following.py", "process/leadership.py"),
    *(
        "process/app.py",
        "certificates.py",
        "kube/watch/catch_up.py",
        "kube/transport/complaints.py",
        "kube/access/credentials.py",
    ),
    *("kube/effects/bumps.py", "kube/election/fence_keeper.py", "kube/take_over.py"),
    *(
        "kube/election/elector.py",
        "kube/election/fence_keeper.py",
        "kube/election/other_scheduler.py",
        "kube/access/exec_plugin.py",
        "kube/access/fields.py",
        "kube/access/files.py",
        "kube/access/loaders.py",
        "kube/network.py",
        "kube/access/proxies.py",
    ),
    *("kube/same_cluster.py", "kube/version.py", "kube/watch/reflector.py"),
    *(
        "kube/watch/newer.py",
        "kube/watch/watch_state.py",
        "telemetry/sending/export.py",
        "web/access.py",
        "web/serving/checks.py",
        "web/listening.py",
    ),
    *(
        "web/pages/waiting.py",
        "kube/reach.py",
        "journal/recorder.py",
        "journal/writing.py",
        "journal/directory.py",
        "process/recording.py",
    ),
)
# What these say is for developers (a broken invariant, which raises), or for a person at a command.
# Tables of states, of a turn's phases and of deadlines are printed in docs/architecture.md.
_OURS = (
    "core/state/tables/groups.py",
    "core/state/tables/binds.py",
    "core/state/tables/starts.py",
    "core/state/tables/table.py",
    "core/types/states.py",
    "core/state/timers.py",
    "core/turns/dirty.py",
    "core/turns/invariants.py",
    # The answers of `gangsched explain`, which tell what to do themselves.
    "core/explaining/explain.py",
    "core/explaining/claim_views.py",
    "core/explaining/claim_waits.py",
    "core/explaining/cures.py",
    "core/explaining/failed_devices.py",
    "core/explaining/owed.py",
    "core/types/ended.py",
    "model/owners/__init__.py",
    "core/explaining/room.py",
    "core/explaining/sets.py",
    "core/types/templates/affinity_terms.py",
    # What is wrong with an expression of its user's, and where in it.
    "model/cel/",
    # What the API server says.
    "model/text/server_refusals.py",
    # Reasons why fields decide nothing, for developers.
    "model/known_fields.py",
    "model/owners/known_fields.py",
    "model/stated/evenness.py",
)
_OUR_FUNCTIONS = ("__repr__", "recount", "_search", "drawn")
_OUR_ERRORS = ("InvariantError", "AssertionError", "AttributeError", "TypeError", "NotImplementedError")
_REASON = re.compile(r"(?:[A-Z][a-z]+){2,}")
_TELLS = {"event", "pod_event", "node_problem", "rejected", "devices", "_tell", "RecordEvent", "_event"}
VARIES = "…"
_HTTP = re.compile(rf"[A-Z]+ {VARIES} HTTP/1\.1|[A-Z][a-z]+(?:-[A-Z][a-z]+)+: {VARIES}")


class Message(NamedTuple):
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"gangsched/{self.file}:{self.line}: {self.text!r}"

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds the message in a text, whatever stands where it varies."""
        return _pattern(self.text)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # Where it joins another message its own edges are commas and dots.
    pieces = text.strip(" .,;").split(VARIES)
    return re.compile(".*?".join(re.escape(piece) for piece in pieces))


@cache
def messages() -> tuple[Message, ...]:
    found: dict[str, Message] = {}
    for file, tree in _trees():
        for line, text in _texts(tree, _docstrings(tree)):
            if _says_something(text):
                found.setdefault(text.strip(), Message(file, line, text))
    return tuple(found.values())


@cache
def event_reasons() -> tuple[str, ...]:
    """Reasons of events and conditions: CamelCase texts handed to what tells."""
    found: set[str] = set()
    for _, tree in _trees():
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name) and isinstance(node.value.value, str)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _called(call) in _TELLS:
                for one in (*call.args, *(keyword.value for keyword in call.keywords)):
                    for leaf in (one.body, one.orelse) if isinstance(one, ast.IfExp) else (one,):
                        text = leaf.value if isinstance(leaf, ast.Constant) else None
                        if isinstance(leaf, ast.Name) and leaf.id != "ACTION":
                            text = constants.get(leaf.id)
                        if isinstance(text, str) and _REASON.fullmatch(text):
                            found.add(text)
            elif isinstance(call, ast.FunctionDef) and call.name in _TELLS:
                defaults = (*call.args.defaults, *call.args.kw_defaults)
                texts = (one.value for one in defaults if isinstance(one, ast.Constant))
                found.update(text for text in texts if isinstance(text, str) and _REASON.fullmatch(text))
    return tuple(sorted(found))


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    top, found = ROOT / "gangsched", []
    for room in ROOMS:
        path = top / room
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = file.relative_to(top).as_posix()
            if not name.startswith(_OURS):
                found.append((name, ast.parse(file.read_text(encoding="utf-8"))))
    return found


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _docstrings(tree: ast.Module) -> set[int]:
    """A text that stands as a statement documents what is before it, or what it is in."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _texts(node: ast.AST, docstrings: set[int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _called(node.exc) in _OUR_ERRORS:
        return
    if isinstance(node, ast.Assert) or (isinstance(node, ast.FunctionDef) and node.name in _OUR_FUNCTIONS):
        return
    if isinstance(node, ast.Call) and _called(node) in (
        "compile",
        "TypeVar",
        "InvariantError",
        "Phase",
        "Deadline",
        "Meta",  # what a field means, in docs/configuration.md
    ):
        return
    if isinstance(node, ast.keyword) and node.arg == "without_effect":
        return  # reasons why fields decide nothing, for developers
    if isinstance(node, ast.JoinedStr):
        pieces = [one.value if isinstance(one, ast.Constant) else VARIES for one in node.values]
        yield node.lineno, "".join(map(str, pieces))
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                yield from _texts(value.value, docstrings)
        return
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, docstrings)


def _says_something(text: str) -> bool:
    """Whether there is a sentence in it, and not a key, a name, a line of HTTP or the glue between others."""
    if _HTTP.fullmatch(text):
        return False
    words = re.findall(r"[A-Za-z']{2,}", text)
    return " " in text.strip() and len(words) >= 1 and sum(map(len, words)) >= 8
