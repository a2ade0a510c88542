"""What /configz and --write-config-to say is a configuration that means the same when it is read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gangsched.config import SchedulerConfig, default_config, parse_config
from gangsched.config.effective import effective_documents, effective_yaml
from gangsched.plugins import IN_TREE

EVERYTHING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
leaderElection: {leaderElect: true, leaseDuration: 1m30s, renewDeadline: 7.5s, retryPeriod: 500ms}
profiles:
- schedulerName: one
  plugins:
    score: {disabled: [{name: TaintToleration}], enabled: [{name: NodeAffinity, weight: 5}]}
    filter: {enabled: [{name: NodePorts}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 5}]}}
- schedulerName: two
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
onPartialBind: unwind
settleSeconds: 12.5
topologyKey: rack
allowEviction: false
fence: true
reportingController: me
inferGangs: [Job, Kueue]
profiles: [{schedulerName: two, inferGangs: [], defaultWalltime: 90m}]
queueing: {bound: {groups: 12, mode: budget, idlePercent: 7}, defaultWalltime: 24h, onOverrun: yield}
"""


def again(config: SchedulerConfig) -> SchedulerConfig:
    read = parse_config(effective_yaml(config), source="again", plugins=IN_TREE)
    return msgspec.structs.replace(read, source=config.source, notes=config.notes)


def test_every_field_survives_a_round_trip() -> None:
    config = parse_config(EVERYTHING, source="", plugins=IN_TREE)
    assert again(config) == config


@pytest.mark.parametrize("age", ["10s", "87840h", "12.000000001s"])
def test_durations_are_written_as_they_are_read(age: str) -> None:
    ours = f"record: {{directory: /j, maxAge: {age}}}\ntracing: {{keep: {{slowerThan: 1us}}}}\n"
    config = parse_config(EVERYTHING + ours, source="", plugins=IN_TREE)
    assert again(config) == config


def test_evictions_for_the_walltime_survive_it_without_claims() -> None:
    text = EVERYTHING.replace("mode: budget, idlePercent: 7", "mode: shadow").replace("yield", "evict")
    config = parse_config(text, source="", plugins=IN_TREE)
    assert config.settings.queueing is not None
    assert config.settings.queueing.on_overrun == "evict"
    assert again(config) == config


@pytest.mark.parametrize("path", ["config/scheduler.yaml", ""])
def test_defaults_are_spelled_out(path: str) -> None:
    if path:
        text = (Path(__file__).parents[1] / path).read_text()
        config = parse_config(text, source=path, plugins=IN_TREE)
    else:
        config = default_config(IN_TREE)
    assert again(config) == config


def test_documents_are_named_as_the_files_are() -> None:
    kube, ours = effective_documents(default_config(IN_TREE))
    assert kube["kind"] == "KubeSchedulerConfiguration"
    assert kube["leaderElection"]["leaseDuration"] == "15s"
    assert ours["kind"] == "GangschedConfiguration"
