"""Reclaim: what is guaranteed to a queue is got back from those who have borrowed it, and never round."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.state.line import queue as line
from gangsched.lab.sim.objects import inventory, make_node, make_pod
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.effects import DeletePod, Effect, EvictPod
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean
from tests.core.queued import GPU, pods, queued, reconfigured
from tests.core.test_dialects import n_bound, tasks
from tests.core.test_queues import held
from tests.support.scenario import Cluster, gang

TWO = """
queues:
- {name: a, guaranteed: {nvidia.com/gpu: 8}, namespaces: [a]}
- {name: b, guaranteed: {nvidia.com/gpu: 8}, namespaces: [b]}
"""


# -- what a guarantee gets back ----------------------------------------------------------------------------


def test_a_guarantee_is_got_back_from_pods_of_a_higher_priority_that_have_borrowed() -> None:
    c = queued(TWO, nodes=2)
    for k in range(16):
        c.submit(pods("b", f"b{k}", priority=100))
    c.run().submit(gang("g", pods=4, namespace="a")).run()
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b"), len(c.evicted())) == (4, 12, 4)
    c.five_more_turns_change_nothing()


def test_what_each_role_needs_is_got_back_although_more_of_one_role_comes_first() -> None:
    c = queued(TWO.replace("[a]", "[d]"), nodes=2)
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run()
    c.submit(tasks(c, {"ps": 1, "worker": 1}, {"worker": 2, "ps": 1}, {"ps": 1, "worker": 7})).run()
    assert (n_bound(c, "ps"), n_bound(c, "worker")) == (1, 1)
    assert (held(c, "a"), held(c, "b"), len(c.evicted())) == (8, 8, 8)


def test_whole_nodes_are_got_back_within_the_victims_grace() -> None:
    """Borrowers are spread over all nodes; the guarantee is asked for in pods of 8 GPUs."""
    c = queued(TWO.replace("gpu: 8", "gpu: 16"), nodes=4)
    c.evictions = "slow"
    for k in range(32):
        [pod] = pods("b", f"b{k}")
        c.submit(replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=20)))
    c.run()
    asked_s = c.now_s
    c.submit(gang("g", pods=2, gpus=8, namespace="a")).run()
    going = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    assert len(going) == 16
    c.wait(20.0).delete(*going).run()
    assert c.placed("g", on=2)
    assert c.now_s - asked_s <= 20.0 + 5.0
    assert held(c, "b") == 16


def test_what_is_got_back_from_the_important_is_kept_from_their_like_until_it_is_whole() -> None:
    c = queued(TWO, nodes=0)
    for name in ("n0", "n1"):
        c.node(make_node(name, listed=False))
    for k in range(16):
        c.submit(pods("b", f"b{k}", priority=100))
    c.run().evictions = "slow"
    c.submit(gang("g", pods=1, gpus=8, namespace="a")).run()
    first, *going = c.evicted()
    c.delete(first).submit(pods("b", "late", priority=50)).run()
    assert not c.pod("late").spec.node_name
    assert c.delete(*going).run().placed("g")


def test_what_is_due_again_since_a_pod_of_the_queue_has_ended_is_got_back_at_once() -> None:
    """Beside its other pod the gang was beyond the guarantee. Where that pod ran the gang does not fit."""
    c = queued(TWO.replace("{name: b, guaranteed: {nvidia.com/gpu: 8}, ", "{name: b, "), nodes=2)
    c.submit(pods("a", "a0", gpus=4)).run()
    for k in range(12):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(gang("g", pods=1, gpus=8, namespace="a")).run().wait(60.0)
    assert c.evicted() == []
    c.delete("b0").run().wait(60.0)
    assert c.evicted() == [], "another queue's pod has ended"
    c.delete("a0").run().wait(5.0)
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b")) == (8, 11 - len(c.evicted()))
    c.five_more_turns_change_nothing()


def test_a_pod_that_runs_is_no_other_queues_for_naming_it() -> None:
    """It has borrowed, and its user names a queue now of which nothing is in use."""
    c = queued(
        "queues:\n"
        "- {name: a, guaranteed: {nvidia.com/gpu: 8}, namespaces: [a]}\n"
        "- {name: b, namespaces: [b]}\n"
        "- {name: spare, guaranteed: {nvidia.com/gpu: 8}, namespaces: ['*']}\n",
        nodes=2,
    )
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run()
    for pod in list(c.pods.values()):
        own = {**(pod.metadata.labels or {}), "gangsched.io/queue": "spare"}
        c.update(pod, metadata=replace(pod.metadata, labels=own))
    c.run().submit(gang("g", pods=8, namespace="a")).run()
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b"), held(c, "spare")) == (8, 8, 0)


def test_what_comes_within_reach_as_another_queue_begins_to_borrow_is_got_back_at_once() -> None:
    """A whole node is asked for, and the other queue has half of each: nothing may go until it has more."""
    c = queued(TWO, nodes=2)
    c.submit(pods("b", "b0", gpus=4)).submit(pods("b", "b1", gpus=4)).run()
    assert {c.pod(name).spec.node_name for name in ("b0", "b1")} == {"n0", "n1"}
    c.submit(gang("g", pods=1, gpus=8, namespace="a")).run().wait(60.0)
    assert c.evicted() == []
    c.submit(pods("b", "b2", gpus=4)).run().wait(5.0)
    assert c.placed("g")
    assert (held(c, "a"), held(c, "b"), len(c.evicted())) == (8, 8, 1)
    c.five_more_turns_change_nothing()


def test_no_queue_at_its_guarantee_loses_a_pod_to_a_higher_priority_either() -> None:
    c = queued(TWO, nodes=2)
    for k in range(8):
        c.submit(pods("a", f"a{k}"))
    for k in range(8):
        c.submit(pods("b", f"b{k}", priority=5))
    c.run().submit(pods("b", "urgent", priority=100, gpus=4)).run()
    assert len(c.evicted()) == 4
    assert all(name.startswith("b") for name in c.evicted()), "of its own queue"
    assert held(c, "a") == 8


def test_what_is_beyond_the_guarantee_reclaims_nothing() -> None:
    c = queued(TWO, nodes=2)
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(gang("g", pods=9, namespace="a")).run()
    assert c.evicted() == []
    assert "9 of 9" not in c.why("g")


def test_two_gangs_do_not_reclaim_the_same_guarantee_twice() -> None:
    c = queued(TWO, nodes=2)
    c.evictions = "slow"
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(gang("g", pods=6, namespace="a"), gang("h", pods=6, namespace="a")).run()
    assert len(c.evicted()) == 6, "the second would be beyond it"


def test_borrowers_that_go_already_are_not_counted_against_their_queues_guarantee() -> None:
    """Twelve stay of the sixteen: four of them may go beside the four that do."""
    c = queued(TWO, nodes=2)
    c.evictions = "slow"
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run()
    for k in range(4):
        c.leave(f"b{k}")
    c.run().submit(gang("g", pods=8, namespace="a")).run()
    assert len(c.evicted()) == 4
    assert not {f"b{k}" for k in range(4)}.intersection(c.evicted())


def test_a_gang_goes_as_a_whole_or_not_and_what_it_can_spare_goes_alone() -> None:
    """Of a queue that is guaranteed nothing all 12 members go; of one that is guaranteed 8 none, as it would
    be left without any, unless its gang goes on with less."""
    nothing = TWO.replace("{name: b, guaranteed: {nvidia.com/gpu: 8}, ", "{name: b, ")
    for text, least, left in ((nothing, 12, 0), (TWO, 12, 12), (TWO, 4, 8)):
        c = queued(text, nodes=2)
        c.submit(gang("wide", pods=12, min_members=least, namespace="b")).run()
        c.submit(gang("g", pods=8, namespace="a")).run()
        assert held(c, "b") == left, (text, least)
        assert c.placed("g") == (left < 12)


def test_in_its_own_queue_a_gang_beyond_the_guarantee_preempts_as_without_queues() -> None:
    c = queued(TWO, nodes=2)
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(gang("g", pods=16, namespace="b", priority=10)).run()
    assert c.placed("g")


def test_freed_room_never_goes_back_to_the_victims() -> None:
    """Their controller makes them again at once, of a higher priority than who waits for the room."""
    c = queued(TWO, nodes=2)
    c.evictions = "slow"
    for k in range(16):
        c.submit(pods("b", f"b{k}", priority=50))
    c.run().submit(gang("g", pods=8, namespace="a")).run()
    going = [pod.metadata.name for pod in c.pods.values() if pod.metadata.deletion_timestamp]
    for k, name in enumerate(going):
        c.submit(pods("b", f"again{k}", priority=50)).run().delete(name).run()
    assert c.placed("g")
    assert held(c, "b") == 8
    assert len(c.evicted()) == 8


def test_a_refused_eviction_is_repeated_as_long_as_the_guarantee_gives_the_right() -> None:
    """What was promised to the unit, and who goes for it, do not count against it."""
    c = queued(TWO.replace("gpu: 8}, namespaces: [a]", "gpu: 4}, namespaces: [a]"), nodes=3, gpus=4)
    c.evictions = "429"
    for k in range(3):
        c.submit(pods("b", f"b{k}", gpus=4))
    c.run().submit(pods("a", "a0", gpus=4)).run().wait(5.0)
    [first, *others] = c.evicted()
    assert others == [first, first]
    c.evictions = "ok"
    c.wait(5.0)
    assert c.pod("a0").spec.node_name
    assert (held(c, "a"), held(c, "b")) == (4, 8)


def test_who_was_to_go_stays_once_its_queue_holds_no_more_than_its_guarantee() -> None:
    """Its eviction was refused; until it is repeated another pod of its queue has ended, and what that held
    is taken."""
    c = queued(TWO.replace("gpu: 8}, namespaces: [a]", "gpu: 4}, namespaces: [a]"), nodes=3, gpus=4)
    c.evictions = "429"
    for k in range(3):
        c.submit(pods("b", f"b{k}", gpus=4))
    c.run().submit(pods("a", "a0", gpus=4)).run()
    [victim] = c.evicted()
    [ends, _] = [one for one in ("b0", "b1", "b2") if one != victim]
    [theirs] = pods("c", "theirs", gpus=4)
    on = c.pod(ends).spec.node_name
    c.delete(ends).submit(replace(theirs, spec=replace(theirs.spec, scheduler_name="other", node_name=on)))
    c.run().wait(60.0)
    assert c.evicted() == [victim], "asked once, when its queue held 12 of 8"
    assert not c.pod("a0").spec.node_name


@pytest.mark.parametrize("now", ["", "queues: [{name: a, namespaces: ['*']}]", TWO.replace("[a]", "[z]")])
def test_who_was_to_go_stays_once_another_configuration_guarantees_it_to_nobody(now: str) -> None:
    c = queued(TWO.replace("gpu: 8}, namespaces: [a]", "gpu: 4}, namespaces: [a]"), nodes=3, gpus=4)
    c.evictions = "429"
    for k in range(3):
        c.submit(pods("b", f"b{k}", gpus=4, priority=100))
    c.run().submit(pods("a", "a0", gpus=4)).run()
    assert len(c.evicted()) == 1
    reconfigured(c, now).run().wait(60.0)
    assert len(c.evicted()) == 1
    assert not c.all(DeletePod)
    assert c.state("a0") == "unschedulable"


def test_what_another_queue_leaves_is_enough_beside_what_borrowers_hold_on_that_node() -> None:
    """What it leaves could not be taken, so that nothing of the queue's own has to end for another try."""
    c = queued(TWO + "- {name: c, namespaces: [c]}\n", nodes=2)
    c.submit(pods("b", "b0", gpus=4), pods("b", "b1", gpus=4)).run()
    c.submit(pods("c", "c0", gpus=4), pods("c", "c1", gpus=4)).run()
    left = c.pod("b1").spec.node_name
    borrowers = {c.pod(name).spec.node_name: name for name in ("c0", "c1")}
    c.submit(pods("a", "a0", gpus=8)).run().wait(30.0)
    assert c.evicted() == []
    c.delete("b1").run().wait(15.0)
    assert c.evicted() == [borrowers[left]]
    assert c.pod("a0").spec.node_name == left


@pytest.mark.parametrize("most_pairs", [20_000, 0])
def test_devices_that_are_well_again_are_enough_beside_borrowers(
    most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many things changed for many groups, the gang was not tried again for five minutes."""
    monkeypatch.setattr(line, "_MAX_PAIRS", most_pairs)
    sick = {INVENTORY_KEY: inventory("n0", 8, unhealthy=(7,))}
    ours = TWO.replace("{name: b, guaranteed: {nvidia.com/gpu: 8}, ", "{name: b, ")
    c = queued(ours, nodes=0).node(make_node("n0", annotations=sick)).node(make_node("n1", gpus=4))
    c.submit(pods("b", *(f"b{k}" for k in range(11)))).run()
    c.submit(pods("a", "whole", gpus=8)).run().wait(5.0)
    assert c.evicted() == []
    c.node(make_node("n0")).run().wait(2.0)
    assert c.pod("whole").spec.node_name == "n0"


def test_a_guarantee_of_devices_does_not_let_anybody_reclaim_others() -> None:
    """What is not set counts as 0: who is guaranteed cpu gets no GPU back by it."""
    c = queued(
        "queues:\n- {name: a, guaranteed: {cpu: 64}, namespaces: [a]}\n- {name: b, namespaces: [b]}\n",
    )
    c.submit(pods("b", "b0", gpus=8)).run().submit(pods("a", "a0", gpus=1)).run()
    assert c.evicted() == []


def test_siblings_reclaim_from_each_other_what_their_own_guarantees_say() -> None:
    c = queued(
        "queues:\n"
        "- name: team\n"
        "  guaranteed: {nvidia.com/gpu: 8}\n"
        "  queues:\n"
        "  - {name: x, guaranteed: {nvidia.com/gpu: 6}, namespaces: [x]}\n"
        "  - {name: y, namespaces: [y]}\n"
        "- {name: z, namespaces: [z]}\n",
        nodes=2,
    )
    for k in range(8):
        c.submit(pods("z", f"z{k}"), pods("y", f"y{k}"))
    c.run().submit(gang("g", pods=6, namespace="x")).run()
    assert c.placed("g")
    assert (held(c, "x"), held(c, "y"), held(c, "z")) == (6, 2, 8), "the team holds what it is guaranteed"


def test_nobody_is_evicted_for_it_where_that_is_switched_off() -> None:
    c = queued("fairness: {reclaim: never}\n" + TWO, nodes=2)
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(pods("a", "a0")).run()
    assert c.evicted() == []


def test_pods_that_the_cluster_needs_are_not_reclaimed() -> None:
    c = queued(TWO, nodes=1)
    c.submit(pods("b", "system", gpus=8, priority=2_000_000_000)).run()
    c.submit(pods("a", "a0")).run()
    assert c.evicted() == []


def test_the_message_says_from_whom_room_is_taken() -> None:
    c = queued(TWO, nodes=2)
    c.evictions = "slow"
    for k in range(16):
        c.submit(pods("b", f"b{k}"))
    c.run().submit(pods("a", "a0")).run()
    [victim] = c.evicted()
    told = "waiting for 1 pod of other queues beyond those queues' guarantees to go: "
    assert f"{told}a pod of another namespace" in c.said("a0")
    assert f"{told}b/{victim}" in clean(c.group("a0").message), "in full for explain"


# -- fair shares -------------------------------------------------------------------------------------------

FAIR = """
fairness: {reclaim: fair, compare: [nvidia.com/gpu]}
queues:
- {name: a, share: 2, namespaces: [a]}
- {name: b, share: 1, namespaces: [b]}
"""


def test_a_fair_share_is_reclaimed_only_on_request_and_stops_at_the_share() -> None:
    for text, got in ((FAIR, 8), (FAIR.replace("reclaim: fair, ", ""), 0)):
        c = queued(text, nodes=2, gpus=6)
        for k in range(12):
            c.submit(pods("b", f"b{k}", priority=10))
        c.run()
        for k in range(12):
            c.submit(pods("a", f"a{k}"))
        c.run().wait(600.0)
        assert held(c, "a") in (got, max(got - 1, 0)), text
        before = len(c.evicted())
        c.wait(3600.0)
        assert len(c.evicted()) == before, "at rest nobody is evicted"


def test_for_a_fair_share_no_gang_of_many_times_its_size_goes() -> None:
    c = queued(FAIR, nodes=2)
    c.submit(gang("wide", pods=16, namespace="b")).run().submit(pods("a", "a0")).run()
    assert c.evicted() == []


HALVES = FAIR.replace("share: 2", "share: 1")


@pytest.mark.parametrize(("size", "nodes"), [(4, 1), (8, 2), (1, 1), (2, 2)])
def test_of_two_equal_queues_each_gets_its_half_also_in_gangs_and_keeps_it(size: int, nodes: int) -> None:
    """With the gang each holds half: not less for its share than the other, and not more."""
    c = queued(HALVES, nodes=nodes)
    n = 8 * nodes // size
    for k in range(n):
        c.submit(gang(f"b{k}", pods=size, namespace="b", priority=10))
    c.run()
    for k in range(n):
        c.submit(gang(f"a{k}", pods=size, namespace="a"))
    c.run().wait(60.0)
    assert (held(c, "a"), held(c, "b"), len(c.evicted())) == (4 * nodes, 4 * nodes, 4 * nodes)
    for k in range(n):  # the evicted come again, and others with them
        c.submit(gang(f"again{k}", pods=size, namespace="b", priority=10))
    c.run().wait(3600.0)
    assert (held(c, "a"), held(c, "b"), len(c.evicted())) == (4 * nodes, 4 * nodes, 4 * nodes)


@pytest.mark.parametrize("seed", range(12))
def test_two_queues_never_evict_each_other_in_turn(seed: int) -> None:
    """Whatever their shares and gangs are, and though all that is evicted comes again at once."""
    rng = random.Random(f"{seed}-in-turn")
    shares = [rng.choice([0.1, 0.3, 1, 1, 2, 3]) for _ in "ab"]
    c = queued(
        "fairness: {reclaim: fair, compare: [nvidia.com/gpu]}\nqueues:\n"
        f"- {{name: a, share: {shares[0]}, namespaces: [a]}}\n"
        f"- {{name: b, share: {shares[1]}, namespaces: [b]}}\n",
        nodes=2,
    )
    serial, turns = 0, []
    sizes = [rng.choice([1, 2, 3, 4]) for _ in "ab"]

    def more(queue: str) -> None:
        nonlocal serial
        serial += 1
        size = sizes["ab".index(queue)]
        c.submit(gang(f"{queue}{serial}", pods=size, namespace=queue, priority=rng.choice([0, 10])))

    for queue in rng.sample("ab", 2):
        for _ in range(16):
            more(queue)
        c.run()
    n_seen = 0
    for _ in range(30):
        new = c.all(EvictPod)[n_seen:]
        n_seen += len(new)
        for queue in dict.fromkeys(effect.namespace for effect in new):
            turns.append(queue)
            for _ in range(sum(effect.namespace == queue for effect in new)):
                more(queue)
        c.run().wait(20.0)
    assert len(dict.fromkeys(turns)) <= 1, (seed, shares, sizes, turns)
    assert not c.all(EvictPod)[n_seen:], (seed, shares, sizes, turns)


# -- no loops ----------------------------------------------------------------------------------------------


def _tree(rng: random.Random, gpus: int, *, limited: bool = False) -> str:
    """Two to four queues at the top, some with queues below, whose guarantees fit the cluster."""
    left, lines = gpus, [f"fairness: {{reclaim: {rng.choice(['guaranteed', 'guaranteed', 'fair'])}}}"]
    luck = random.Random(f"{gpus}-{left}-{rng.random()}") if limited else None
    lines.append("queues:")
    for i in range(rng.randint(2, 4)):
        own = rng.randint(0, left)
        left -= own
        guaranteed = f"guaranteed: {{nvidia.com/gpu: {own}}}, " if own else ""
        if luck is not None and own and luck.random() < 0.8:
            guaranteed += f"limit: {{nvidia.com/gpu: {own + luck.choice([0, 0, 1, 2])}}}, "
        head = f"- {{name: q{i}, share: {rng.choice([1, 1, 2, 5])}, {guaranteed}"
        if rng.random() < 0.4:
            first = rng.randint(0, own)
            below = f"guaranteed: {{nvidia.com/gpu: {first}}}, " if first else ""
            lines.append(
                f"{head}queues: [{{name: q{i}-x, {below}namespaces: [n{i}]}}, "
                f"{{name: q{i}-y, namespaces: [m{i}]}}]}}"
            )
        else:
            lines.append(f"{head}namespaces: [n{i}, m{i}]}}")
    return "\n".join(lines)


class Watched(Cluster):
    """Before each eviction: who holds what, counted by hand from the pods."""

    def _done(self, effects: list[Effect]) -> None:
        by_cause: dict[str, list[EvictPod | DeletePod]] = {}
        for effect in effects:
            if isinstance(effect, EvictPod | DeletePod):
                by_cause.setdefault(effect.cause_id, []).append(effect)
        for cause, lost in by_cause.items():
            self._judge(cause.partition("/")[0], lost)
        super()._done(effects)

    def _judge(self, namespace: str, lost: list[EvictPod | DeletePod]) -> None:
        """No queue at or below its guarantee loses anything, and none above it comes below."""
        tree = self.queue_book().tree
        own = tree.paths[_leaf(self, namespace)]
        used: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod.spec.node_name and not pod.metadata.deletion_timestamp:
                for name in tree.paths[_leaf(self, pod.metadata.namespace)]:
                    used[name] += _gpus(pod)
        gone: Counter[str] = Counter()
        for effect in lost:
            for name in tree.paths[_leaf(self, effect.namespace)]:
                if name not in own:
                    gone[name] += _gpus(self.pods[effect.uid])
        for name, n in gone.items():
            guaranteed = tree.queues[name].guaranteed.get(GPU, 0)
            assert used[name] - n >= min(used[name], guaranteed), (name, guaranteed, used, gone)


def _leaf(c: Cluster, namespace: str) -> str:
    return c.queue_book().tree.choice(make_pod("x", namespace=namespace)).queue


def _gpus(pod: Pod) -> int:
    resources = pod.spec.containers[0].resources
    assert resources is not None
    return int((resources.requests or {}).get(GPU, 0))


class Storm:
    """A few nodes, a random tree, gangs and lone pods. Whoever is evicted is made again at once, as by its
    controller, and nothing ends by itself: a loop would never come to rest."""

    def __init__(self, seed: int, *, only_ones: bool = False, limited: bool = False) -> None:
        self.only_ones = only_ones
        self.limited = limited  # crowds a few queues, so that limits are reached
        self.rng = rng = random.Random(seed)
        self.seed = seed
        self.gpus = rng.choice([4, 8])
        nodes = rng.randint(1, 4)
        self.tree = _tree(rng, nodes * self.gpus, limited=limited)
        self.c = queued(self.tree, nodes=nodes, gpus=self.gpus, kind=Watched)
        self.c.evictions = rng.choice(["ok", "slow"])
        self.made: dict[str, Pod] = {}
        self.n_lives: Counter[str] = Counter()

    def run(self) -> int:
        """Returns how many pods were evicted."""
        for k in range(12 if self.limited else self.rng.randint(3, 10)):
            self._submit(k)
            self._settle()
        return len(self.c.evicted())

    def _submit(self, k: int) -> None:
        rng = self.rng
        more: dict[str, Any] = {
            "namespace": f"{rng.choice('nm')}{rng.randint(0, 1 if self.limited else 4)}",
            "priority": rng.choice([0, 0, 5, 10]),
            "gpus": rng.choice([1, 1, 2, self.gpus]),
        }
        if self.only_ones:
            made = [make_pod(f"p{k}x{i}", **{**more, "gpus": 1}) for i in range(rng.randint(1, self.gpus))]
            self.made |= {pod.metadata.name: pod for pod in made}
            self.c.submit(made)
            return
        n = rng.choice([1, 2, 3, 4])
        least = rng.randint(1, n)
        made = gang(f"g{k}", pods=n, min_members=least, **more) if n > 1 else [make_pod(f"p{k}", **more)]
        self.made |= {pod.metadata.name: pod for pod in made}
        self.c.submit(made)

    def _settle(self) -> None:
        """Until nobody is evicted for a minute."""
        n_before = -1
        for _ in range(60):
            self.c.run()
            self._within_limits()
            self._renew()
            if n_before == len(self.c.evicted()):
                self.c.wait(61.0)
                self._renew()
                if n_before == len(self.c.evicted()):
                    return
            n_before = len(self.c.evicted())
        raise AssertionError(f"seed {self.seed}: no end of evictions\n{self.tree}")

    def _within_limits(self) -> None:
        """At rest no gang is bound in part, which may be completed beyond a limit."""
        for name, queue in self.c.queue_book().tree.queues.items():
            limit = queue.limit.get(GPU)
            assert limit is None or self.c.queue_book().used(name).get(GPU, 0) <= limit, (self.seed, name)

    def _renew(self) -> None:
        """Those that are to go are gone, and come again."""
        for pod in [pod for pod in self.c.pods.values() if pod.metadata.deletion_timestamp]:
            self.c.delete(pod.metadata.name)
        there = {pod.metadata.name for pod in self.c.pods.values()}
        for name, pod in self.made.items():
            if name not in there:
                self.n_lives[name] += 1
                uid = f"{pod.metadata.uid}-{self.n_lives[name]}"
                self.c.submit(replace(pod, metadata=replace(pod.metadata, uid=uid)))


@pytest.mark.long
@pytest.mark.parametrize("limited", [False, True], ids=["without limits", "below limits"])
def test_what_is_guaranteed_and_asked_for_is_held_at_rest(*, limited: bool) -> None:
    """Pods of one GPU, so that no shape is in the way."""
    for seed in range(25):
        storm = Storm(seed, only_ones=True, limited=limited)
        storm.run()
        there = storm.c.queue_book()
        for pod in storm.c.pods.values():
            if not pod.spec.node_name:
                queue = _leaf(storm.c, pod.metadata.namespace)
                guaranteed = there.tree.queues[queue].guaranteed.get(GPU, 0)
                assert there.used(queue).get(GPU, 0) + 1 > guaranteed, f"seed {seed}: {storm.tree}"


@pytest.mark.parametrize("seed", [8003, 9409])
def test_room_made_for_one_is_not_taken_by_who_waits_for_others_to_go(seed: int) -> None:
    """It once went round: who was promised room on that node later took what was free there already."""
    assert Storm(seed).run() < 10


SEEDS = int(os.environ.get("GANGSCHED_RECLAIM_SEEDS", "30"))


@pytest.mark.long
@pytest.mark.timeout(max(120, 2 * SEEDS))
@pytest.mark.parametrize("limited", [False, True], ids=["without limits", "below limits"])
def test_no_loops_and_no_queue_at_its_guarantee_loses_a_pod_in_a_storm(*, limited: bool) -> None:
    """GANGSCHED_RECLAIM_SEEDS=10000 for more of them: hours on a slow machine."""
    n_evicted = 0
    for seed in range(SEEDS):
        try:
            n_evicted += Storm(seed, limited=limited).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    print(f"{n_evicted} pods were evicted")
    assert n_evicted > 20, "a storm in which nobody is evicted shows nothing"
