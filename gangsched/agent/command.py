"""`gangsched agent`: its flags and its output. Called by command.cli."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Literal

from gangsched.agent.settings import AgentFlags, AgentSettings, default_settings, parse_parts
from gangsched.errors import ConfigError
from gangsched.kube.access.flags import add_cluster_flags, credentials_of
from gangsched.model.text.printable import one_line
from gangsched.reading.strict import read_text
from gangsched.signals import run_loop


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags; each overrides the file."""
    parser.description = (
        "Finds this node's devices and writes them, with their health, on its Node object"
        " (annotation gangsched.io/devices), until SIGTERM."
    )
    parser.add_argument(
        "--config",
        metavar="PATH",
        default="",
        help="AgentConfiguration, a file or a directory of *.yaml that make one; see config/agent.yaml",
    )
    parser.add_argument("--node-name", metavar="NAME", default="", help="this node (default: NODE_NAME)")
    parser.add_argument(
        "--devices",
        metavar="PATH",
        action="append",
        default=[],
        help="a JSON file of devices, or a directory of such files; may be given several times",
    )
    parser.add_argument(
        "--nvml",
        choices=("auto", "on", "off"),
        help="NVIDIA GPUs: if there is a driver (auto), with a report if there is none (on), or not (off)",
    )
    parser.add_argument(
        "--from-hami", action="store_true", help="read HAMi's register on the Node as devices too"
    )
    parser.add_argument(
        "--from-volcano", action="store_true", help="read Volcano vGPU's register on the Node as devices too"
    )
    parser.add_argument(
        "--bandwidth", action="store_true", help="write the NICs' remaining bandwidth on the Node, too"
    )
    parser.add_argument("--load", action="store_true", help="write the node's load and performance, too")
    parser.add_argument(
        "--nic",
        metavar="PATTERN",
        action="append",
        default=[],
        help="NICs to count, such as eth*; may be given several times (default: the physical ones)",
    )
    parser.add_argument(
        "--heartbeat", metavar="SECONDS", type=float, help="compare the Node at least this often (60)"
    )
    add_cluster_flags(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written now and exit without writing"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the agent; returns the exit code. Raises: ConfigError, ApiError."""
    settings = _settings(args)
    from gangsched.agent.app import AgentApp

    async def start() -> int:
        credentials = await credentials_of(args)
        app = AgentApp(settings, credentials)
        return await (_dry_run(app) if args.dry_run else app.run())

    async def _dry_run(app: AgentApp) -> int:
        value, notices = await app.look_once()
        for notice in notices:
            print(f"gangsched: {notice.level}: {one_line(notice.message)}", file=sys.stderr)
        print(f"gangsched: changes to what the Node lists now: {app.reporter.changes()}", file=sys.stderr)
        if value is None:
            print("gangsched: nothing would be written", file=sys.stderr)
        else:
            print(json.dumps(json.loads(value), indent=2))
        return 0 if all(notice.level == "info" for notice in notices) else 2

    return run_loop(start)


def _settings(args: argparse.Namespace) -> AgentSettings:
    registers: list[Literal["hami", "volcano"]] = []
    if args.from_hami:
        registers.append("hami")
    if args.from_volcano:
        registers.append("volcano")
    flags = AgentFlags(
        node_name=args.node_name,
        heartbeat_s=args.heartbeat,
        devices=tuple(args.devices),
        nvml=args.nvml,
        registers=tuple(registers),
        bandwidth=args.bandwidth,
        load=args.load,
        nics=tuple(args.nic),
    )
    if not args.config:
        return default_settings(flags, os.environ)
    return parse_parts(_parts(Path(args.config)), flags=flags, environ=os.environ)


def _parts(path: Path) -> list[tuple[str, str]]:
    """(name, text) of the file, or of each *.yaml of a directory. Raises: ConfigError."""
    files = sorted(path.glob("*.yaml")) if os.path.isdir(path) else [path]
    if not files:
        raise ConfigError("is a directory without *.yaml files", source=str(path))
    return [(str(file), read_text(str(file))) for file in files]
