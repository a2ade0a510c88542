"""`gangsched check-config`: what a file comes to, as text and as data; a mistake is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangsched.command.cli import main
from gangsched.config import parse_config
from gangsched.plugins import IN_TREE

FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true}
percentageOfNodesToScore: 30
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  plugins:
    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 10}, {name: NodeAffinity}]}
  pluginConfig:
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu}]}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scheduler.yaml"
    path.write_text(FILE)
    return path


def test_as_text(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "note: percentageOfNodesToScore 30: all nodes are always scored; earlyStop has it count" in lines
    packing = lines[lines.index("profile packing") :]
    assert [line.split() for line in packing if line.startswith("  score ")] == [
        ["score", "NodeResourcesFit", "(10),", "NodeAffinity", "(1)"]
    ]
    assert (
        '  args of NodeResourcesFit: {"scoringStrategy":{"type":"MostAllocated","resources":'
        '[{"name":"cpu","weight":1}]}}' in packing
    )


def test_an_empty_name_of_a_file_is_not_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", ""]) == 2
    assert capsys.readouterr() == ("", "gangsched: FILE: names no file\n")


def test_forbidden_eviction_is_reported_with_its_consequence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = "apiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n"
    for allowed, n_notes in (("true", 0), ("false", 1)):
        file.write_text(f"{FILE}---\n{ours}allowEviction: {allowed}\n")
        assert main(["check-config", str(file)]) == 0
        found = [line for line in capsys.readouterr().out.splitlines() if "allowEviction" in line]
        notes = [line for line in found if line.startswith("note: allowEviction: false: a gang ")]
        assert len(notes) == n_notes


QUEUES = """---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
queueing: {}
fairness: {halfLife: 12h, compare: [nvidia.com/gpu, memory], reclaim: fair}
queues:
- name: research
  share: 2
  guaranteed: {nvidia.com/gpu: 64, cpu: 1500m}
  limit: {nvidia.com/gpu: 128, memory: 1Ti}
  queues:
  - name: nlp
    guaranteed: {nvidia.com/gpu: 32}
    order: shortest
    defaultWalltime: 24h
    namespaces: [nlp, 'nlp-*']
  - {name: cv, namespaces: [cv], bound: 9}
- {name: rest, namespaces: ['*']}
"""


def test_the_tree_of_queues(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE + QUEUES)
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("queues"))
    assert lines[first : first + 5] == [
        "queues: shares by nvidia.com/gpu, memory; half of past use forgotten in 12h;"
        " taken back: what is guaranteed, and fair shares",
        "  research: share 2; guaranteed nvidia.com/gpu 64, cpu 1500m;"
        " limit nvidia.com/gpu 128, memory 1024Gi",
        "    nlp: share 1; guaranteed nvidia.com/gpu 32; namespaces nlp, nlp-*; order shortest;"
        " walltime 24h where none is stated",
        "    cv: share 1; namespaces cv; bound 9",
        "  rest: share 1; namespaces *",
    ]
    file.write_text(FILE)
    assert main(["check-config", str(file)]) == 0
    assert "queues:" not in capsys.readouterr().out


EXTENDERS = """
extenders:
- {urlPrefix: 'http://e:1/', filterVerb: f, prioritizeVerb: p, weight: 5, httpTimeout: 1s, ignorable: true,
   managedResources: [{name: example.com/a, ignoredByScheduler: true}]}
- {urlPrefix: 'https://f', bindVerb: b, tlsConfig: {insecure: true}}
"""


def test_extenders(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE + EXTENDERS)
    assert main(["check-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "extender http://e:1: filter, prioritize (5); for example.com/a; 1 s, then left out" in lines
    assert "extender https://f: bind; for every pod; 5 s, then its pods wait" in lines
    assert any(
        line.startswith('  args of NodeResourcesFit: {"ignoredResources":["example.com/a"]') for line in lines
    )
    assert main(["check-config", str(file), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    again = parse_config(json.dumps(found["effective"][0]), source="", plugins=IN_TREE)
    assert [one.url for one in again.extenders] == ["http://e:1", "https://f"]
    assert again.extenders[1].tls is not None
    assert not again.extenders[1].tls.verify


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_as_data(output: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(file), "-o", output]) == 0
    out = capsys.readouterr().out
    found = json.loads(out) if output == "json" else yaml.safe_load(out)
    assert [one["schedulerName"] for one in found["profiles"]] == ["default-scheduler", "packing"]
    scores = [{"name": "NodeResourcesFit", "weight": 10}, {"name": "NodeAffinity", "weight": 1}]
    assert found["profiles"][1]["plugins"]["score"] == scores
    assert found["notes"] == [
        "percentageOfNodesToScore 30: all nodes are always scored; earlyStop has it count"
    ]
    again = parse_config(json.dumps(found["effective"][0]), source="", plugins=IN_TREE)
    assert again.profiles == parse_config(FILE, source="", plugins=IN_TREE).profiles


def test_a_mistake(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace("name: NodeAffinity}", "name: NodeAfinity}"))
    assert main(["check-config", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"gangsched: {file}: profiles[1].plugins.score.enabled[1].name: "
        "unknown plugin 'NodeAfinity'; did you mean NodeAffinity?\n"
    )


def test_the_carrier_of_ids_is_shown_and_an_unknown_one_refused(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parents[1] / "config" / "device-labels.yaml"
    assert main(["check-config", str(sample)]) == 0
    assert "note: devices.allocationIn: labels: needs Kubernetes 1.35" in capsys.readouterr().out
    assert main(["check-config", str(sample), "-o", "yaml"]) == 0
    effective = yaml.safe_load(capsys.readouterr().out)["effective"]
    assert effective[1]["devices"]["allocationIn"] == "labels"
    ours = "---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\ndevices: {%s}\n"
    file.write_text(FILE + ours % "allocationIn: label")
    assert main(["check-config", str(file)]) != 0
    said = capsys.readouterr().err
    assert "devices.allocationIn: " in said
    assert "labels" in said
    file.write_text(FILE + ours % "alocationIn: labels")
    assert main(["check-config", str(file)]) != 0
    assert "allocationIn" in capsys.readouterr().err


def test_what_a_file_says_is_printed_without_control_characters(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a terminal, line feeds that would make lines of their own, and marks that turn what follows."""
    hostile = 'schedulerName: "a\\nprofile b\\e[2J\\u202e\\x9b"'
    file.write_text(FILE.replace("schedulerName: packing", hostile))
    assert main(["check-config", str(file)]) == 0
    out = capsys.readouterr().out
    assert r"profile a\x0aprofile b\x1b[2J\x202e\x9b" in out.splitlines()
    file.write_text(FILE + '"foo\\nbar\\e[2J": 1\n')
    assert main(["check-config", str(file)]) == 2
    assert capsys.readouterr().err == f"gangsched: {file}: foo\\x0abar\\x1b[2J: unknown field\n"


def test_a_reader_that_has_seen_enough_is_no_mistake(file: Path) -> None:
    """`gangsched check-config FILE | head`: no traceback, and the exit code of a program that got SIGPIPE."""
    seen, written = os.pipe()
    os.close(seen)
    try:
        command = [sys.executable, "-m", "gangsched.command.cli", "check-config", str(file)]
        done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(written)
    assert done.stderr == ""
    assert done.returncode == 141


def test_what_the_environment_sets_is_shown_as_the_scheduler_would_have_it(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", "3")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://jaeger:4318")
    assert main(["check-config", str(file), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    text = json.dumps(shown)
    assert '"maxPdVolumes": 3' in text
    assert '"maxPdVolumes": 0' not in text
    assert "http://jaeger:4318/v1/traces" in text
    assert "KUBE_MAX_PD_VOLS=3 sets maxPdVolumes of NodeVolumeLimits" in shown["notes"]
