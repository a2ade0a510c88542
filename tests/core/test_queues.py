"""Queues: who has the next turn, who is kept out by a limit, and which queue a pod is in."""

from __future__ import annotations

import math
import random

import pytest
from msgspec.structs import replace

from gangsched.core.cache.queues import book
from gangsched.core.cache.queues.tree import OTHERS, QUEUE_KEY
from gangsched.core.explaining.explain import explain
from gangsched.core.state.line import queue as line
from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.model import events as ev
from gangsched.model.effects import BindPod
from gangsched.model.objects import CustomObject
from gangsched.model.pod_group import COSCHEDULING_LABEL, STARTED_IN_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import GPU, pods, queued, reconfigured
from tests.support.scenario import Cluster, gang, with_annotations

TWO = """
fairness: {compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 2, namespaces: [a]}
- {name: b, share: 1, namespaces: [b, "b-*"]}
"""
LIMITED = """
queues:
- name: research
  limit: {nvidia.com/gpu: 6}
  queues:
  - {name: nlp, namespaces: [nlp]}
  - {name: cv, limit: {nvidia.com/gpu: 4}, namespaces: [cv]}
- {name: rest, namespaces: ["*"]}
"""


CHOICE = """
queues:
- {name: one, namespaces: [x]}
- {name: two, namespaces: ["x*"]}
- {name: b, namespaces: [b]}
"""


def held(c: Cluster, queue: str) -> int:
    return c.queue_book().used(queue).get(GPU, 0)


# -- whose turn it is ------------------------------------------------------------------------------------


def test_shares_two_to_one_alternate_by_what_the_queues_hold() -> None:
    c = queued(TWO, gpus=6)
    for k in range(6):
        c.submit(pods("b", f"b{k}")).submit(pods("a", f"a{k}"))
    c.run()
    assert (held(c, "a"), held(c, "b")) == (4, 2)


def test_a_backoff_keeps_no_queue_from_its_share_while_another_makes_new_pods() -> None:
    """Three of a's pods were refused twice, so that they back off for 2 s; each freed GPU comes with a new
    pod of b, which backs off for nothing."""
    c = queued(TWO, gpus=6)
    c.submit(pods("b", *(f"b{k}" for k in range(6)))).run()
    c.submit(pods("a", *(f"a{k}" for k in range(4)))).run()
    c.wait(1.2).delete("b0").run()
    c.wait(1.2).submit(pods("b", "new1")).delete("b1").wait(0.0)
    assert c.bound() == ["b2", "b3", "b4", "b5", "a0", "a1"]


def test_no_newer_pod_takes_what_is_freed_for_the_first_of_another_queue_in_backoff() -> None:
    c = queued(TWO, gpus=6)
    c.submit(pods("b", *(f"b{k}" for k in range(6)))).run()
    c.submit(pods("a", "a0")).run()
    c.wait(0.05).submit(pods("b", "new")).delete("b0").run()
    assert "a0" in c.bound()
    assert "new" not in c.bound()


def test_among_many_queues_what_is_freed_is_offered_to_the_first_that_it_is_enough_for() -> None:
    """Of 40 queues, all in backoff: each turn in vain would cost as much as one that starts a pod."""
    many = "".join(f"- {{name: q{k}, namespaces: [q{k}]}}\n" for k in range(40))
    c = queued(f"fairness: {{compare: [nvidia.com/gpu]}}\nqueues:\n{many}", gpus=6)
    c.submit(pods("q0", *(f"first{k}" for k in range(6)))).run()
    c.submit(*(pods(f"q{k}", f"pod{k}") for k in range(1, 40))).run()
    before = c.scheduler.statistics()["attempts"]
    for k in range(2):
        c.wait(0.1).delete(f"first{k}").run()
        assert len([name for name in c.bound() if name.startswith("pod")]) == k + 1
    assert c.scheduler.statistics()["attempts"] == before + 2


def test_what_is_freed_after_all_have_been_refused_stands_idle_for_nobodys_backoff() -> None:
    """All are tried for the first GPU that is freed, and all but one refused: they back off for 2 s."""
    c = queued(TWO, gpus=6)
    c.submit(pods("a", *(f"a{k}" for k in range(8))), pods("b", *(f"b{k}" for k in range(8)))).run()
    assert (held(c, "a"), held(c, "b")) == (4, 2)
    c.wait(1.1).delete("a0").run().wait(0.0)
    assert (held(c, "a"), held(c, "b")) == (4, 2)
    for name in ("a1", "b0", "a2"):
        c.wait(0.2).delete(name).run().wait(0.0)
        assert (held(c, "a"), held(c, "b")) == (4, 2)


@pytest.mark.parametrize("most_pairs", [20_000, 0])
def test_all_that_is_freed_at_once_goes_to_as_many_in_backoff(
    most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many things changed for many groups, one had its turn, and the others waited for theirs."""
    monkeypatch.setattr(line, "_MAX_PAIRS", most_pairs)
    c = queued(TWO).submit(pods("a", *(f"a{k}" for k in range(8)))).run()
    c.submit(pods("b", *(f"b{k}" for k in range(4)))).run()
    c.tell(*(ev.PodDeleted(c.pods.pop(c.pod(f"a{k}").metadata.uid)) for k in range(4))).run()
    assert held(c, "b") == 4


def test_backoffs_that_end_nearly_together_leave_the_turn_to_the_shares() -> None:
    """All of a's pods are tried before b's, as ties of shares go by name; the node's devices come later."""
    c = queued(TWO, nodes=0)
    c.submit(pods("a", *(f"a{k}" for k in range(8)))).run()
    c.wait(0.02).submit(pods("b", *(f"b{k}" for k in range(8)))).run()
    c.wait(0.1).node(make_node("n0", gpus=6)).run()
    assert (held(c, "a"), held(c, "b")) == (4, 2)


@pytest.mark.parametrize("more_s", [0.0, 0.4])
def test_a_node_that_comes_during_backoffs_is_shared_at_once(more_s: float) -> None:
    """What frees room ends the backoff of the first of each lane; a node frees room for more than one."""
    c = queued(TWO, nodes=0)
    c.submit(pods("a", *(f"a{k}" for k in range(8))), pods("b", *(f"b{k}" for k in range(8)))).run()
    c.wait(1.1).node(make_node("small", gpus=1)).run()
    c.wait(1.1 + more_s).node(make_node("n0", gpus=5)).run().wait(0.0)
    assert (held(c, "a"), held(c, "b")) == (4, 2)


def test_a_queue_below_its_guarantee_goes_before_the_smallest_share() -> None:
    c = queued(
        "queues:\n"
        "- {name: a, share: 100, namespaces: [a]}\n"
        "- {name: b, share: 0.01, guaranteed: {nvidia.com/gpu: 3}, namespaces: [b]}\n",
        gpus=4,
    )
    for k in range(4):
        c.submit(pods("a", f"a{k}")).submit(pods("b", f"b{k}"))
    c.run()
    assert (held(c, "a"), held(c, "b")) == (1, 3)


def test_a_guarantee_counts_with_the_head_included() -> None:
    """A gang of 2 does not stay within a guarantee of 3 that is used up to 2."""
    c = queued(
        "queues:\n"
        "- {name: a, namespaces: [a]}\n"
        "- {name: b, share: 0.01, guaranteed: {nvidia.com/gpu: 3}, namespaces: [b]}\n",
        gpus=4,
    )
    c.submit(pods("b", "first", gpus=2)).run()
    c.submit(gang("two", pods=2, namespace="b")).submit(pods("a", "small", gpus=2)).run()
    assert c.bound() == ["first", "small"]


def test_siblings_share_what_their_parent_is_due() -> None:
    c = queued(
        "queues:\n"
        "- {name: team, share: 1, queues: [{name: x, namespaces: [x]}, {name: y, namespaces: [y]}]}\n"
        "- {name: z, share: 1, namespaces: [z]}\n",
        gpus=8,
    )
    for k in range(8):
        c.submit(*(pods(ns, f"{ns}{k}") for ns in "xyz"))
    c.run()
    assert (held(c, "x"), held(c, "y"), held(c, "z"), held(c, "team")) == (2, 2, 4, 4)


def test_priority_orders_inside_a_queue_and_not_across() -> None:
    c = queued(TWO, gpus=3)
    c.submit(pods("b", "b-low"), pods("b", "b-high", priority=9, preempts=False))
    c.submit(pods("b", "b-higher", priority=10, preempts=False))
    c.submit(pods("a", "a0"), pods("a", "a1")).run()
    assert sorted(c.bound()) == ["a0", "a1", "b-higher"]


def test_pods_that_the_cluster_needs_go_first_and_kueues_labels_count_for_nothing() -> None:
    c = queued(TWO, gpus=2)
    kueue = {"kueue.x-k8s.io/queue-name": "user-queue", "kueue.x-k8s.io/managed": "true"}
    c.submit(pods("a", "a0"), pods("b", "by-kueue", labels=kueue))
    c.submit(pods("b", "system", priority=2_000_000_000)).run()
    assert sorted(c.bound()) == ["a0", "system"]
    c.delete("system").run().wait(5.0)
    assert held(c, "b") == 1


def test_shortest_first_inside_a_queue_that_says_so() -> None:
    c = queued(
        "queueing: {}\nqueues: [{name: a, order: shortest, defaultWalltime: 2h, namespaces: [a]}]\n",
    )
    said = {"gangsched.io/walltime": "3h"}, {"gangsched.io/walltime": "1h"}
    for name, own in (("long", said[0]), ("unsaid", {}), ("short", said[1])):
        c.submit(pods("a", name, annotations=own))
    c.run()
    assert [e.name for e in c.effects if isinstance(e, BindPod)] == ["short", "unsaid", "long"]


@pytest.mark.parametrize("edited", ["pod", "object"])
def test_who_is_in_line_takes_the_place_that_an_edited_walltime_gives_it(edited: str) -> None:
    def says(walltime: str) -> CustomObject:
        return make_pod_group("b", spec={"minMember": 1}, annotations={WALLTIME_KEY: walltime})

    c = queued("queueing: {}\nqueues: [{name: all, order: shortest, namespaces: [d]}]\n")
    c.object("coscheduling", says("3h"))
    label = {COSCHEDULING_LABEL: "b"} if edited == "object" else {}
    c.submit(pods("d", "a", annotations={WALLTIME_KEY: "2h"}))
    c.submit(pods("d", "b", labels=label, annotations={WALLTIME_KEY: "3h"}))
    if edited == "object":
        c.object("coscheduling", says("1h"))
    else:
        c.update(*with_annotations([c.pod("b")], {WALLTIME_KEY: "1h"}))
    c.run()
    assert [e.name for e in c.effects if isinstance(e, BindPod)] == ["b", "a"]


def test_a_gang_in_line_goes_by_its_longest_member_of_those_that_have_come_and_not_left() -> None:
    c = queued("queueing: {}\nqueues: [{name: all, order: shortest, namespaces: [d]}]\n", nodes=2)
    for name, walltime in (("a", "1h"), ("b", "2h"), ("c", "1h"), ("d", "3h")):
        c.submit(with_annotations(gang(name, pods=2), {WALLTIME_KEY: walltime}))
    for name in ("a", "c"):
        more = gang(name, pods=1, first=2, min_members=2)
        c.submit(with_annotations(more, {WALLTIME_KEY: "4h"}))
    c.delete("c-2").run()
    assert c.bind_order() == ["c", "b", "d", "a"]


def known_ends(c: Cluster) -> list[float]:
    return [
        held[2] for there in c.queue_book()._on_row.values() for held in there.values() if held[2] < math.inf
    ]


@pytest.mark.long
def test_how_long_a_queue_still_runs_is_the_same_when_the_ends_of_pods_are_forgotten_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same story is told to a book that keeps the ends of all pods that have left."""
    monkeypatch.setattr(book, "_MOST_GONE", 3)
    ours = "queueing: {}\nqueues: [{name: all, order: shortest, namespaces: [d]}]\n"
    both = small, large = queued(ours, nodes=2), queued(ours, nodes=2)
    large.queue_book()._most_ends = 10_000
    rng, n_over, n_fewer = random.Random(3), 0, 0
    for step in range(150):
        there = small.bound()
        gone = rng.choice(there) if there and rng.random() < 0.4 else ""
        wall, after_s = f"{rng.choice((2, 20, 900))}s", rng.choice((0.1, 1.0, 5.0))
        for c in both:
            if gone:
                c.delete(gone)
            c.submit(pods("d", f"p{step}", annotations={WALLTIME_KEY: wall})).run().wait(after_s).tell()
        assert small.bound() == large.bound()
        left_s = [c.queue_book().running_s("all", c.now_s) for c in both]
        assert left_s[0] == left_s[1] >= 0.0, step
        n_over += len(small.bound()) > len(known_ends(small))
        n_fewer += len(small.queue_book()._ends) < len(large.queue_book()._ends)
        assert len(small.queue_book()._ends) <= 3 + 2 * 16 + 1
    assert n_over > 20, "pods outlive their walltimes"
    assert n_fewer > 20


# -- limits ----------------------------------------------------------------------------------------------


def test_of_a_long_name_of_a_queue_only_the_begin_is_kept_and_shown() -> None:
    """Such an answer is kept when its pod has gone: thousands of them were gigabytes."""
    c = queued("queues: [{name: a, namespaces: [a]}]")
    wanted = {QUEUE_KEY: "x" * 200_000}
    tree = c.queue_book().tree
    chosen = tree.choice(make_pod("p", namespace="a", annotations=wanted))
    assert chosen.queue == "a"
    assert (
        chosen.problem
        == f"queue {'x' * 80}: no queue of this name takes pods of the namespace a; " + "those that do: a"
    )
    assert sum(len(name) for key in tree._kept for name in key) < 100


def test_a_limit_keeps_a_whole_gang_out_and_says_so_until_its_queue_holds_less() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(pods("nlp", "one", gpus=4)).run()
    c.submit(gang("wide", pods=4, namespace="cv")).run()
    assert c.why("wide") == "Fairness: queue research: 4 of 6 nvidia.com/gpu used, needs 4"
    assert c.bound() == ["one"]
    c.submit(pods("rest", "elsewhere", gpus=8)).run().delete("elsewhere").run().wait(30.0)
    assert c.bound() == ["one"]
    c.delete("one").run().wait(30.0)
    assert sorted(c.bound()) == ["wide-0", "wide-1", "wide-2", "wide-3"]


def test_who_is_kept_out_blocks_nobody() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(pods("cv", "too-wide", gpus=5)).submit(pods("cv", "small", gpus=1)).run()
    assert c.bound() == ["small"]
    assert "more than its limit of 4: it never starts" in c.why("too-wide")


def test_memory_is_reported_in_gi() -> None:
    c = queued("queues: [{name: team, limit: {memory: 2Gi}, namespaces: [d]}]", nodes=2)
    c.submit(pods("d", "one", "two", gpus=0)).run()
    c.submit(pods("d", "three", gpus=0)).submit(gang("wide", pods=4, gpus=0)).run()
    assert c.why("three") == "Fairness: queue team: 2Gi of 2Gi memory used, needs 1Gi"
    assert "queue team: needs 4Gi memory, more than its limit of 2Gi: it never starts" in c.why("wide")


def test_what_can_never_start_is_reported_once() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(pods("cv", "too-wide", gpus=5)).run()
    before = len(c.effects)
    for k in range(3):
        c.submit(pods("cv", f"s{k}", gpus=1)).run().delete(f"s{k}").wait(400.0)
    told = [e for e in c.effects[before:] if "never starts" in repr(e)]
    assert told == []


def test_members_that_a_gang_can_do_without_stay_out_at_the_limit() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(gang("elastic", pods=6, min_members=2, namespace="cv")).run()
    assert held(c, "cv") in (2, 3, 4)
    c.wait(600.0)
    assert held(c, "cv") == 4


def test_a_member_too_large_for_the_limit_keeps_no_smaller_one_out() -> None:
    """Any one of three members may start: the first asks for more than the limit has left."""
    c = queued(LIMITED, nodes=2)
    c.submit(pods("cv", "there", gpus=2)).run()
    large = gang("mixed", pods=1, min_members=1, gpus=3, namespace="cv")
    c.submit([*large, *gang("mixed", pods=2, min_members=1, first=1, namespace="cv")]).run()
    assert set(c.bound()) == {"there", "mixed-1", "mixed-2"}


def test_limits_hold_in_a_storm() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        c = queued(LIMITED, nodes=2)
        there: list[str] = []
        for k in range(40):
            ns = rng.choice(["nlp", "cv", "rest"])
            if there and rng.random() < 0.4:
                c.delete(there.pop(rng.randrange(len(there))))
            elif rng.random() < 0.5:
                c.submit(pods(ns, f"p{k}", gpus=rng.randint(1, 3)))
                there.append(f"p{k}")
            else:
                n = rng.randint(2, 3)
                c.submit(gang(f"g{k}", pods=n, min_members=rng.randint(1, n), namespace=ns))
                there += [f"g{k}-{i}" for i in range(n)]
            c.run().wait(rng.choice([0.0, 1.0, 20.0]))
            by_hand = {"nlp": 0, "cv": 0}
            for pod in c.pods.values():
                if pod.spec.node_name and pod.metadata.namespace in by_hand:
                    resources = pod.spec.containers[0].resources
                    assert resources is not None
                    assert resources.requests is not None
                    by_hand[pod.metadata.namespace] += int(resources.requests.get(GPU, 0))
            assert by_hand["cv"] <= 4, f"seed {seed}, step {k}: {by_hand}"
            assert sum(by_hand.values()) <= 6, f"seed {seed}, step {k}: {by_hand}"
            assert (held(c, "nlp"), held(c, "cv")) == tuple(by_hand.values()), f"seed {seed}, step {k}"


# -- which queue -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace", "wanted", "queue", "problem"),
    [
        ("x", "", "one", ""),
        ("x-y", "", "prefix", ""),
        ("x-y-z", "", "long", ""),
        ("else", "", OTHERS, ""),
        ("x-y-z", "prefix", "prefix", ""),
        (
            "x",
            "prefix",
            "one",
            "queue prefix: no queue of this name takes pods of the namespace x; those that do: one",
        ),
        (
            "x",
            "top",
            "one",
            "queue top: no queue of this name takes pods of the namespace x; those that do: one",
        ),
        (
            "else",
            "none",
            OTHERS,
            "queue none: no queue of this name takes pods of the namespace else; nor does another",
        ),
    ],
)
def test_a_pod_picks_among_the_queues_that_list_its_namespace(
    namespace: str, wanted: str, queue: str, problem: str
) -> None:
    c = queued(
        "queues:\n"
        "- {name: top, queues: [{name: one, namespaces: [x]}, {name: prefix, namespaces: ['x-*']}]}\n"
        "- {name: long, namespaces: ['x-y-*']}\n"
    )
    annotations = {"gangsched.io/queue": wanted} if wanted else {}
    pod = make_pod("p", namespace=namespace, annotations=annotations)
    assert c.queue_book().tree.choice(pod) == (queue, problem)
    labels = {"gangsched.io/queue": wanted} if wanted else {}
    assert c.queue_book().tree.choice(make_pod("p", namespace=namespace, labels=labels)) == (queue, problem)


def test_other_systems_labels_count_only_where_they_are_read() -> None:
    text = "queues: [{name: one, namespaces: [x]}, {name: two, namespaces: ['x*']}]\n"
    others = [
        {"kai.scheduler/queue": "two"},
        {"scheduling.volcano.sh/queue-name": "two"},
        {"yunikorn.apache.org/queue": "root.two"},
    ]
    for labels in others:
        pod = make_pod("p", namespace="x", labels=labels)
        assert queued(text).queue_book().tree.choice(pod).queue == "one"
        read = queued("fairness: {otherQueues: read}\n" + text)
        assert read.queue_book().tree.choice(pod).queue == "two"


def test_a_pod_that_names_a_foreign_queue_waits_until_it_is_edited() -> None:
    c = queued(TWO)
    [pod] = pods("a", "p", annotations={"gangsched.io/queue": "b"})
    c.submit(pod).run()
    assert (
        c.why("p")
        == "Fairness: queue b: no queue of this name takes pods of the namespace a; those that do: a"
    )
    stored = c.pod("p")
    c.update(stored, metadata=replace(stored.metadata, annotations={})).wait(30.0)
    assert c.bound() == ["p"]


# -- while it runs ---------------------------------------------------------------------------------------


def relabelled(c: Cluster, name: str, queue: str) -> Cluster:
    """Its user names another queue."""
    pod = c.pod(name)
    own = {**(pod.metadata.annotations or {}), QUEUE_KEY: queue}
    return c.update(pod, metadata=replace(pod.metadata, annotations=own))


def test_a_running_pod_counts_for_the_queue_in_which_it_started_whoever_decides_by_then() -> None:
    c = queued(CHOICE)
    c.submit(pods("x", "p", gpus=4)).run()
    relabelled(c, "p", "two").run()
    assert (held(c, "one"), held(c, "two")) == (4, 0)
    c.restart()
    assert (held(c, "one"), held(c, "two")) == (4, 0)
    c.submit(pods("x", "q", annotations={QUEUE_KEY: "two"})).run()
    assert (held(c, "one"), held(c, "two")) == (4, 1)


def test_a_waiting_gang_that_names_another_queue_has_the_bound_of_that_queue() -> None:
    ours = "queueing: {bound: {groups: 7, mode: hard}}\n" + CHOICE.replace(
        "name: two,", "name: two, bound: 3,"
    )
    c = queued(ours).submit(pods("x", "holds", gpus=1)).run().submit(pods("x", "large", gpus=8)).run()
    large = c.group("large")
    counted = c.bypasses()
    found = counted.count(large)
    assert found is not None
    assert found.bound == 7
    relabelled(c, "large", "two").run().submit(pods("x", "passes")).run()
    found = counted.count(large)
    assert found is not None
    assert found.bound == 3


def test_a_gang_that_comes_to_a_queue_without_a_bound_has_one_by_how_many_run_then() -> None:
    ours = "queueing: {bound: {groups: 900, mode: hard}}\n" + CHOICE.replace(
        "name: two,", "name: two, bound: auto,"
    )
    c = queued(ours, nodes=2, gpus=16)
    c.submit(pods("x", "holds-0", gpus=2), pods("x", "holds-1", gpus=15)).run()
    c.submit(pods("x", "first", gpus=16, annotations={QUEUE_KEY: "two"}), pods("x", "large", gpus=16))
    c.run().wait(3600.0)
    for k in range(10):
        c.submit(pods("x", f"runs-{k}"))
    c.run().wait(3600.0)
    counted = c.bypasses()
    relabelled(c, "large", "two").run().submit(pods("x", "passes")).run()
    found = counted.count(c.group("large"))
    assert found is not None
    assert found.bound == 8 * 12


def test_what_ends_is_free_for_the_queue_in_which_it_started() -> None:
    c = queued(CHOICE.replace("one,", "one, limit: {nvidia.com/gpu: 4},"))
    c.submit(pods("x", "p", gpus=4)).run().submit(pods("x", "waits", gpus=4)).run()
    assert c.bound() == ["p"]
    relabelled(c, "p", "two").run().phase("p", "Succeeded").run().wait(11.0)
    assert "waits" in c.bound()


def test_a_bind_that_may_land_counts_for_the_queue_that_it_names_though_its_node_is_recreated() -> None:
    """The pod names another queue by then; it starts in that one once it is known that the bind has not
    landed."""
    c = queued(CHOICE)
    c.answer = lambda bind: "unknown"
    c.submit(pods("x", "p", gpus=4)).run()
    relabelled(c, "p", "two").run()
    node = c.nodes["n0"]
    c.drop_node("n0").node(node)
    assert (held(c, "one"), held(c, "two")) == (4, 0)
    c.answer = lambda bind: "ok"
    c.read("p").run().wait(2.0)
    assert [bind.annotations[STARTED_IN_KEY] for bind in c.all(BindPod)] == ["one", "two"]
    assert (held(c, "one"), held(c, "two")) == (0, 4)


@pytest.mark.parametrize("forged", ["two", "none", "b", "x" * 200_000, OTHERS, ""])
def test_before_it_starts_nobody_can_say_in_which_queue_a_pod_did(forged: str) -> None:
    c = queued(CHOICE)
    c.submit(pods("x", "p", gpus=4, annotations={STARTED_IN_KEY: forged})).run()
    assert (c.pod("p").metadata.annotations or {})[STARTED_IN_KEY] == "one"
    assert (held(c, "one"), held(c, "two")) == (4, 0)
    # Of a pod that another scheduler bound nobody wrote it but who made the pod.
    [stranger] = pods("x", "s", gpus=1, annotations={STARTED_IN_KEY: forged})
    c.submit(replace(stranger, spec=replace(stranger.spec, node_name="n0", scheduler_name="other"))).run()
    assert held(c, "one") + held(c, "two") == 5


def test_another_tree_takes_over_without_losing_anybody() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(pods("nlp", "runs", gpus=4)).run().submit(pods("cv", "waits", gpus=4)).run()
    assert c.bound() == ["runs"]
    c.wait(3600.0)
    decayed = c.queue_book().decayed("research", c.now_s)
    assert decayed > 0
    reconfigured(c, LIMITED.replace("gpu: 6", "gpu: 8"))
    assert c.queue_book().decayed("research", c.now_s) == pytest.approx(decayed)
    assert (held(c, "research"), held(c, "nlp")) == (4, 4)
    c.run().wait(30.0)
    assert sorted(c.bound()) == ["runs", "waits"]
    reconfigured(c, "")
    assert c.scheduler.shared.queue_book is None
    reconfigured(c, TWO).submit(pods("a", "later")).run()
    assert sorted(c.bound()) == ["later", "runs", "waits"]
    assert held(c, OTHERS) == 8


def test_guarantees_beyond_the_cluster_are_scaled_down() -> None:
    c = queued(
        "queues:\n"
        "- {name: a, guaranteed: {nvidia.com/gpu: 12}, namespaces: [a]}\n"
        "- {name: b, guaranteed: {nvidia.com/gpu: 4}, namespaces: [b]}\n"
    )
    view = c.queue_view()
    assert view.queues is not None
    assert (view.queues.guaranteed("a"), view.queues.guaranteed("b")) == ({GPU: 6}, {GPU: 2})
    c.node(make_node("n1", gpus=8))
    assert view.queues.guaranteed("a") == {GPU: 12}


def test_what_a_node_held_is_gone_with_it() -> None:
    c = queued(TWO, nodes=2)
    c.submit(pods("a", "p", gpus=8)).run()
    assert held(c, "a") == 8
    [pod] = c.pods.values()
    c.drop_node(pod.spec.node_name)
    assert held(c, "a") == 0


def test_what_a_queue_has_held_lately_survives_the_process() -> None:
    """A process that ends, one that begins, and one that has followed for long: all come to the same."""
    c = queued(TWO + "\n", nodes=2, gpus=8)
    c.submit(pods("a", "p", gpus=8)).run().wait(3600.0)
    before = c.queue_book().all_decayed(c.now_s)
    assert before["a"] > before["b"] == 0.0
    written_s = c.now_s
    c.wait(100.0)
    truth = c.queue_book().decayed("a", c.now_s)
    c.tell(ev.QueueUsageRead(before, c.now_s - written_s))
    assert c.queue_book().decayed("a", c.now_s) == pytest.approx(truth), "it has counted all along"
    c.restart()
    assert c.queue_book().decayed("a", c.now_s) == 0.0
    c.tell(ev.QueueUsageRead({**before, "gone": 0.5}, c.now_s - written_s))
    lost_s = 100.0  # nobody counted meanwhile
    assert c.queue_book().decayed("a", c.now_s) == pytest.approx(before["a"] * 2 ** (-lost_s / 86_400.0))
    c.wait(3600.0)
    assert c.queue_book().decayed("a", c.now_s) > before["a"]


def test_explain_says_which_queue_is_at_its_limit_by_how_much_and_who_holds_it() -> None:
    c = queued(LIMITED, nodes=2)
    c.submit(pods("nlp", "one", gpus=4)).run().submit(gang("wide", pods=4, namespace="cv")).run()
    group = c.group("wide")
    told = explain(c.scheduler, group, c.now_s)
    assert told.answer == (
        "Queue research is at its limit: 4 of 6 nvidia.com/gpu are used, and it needs 4, 2 too many."
        " Held by nlp/one (4)."
    )
    assert told.cures == ("Wait until 2 nvidia.com/gpu of queue research are free, or raise its limit.",)
    c.submit(pods("cv", "too-wide", gpus=5)).run()
    group = c.group("too-wide")
    assert "it never starts" in explain(c.scheduler, group, c.now_s).cures[0]
