"""The commands. Each imports what it needs when it runs: a scheduler that starts fast imports no bench.

A user's mistake is one line on stderr and exit code 2; a server that cannot be reached is exit code 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gangsched import __version__
from gangsched.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from gangsched.config import SchedulerConfig


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; answers with the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except ConfigError as error:
        print(f"gangsched: {error}", file=sys.stderr)
        return 2
    except ApiError as error:
        print(f"gangsched: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gangsched: interrupted", file=sys.stderr)
        return 130


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gangsched", description="Gang scheduling with device IDs for AI and HPC jobs on Kubernetes."
    )
    parser.add_argument("--version", action="version", version=f"gangsched {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    scheduler = commands.add_parser(
        "scheduler",
        help="run beside kube-scheduler and place the pods that name one of its profiles",
        description="Runs the scheduler against a cluster until SIGTERM.",
    )
    scheduler.add_argument(
        "--config", metavar="FILE", help="KubeSchedulerConfiguration; see config/scheduler.yaml"
    )
    scheduler.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="default: KUBECONFIG, in-cluster, ~/.kube/config"
    )
    scheduler.add_argument("--context", metavar="NAME", default="", help="a context of the kubeconfig")
    scheduler.add_argument("--master", metavar="URL", default="", help="API server; overrides the kubeconfig")
    _add_election_flags(scheduler)
    scheduler.add_argument("--logging-format", choices=("text", "json"), default="text")
    scheduler.add_argument(
        "-v", "--v", metavar="LEVEL", type=int, default=0, help="0: info, 4 and above: debug"
    )
    scheduler.set_defaults(run=_run_scheduler)
    check = commands.add_parser("check-config", help="read a configuration file and say what it comes to")
    check.add_argument("file", metavar="FILE")
    check.set_defaults(run=_run_check_config)
    bench = commands.add_parser(
        "bench", help="measure against kube-scheduler on a real control plane, in one run"
    )
    if "bench" in arguments[:1]:
        from gangsched.bench import command

        command.add_arguments(bench)
        bench.set_defaults(run=command.run)
    return parser


_ELECTION_FLAGS = {
    "lease-duration": ("DURATION", "how long the others wait for a leader that is silent (15s)"),
    "renew-deadline": ("DURATION", "how long the leader goes on without renewing (10s)"),
    "retry-period": ("DURATION", "how often the lease is renewed, or asked about (2s)"),
    "resource-lock": ("KIND", "leases, and nothing else"),
    "resource-name": ("NAME", "the Lease's name (gangsched)"),
    "resource-namespace": ("NAME", "the Lease's namespace (kube-system)"),
}


def _add_election_flags(parser: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags; each overrides the file's leaderElection."""
    parser.add_argument(
        "--leader-elect",
        metavar="true|false",
        nargs="?",
        const=True,
        type=_bool,
        help="lead or follow by a Lease: for more than one replica (default: as the file says, or false)",
    )
    for name, (metavar, help_) in _ELECTION_FLAGS.items():
        parser.add_argument(f"--leader-elect-{name}", metavar=metavar, help=help_)


def _bool(text: str) -> bool:
    """As Go's flags read it."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _election_flags(args: argparse.Namespace) -> dict[str, str | bool]:
    """Those that were given, by the names of the file's section."""
    names = {"leader_elect": "leader_elect"}
    for name in _ELECTION_FLAGS:
        field = name.replace("-", "_")
        names[field] = f"leader_elect_{field}"
    return {name: value for name, flag in names.items() if (value := getattr(args, flag)) is not None}


def _run_scheduler(args: argparse.Namespace) -> int:
    # Most of what an import makes stays; at the default of 700 the collector would walk it all again and
    # again, 50 ms of CPU in a scheduler's start. What it is set to while running is the app's.
    gc.set_threshold(50_000)
    # NumPy's linear algebra, of which nothing is used, would start a thread for each core: 70 ms of CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gangsched.logs import set_up_logs

    set_up_logs(args.logging_format, debug=args.v >= 4)  # first: it sees to it that structlog loads fast

    import anyio

    from gangsched.app import SchedulerApp
    from gangsched.config import default_config
    from gangsched.kube.credentials import load_credentials
    from gangsched.plugins import IN_TREE

    flags = _election_flags(args)
    if args.config:
        config = _read_config(args.config, flags)
    else:
        config = default_config(IN_TREE, election_flags=flags)
    for note in config.notes:
        print(f"gangsched: note: {note}", file=sys.stderr)

    async def run() -> int:
        kubeconfig = args.kubeconfig or config.client_connection.kubeconfig
        credentials = await load_credentials(kubeconfig=kubeconfig, context=args.context, master=args.master)
        return await SchedulerApp(config, credentials).run()

    return anyio.run(run)


def _run_check_config(args: argparse.Namespace) -> int:
    config = _read_config(args.file, {})
    for note in config.notes:
        print(f"note: {note}")
    for profile in config.profiles:
        print(f"profile {profile.scheduler_name}")
        for point, names in profile.plugins.items():
            if names:
                print(f"  {point}: {', '.join(names)}")
    return 0


def _read_config(path: str, election_flags: Mapping[str, str | bool]) -> SchedulerConfig:
    from gangsched.config import parse_config
    from gangsched.plugins import IN_TREE

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", source=path
        ) from None
    return parse_config(text, source=path, plugins=IN_TREE, election_flags=election_flags)


if __name__ == "__main__":
    sys.exit(main())
