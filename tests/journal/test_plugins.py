"""Plugins of users in a journal: what stopped them is in it, their files are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.errors import ConfigError
from gangsched.extension.budget import _OverBudgetError
from gangsched.extension.loading import KnownPlugins
from gangsched.journal import records
from gangsched.journal.recorder import Recorder
from gangsched.journal.records import Reconfigured, Start, Turn
from gangsched.journal.replay.replaying import Divergence, Replay
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.plugins import build_profiles
from tests.journal.kept import Kept
from tests.support.inside import Inside

PLUGIN = """
from gangsched.plugin import SUCCESS, Status

CALLS = [0]
STOPS = [None]


class Slow:
    name = "Slow"

    def pre_filter(self, state, template, view):
        CALLS[0] += 1
        if STOPS[0] is not None and CALLS[0] == 2:
            raise STOPS[0]  # as the timer does in the middle of its work
        return SUCCESS
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangsched
  plugins: {preFilter: {enabled: [{name: Slow}]}}
"""


def record(file: Path) -> Kept:
    """Three pods; the plugin takes too long for the second one."""
    known = KnownPlugins([str(file)])
    config = parse_config(CONFIG, source="", plugins=known)
    kept = Kept()
    recorder = Recorder(kept, first_of, known)
    scheduler = Scheduler(
        build_profiles(config, known.factories), config.settings, pick=recorder.picks, wall_ahead_s=0.0
    )
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    sys.modules["gangsched_plugin_slow"].STOPS[0] = _OverBudgetError
    recorder.handle([ev.NodeAdded(make_node("n0", gpus=8)), *map(ev.KindSynced, scheduler.kinds)], 1.0)
    for at, name in enumerate("abc"):
        pod = make_pod(name, gpus=at + 1)
        recorder.handle([ev.PodAdded(replace(pod, spec=replace(pod.spec, scheduler_name="gangsched")))], 2.0)
        group = recorder.pop()
        assert group is not None
        recorder.schedule(group, 2.0 + at)
        if name == "b":
            assert group.state is GroupState.BACKOFF or "took longer than" in group.message
            known.budget.turn_ended()
    sys.modules["gangsched_plugin_slow"].STOPS[0] = None
    return kept


def test_a_plugin_that_was_stopped_is_stopped_again_though_it_is_fast_now(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(PLUGIN)
    first, *others = record(file).records
    assert isinstance(first, Start)
    stopped = [one for one in others if isinstance(one, Turn) and one.stopped]
    assert len(stopped) == 1, others
    replay = Replay(first, plugin_files=[str(file)])
    for one in others:
        replay.play(one)
    messages = [group.message for group in Inside(replay.scheduler).groups()]
    assert sum("took longer than 1 s" in message for message in messages) == 1, messages


def test_without_that_verdict_another_decision_is_made(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(PLUGIN)
    first, *others = record(file).records
    assert isinstance(first, Start)
    replay = Replay(first, plugin_files=[str(file)])
    at = next(at for at, one in enumerate(others) if isinstance(one, Turn) and one.stopped)
    for one in others[:at]:
        replay.play(one)
    turn = others[at]
    assert isinstance(turn, Turn)
    with pytest.raises(Divergence, match="not those recorded"):
        replay.play(replace(turn, stopped=()))


GATE = """
from gangsched.plugin import SUCCESS

STOPS = [None]


class Slow:
    name = "Slow"

    def pre_enqueue(self, group):
        stop, STOPS[0] = STOPS[0], None
        if stop is not None:
            raise stop  # as the timer does in the middle of its work
        return SUCCESS
"""


def test_a_plugin_that_was_stopped_in_a_reload_is_stopped_again(tmp_path: Path) -> None:
    """The replay found another answer there, and said that the plugin looks at a clock."""
    file = tmp_path / "slow.py"
    file.write_text(GATE)
    known = KnownPlugins([str(file)])
    config = parse_config(CONFIG.replace("preFilter", "preEnqueue"), source="", plugins=known)
    kept = Kept()
    recorder = Recorder(kept, first_of, known)
    built = build_profiles(config, known.factories)
    scheduler = Scheduler(built, config.settings, pick=recorder.picks, wall_ahead_s=0.0)
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    recorder.handle([ev.NodeAdded(make_node("n0", gpus=8)), *map(ev.KindSynced, scheduler.kinds)], 1.0)
    pod = make_pod("a", gpus=16)
    recorder.handle([ev.PodAdded(replace(pod, spec=replace(pod.spec, scheduler_name="gangsched")))], 2.0)
    group = recorder.pop()
    assert group is not None
    recorder.schedule(group, 3.0)
    sys.modules["gangsched_plugin_slow"].STOPS[0] = _OverBudgetError
    recorder.reconfigure(build_profiles(config, known.factories), config, 4.0)
    assert sys.modules["gangsched_plugin_slow"].STOPS == [None]
    first, *others = kept.records
    assert isinstance(first, Start)
    replay = Replay(first, plugin_files=[str(file)])
    for one in others:
        replay.play(one)
    assert [one.stopped for one in others if isinstance(one, Reconfigured)] == [(1,)]
    (told,) = Inside(replay.scheduler).groups()
    assert (told.state, told.message) == (group.state, group.message)


def test_a_file_whose_path_is_no_text_costs_the_journal_and_not_the_scheduler(tmp_path: Path) -> None:
    """Its path is in the first record, and JSON has no form for such bytes."""
    folder = tmp_path / "\udcff"
    folder.mkdir()
    (folder / "slow.py").write_text(PLUGIN)
    kept = record(folder / "slow.py")
    assert kept.framed == []
    assert kept.lost.startswith("a record could not be written down: ")
    assert kept.n_skipped > 3


def test_a_record_that_no_reader_takes_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written, and whoever read it found that the file ends there."""
    monkeypatch.setattr(records, "MAX_RECORD", 10_000)
    file = tmp_path / "slow.py"
    file.write_text(PLUGIN)
    assert record(file).lost == ""
    monkeypatch.setattr(records, "MAX_RECORD", 1_000)
    kept = record(file)
    assert kept.lost.startswith("a record could not be written down: it has 0 MiB")
    with pytest.raises(ValueError, match="are read again"):
        records.framed(records.State(bytes(1_000)))


def test_a_plugin_that_is_not_here_is_named(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text(PLUGIN)
    first = record(file).records[0]
    assert isinstance(first, Start)
    with pytest.raises(ConfigError, match=r"recorded with the plugin Slow \(--plugin .*slow\.py\): give its"):
        Replay(first)
