"""`gangsched doctor`: its flags, input and output. Called by command.cli."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.snapshot import Snapshot, add_flags, take_snapshot
from gangsched.config import SchedulerConfig
from gangsched.core.resource_claims.book import KINDS as CLAIM_KINDS
from gangsched.core.turns.reconfigure import watched_by_plugins
from gangsched.devices.report import Refused, make_map
from gangsched.doctor import checks, cluster_checks
from gangsched.doctor.findings import Finding, exit_code, found
from gangsched.doctor.reading import Facts, read_facts
from gangsched.doctor.rights import Right, asked, optional
from gangsched.errors import ConfigError
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.source import ConfigSource
from gangsched.kube.access.flags import add_cluster_flags, credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.plugins import build_profiles, metrics_server_s
from gangsched.plugins.resources.dynamic_resources import DynamicResources
from gangsched.signals import run_loop

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "unknown": "magenta"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Checks an installation from outside, by what the API server says: its version, the rights of the"
        " scheduler's account, policies, FlowSchemas, replicas, the lease, clocks, agents, inventories,"
        " drift, gangs that run in part, pods that nobody schedules. What is wrong comes with what mends it."
        " Nothing is changed; no scheduler is asked. Exit code 3: there is a problem; 4: there is none, and"
        " something could not be looked at."
    )
    add_flags(parser, "for its profiles and its lease", default="as deploy/ has it")
    parser.add_argument(
        "--account",
        metavar="NAMESPACE:NAME",
        default="gangsched-system:gangsched",
        help="the scheduler's service account, and the name of its Deployment (gangsched-system:gangsched)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="only what is not well")
    add_output_flag(parser, "text", "json")
    add_cluster_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    account = _account(args.account)
    plugins = KnownPlugins(args.plugin)
    election = {} if args.config else _as_deployed(account)
    config = ConfigSource(args.config, plugins, election_flags=election).read()
    findings = run_loop(_findings, args, account, config, plugins)
    if args.output == "json":
        printing.print_json(findings)
    else:
        print_findings(findings, printing.console(160, highlight=True), quiet=args.quiet)
    return exit_code(findings)


def _account(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition(":")
    if not namespace or not name or ":" in name:
        raise ConfigError(
            f"{text!r} is not NAMESPACE:NAME, as gangsched-system:gangsched is", path="--account"
        )
    return namespace, name


def _as_deployed(account: tuple[str, str]) -> dict[str, str | bool]:
    """Leader election as deploy/config/scheduler.yaml has it."""
    return {"leader_elect": True, "resource_name": "gangsched", "resource_namespace": account[0]}


async def _findings(
    args: argparse.Namespace, account: tuple[str, str], config: SchedulerConfig, plugins: KnownPlugins
) -> list[Finding]:
    async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
        # Without a configuration it is that of deploy/, whose plugins follow what the role grants.
        rights = _rights(account[0], config, plugins) if args.config else asked(account[0], config)
        facts = await read_facts(client, account, rights, optional(config.settings))
        snapshot = await take_snapshot(client, config, plugins, now_s=time.monotonic())
    return examine(facts, snapshot, config)


def _rights(namespace: str, config: SchedulerConfig, plugins: KnownPlugins) -> dict[Right, str]:
    profiles = build_profiles(config, plugins.factories, with_hooks=False)
    kinds = watched_by_plugins(profiles.values())
    if any(one.allocates_claims for one in profiles.values()):
        kinds |= set(CLAIM_KINDS)
    return asked(namespace, config, kinds, asks_metrics_server=metrics_server_s(profiles) > 0)


def examine(facts: Facts, snapshot: Snapshot, config: SchedulerConfig) -> list[Finding]:
    """Runs all checks, in the order in which one would mend their findings."""
    nodes, pods = snapshot.nodes, snapshot.pods
    refused = [
        Refused(one.kind, f"{one.namespace}/{one.name}", one.uid, one.node_name or one.name, one.message)
        for one in snapshot.refused
        if one.kind == "Node" or one.node_name
    ]
    served = [profile.scheduler_name for profile in config.profiles]
    allocating = {
        one.scheduler_name for one in config.profiles if DynamicResources.name in one.plugins["filter"]
    }
    with_agents = any(pod.metadata.namespace == cluster_checks.AGENT_NAMESPACE for pod in pods)
    work = cluster_checks.work_of(pods, served, facts.now)
    findings = [
        *checks.check_version(facts),
        *checks.check_rights(facts),
        *checks.check_policies(facts, work, with_agents=with_agents),
        *checks.check_flow_schemas(facts),
        *checks.check_replicas(facts, work),
        *checks.check_leases(facts, config.leader_election, work),
        *checks.check_clock(facts),
        *cluster_checks.check_agents(nodes, pods, facts.now),
        *cluster_checks.check_dynamic(facts, nodes, pods, served, allocating),
        *cluster_checks.check_inventories(nodes),
        *cluster_checks.check_drift(make_map(nodes, pods, refused)),
        *cluster_checks.check_gangs(snapshot.scheduler.shared.groups.values(), facts.now),
        *cluster_checks.check_unseen(pods, served, facts.now),
    ]
    return findings + [
        found(
            "reading",
            "unknown",
            f"not read: {why}",
            f"Run this as a user who may list {why.partition(':')[0]}: what they say is left out here.",
        )
        for why in snapshot.unread
    ]


def print_findings(findings: Sequence[Finding], console: Console, *, quiet: bool) -> None:
    """Prints a line for each, its cure below it, and the count at the end."""
    for one in findings:
        if quiet and one.level == "ok":
            continue
        style = _STYLES[one.level]
        console.print(f"[{style}]{one.level:8}[/{style}] {one.check:11} {escape(one.text)}", soft_wrap=True)
        if one.cure:
            console.print(f"{'':20} {escape(one.cure)}", soft_wrap=True, highlight=False)
    counts = [(level, sum(one.level == level for one in findings)) for level in _STYLES]
    console.print(", ".join(f"{n} {level}" for level, n in counts if n))
