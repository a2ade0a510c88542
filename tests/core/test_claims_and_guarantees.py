"""Room that is kept for a claim, where a queue asks for what is guaranteed to it."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.core.queueing.claims import MAX_CLAIMS
from gangsched.core.types.claim import StartClaim
from gangsched.lab.sim.objects import make_node
from gangsched.model.effects import EvictPod
from gangsched.model.objects import Pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import queued
from tests.core.test_queues import held
from tests.support.scenario import Cluster, gang, lone, with_annotations

TREE = """
queueing: {{bound: {{groups: 1, mode: hard}}}}
fairness: {{reclaim: {reclaim}}}
queues:
- {{name: a, guaranteed: {{nvidia.com/gpu: 8}}, namespaces: [a]}}
- {{name: b, guaranteed: {{nvidia.com/gpu: {b}}}, namespaces: [b]}}
"""


def claimed(*, b: int = 8, reclaim: str = "guaranteed", nodes: int = 2) -> Cluster:
    """A gang of b has a claim on both nodes; one is free, the other held by b for ten hours."""
    c = queued(TREE.format(b=b, reclaim=reclaim), nodes=nodes)
    c.submit(lone("holds", 8, "10h", namespace="b")).run()
    c.submit(gang("large", pods=2, gpus=8, namespace="b")).run()
    c.submit(lone("before", 8, "10s", namespace="b")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "20h", namespace="b")).run()
    assert set(claim(c).nodes) == {"n0", "n1"}
    assert not c.pod("passes").spec.node_name
    return c


def claim(c: Cluster) -> StartClaim:
    return c.claim("large")


def test_a_guarantee_takes_room_that_is_kept_for_who_would_borrow_it() -> None:
    c = claimed()
    c.submit(with_annotations(gang("g", pods=2, gpus=4, namespace="a"), {WALLTIME_KEY: "20h"})).run()
    assert c.placed("g", on=1)
    assert (held(c, "a"), held(c, "b"), c.all(EvictPod)) == (8, 8, [])
    c.wait(5.0)
    assert claim(c).because == "guarantee"
    assert claim(c).start_s == 20 * 3600.0 + 1.0, "it waits for those of the guarantee as well"
    assert not c.pod("passes").spec.node_name
    c.five_more_turns_change_nothing()


def test_what_is_beyond_the_guarantee_leaves_claims_their_room() -> None:
    c = claimed()
    c.submit(gang("g", pods=2, gpus=5, namespace="a")).run()
    assert c.untouched("g")
    c.submit(lone("first", 5, namespace="a")).run().submit(lone("second", 4, namespace="a")).run()
    assert c.pod("first").spec.node_name
    assert not c.pod("second").spec.node_name, "with it the queue would hold 9 of 8"


def test_members_that_come_later_count_although_nothing_on_the_nodes_has_changed() -> None:
    """The first two want too much CPU to start anywhere; with 2 GPUs they are within the guarantee."""
    c = claimed().node(make_node("n2", gpus=4))
    [beside] = lone("beside", 4, namespace="a")
    c.submit(replace(beside, spec=replace(beside.spec, node_name="n2"))).run()
    c.submit(gang("g", pods=2, gpus=1, namespace="a", cpu="1000")).run()
    c.submit(gang("g", pods=2, gpus=4, namespace="a", first=2)).delete("g-0", "g-1").run()
    c.wait(20.0)
    assert c.untouched("g"), "the queue would hold 12 of 8"
    assert "kept for a gang of another namespace" in c.said("g-2")


def test_a_claim_within_its_own_queues_guarantee_keeps_its_room() -> None:
    """Another scheduler's pods are in its way, so nothing can be got back for it."""
    c = queued(TREE.format(b=24, reclaim="guaranteed"), nodes=4)
    for k, walltime in enumerate(("10h", "30h")):
        [pod] = lone(f"theirs-{k}", 8, walltime, namespace="c")
        c.submit(replace(pod, spec=replace(pod.spec, scheduler_name="another", node_name=f"n{k}")))
    c.submit(gang("large", pods=3, gpus=8, namespace="b")).run()
    c.submit(lone("before", 8, "10s", namespace="b")).run().delete("before").run()
    c.submit(lone("passes", 8, "20h", namespace="b")).run()
    assert set(claim(c).nodes) == {"n0", "n2", "n3"}
    c.submit(gang("g", pods=2, gpus=4, namespace="a")).run()
    assert c.untouched("g")
    assert "kept for a gang of another namespace" in c.said("g-0")


def test_its_own_queue_waits_for_a_claim_also_within_the_guarantee() -> None:
    """The bound holds inside a queue: what is smaller does not take what is kept for a large gang."""
    c = queued(TREE.format(b=12, reclaim="guaranteed"), nodes=2)
    c.submit(lone("holds", 4, "10h", namespace="b")).run()
    c.submit(gang("large", pods=2, gpus=8, namespace="b")).run()
    c.submit(lone("before", 8, "10s", namespace="b")).run().delete("before").run()
    c.submit(lone("passes", 8, "20h", namespace="b")).run()
    assert set(claim(c).nodes) == {"n0", "n1"}
    assert not c.pod("passes").spec.node_name


def test_nothing_is_taken_where_reclaim_is_off() -> None:
    c = claimed(reclaim="never")
    c.submit(gang("g", pods=2, gpus=4, namespace="a")).run()
    assert c.untouched("g")
    assert "kept for a gang of another namespace" in c.said("g-0")


def test_explain_does_not_tell_of_room_that_is_there_for_the_taking() -> None:
    c = claimed()
    c.submit(gang("g", pods=2, gpus=5, namespace="a")).run()
    assert "kept for b/large" in str(explain(c.scheduler, c.group("g"), now_s=c.now_s))


def test_a_guarantee_is_got_back_from_the_room_that_is_kept_and_from_borrowers_together() -> None:
    """Half of what is asked for is kept idle, half is held by a queue that is guaranteed nothing."""
    tree = TREE.format(b=0, reclaim="guaranteed").replace("gpu: 8}", "gpu: 16}")
    c = queued(tree.replace("guaranteed: {nvidia.com/gpu: 0}, ", ""), nodes=2)
    c.submit(lone("holds", 8, "10h", namespace="b")).run()
    c.submit(gang("large", pods=2, gpus=8, namespace="b")).run()
    c.submit(lone("before", 8, "10s", namespace="b")).run().delete("before").run()
    c.submit(lone("passes", 8, "20h", namespace="b")).run()
    assert set(claim(c).nodes) == {"n0", "n1"}
    c.submit(gang("g", pods=2, gpus=8, namespace="a")).run()
    assert c.placed("g", on=2)
    assert [one.name for one in c.all(EvictPod)] == ["holds"]


def test_inside_a_queue_what_is_small_and_guaranteed_passes_a_large_gang_up_to_its_bound() -> None:
    """The gang is beyond the guarantee, and small pods are within; that orders queues, not one queue."""
    c = queued(TREE.format(b=8, reclaim="guaranteed"), nodes=2)
    c.submit(lone("holds", 1, "10h", namespace="b")).run()
    c.submit(gang("large", pods=2, gpus=8, namespace="b")).run()
    for k in range(6):
        c.submit(lone(f"small{k}", 1, "20h", namespace="b")).run().wait(20.0)
    assert held(c, "b") == 1 + 1, "one may pass it, and then it has a claim on both nodes"
    c.delete("holds", "small0").run().wait(15.0)
    assert c.placed("large", on=2)


def on(node: int, pods: list[Pod]) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, node_selector={"host": f"n{node}"})) for pod in pods]


def test_a_guarantee_starts_while_all_claims_stand_and_a_borrower_is_at_its_bound() -> None:
    """It came first: when it was refused it was within its queue's guarantee. By now it would borrow."""
    most = MAX_CLAIMS // 2
    n_hosts = most + 1
    guaranteed = 4 * n_hosts + 8
    tree = TREE.format(b=guaranteed, reclaim="guaranteed").replace("{name: a,", "{name: a, share: 0.001,")
    c = queued(tree, nodes=0)
    for k in range(n_hosts + 1):
        node = make_node(f"n{k}")
        c.node(replace(node, metadata=replace(node.metadata, labels={"host": f"n{k}"})))
    c.submit(on(n_hosts, lone("theirs", 1, namespace="a"))).run()
    for k in range(n_hosts):
        c.submit(on(k, lone(f"holds{k}", 4, "10h", namespace="b"))).run()
        c.submit(on(k, lone(f"large{k}", 8, "1h", namespace="b"))).run()
    for k in range(n_hosts):
        c.submit(on(k, lone(f"once{k}", 4, "20h", namespace="b"))).run().delete(f"once{k}").run()
    for k in range(n_hosts):
        c.submit(on(k, lone(f"passes{k}", 4, "20h", namespace="b"))).run()
    assert [k for k in range(n_hosts) if c.claims().claim(c.group(f"large{k}")) is None] == [most]
    c.submit(on(n_hosts, lone("grows", 1, namespace="b"))).run()
    assert held(c, "b") + 8 > guaranteed
    c.submit(on(most, lone("asks", 4, "20h", namespace="a"))).run()
    assert c.pod("asks").spec.node_name == f"n{most}"
    assert not c.pod(f"passes{most}").spec.node_name, "its own queue still waits for it"
