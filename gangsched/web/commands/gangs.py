"""`gangsched gangs`: every gang of every dialect, with its progress. Called by command.cli.

Reads only the API server, with the scheduler's own core on a snapshot: gangs from annotations and from
controllers' objects have no PodGroup that kubectl could show. Leaves out lone pods.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

import msgspec
from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.namespaces import add_list_flags, listed
from gangsched.command.snapshot import add_flags, configured, take_snapshot
from gangsched.core.explaining.reports import view_group
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.ended import end_of
from gangsched.core.types.group import Group, GroupState
from gangsched.core.types.lost_members import lacks
from gangsched.errors import ApiError
from gangsched.kube.access.flags import add_cluster_flags, credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.model.text.printable import clean
from gangsched.signals import run_loop
from gangsched.web.commands.explain_snapshot import condition_of
from gangsched.web.commands.queue import duration, no_namespace

_MAX_WHY = 80
_COUNTS = ("NEED", "EXIST", "BOUND", "RUN", "NODES")
_COLUMNS = ("GANG", "OF", "SCHEDULER", "PRIO", "STATE", *_COUNTS, "AGE", "WHY")


class GangRow(msgspec.Struct, frozen=True, rename="camel"):
    """One gang. dialect: that states it; needed: how many start together, None while unknown; bound: members
    that have started, including ended ones; why: the message in its pods' condition.
    """

    gang: str
    dialect: str
    scheduler: str
    priority: int
    state: str
    needed: int | None
    existing: int
    gated: int
    bound: int
    running: int
    ended: int
    nodes: tuple[str, ...]
    age_s: float | None
    why: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Lists every gang, whoever states it (OF): annotations and labels, PodGroups, controllers' objects;"
        " how many members it needs, exist, have started (BOUND) and run, on how many nodes. Read from the"
        " API server; gangsched explain says more about one, gangsched queue in which order they are tried."
    )
    add_list_flags(parser)
    add_output_flag(parser, "table", "json")
    add_flags(parser, "for its profiles, and the gangs that it infers")
    add_cluster_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    namespace = listed(args)
    found = _of(run_loop(_read, args, namespace), namespace)
    elsewhere = run_loop(_elsewhere, args, namespace) if namespace and not found else ""
    if args.output == "json":
        printing.print_json(found)
    else:
        print_gangs(found, printing.console(200), namespace, elsewhere)
    return 0


def _of(found: list[GangRow], namespace: str) -> list[GangRow]:
    return [one for one in found if namespace in ("", one.gang.partition("/")[0])]


async def _elsewhere(args: argparse.Namespace, namespace: str) -> str:
    """Returns what there is in place of an empty list, as "9 elsewhere (-A)", or that there is no such
    namespace; "" where that may not be known."""
    try:
        async with ApiClient(await credentials_of(args)) as client:
            missing = await no_namespace(client, namespace)
        n = len(await _read(args, ""))
    except ApiError:
        return ""
    return "; ".join(filter(None, (missing, f"{n} elsewhere (-A)" if n else "")))


async def _read(args: argparse.Namespace, namespace: str) -> list[GangRow]:
    config, plugins = configured(args)
    async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
        snapshot = await take_snapshot(
            client, config, plugins, now_s=time.monotonic(), namespace=namespace, is_enough=True
        )
    return gangs_of(snapshot.scheduler, datetime.now(UTC))


def gangs_of(scheduler: Scheduler, now: datetime) -> list[GangRow]:
    """Returns the gangs, sorted by namespace and name."""
    groups = [group for group in scheduler.shared.groups.values() if group.is_gang]
    return [_row(group, now) for group in sorted(groups, key=lambda one: (str(one.key), one.key))]


def _row(group: Group, now: datetime) -> GangRow:
    view = view_group(group)
    made = [at for one in group.members.values() if (at := one.pod.metadata.creation_timestamp) is not None]
    return GangRow(
        gang=view.name,
        dialect=group.key.dialect,
        scheduler=view.scheduler_name,
        priority=view.priority,
        state=_state(group, view.n_running),
        needed=group.start_count if view.is_counted else None,
        existing=view.n_existing,
        gated=view.n_gated,
        bound=view.n_bound,
        running=view.n_running,
        ended=view.n_ended,
        nodes=view.nodes,
        age_s=round((now - min(made)).total_seconds(), 3) if made else None,
        why=_why(group),
    )


def _why(group: Group) -> str:
    if group.has_started:
        return f"it has lost members: {lacking}" if (lacking := lacks(group)) else ""
    return clean(str(group.problem) or condition_of(group))


def _state(group: Group, n_running: int) -> str:
    """Returns the state as far as the API server shows it: no object shows reservations before the bind."""
    if group.is_half_bound:
        return "partly bound"
    if lacks(group):
        return "short of members"
    if end := end_of(group):
        return end
    if group.state is GroupState.BOUND or group.has_started:
        return "running" if n_running else "bound"
    return group.state.value if group.state in (GroupState.GATED, GroupState.GATHERING) else "pending"


def print_gangs(found: list[GangRow], console: Console, namespace: str = "", elsewhere: str = "") -> None:
    """Prints one line for each gang. elsewhere: what there is if the namespace has none."""
    if not found:
        where = f" in namespace {escape(clean(namespace))}" if namespace else ""
        console.print(f"There is no gang{where}{elsewhere and f'; {escape(clean(elsewhere))}'}.")
        return
    table = printing.table()
    for heading in _COLUMNS:
        right = heading in ("PRIO", *_COUNTS, "AGE")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "WHY")
    for one in found:
        why = one.why if len(one.why) <= _MAX_WHY else one.why[: _MAX_WHY - 1] + "…"
        needed = "?" if one.needed is None else str(one.needed)
        counts = (needed, str(one.existing), str(one.bound), str(one.running), str(len(one.nodes)))
        age = duration(one.age_s) if one.age_s is not None else "-"
        cells = (one.gang, one.dialect, one.scheduler, str(one.priority), one.state, *counts, age, why)
        table.add_row(*(escape(clean(cell)) for cell in cells))
    console.print(table)
