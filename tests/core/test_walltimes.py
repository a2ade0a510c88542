"""How long a group runs: by what it says, by what it did before, by default; and what cannot be read."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.queueing import walltimes
from gangsched.core.queueing.walltimes import kind_name
from gangsched.lab.sim.objects import at, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, OwnerReference, Pod
from gangsched.model.pod_group import COSCHEDULING_LABEL
from gangsched.model.walltime import (
    KUEUE_WALLTIME_LABEL,
    SLURM_WALLTIME_KEY,
    WALLTIME_KEY,
    Walltime,
    pod_walltime,
)
from tests.core.queued import pods, queued, reconfigured
from tests.support.scenario import Cluster, cluster, gang, with_annotations

DAY_S = 86_400.0


def queueing(default_s: float = 0.0) -> Cluster:
    defaults = {"gangsched": default_s} if default_s else {}
    return cluster(settings=Settings(queueing=QueueingSettings(default_walltime_s=defaults)))


def of(c: Cluster, name: str) -> Walltime:
    return c.walltimes().walltime(c.group(name))


def recorded(c: Cluster) -> list[ef.RecordEvent]:
    return [one for one in c.all(ef.RecordEvent) if one.reason == "WalltimeUnread"]


def pod(**more: Any) -> Pod:
    """labels, annotations, deadline and owner, where given."""
    made = make_pod("p")
    meta, spec = made.metadata, made.spec
    owner = more.get("owner")
    owners = None if owner is None else [OwnerReference("apps/v1", owner, "o", "u", True)]
    return replace(
        made,
        metadata=replace(
            meta, labels=more.get("labels"), annotations=more.get("annotations"), owner_references=owners
        ),
        spec=replace(spec, active_deadline_seconds=more.get("deadline")),
    )


# -- what a pod says -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "seconds", "source"),
    [
        ({}, math.inf, "never"),
        ({"annotations": {WALLTIME_KEY: "4h"}}, 4 * 3600, "stated"),
        ({"annotations": {WALLTIME_KEY: "1h30m"}}, 5400, "stated"),
        ({"annotations": {SLURM_WALLTIME_KEY: "5"}}, 300, "stated"),
        ({"labels": {KUEUE_WALLTIME_LABEL: "90"}}, 90, "stated"),
        ({"annotations": {WALLTIME_KEY: "1m", SLURM_WALLTIME_KEY: "5"}}, 60, "stated"),
        ({"deadline": 100}, 100, "enforced"),
        ({"deadline": 100, "annotations": {WALLTIME_KEY: "1m"}}, 60, "stated"),
        ({"deadline": 30, "annotations": {WALLTIME_KEY: "1m"}}, 30, "enforced"),
        ({"owner": "Job", "deadline": 30}, 30, "enforced"),
        ({"owner": "ReplicaSet", "annotations": {WALLTIME_KEY: "1m"}}, math.inf, "never"),
        ({"owner": "DaemonSet", "annotations": {WALLTIME_KEY: "1m"}}, math.inf, "never"),
    ],
)
def test_a_pod_says_how_long_it_runs(said: dict[str, Any], seconds: float, source: str) -> None:
    found = pod_walltime(pod(**said))
    assert (found.seconds, found.source, found.problems) == (seconds, source, ())


@pytest.mark.parametrize("text", ["", "4 hours", "-1h", "0s", "inf", "1e9", "9" * 400 + "h", "\x00"])
def test_what_cannot_be_read_is_named_and_the_next_statement_counts(text: str) -> None:
    found = pod_walltime(pod(annotations={WALLTIME_KEY: text, SLURM_WALLTIME_KEY: "5"}))
    assert (found.seconds, found.source) == (300, "stated")
    [problem] = found.problems
    assert problem.startswith(f"metadata.annotations: {WALLTIME_KEY}")
    assert len(problem) < 300


@pytest.mark.parametrize("text", ["1h", "0", "-5", "1.5", "9" * 30])
def test_minutes_of_slurm_are_whole_numbers(text: str) -> None:
    found = pod_walltime(pod(annotations={SLURM_WALLTIME_KEY: text}, deadline=7))
    assert (found.seconds, found.source) == (7, "enforced")
    assert "is not a whole number of minutes above 0" in found.problems[0]


# -- what a group makes of it --------------------------------------------------------------------------


def test_a_gang_runs_as_long_as_its_longest_member() -> None:
    short, long = gang("a", pods=2)
    c = queueing().submit(
        with_annotations([short], {WALLTIME_KEY: "1h"}), with_annotations([long], {WALLTIME_KEY: "2h"})
    )
    assert of(c, "a").seconds == 7200
    c = queueing().submit(with_annotations([short], {WALLTIME_KEY: "1h"}), long)
    assert of(c, "a").source == "never"


def test_its_object_goes_before_its_pods_and_can_be_extended() -> None:
    c = queueing()

    def say(text: str) -> None:
        written = {WALLTIME_KEY: text}
        c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}, annotations=written))

    say("3h")
    pods = [make_pod(f"a-{k}", labels={COSCHEDULING_LABEL: "a"}) for k in range(2)]
    c.submit(with_annotations(pods, {WALLTIME_KEY: "1h"})).run()
    assert c.placed("a")
    assert (of(c, "a").seconds, of(c, "a").field) == (3 * 3600, f"metadata.annotations: {WALLTIME_KEY}")
    say("5h")
    assert of(c, "a").seconds == 5 * 3600
    say("soon")
    assert of(c, "a").seconds == 3600
    assert of(c, "a").problems[0].startswith(f"PodGroup: metadata.annotations: {WALLTIME_KEY}")


def test_a_running_pod_is_extended_by_editing_it() -> None:
    c = queueing().submit(with_annotations([make_pod("p")], {WALLTIME_KEY: "1h"})).run()
    [edited] = with_annotations([c.pod("p")], {WALLTIME_KEY: "2h"})
    c.update(edited)
    assert of(c, "p").seconds == 7200


def test_a_group_that_states_no_walltime_has_the_profiles_default() -> None:
    c = queueing(DAY_S).submit(make_pod("p"), with_annotations([make_pod("q")], {WALLTIME_KEY: "1h"}))
    assert of(c, "p") == Walltime(DAY_S, "default", "defaultWalltime")
    assert of(c, "q").seconds == 3600


def test_a_statement_that_cannot_be_read_is_reported_once_and_refuses_no_pod() -> None:
    c = queueing(DAY_S).submit(with_annotations(gang("a", pods=2, gpus=8), {WALLTIME_KEY: "4 hours"}))
    c.run().wait(60.0)
    assert c.placed("a")
    [event] = recorded(c)
    assert event.message == (
        "its walltime counts as not stated: pod a-0: metadata.annotations: gangsched.io/walltime: "
        "'4 hours' is not a duration; examples: 90s, 5m, 1h30m"
    )
    assert of(c, "a").source == "default"
    c = cluster().submit(with_annotations(gang("a", pods=2, gpus=8), {WALLTIME_KEY: "4 hours"})).run()
    assert not recorded(c)


# -- what was learned ----------------------------------------------------------------------------------


def ended(c: Cluster, name: str, *, began_s: float, ended_s: float, phase: str = "Succeeded") -> None:
    """kubelet's last word about a pod."""
    known = c.pod(name)
    ready = Condition(type="Ready", status="False", last_transition_time=at(ended_s))
    status = replace(known.status, phase=phase, start_time=at(began_s), conditions=[ready])
    c.update(known, status=status)


def ran(c: Cluster, name: str, *, began_s: float, took_s: float, pods: int = 1, **more: Any) -> None:
    """A gang that starts, ends and is gone."""
    c.submit(gang(name, pods=pods, **more)).run()
    for k in range(pods):
        ended(c, f"{name}-{k}", began_s=began_s + k, ended_s=began_s + took_s)
    c.delete(*(f"{name}-{k}" for k in range(pods))).run()


def test_the_last_two_runs_of_a_kind_tell_how_long_the_next_will_take() -> None:
    c = queueing(DAY_S)
    for i, took_s in enumerate((1000.0, 100.0, 200.0)):
        ran(c, f"train-{i}", began_s=10_000.0 * i, took_s=took_s, pods=2, gpus=4)
    c.submit(gang("train-7", pods=2, gpus=4), gang("train-8", pods=2, gpus=2), gang("eval-1", pods=2, gpus=4))
    assert of(c, "train-7") == Walltime(150.0, "predicted", "the last runs of its kind")
    assert of(c, "train-8").source == "default"
    assert of(c, "eval-1").source == "default"


def test_what_failed_teaches_nothing() -> None:
    c = queueing().submit(make_pod("job-1")).run()
    ended(c, "job-1", began_s=10.0, ended_s=20.0, phase="Failed")
    c.submit(make_pod("job-2"))
    assert of(c, "job-2").source == "never"


def test_a_new_process_learns_from_the_pods_that_are_listed() -> None:
    c = queueing().submit(make_pod("job-1")).run()
    ended(c, "job-1", began_s=10.0, ended_s=70.0)
    c.restart().submit(make_pod("job-2"))
    assert of(c, "job-2").seconds == 60.0


def test_a_gang_of_the_same_name_that_runs_again_is_another_run() -> None:
    c = queueing()
    ran(c, "train", began_s=0.0, took_s=100.0, pods=2)
    ran(c, "train", began_s=5000.0, took_s=300.0, pods=2)
    c.submit(gang("train", pods=2))
    assert of(c, "train").seconds == 200.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train-7", "train"),
        ("resnet50-x7k2p", "resnet"),
        ("nightly-28439520", "nightly"),
        ("a-b-5d4f8c9b7d-x2k4z", "a-b"),
        ("12345", "12345"),
        ("train", "train"),
    ],
)
def test_a_kind_is_a_name_without_numbers_and_suffixes(name: str, kind: str) -> None:
    assert kind_name(name) == kind


def test_who_waits_learns_from_a_run_that_ends_meanwhile() -> None:
    c = queueing(DAY_S).submit(gang("train-1", pods=2)).run().submit(gang("train-2", pods=2, gpus=8))
    c.submit(gang("train-3", pods=2))
    assert of(c, "train-3").source == "default"
    for k, took_s in enumerate((100.0, 101.0)):
        ended(c, f"train-1-{k}", began_s=0.0, ended_s=took_s)
    assert of(c, "train-3") == Walltime(101.0, "predicted", "the last runs of its kind")


def test_other_defaults_are_in_effect_at_once() -> None:
    c = queueing(DAY_S).submit(gang("a", pods=2))
    assert of(c, "a").seconds == DAY_S
    other = QueueingSettings(default_walltime_s={"gangsched": 60.0})
    c.reconfigure(replace(c.settings, queueing=other))
    assert of(c, "a").seconds == 60.0


def test_other_defaults_are_in_effect_for_those_that_run() -> None:
    c = queueing(DAY_S).submit(gang("a", pods=1), with_annotations(gang("b", pods=1), {WALLTIME_KEY: "1h"}))
    c.run()
    a, b = (next(iter(c.group(name).members.values())) for name in "ab")
    assert (c.end_s(a), c.end_s(b)) == (1.0 + DAY_S, 3601.0)
    other = QueueingSettings(default_walltime_s={"gangsched": 7200.0})
    c.reconfigure(replace(c.settings, queueing=other))
    assert (c.end_s(a), c.end_s(b)) == (7201.0, 3601.0)


def test_a_pod_that_is_reserved_once_more_runs_from_then_on() -> None:
    c = queueing()
    c.answer = lambda bind: "hold"
    c.submit(with_annotations([make_pod("a")], {WALLTIME_KEY: "600s"})).run()
    [info] = c.pod_infos().values()
    assert c.end_s(info) == 601.0
    [bind], c.now_s = c.held_binds, 300.0
    c.tell(ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", "not now")).wait(10.0)
    assert [one.attempt for one in c.held_binds] == [1, 2]
    assert c.end_s(info) == pytest.approx(901.0, abs=10.0)


def test_members_are_read_once_however_many_of_them_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a gang that states nothing; once bound they differ, as each has its own rank."""
    n_read = 0

    def counted(pod: Pod) -> Walltime:
        nonlocal n_read
        n_read += 1
        return pod_walltime(pod)

    monkeypatch.setattr(walltimes, "pod_walltime", counted)
    c = queueing().submit(gang("a", pods=32)).run()
    assert c.placed("a")
    shared, n_read = c.scheduler.shared, 0
    assert shared.ends is not None
    for info in c.group("a").members.values():
        shared.ends.end(info, c.now_s, None)
    assert n_read <= 32


def test_all_members_end_sooner_when_the_longest_of_them_says_so() -> None:
    c = queueing()
    items = gang("a", pods=2)
    c.submit(
        [
            with_annotations([one], {WALLTIME_KEY: said})[0]
            for one, said in zip(items, ("2h", "10m"), strict=True)
        ]
    )
    c.run()
    shared = c.scheduler.shared
    assert shared.ends is not None
    began_s = c.now_s

    def ends() -> list[float]:
        assert shared.ends is not None
        members = c.group("a").members.values()
        found = [shared.ends.end(info, c.now_s, None).at_s - began_s for info in members]
        assert found == [shared.ends.expected(info, c.now_s, None).at_s - began_s for info in members]
        return found

    assert ends() == pytest.approx([7200.0, 7200.0], abs=1.0)
    first = c.pod("a-0")
    own = {**(first.metadata.annotations or {}), WALLTIME_KEY: "20m"}
    c.update(first, metadata=replace(first.metadata, annotations=own)).run()
    assert ends() == pytest.approx([1200.0, 1200.0], abs=1.0)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_remembered_is_what_asking_again_says(seed: int) -> None:
    """While pods come, go, are edited, and end, so that kinds are learned."""
    rng = Random(seed)
    c = queueing(600.0 if seed % 2 else 0.0)
    for step in range(80):
        name = f"{rng.choice('abc')}-{rng.randrange(3)}"
        there = [pod for pod in c.pods.values() if pod.metadata.name == name]
        said = rng.choice(("", "20s", "1h", "2h", "soon"))
        if not there:
            made = make_pod(name, group=name[0], min_members=1, gpus=1)
            c.submit(with_annotations([made], {WALLTIME_KEY: said}) if said else made)
        elif rng.random() < 0.2:
            c.delete(name)
        elif rng.random() < 0.3:
            c.run()
            if c.pod(name).spec.node_name:
                ended(c, name, began_s=10.0, ended_s=10.0 + rng.randrange(1, 999))
        else:
            own = {WALLTIME_KEY: said} if said else {}
            c.update(there[0], metadata=replace(there[0].metadata, annotations=own))
        for group in c.groups():
            remembered = c.walltimes().walltime(group)
            assert remembered == c.walltimes()._asked(group)[0], f"seed {seed}, step {step}, {group}"


def test_a_queues_other_default_counts_at_once_for_who_waits_and_was_passed() -> None:
    ours = (
        "queueing: {bound: {groups: 3, mode: shadow}}\n"
        "queues: [{name: a, order: shortest, defaultWalltime: 20s, namespaces: [a]}]\n"
    )
    c = queued(ours, nodes=1)
    c.submit(pods("a", "runs", gpus=4)).run()
    c.submit(pods("a", "wide", gpus=8)).run().wait(1.0)
    c.submit(pods("a", "passes", gpus=2)).run()
    reconfigured(c, ours.replace("20s", "2h"))
    known = c.walltimes()
    assert {known.walltime(group).seconds for group in c.groups()} == {7200.0}
