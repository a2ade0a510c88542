"""Nodes' reports of load and links, as the figures that are printed. Pure: takes nodes, usage, the time.

Called by `command`. The arithmetic is model.stated.evenness'; nothing here is predicted or promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
import numpy as np

from gangsched.errors import ParseError
from gangsched.model.objects import Node
from gangsched.model.resources import CPU, MEMORY, parse_quantities
from gangsched.model.stated.bandwidth import MEGABYTE, REMAINING_KEY, parse_remaining
from gangsched.model.stated.evenness import (
    Mode,
    evenness,
    largest_terms,
    load_and_strength,
    paper_score,
    terms_of,
    terms_without_data,
)
from gangsched.model.stated.load import (
    LOAD_KEY,
    NodeLoad,
    Performance,
    ReportedUsage,
    Term,
    Utilisation,
    parse_load,
)

# metrics-server does not report it: all cores are taken to be alike.
ASSUMED_MHZ = 2000.0


class Links(msgspec.Struct, rename="camel"):
    """What a node's links have left, under the names in the node's annotation."""

    egress: float = msgspec.field(name="egressMBps")
    ingress: float = msgspec.field(name="ingressMBps")
    total: float = msgspec.field(name="totalMBps")
    observed_at: datetime


class NodeReport(msgspec.Struct, rename="camel", omit_defaults=False):
    """One node. source: `agent`, `metrics-server`, or "" for none; problem: what is unreadable.

    load and strength are the sums L and S in the requested mode, score the published (1 - L/S) * 10.
    without_data: terms that count as 0 there, because they are unknown.
    """

    name: str
    source: str = ""
    age_seconds: float | None = None
    utilisation: Utilisation | None = None
    performance: Performance | None = None
    without_data: tuple[Term, ...] = ()
    load: float | None = None
    strength: float | None = None
    score: float | None = None
    h: float | None = None
    remaining_bandwidth: Links | None = None
    problem: str = ""


class LoadReport(msgspec.Struct, rename="camel"):
    """The cluster. spread: the standard deviation of H over the measured nodes; 0 is even."""

    mode: Mode
    nodes: list[NodeReport]
    spread: float | None = None
    range: float | None = None


def make_report(
    nodes: Iterable[Node], usage: Mapping[str, ReportedUsage], *, mode: Mode, now: datetime
) -> LoadReport:
    """Makes the report, with nodes by name, "n2" before "n10"."""
    made = [_read(node, usage, now) for node in nodes]
    made.sort(key=lambda one: (len(one.name), one.name))
    report = LoadReport(mode, made)
    known = [one for one in made if one.utilisation is not None and one.performance is not None]
    if known:
        _reckon(report, known)
    return report


def _reckon(report: LoadReport, known: list[NodeReport]) -> None:
    each = [terms_of(one.performance or Performance()) for one in known]
    utilisation = np.array([(one.utilisation or Utilisation()).terms for one in known]).T
    load, strength = load_and_strength(
        utilisation, np.array(each).T, mode=report.mode, largest=largest_terms(each)
    )
    scores, found = paper_score(load, strength), evenness(load, strength)
    for i, one in enumerate(known):
        one.load, one.strength = float(load[i]), float(strength[i])
        one.score, one.h = float(scores[i]), found.h[i]
    report.spread, report.range = found.spread, found.range


def _read(node: Node, usage: Mapping[str, ReportedUsage], now: datetime) -> NodeReport:
    made = NodeReport(node.metadata.name)
    annotations = node.metadata.annotations or {}
    problems = []
    load: NodeLoad | None = None
    try:
        if LOAD_KEY in annotations:
            load, made.source = parse_load(annotations[LOAD_KEY]), "agent"
    except ParseError as error:
        problems.append(str(error))
    if load is None and node.metadata.name in usage:
        load, made.source = _of_usage(node, usage[node.metadata.name]), "metrics-server"
    try:
        if REMAINING_KEY in annotations:
            there = parse_remaining(annotations[REMAINING_KEY])
            out, into, total = (amount / MEGABYTE for amount in (there.egress, there.ingress, there.total))
            made.remaining_bandwidth = Links(out, into, total, there.observed_at)
    except ParseError as error:
        problems.append(str(error))
    if load is not None:
        made.utilisation, made.performance = load.utilisation, load.performance
        made.without_data = terms_without_data(load.performance)
        made.age_seconds = round((now - load.observed_at).total_seconds(), 1)
    made.problem = "; ".join(problems)
    return made


def _of_usage(node: Node, used: ReportedUsage) -> NodeLoad | None:
    try:
        room = parse_quantities(node.status.allocatable)
    except ParseError:
        return None
    cpu, memory = room.get(CPU, 0), room.get(MEMORY, 0)
    utilisation = Utilisation(
        min(1.0, used.cpu_milli / cpu) if cpu else 0.0,
        min(1.0, used.memory_bytes / memory) if memory else 0.0,
    )
    performance = Performance(cores=cpu / 1000, mhz=ASSUMED_MHZ, memory_bytes=float(memory))
    return NodeLoad(utilisation, performance, used.observed_at)
