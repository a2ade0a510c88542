"""`gangsched queue`: the groups that have not started, in order, and why, like squeue. Called by
command.cli.
"""

from __future__ import annotations

import argparse
import contextlib
from urllib.parse import quote

import msgspec
from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.namespaces import add_list_flags, listed
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.flags import credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.transport.http1 import segment
from gangsched.model.text.printable import clean
from gangsched.signals import run_loop
from gangsched.web.commands.asking import add_flags, ask, decoded
from gangsched.web.pages.answers import QueuePage, QueueRow

_MAX_WHY = 100
# A start that is past by less is due now.
LATE_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Asks the running scheduler for the gangs and pods that have not started, in the order in which it"
        " would try them, with what each waits for. POS is the place among all; GO counts the members that"
        " are needed, exist, are reserved or bound; NEXT is when the state ends by itself."
        " Where the configuration has queueing: PASSED is how many groups have started in front of it, of how"
        " many at most (! once it is or would be claimed), WALLTIME how long it runs (~ if that is a guess)."
    )
    add_list_flags(parser)
    parser.add_argument("-w", "--wide", action="store_true", help="the whole reason, not its beginning")
    parser.add_argument(
        "--start",
        action="store_true",
        help="when each starts, and on how many nodes: promised where room is kept for it, else a guess (~)",
    )
    add_output_flag(parser, "table", "json")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    namespace = listed(args)
    asked = [f"namespace={quote(namespace, safe='')}"] if namespace else []
    asked += ["estimates=true"] if args.start else []
    query = f"?{'&'.join(asked)}" if asked else ""
    body = run_loop(ask, args, f"/queue{query}")
    page = decoded(args, body, QueuePage)
    if args.start:
        known = (r for r in page.rows if r.starts_in_s is not None or r.estimate_in_s is not None)
        page = msgspec.structs.replace(page, rows=tuple(known))
        body = msgspec.json.encode(page)
    if args.output == "json":
        printing.print_page(body or b"")
        return 0
    console = printing.console(200)
    if args.start:
        print_starts(page, console)
    else:
        elsewhere = run_loop(_elsewhere, args, namespace) if namespace and not page.rows else ""
        print_queue(page, console, wide=args.wide, namespace=namespace, elsewhere=elsewhere)
    return 0


async def _elsewhere(args: argparse.Namespace, namespace: str) -> str:
    """As of gangs: what waits in other namespaces, and whether this one exists, as far as it may be known."""
    missing, n = "", 0
    with contextlib.suppress(ApiError, ConfigError):
        n = decoded(args, await ask(args, "/queue"), QueuePage).n_waiting
    with contextlib.suppress(ApiError, ConfigError):
        async with ApiClient(await credentials_of(args)) as client:
            missing = await no_namespace(client, namespace)
    return "; ".join(filter(None, (missing, f"{n} elsewhere (-A)" if n else "")))


async def no_namespace(client: ApiClient, namespace: str) -> str:
    """Returns "there is no such namespace" if that is so, and known."""
    try:
        await client.get(f"/api/v1/namespaces/{segment(namespace)}")
    except ApiError as error:
        return "there is no such namespace" if error.code == 404 else ""
    return ""


def print_starts(page: QueuePage, console: Console) -> None:
    """Prints a line for each group with a promised or estimated start, those with kept room first."""
    if not page.rows:
        console.print(f"No start can be estimated for the {page.n_waiting} that wait.")
        return
    table = printing.table()
    has_range = any(row.estimate_to_s is not None for row in page.rows)
    for heading in ("GANG", "PRIO", "PASSED", "STARTS IN", *("4 IN 5 IN",) * has_range, "", "NODES"):
        table.add_column(heading, justify="right" if heading in ("PRIO", "PASSED", "NODES") else "left")
    for row in sorted(page.rows, key=_by_start):
        has_claim = row.starts_in_s is not None
        table.add_row(
            escape(clean(row.group)),
            str(row.priority),
            _passed(row),
            _starts(row),
            *((_range(row),) if has_range else ()),
            "promised" if row.is_promised else "estimated",
            str(row.claimed_nodes) if has_claim else "-",
        )
    console.print(table)


def _starts(row: QueueRow) -> str:
    starts_s = (row.estimate_in_s if row.starts_in_s is None else row.starts_in_s) or 0.0
    if starts_s <= -LATE_S:
        return f"{duration(-starts_s)} late"
    return duration(starts_s) if row.is_promised else f"~{duration(starts_s)}"


def _range(row: QueueRow) -> str:
    """Returns the range in which four in five groups with this estimate start."""
    if row.estimate_from_s is None or row.estimate_to_s is None or row.starts_in_s is not None:
        return "-"
    return f"{duration(row.estimate_from_s)}-{duration(row.estimate_to_s)}"


def _by_start(row: QueueRow) -> tuple[bool, float, int]:
    if row.starts_in_s is not None:
        return False, row.starts_in_s, row.position
    return True, row.estimate_in_s or 0.0, row.position


def print_queue(
    page: QueuePage, console: Console, *, wide: bool, namespace: str = "", elsewhere: str = ""
) -> None:
    """Prints a line that counts the groups, then one for each. elsewhere: what there is if the namespace has
    none."""
    if not page.rows:
        where = f" in namespace {escape(clean(namespace))}" if namespace else ""
        console.print(f"Nothing waits{where}{elsewhere and f'; {escape(clean(elsewhere))}'}.")
        return
    counts = ", ".join(
        f"{n} {escape(clean(state))}" for state, n in sorted(page.by_state.items(), key=lambda x: -x[1])
    )
    console.print(f"[bold]{page.n_waiting}[/bold] wait: {counts}")
    table = printing.table()
    counts_passes = any(row.walltime_source for row in page.rows)
    own = ("PASSED", "WALLTIME") if counts_passes else ()
    for heading in ("POS", "GANG", "PRIO", "GO", "STATE", "FOR", "AGE", "NEXT", "TRIED", *own, "WHY"):
        right = heading in ("POS", "PRIO", "FOR", "AGE", "NEXT", "TRIED", *own)
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in page.rows:
        table.add_row(
            str(row.position),
            escape(clean(row.group)),
            str(row.priority),
            _members(row),
            escape(clean(row.state)),
            duration(row.state_s),
            "-" if row.age_s is None else duration(row.age_s),
            "-" if row.next_s is None else duration(row.next_s),
            str(row.attempts),
            *((_passed(row), _walltime(row)) if counts_passes else ()),
            escape(_why(row, wide)),
        )
    console.print(table)
    if len(page.rows) < page.n_waiting:
        console.print(f"… and {page.n_waiting - len(page.rows)} more behind them")


def _members(row: QueueRow) -> str:
    if not row.is_gang:
        return "pod"
    parts = [f"{row.existing}/{'?' if row.needed is None else row.needed}"]
    parts += [f"{n} {what}" for n, what in ((row.bound, "bound"), (row.reserved, "reserved")) if n]
    parts += [f"{row.gated} gated"] * bool(row.gated)
    return ", ".join(parts)


def _passed(row: QueueRow) -> str:
    """Returns how many groups started ahead, and the limit: 12/64, or 71/64! if it would get a claim."""
    if row.passes is None:
        return "-"
    return f"{row.passes}/{row.passes_bound}" + "!" * (row.claimed_s is not None)


def _walltime(row: QueueRow) -> str:
    """Returns the walltime, with ~ before a guess."""
    if row.walltime_s is None:
        return "-"
    guessed = "~" * (row.walltime_source in ("predicted", "default"))
    return f"{guessed}{duration(row.walltime_s)}"


def _why(row: QueueRow, wide: bool) -> str:
    text = clean(row.why)
    return text if wide or len(text) <= _MAX_WHY else text[: _MAX_WHY - 1] + "…"


def duration(seconds: float) -> str:
    """Formats a duration for people: 0.4s, 12s, 4m10s, 3h05m, 2d04h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"
