"""Altered files of other schedulers: an import ends with a journal that replays, or says what is wrong.

ALTERED_FILES: how many of each kind, 12 unless it is set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gangsched.command.cli import main
from tests.importing.test_import import (
    NODES,
    PODS,
    SACCT,
    SWF,
    a_node,
    a_pod,
    audited,
    listed,
    ran,
)
from tests.journal.mutated import HOSTILE, mutated, with_bytes

N = int(os.environ.get("ALTERED_FILES", "12"))
OURS = "arrival_s,run_s,devices,stated_s,user\n0,100,4,200,ann\n10,100,4,,bob\n20,5,1,,\n"


def cells(rng: Random, text: str, between: str) -> bytes:
    """A cell or three of a table, or some bytes of it."""
    if rng.random() < 0.2:
        return with_bytes(rng, text.encode())
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(lines))
        found = lines[at].split(between)
        found[rng.randrange(len(found))] = rng.choice([str(one) for one in HOSTILE] + ["1e999", "-1", "1e11"])
        lines[at] = between.join(found)
    return ("\n".join(lines) + "\n").encode()


def a_list(rng: Random) -> bytes:
    return mutated(
        rng, listed(a_node(), a_node("n2"), ran("a", "p1"), a_pod("b", "p2"), ran("c", "p3")).encode()
    )


def a_log(rng: Random) -> bytes:
    ended = a_pod("a", "p1", status={"phase": "Failed"})
    node = {"resource": "nodes", "name": "n1", "subresource": "status"}
    lines = [
        audited("01:59:00", "patch", "n1", objectRef=node, responseObject=a_node()),
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1")),
        audited("02:00:01", "create", "b", requestObject=a_pod("b", "")),
        audited("02:01:00", "create", "a", "binding", requestObject={"target": {"name": "n1"}}),
        audited("02:31:00", "patch", "a", "status", responseObject=ended),
        audited("02:32:00", "delete", "b"),
    ]
    at = rng.randrange(len(lines))
    return (
        "".join(lines[:at]).encode() + mutated(rng, lines[at].encode()) + "\n".join(lines[at + 1 :]).encode()
    )


FILES: dict[str, tuple[str, Callable[[Random], bytes]]] = {
    "a list": ("kubernetes", a_list),
    "an audit log": ("kubernetes", a_log),
    "swf": ("swf", lambda rng: cells(rng, "; UnixStartTime: 1119998998\n" + SWF, " ")),
    "sacct": ("sacct", lambda rng: cells(rng, SACCT, "|")),
    "openb": ("csv", lambda rng: cells(rng, PODS, ",")),
    "ours": ("csv", lambda rng: cells(rng, OURS, ",")),
}


@pytest.mark.parametrize("seed", range(N))
@pytest.mark.parametrize("name", FILES)
def test_an_altered_file_ends_in_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, seed: int
) -> None:
    rng = Random(f"{name} {seed}")
    kind, alter = FILES[name]
    source, nodes, out = tmp_path / "source", tmp_path / "nodes.csv", tmp_path / "out"
    source.write_bytes(alter(rng))
    nodes.write_bytes(cells(rng, NODES, ","))
    more = ["--node-list", str(nodes)] if kind != "kubernetes" and rng.random() < 0.3 else []
    if kind != "kubernetes":
        more += ["--jobs", "300"]  # a cell with a large number is a job of as many pods
    code = main(["import", kind, str(source), str(out), *more])
    assert code in (0, 2)
    assert (code == 0) == out.exists()
    if code == 0:
        assert main(["replay", str(out), "--picture", str(tmp_path / "day.svg")]) == 0
        assert main(["counterfactual", str(out), "--without", "nobody", "--seeds", "0"]) in (0, 2)
    told = capsys.readouterr()
    assert not [c for c in told.out + told.err if c != "\n" and not c.isprintable()], json.dumps(told)
