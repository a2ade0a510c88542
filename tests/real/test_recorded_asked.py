"""A short recording of a real kube-apiserver, asked afterwards: its traces, and what would have been."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gangsched.command.cli import main
from gangsched.journal.segments import segments_in
from gangsched.lab.controlplane.jaeger import Jaeger
from gangsched.telemetry import names
from tests.real.cluster import Cluster
from tests.real.traced import Tree, events, tag

pytestmark = pytest.mark.real


class Recording(NamedTuple):
    """The journal's directory, and between which times it was made, in seconds since 1970."""

    directory: Path
    from_s: float
    to_s: float


@pytest.fixture
def recording(cluster: Cluster) -> Recording:
    """Two nodes: `first` runs on both of them, `second` gets one when it is gone, `large` never runs."""
    from_s, directory = time.time(), cluster.directory / "journal"
    cluster.nodes(2, gpus=8)
    scheduler = cluster.schedule(record={"directory": str(directory)})
    cluster.gang("first", pods=2, gpus=8)
    cluster.whole("first")
    cluster.gang("second", pods=1, gpus=8)
    cluster.gang("large", pods=3, gpus=8)
    cluster.held("second", says="Insufficient")
    cluster.held("large", says="Insufficient")
    cluster.delete(*(pod["metadata"]["name"] for pod in cluster.members("first")))
    cluster.whole("second")
    scheduler.stop_cleanly()
    return Recording(directory, from_s, time.time())


def test_a_replays_traces_are_in_jaeger_with_the_times_of_the_journal(
    cluster: Cluster, jaeger: Jaeger, recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(recording.directory), "--trace-endpoint", jaeger.endpoint]) == 0
    assert "3 traces, " in capsys.readouterr().out
    (segment,) = segments_in(recording.directory)
    found: list[Tree] = []

    def is_there() -> bool:
        """A Jaeger is shared by tests; of this journal it has what this process' name is on."""
        told = jaeger.traces(
            service=names.SERVICE, limit="100", tags=json.dumps({names.GROUP: "default/second"})
        )
        trees = [tree for one in told if segment.process in instances(tree := Tree(one))]
        found[:] = [tree for tree in trees if tree.named(names.BIND)]
        return bool(found)

    cluster.eventually(is_there, "the replayed trace of default/second is in Jaeger")
    (tree,) = found
    assert not tree.orphans()
    (process,) = tree.processes.values()
    assert {one["key"]: one["value"] for one in process["tags"]}["gangsched.replayed"] is True
    for span in tree.spans.values():
        began_s = span["startTime"] / 1e6
        assert recording.from_s <= began_s <= began_s + span["duration"] / 1e6 <= recording.to_s
    (root,), (bind,) = tree.named(names.GANG), tree.named(names.BIND)
    assert tag(root, names.VERDICT) == names.SCHEDULED
    assert int(root["duration"]) > 0
    (bound,) = [one for one in events(bind) if one["event"] == "bound"]
    (pod,) = cluster.members("second")
    assert (bound[names.POD_UID], bound[names.NODE_NAME]) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])


def instances(tree: Tree) -> list[str]:
    tags = [one for process in tree.processes.values() for one in process["tags"]]
    return [one["value"] for one in tags if one["key"] == "service.instance.id"]


def test_what_would_have_been_is_asked_of_a_real_recording(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours: dict[str, Any] = {"apiVersion": "gangsched.io/v1", "kind": "GangschedConfiguration"}
    config = tmp_path / "other.yaml"
    config.write_text(
        yaml.safe_dump_all(
            [
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "profiles": [{"schedulerName": "gangsched"}],
                },
                {**ours, "packing": {"weight": 5}},
            ]
        )
    )

    def asked(*flags: str) -> str:
        code = main(["counterfactual", str(recording.directory), "--seeds", "1", *flags])
        said = capsys.readouterr()
        assert code == 0, said.err
        assert "mean wait" in said.out
        assert "What this cannot know" in said.out
        return said.out

    started = column(asked("--nodes", "+4", "--like", "n0"), "started")
    assert started == ["2", "2", "3", "+1 (+1..+1)"]
    without = asked("--without", "default/first")
    assert column(without, "started") == ["1", "1", "1", "0 (0..0)"]
    assert "default/first" not in without.partition("The largest differences")[2].partition("What this")[0]
    assert column(asked("--config", str(config)), "started")[:3] == ["2", "2", "2"]

    assert main(["counterfactual", str(recording.directory), "--nodes", "+2", "--like", "n9"]) == 2
    assert "n9: no node of this name is in the recording" in capsys.readouterr().err


def column(out: str, figure: str) -> list[str]:
    """A row of the first table, cell by cell."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{figure}  ")]
    return [cell.strip() for cell in line.removeprefix(figure).split("  ") if cell.strip()]
