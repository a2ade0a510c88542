"""Claims of groups that start together: one for the whole set, whichever of its groups has its turn."""

from __future__ import annotations

import json

from msgspec.structs import replace

from gangsched.core.cache.queues.tree import QUEUE_KEY
from gangsched.core.queueing.claims import KEPT
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.objects import CustomObject
from gangsched.model.pod_group import COSCHEDULING_LABEL, GROUPS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import queued
from tests.core.test_start_together import listing
from tests.support.scenario import Cluster, gang, lone, with_annotations

QUEUES = """
queueing: {bound: {groups: 50, mode: hard}}
queues:
- {name: patient, namespaces: ['*']}
- {name: quick, namespaces: [d], bound: 2}
"""


def claimed_set() -> Cluster:
    """The second of two that start together is at its bound first, and the first is before it in line."""
    c = queued(QUEUES, nodes=2).submit(lone("holds", 8, "600s")).run()
    first = with_annotations(listing("first", ["second"]), {QUEUE_KEY: "patient"})
    c.submit(first, listing("second", ["first"], pods=2, gpus=7)).run()
    for k in range(3):
        c.submit(lone(f"passes-{k}", 1, "100s")).run()
    return c


def test_a_set_keeps_its_claim_whichever_of_its_groups_is_tried() -> None:
    c = claimed_set()
    kept = c.claim("first")
    assert kept is c.claim("second")
    assert [group.key.name for group in kept.unit] == ["second", "first"]
    c.delete("passes-0").run().wait(5.0)  # both are woken, and the first has its turn
    assert c.group("first").message.startswith("It starts")
    assert c.claim("second") is c.claim("first") is kept
    c.delete("passes-1", "holds").run().wait(2.0)
    assert c.placed("second", on=2)
    assert c.placed("first")
    assert c.claims().promises == {KEPT: 1}
    assert [one.reason for one in c.all(ef.RecordEvent)].count("RoomClaimed") == 2, "of two groups, once"


def test_two_who_have_a_claim_each_lose_both_when_they_become_a_set() -> None:
    c = queued(QUEUES, nodes=2).submit(lone("holds", 8, "600s")).run()
    lasts = {WALLTIME_KEY: "600s"}
    for name in ("first", "second"):
        c.submit(with_annotations(gang(name, pods=2, gpus=7), lasts)).run()
    for k in range(3):
        c.submit(lone(f"passes-{k}", 1, "100s")).run()
    assert (c.claim("first").start_s, c.claim("second").start_s) == (601.0, 1201.0)
    for name, other in (("first", "second"), ("second", "first")):
        for pod in with_annotations(listing(name, [other], pods=2, gpus=7), lasts):
            now = c.pod(pod.metadata.name)
            c.update(now, metadata=replace(now.metadata, annotations=pod.metadata.annotations))
    c.run()
    assert not c.claims().by_key, "neither was made for the two of them"


def test_they_lose_both_in_the_first_turn_of_the_set() -> None:
    def asks(name: str, *others: str) -> CustomObject:
        own = {WALLTIME_KEY: "600s", **({GROUPS_KEY: json.dumps(others)} if others else {})}
        return make_pod_group(name, spec={"minMember": 2}, annotations=own)

    c = queued(QUEUES, nodes=2).submit(lone("holds", 8, "600s")).run()
    for name in ("first", "second"):
        c.object("coscheduling", asks(name))
        c.submit([make_pod(f"{name}-{k}", gpus=7, labels={COSCHEDULING_LABEL: name}) for k in range(2)]).run()
    for k in range(3):
        c.submit(lone(f"passes-{k}", 1, "100s")).run()
    assert c.claim("first") is not c.claim("second")
    c.object("coscheduling", asks("first", "d/second")).object("coscheduling", asks("second", "d/first"))
    assert c.scheduler.schedule_next(c.now_s) is not None
    assert not c.claims().by_key
