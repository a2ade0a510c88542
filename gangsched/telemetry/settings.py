"""Whether and where traces go: flags override the file's section, which overrides OpenTelemetry's
environment.

The only part of telemetry that a scheduler without traces loads. Called by the command line.
Source of the variables: OpenTelemetry specification, OTLP exporter and SDK configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from gangsched.config import TracingSettings
from gangsched.config.tracing import traces_url

_BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_DISABLED = "OTEL_SDK_DISABLED"
_GRPC_PORT = 4317


def resolve(
    section: TracingSettings, *, endpoint_flag: str, file_flag: str, env: Mapping[str, str]
) -> tuple[TracingSettings, list[str]]:
    """Returns the settings in effect, and notes for the user. Raises: ConfigError."""
    if env.get(_DISABLED, "").strip().lower() == "true":
        asked = section.is_on or endpoint_flag or file_flag
        return TracingSettings(), [f"{_DISABLED} is set: no traces are made"] if asked else []
    endpoint = traces_url(endpoint_flag, "--trace-endpoint") or section.endpoint
    if not endpoint:
        endpoint = traces_url(env.get(_TRACES, "").strip(), _TRACES, as_it_is=True)
    if not endpoint and (base := traces_url(env.get(_BASE, "").strip(), _BASE, as_it_is=True)):
        endpoint = f"{base.rstrip('/')}/v1/traces"
    settings = msgspec.structs.replace(section, endpoint=endpoint, file=file_flag or section.file)
    notes = []
    if endpoint and urlsplit(endpoint).port == _GRPC_PORT:
        notes.append(f"traces go to {shown(endpoint)} by HTTP; {_GRPC_PORT} is gRPC's port, HTTP's is 4318")
    return settings, notes


def shown(endpoint: str) -> str:
    """The URL as it may be logged: without a password."""
    parts = urlsplit(endpoint)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
