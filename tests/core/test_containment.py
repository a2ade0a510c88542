"""What our own code raises costs the object that found it, and nothing else; what was done by half is undone.

Each fault is put into the core by hand, at a place in the middle of a step, for objects whose name says so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.binding.binder import Binder
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.cache.cache import Cache
from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.nodes.images import ImageTable
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.object_store import ObjectStore
from gangsched.core.cache.template_table import TemplateTable
from gangsched.core.device_audit.drift import DriftAudit
from gangsched.core.framework.interface import SUCCESS, Change, Status
from gangsched.core.groups.attempts.attempts import Attempts
from gangsched.core.groups.attempts.commits import Commits
from gangsched.core.groups.attempts.permits import Permits
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.members.leaving import Leaving
from gangsched.core.groups.members.membership import Membership
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.reconciler import Reconciler
from gangsched.core.groups.walltime_evictions import WalltimeEvictions
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.state import SharedState
from gangsched.core.turns.steps import Defect
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import GPU, STRANGER, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ContainerPort, NodeImage, Pod
from gangsched.model.owners import ORDERED
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.model.workloads import PRIORITY_CLASSES, PriorityClass
from tests import controllers as made
from tests.core.plugins import AsyncPermitter, Permitter, PreBinder, Reserver
from tests.support.inside import Inside
from tests.support.scenario import Cluster, gang, on_node, with_annotations

Poison = Callable[[Any, str, Callable[..., bool]], None]


class Fault(Exception):
    """Ours."""


class Guarded:
    """A cluster whose scheduler is guarded, and what it was told."""

    def __init__(self, *plugins: Any, nodes: int = 2, settings: Settings | None = None) -> None:
        self.defects: list[Defect] = []
        self.plugins = plugins
        self.cluster = Cluster(settings, make=self._make)
        for i in range(nodes):
            self.cluster.node(make_node(f"n{i}"))

    def _make(self, settings: Settings) -> Scheduler:
        profiles = Inside(make_scheduler(settings, *self.plugins)).profiles()
        return Scheduler(profiles, settings, guard=self.defects.append)

    def a_good_gang_starts(self, name: str = "good", pods: int = 2, gpus: int = 2) -> None:
        self.cluster.submit(gang(name, pods=pods, gpus=gpus)).run()
        assert self.cluster.placed(name)

    def n_free(self) -> int:
        """Devices, by name."""
        free = self.cluster.ledger().columns[GPU].free
        return sum(int(free[row]) for row in self.cluster.node_table().row_of.values())

    def count(self, name: str) -> int:
        return int(self.cluster.scheduler.statistics().get(name, 0))


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    """poison(owner, method, when): the method does its work and raises, where `when` says so of its args."""

    def put(owner: Any, method: str, when: Callable[..., bool], *, after: bool = True) -> None:
        real = getattr(owner, method)

        def faulty(*args: Any, **more: Any) -> Any:
            done = real(*args, **more) if after else None
            if when(*args, **more):
                raise Fault(f"{method} of {owner.__name__}")
            return done if after else real(*args, **more)

        monkeypatch.setattr(owner, method, faulty)

    return put


def fails(*_: Any) -> Any:
    raise Fault("for now")


def is_bad(found: Any) -> bool:
    """A pod, or what knows one."""
    return "bad" in getattr(found, "pod", found).metadata.name


OURS, ANYBODY = ("gangsched",), ("gangsched", STRANGER)
# Where the fault is, for whom, whose pods get there, and whether only with a node.
POD_FAULTS: list[tuple[Any, str, Callable[..., bool], tuple[str, ...], bool]] = [
    (TemplateTable, "template", lambda self, pod: is_bad(pod) and bool(pod.metadata.labels), ANYBODY, False),
    (TemplateTable, "is_of_all_alike", lambda self, pod: is_bad(pod), OURS, False),
    (Membership, "_state_of", lambda self, info, pod: is_bad(pod), OURS, False),
    (Membership, "_enter_group", lambda self, info, pod, like: is_bad(pod), OURS, False),
    (Membership, "_place", lambda self, info, pod: is_bad(pod), ANYBODY, True),
    (Cache, "place", lambda self, info, *a: is_bad(info) and bool(info.pod.metadata.labels), ANYBODY, True),
    (Cache, "_count", lambda self, info, row: is_bad(info) and bool(info.pod.metadata.labels), ANYBODY, True),
    (NodeTable, "use_ports", lambda self, *a: True, ANYBODY, True),
    (GroupSpecs, "note_stranger", lambda self, pod: is_bad(pod), (STRANGER,), False),
    (DriftAudit, "pod_bound", lambda self, info: is_bad(info), ANYBODY, True),
]
CASES = [
    pytest.param(owner, method, when, who, node, id=f"{owner.__name__}.{method}-{who}-{node}")
    for owner, method, when, whose, needs_node in POD_FAULTS
    for who in whose
    for node in ("n0", *(() if needs_node or who == STRANGER else ("",)))
]
GIVEN = {"gangsched.io/allocated-devices": '{"main":{"nvidia.com/gpu":["GPU-n0-0","GPU-n0-1"]}}'}


@pytest.mark.parametrize(("owner", "method", "when", "scheduler", "node"), CASES)
def test_a_pod_that_our_code_fails_on_is_refused_alone(
    poison: Poison, owner: Any, method: str, when: Any, scheduler: str, node: str
) -> None:
    poison(owner, method, when)
    guarded = Guarded()
    c = guarded.cluster
    bad = make_pod("bad", gpus=2, scheduler=scheduler, labels={"a": "b"}, annotations=GIVEN)
    with_port = [replace(bad.spec.containers[0], ports=[ContainerPort(host_port=80)])]
    spec = replace(bad.spec, containers=with_port, termination_grace_period_seconds=5)
    bad = on_node(replace(bad, spec=spec), node)
    for _ in range(3):  # as it came, and with each change of it
        c.tell(ev.PodUpdated(c.store(bad)), ev.PodUpdated(c.store(make_pod("good-one"))))
    c.run()
    assert guarded.count("defects") >= 3
    assert {one.about for one in guarded.defects} == {"d/bad"}
    assert "Fault" in guarded.defects[0].story
    if node:
        info = c.pod_info("bad")
        assert info.node_name == node, "its room is taken"
        assert info.template.requests[GPU] == 2
        assert guarded.n_free() == 16 - 2 - 1
    elif scheduler == "gangsched":
        assert "the scheduler itself failed on this object: Fault" in c.said("bad")
    guarded.a_good_gang_starts()
    c.delete("bad")
    assert guarded.n_free() == 16 - 4 - 1
    guarded.a_good_gang_starts("late", pods=11, gpus=1)


def test_devices_that_could_not_be_booked_are_booked_again(guarded: Guarded, poison: Poison) -> None:
    turns = cycle((True, False))
    poison(DeviceLedger, "hold", lambda self, row, uid, *a: "bad" in uid and next(turns))
    bad = on_node(make_pod("bad", gpus=2, annotations=GIVEN), "n0")
    guarded.cluster.submit(bad)
    assert len(guarded.defects) == 1
    assert guarded.n_free() == 14
    guarded.a_good_gang_starts("all", pods=14, gpus=1)


def test_without_a_guard_the_fault_is_raised(poison: Poison) -> None:
    poison(Membership, "_state_of", lambda self, info, pod: is_bad(pod))
    c = Cluster().node(make_node("n0"))
    with pytest.raises(Fault):
        c.submit(make_pod("bad"))


def test_a_refused_pod_is_ours_again_when_it_is_mended(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    with monkeypatch.context() as broken:
        broken.setattr(Membership, "_enter_group", fails)
        c.submit(gang("g", pods=2))
    assert len(guarded.defects) == 2
    assert not c.groups()
    for name in ("g-0", "g-1"):
        c.update(c.pod(name))  # the echo of what was said on it
    c.run()
    assert c.placed("g")


def test_a_refused_pod_of_a_run_costs_the_others_of_it_nothing(guarded: Guarded, poison: Poison) -> None:
    poison(
        Membership,
        "_state_of",
        lambda self, info, pod: is_bad(pod),
    )
    c = guarded.cluster
    pods = [*gang("a", pods=3), make_pod("bad0"), *gang("b", pods=2), make_pod("bad1"), make_pod("bad2")]
    c.tell(*(ev.PodAdded(c.store(pod)) for pod in pods))
    c.run()
    assert c.placed("a")
    assert c.placed("b")
    assert [one.about for one in guarded.defects] == ["d/bad0", "d/bad1", "d/bad2"]
    assert guarded.count("objects_refused/Pod") == 3


def test_the_room_of_a_pod_whose_bind_is_on_the_way_is_kept_until_that_is_answered(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(*gang("g", pods=2, gpus=8)).run()
    assert len(c.held_binds) == 2
    with monkeypatch.context() as broken:
        broken.setattr(Membership, "_state_of", fails)
        c.update(c.pod("g-0"))
    late = next(bind for bind in c.held_binds if bind.name == "g-0")
    c.update(c.pod("g-0"))  # well again, and not bound: nothing may be given back for that
    c.answer = lambda bind: "ok"
    c.submit(make_pod("thief", gpus=8)).run()
    assert not c.pod("thief").spec.node_name
    c.tell(ev.BindUnknown(late.uid, late.attempt, "timed out"))
    assert [effect.uid for effect in c.all(ef.GetPod)] == [late.uid]
    c.read("g-0").wait(30)
    assert c.unanswered() == {}


def test_the_room_of_a_bind_on_the_way_is_kept_also_when_its_pod_is_refused_again(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    c.answer = lambda bind: "hold"
    c.submit(*gang("g", pods=2, gpus=8)).run()
    with monkeypatch.context() as broken:
        broken.setattr("gangsched.core.groups.members.membership.is_newer", fails)
        c.update(c.pod("g-0"))
        c.update(c.pod("g-0"))
    assert len(guarded.defects) == 2
    c.answer = lambda bind: "ok"
    c.submit(make_pod("thief", gpus=8)).run()
    assert not c.pod("thief").spec.node_name
    c.tell(*(ev.PodUpdated(c.commit(bind)) for bind in c.held_binds)).run()
    assert c.placed("g")
    assert guarded.n_free() == 0


def answered() -> tuple[Guarded, ef.BindPod]:
    """One node; all of it is reserved for the pod bad, whose bind has landed, and neither is told of that."""
    guarded = Guarded(nodes=1)
    guarded.cluster.answer = lambda bind: "hold"
    guarded.cluster.submit(make_pod("bad", gpus=8)).run()
    guarded.cluster.answer = lambda bind: "ok"
    return guarded, guarded.cluster.held_binds[0]


def nobody_gets_its_room_before_the_watch_tells(guarded: Guarded, bind: ef.BindPod) -> None:
    c = guarded.cluster
    assert guarded.defects
    c.submit(make_pod("thief", gpus=8)).run()
    assert not c.pod("thief").spec.node_name
    c.tell(ev.PodUpdated(c.commit(bind))).run().wait(60.0)
    assert c.unanswered() == {}
    assert guarded.n_free() == 0
    c.delete("bad").run().wait(10.0)
    assert c.pod("thief").spec.node_name


def test_the_room_of_a_pod_that_is_bound_by_the_answer_alone_is_kept_when_an_older_version_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, bind = answered()
    c = guarded.cluster.tell(ev.BindSucceeded(bind.uid, bind.attempt))
    with monkeypatch.context() as broken:
        broken.setattr("gangsched.core.groups.members.membership.is_newer", fails)
        c.update(c.pod("bad"))
    nobody_gets_its_room_before_the_watch_tells(guarded, bind)


@pytest.mark.parametrize("after", [True, False])
def test_the_room_of_a_pod_is_kept_when_our_code_fails_on_the_answer_that_it_is_bound(
    after: bool, poison: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded, bind = answered()
    poison(Group, "move_all", lambda self, *a: True, after=after)
    guarded.cluster.tell(ev.BindSucceeded(bind.uid, bind.attempt))
    monkeypatch.undo()
    nobody_gets_its_room_before_the_watch_tells(guarded, bind)


def fenced() -> Guarded:
    """One node, behind a fence; all of it is reserved for the pod bad, whose bind has no known outcome."""
    guarded = Guarded(nodes=1, settings=Settings(fence=True))
    guarded.cluster.answer = lambda bind: "hold"
    guarded.cluster.submit(make_pod("bad", gpus=8)).run()
    return guarded


def nobody_gets_its_room_before_it_is_bumped(guarded: Guarded, *, landed: bool) -> None:
    c, (bind, *_) = guarded.cluster, guarded.cluster.held_binds
    assert guarded.defects
    c.answer = lambda bind: "ok"
    c.node(make_node("n0")).submit(make_pod("late", gpus=8)).run().wait(5.0)
    assert not c.pod("late").spec.node_name, "the bind may still land"
    assert {bump.uid for bump in c.all(ef.BumpPod)} == {bind.uid}
    c.tell(ev.PodBumped(bind.uid, c.commit(bind) if landed else c.store(c.pod("bad")))).run().wait(30.0)
    assert bool(c.pod("bad").spec.node_name) != bool(c.pod("late").spec.node_name)
    assert c.unanswered() == {}
    assert guarded.n_free() == 0


@pytest.mark.parametrize("landed", [True, False])
def test_a_group_that_our_code_fails_on_keeps_the_room_of_a_bind_that_is_given_up_until_it_cannot_land(
    landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fenced()
    c, (bind,) = guarded.cluster, guarded.cluster.held_binds
    c.node(replace(c.nodes["n0"], spec=replace(c.nodes["n0"].spec, unschedulable=True)))
    with monkeypatch.context() as broken:
        broken.setattr(Leaving, "let_leave", fails)  # the first step of Reconciler.reconcile
        c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("bad").wait(1.0)
    nobody_gets_its_room_before_it_is_bumped(guarded, landed=landed)


@pytest.mark.parametrize("landed", [True, False])
def test_a_pod_that_our_code_fails_on_keeps_the_room_of_a_bind_that_is_given_up_until_it_cannot_land(
    landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fenced()
    c, (bind,) = guarded.cluster, guarded.cluster.held_binds
    c.node(replace(c.nodes["n0"], spec=replace(c.nodes["n0"].spec, unschedulable=True)))
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("bad").wait(1.0)
    assert c.all(ef.BumpPod)
    with monkeypatch.context() as broken:
        broken.setattr(Membership, "_state_of", fails)
        c.update(c.pod("bad"))
    nobody_gets_its_room_before_it_is_bumped(guarded, landed=landed)


@pytest.mark.parametrize("landed", [True, False])
def test_behind_a_fence_a_refused_pod_that_is_read_unbound_keeps_its_room_until_it_is_bumped(
    landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = fenced()
    c, (bind,) = guarded.cluster, guarded.cluster.held_binds
    with monkeypatch.context() as broken:
        broken.setattr(Membership, "_state_of", fails)
        c.update(c.pod("bad"))
    c.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out")).read("bad")
    nobody_gets_its_room_before_it_is_bumped(guarded, landed=landed)


def test_a_node_that_our_code_fails_on_is_refused_alone(guarded: Guarded, poison: Poison) -> None:
    c = guarded.cluster
    c.submit(on_node(make_pod("there", gpus=2, annotations=GIVEN), "n0"))
    sick = c.nodes["n0"]
    images = [NodeImage(names=["a", "sick"], size_bytes=5)]
    poison(ImageTable, "put", lambda self, row, images: any("sick" in (i.names or ()) for i in images or ()))
    c.node(replace(sick, status=replace(sick.status, images=images)))
    assert "n0" not in c.node_table().row_of
    assert "NodeRefused" in c.reasons()
    guarded.a_good_gang_starts()
    assert c.placed("good", on=1)
    c.node(sick)
    assert guarded.n_free() == 16 - 2 - 4, "what is there was known all the time"


def test_what_is_reserved_on_a_node_that_our_code_fails_on_is_given_back_and_placed_elsewhere(
    poison: Poison,
) -> None:
    guarded = held_by_plugins()[0]
    c, (first, *_) = guarded.cluster, guarded.cluster.group("g").members.values()
    sick = c.nodes[first.node_name]
    poison(NodeTable, "put", lambda self, node, *a: node.metadata.name == sick.metadata.name)
    c.node(sick)
    assert "NodeRefused" in c.reasons()
    assert "gives its reservations back" in "".join(one.message for one in c.all(ef.RecordEvent))
    assert c.state("g") == "backoff"
    c.wait(5.0)
    assert {info.node_name for info in c.group("g").members.values()} == {*c.nodes} - {sick.metadata.name}


def test_an_owner_that_our_code_fails_on_is_a_problem_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Guarded(settings=Settings(infer_gangs={"gangsched": ORDERED}))
    c, owner = guarded.cluster, ev.OwnerPut(made.owner(made.job("a", parallelism=2, completions=2)))
    c.submit(made.decoded(made.job_pods("a", 2))).run()
    with monkeypatch.context() as broken:
        broken.setattr(Owners, "put", fails)
        c.tell(owner).run()
    assert [one.about for one in guarded.defects] == ["Job d/a"]
    assert "the scheduler itself failed on this object: Fault" in c.said("a-0")
    assert guarded.count("objects_refused/Owner") == 1
    c.tell(owner).run().wait(2.0)
    assert c.placed("a")


@pytest.mark.parametrize("order", [ev.GroupAllowed, ev.GroupRejected])
def test_a_group_about_which_our_code_fails_on_a_persons_order_gives_back_what_it_holds(
    order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded, diary = held_by_plugins()
    key = guarded.cluster.group("g").key
    with monkeypatch.context() as broken:
        broken.setattr(Permits, "allow", fails)
        broken.setattr(Commits, "give_back", fails)
        guarded.cluster.tell(order(key, "", "alice"))
    assert guarded.defects[0].about == "d/g"
    assert diary[1:] == ["A unreserves g-0,g-1"]
    assert guarded.n_free() == 16
    guarded.cluster.tell(order(key._replace(name="gone"), "", "alice"))
    assert guarded.cluster.wait(5.0).state("g") == "waiting"


def test_a_pod_group_that_our_code_fails_on_is_a_problem_of_its_pods(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangsched.core.groups.group_spec.group_from_object", fails)
    c = guarded.cluster
    c.object("coscheduling", make_pod_group("g", spec={"minMember": 1}))
    c.submit(make_pod("g-0", labels={"scheduling.x-k8s.io/pod-group": "g"})).run()
    assert "the scheduler itself failed on this object: Fault" in c.said("g-0")
    guarded.a_good_gang_starts()


@pytest.mark.parametrize("after", [True, False])
def test_an_object_that_our_code_fails_on_is_reported_and_read_again_when_it_changes(
    poison: Any, after: bool
) -> None:
    def put(name: str, value: int) -> ev.ObjectPut:
        meta = {"name": name, "uid": f"u-{name}", "resourceVersion": str(value)}
        return ev.ObjectPut(
            PRIORITY_CLASSES, msgspec.convert({"metadata": meta, "value": value}, PriorityClass)
        )

    poison(ObjectStore, "put", lambda self, kind, one: one.value == 1, after=after)
    guarded = Guarded()
    c = guarded.cluster.tell(put("bad", 1), put("good", 2))
    assert [(one.where, one.about) for one in guarded.defects] == [("ObjectPut", "bad")]
    assert guarded.count(f"objects_refused/{PRIORITY_CLASSES}") == 1
    [told] = [one for one in c.all(ef.RecordEvent) if one.name == "bad"]
    assert "the scheduler itself failed on this object: Fault" in told.message
    assert {name for _, name in c.scheduler.shared.cache.objects.objects(PRIORITY_CLASSES)} >= {"good"}
    c.tell(put("bad", 3))
    assert c.scheduler.shared.cache.objects.objects(PRIORITY_CLASSES)["", "bad"].value == 3
    guarded.a_good_gang_starts()


def test_groups_have_their_turn_although_our_code_fails_when_all_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded = Guarded()
    c = guarded.cluster
    c.scheduler = guarded._make(c.settings)
    c.tell(*map(ev.NodeAdded, c.nodes.values())).submit(gang("g", pods=2, gpus=2))
    with monkeypatch.context() as broken:
        broken.setattr(DriftAudit, "compare_all", fails)
        c.tell(*map(ev.KindSynced, c.scheduler.kinds))
    assert [one.where for one in guarded.defects] == ["KindSynced"]
    assert c.run().placed("g")


def test_what_is_held_is_given_back_when_our_code_fails_on_a_plugins_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    diary: list[str] = []
    guarded = Guarded(Reserver("A", diary), AsyncPermitter())
    c = guarded.cluster
    c.hook = lambda hook: None
    c.submit(gang("bad", pods=2, gpus=2)).run()
    [hook] = c.held_hooks
    with monkeypatch.context() as broken:
        broken.setattr(Permits, "answered", fails)
        c.say(hook, SUCCESS).run()
    assert [(one.where, one.about) for one in guarded.defects][-1] == ("HookAnswered", "d/bad")
    assert diary[1:] == ["A unreserves bad-0,bad-1"]
    assert guarded.n_free() == 16
    c.hook = lambda hook: SUCCESS
    assert c.wait(5.0).placed("bad"), "its plugin was asked again"


def test_a_group_that_our_code_fails_on_while_it_waits_for_a_plugin_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call was taken back, and the group waited for its answer until Permit's time was up."""
    guarded = Guarded(AsyncPermitter())
    c = guarded.cluster
    c.hook = lambda hook: None
    c.submit(gang("g", pods=2, gpus=2)).run()
    with monkeypatch.context() as broken:
        broken.setattr(Permits, "allow", fails)
        c.tell(ev.GroupAllowed(c.group("g").key, "Nobody", "alice"))
    assert c.held_hooks == []
    c.hook = lambda hook: SUCCESS
    assert c.wait(5.0).placed("g")


def test_a_refusal_that_fails_too_is_told_and_ends_nothing(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    with monkeypatch.context() as broken:
        broken.setattr(GroupSpecs, "put_object", fails)
        broken.setattr(GroupSpecs, "refuse_object", fails)
        c.object("coscheduling", make_pod_group("g", spec={"minMember": 1}))
    where = [one.where for one in guarded.defects]
    assert where == ["PodGroupUpdated", "refusing after PodGroupUpdated"]
    guarded.a_good_gang_starts()


def test_a_group_whose_siblings_cannot_be_found_either_gives_back_what_it_holds(poison: Any) -> None:
    found = Guarded()
    poison(Attempts, "_permit", lambda self, unit: "bad" in unit[0].key.name, after=False)
    poison(SharedState, "siblings", lambda self, group: "bad" in group.key.name and bool(found.defects))
    c = found.cluster.submit(gang("bad", pods=2, gpus=2)).run()
    assert "looking for siblings" in {one.where for one in found.defects}
    assert c.state("bad") == "backoff"
    assert found.n_free() == 16
    found.a_good_gang_starts(pods=2, gpus=8)


def test_a_pod_that_a_plugin_keeps_out_and_our_code_fails_on_is_no_more_asked_about(poison: Poison) -> None:
    class Closed:
        name = "Closed"
        cured_by = Change.NODE_ADDED

        def pre_enqueue(self, pod: Pod) -> Status:
            return Status.unschedulable("closed") if is_bad(pod) else SUCCESS

        def cures(self, change: Any, template: Any, view: Any) -> bool:
            raise AssertionError("of no pod that is known")

    guarded = Guarded(Closed())
    c = guarded.cluster.submit(make_pod("bad")).run()
    poison(Membership, "_state_of", lambda self, info, pod: is_bad(pod))
    c.update(c.pod("bad"))
    assert len(guarded.defects) == 1
    c.node(make_node("more")).run()
    assert len(guarded.defects) == 1
    assert not guarded.count("plugin_errors")
    c.delete("bad")
    assert not c.scheduler.shared.enqueue_waits.by_plugin["Closed"]


GROUP_FAULTS: list[tuple[Any, str, Callable[..., bool]]] = [
    (GroupSpecs, "resolve", lambda self, group: "bad" in group.key.name),
    (Reconciler, "reconcile", lambda self, group: "bad" in group.key.name),
    (Attempts, "run", lambda self, group: "bad" in group.key.name),
    (Attempts, "_permit", lambda self, unit: "bad" in unit[0].key.name),
    (Commits, "reserve", lambda self, unit, plan: "bad" in unit[0].key.name),
    (Binder, "start", lambda self, unit: "bad" in unit[0].key.name),
    (GroupOutcome, "settle", lambda self, group: "bad" in group.key.name),
    (Cache, "assume", lambda self, placements: "bad" in placements[0].info.pod.metadata.name),
    (NodeTable, "pad", lambda self, *a: True),
]


@pytest.mark.parametrize(
    ("owner", "method", "when"), GROUP_FAULTS, ids=[f"{o.__name__}.{m}" for o, m, _ in GROUP_FAULTS]
)
@pytest.mark.parametrize("after", [True, False])
def test_a_group_that_our_code_fails_on_gives_back_what_it_holds(
    poison: Any, owner: Any, method: str, when: Any, after: bool
) -> None:
    poison(owner, method, when, after=after)
    guarded = Guarded()
    c = guarded.cluster
    c.submit(gang("bad", pods=2, gpus=2)).run().wait(5)
    if method != "pad":
        assert guarded.defects
        told = "gang d/bad: the scheduler itself failed on this object: Fault"
        assert c.placed("bad") or told in c.said("bad-0")
    for turn in range(5):
        guarded.a_good_gang_starts(f"good{turn}", pods=2, gpus=1)
        c.delete(f"good{turn}-0", f"good{turn}-1")
        c.wait(7)
    c.delete("bad-0", "bad-1")
    assert guarded.n_free() == 16
    guarded.a_good_gang_starts("all", pods=2, gpus=8)


def held_by_plugins() -> tuple[Guarded, list[str]]:
    """A gang, reserved, waits for an approval. Beside it: what its plugins were asked."""
    diary: list[str] = []
    permit = Permitter("W", lambda group: Status.wait("nobody has approved it"))
    guarded = Guarded(Reserver("A", diary), permit, PreBinder("P"))
    guarded.cluster.hook = lambda hook: None
    guarded.cluster.submit(gang("g", pods=2, gpus=2)).run()
    assert diary == ["A reserves g-0,g-1"]
    return guarded, diary


def the_group_fails(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Leaving, "let_leave", fails)  # the first step of Reconciler.reconcile
        guarded.cluster.leave("g-1")
    assert guarded.defects


def test_what_plugins_hold_for_a_group_that_our_code_fails_on_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, diary = held_by_plugins()
    the_group_fails(guarded, monkeypatch)
    assert diary[1:] == ["A unreserves g-1", "A unreserves g-0"]
    assert guarded.n_free() == 16


def test_what_is_prepared_for_a_group_that_our_code_fails_on_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, diary = held_by_plugins()
    c = guarded.cluster
    c.tell(ev.GroupAllowed(c.group("g").key, "", "alice")).run()
    hooks = list(c.held_hooks)
    assert [hook.plugin for hook in hooks] == ["P", "P"]
    the_group_fails(guarded, monkeypatch)
    assert c.held_hooks == []
    assert diary[1:] == ["A unreserves g-1", "A unreserves g-0"]
    assert guarded.n_free() == 16
    for hook in hooks:
        c.say(hook, SUCCESS)
    assert not c.run().all(ef.BindPod)


def test_what_plugins_hold_for_a_pod_that_our_code_fails_on_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarded, diary = held_by_plugins()
    with monkeypatch.context() as broken:
        broken.setattr(Membership, "_state_of", fails)
        guarded.cluster.update(guarded.cluster.pod("g-1"))
    assert diary[1:] == ["A unreserves g-1", "A unreserves g-0"]
    assert guarded.n_free() == 16


@pytest.mark.parametrize(("method", "after"), [("reserve", False), ("reserve", True), ("_permit", False)])
def test_those_that_start_with_a_group_that_our_code_fails_on_give_back_what_they_hold_too(
    poison: Any, method: str, after: bool
) -> None:
    owner = Commits if method == "reserve" else Attempts
    poison(owner, method, lambda self, unit, *a: "bad" in {one.key.name for one in unit}, after=after)
    guarded = Guarded()
    both = {GROUPS_KEY: '["bad","mate"]'}
    for name in ("bad", "mate"):
        guarded.cluster.submit(with_annotations(gang(name, pods=2, gpus=4), both))
    guarded.cluster.run().wait(5)
    assert guarded.defects
    assert guarded.n_free() == 16
    guarded.a_good_gang_starts(pods=2, gpus=8)


def test_a_gang_that_our_code_fails_on_before_it_is_found_bound_in_part_is_given_back_in_time(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    c.answer = lambda bind: "ok" if bind.name == "bad-0" else "hold"
    c.submit(gang("bad", pods=2, gpus=6)).run()
    with monkeypatch.context() as broken:
        broken.setattr(Leaving, "let_leave", fails)  # the first step of Reconciler.reconcile
        c.answer = lambda bind: "ok"
        c.restart().run().wait(c.settings.settle_s / 2 + 5.0)
    assert guarded.defects
    assert [one.name for one in c.all(ef.EvictPod)] == ["bad-0"]
    guarded.a_good_gang_starts()


def test_what_fails_by_its_deadline_is_not_tried_without_a_pause(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise Fault("always")

    monkeypatch.setattr(DriftAudit, "advance", fails)
    guarded.cluster.scheduler.audit.due.set("a pod", 0.0)
    guarded.cluster.wait(10)
    assert 0 < guarded.count("defects") <= 60
    guarded.a_good_gang_starts()


def test_a_half_bound_gang_that_our_code_fails_on_at_its_deadline_holds_nobody_up(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = guarded.cluster
    c.answer = lambda bind: "422" if bind.name == "bad-1" else "ok"
    c.submit(gang("bad", pods=2, gpus=6)).run()
    assert [pod.metadata.name for pod in c.pods.values() if pod.spec.node_name] == ["bad-0"]
    with monkeypatch.context() as broken:

        def fails(group: Group) -> bool:
            raise Fault("is_half_bound")

        broken.setattr(Group, "is_half_bound", property(fails))
        c.wait(c.settings.settle_s + 1.0)
    assert {one.about for one in guarded.defects} == {"d/bad", ""}
    guarded.a_good_gang_starts()


def overrunning(*names: str) -> Guarded:
    """Gangs that are evicted in half a minute, and the good one."""
    guarded = Guarded(settings=Settings(queueing=QueueingSettings(on_overrun="evict")))
    for name in names:
        guarded.cluster.submit(with_annotations(gang(name, pods=2, gpus=2), {WALLTIME_KEY: "600s"})).run()
    guarded.cluster.wait(600.0)
    return guarded


def evicted_gangs(guarded: Guarded) -> set[str]:
    return {one.name.rpartition("-")[0] for one in guarded.cluster.all(ef.EvictPod)}


@pytest.mark.parametrize("method", ["unwound", "evict_again"])
def test_a_gang_that_is_evicted_goes_also_where_our_code_fails_on_it(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = overrunning("bad")
    c = guarded.cluster
    c.evictions = "silent"
    with monkeypatch.context() as broken:
        broken.setattr(GroupOutcome, method, fails)
        c.wait(40.0)
    assert guarded.defects
    (group,) = c.groups()
    assert group.state is GroupState.UNWINDING
    c.clear().wait(5.0)
    assert {one.name for one in c.all(ef.EvictPod)} == {"bad-0", "bad-1"}, "they are asked to go again"


def test_of_two_gangs_that_have_to_go_one_that_our_code_fails_on_does_not_hold_up_the_other(
    poison: Any,
) -> None:
    poison(WalltimeEvictions, "act", lambda self, group: "bad" in group.key.name, after=False)
    guarded = overrunning("bad", "other")
    guarded.cluster.wait(40.0)
    assert guarded.defects
    assert evicted_gangs(guarded) == {"other"}


def test_a_pod_whose_repair_our_code_fails_on_does_not_hold_up_that_of_another(poison: Any) -> None:
    poison(DriftAudit, "_repair", lambda self, info: is_bad(info), after=False)
    guarded = Guarded(settings=Settings(devices=DeviceSettings(repair=True)))
    c = guarded.cluster
    for name in ("bad", "other"):
        c.submit(make_pod(name, gpus=1)).run()
        c.update(c.pod(name), metadata=replace(c.pod(name).metadata, annotations={}))
    c.wait(1.0)
    assert guarded.defects
    assert [one.name for one in c.all(ef.PatchPod)] == ["other"]
