"""The configuration is read again: taken over, or refused with its place while the old one stays."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from gangsched.config import SchedulerConfig, Settings, default_config
from gangsched.config.recording import RecordSettings
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.extension import reload as reload_module
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.reload import Reload, at_next_start
from gangsched.extension.source import ConfigSource, Stamp
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.effects import BindPod, Effect, RecordEvent
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.signals import early_signals
from tests.support.inside import Inside
from tests.support.tasks import until

KUBE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OURS = "---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n"
BASE = KUBE + "profiles:\n- schedulerName: gangsched\n" + OURS + "settleSeconds: {}\n"


class Host:
    """A process without anything but its core."""

    def __init__(self, source: ConfigSource) -> None:
        self.source = source
        self.config: SchedulerConfig = source.read()
        self.scheduler = Scheduler(self.build(self.config), self.config.settings)
        self.followed: list[str] = []
        self.n_all_emitted = self.n_woken = 0
        self.forbidden: set[str] = set()
        self.asked_s: list[float] = []

    def build(self, config: SchedulerConfig) -> dict[str, Profile]:
        return build_profiles(config, self.source.plugins.factories)

    def reconfigure(
        self, profiles: dict[str, Profile], config: SchedulerConfig
    ) -> tuple[Sequence[Effect], Sequence[str]]:
        self.config = config
        return self.scheduler.reconfigure(profiles, config.settings, time.monotonic())

    @property
    def in_effect(self) -> Settings:
        """The core's settings."""
        return self.scheduler.shared.settings

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The core's profiles."""
        return Inside(self.scheduler).profiles()

    def submit(self, effects: Sequence[Effect]) -> None:
        assert all(isinstance(effect, RecordEvent) for effect in effects)

    def follow(self, kinds: Sequence[str]) -> None:
        self.followed += kinds

    async def may_follow(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            if kind in self.forbidden:
                raise ConfigError(f"its plugins read {kind}, which the scheduler may not")

    async def may_record(self, settings: RecordSettings) -> None:
        if settings.directory == "/nowhere":
            raise ConfigError("cannot be written to", path="record.directory")

    def ask_metrics_server(self, period_s: float) -> None:
        self.asked_s.append(period_s)

    def wake(self) -> None:
        self.n_woken += 1

    def emit_all_pods(self) -> None:
        self.n_all_emitted += 1


class Scene:
    def __init__(self, path: Path, text: str, *, plugins: Sequence[Path] = ()) -> None:
        self.path = path
        path.write_text(text)
        self.host = Host(ConfigSource(str(path), KnownPlugins([str(plugin) for plugin in plugins])))
        self.reload = Reload(self.host.source, self.host)

    async def read(self, text: str) -> Scene:
        self.path.write_text(text)
        await self.reload.read("the test")
        return self


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "config.yaml", BASE.format(30))


async def test_what_is_right_takes_over(scene: Scene) -> None:
    await scene.read(BASE.format(7))
    assert scene.host.in_effect.settle_s == 7.0
    assert scene.host.config.settings.settle_s == 7.0
    assert (scene.reload.n_taken, scene.reload.n_refused, scene.reload.error) == (1, 0, "")


async def test_what_is_wrong_leaves_the_old_one_and_gives_the_place(scene: Scene) -> None:
    before = scene.host.config
    await scene.read(BASE.format(7).replace("settleSeconds", "settleSecond"))
    assert scene.host.config is before
    assert scene.host.in_effect.settle_s == 30.0
    assert "settleSecond: unknown field; did you mean settleSeconds?" in scene.reload.error
    assert str(scene.path) in scene.reload.error
    await scene.read(BASE.format(8))
    assert scene.reload.error == ""
    assert (scene.reload.n_taken, scene.reload.n_refused) == (1, 1)


async def test_a_pipe_in_the_place_of_the_file_holds_up_nobody(scene: Scene) -> None:
    scene.path.unlink()
    os.mkfifo(scene.path)
    await scene.reload.read("the test")
    assert "is not a regular file" in scene.reload.error
    assert str(scene.path) in scene.reload.error


async def test_the_loop_goes_on_while_the_file_is_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long one takes seconds."""
    gone_on, read = threading.Event(), scene.host.source.read

    def read_long(**more: Any) -> SchedulerConfig:
        assert gone_on.wait(10.0)
        return read(**more)

    monkeypatch.setattr(scene.host.source, "read", read_long)
    scene.path.write_text(BASE.format(7))
    async with anyio.create_task_group() as group:
        group.start_soon(scene.reload.read, "the test")
        await anyio.sleep(0.0)
        gone_on.set()
    assert scene.host.config.settings.settle_s == 7.0


async def test_a_mistake_of_ours_in_reading_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(config: SchedulerConfig) -> dict[str, Profile]:
        raise TypeError("unhashable")

    before = scene.host.config
    monkeypatch.setattr(scene.host, "build", broken)
    await scene.read(BASE.format(7))
    assert scene.host.config is before
    assert scene.reload.error.endswith("TypeError: unhashable")


async def test_reading_the_same_configuration_again_changes_nothing(scene: Scene) -> None:
    profiles = scene.host.profiles
    await scene.read(BASE.format(30) + "\n# a comment\n")
    assert scene.host.profiles is profiles
    assert scene.reload.n_taken == 0


async def test_a_profile_that_comes_or_goes_has_all_pods_emitted_again(scene: Scene) -> None:
    await scene.read(BASE.format(7))
    assert scene.host.n_all_emitted == 0
    await scene.read(KUBE + "profiles: [{schedulerName: gangsched}, {schedulerName: other}]\n")
    assert scene.host.n_all_emitted == 1
    assert set(scene.host.profiles) == {"gangsched", "other"}


def with_own(folder: Path, code: str) -> Scene:
    """The plugin Own is known, and not enabled."""
    plugin = folder / "own.py"
    plugin.write_text(code)
    return Scene(folder / "config.yaml", BASE.format(30), plugins=[plugin])


async def test_a_plugin_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    scene = with_own(
        tmp_path,
        "class Own:\n    name = 'Own'\n    def __init__(self): raise RuntimeError('no licence')\n"
        "    def pre_enqueue(self, pod): ...\n",
    )
    await scene.read(KUBE + "profiles: [{plugins: {multiPoint: {enabled: [{name: Own}]}}}]\n")
    assert "plugin Own could not be made" in scene.reload.error
    assert list(scene.host.profiles) == ["gangsched"]


READS_WIDGETS = (
    "from gangsched.plugin import SUCCESS\nclass Own:\n    name = 'Own'\n"
    "    watches = ('widgets.example.com',)\n    def pre_enqueue(self, pod): return SUCCESS\n"
)
OWN_ENABLED = (
    KUBE + "profiles: [{schedulerName: gangsched, plugins: {multiPoint: {enabled: [{name: Own}]}}}]\n"
)


async def test_kinds_that_a_new_plugin_reads_are_followed_before_anything_is_decided(tmp_path: Path) -> None:
    scene = with_own(tmp_path, READS_WIDGETS)
    await scene.read(OWN_ENABLED)
    assert scene.host.followed == ["widgets.example.com"]
    assert not scene.host.scheduler.is_synced


async def test_a_plugin_that_reads_what_we_may_not_is_refused(tmp_path: Path) -> None:
    """Else nothing would be decided until somebody gave the right."""
    scene = with_own(tmp_path, READS_WIDGETS)
    host, reload = scene.host, scene.reload
    before, host.forbidden = host.profiles, {"widgets.example.com"}
    await scene.read(OWN_ENABLED)
    assert reload.error == "its plugins read widgets.example.com, which the scheduler may not"
    assert host.profiles is before
    assert not host.followed
    host.forbidden.clear()
    await reload.read("the test")
    assert host.followed == ["widgets.example.com"]


async def test_metrics_server_is_asked_as_the_plugins_want_it(scene: Scene) -> None:
    load = "plugins: {score: {enabled: [{name: LoadAware}]}}, pluginConfig: [{name: LoadAware, args: {%s}}]"
    for args in ("metricsServerSeconds: 15", "metricsServerSeconds: 5", ""):
        await scene.read(KUBE + f"profiles: [{{schedulerName: gangsched, {load % args}}}]\n")
    await scene.read(BASE.format(30))
    assert scene.host.asked_s == [15.0, 5.0, 0.0, 0.0]


async def test_extenders_stay_those_of_the_start_and_so_do_the_resources_that_they_count(
    tmp_path: Path,
) -> None:
    def extender(resource: str) -> str:
        managed = f"[{{name: {resource}, ignoredByScheduler: true}}]"
        return f"extenders: [{{urlPrefix: 'http://e', filterVerb: f, managedResources: {managed}}}]\n"

    scene = Scene(tmp_path / "config.yaml", KUBE + extender("a.io/old") + OURS)
    with capture_logs() as lines:
        await scene.read(KUBE + extender("b.io/new") + OURS + "settleSeconds: 7\n")
    config = scene.host.config
    assert config.settings.settle_s == 7.0
    assert [one.name for each in config.extenders for one in each.managed] == ["a.io/old"]
    [profile] = config.profiles
    assert profile.args["NodeResourcesFit"].ignored_resources == ("a.io/old",)
    [late] = [line for line in lines if line["event"] == "these take effect only at the next start"]
    assert late["fields"] == "extenders"
    assert scene.reload.n_taken == scene.host.n_woken == 1


def test_what_only_a_start_can_bring_is_named_and_stays_what_it_was() -> None:
    now = default_config(IN_TREE)
    settings = Settings(parallelism=3, settle_s=5.0, reporting_controller="another")
    import msgspec

    new = msgspec.structs.replace(
        now,
        settings=settings,
        leader_election=msgspec.structs.replace(now.leader_election, leader_elect=True),
    )
    merged, later = at_next_start(now, new)
    assert later == ["leaderElection", "parallelism", "reportingController"]
    assert merged.settings == Settings(settle_s=5.0)
    assert merged.leader_election == now.leader_election


@asynccontextmanager
async def running(scene: Scene, *, on_signals: bool) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: scene.reload.run(on_signals=on_signals))
        await anyio.sleep(0.05)
        yield
        group.cancel_scope.cancel()


async def test_sighup_and_a_changed_file_and_a_swapped_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kubelet mounts a ConfigMap: file -> ..data -> a directory, and ..data is swapped."""
    monkeypatch.setattr(reload_module, "LOOK_S", 0.02)
    first, second = tmp_path / "..1", tmp_path / "..2"
    first.mkdir()
    second.mkdir()
    (first / "config.yaml").write_text(BASE.format(30))
    (second / "config.yaml").write_text(BASE.format(9))
    (tmp_path / "..data").symlink_to(first)
    (tmp_path / "config.yaml").symlink_to(Path("..data") / "config.yaml")
    host = Host(ConfigSource(str(tmp_path / "config.yaml"), KnownPlugins()))
    scene = Scene.__new__(Scene)
    scene.path, scene.host, scene.reload = tmp_path / "config.yaml", host, Reload(host.source, host)
    async with running(scene, on_signals=True):
        (tmp_path / "..data_tmp").symlink_to(second)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await until(lambda: scene.reload.n_taken == 1)
        assert host.config.settings.settle_s == 9.0
        (second / "config.yaml").write_text(BASE.format(10))
        await until(lambda: scene.reload.n_taken == 2)
        assert host.config.settings.settle_s == 10.0
        monkeypatch.setattr(reload_module, "LOOK_S", 3600.0)
        await anyio.sleep(0.1)
        (second / "config.yaml").write_text(BASE.format(11))
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: scene.reload.n_taken == 3)
        assert host.config.settings.settle_s == 11.0


async def test_a_file_that_is_changed_while_the_scheduler_starts_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server may be away for long, or a credential plugin ask somebody."""
    monkeypatch.setattr(reload_module, "LOOK_S", 0.02)
    scene.path.write_text(BASE.format(9))
    async with running(scene, on_signals=False):
        await until(lambda: scene.reload.n_taken == 1)
    assert scene.host.config.settings.settle_s == 9.0


async def test_a_signal_that_comes_before_it_listens_is_remembered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may have been read before, and changed since."""
    monkeypatch.setattr(reload_module, "LOOK_S", 3600.0)
    with early_signals(reloads=True):
        scene.path.write_text(BASE.format(9))
        os.kill(os.getpid(), signal.SIGHUP)
        async with running(scene, on_signals=True):
            await until(lambda: scene.reload.n_taken == 1)
    assert scene.host.config.settings.settle_s == 9.0


OTHER = BASE.replace("schedulerName: gangsched", "schedulerName: other")


def binding(host: Host) -> BindPod:
    """A pod of the profile gangsched whose bind is on its way."""
    told: list[ev.Event] = [ev.NodeAdded(make_node("n0")), ev.PodAdded(make_pod("p"))]
    told += [ev.KindMissing(kind) for kind in host.scheduler.kinds]
    now_s = time.monotonic()
    effects = [*host.scheduler.handle(told, now_s), *(host.scheduler.schedule_next(now_s) or ())]
    [bind] = [effect for effect in effects if isinstance(effect, BindPod)]
    return bind


async def test_a_profile_that_still_binds_holds_up_no_configuration_and_goes_after_that(scene: Scene) -> None:
    host, bind = scene.host, binding(scene.host)
    async with anyio.create_task_group() as group:
        group.start_soon(scene.read, OTHER.format(9))
        await until(lambda: host.config.settings.settle_s == 9)
        assert host.scheduler.is_retiring
        assert {*host.profiles} == {"other", "gangsched"}
        pod = make_pod("p")
        pod = replace(
            pod,
            spec=replace(pod.spec, node_name=bind.node),
            metadata=replace(pod.metadata, resource_version="999"),
        )
        host.scheduler.handle(
            [ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(pod)], time.monotonic()
        )
    assert not host.scheduler.is_retiring
    assert {*host.profiles} == {"other"}
    assert scene.reload.counted == (1, 0, True)


async def test_another_change_of_the_file_does_not_wait_for_a_profile_that_still_binds(scene: Scene) -> None:
    host = scene.host
    binding(host)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(scene.reload.run, on_signals=False))
        await anyio.wait_all_tasks_blocked()
        scene.path.write_text(OTHER.format(9))
        await until(lambda: host.scheduler.is_retiring)
        scene.path.write_text(BASE.format(10))
        await until(lambda: host.config.settings.settle_s == 10)
        assert not host.scheduler.is_retiring, "its profile is back"
        group.cancel_scope.cancel()


async def test_a_file_of_which_half_is_written_is_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first document alone is a configuration too: one without queues, and with other settings."""
    monkeypatch.setattr(reload_module, "LOOK_S", 0.01)
    whole = scene.host.source.stamp()
    assert whole is not None
    half, other = (whole[0], 1, 1, 1), (whole[0], 1, 2, 2)
    seen = iter((whole, whole, half, other, other))
    looked = 0

    def stamp() -> Stamp | None:
        nonlocal looked
        looked += 1
        now = next(seen, other)
        scene.path.write_text(KUBE if now == half else BASE.format(9))
        return now

    monkeypatch.setattr(scene.host.source, "stamp", stamp)
    async with running(scene, on_signals=False):
        await until(lambda: looked > 12)
    assert scene.reload.counted == (1, 0, True)
    assert scene.host.config.settings.settle_s == 9
