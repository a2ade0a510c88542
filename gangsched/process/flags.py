"""Flags of `gangsched scheduler` beyond the file: leader election, pages, traces, and kube-scheduler's.

Lives here: names, meanings, errors. Not here: running (command.scheduler, which adds them to its parser).
kube-scheduler's flags are accepted where they mean the same; those without effect here are accepted with a
note; flags whose absence would matter are rejected with the reason. Source: `kube-scheduler --help`, v1.37.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangsched.errors import ConfigError

if TYPE_CHECKING:
    from gangsched.config import SchedulerConfig
    from gangsched.shadow.published import ShadowSettings
    from gangsched.web.listening import WebSettings

DEFAULT_PORT = 10259
VOLUMES_VARIABLE = "KUBE_MAX_PD_VOLS"
_VOLUME_LIMITS = "NodeVolumeLimits"
# Probes need no token, everything else does.
OPEN_PATHS = "/healthz,/readyz,/livez"

_ELECTION = {
    "lease-duration": ("DURATION", "how long others wait for a silent leader (15s)"),
    "renew-deadline": ("DURATION", "how long the leader continues without renewing (10s)"),
    "retry-period": ("DURATION", "how often the lease is renewed, or asked about (2s)"),
    "resource-lock": ("KIND", "leases, and nothing else"),
    "resource-name": ("NAME", "the Lease's name (gangsched)"),
    "resource-namespace": ("NAME", "the Lease's namespace (kube-system)"),
}

_REVIEWS = "tokens are reviewed with the scheduler's own credentials (--kubeconfig)"
_LIMITS = "requests are bounded by parallelism and by the server's priority and fairness, not by a rate"
_NO_PROFILING = "there are no profiling pages"
_NOTHING_HERE = {
    "authentication-kubeconfig": _REVIEWS,
    "authorization-kubeconfig": _REVIEWS,
    "authentication-skip-lookup": "there is no such configuration to look up",
    "authentication-tolerate-lookup-failure": "there is no such configuration to look up",
    "cert-dir": "a certificate made for the run is kept in memory",
    "contention-profiling": _NO_PROFILING,
    "kube-api-burst": _LIMITS,
    "kube-api-content-type": "JSON is spoken",
    "kube-api-qps": _LIMITS,
    "log-flush-frequency": "log lines are written at once",
    "logtostderr": "log lines go to stderr",
    "profiling": _NO_PROFILING,
}
_NOT_THERE = {
    "client-ca-file": "client certificates are not read; readers of /metrics need a token",
    "feature-gates": "there are no feature gates; the configuration file says what is on",
    "pod-max-in-unschedulable-pods-duration": "use unschedulableFlushSeconds in the configuration file",
    "requestheader-client-ca-file": "user headers of proxies are not trusted",
    "tls-cipher-suites": "TLS 1.2 and 1.3 are used with Python's own choice of suites",
    "tls-min-version": "TLS 1.2 and 1.3 are supported",
    "vmodule": "there is one level for all: -v",
}


def add_plugin_flag(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for the user's own plugins."""
    parser.add_argument(
        "--plugin",
        metavar="FILE.py",
        action="append",
        default=[],
        help="a file with plugins, to be named in the configuration as any other; may be given several times"
        " (those of installed packages, entry points gangsched.plugins, need only be named)",
    )


def add_election_flags(parser: argparse.ArgumentParser) -> None:
    """Adds kube-scheduler's flags; each overrides the file's leaderElection."""
    parser.add_argument(
        "--leader-elect",
        metavar="true|false",
        nargs="?",
        const=True,
        type=boolean,
        help="lead or follow by a Lease: for more than one replica (default: as the file says, or false)",
    )
    for name, (metavar, help_) in _ELECTION.items():
        parser.add_argument(f"--leader-elect-{name}", metavar=metavar, help=help_)


def election_flags(args: argparse.Namespace) -> dict[str, str | bool]:
    """Returns the given flags, by the field names of the file's section."""
    names = {"leader_elect": "leader_elect"}
    for name in _ELECTION:
        field = name.replace("-", "_")
        names[field] = f"leader_elect_{field}"
    return {name: value for name, flag in names.items() if (value := getattr(args, flag)) is not None}


def add_web_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the port of health, metrics and configuration."""
    parser.add_argument(
        "--secure-port",
        metavar="PORT",
        type=_port,
        default=DEFAULT_PORT,
        help=f"HTTPS for health, metrics, the dashboard, and commands that ask; 0: none ({DEFAULT_PORT})",
    )
    parser.add_argument("--bind-address", metavar="IP", default="0.0.0.0", help="address of that port (all)")
    parser.add_argument(
        "--tls-cert-file", metavar="FILE", default="", help="its certificate (default: one made for the run)"
    )
    parser.add_argument("--tls-private-key-file", metavar="FILE", default="", help="the certificate's key")
    parser.add_argument(
        "--authorization-always-allow-paths",
        metavar="PATHS",
        default=OPEN_PATHS,
        help=f"paths that need no token, with commas between; a trailing * is a prefix ({OPEN_PATHS})",
    )
    parser.add_argument(
        "--dashboard",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="serve /dashboard on that port, for users with the right to read that path (served)",
    )


def web_settings(args: argparse.Namespace) -> WebSettings | None:
    """Returns None if no port is configured. Raises: ConfigError."""
    certificate, key = args.tls_cert_file, args.tls_private_key_file
    if bool(certificate) != bool(key):
        missing = "--tls-private-key-file" if certificate else "--tls-cert-file"
        raise ConfigError("is needed too: a certificate and its key go together", path=missing)
    if not args.secure_port:
        return None
    allowed = tuple(path for path in args.authorization_always_allow_paths.split(",") if path)
    for path in allowed:
        if not path.startswith("/") or "*" in path[:-1]:
            raise ConfigError(
                f"{path!r} is not a path from / on, with a * at its end if it is a prefix",
                path="--authorization-always-allow-paths",
            )
    from gangsched.web.listening import WebSettings

    return WebSettings(args.secure_port, args.bind_address, certificate, key, allowed, args.dashboard)


def add_trace_flags(parser: argparse.ArgumentParser) -> None:
    """Adds flags that override the file's tracing section; telemetry.settings merges them."""
    parser.add_argument(
        "--trace-endpoint",
        metavar="URL",
        default="",
        help="send traces to this collector by OTLP over HTTP, as http://localhost:4318 (default: as the"
        " file says, or OTEL_EXPORTER_OTLP_ENDPOINT; else none are made)",
    )
    parser.add_argument(
        "--trace-file", metavar="FILE", default="", help="append traces to this file, for `gangsched trace`"
    )


def add_shadow_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for trials on a live cluster."""
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="decide for the pods of the configuration's schedulerNames (without --config: default-scheduler)"
        " and write nothing; say at the end, and on SIGUSR1, where the other scheduler differed",
    )
    parser.add_argument(
        "--shadow-report", metavar="FILE", default="", help="also write that report as JSON to this file"
    )


def add_record_flag(parser: argparse.ArgumentParser) -> None:
    """Adds the journal's flag; it overrides the file's record.directory."""
    parser.add_argument(
        "--record",
        metavar="DIR",
        default="",
        help="write down everything that decisions follow from, for `gangsched replay DIR`",
    )


def with_record_flag(config: SchedulerConfig, args: argparse.Namespace) -> SchedulerConfig:
    """Applies the flag; shadow mode records nothing. Raises: ConfigError."""
    import msgspec

    if args.record and args.shadow:
        raise ConfigError("cannot be given with --shadow", path="--record")
    directory = "" if args.shadow else args.record or config.record.directory
    return msgspec.structs.replace(config, record=msgspec.structs.replace(config.record, directory=directory))


def shadow_settings(args: argparse.Namespace) -> ShadowSettings | None:
    """Raises: ConfigError."""
    if not args.shadow:
        if args.shadow_report:
            raise ConfigError("is for --shadow only", path="--shadow-report")
        return None
    from gangsched.shadow.published import ShadowSettings

    return ShadowSettings(args.shadow_report)


def add_foreign_flags(parser: argparse.ArgumentParser) -> None:
    """Adds other flags common on kube-scheduler's command lines; our --help does not show them."""
    for name in (*_NOTHING_HERE, *_NOT_THERE):
        parser.add_argument(f"--{name}", nargs="?", const="true", help=argparse.SUPPRESS)


def foreign_notes(args: argparse.Namespace) -> list[str]:
    """Returns notes on flags without effect. Raises: ConfigError, for flags whose absence would matter."""
    for name, why in _NOT_THERE.items():
        if getattr(args, name.replace("-", "_")) is not None:
            raise ConfigError(f"is not there: {why}", path=f"--{name}")
    given = [name for name in _NOTHING_HERE if getattr(args, name.replace("-", "_")) is not None]
    return [f"--{name} changes nothing: {_NOTHING_HERE[name]}" for name in given]


def boolean(text: str) -> bool:
    """Parses a boolean as Go's flags do."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")


def with_volume_limit(config: SchedulerConfig, environ: Mapping[str, str]) -> SchedulerConfig:
    """Applies the volume limit of KUBE_MAX_PD_VOLS to profiles that set none.

    As in kube-scheduler 1.26, a value that is no whole number above 0 is ignored; here with a note.
    """
    import re

    import msgspec

    value = environ.get(VOLUMES_VARIABLE, "")
    if not value:
        return config
    if not re.fullmatch(r"\+?0*[1-9][0-9]{0,8}", value):
        note = f"{VOLUMES_VARIABLE}: {value[:40]!r} is not a whole number above 0, so it does not count"
        return msgspec.structs.replace(config, notes=(*config.notes, note))
    profiles, notes = [], config.notes
    for profile in config.profiles:
        args = profile.args.get(_VOLUME_LIMITS)
        if args is not None and not args.max_pd_volumes:
            args = msgspec.structs.replace(args, max_pd_volumes=int(value))
            profile = msgspec.structs.replace(profile, args={**profile.args, _VOLUME_LIMITS: args})
            notes = (*config.notes, f"{VOLUMES_VARIABLE}={int(value)} sets maxPdVolumes of {_VOLUME_LIMITS}")
        profiles.append(profile)
    return msgspec.structs.replace(config, profiles=tuple(profiles), notes=notes)


def with_environment(
    config: SchedulerConfig, trace_endpoint: str = "", trace_file: str = ""
) -> tuple[SchedulerConfig, list[str]]:
    """Returns the configuration with what environment variables set where it says nothing, and notes on
    tracing. The flags go before both."""
    import os

    import msgspec

    from gangsched.telemetry.settings import resolve

    config = with_volume_limit(config, os.environ)
    trace, notes = resolve(config.tracing, endpoint_flag=trace_endpoint, file_flag=trace_file, env=os.environ)
    return msgspec.structs.replace(config, tracing=trace), notes
