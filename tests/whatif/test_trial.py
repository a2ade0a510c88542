"""What if: the trial of a job on a snapshot, against what happens when it is then submitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.command.snapshot import Snapshot
from gangsched.config import Settings
from gangsched.errors import ConfigError
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import OwnerReference, Pod
from gangsched.whatif.answer import Answer
from gangsched.whatif.manifests import Manifests
from gangsched.whatif.question import Question, check, examine
from tests.support.scenario import Cluster, cluster, gang, with_annotations

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
NO_EVICTION = Settings(allow_eviction=False)


def snapshot_of(c: Cluster, settings: Settings = NO_EVICTION) -> Snapshot:
    """What a list would show of it now, told to a core of its own."""
    core = make_scheduler(settings)
    nodes, pods = tuple(c.nodes.values()), tuple(c.pods.values())
    core.handle([ev.NodeAdded(node) for node in nodes], 1.0)
    core.handle([ev.PodAdded(pod) for pod in pods], 1.0)
    core.handle([ev.KindSynced(kind) for kind in core.kinds], 1.0)
    return Snapshot(core, nodes, pods, (), ())


def whatif(c: Cluster, *pods: Pod, settings: Settings = NO_EVICTION, **flags: Any) -> Answer:
    return examine(Question(**flags), snapshot_of(c, settings), Manifests(list(pods), ()), 1.0, NOW)


def running(name: str, *, since: timedelta, walltime: str = "", **more: Any) -> Pod:
    pod = make_pod(name, annotations={"gangsched.io/walltime": walltime} if walltime else None, **more)
    return replace(pod, status=replace(pod.status, phase="Running", start_time=NOW - since))


def test_where_each_member_would_go_and_with_which_devices() -> None:
    found = whatif(cluster(nodes=2), *gang("a", pods=2, gpus=8))
    (one,) = found.gangs
    assert (one.name, one.starts, found.starts_now) == ("d/a", "now", True)
    assert {member.node for member in one.members} == {"n0", "n1"}
    for member in one.members:
        assert sorted(member.devices["nvidia.com/gpu"]) == [f"GPU-{member.node}-{k}" for k in range(8)]


def test_what_nobody_would_read_is_reported_even_if_the_gang_would_start() -> None:
    found = whatif(cluster(nodes=2), *with_annotations(gang("a", pods=2), {"gangsched.io/waltime": "4h"}))
    assert (found.gangs[0].starts, found.gangs[0].ignored) == (
        "now",
        [
            "Correct what is ignored: pod d/a-0: annotation gangsched.io/waltime is ignored; did you mean"
            " gangsched.io/walltime?"
        ],
    )


def test_why_it_would_not_and_what_would_help() -> None:
    found = whatif(cluster(nodes=1), *gang("a", pods=2, gpus=8))
    (one,) = found.gangs
    assert one.starts == "not"
    assert one.why is not None
    assert "1 of 2 members fit" in one.why.answer
    assert any("Add 1 such node" in cure for cure in one.why.cures)
    assert whatif(cluster(nodes=1), *gang("a", pods=2, gpus=8), add_nodes=1, like="n0").starts_now


def test_a_drained_node_takes_nothing_and_its_pods_make_room_nowhere() -> None:
    c = cluster(nodes=2).submit(make_pod("old", gpus=8)).run()
    where = c.pod("old").spec.node_name
    found = whatif(c, *gang("a", pods=2, gpus=8), drain=[where])
    assert found.changes == [f"{where} drained, 1 pod gone from it"]
    assert not found.starts_now


def test_without_a_gang_there_is_its_room() -> None:
    c = cluster(nodes=1).submit(gang("old", pods=2, gpus=4)).run()
    job = gang("a", pods=1, gpus=8)
    assert not whatif(c, *job).starts_now
    found = whatif(c, *job, without=["d/old"])
    assert (found.starts_now, found.changes) == (True, ["without d/old, 2 pods"])


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"drain": ["n9"]}, "--drain n9: there is no such node"),
        (
            {"without": ["d/odl"]},
            "--without d/odl: there is no such gang and no such pod; did you mean d/old?",
        ),
        ({"add_nodes": 1, "like": "no"}, "--like no: there is no such node"),
        ({"add_nodes": -1, "like": "n0"}, "--add-nodes -1 is not within 1 to"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused(flags: dict[str, Any], error: str) -> None:
    c = cluster(nodes=1).submit(gang("old", pods=2, gpus=4)).run()
    with pytest.raises(ConfigError) as raised:
        whatif(c, make_pod("a"), **flags)
    assert error in str(raised.value)


def test_a_job_that_is_submitted_already_is_not_asked_about_twice() -> None:
    """Pods of one Job are one gang: those asked about would be members beside those that wait."""
    owned = (OwnerReference("batch/v1", "Job", "train", "u1", controller=True),)

    def of_job(pods: list[Pod]) -> list[Pod]:
        return [replace(pod, metadata=replace(pod.metadata, owner_references=owned)) for pod in pods]

    c = cluster(nodes=1).submit(of_job(gang("train", pods=2, gpus=8))).run()
    again = of_job([make_pod("train-x")])
    with pytest.raises(ConfigError, match=r"Job d/train exists already, with 2 pods, .* another name"):
        check(Manifests(again, ()), snapshot_of(c), ["gangsched"], way="")
    check(Manifests([make_pod("train-x")], ()), snapshot_of(c), ["gangsched"], way="")


def test_who_waits_before_it_is_placed_before_it() -> None:
    c = cluster(nodes=1).submit(make_pod("big", gpus=8)).run()
    c.submit(make_pod("first", gpus=8)).run()
    c.delete("big")  # the scheduler has not decided again
    found = whatif(c, make_pod("a", gpus=8))
    assert not found.starts_now


def test_when_it_would_start_follows_from_stated_ends() -> None:
    c = cluster(nodes=2)
    c.submit(running("long", since=timedelta(hours=1), walltime="4h", gpus=8)).run()
    c.submit(running("short", since=timedelta(hours=1), walltime="90m", gpus=8)).run()
    (one,) = whatif(c, make_pod("a", gpus=8)).gangs
    assert (one.starts, one.in_s, one.after) == ("later", 1800.0, ["d/short"])
    assert one.at == NOW + timedelta(minutes=30)
    (both,) = whatif(c, *gang("b", pods=2, gpus=8)).gangs
    assert (both.starts, both.in_s, both.after) == ("later", 10_800.0, ["d/short", "d/long"])


def test_where_nobody_states_an_end_it_reports_that() -> None:
    c = cluster(nodes=1).submit(running("service", since=timedelta(hours=1), gpus=8)).run()
    found = whatif(c, make_pod("a", gpus=8))
    assert (found.gangs[0].starts, found.endless) == ("not", 1)


def test_it_lists_the_pods_that_it_would_evict_and_evicts_only_if_asked() -> None:
    c = cluster(nodes=1).submit(gang("old", pods=2, gpus=4)).run()
    job = make_pod("urgent", gpus=4, priority=10)
    assert whatif(c, job).gangs[0].starts == "not"
    found = whatif(c, job, settings=Settings())
    assert found.starts_now
    assert found.evicted == ["d/old-0", "d/old-1"], "a gang with fewer running does no work"


def test_what_the_core_refuses_has_its_reason() -> None:
    pods = with_annotations(gang("a", pods=2), {"gangsched.io/topology": "nonsense: ["})
    (one, *_) = whatif(cluster(nodes=1), *pods).gangs
    assert one.starts == "not"
    assert one.why is not None
    assert "topology" in one.why.answer + one.why.told


@pytest.mark.parametrize("seed", range(100))
def test_it_agrees_with_what_then_happens(seed: int) -> None:
    """Random clusters with others' pods on them; five random jobs each, asked about and then submitted."""
    rng = Random(seed)
    c = Cluster()
    for i in range(rng.randint(2, 6)):
        c.node(make_node(f"n{i}", gpus=rng.choice((2, 4, 8)), rack=f"r{rng.randrange(2)}"))
    for k in range(rng.randint(0, 6)):
        c.submit(gang(f"other{k}", pods=rng.randint(1, 4), gpus=rng.choice((1, 2, 4)))).run()
    for k in range(5):
        size, gpus = rng.randint(1, 6), rng.choice((1, 2, 4, 8))
        job = gang(f"job{k}", pods=size, gpus=gpus)
        found = whatif(c, *job)
        c.submit(job).run()
        started = c.placed(f"job{k}")
        assert found.starts_now == started, f"seed {seed}, job {k}: {size} of {gpus}"
        if started:
            members = found.gangs[0].members
            told = {one.name: (one.node, set(one.devices["nvidia.com/gpu"])) for one in members}
            names = [pod.metadata.name for pod in job]
            assert told == {name: (c.pod(name).spec.node_name, c.ids(name)) for name in names}, f"seed {seed}"
        if rng.random() < 0.4:
            names = sorted(pod.metadata.name for pod in c.pods.values())
            gone = rng.choice(names).rpartition("-")[0]
            c.delete(*(name for name in names if name.rpartition("-")[0] == gone)).run()
            c.wait(20.0)  # who waited has been tried again


def test_a_walltime_of_ten_thousand_years_is_no_end_to_wait_for() -> None:
    c = cluster(nodes=1)
    pod = running("old", since=timedelta(), walltime="99999999h", gpus=8)
    c.submit(replace(pod, spec=replace(pod.spec, node_name="n0")))
    found = whatif(c, *gang("a", pods=1, gpus=8))
    assert ([(one.starts, one.at) for one in found.gangs], found.endless) == ([("not", None)], 1)


def test_a_pod_that_is_preempted_while_ends_are_waited_for_does_not_end_again() -> None:
    c = cluster(nodes=2)
    for name, node, walltime, priority in (("p", "n0", "10s", 100), ("q", "n1", "20s", 0)):
        pod = running(name, since=timedelta(), walltime=walltime, gpus=8, priority=priority)
        c.submit(replace(pod, spec=replace(pod.spec, node_name=node)))
    # x needs the end of p, which it may not preempt, and preempts q then; y waits for the end of q too.
    job = [*gang("x", pods=2, gpus=8, priority=50), *gang("y", pods=3, gpus=8, priority=10)]
    found = whatif(c, *job, settings=Settings(allow_eviction=True), preempt=True)
    assert [(one.name, one.starts, one.in_s, one.after) for one in found.gangs] == [
        ("d/x", "later", 10.0, ["d/p"]),
        ("d/y", "not", None, []),
    ]
