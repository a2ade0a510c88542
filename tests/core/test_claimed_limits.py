"""A promised start is not broken by the limit of its own queue: others of the queue leave it that, too."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.core.queueing.claims import KEPT
from gangsched.core.types.claim import StartClaim
from gangsched.lab.sim.objects import STRANGER, make_node
from gangsched.model.objects import Pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import pods, queued, reconfigured
from tests.support.scenario import Cluster, gang, with_annotations

OURS = """
queueing: {bound: {groups: 1, mode: hard}}
queues:
- {name: a, limit: {nvidia.com/gpu: LIMIT}, namespaces: [a]}
- {name: b, namespaces: [b]}
"""


def lasting(walltime: str, those: list[Pod]) -> list[Pod]:
    return with_annotations(those, {WALLTIME_KEY: walltime})


def promised(holder: str = "b", limit: int = 16) -> Cluster:
    """A gang that needs two nodes, and 16 of its queue's limit, is promised a start when a pod of queue
    `holder` ends on one of them, after 600 s. A third node has room for small pods only."""
    c = queued(OURS.replace("LIMIT", str(limit)), nodes=2).node(make_node("half", gpus=4))
    c.submit(lasting("600s", pods(holder, "holds", gpus=8))).run()
    c.submit(lasting("2h", gang("large", pods=2, gpus=8, namespace="a"))).run()
    c.submit(lasting("10s", pods(holder, "before", gpus=8))).run().delete("before").run()
    c.submit(lasting("2h", pods(holder, "passes", gpus=8))).run()
    assert claim(c).is_promise
    assert claim(c).start_s == 601.0
    return c


def claim(c: Cluster) -> StartClaim:
    [found] = c.claims().all
    return found


def test_of_its_queue_only_who_ends_before_a_promised_start_uses_its_limit() -> None:
    c = promised()
    c.submit(lasting("2h", pods("a", "long", gpus=2))).run()
    assert c.why("long").startswith(
        "Fairness: queue a: 0 of 16 nvidia.com/gpu used, 16 kept for groups that are promised room or have"
        " been passed as often as allowed, needs 2"
    )
    c.submit(lasting("500s", pods("a", "short", gpus=2)), lasting("2h", pods("b", "other"))).run()
    assert {"short", "other"} <= {*c.bound()}
    c.wait(500.0).delete("short").run().wait(100.0).delete("holds").run()
    assert {"large-0", "large-1"} <= {*c.bound()}
    assert c.claims().promises == {KEPT: 1}
    assert "long" not in c.bound()
    c.delete("large-0", "large-1").run().wait(5.0)
    assert "long" in c.bound()


def test_nothing_is_kept_once_the_claim_is_gone() -> None:
    c = promised()
    c.submit(lasting("2h", pods("a", "long", gpus=2))).run()
    assert "long" not in c.bound()
    c.delete("large-0", "large-1").run().wait(5.0)
    assert "long" in c.bound()


def test_what_pods_of_the_queue_hold_that_end_before_is_not_kept_twice() -> None:
    c = promised(holder="a", limit=26)
    c.submit(lasting("2h", pods("a", "fits", gpus=3))).run()
    assert "fits" in c.bound(), "8 used, which end before, 8 more kept, 3 of the 10 that are left"
    c.node(make_node("more", gpus=8)).submit(lasting("2h", pods("a", "long", gpus=8))).run()
    assert c.why("long").startswith("Fairness: queue a: 11 of 26 nvidia.com/gpu used, 8 kept for")


def test_what_ends_before_two_promised_starts_is_there_for_one_of_them_only() -> None:
    """Both wait for the same pods, of which one is of their queue. Each by itself would need no more of its
    limit than that pod leaves; without the other's needs their queue would start a third, and one promise
    would break."""
    c = queued(OURS.replace("LIMIT", "20"), nodes=2)
    c.submit(lasting("600s", pods("a", "holds-a", gpus=8))).run()
    c.submit(lasting("600s", pods("b", "holds-b", gpus=8))).run()
    c.submit(lasting("2h", gang("one", pods=2, gpus=6, cpu="2", namespace="a"))).run()
    c.submit(lasting("2h", gang("two", pods=2, gpus=2, cpu="2", namespace="a"))).run()
    for k in range(8):
        c.node(make_node(f"small-{k}", gpus=1)).submit(lasting("2h", pods("b", f"passes-{k}"))).run()
    assert {one.unit[0].key.name for one in c.claims().all} == {"one", "two"}
    assert all(one.is_promise for one in c.claims().all)
    c.node(make_node("third", gpus=8, cpu=1))
    c.submit(lasting("2h", pods("a", "third-0", "third-1", gpus=4, cpu="100m"))).run()
    c.wait(599.0).delete("holds-a", "holds-b").run().wait(5.0)
    assert {"one-0", "one-1", "two-0", "two-1"} <= {*c.bound()}
    assert c.claims().promises == {KEPT: 2}


def test_a_second_claim_that_would_need_the_same_limit_is_not_made() -> None:
    c = promised()
    c.submit(lasting("2h", gang("next", pods=2, gpus=4, namespace="a"))).run()
    assert "8 nvidia.com/gpu" in c.why("next") or "16 kept" in c.why("next")
    c.submit(lasting("500s", pods("b", "fills", gpus=8))).run()
    assert "fills" in c.bound()
    assert claim(c).unit[0].key.name == "large"


def test_who_is_promised_a_start_does_not_wait_for_a_group_that_has_to_leave_it_its_limit() -> None:
    """The wide gang has been passed as often as may be, by less than its limit's rest; it would run on when
    the promised start is due, so it leaves that what it needs. If each waited for the other, their limit
    would be idle."""
    c = queued(OURS.replace("LIMIT", "18"), nodes=0).node(make_node("half", gpus=4))
    c.submit(lasting("300s", pods("a", "s0", gpus=2))).run().node(make_node("x")).node(make_node("y"))
    c.submit(lasting("600s", pods("b", "holds", gpus=8))).run()
    c.submit(lasting("2h", gang("wide", pods=9, gpus=2, namespace="a"))).run().wait(1.0)
    c.submit(lasting("2h", gang("large", pods=2, gpus=8, namespace="a"))).run()
    c.submit(lasting("10s", pods("b", "before", gpus=8))).run().delete("before").run()
    c.submit(lasting("2h", pods("b", "passes", gpus=8))).run()
    assert claim(c).unit[0].key.name == "large"
    c.submit(lasting("300s", pods("a", "s1"))).run()
    kept_out = c.scheduler.attempts.kept.limits.kept_out(c.group("wide"))
    assert kept_out is not None
    assert kept_out.is_at_bound
    c.delete("s0", "s1").run().wait(2.0)
    assert "wide-0" not in c.bound()
    c.wait(590.0).delete("holds").run().wait(2.0)
    assert {"large-0", "large-1"} <= {*c.bound()}, c.why("large")
    assert c.claims().promises == {KEPT: 1}
    # The other queue's pod has its turn first, by shares, and the wide gang needs its node, too.
    c.delete("passes", "large-0", "large-1").run().wait(2.0)
    assert {f"wide-{k}" for k in range(9)} <= {*c.bound()}, c.why("wide")


def test_a_claim_ends_that_is_late_as_its_queue_is_at_its_limit() -> None:
    """What another scheduler started counts within the limit, and nothing says when that ends."""
    c = promised()
    [theirs] = pods("a", "theirs", gpus=4, scheduler=STRANGER)
    c.submit(replace(theirs, spec=replace(theirs.spec, node_name="half"))).run()
    c.wait(600.0).delete("holds").run().wait(5.0)
    assert "Fairness: queue a: 4 of 16 nvidia.com/gpu used, needs 16" in c.why("large")
    assert claim(c).start_s == 601.0
    assert "passes" not in c.bound()
    c.wait(120.0)
    assert c.claims().all == []
    assert "passes" in c.bound()
    c.delete("theirs", "passes").run().wait(5.0)
    assert {"large-0", "large-1"} <= {*c.bound()}


def test_a_claim_ends_at_once_when_its_gang_needs_more_than_a_new_limit() -> None:
    c = promised()
    assert "passes" not in c.bound()
    reconfigured(c, OURS.replace("LIMIT", "8")).run().wait(2.0)
    assert c.why("large") == (
        "Fairness: queue a: needs 16 nvidia.com/gpu, more than its limit of 8: it never starts"
    )
    assert not c.claims().all
    assert "passes" in c.bound()
