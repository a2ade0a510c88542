"""Another configuration takes over between two turns: who holds keeps it, who goes gives it back."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings, parse_config
from gangsched.config.devices import DeviceSettings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import explain
from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.core.framework.profile import Profile
from gangsched.lab.sim.objects import make_pod
from gangsched.lab.sim.world.volumes import HOST, LOCAL, WAITS, claim, local_volume
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import is_device_key
from gangsched.model.objects import ClaimVolume, ObjectMeta, Pod, Volume
from gangsched.model.storage import CLAIMS, CLASSES, VOLUMES, StorageClass
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.core.plugins import AsyncPermitter, Permitter, PreBinder, Reserver, with_plugins
from tests.support.scenario import Cluster, cluster, gang, with_annotations

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def profiles_of(text: str) -> dict[str, Profile]:
    config = parse_config(HEAD + textwrap.dedent(text), source="", plugins=IN_TREE)
    return build_profiles(config)


DEFAULT = "profiles: [{schedulerName: gangsched}]"


def reconfigured(c: Cluster, profiles: dict[str, Profile], settings: Settings | None = None) -> Cluster:
    """The configuration is in effect; further kinds that it watches are reported missing."""
    assert not c.scheduler.unfinished(profiles)
    return c.reconfigure(settings or c.settings, profiles).run()


def with_own(profiles: dict[str, Profile], **points: Any) -> dict[str, Profile]:
    return {name: Profile(name, replace(one.points, **points)) for name, one in profiles.items()}


def test_a_gang_that_waits_keeps_its_reservations_and_is_asked_about_again() -> None:
    diary: list[str] = []
    waits = Permitter("Approval", lambda group: Status.wait("nobody has approved it"))
    c = with_plugins(waits, Reserver("R", diary)).submit(gang("a", pods=2)).run()
    held = {info.uid: info.node_name for info in c.group("a").members.values()}
    still = with_own(
        profiles_of(DEFAULT), permits=(Permitter("Other", lambda group: Status.wait("for the other")),)
    )
    reconfigured(c, still)
    assert c.state("a") == "waiting"
    assert {info.uid: info.node_name for info in c.group("a").members.values()} == held
    assert diary == ["R reserves a-0,a-1"]
    assert "for the other" in c.said("a-0")
    reconfigured(c, profiles_of(DEFAULT))
    assert c.placed("a")


def test_plugins_that_are_gone_turn_nobody_away_any_more() -> None:
    c = cluster(nodes=1)
    c.node(replace(c.nodes["n0"], spec=replace(c.nodes["n0"].spec, unschedulable=True)))
    c.submit(make_pod("p")).run()
    assert c.state("p") == "unschedulable"
    off = "plugins: {multiPoint: {disabled: [{name: NodeUnschedulable}, {name: TaintToleration}]}}"
    reconfigured(c, profiles_of(f"profiles: [{{schedulerName: gangsched, {off}}}]")).wait(2.0)
    assert c.pod("p").spec.node_name == "n0"


def test_weights_of_the_new_configuration_decide_from_then_on() -> None:
    c = cluster(nodes=2)
    text = """
    profiles:
    - schedulerName: gangsched
      pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 1}]}}
      plugins: {score: {enabled: [{name: NodeResourcesFit, weight: 100}], disabled: [{name: "*"}]}}
    """
    c.submit(make_pod("a", gpus=1)).run()
    first = c.pod("a").spec.node_name
    reconfigured(c, profiles_of(text)).submit(make_pod("b", gpus=1)).run()
    assert c.pod("b").spec.node_name == first


def test_a_profile_that_comes_brings_its_pods() -> None:
    c = cluster()
    other = replace(make_pod("p"), spec=replace(make_pod("p").spec, scheduler_name="other"))
    c.submit(other).run()
    assert not c.pod("p").spec.node_name
    both = profiles_of("profiles: [{schedulerName: gangsched}, {schedulerName: other}]")
    reconfigured(c, both)
    c.tell(ev.PodUpdated(c.pod("p"))).run()  # as the reflector tells all pods again
    assert c.pod("p").spec.node_name


def test_a_gang_of_a_profile_that_comes_is_known_with_those_of_it_that_run() -> None:
    c = cluster()
    pods = [replace(p, spec=replace(p.spec, scheduler_name="other")) for p in gang("a", pods=2)]
    pods[0] = replace(pods[0], spec=replace(pods[0].spec, node_name="n3"))
    c.submit(pods).run()
    reconfigured(c, profiles_of("profiles: [{schedulerName: gangsched}, {schedulerName: other}]"))
    assert c.group("a").n_bound == 1
    c.tell(*(ev.PodUpdated(pod) for pod in c.pods.values())).run()
    assert c.placed("a")


def test_a_profile_that_goes_gives_back_what_its_gangs_hold_and_leaves_its_pods_alone() -> None:
    diary: list[str] = []
    waits = Permitter("Approval", lambda group: Status.wait("w"))
    c = with_plugins(waits, Reserver("R", diary)).submit(gang("a", pods=2), gang("b", pods=1)).run()
    other = with_own(profiles_of("profiles: [{schedulerName: other}]"))
    reconfigured(c, other)
    assert c.scheduler.statistics()["reservations"] == 0
    assert not c.groups()
    assert diary[2:] == ["R unreserves a-0,a-1", "R unreserves b-0"]
    c.clear().wait(400.0)
    assert not c.all(ef.BindPod)
    reconfigured(c, profiles_of(DEFAULT)).tell(*(ev.PodUpdated(pod) for pod in c.pods.values())).run()
    assert c.placed("a")
    assert c.placed("b")


def test_what_runs_of_a_profile_that_goes_still_holds_its_room() -> None:
    c = cluster(nodes=1).submit(make_pod("a", gpus=8)).run()
    both = "profiles: [{schedulerName: other}]"
    reconfigured(c, profiles_of(both))
    pod = make_pod("b", gpus=1)
    c.submit(replace(pod, spec=replace(pod.spec, scheduler_name="other"))).run()
    assert c.state("b") == "unschedulable"


def test_room_that_was_kept_for_a_pod_of_a_profile_that_is_back_is_free() -> None:
    """It was nominated by us; while its profile was gone that stood for another scheduler's word."""
    c = cluster(nodes=1)
    pod = make_pod("p", gpus=8)
    pod = replace(pod, spec=replace(pod.spec, scheduler_name="other"))
    c.submit(replace(pod, status=replace(pod.status, nominated_node_name="n0"))).run()
    assert [*c.nominated()] == [pod.metadata.uid]
    reconfigured(c, profiles_of("profiles: [{schedulerName: gangsched}, {schedulerName: other}]"))
    c.tell(ev.PodUpdated(c.pod("p"))).run()
    assert not c.nominated()
    assert c.pod("p").spec.node_name == "n0"


def test_a_gang_that_is_binding_keeps_its_profile_until_it_is_bound() -> None:
    c = cluster()
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2)).run()
    new = profiles_of("profiles: [{schedulerName: other}]")
    assert [str(group.key) for group in c.scheduler.unfinished(new)] == ["d/a"]
    for bind in c.held_binds:
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    assert not c.scheduler.unfinished(new)


def test_what_is_new_does_not_wait_for_a_profile_that_still_binds_and_that_begins_no_more() -> None:
    c = cluster()
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2)).run()
    new = profiles_of("profiles: [{schedulerName: other}]")
    c.reconfigure(Settings(pod_initial_backoff_s=5.0), new)
    assert c.scheduler.shared.retiring == {"gangsched"}
    pod = make_pod("theirs")
    c.submit(replace(pod, spec=replace(pod.spec, scheduler_name="other")), make_pod("late")).run()
    assert [bind.name for bind in c.held_binds] == ["a-0", "a-1", "theirs"]
    assert c.said("late") == "GangScheduling: profile gangsched is gone from the configuration"
    assert c.group("late").backoff_until_s == c.now_s + 5.0
    found = explain(c.scheduler, c.group("late"), c.now_s)
    assert found.answer == (
        "Profile gangsched is gone from the configuration: it only completes gangs that are bound in part."
    )
    for bind in c.held_binds:
        c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    reconfigured(c, new)
    assert not c.scheduler.is_retiring
    assert c.group_names() == ["d/theirs"]


def test_a_gang_that_is_bound_in_part_is_bound_whole_by_its_profile_that_goes() -> None:
    c = cluster()
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "409"
    c.submit(gang("a", pods=2)).run()
    assert c.group("a").is_half_bound
    new = profiles_of("profiles: [{schedulerName: other}]")
    c.reconfigure(c.settings, new)
    c.answer = lambda bind: "ok"
    c.run().wait(20.0)
    assert c.placed("a")
    reconfigured(c, new)
    assert not c.scheduler.is_retiring


def test_a_gang_whose_binds_are_answered_keeps_its_profile_until_the_watch_shows_its_pods_there() -> None:
    """Dropped before that, its pods would be nobody's, on no node, and their devices given to others."""
    c = cluster(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2, gpus=4)).run()
    new = profiles_of("profiles: [{schedulerName: other}]")
    bound = [c.commit(bind) for bind in c.held_binds]
    c.tell(*(ev.BindSucceeded(bind.uid, bind.attempt) for bind in c.held_binds))
    assert [str(group.key) for group in c.scheduler.unfinished(new)] == ["d/a"]
    c.tell(*map(ev.PodUpdated, bound))
    reconfigured(c, new)
    pod = make_pod("b", gpus=1)
    c.submit(replace(pod, spec=replace(pod.spec, scheduler_name="other"))).run()
    assert c.state("b") == "unschedulable"


BOTH = "profiles: [{schedulerName: gangsched}, {schedulerName: other}]"


def of_other(*pods: Pod) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, scheduler_name="other")) for pod in pods]


def test_members_of_a_profile_that_goes_are_strangers_in_a_gang_of_one_that_stays() -> None:
    c = reconfigured(cluster(nodes=2), profiles_of(BOTH))
    first, second = gang("a", pods=2)
    c.submit(first, of_other(second)).run()
    assert "members disagree on spec.schedulerName" in c.said("a-0")
    reconfigured(c, profiles_of(DEFAULT))
    assert "members name different schedulers (gangsched, other)" in c.said("a-0")
    c.delete("a-1").submit(second).run()
    assert c.placed("a")


def test_a_late_member_of_a_profile_that_goes_is_bound_first() -> None:
    c = reconfigured(cluster(nodes=2), profiles_of(BOTH)).submit(gang("a", pods=2)).run()
    c.answer = lambda bind: "hold"
    c.submit(of_other(*gang("a", pods=1, first=2, min_members=2))).run()
    [bind] = c.held_binds
    assert [str(group.key) for group in c.scheduler.unfinished(profiles_of(DEFAULT))] == ["d/a"]
    c.reconfigure(c.settings, profiles_of(DEFAULT))
    assert c.scheduler.shared.retiring == {"other"}
    c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(c.commit(bind)))
    reconfigured(c, profiles_of(DEFAULT))
    assert not c.scheduler.is_retiring
    assert [info.pod.metadata.name for info in c.group("a").members.values()] == ["a-0", "a-1"]
    assert c.pod_info(bind.name).node_name == bind.node


def test_who_comes_after_a_failed_pod_of_another_profile_is_placed_by_its_own() -> None:
    off = "plugins: {multiPoint: {disabled: [{name: NodeUnschedulable}, {name: TaintToleration}]}}"
    both = f"profiles: [{{schedulerName: gangsched}}, {{schedulerName: other, {off}}}]"
    c = reconfigured(cluster(nodes=1), profiles_of(both)).submit(gang("a", pods=1)).run()
    cordoned = replace(c.nodes["n0"].spec, unschedulable=True)
    c.phase("a-0", "Failed").node(replace(c.nodes["n0"], spec=cordoned))
    c.submit(of_other(*gang("a", pods=1, first=1, min_members=1))).run()
    assert c.pod("a-1").spec.node_name


def test_a_gang_that_is_prepared_is_not_disturbed_by_another_configuration() -> None:
    c = with_plugins(PreBinder("P"))
    c.hook = lambda hook: None
    c.submit(gang("a", pods=1)).run()
    reconfigured(c, with_own(profiles_of(DEFAULT), pre_binds=(PreBinder("P"),)))
    c.say(c.held_hooks[0], SUCCESS)
    assert c.placed("a")


def with_claim(name: str) -> list[Pod]:
    """A gang of one, with a claim that waits for its pod."""
    (pod,) = gang(name, pods=1, gpus=1)
    volumes = [Volume(name="v", persistent_volume_claim=ClaimVolume(f"local-{name}"))]
    return [replace(pod, spec=replace(pod.spec, volumes=volumes))]


def with_one_volume(c: Cluster) -> Cluster:
    """n0 has a local volume, and pods a and b may claim it."""
    node = c.nodes["n0"]
    c.node(replace(node, metadata=replace(node.metadata, labels={HOST: "n0"})))
    known = (
        (CLASSES, StorageClass(ObjectMeta(name=LOCAL), "kubernetes.io/no-provisioner", WAITS)),
        (VOLUMES, local_volume("v0", "n0")),
        (CLAIMS, claim("local-a")),
        (CLAIMS, claim("local-b")),
    )
    return c.tell(*(ev.ObjectPut(kind, one) for kind, one in known))


def test_volumes_that_are_promised_to_a_gang_that_waits_are_bound_before_it_and_go_to_nobody_else() -> None:
    c = with_one_volume(with_plugins(Permitter("Approval", lambda group: Status.wait("w"))))
    c.hook = lambda hook: None
    c.submit(with_claim("a")).run()
    assert c.state("a") == "waiting"
    waits = (Permitter("Approval", lambda group: Status.wait("w") if group.key.name == "a" else SUCCESS),)
    reconfigured(c, with_own(profiles_of(DEFAULT), permits=waits))
    c.submit(with_claim("b")).run()
    assert c.state("b") == "unschedulable"
    reconfigured(c, profiles_of(DEFAULT))
    assert [(hook.plugin, hook.pod and hook.pod.metadata.name) for hook in c.held_hooks] == [
        ("VolumeBinding", "a-0")
    ]
    assert not c.all(ef.BindPod)


class Book(Reserver):
    """A Reserve plugin that knows who holds what it gave."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("Book", [])
        self.held: set[str] = set()
        self._fails = fails

    def reserve(self, state: Any, group: Any, placements: Any) -> Status:
        self.held |= {one.info.uid for one in placements}
        return super().reserve(state, group, placements)

    def inherit(self, before: Book) -> None:
        if self._fails:
            raise ValueError("it cannot")
        self.held = before.held


def test_a_plugin_of_ones_own_inherits_what_the_one_before_it_remembers() -> None:
    waits = Permitter("Approval", lambda group: Status.wait("w"))
    c = with_plugins(waits, Book()).submit(gang("a", pods=2)).run()
    book = Book()
    reconfigured(c, with_own(profiles_of(DEFAULT), reserves=(book,), permits=(waits,)))
    assert book.held == {info.uid for info in c.group("a").members.values()}


def test_a_plugin_that_fails_to_inherit_is_named_and_the_configuration_is_in_effect() -> None:
    waits = Permitter("Approval", lambda group: Status.wait("w"))
    c = with_plugins(waits, Book()).submit(gang("a", pods=2)).run()
    reconfigured(c, with_own(profiles_of(DEFAULT), reserves=(Book(fails=True),)))
    (blame,) = c.all(ef.BlamePlugin)
    assert (blame.plugin, blame.point, blame.problem) == ("Book", "Inherit", "ValueError: it cannot")
    assert c.placed("a")


def test_a_question_that_is_open_is_taken_back_where_its_plugin_is_gone() -> None:
    c = with_plugins(AsyncPermitter())
    c.hook = lambda hook: None
    c.submit(gang("a", pods=1)).run()
    reconfigured(c, profiles_of(DEFAULT))
    assert c.placed("a")
    assert not c.held_hooks


def test_settings_count_from_then_on() -> None:
    c = cluster(nodes=1).submit(make_pod("big", gpus=9)).run()
    reconfigured(c, profiles_of(DEFAULT), Settings(pod_initial_backoff_s=5.0, pod_max_backoff_s=50.0))
    c.clear().submit(make_pod("big2", gpus=9)).run()
    assert c.group("big2").backoff_until_s == c.now_s + 5.0


def test_pre_enqueue_of_the_new_configuration_gates_pods_that_are_not_placed() -> None:
    class Closed:
        name = "Closed"

        def pre_enqueue(self, pod: Any) -> Status:
            return Status.unschedulable("closed")

    c = cluster(nodes=1, gpus=1).submit(make_pod("a", gpus=1), make_pod("b", gpus=1)).run()
    reconfigured(c, with_own(profiles_of(DEFAULT), pre_enqueue=(Closed(),)))
    assert {c.state("a"), c.state("b")} == {"bound", "gated"}
    reconfigured(c, profiles_of(DEFAULT))
    assert {c.state("a"), c.state("b")} == {"bound", "unschedulable"}


def test_the_new_queue_sort_orders_the_groups_in_line() -> None:
    class LastFirst:
        name = "LastFirst"

        def sort_key(self, group: Any) -> tuple[Any, ...]:
            return (-ord(group.key.name[0]),)

    c = cluster()
    for name in "abc":
        c.submit(gang(name, pods=1))
    new = {
        name: Profile(name, replace(one.points, queue_sort=LastFirst()))
        for name, one in profiles_of(DEFAULT).items()
    }
    reconfigured(c, new)
    assert c.bind_order() == ["c", "b", "a"]


ON, OFF = Settings(settle_s=4.0), Settings(settle_s=4.0, allow_eviction=False)


def n_evictions(c: Cluster) -> int:
    return len(c.all(ef.EvictPod)) + len(c.all(ef.DeletePod))


def refusing_evictions(*, nodes: int) -> Cluster:
    c = cluster(nodes=nodes, settings=ON)
    c.evictions = "silent"
    return c


def test_who_waits_for_victims_gives_up_when_evictions_are_not_allowed_any_more() -> None:
    c = refusing_evictions(nodes=1).submit(make_pod("low", gpus=8)).run()
    c.submit(make_pod("high", gpus=8, priority=10)).run().wait(5.0)
    n, _ = n_evictions(c), reconfigured(c, profiles_of(DEFAULT), OFF)
    assert n == 3
    assert "its victims may no longer be evicted" in c.said("high")
    c.wait(600.0)
    assert n_evictions(c) == n
    assert c.pod("low").spec.node_name
    reconfigured(c, profiles_of(DEFAULT), ON).wait(600.0)
    assert n_evictions(c) > n, "allowed again, and nobody had been found not to go"


def test_victims_that_are_going_are_waited_for_when_no_more_may_be_evicted() -> None:
    c = cluster(nodes=1, settings=ON).submit(make_pod("low", gpus=8)).run()
    c.evictions = "slow"
    c.submit(make_pod("high", gpus=8, priority=10)).run()
    reconfigured(c, profiles_of(DEFAULT), OFF).wait(5.0)
    assert c.state("high") == "waiting"
    c.delete("low").run()
    assert c.pod("high").spec.node_name


def test_a_gang_that_is_unwound_is_completed_when_evictions_are_not_allowed_any_more() -> None:
    c = refusing_evictions(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "g-0" else "403"
    c.submit(gang("g", pods=2, gpus=8)).run().wait(10.0)
    assert c.state("g") == "unwinding"
    n, _ = n_evictions(c), reconfigured(c, profiles_of(DEFAULT), OFF).wait(60.0)
    assert n_evictions(c) == n
    assert "cannot be given back: allowEviction is off" in "".join(e.message for e in c.all(ef.RecordEvent))
    c.answer = lambda bind: "ok"
    c.wait(120.0)
    assert c.placed("g", on=2)


def test_a_gang_past_its_walltime_stays_when_evictions_are_not_allowed_any_more() -> None:
    evicting = QueueingSettings(on_overrun="evict")
    c = cluster(nodes=1, settings=replace(ON, queueing=evicting))
    c.evictions = "silent"
    c.submit(with_annotations(gang("g", pods=2), {WALLTIME_KEY: "60s"})).run().wait(100.0)
    assert c.state("g") == "unwinding"
    n, _ = n_evictions(c), reconfigured(c, profiles_of(DEFAULT), replace(OFF, queueing=evicting))
    assert c.state("g") == "bound"
    assert c.group("g").message == ""
    c.wait(600.0)
    assert n_evictions(c) == n
    assert c.reasons().count("OverrunStays") == 1
    reconfigured(c, profiles_of(DEFAULT), replace(ON, queueing=evicting)).wait(5.0)
    assert n_evictions(c) > n


GOES, COMES = "profiles: [{schedulerName: other}]", BOTH


def without_devices(c: Cluster, name: str) -> None:
    """Somebody takes the annotations with its devices away."""
    meta = c.pod(name).metadata
    own = {key: text for key, text in (meta.annotations or {}).items() if not is_device_key(key)}
    c.update(c.pod(name), metadata=replace(meta, annotations=own))


@pytest.mark.parametrize("is_back", [False, True], ids=["goes", "goes and comes back"])
def test_devices_of_a_profile_that_goes_are_its_pods_whatever_their_annotations_say(*, is_back: bool) -> None:
    c = cluster(nodes=1, settings=Settings(devices=DeviceSettings(repair=False)))
    c.submit(gang("a", pods=1, gpus=4)).run()
    had = c.ids("a-0")
    without_devices(c, "a-0")
    reconfigured(c, profiles_of(GOES), c.settings)
    c.phase("a-0", "Running")
    if is_back:
        reconfigured(c, profiles_of(COMES), c.settings)
        assert c.group("a").n_bound == 1
        assert c.scheduler.statistics()["device_drift"]["edited"] == 1
    c.submit(of_other(make_pod("next", gpus=4))).run().submit(of_other(make_pod("last"))).run()
    assert c.ids("next").isdisjoint(had)
    assert c.state("last") == "unschedulable"
    c.delete("a-0").wait(30.0)
    assert c.ids("last") <= had


def test_annotations_that_are_edited_while_the_profile_is_gone_are_corrected_once_it_is_back() -> None:
    c = cluster(nodes=1, settings=Settings(devices=DeviceSettings(repair=True)))
    c.submit(gang("a", pods=1, gpus=4)).run()
    had = c.ids("a-0")
    reconfigured(c, profiles_of(GOES))
    without_devices(c, "a-0")
    c.wait(60.0)
    assert not c.ids("a-0"), "another scheduler's pod is not written to"
    reconfigured(c, profiles_of(COMES)).wait(60.0)
    assert c.ids("a-0") == had


def test_victims_of_a_profile_that_goes_or_comes_are_waited_for() -> None:
    c = reconfigured(cluster(nodes=1), profiles_of(BOTH)).submit(gang("low", pods=1, gpus=8)).run()
    c.evictions = "silent"
    c.submit(of_other(make_pod("high", gpus=8, priority=10))).run()
    for text in (GOES, COMES):
        reconfigured(c, profiles_of(text))
        assert c.state("high") == "waiting"
        c.scheduler.validate()
    c.delete("low-0").run()
    assert c.pod("high").spec.node_name


def test_a_victim_whose_profile_comes_for_the_first_time_is_waited_for() -> None:
    c = reconfigured(cluster(nodes=1), profiles_of(GOES))
    low = make_pod("low", gpus=8)
    c.submit(replace(low, spec=replace(low.spec, node_name="n0")))
    c.evictions = "silent"
    c.submit(of_other(make_pod("high", gpus=8, priority=10))).run()
    assert c.state("high") == "waiting"
    reconfigured(c, profiles_of(COMES))
    assert (c.state("high"), c.group("low").n_bound) == ("waiting", 1)
