"""`gangsched queues`: what each queue uses and is entitled to, like sshare. Called by command.cli."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import clean
from gangsched.signals import run_loop
from gangsched.web.commands.asking import add_flags, ask, decoded
from gangsched.web.pages.answers import Amounts, QueueShare, QueuesPage

_HEADINGS = ("QUEUE", "SHARE", "NOW", "LATELY", "SCORE", "WAIT", "PODS", "RESOURCE")
_AMOUNTS = ("GUARANTEED", "USED", "BORROWED", "LIMIT")

# Limit on a name's indentation: the depth of nested queues, as a server may send anything.
_MAX_DEPTH = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Asks the running scheduler what each queue holds and is due, with all queues below it. NOW is the"
        " largest part of the cluster that it holds of a compared resource, LATELY the same decayed, SCORE"
        " both by its SHARE: the smallest has the next turn. WAIT counts groups that have not started."
    )
    add_output_flag(parser, "table", "json")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    body = run_loop(ask, args, "/queues")
    page = decoded(args, body, QueuesPage)
    if args.output == "json":
        printing.print_page(body or b"")
        return 0
    print_queues(page, printing.console(200))
    return 0


def print_queues(page: QueuesPage, console: Console) -> None:
    """Prints a line for each queue and resource that it uses or that has a guarantee or limit."""
    if not page.queues:
        console.print("No queues are configured.")
        return
    table = printing.table()
    for heading in (*_HEADINGS, *_AMOUNTS):
        left = heading in ("QUEUE", "RESOURCE")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in page.queues:
        _add(table, row)
    console.print(table)


def _add(table: Table, row: QueueShare) -> None:
    own: tuple[str, ...] = (
        escape("  " * max(0, min(row.depth, _MAX_DEPTH)) + clean(row.queue)),
        f"{row.share:g}",
        f"{row.share_used:.1%}",
        f"{row.share_decayed:.1%}",
        f"{row.score:.3f}",
        str(row.waiting),
        str(row.pods),
    )
    used = sorted(one for one in row.used if one != "pods")  # they have a column
    for resource in dict.fromkeys((*row.guaranteed, *row.limit, *used)) or ("",):
        amounts = [_amount(by, resource) for by in (row.guaranteed, row.used, row.borrowed, row.limit)]
        table.add_row(*own, escape(clean(resource)), *amounts)
        own = ("",) * len(own)


def _amount(amounts: Amounts, resource: str) -> str:
    return amount_text(resource, amounts[resource]) if resource in amounts else "-"
