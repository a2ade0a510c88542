"""Claims as two tables: who may use room that is kept, and what becomes of the claim.

The stage: two nodes of 8 GPUs. On one runs `holds`, which states that it ends 600 s after it began. The gang
`large` needs both nodes, was passed as often as its bound allows, and so has a claim on both for then.
`passes` needs a node for two hours, and waits behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gangsched.core.queueing.claims import KEPT
from gangsched.lab.sim.objects import make_node
from tests.core.test_claims import claimed, extend, overrunning
from tests.support.scenario import Cluster, lone

KEPT_FOR_LARGE = "8 nvidia.com/gpu are kept for d/large, which is promised to start by 2026-01-01 00:11 UTC."


class Comes(NamedTuple):
    """A pod that comes to the stage: what it asks for, how long it says it runs, and whether it starts."""

    what: str
    gpus: int
    runs: str
    priority: int
    starts: bool


WHO_MAY_USE_IT = (
    Comes("it ends before the claim starts", 8, "500s", 0, starts=True),
    Comes("it ends when the claim has started", 1, "602s", 0, starts=False),
    Comes("it says nothing of its end", 1, "", 0, starts=False),
    Comes("it is more important", 8, "3000s", 10, starts=True),
    Comes("it is less important, and ends before", 1, "500s", -1, starts=True),
    Comes("it is less important, and does not", 1, "2h", -1, starts=False),
)


@pytest.mark.parametrize("row", WHO_MAY_USE_IT, ids=[row.what for row in WHO_MAY_USE_IT])
def test_who_may_use_the_room_of_a_claim(row: Comes) -> None:
    c = claimed(fill="2h")
    c.submit(lone("comes", row.gpus, row.runs, priority=row.priority))
    kept = c.scheduler.attempts.kept.kept_from([c.group("comes")])
    assert list(kept.claims) == ([] if row.starts else [c.claim("large")])
    assert len(kept.room) == 2 * len(kept.claims), "a node for each member of the gang, one of them not free"
    c.run()
    assert bool(c.pod("comes").spec.node_name) == row.starts
    assert row.starts or KEPT_FOR_LARGE in c.said("comes")


class Happens(NamedTuple):
    """What happens to the stage. claim: then why it slipped, how often, and whether it is promised still;
    None: the gang has none. from_s: the earliest start that it may say. placed: whether the gang has started.
    passes: whether who waits behind it has. outcome: of the promise, once what is in the gang's way has
    gone."""

    what: str
    do: Callable[[Cluster], object]
    claim: tuple[str, int, bool] | None
    placed: bool = False
    passes: bool = False
    outcome: str = KEPT
    from_s: float = 601.0
    stage: Callable[[], Cluster] = lambda: claimed(fill="2h")


def add_nodes(c: Cluster) -> None:
    c.node(make_node("n2", gpus=8)).node(make_node("n3", gpus=8)).run().wait(30.0)


def lose_a_member(c: Cluster) -> None:
    c.delete("large-1").run().wait(15.0)


def lose_a_node(c: Cluster) -> None:
    c.drop_node("n1" if c.pod("holds").spec.node_name == "n0" else "n0").run().wait(5.0)
    c.delete("holds").run().wait(15.0)


def come_first(c: Cluster) -> None:
    c.submit(lone("urgent", 8, "3000s", priority=10)).run().wait(40.0)


def ask_for_longer(c: Cluster) -> None:
    c.wait(100.0)
    extend(c, "holds", "1800s")
    c.wait(2.0)


WHAT_BECOMES_OF_IT = (
    Happens("nothing", lambda c: c.wait(100.0), ("", 0, True)),
    Happens("its room is whole early", lambda c: c.delete("holds").run(), None, placed=True),
    Happens("it fits elsewhere", add_nodes, None, placed=True, passes=True),
    Happens(
        "what it waits for runs on",
        lambda c: c.wait(700.0),
        ("overrun", 2, False),
        outcome="overrun",
        from_s=901.0,
    ),
    Happens(
        "what it waits for states a later end",
        ask_for_longer,
        ("extended", 1, True),
        from_s=1801.0,
        stage=lambda: overrunning("none"),
    ),
    Happens("a more important pod takes its room", come_first, ("priority", 1, True), from_s=3000.0),
    Happens("the gang loses a member", lose_a_member, None, passes=True, outcome=""),
    Happens("it would not fit if all had ended", lose_a_node, None, passes=True, outcome=""),
)


@pytest.mark.parametrize("row", WHAT_BECOMES_OF_IT, ids=[row.what for row in WHAT_BECOMES_OF_IT])
def test_what_becomes_of_a_claim(row: Happens) -> None:
    c = row.stage()
    row.do(c)
    found = c.claims().claim(c.group("large"))
    assert row.claim == (None if found is None else (found.because, found.n_slips, found.is_promise))
    assert found is None or row.from_s <= found.start_s < row.from_s + 200.0
    assert c.placed("large") == row.placed
    assert bool(c.pod("passes").spec.node_name) == row.passes
    if row.claim is not None:
        there = {pod.metadata.name for pod in c.pods.values()}
        c.delete(*sorted(there & {"holds", "urgent"})).run().wait(5.0)
        assert c.placed("large", on=2)
    assert c.claims().promises == ({row.outcome: 1} if row.outcome else {})
