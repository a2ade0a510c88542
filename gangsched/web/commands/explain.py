"""`gangsched explain NAMESPACE/GANG`: why it does not run, and what would help. Called by command.cli.

As the plugin `kubectl gangsched explain` too (deploy/kubectl-gangsched).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from rich.console import Console
from rich.markup import escape

from gangsched.command import namespaces, printing, snapshot
from gangsched.command.arguments import add_output_flag
from gangsched.command.messages import tell_note
from gangsched.core.explaining.explain import Explanation
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.flags import credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.model.text.printable import clean, several
from gangsched.signals import run_loop
from gangsched.web.commands import explain_snapshot
from gangsched.web.commands.asking import add_flags, ask, decoded, server_of
from gangsched.web.commands.gang_start import Start, start_of
from gangsched.web.commands.makers import with_makers
from gangsched.web.commands.queue import duration
from gangsched.web.pages.answers import QueuePage, QueueRow
from gangsched.web.pages.explanations import Page, path_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Asks the running scheduler why a gang or a pod does not run: the answer first, then what would cure"
        " it, the reasons by number of nodes, the nodes that come nearest, its place in the queue and its"
        " last moves. Where no scheduler answers, or it does not know the gang, the same is found by the"
        " scheduler's own code on what the API server lists. Nothing is changed by asking. Exit code 3: it"
        " has not started. KIND/NAME, such as job/train, and the name of a pod or of its controller mean the"
        " gang of these pods."
    )
    parser.add_argument(
        "--start",
        action="store_true",
        help="when it starts too: promised where room is kept for it, else estimated, as queue --start does",
    )
    add_output_flag(parser, "text", "json")
    namespaces.add_gang(parser)
    add_flags(parser)
    snapshot.add_flags(parser, "used where no scheduler answers")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    names = namespaces.names_of(args, args.gang)
    pages = _pages(args, names)
    if args.start:
        pages = _with_starts(args, pages[0].explanation.group.partition("/")[0], pages)
    if args.output == "json":
        printing.print_json(pages)
    else:
        console = printing.console(120)
        for page in pages:
            print_page(page, console)
    return 3 if any(page.explanation.position for page in pages) else 0


class StartedPage(Page, frozen=True, kw_only=True):
    """A page with the gang's start time."""

    start: Start


def _with_starts(args: argparse.Namespace, namespace: str, pages: Sequence[Page]) -> list[Page]:
    """Adds starts from the running scheduler, as only it keeps room for gangs and knows when pods end."""
    rows: dict[str, QueueRow] = {}
    problem = "no leading scheduler answers" if any(page.instead for page in pages) else ""
    if not problem:
        try:
            body = run_loop(ask, args, f"/queue?namespace={quote(namespace, safe='')}&estimates=true")
            rows = {row.group: row for row in decoded(args, body, QueuePage).rows}
        except ApiError as error:
            problem = error.message
    now = datetime.now(UTC)
    starts = (
        start_of(one.explanation, rows.get(one.explanation.group), now, problem=problem) for one in pages
    )
    return [
        StartedPage(one.leads, one.explanation, one.moves, one.trace, one.instead, start=start)
        for one, start in zip(pages, starts, strict=True)
    ]


def _pages(args: argparse.Namespace, names: Sequence[tuple[str, str]]) -> list[Page]:
    """Returns the scheduler's pages, else a snapshot's. Raises: ConfigError, ApiError."""
    gang = "/".join(names[-1])
    try:
        found = _asked(args, names)
    except ApiError as problem:
        if not explain_snapshot.can_stand_in(problem):
            raise
        error, why, runs = problem, problem.message, problem.code in (401, 403)
    else:
        if found:
            return found
        runs = False
        error = ApiError(
            f"the scheduler knows no gang and no pod of its own named {gang}; see whether its pods exist, and"
            f" whether their spec.schedulerName is a profile of this scheduler: kubectl -n {names[-1][0]} get"
            " pods -o custom-columns=NAME:.metadata.name,SCHEDULER:.spec.schedulerName",
            code=404,
        )
        why = f"the scheduler at {server_of(args)} knows nothing of it"
    other = "/".join(names[0]) if len(names) > 1 else ""
    make = partial(explain_snapshot.explain_snapshot, args, gang, why, runs=runs, other=other)
    try:
        pages = run_loop(make)
    except ApiError as problem:
        if problem.code == 404:  # the sentence states everything
            raise ApiError(problem.message) from None
        raise ApiError(f"{error.message}; the API server does not answer either: {problem.message}") from None
    except ConfigError:
        if args.kubeconfig or args.context or args.config or args.plugin:
            raise
        raise error from None
    return _of_gang(args, gang, pages, is_there=error.code != 0)


def _asked(args: argparse.Namespace, names: Sequence[tuple[str, str]]) -> list[Page]:
    """Returns the running scheduler's pages for the first name that it knows. Raises: ConfigError,
    ApiError."""
    for namespace, name in names:
        body = run_loop(ask, args, path_of(namespace, name))
        if body is not None:
            return _led(args, f"{namespace}/{name}", _with_makers(args, decoded(args, body, list[Page])))
    return []


def _of_gang(args: argparse.Namespace, name: str, pages: list[Page], *, is_there: bool) -> list[Page]:
    """Returns the pages of a gang that was found by another name, from the scheduler where it answers."""
    gang = pages[0].explanation.group
    if gang == name:
        return pages
    tell_note(f"{name} is of the gang {gang}")
    try:
        namespace, _, last = gang.partition("/")
        return (_asked(args, [(namespace, last)]) if is_there else []) or pages
    except ApiError:
        return pages


def _with_makers(args: argparse.Namespace, pages: list[Page]) -> list[Page]:
    """Looks at what makes a gang's pods, where the scheduler does not follow it and this user may."""
    if not any(page.explanation.owed is not None and page.explanation.owed.makers for page in pages):
        return pages

    async def read() -> list[Page]:
        async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
            return await with_makers(client, pages)

    try:
        return run_loop(read)
    except (ApiError, ConfigError):
        return pages


def _led(args: argparse.Namespace, gang: str, pages: list[Page]) -> list[Page]:
    """Returns the pages; if a replica that does not lead made them, a snapshot's if possible."""
    if any(page.leads for page in pages):
        return pages
    why = f"the replica at {server_of(args)} does not lead"
    try:
        return run_loop(partial(explain_snapshot.explain_snapshot, args, gang, why, runs=True))
    except (ApiError, ConfigError):
        return pages


def print_page(page: Page, console: Console) -> None:
    """Prints the answer, then everything that supports it."""
    explanation = page.explanation
    who = escape(clean(explanation.group)) + (
        f" (pod {escape(clean(explanation.uid))})" if explanation.uid else ""
    )
    console.print(f"[bold]{who}[/bold]: {escape(clean(explanation.answer))}")
    console.print(_place(explanation, is_remembered=not page.instead))
    if isinstance(page, StartedPage):
        console.print(f"[bold]Start:[/bold] {escape(clean(page.start.text))}")
    if page.instead:
        console.print(
            f"No scheduler explains it: {escape(clean(page.instead))}. This answer is worked out from what"
            " the API server lists, without what a scheduler has reserved but not yet bound."
        )
    if not page.leads:
        console.print(
            "This replica does not lead and decides nothing; the one that holds the lease does.\n"
            "[bold]To do:[/bold] Ask that one; who it is: kubectl -n gangsched-system get lease gangsched."
        )
    for cure in explanation.cures:
        console.print(f"[bold]To do:[/bold] {escape(clean(cure))}")
    if explanation.then:
        console.print(f"[bold]Next:[/bold] {escape(clean(explanation.then))}")
    if explanation.ranks:
        console.print(f"[bold]Ranks:[/bold] {escape(clean(explanation.ranks))}")
    if explanation.reasons:
        _table(console, "Nodes, by reason", ("NODES", "PLUGIN", "REASON"), _reasons(explanation))
    if explanation.near:
        _table(console, "Nearest nodes", ("NODE", "RESOURCE", "ASKED", "FREE", "HELD BY"), _near(explanation))
    if explanation.told:
        console.print(f"\nIts condition says: {escape(clean(explanation.told))}")
    if page.moves:
        moves = [(move.at.strftime("%H:%M:%S"), move.before, move.state, move.cause) for move in page.moves]
        _table(console, "Last moves (UTC)", ("AT", "FROM", "TO", "BECAUSE"), moves)
    if page.trace:
        console.print(f"\nIts trace: {escape(clean(page.trace))}")


def _place(explanation: Explanation, *, is_remembered: bool) -> str:
    """is_remembered: a running scheduler answered; a snapshot has no times and attempts."""
    if explanation.end:
        parts = [explanation.end + f"; bound {duration(explanation.state_s)} ago" * is_remembered]
    else:
        parts = [escape(clean(explanation.state)) + f" for {duration(explanation.state_s)}" * is_remembered]
    if explanation.position:
        parts.append(f"place {explanation.position} of {explanation.n_waiting} in the queue")
        if explanation.waited_s is not None and is_remembered:
            parts.append(f"in line for {duration(explanation.waited_s)}")
    if explanation.needed is None:
        existing = several(explanation.existing, "member")
    else:
        existing = f"{explanation.existing} of {several(explanation.needed, 'member')}"
    verb = "exists" if (explanation.needed or explanation.existing) == 1 else "exist"
    counted = (
        ("bound", explanation.bound - explanation.succeeded, not explanation.end),
        ("succeeded", explanation.succeeded, explanation.succeeded > 0),
        ("failed", explanation.failed, explanation.failed > 0),
        ("reserved", explanation.reserved, not explanation.end),
        ("gated", explanation.gated, explanation.gated > 0),
    )
    parts.append(
        ", ".join((f"{existing} {verb}", *(f"{n} {how}" for how, n, is_shown in counted if is_shown)))
    )
    if is_remembered:
        parts.append(f"{several(explanation.attempts, 'attempt')}")
    return "; ".join(parts) + f"; scheduler {escape(clean(explanation.scheduler))}"


def _reasons(explanation: Explanation) -> list[tuple[str, ...]]:
    return [(str(one.nodes), one.plugin, one.reason) for one in explanation.reasons]


def _near(explanation: Explanation) -> list[tuple[str, ...]]:
    return [
        (one.node, one.resource, one.asked, one.free, ", ".join(one.held_by) or "-")
        for one in explanation.near
    ]


def _table(console: Console, title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    table = printing.table()
    for heading in headings:
        right = heading in ("NODES", "ASKED", "FREE")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(clean(cell)) for cell in row))
    console.print(table)
