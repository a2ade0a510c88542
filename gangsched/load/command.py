"""`gangsched load`: its flags, input and output. Called by command.cli."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.lists import pages_of
from gangsched.command.messages import tell
from gangsched.errors import ApiError, ParseError
from gangsched.kube.access.flags import add_cluster_flags, credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.metrics_server import read_usage, unread_text
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.kube.watch.decode import nodes as nodes_kind
from gangsched.load.report import LoadReport, NodeReport, make_report
from gangsched.model.objects import Node
from gangsched.model.stated.evenness import MODES, Mode
from gangsched.model.stated.load import LOAD_KEY, TERMS, ReportedUsage, Term
from gangsched.model.text.printable import clean, several
from gangsched.signals import run_loop

_PAGE = 500
_HEADINGS = (
    *("CORES", "GHZ", "GB", "NET MB/S", "DISK MB/S"),
    *("L", "S", "SCORE", "H", "LEFT OUT/IN MB/S", "AGE"),
)
# Nodes named in one line about what is unknown of them.
_NAMES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Shows each node's measured load against its performance, H, and how evenly the cluster is loaded."
        " H is 1 where a node carries its share: H(i) = (L(i)/L(avg)) / (S(i)/S(avg))."
    )
    add_output_flag(parser, "table", "json")
    parser.add_argument(
        "--mode",
        choices=MODES[::-1],
        default="normalized",
        help="terms scaled to the cluster's largest (normalized), added up in GHz, GB, Gbit/s and Gbit/s"
        " (paper), or utilisations added up and set against those (literal)",
    )
    add_cluster_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code, 1 when no node is measured. Raises: ConfigError, ApiError."""
    report = run_loop(_read, args)
    if args.output == "json":
        printing.print_json(report)
    else:
        print_report(report, printing.console(160, highlight=True))
    return 0 if report.spread is not None else 1


async def _read(args: argparse.Namespace) -> LoadReport:
    async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
        nodes = await _nodes(client)
        usage: dict[str, ReportedUsage] = {}
        if any(LOAD_KEY not in (node.metadata.annotations or {}) for node in nodes):
            try:
                reported, unread = await read_usage(client)
                usage = {one.node: one for one in reported}
                if unread:
                    tell(unread_text(unread))
            except ApiError as error:
                if error.code not in (403, 404, 503):  # there is none, or we may not read it
                    raise
            except ParseError as error:
                tell(str(error))
    return make_report(nodes, usage, mode=args.mode, now=datetime.now(UTC))


async def _nodes(client: ApiClient) -> list[Node]:
    found: list[Node] = []
    async for items, unread in pages_of(client, nodes_kind(), limit=_PAGE):
        found += items
        for one in unread:
            tell(f"node {one.name} is not shown: {one.message}")
    return found


def print_report(report: LoadReport, console: Console) -> None:
    """Prints the table, and a line on the cluster."""
    if not report.nodes:
        console.print("There is no node to show.")
        return
    table = printing.table()
    table.add_column("NODE")
    for name in TERMS:
        table.add_column(name.upper(), justify="right")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    for node in report.nodes:
        table.add_row(*_row(node))
    console.print(table)
    for node in report.nodes:
        if node.problem:
            console.print(f"{escape(clean(node.name))}: {escape(clean(node.problem))}")
    console.print(_legend(report.mode))
    for line in _gaps(report):
        console.print(line)
    if report.spread is None or report.range is None:
        console.print(
            "No node is measured: no agent writes gangsched.io/load, and there is no metrics-server."
        )
        return
    n = sum(node.h is not None for node in report.nodes)
    console.print(
        f"H over {several(n, 'node')} ({report.mode}): spread {report.spread:.3f} (0 is even),"
        f" largest less smallest {report.range:.3f}"
    )


def _legend(mode: Mode) -> str:
    """Returns what the columns mean that are no plain measurement."""
    terms = {
        "normalized": "its utilised and its whole share of the largest node's, term by term, added up",
        "paper": "what is in use and what there is, in GHz, GB and Gbit/s, added up",
        "literal": "its utilisations added up, and what there is in GHz, GB and Gbit/s",
    }
    return (
        "CPU, MEMORY, NETWORK, DISK: in use; CORES to DISK MB/S: what the node has; ?: not reported. L and S:"
        f" {terms[mode]}; SCORE: (1 - L/S) x 10; H: L/S against the cluster's average: 1 carries its share,"
        " 2 twice it. LEFT OUT/IN: MB/s that its links have left, of their total; AGE of the report."
    )


def _gaps(report: LoadReport) -> list[str]:
    """Returns lines on what is unknown of which nodes: their H covers fewer terms than that of others."""
    nodes: dict[tuple[str, tuple[Term, ...]], list[str]] = {}
    for node in report.nodes:
        if node.without_data:
            nodes.setdefault((node.source, node.without_data), []).append(clean(node.name))
    lines = []
    for (source, terms), names in nodes.items():
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        shown = ", ".join(names[:_NAMES]) + more
        why = (
            "the agent's log and the Node's Event NotMeasured say why"
            if source == "agent"
            else "metrics-server reports cpu and memory only"
        )
        lines.append(f"No data for {', '.join(terms)}, which counts as 0 there: {escape(shown)}; {why}.")
    return lines


def _row(node: NodeReport) -> list[str]:
    name = escape(clean(node.name))
    if node.source == "metrics-server":
        name += " (metrics-server)"
    left = "-"
    if node.remaining_bandwidth is not None:
        there = node.remaining_bandwidth
        left = f"{there.egress:.4g}/{there.ingress:.4g} of {there.total:.4g}"
    if node.utilisation is None or node.performance is None:
        return [name, *["-"] * 13, left, "-"]
    shares = [
        "?" if term in node.without_data else f"{share:.0%}"
        for term, share in zip(TERMS, node.utilisation.terms, strict=True)
    ]
    can = node.performance
    known = (can.cores, can.mhz / 1000, can.memory_bytes / 1e9, can.network_mbps, can.disk_mbps)
    has = [f"{value:.4g}" if value else "?" for value in known]
    made = (node.load or 0.0, node.strength or 0.0, node.score or 0.0, node.h or 0.0)
    age = "-" if node.age_seconds is None else f"{node.age_seconds:.0f}s"
    return [name, *shares, *has, *(f"{value:.2f}" for value in made), left, age]
