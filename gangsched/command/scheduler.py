"""`gangsched scheduler`: its flags, and putting a scheduler together from them. Called by command.cli.

What a scheduler needs is imported when it runs, as its start costs CPU on every failover.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from gangsched import __version__
from gangsched.command.messages import tell_note
from gangsched.kube.access.flags import add_cluster_flags
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
    with_environment,
    with_record_flag,
)
from gangsched.process.garbage_collection import collect_rarely
from gangsched.signals import run_loop

if TYPE_CHECKING:
    from gangsched.config import SchedulerConfig, TracingSettings
    from gangsched.extension.loading import KnownPlugins
    from gangsched.extension.source import ConfigSource
    from gangsched.telemetry.service import Tracing

# Time for writing the rest of the journal at the end.
_JOURNAL_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = "Runs the scheduler against a cluster until SIGTERM."
    parser.add_argument(
        "--config", metavar="FILE", help="KubeSchedulerConfiguration; see config/scheduler.yaml"
    )
    add_cluster_flags(parser)
    parser.add_argument("--version", action="version", version=f"gangsched {__version__}")
    parser.add_argument(
        "--write-config-to", metavar="FILE", default="", help="write the configuration in effect, and end"
    )
    add_plugin_flag(parser)
    add_election_flags(parser)
    add_web_flags(parser)
    add_foreign_flags(parser)
    add_trace_flags(parser)
    add_shadow_flags(parser)
    add_record_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    # Most imported objects are permanent; by default Python's collector would visit them repeatedly, which
    # takes 50 ms of CPU in a scheduler's start.
    collect_rarely()
    # NumPy's linear algebra, which we do not use, would start a thread for each core: 70 ms of CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
    unused = plugins.unused(config.plugin_names)
    for note in (*config.notes, *foreign_notes(args), *trace_notes, *unused):
        tell_note(note)
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
        config, trace_notes[:] = with_environment(config, args.trace_endpoint, args.trace_file)
        return config

    return ConfigSource(
        args.config or "",
        plugins,
        election_flags=election_flags(args),
        finish=finish,
        scheduler_name=KUBE_DEFAULT_NAME if is_shadow else "",
    )


def _tracing(settings: TracingSettings) -> Tracing:
    """Loads OpenTelemetry; this is the only place."""
    from gangsched.telemetry.service import Tracing

    return Tracing(settings)


def _write_config(path: str, config: SchedulerConfig) -> int:
    from gangsched.config.effective import effective_yaml
    from gangsched.whole_file import put_file

    put_file(path, effective_yaml(config))
    return 0
