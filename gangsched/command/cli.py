"""The commands. Each imports what it needs when it runs, so that starting a scheduler imports no bench.

A user's mistake is one line on stderr and exit code 2; a server that cannot be reached is exit code 1.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gangsched import __version__
from gangsched.command.arguments import Parser
from gangsched.command.commands import COMMANDS, module_of
from gangsched.errors import ApiError, ConfigError
from gangsched.model.text.printable import one_line
from gangsched.process.flags import (
    add_election_flags,
    add_foreign_flags,
    add_plugin_flag,
    add_record_flag,
    add_shadow_flags,
    add_trace_flags,
    add_web_flags,
    election_flags,
    foreign_notes,
    shadow_settings,
    web_settings,
    with_record_flag,
    with_volume_limit,
)
from gangsched.process.garbage_collection import collect_rarely
from gangsched.signals import EndedBySignal, early_signals, run_loop

if TYPE_CHECKING:
    from gangsched.config import SchedulerConfig, TracingSettings
    from gangsched.extension.loading import KnownPlugins
    from gangsched.extension.source import ConfigSource
    from gangsched.telemetry.service import Tracing

# Time for writing the rest of the journal at the end.
_JOURNAL_S = 10.0
# Errors of a disk or terminal that accepts no more of our output.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _ready_streams()
    try:
        with early_signals(reloads=arguments[:1] == ["scheduler"]):
            args = _parser(arguments).parse_args(arguments)
            code = int(args.run(args))
            sys.stdout.flush()  # flush here, where a closed pipe can be handled
            return code
    except ConfigError as error:
        print(f"gangsched: {one_line(str(error))}", file=sys.stderr)
        return 2
    except ApiError as error:
        print(f"gangsched: {one_line(str(error))}", file=sys.stderr)
        return 1
    except ValueError as error:
        if not str(error).startswith("OTEL_"):  # OpenTelemetry reads some of its variables on import
            raise
        print(f"gangsched: {one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. The rest is discarded at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"gangsched: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except EndedBySignal as error:
        print(f"gangsched: {error}", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print("gangsched: interrupted", file=sys.stderr)
        return 130


def _ready_streams() -> None:
    """Makes stdin, stdout and stderr usable, however the process was started."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: another file must not get its number and output
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal with few characters gets the rest as \xe9, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        # A key from a terminal with another encoding must cause no traceback.
        sys.stdin.reconfigure(errors="replace")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = Parser(
        prog=_program(), description="Gang scheduling with device IDs for AI and HPC jobs on Kubernetes."
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
    scheduler.add_argument("--version", action="version", version=f"gangsched {__version__}")
    scheduler.add_argument(
        "--write-config-to", metavar="FILE", default="", help="write the configuration in effect, and end"
    )
    add_plugin_flag(scheduler)
    add_election_flags(scheduler)
    add_web_flags(scheduler)
    add_foreign_flags(scheduler)
    add_trace_flags(scheduler)
    add_shadow_flags(scheduler)
    add_record_flag(scheduler)
    scheduler.add_argument("--logging-format", choices=("text", "json"), default="text")
    scheduler.add_argument(
        "-v", "--v", metavar="LEVEL", type=int, default=0, help="0: info, 4 and above: debug"
    )
    scheduler.set_defaults(run=_run_scheduler)
    check = commands.add_parser(
        "check-config",
        help="read a configuration file and print what it amounts to",
        description="Reads a configuration file as the scheduler does, and prints what it amounts to:"
        " profiles with all their plugins, and settings; with the environment variables that a scheduler"
        " started here would read. No cluster is asked. Exit code 2: it has a mistake,"
        " which is named with its place.",
    )
    check.add_argument("file", metavar="FILE", help="KubeSchedulerConfiguration; see config/scheduler.yaml")
    add_plugin_flag(check)
    check.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    check.set_defaults(run=_run_check_config)
    for name, (_, help_) in COMMANDS.items():
        command = commands.add_parser(name, help=help_)
        if name in arguments[:1]:
            _fill(command, module_of(name))
    return parser


def _program() -> str:
    """Returns the command name that was typed: kubectl runs this as its plugin too."""
    return "kubectl gangsched" if Path(sys.argv[0]).name == "kubectl-gangsched" else "gangsched"


def _fill(parser: argparse.ArgumentParser, command: ModuleType) -> None:
    command.add_arguments(parser)

    def run(args: argparse.Namespace) -> int:
        from gangsched.logs import set_up_logs

        has_flags = "logging_format" in args
        set_up_logs(args.logging_format if has_flags else "text", debug=has_flags and args.v >= 4)
        return int(command.run(args))

    parser.set_defaults(run=run)


def _run_scheduler(args: argparse.Namespace) -> int:
    # Most imported objects are permanent; by default Python's collector would visit them repeatedly, which
    # takes 50 ms of CPU in a scheduler's start.
    collect_rarely()
    # NumPy's linear algebra, which we do not use, would start a thread for each core: 70 ms of CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from gangsched.logs import set_up_logs

    set_up_logs(args.logging_format, debug=args.v >= 4)  # first, since it makes structlog load fast

    from gangsched.extension.loading import KnownPlugins
    from gangsched.kube.access.credentials import load_credentials
    from gangsched.process.app import SchedulerApp
    from gangsched.process.recording import Recording

    shadow = shadow_settings(args)
    plugins = KnownPlugins(args.plugin)
    trace_notes: list[str] = []
    source = _config_source(args, plugins, is_shadow=shadow is not None, trace_notes=trace_notes)
    config = source.read()
    trace = config.tracing
    unused = plugins.unused(_named(config))
    for note in (*config.notes, *foreign_notes(args), *trace_notes, *unused):
        print(f"gangsched: note: {one_line(note)}", file=sys.stderr)
    if args.write_config_to:
        return _write_config(args.write_config_to, config)
    web = web_settings(args)
    tracing = _tracing(trace) if trace.is_on else None
    recording = Recording(config.record)

    async def run() -> int:
        kubeconfig = args.kubeconfig or config.client_connection.kubeconfig
        credentials = await load_credentials(kubeconfig=kubeconfig, context=args.context, master=args.master)
        app = SchedulerApp(
            config,
            credentials,
            web=web,
            tracing=tracing,
            shadow=shadow,
            source=source,
            recording=recording,
        )
        return await app.run()

    try:
        return run_loop(run)
    finally:
        if tracing is not None:
            tracing.close()
        recording.close(_JOURNAL_S)


def _config_source(
    args: argparse.Namespace, plugins: KnownPlugins, *, is_shadow: bool, trace_notes: list[str]
) -> ConfigSource:
    """Returns where the configuration is read from, now and later; each reading replaces trace_notes."""
    from gangsched.config import KUBE_DEFAULT_NAME, without_writes
    from gangsched.extension.source import ConfigSource

    def finish(config: SchedulerConfig) -> SchedulerConfig:
        """Returns the configuration in effect: the file, and what overrides it."""
        config = with_record_flag(config, args)
        if is_shadow:
            config = without_writes(config)
        config, trace_notes[:] = _with_environment(config, args.trace_endpoint, args.trace_file)
        return config

    return ConfigSource(
        args.config or "",
        plugins,
        election_flags=election_flags(args),
        finish=finish,
        scheduler_name=KUBE_DEFAULT_NAME if is_shadow else "",
    )


def _with_environment(
    config: SchedulerConfig, trace_endpoint: str = "", trace_file: str = ""
) -> tuple[SchedulerConfig, list[str]]:
    """Returns the configuration with what environment variables set where it says nothing, and notes on
    tracing. The flags go before both."""
    import msgspec

    from gangsched.telemetry.settings import resolve

    config = with_volume_limit(config, os.environ)
    trace, notes = resolve(config.tracing, endpoint_flag=trace_endpoint, file_flag=trace_file, env=os.environ)
    return msgspec.structs.replace(config, tracing=trace), notes


def _named(config: SchedulerConfig) -> set[str]:
    return {name for profile in config.profiles for listed in profile.plugins.values() for name in listed}


def _tracing(settings: TracingSettings) -> Tracing:
    """Loads OpenTelemetry; this is the only place."""
    from gangsched.telemetry.service import Tracing

    return Tracing(settings)


def _write_config(path: str, config: SchedulerConfig) -> int:
    from gangsched.config.effective import effective_yaml
    from gangsched.whole_file import write_whole

    try:
        write_whole(Path(path), effective_yaml(config).encode())
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", source=path) from None
    return 0


def _run_check_config(args: argparse.Namespace) -> int:
    from gangsched.config.checked import resolved, resolved_text
    from gangsched.extension.loading import KnownPlugins
    from gangsched.extension.source import ConfigSource
    from gangsched.plugins import build_profiles

    if not args.file:
        raise ConfigError("names no file", path="FILE")  # a ConfigSource without a file has the defaults
    plugins = KnownPlugins(args.plugin)
    config, trace_notes = _with_environment(ConfigSource(args.file, plugins).read())
    build_profiles(config, plugins.factories)  # a plugin that cannot be made is a mistake too
    for note in (*plugins.unused(_named(config)), *trace_notes):
        print(f"gangsched: note: {one_line(note)}", file=sys.stderr)
    if args.output == "text":
        print(resolved_text(config, plugins))
        for name in sorted(_named(config)):
            if plugins.source(name):
                print(one_line(f"from outside: {name}: {plugins.source(name)}"))
    elif args.output == "json":
        print(json.dumps(resolved(config, plugins), indent=2))
    else:
        import yaml

        print(yaml.safe_dump(resolved(config, plugins), sort_keys=False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
