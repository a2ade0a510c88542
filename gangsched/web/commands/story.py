"""`gangsched story NAMESPACE/GANG`: what happened to a gang, move by move. Called by command.cli."""

from __future__ import annotations

import argparse
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape

from gangsched.command import namespaces, printing
from gangsched.command.arguments import add_output_flag
from gangsched.errors import ApiError
from gangsched.model.text.printable import clean
from gangsched.signals import run_loop
from gangsched.web.commands import explain_snapshot
from gangsched.web.commands.asking import add_flags, ask, decoded
from gangsched.web.pages.stories import Story


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Asks the running scheduler for a gang's moves: from which state to which, when, and why."
        " It keeps the last 32 to 64 of each gang, for as long as one of its pods exists."
    )
    add_output_flag(parser, "table", "json")
    namespaces.add_gang(parser)
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    names = namespaces.names_of(args, args.gang)
    body = next((found for one in names if (found := run_loop(ask, args, _path(*one))) is not None), None)
    if body is None:
        gang = run_loop(explain_snapshot.gang_of, args, "/".join(names[-1]))
        body = run_loop(ask, args, _path(*gang.split("/", 1))) if gang else None
    if body is None:
        named = "/".join(names[-1])
        raise ApiError(f"the scheduler knows no gang and no pod of its own named {named}", code=404)
    stories = decoded(args, body, list[Story])
    if args.output == "json":
        printing.print_page(body)
        return 0
    console = printing.console(160)
    for story in stories:
        print_story(story, console)
    return 0


def _path(namespace: str, name: str) -> str:
    return f"/story/{quote(namespace, safe='')}/{quote(name, safe='')}"


def print_story(story: Story, console: Console) -> None:
    """Prints a line for the current state, and one for each move."""
    who = escape(clean(story.group)) + (f" (pod {escape(clean(story.uid))})" if story.uid else "")
    tries = "no attempt" if not story.attempts else f"{story.attempts} attempt{'s'[: story.attempts != 1]}"
    been = f"has been {escape(clean(story.state))} for {story.seconds:.1f} s"
    if story.end:
        been = f"has {story.end}; it was bound {story.seconds:.1f} s ago"
    console.print(f"[bold]{who}[/bold] {been}; {tries}")
    if story.message:
        console.print(f"  {escape(clean(story.message))}")
    table = printing.table()
    for heading in ("AT", "AFTER", "FROM", "TO", "BECAUSE"):
        table.add_column(heading, justify="right" if heading == "AFTER" else "left")
    for move in story.moves:
        at = move.at.strftime("%H:%M:%S.%f")[:-3]
        cells = (escape(clean(one)) for one in (move.before, move.state, move.cause))
        table.add_row(at, f"{move.seconds:.3f} s", *cells)
    console.print(table)
