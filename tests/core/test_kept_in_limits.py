"""A group that a limit of its queue keeps out is passed by its queue no more often than its bound."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_node
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GANG_KEY, START_KEY
from tests.core.queued import pods, queued, reconfigured
from tests.support.long import all_but
from tests.support.scenario import Cluster, gang, with_annotations

QUEUES = """
queues:
- {name: a, limit: {nvidia.com/gpu: 4}, namespaces: [a]}
- {name: b, namespaces: [b]}
"""
HARD = "queueing: {bound: {groups: 3, mode: hard}}" + QUEUES
SHADOW = "queueing: {bound: {groups: 3, mode: shadow}}" + QUEUES


def kept_out(ours: str = HARD) -> Cluster:
    """Four small pods of a run, and a gang of four that would be over the limit beside any of them waits."""
    c = queued(ours, nodes=2)
    c.submit(pods("a", "s0", "s1", "s2", "s3")).run()
    return c.submit(gang("wide", pods=4, namespace="a")).run().wait(1.0)


def come_and_go(c: Cluster, n: int, first: int = 4) -> None:
    """Of the small ones the oldest ends, and another comes."""
    for k in range(first, first + n):
        c.submit(pods("a", f"s{k}")).run()
        if small := [name for name in c.bound() if name.startswith("s")]:
            c.delete(min(small, key=lambda name: int(name[1:]))).run()
        c.wait(1.0)


def passed_by(c: Cluster) -> int:
    return sum(name.startswith("s") and int(name[1:]) >= 4 for name in c.bound())


@pytest.mark.parametrize("ours", [HARD, SHADOW], ids=["hard", "shadow"])
def test_a_gang_at_its_limit_is_passed_by_no_more_than_its_bound(ours: str) -> None:
    c = kept_out(ours)
    come_and_go(c, 20)
    is_through = all(f"wide-{k}" in c.bound() for k in range(4))
    assert is_through == (ours is HARD), "in shadow nothing is enforced"


def test_so_many_pass_and_then_room_is_kept_within_the_limit() -> None:
    c = kept_out()
    come_and_go(c, 3)
    assert passed_by(c) == 3
    c.submit(pods("a", "s9")).run().delete("s3").run().wait(2.0)
    assert "s9" not in c.bound()
    assert c.why("s9") == (
        "Fairness: queue a: 4 of 4 nvidia.com/gpu used, 4 kept for groups that are promised room or have"
        " been passed as often as allowed, needs 1"
    )
    told = explain(c.scheduler, c.group("wide"), c.now_s)
    assert "3 groups passed it there (at most 3 may), and what it needs is kept for it" in told.answer
    c.delete("s4", "s5", "s6").run().wait(2.0)
    assert {"wide-0", "wide-1", "wide-2", "wide-3"} <= {*c.bound()}
    assert c.scheduler.attempts.kept.limits.kept_out(c.group("wide")) is None


def test_another_queue_and_who_is_more_important_are_not_held_up() -> None:
    c = kept_out()
    come_and_go(c, 3)
    c.submit(pods("b", "other", gpus=2)).run()
    c.delete("s4").run()
    c.submit(pods("a", "urgent", priority=10)).run().wait(1.0)
    assert {"other", "urgent"} <= {*c.bound()}


BELOW_ONE = """
queues:
- name: both
  limit: {nvidia.com/gpu: 4}
  queues:
  - {name: a, namespaces: [a]}
  - {name: b, namespaces: [b]}
- {name: c, namespaces: [c]}
"""
HARD_BELOW_ONE = "queueing: {bound: {groups: 3, mode: hard}}" + BELOW_ONE


def come_and_go_beside(c: Cluster, n: int) -> None:
    """In queue b: the oldest ends, and another comes."""
    for k in range(4, 4 + n):
        c.submit(pods("b", f"s{k}")).run()
        if small := [name for name in c.bound() if name.startswith("s")]:
            c.delete(min(small, key=lambda name: int(name[1:]))).run()
        c.wait(1.0)


def below_one(ours: str) -> Cluster:
    """Queue b has all that is allowed to a and b together, and a gang of a waits."""
    c = queued(ours, nodes=2)
    c.submit(pods("b", "s0", "s1", "s2", "s3")).run()
    return c.submit(gang("wide", pods=4, namespace="a")).run().wait(1.0)


@pytest.mark.parametrize("mode", ["hard", "shadow"])
def test_a_limit_of_several_queues_holds_all_of_them_to_the_bound(mode: str) -> None:
    c = below_one(HARD_BELOW_ONE.replace("hard", mode))
    come_and_go_beside(c, 20)
    assert all(f"wide-{k}" in c.bound() for k in range(4)) == (mode == "hard")


def test_so_many_of_another_queue_pass_it_and_those_below_no_common_limit_go_on() -> None:
    c = below_one(HARD_BELOW_ONE)
    come_and_go_beside(c, 4)
    assert passed_by(c) == 3
    c.submit(pods("c", "other", gpus=4)).run().wait(1.0)
    assert "other" in c.bound()
    c.submit(pods("b", "urgent", priority=10)).run().wait(1.0)
    assert "urgent" in c.bound()


def test_a_queue_whose_turn_comes_first_by_now_goes_on_though_nothing_is_freed() -> None:
    """What is kept for a gang of a is kept from b only while a has used less."""
    c = below_one(HARD_BELOW_ONE)
    come_and_go_beside(c, 4)
    assert "s7" not in c.bound()
    assert "4 kept" in c.why("s7")
    c.submit(pods("a", "large", gpus=0, cpu="58")).run().wait(1.0)
    assert {"large", "s7"} <= {*c.bound()}


def test_a_group_that_its_own_queue_keeps_out_holds_up_no_other_queue() -> None:
    ours = HARD_BELOW_ONE.replace("{name: a,", "{name: a, limit: {nvidia.com/gpu: 3},")
    c = queued(ours, nodes=2)
    c.submit(pods("a", "r0", "r1"), pods("b", "s0")).run()
    c.submit(gang("wide", pods=3, namespace="a")).run().wait(1.0)
    come_and_go_beside(c, 12)
    assert {"r0", "r1", "s15"} <= {*c.bound()}
    own = c.scheduler.attempts.kept.limits.kept_out(c.group("wide"))
    assert own is not None
    assert own.n == 0


def test_what_leaves_room_beside_it_starts() -> None:
    c = queued(HARD, nodes=2)
    c.submit(pods("a", "s0", "s1", "s2")).run()
    c.submit(gang("wide", pods=2, namespace="a")).run().wait(1.0)
    for k in range(3, 6):
        c.submit(pods("a", f"s{k}")).delete(f"s{k - 3}").run().wait(1.0)
    c.submit(pods("a", "s6")).delete("s3", "s4").run().wait(1.0)
    assert {*c.bound()} == {"s5", "wide-0", "wide-1", "s6"}


@pytest.mark.parametrize("how", ["deleted", "edited", "a reload"])
def test_when_it_is_given_up_the_others_go_on_at_once(how: str) -> None:
    c = kept_out()
    come_and_go(c, 3)
    c.submit(pods("a", "s9")).run().delete("s4").run()
    assert "s9" not in c.bound()
    if how == "deleted":
        c.delete("wide-0", "wide-1", "wide-2", "wide-3")
    elif how == "edited":
        pod = c.pod("wide-0")
        own = {**(pod.metadata.annotations or {}), "gangsched.io/min-members": "5"}
        c.update(pod, metadata=replace(pod.metadata, annotations=own))
    else:
        reconfigured(c, SHADOW)
    c.run().wait(3.0)
    assert "s9" in c.bound()


def test_a_gang_that_never_fits_below_its_limit_holds_nobody_up() -> None:
    c = queued(HARD, nodes=2)
    c.submit(pods("a", "s0", "s1", "s2", "s3")).run()
    c.submit(gang("wide", pods=5, namespace="a")).run().wait(1.0)
    come_and_go(c, 12)
    assert passed_by(c) >= 4
    assert "a/wide" in c.group_names()


def test_nor_does_one_that_never_fits_below_its_own_while_one_above_it_has_no_room() -> None:
    ours = HARD_BELOW_ONE.replace("{name: a,", "{name: a, limit: {nvidia.com/gpu: 3},")
    c = queued(ours, nodes=2)
    c.submit(pods("b", "beside"), pods("a", "s0", "s1", "s2")).run()
    c.submit(gang("wide", pods=4, namespace="a")).run().wait(1.0)
    assert "queue a: needs 4 nvidia.com/gpu, more than its limit of 3: it never starts" in c.why("wide")
    come_and_go(c, 12)
    assert "s15" in c.bound()


@pytest.mark.parametrize("block", all_but(1, range(6)))
def test_in_a_storm_nobody_is_passed_more_often_than_the_bound(block: int) -> None:
    """Recounted: who came later to the queue, is no more important, and started first. On nodes there is
    room, and from the bound on there must be within the limit."""
    n_waited = 0
    for seed in range(block * 5, block * 5 + 5):
        rng = random.Random(seed)
        c = queued(HARD, nodes=4)
        came: list[str] = []
        n_passed: dict[str, int] = {}
        priority: dict[str, int] = {}
        size: dict[str, int] = {}
        through: set[str] = set()
        for k in range(80):
            if len(came) - len(through) >= 14:
                break  # so many are counted at a time
            name, n = f"g{k}", rng.choice((1, 1, 1, 1, 2, 3, 4))
            priority[name], size[name] = rng.choice((0, 0, 0, 1)), n
            came.append(name)
            c.submit(gang(name, pods=n, namespace="a", priority=priority[name])).run()
            running = [one for one in came if one in through and f"{one}-0" in c.bound()]
            if running and rng.random() < 0.8:
                gone = rng.choice(running)
                c.delete(*(pod.metadata.name for pod in [*c.pods.values()] if _of(pod) == gone)).run()
            c.wait(rng.choice((0.1, 0.5, 3.0)))
            new = [one for one in dict.fromkeys(map(_of, c.binds())) if one not in through]
            through.update(new)
            n_used = len(c.bound())
            for one in new:
                for other in came[: came.index(one)]:
                    if other in through or priority[one] > priority[other]:
                        continue
                    n_passed[other] = n_passed.get(other, 0) + 1
                    # What is more important may take what was left for it.
                    urgent = sum(size[each] for each in new if priority[each] > priority[other])
                    has_room = n_used - urgent + size[other] <= 4
                    assert n_passed[other] <= 3 or has_room, f"seed {seed}, step {k}: {one} passes {other}"
        n_waited += sum(n >= 3 for n in n_passed.values())
    assert n_waited > 20, "nobody came to the bound"


def _of(pod: Pod | str) -> str:
    return (pod if isinstance(pod, str) else pod.metadata.name).rpartition("-")[0]


def test_a_gang_that_was_bound_in_part_has_no_right_to_more_once_none_of_it_is_bound() -> None:
    c = queued(HARD, gpus=4)
    c.submit(pods("a", "s0"), pods("b", "other")).run()
    bound, rest = gang("wide", pods=2, gpus=2, namespace="a")
    noted = {GANG_KEY: "a/wide", START_KEY: '{"together":2,"needs":2,"newest":4000000000}'}
    [placed] = with_annotations([bound], noted)
    c.submit(rest, replace(placed, spec=replace(placed.spec, node_name="n0"))).restart().run()
    assert c.group("wide").is_completing
    c.delete("wide-0").run()
    c.submit(replace(bound, metadata=replace(bound.metadata, uid="uid-anew"))).run()
    c.node(make_node("n1", gpus=8)).run().wait(15.0)
    assert c.bound() == ["s0", "other"]
    assert "1 of 4 nvidia.com/gpu used, needs 4" in c.why("wide")
    c.delete("s0").run().wait(2.0)
    assert {"wide-0", "wide-1"} <= {*c.bound()}


@pytest.mark.parametrize("how", ["a member is made again", "its binds fail"])
def test_the_count_is_kept_while_it_cannot_be_tried_and_through_failed_binds(how: str) -> None:
    c = kept_out()
    come_and_go(c, 2)
    if how == "its binds fail":
        c.answer = lambda bind: "422"
        c.delete(*c.bound()).run()
        assert c.state("wide") == "backoff"
        c.answer = lambda bind: "ok"
        c.submit(pods("a", "s96", "s97", "s98", "s99")).run()
    else:
        c.delete("wide-0").run().submit(gang("wide", pods=1, min_members=4, namespace="a")).run()
    c.wait(2.0)
    line = c.scheduler.attempts.kept.limits.kept_out(c.group("wide"))
    assert line is not None
    assert line.n == 2


THREE_LEVELS = """
queueing: {bound: {groups: 3, mode: hard}}
queues:
- name: top
  limit: {nvidia.com/gpu: 4}
  queues:
  - name: team
    limit: {nvidia.com/gpu: 4}
    queues:
    - {name: a, namespaces: [a]}
  - {name: b, namespaces: [b]}
"""


@pytest.mark.parametrize("name", ["team", "top"])
def test_a_reload_that_renames_a_queue_above_it_fails_nobody_and_loses_no_count(name: str) -> None:
    c = queued(THREE_LEVELS, nodes=2)
    c.submit(pods("b", "s0", "s1", "s2", "s3")).run()
    c.submit(gang("wide", pods=4, namespace="a")).run().delete("s0").run()
    c.submit(pods("b", "s4")).run()
    reconfigured(c, THREE_LEVELS.replace(f"name: {name}", "name: renamed")).delete("s1")
    c.submit(pods("b", "s5")).run()
    assert "s5" in c.bound()
    assert "PluginFailed" not in c.reasons()
    line = c.scheduler.attempts.kept.limits.kept_out(c.group("wide"))
    assert line is not None
    assert line.n == 2


@pytest.mark.parametrize("before", ["1", "auto"])
@pytest.mark.parametrize("where", ["the settings'", "its queue's"])
def test_a_bound_that_a_reload_brings_holds_for_who_waits_already(before: str, where: str) -> None:
    c = kept_out(HARD.replace("groups: 3", f"groups: {before}"))
    come_and_go(c, 1)
    queues = QUEUES.replace("name: a", "name: a, bound: 4") if where == "its queue's" else QUEUES
    groups = before if where == "its queue's" else "4"
    reconfigured(c, f"queueing: {{bound: {{groups: {groups}, mode: hard}}}}{queues}")
    come_and_go(c, 3, first=5)
    assert passed_by(c) == 4
    c.submit(pods("a", "s8")).run().delete("s4").run().wait(2.0)
    assert "s8" not in c.bound(), "what wide needs is kept for it"
