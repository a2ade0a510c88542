"""`gangsched anonymise` of a journal in which plugins of users decide: their files are no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gangsched.command.cli import main
from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.extension.loading import KnownPlugins
from gangsched.journal.recorder import Recorder
from gangsched.journal.records import Start
from gangsched.journal.segments import Reader, segments_in
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.plugins import build_profiles
from tests.journal.kept import Kept, key_in

PLUGIN = """
import msgspec
from gangsched.plugin import SUCCESS, Status


class Args(msgspec.Struct):
    refused: str = "walrus"


class Doorkeeper:
    name = "Doorkeeper"
    Args = Args

    def __init__(self, args):
        self.refused = args.refused

    def pre_filter(self, state, template, view):
        if template.pod.metadata.namespace.startswith(self.refused):
            return Status.unschedulable(f"{self.refused} has to stay outside")
        return SUCCESS
"""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangsched
  plugins: {preFilter: {enabled: [{name: Doorkeeper}]}}
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "secretive_folder" / "doorkeeper.py"
    path.parent.mkdir()
    path.write_text(PLUGIN)
    return path


def recorded(directory: Path, plugin: Path, args: str = "") -> Path:
    """Three pods in namespaces of theirs; the plugin refuses one of them."""
    known = KnownPlugins([str(plugin)])
    config = parse_config(CONFIG + args, source="", plugins=known)
    kept = Kept()
    recorder = Recorder(kept, first_of, known)
    scheduler = Scheduler(
        build_profiles(config, known.factories), config.settings, pick=recorder.picks, wall_ahead_s=0.0
    )
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    recorder.handle([ev.NodeAdded(make_node("n0", gpus=8)), *map(ev.KindSynced, scheduler.kinds)], 1.0)
    for name in ("bluewhale", "walrus", "penguin"):
        pod = make_pod("main", namespace=name, uid=name, gpus=1)
        recorder.handle([ev.PodAdded(replace(pod, spec=replace(pod.spec, scheduler_name="gangsched")))], 2.0)
        group = recorder.pop()
        assert group is not None
        recorder.schedule(group, 2.0)
        known.budget.turn_ended()
    recorder.end("the scheduler stopped", 3.0)
    directory.mkdir()
    kept.write_to(directory)
    return directory


def test_it_replays_with_the_plugins_file_and_says_that_this_is_needed(
    tmp_path: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words of the file are those that it looks for, so they stay."""
    day, out = recorded(tmp_path / "day", plugin), tmp_path / "out"
    key = key_in(tmp_path)
    assert main(["anonymise", str(day), str(out), "--key", key, "--plugin", str(plugin)]) == 0
    told = capsys.readouterr().out
    assert "Plugins of yours decide in it: Doorkeeper. They are not in it" in told
    (segment,) = segments_in(out)
    start = next(iter(Reader(segment.path)))
    assert isinstance(start, Start)
    assert start.plugins == {"Doorkeeper": "a file, whose name is left out"}
    everything = "".join(map(str, Reader(segment.path)))
    assert "walrus" in everything
    assert not [word for word in ("bluewhale", "penguin", "secretive") if word in everything]
    assert main(["replay", str(out), "--plugin", str(plugin)]) == 0
    assert (
        "2 of them binds, all as recorded\n  It ends there: the scheduler stopped." in capsys.readouterr().out
    )


@pytest.mark.parametrize("command", ["replay", "anonymise", "counterfactual"])
def test_without_the_file_it_is_asked_for(
    tmp_path: Path, plugin: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    day, out = recorded(tmp_path / "day", plugin), tmp_path / "out"
    more = {
        "replay": [],
        "anonymise": [str(out), "--key", key_in(tmp_path)],
        "counterfactual": ["--without", "penguin/main"],
    }
    assert main([command, str(day), *more[command]]) == 2
    said = f"recorded with the plugin Doorkeeper (--plugin {plugin}): give its file by --plugin, or install"
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_a_plugin_that_looks_at_a_part_of_a_name_is_reported(
    tmp_path: Path, plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its arguments the words are renamed as they are elsewhere; a part of a word is another word."""
    args = "  pluginConfig: [{name: Doorkeeper, args: {refused: penguin}}]\n"
    day, out = recorded(tmp_path / "day", plugin, args), tmp_path / "out"
    flags = ["--key", key_in(tmp_path), "--plugin", str(plugin)]
    assert main(["anonymise", str(day), str(out), *flags]) == 0
    capsys.readouterr()
    day = recorded(tmp_path / "other", plugin, args.replace("penguin", "peng"))
    assert main(["anonymise", str(day), str(tmp_path / "never"), *flags]) == 1
    told = capsys.readouterr().out
    assert "if it is not one of your plugins that looks at it (Doorkeeper), please report it." in told
    assert not (tmp_path / "never").exists()
