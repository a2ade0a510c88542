"""A journal that is begun, bounded and ended while the scheduler runs, as a reload asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gangsched.command.cli import main
from gangsched.config import SchedulerConfig, default_config
from gangsched.config.recording import RecordSettings
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.journal.records import End, Record, Start, State
from gangsched.journal.segments import Reader, segments_in
from gangsched.journal.state import Given
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.process.loop import Decider
from gangsched.process.recording import Recorded, Recording
from tests.journal.kept import key_in, replayed
from tests.support.inside import Inside
from tests.support.processes import until

CONFIG = default_config(IN_TREE)


def new_core(config: SchedulerConfig = CONFIG, **given: object) -> Scheduler:
    return Scheduler(build_profiles(config), config.settings, wall_ahead_s=0.0, **given)  # type: ignore[arg-type]


def recording_to(directory: Path | str, max_bytes: int = 10**8) -> SchedulerConfig:
    return replace(CONFIG, record=RecordSettings(str(directory), max_bytes, 3600.0))


class Life:
    """A core that is told something now and then, and the recording of it."""

    def __init__(self, config: SchedulerConfig = CONFIG) -> None:
        def build(of: SchedulerConfig) -> object:
            return lambda given: new_core(of, **Given._asdict(given))

        self.core = Recorded(new_core(), build, leading=True, known=None)  # type: ignore[arg-type]
        self.recording = Recording(config.record)
        self.decider: Decider = self.recording.begin(self.core, config)
        self._now_s = 1.0
        nodes = [ev.NodeAdded(make_node(f"n{n}", gpus=8)) for n in range(4)]
        self.decider.handle([*nodes, *map(ev.KindSynced, self.core.scheduler.kinds)], self._now_s)

    def pods(self, *names: str) -> None:
        """They come, lone, and are placed by chance."""
        for name in names:
            self._now_s += 1.0
            pod = make_pod(name, gpus=1)
            pod = replace(pod, spec=replace(pod.spec, scheduler_name="gangsched"))
            self.decider.handle([ev.PodAdded(pod)], self._now_s)
            group = self.decider.pop()
            assert group is not None
            assert self.decider.schedule(group, self._now_s)

    async def reload(self, config: SchedulerConfig) -> None:
        await self.recording.prepare(config.record)
        self.decider = self.recording.change(self.core, config)

    def begun(self) -> None:
        until(lambda: self.recording.counted and self.recording.counted.goes_on, "it has begun")

    def end(self) -> None:
        self.recording.stop()
        self.recording.close(60.0)


def records_in(directory: Path) -> list[list[Record]]:
    return [list(Reader(one.path)) for one in segments_in(directory)]


async def test_a_journal_that_a_reload_begins_has_a_state_and_replays(tmp_path: Path) -> None:
    life = Life()
    assert life.recording.counted is None
    life.pods("quokka", "wombat")
    await life.reload(recording_to(tmp_path))
    life.pods("numbat", "dingo")
    life.begun()
    life.end()
    ((start, state, *rest),) = records_in(tmp_path)
    assert isinstance(start, Start)
    assert (start.n_before, start.gap) == (0, "")
    assert isinstance(state, State)
    replay = replayed([start, state, *rest])
    assert (replay.played.n_turns, replay.played.n_bound) == (4, 2)
    names = {info.pod.metadata.name for info in Inside(replay.scheduler).pod_infos().values()}
    assert names == {"quokka", "wombat", "numbat", "dingo"}

    other = str(tmp_path / "other")
    assert main(["anonymise", str(tmp_path), other, "--key", key_in(tmp_path)]) == 0
    assert main(["replay", other]) == 0
    written = repr(records_in(Path(other)))
    assert not [name for name in names if name in written], "those of the state have other names too"


async def test_one_that_a_reload_ends_has_an_end_and_nothing_after_it(tmp_path: Path) -> None:
    life = Life(recording_to(tmp_path))
    life.pods("a")
    await life.reload(CONFIG)
    assert life.decider is life.core.scheduler
    assert life.recording.counted is None
    life.pods("b")
    life.end()
    (records,) = records_in(tmp_path)
    assert isinstance(end := records[-1], End)
    assert end.why == "the configuration no longer asks for it"
    assert replayed(records).played.n_bound == 1


async def test_another_directory_ends_one_journal_and_begins_the_other(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    life = Life(recording_to(first))
    life.pods("a")
    await life.reload(recording_to(second))
    life.pods("b")
    life.begun()
    await life.reload(recording_to(first))
    life.pods("c")
    life.begun()
    life.end()
    found = [*records_in(first), *records_in(second)]
    assert [replayed(records).played.n_bound for records in found] == [1, 1, 1]
    assert len({one.process for one in segments_in(first)}) == 2


async def test_other_bounds_hold_for_the_same_journal(tmp_path: Path) -> None:
    life = Life(recording_to(tmp_path))
    before = life.decider
    await life.reload(recording_to(tmp_path, 1000))
    assert life.decider is before
    (journal,) = life.recording._journals
    assert journal._settings.max_bytes == 1000
    life.end()


async def test_a_directory_that_cannot_be_written_to_is_refused_and_the_old_journal_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    life = Life(recording_to(tmp_path / "journal"))
    with pytest.raises(
        ConfigError, match=r"file/x: record\.directory: cannot be written to: Not a directory"
    ):
        await life.recording.prepare(RecordSettings(str(tmp_path / "file" / "x")))
    life.pods("a")
    life.end()
    ((*records, end),) = records_in(tmp_path / "journal")
    assert end == End(end.now_s, "the scheduler stopped")  # type: ignore[union-attr]
    assert replayed(records).played.n_bound == 1


async def test_a_reload_that_comes_to_nothing_leaves_no_file(tmp_path: Path) -> None:
    life = Life()
    await life.recording.prepare(RecordSettings(str(tmp_path)))
    await life.recording.prepare(RecordSettings())
    life.end()
    assert not list(tmp_path.iterdir())
