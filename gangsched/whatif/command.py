"""`gangsched whatif -f job.yaml`: its flags, and how it prints. Called by command.cli.

As the plugin `kubectl gangsched whatif` too.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.namespaces import add_flag, check_text, namespace_of
from gangsched.command.snapshot import add_flags, configured, take_snapshot
from gangsched.config import SchedulerConfig, on_trial
from gangsched.errors import ApiError, ConfigError
from gangsched.extension.loading import KnownPlugins
from gangsched.kube.access.flags import add_cluster_flags, credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.model.text.printable import one_line, several
from gangsched.signals import run_loop
from gangsched.web.commands.asking import DEFAULT_SERVER, add_server_flags, ask, decoded
from gangsched.web.commands.queue import duration
from gangsched.whatif.admission import NO_LIMITS, Limits
from gangsched.whatif.answer import Answer, Gang
from gangsched.whatif.cluster import (
    Cluster,
    UnknownClasses,
    claim_template,
    limits_of,
    priority_classes,
    runtime,
)
from gangsched.whatif.files import Document, read_documents, texts_of
from gangsched.whatif.manifests import (
    claim_templates_named,
    kinds_of,
    namespaces_of,
    read_manifests,
    runtimes_named,
)
from gangsched.whatif.question import ASKED_AT, TOGETHER, Asked, Question, check, examine

NOT_NOW = 3
_MAX_ROWS = 200
_MAX_NAMED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Says where a job would go if it were submitted now, with which devices, or why it would not start,"
        " what would change that, and when it would. The scheduler's own code decides, on what the API"
        " server lists, or with --server on what the running scheduler knows; nothing is written. Exit code"
        " 0: all of it would start now; 3: not all of it."
    )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        required=True,
        help="manifests as for kubectl apply, or a directory of them; - is standard input; several are one"
        " job",
    )
    add_flag(parser, "of manifests that name none")
    parser.add_argument("--add-nodes", type=int, default=0, metavar="N", help="if there were N more nodes")
    parser.add_argument("--like", metavar="NODE", default="", help="with --add-nodes: like this one, empty")
    parser.add_argument(
        "--drain", metavar="NODE", action="append", default=[], help="if this node were cordoned and empty"
    )
    parser.add_argument(
        "--without", metavar="NS/GANG", action="append", default=[], help="if this gang or pod were gone"
    )
    parser.add_argument(
        "--preempt", action="store_true", help="pods of lower priority may be evicted for it; they are listed"
    )
    add_flags(parser)
    add_output_flag(parser, "text", "json")
    add_cluster_flags(parser)
    add_server_flags(
        parser,
        default="",
        text=f"ask the running scheduler instead, at its port (as {DEFAULT_SERVER}): it answers sooner, and"
        " what it has reserved counts",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    if bool(args.add_nodes) != bool(args.like):
        raise ConfigError(TOGETHER)
    for name in (args.namespace, args.like, *args.drain, *args.without):
        check_text(name)
    args.namespace = namespace_of(args)
    args.without = [one if "/" in one else f"{args.namespace}/{one}" for one in args.without]
    # First, so that a mistake in the files is reported whether or not a cluster answers.
    texts = [one for path in args.filename for one in texts_of(path)]
    documents = read_documents(texts)
    if args.server:
        found = run_loop(_ask_scheduler, args, [text for _, text in texts])
    else:
        config, plugins = configured(args)
        gc.disable()  # the objects of a large cluster's lists live as long as this command
        try:
            found = run_loop(_ask, args, documents, config, plugins)
        finally:
            gc.enable()
    if args.output == "json":
        printing.print_json(found)
    else:
        print_answer(found, printing.console(140))
    return 0 if found.starts_now else NOT_NOW


async def _ask(
    args: argparse.Namespace,
    documents: Sequence[Document],
    config: SchedulerConfig,
    plugins: KnownPlugins,
) -> Answer:
    # Preemption in the trial affects no real pod; without the flag the trial runs as with allowEviction:
    # false.
    config = replace(config, settings=on_trial(config.settings, allow_eviction=args.preempt))
    async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
        cluster, unread = await _cluster(client, documents, args.namespace)
        now_s = time.monotonic()
        snapshot = await take_snapshot(client, config, plugins, now_s=now_s, namespace=args.namespace)
    kinds = kinds_of(snapshot.scheduler)
    manifests = read_manifests(documents, kinds, cluster, namespace=args.namespace)
    served = [profile.scheduler_name for profile in config.profiles]
    manifests = check(
        manifests, snapshot, served, way="correct it, or give the one that serves it by --config"
    )
    question = Question(args.add_nodes, args.like, args.drain, args.without, args.preempt)
    snapshot = snapshot._replace(unread=(*snapshot.unread, *unread))
    return examine(question, snapshot, manifests, now_s, datetime.now(UTC))


async def _cluster(
    client: ApiClient, documents: Sequence[Document], namespace: str
) -> tuple[Cluster, list[str]]:
    """Returns what manifests may name, and what is not known of it for want of rights."""
    unread: list[str] = []
    try:
        classes = await priority_classes(client)
    except ApiError as error:
        if error.code != 403:
            raise
        classes = UnknownClasses()
        unread.append(f"priorityclasses: {error}; each class counts as priority 0")
    runtimes = {}
    for key in dict.fromkeys(runtimes_named(documents, namespace)):
        try:
            if (found := await runtime(client, key)) is not None:
                runtimes[key] = found
        except ApiError as error:
            if error.code != 403:
                raise
            unread.append(f"{key[0]} {key[2]}: {error}")
    templates = {}
    in_runtimes = [Document("", "", body) for body in runtimes.values()]
    for where, name in claim_templates_named([*documents, *in_runtimes], namespace):
        try:
            if (spec := await claim_template(client, where, name)) is not None:
                templates[where, name] = spec
        except ApiError as error:
            if error.code != 403:
                raise
            unread.append(f"resourceclaimtemplate {where}/{name}: {error}")
    ranges, quotas = dict(NO_LIMITS.ranges), dict(NO_LIMITS.quotas)
    for name in namespaces_of(documents, namespace):
        try:
            limits = await limits_of(client, name)
            ranges |= limits.ranges
            quotas |= limits.quotas
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            if error.code == 403:
                unread.append(f"limits and quotas of {name}: {error}")
    return Cluster(classes, runtimes, Limits(ranges, quotas), templates), unread


async def _ask_scheduler(args: argparse.Namespace, texts: Sequence[str]) -> Answer:
    """Asks the running scheduler, with its state and configuration."""
    for flag in ("config", "plugin", "master"):
        if getattr(args, flag):
            raise ConfigError("is for the API server's lists, and not for --server", path=f"--{flag}")
    asked = Asked(
        "\n---\n".join(texts),
        args.add_nodes,
        args.like,
        args.drain,
        args.without,
        args.preempt,
        args.namespace,
    )
    body = await ask(args, ASKED_AT, msgspec.json.encode(asked))
    if body is None:
        raise ApiError(
            f"{args.server} does not answer what-if questions: its dashboard is off, or its version is older"
        )
    return decoded(args, body, Answer)


def print_answer(found: Answer, console: Console) -> None:
    """Prints the answer, each gang first."""
    if found.changes:
        console.print(f"With {_shown('; '.join(found.changes))}:")
    for gang in found.gangs:
        _print_gang(gang, console, found.endless)
    if found.evicted:
        more = f", and {n - _MAX_NAMED} more" if (n := len(found.evicted)) > _MAX_NAMED else ""
        named = ", ".join(found.evicted[:_MAX_NAMED])
        console.print(f"It would evict {several(n, 'pod')}: {_shown(named)}{more}")
    for note in found.notes:
        console.print(f"Of the files: {_shown(note)}")
    for warning in found.warnings:
        console.print(f"[bold]To do:[/bold] Correct {_shown(warning)}")
    for why in found.unread:
        console.print(f"Not read: {_shown(why)}", style="yellow")


def _print_gang(gang: Gang, console: Console, endless: int) -> None:
    n_pods = len(gang.members) + len(gang.unplaced)
    nodes = {member.node for member in gang.members}
    if gang.starts == "now":
        n_left = len(gang.unplaced)
        some = f", {n_left} more {'has' if n_left == 1 else 'have'} no room yet" if n_left else ""
        many = f"{len(gang.members)} of {several(n_pods, 'pod')} on {several(len(nodes), 'node')}{some}"
        console.print(f"[bold green]{_shown(gang.name)} would start now[/bold green]: {many}")
        _print_members(gang, console)
        for one in gang.ignored:
            console.print(f"[bold]To do:[/bold] {_shown(one)}")
        return
    if gang.starts == "unread":
        console.print(f"[bold red]{_shown(gang.name)} cannot be scheduled[/bold red]: {_shown(gang.problem)}")
        return
    why = gang.why
    console.print(
        f"[bold red]{_shown(gang.name)} would not start now[/bold red]: {_shown(why.answer if why else '')}"
    )
    for cure in why.cures if why else ():
        console.print(f"[bold]To do:[/bold] {_shown(cure)}")
    if gang.starts == "later" and gang.in_s is not None and gang.at is not None:
        after = ", ".join(gang.after) or "nobody"
        console.print(
            f"It would start in about {duration(gang.in_s)} ({gang.at:%Y-%m-%d %H:%M} UTC), when these have"
            f" ended as stated: {_shown(after)}. That holds if nothing else comes before it."
        )
    elif why is not None and why.waits_for_ends:
        console.print(
            "When it would start is not known: no stated end makes room for it"
            f" ({several(endless, 'running pod')} {'states' if endless == 1 else 'state'} none)."
        )
    for reason in why.reasons if why else ():
        console.print(f"  {several(reason.nodes, 'node')}: {_shown(reason.plugin)}: {_shown(reason.reason)}")


def _shown(text: str) -> str:
    """Makes untrusted text safe: no markup and no control sequences."""
    return escape(one_line(text))


def _print_members(gang: Gang, console: Console) -> None:
    table = printing.table()
    for heading in ("POD", "NODE", "DEVICES"):
        table.add_column(heading, overflow="fold")
    for member in gang.members[:_MAX_ROWS]:
        devices = "; ".join(f"{name} {', '.join(ids)}" for name, ids in sorted(member.devices.items()))
        table.add_row(_shown(member.name), _shown(member.node), _shown(devices) or "-")
    console.print(table)
    if len(gang.members) > _MAX_ROWS:
        console.print(f"... and {len(gang.members) - _MAX_ROWS} more (-o json has all)")
