"""Whether and where a scheduler traces, and that one that does not loads nothing for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from gangsched.config import TracingSettings, parse_config
from gangsched.config.effective import effective_yaml
from gangsched.config.tracing import KeepTraces
from gangsched.errors import ConfigError
from gangsched.plugins import IN_TREE
from gangsched.telemetry.settings import resolve, shown

KUBE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS = "---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n"


def read(tracing: str) -> TracingSettings:
    return parse_config(f"{KUBE}{OURS}tracing: {tracing}\n", source="f", plugins=IN_TREE).tracing


def resolved(
    section: TracingSettings | None = None,
    *,
    endpoint: str = "",
    file: str = "",
    env: Mapping[str, str] | None = None,
) -> TracingSettings:
    found, _ = resolve(section or TracingSettings(), endpoint_flag=endpoint, file_flag=file, env=env or {})
    return found


def test_off_unless_configured() -> None:
    assert not read("{}").is_on
    assert not resolved().is_on


def test_the_section_states_where_traces_go_and_how_many() -> None:
    settings = read("{endpoint: 'http://c:4318', samplingRatio: 0.1}")
    assert settings == TracingSettings("http://c:4318/v1/traces", "", 0.1)
    assert read("{file: /var/t.jsonl}").is_on
    kept = read("{keep: {slowerThan: 1m30s, failed: true, preempting: true, maxHeldSpans: 500}}").keep
    assert kept == KeepTraces(90.0, True, True, 500)
    assert not settings.keep.is_on
    assert read("{endpoint: 'https://c/otlp/v1/traces'}").endpoint == "https://c/otlp/v1/traces"


@pytest.mark.parametrize(
    ("tracing", "says"),
    [
        ("{endpoint: 'c:4318'}", "f: tracing.endpoint: 'c:4318' is not the URL of a collector"),
        ("{endpoint: 'http://c:x'}", "is not the URL of a collector"),
        ("{samplingRatio: 1.5}", "f: tracing.samplingRatio: 1.5 is not within 0..1"),
        ("{samplingRatio: .nan}", "f: tracing.samplingRatio: nan is not within 0..1"),
        ("{keep: {slowerThan: 90}}", "f: tracing.keep.slowerThan: "),
        ("{keep: {slowerThan: soon}}", "f: tracing.keep.slowerThan: 'soon' is not a duration"),
        ("{keep: {slowerThan: -5s}}", "f: tracing.keep.slowerThan: -5s is not longer than 0; leave it out"),
        ("{keep: {maxHeldSpans: 0}}", "f: tracing.keep.maxHeldSpans: 0 is not within 1..1000000"),
        ("{keep: {slow: 5s}}", "f: tracing.keep.slow: unknown field"),
        ("{samplingRate: 1}", "f: tracing.samplingRate: unknown field; did you mean samplingRatio?"),
    ],
)
def test_mistakes_name_their_place(tracing: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tracing)
    assert says in str(error.value)


def test_the_settings_in_effect_can_be_reread() -> None:
    config = parse_config(
        f"{KUBE}{OURS}tracing: {{endpoint: 'http://c', samplingRatio: 0.5,"
        " keep: {slowerThan: 90s, failed: true}}\n",
        source="f",
        plugins=IN_TREE,
    )
    again = parse_config(effective_yaml(config), source="g", plugins=IN_TREE)
    assert again.tracing == config.tracing


def test_flags_override_the_file_and_the_file_the_environment() -> None:
    section = TracingSettings("http://file/v1/traces", "file.jsonl", 0.5)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:4318/"}
    assert resolved(env=env).endpoint == "http://env:4318/v1/traces"
    assert resolved(section, env=env).endpoint == "http://file/v1/traces"
    flagged = resolved(section, endpoint="http://flag", file="flag.jsonl", env=env)
    assert flagged == TracingSettings("http://flag/v1/traces", "flag.jsonl", 0.5)


def test_the_environments_own_rules() -> None:
    both = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"}
    assert resolved(env=both).endpoint == "http://t/x", "used as it is"
    assert not resolved(endpoint="http://c", env={"OTEL_SDK_DISABLED": "true"}).is_on
    with pytest.raises(ConfigError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT: 'x' is not the URL"):
        resolved(env={"OTEL_EXPORTER_OTLP_ENDPOINT": "x"})


def test_grpcs_port_is_spoken_of() -> None:
    _, notes = resolve(TracingSettings(), endpoint_flag="http://me:secret@c:4317", file_flag="", env={})
    assert "4317 is gRPC's port" in notes[0]
    assert "secret" not in notes[0]
    assert shown("https://me:secret@c/v1/traces?token=x") == "https://c/v1/traces"


def test_a_scheduler_without_traces_loads_nothing_of_opentelemetry() -> None:
    script = """
import sys
import gangsched.process.app, gangsched.command.cli
from gangsched.telemetry.settings import resolve
from gangsched.config import TracingSettings
settings, _ = resolve(TracingSettings(), endpoint_flag="", file_flag="", env={})
assert not settings.is_on
print([name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "google", "requests")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
