"""The watcher's scanner cuts lines rightly wherever the bytes are cut, and its log comes back as it was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.lab.bench.rounds.watch_log import first_binds, parse_log
from gangsched.lab.bench.rounds.watcher import LineScanner, write_log
from gangsched.model.devices.annotations import ALLOCATED_KEY
from tests.bench.forged import bound_pods, unbound


def line(kind: str, document: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": document}) + b"\n"


def stream() -> bytes:
    bookmark = line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}})
    pods = bound_pods()
    return b"".join([*(line("ADDED", unbound(pod)) for pod in pods), bookmark, *map(changed, pods)])


def changed(pod: object) -> bytes:
    return line("MODIFIED", pod)


@given(st.lists(st.integers(0, len(stream())), max_size=12))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    data, scanner = stream(), LineScanner()
    edges = [0, *sorted(cuts), len(data)]
    for n, (first, last) in enumerate(pairwise(edges)):
        scanner.feed(data[first:last], n)
    assert b"".join(text + b"\n" for _, text in scanner.lines) == data
    assert len(scanner.bound) == 12


def test_a_line_has_the_time_at_which_its_end_came() -> None:
    scanner = LineScanner()
    scanner.feed(b'{"a":1}\n{"b"', 1)
    scanner.feed(b":2}", 2)
    scanner.feed(b"\n", 3)
    assert scanner.lines == [(1, b'{"a":1}'), (3, b'{"b":2}')]


def test_a_pod_counts_as_bound_once_and_only_by_its_node() -> None:
    pod = bound_pods()[0]
    waiting = unbound(pod)
    waiting["metadata"] |= {
        "annotations": {ALLOCATED_KEY: '{"nodeName":"n1"}'},
        "managedFields": [{"fieldsV1": {"f:spec": {"f:nodeName": {}}}}],
    }
    waiting["status"] = {"nominatedNodeName": "n1"}
    scanner = LineScanner()
    scanner.feed(line("ADDED", waiting), 1)
    assert scanner.bound == set()
    scanner.feed(line("MODIFIED", pod) * 2, 2)
    assert scanner.bound == {pod["metadata"]["uid"].encode()}


def test_the_log_comes_back_in_order(tmp_path: Path) -> None:
    scanner = LineScanner()
    scanner.feed(stream(), 7)
    write_log(tmp_path / "log", scanner.lines)
    seen = parse_log((tmp_path / "log").read_bytes())
    assert [(one.type, one.at_ns) for one in seen] == [("ADDED", 7)] * 12 + [("MODIFIED", 7)] * 12
    binds = first_binds(seen)
    assert list(binds) == [pod["metadata"]["uid"] for pod in bound_pods()]
    assert {one.type for one in binds.values()} == {"MODIFIED"}


def test_a_watch_that_the_server_broke_off_is_reported(tmp_path: Path) -> None:
    scanner = LineScanner()
    scanner.feed(line("ERROR", {"kind": "Status", "code": 410}), 1)
    write_log(tmp_path / "log", scanner.lines)
    with pytest.raises(ValueError, match=r"broken off.*410"):
        parse_log((tmp_path / "log").read_bytes())
