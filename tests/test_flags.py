"""Flags that people bring from kube-scheduler: taken, taken with a word, or refused with the reason."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from gangsched.command.cli import _parser, main
from gangsched.config import default_config, parse_config
from gangsched.errors import ConfigError
from gangsched.plugins import IN_TREE
from gangsched.process.flags import foreign_notes, web_settings, with_volume_limit
from gangsched.web.listening import WebSettings


@pytest.fixture(autouse=True)
def _logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers that are set up for a command would stay so for the tests that come after."""
    monkeypatch.setattr("gangsched.logs.set_up_logs", lambda *_, **__: None)


def parsed(*flags: str) -> argparse.Namespace:
    line = ["scheduler", *flags]
    return _parser(line).parse_args(line)


def test_an_interruption_while_the_command_is_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("gangsched.command.commands.import_module", interrupted)
    assert main(["explain", "gang/a"]) == 130
    assert capsys.readouterr().err == "gangsched: interrupted\n"


def test_the_port_is_kube_schedulers() -> None:
    assert web_settings(parsed()) == WebSettings(10259)


def test_no_port_is_no_pages() -> None:
    assert web_settings(parsed("--secure-port=0")) is None


def test_a_port_with_everything() -> None:
    flags = [
        "--secure-port=8443",
        "--bind-address=127.0.0.1",
        "--tls-cert-file=a",
        "--tls-private-key-file=b",
    ]
    settings = web_settings(parsed(*flags, "--authorization-always-allow-paths=/livez,/metrics*"))
    assert settings == WebSettings(8443, "127.0.0.1", "a", "b", ("/livez", "/metrics*"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tls-cert-file=a"], "--tls-private-key-file: is needed too"),
        (["--tls-private-key-file=a"], "--tls-cert-file: is needed too"),
        (["--authorization-always-allow-paths=livez"], "'livez' is not a path from /"),
        (["--authorization-always-allow-paths=/a*b"], "is not a path from /"),
    ],
)
def test_an_impossible_value_is_reported_with_the_flags_name(flags: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        web_settings(parsed(*flags))


@pytest.mark.parametrize("port", ["65536", "-1", "https"])
def test_a_value_that_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(f"--secure-port={port}")
    assert caught.value.code == 2
    assert f"'{port}' is not a port" in capsys.readouterr().err


def test_flags_without_effect_are_accepted_with_a_note() -> None:
    args = parsed("--authentication-kubeconfig=x", "--profiling=false", "--kube-api-qps=100", "--logtostderr")
    notes = foreign_notes(args)
    assert [note.partition(" ")[0] for note in notes] == [
        "--authentication-kubeconfig",
        "--kube-api-qps",
        "--logtostderr",
        "--profiling",
    ]
    assert not foreign_notes(parsed())


@pytest.mark.parametrize(
    "flag", ["--client-ca-file=x", "--feature-gates=A=true", "--tls-min-version=VersionTLS13"]
)
def test_flags_that_would_be_missed_are_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match="is not there: "):
        foreign_notes(parsed(flag))


def test_the_configuration_in_effect_is_written(tmp_path: Path) -> None:
    out = tmp_path / "effective.yaml"
    flags = ["--leader-elect", "--leader-elect-lease-duration=20s", f"--write-config-to={out}"]
    assert main(["scheduler", *flags]) == 0
    config = parse_config(out.read_text(), source="", plugins=IN_TREE)
    assert config.leader_election.leader_elect
    assert config.leader_election.lease_duration_s == 20.0


def test_a_file_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scheduler", f"--write-config-to={tmp_path / 'no' / 'x'}"]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err


def test_every_version_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["--version"], ["scheduler", "--version"]):
        with pytest.raises(SystemExit):
            main(line)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


def test_a_taken_port_is_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        """
        {apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
         clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}
        """
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = [f"--kubeconfig={kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
        assert main(["scheduler", *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"gangsched: --secure-port: cannot listen on 127.0.0.1 port {port}: Address already in use;"
        " is another scheduler running? another port, or 0 for none"
    )


@pytest.mark.parametrize(("value", "limit"), [("", 0), ("5", 5), ("+7", 7), ("0", 0), ("-3", 0), ("many", 0)])
def test_the_volume_limit_comes_from_kube_schedulers_variable(value: str, limit: int) -> None:
    config = with_volume_limit(default_config(IN_TREE), {"KUBE_MAX_PD_VOLS": value})
    assert config.profiles[0].args["NodeVolumeLimits"].max_pd_volumes == limit
    noted = f"KUBE_MAX_PD_VOLS: {value!r} is not a whole number above 0, so it does not count"
    applied = f"KUBE_MAX_PD_VOLS={limit} sets maxPdVolumes of NodeVolumeLimits"
    assert config.notes == ((applied if limit else noted,) if value else ())


def test_a_profiles_own_volume_limit_goes_before_the_variable() -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: a, pluginConfig: [{name: NodeVolumeLimits, args: {maxPdVolumes: 3}}]}]"
    )
    config = with_volume_limit(parse_config(text, source="", plugins=IN_TREE), {"KUBE_MAX_PD_VOLS": "9"})
    assert config.profiles[0].args["NodeVolumeLimits"].max_pd_volumes == 3
