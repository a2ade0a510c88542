"""One trace a gang: the tree that comes of what happens to it, and what its spans say."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.model import events as ev
from gangsched.model.effects import BindPod
from gangsched.model.resource_claims.objects import (
    AllocatedDevice,
    AllocatedDevices,
    Allocation,
    ClaimMeta,
    Consumer,
    ResourceClaim,
    ResourceClaimStatus,
)
from gangsched.telemetry import names
from tests.support.scenario import gang, with_annotations
from tests.telemetry.traced import Traced, said, tree

TOTAL_3 = {"gangsched.io/total-members": "3"}
PLACED = ["PreFilter", "Filter", "Reserve", "Permit"]
SCORED = ["PreFilter", "Filter", "Score", "Reserve", "Permit"]
HELD = ["PreFilter", "Filter", "Reserve", "Permit Wait"]


def cycle(verdict: str, points: list[str], *, depth: int = 2) -> list[str]:
    return ["  " * depth + f"Cycle {verdict}", *("  " * (depth + 1) + point for point in points)]


def test_a_gang_that_fits() -> None:
    c = Traced(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Gathering",
        "  Attempt 1 Scheduled",
        "    Queue wait",
        *cycle("Scheduled", SCORED),
        "    Bind Scheduled",
    ]
    [root], [reserve], [bind] = c.named(names.GANG), c.named(names.RESERVE), c.named(names.BIND)
    assert said(root, names.GROUP) == "d/a"
    assert said(root, names.NAMESPACE) == "d"
    assert (said(root, names.MEMBERS), said(root, names.MIN_COUNT)) == (2, 2)
    assert said(reserve, names.NODES) == ("n0", "n1")
    assert (said(reserve, names.N_DEVICES), len(said(reserve, names.DEVICES))) == (16, 16)
    assert [event.name for event in bind.events] == ["bound", "bound"]
    first = bind.events[0].attributes or {}
    assert first[names.POD_NAME] == "a-0"
    assert first[names.NODE_NAME] == "n0"
    assert set(first[names.DEVICES]) == c.ids("a-0")  # type: ignore[arg-type]
    assert len({span.context.trace_id for span in c.spans if span.context}) == 1


def test_every_binding_carries_the_root() -> None:
    c = Traced(nodes=2).submit(gang("a", pods=2, gpus=8)).run()
    [root] = c.named(names.GANG)
    assert root.context
    expected = f"00-{root.context.trace_id:032x}-{root.context.span_id:016x}-01"
    assert [bind.annotations[names.TRACEPARENT_KEY] for bind in c.all(BindPod)] == [expected] * 2


def test_a_lone_pod_has_its_own_name_for_it() -> None:
    c = Traced(nodes=1)
    [pod] = gang("p", pods=1)
    c.submit(replace(pod, metadata=replace(pod.metadata, labels=None))).run()
    [root] = c.named(names.POD)
    assert said(root, names.POD_NAME) == "p-0"
    assert said(root, names.POD_UID) == pod.metadata.uid


def test_a_gang_that_times_out_in_permit_and_comes_back() -> None:
    c = Traced(nodes=1)
    c.submit(with_annotations(gang("a", pods=2, gpus=2, min_members=2), TOTAL_3)).run()
    assert tree(c.spans) == [
        "?",
        "  Gathering",
        "  Queue wait",
        *cycle("Wait", HELD, depth=1),
    ], "what has ended is told at once, its parents when they end"
    c.wait(60.0)
    c.submit(with_annotations(gang("a", pods=1, first=2, gpus=2, min_members=2), TOTAL_3)).wait(5.0).run()
    assert c.placed("a")
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Gathering",
        "  Attempt 1 GivenBack",
        "    Queue wait",
        *cycle("Wait", HELD),
        "    Permit wait GivenBack",
        "    Unreserve",
        "  Attempt 2 Scheduled",
        "    Queue wait",
        *cycle("Scheduled", PLACED),
        "    Bind Scheduled",
    ]
    [wait], [unreserve] = c.named(names.PERMIT_WAIT), c.named(names.UNRESERVE)
    assert said(wait, names.WAITS_FOR) == "2 of 3 members are here"
    assert "WaitOnPermit timed out" in said(wait, names.REASON)
    assert "WaitOnPermit timed out" in said(unreserve, names.REASON)
    assert said(unreserve, names.MEMBERS) == 2
    assert 59.9e9 < (wait.end_time or 0) - (wait.start_time or 0) < 60.1e9
    assert wait.status.status_code.name == "ERROR"
    first, second = c.named(names.ATTEMPT)
    assert first.context
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_permit_that_is_allowed_by_a_member_that_comes() -> None:
    c = Traced(nodes=1)
    c.submit(with_annotations(gang("a", pods=1, gpus=2, min_members=1), {"gangsched.io/total-members": "3"}))
    c.run()
    for k in (1, 2):
        c.wait(5.0)
        more = gang("a", pods=1, first=k, gpus=2, min_members=1)
        c.submit(with_annotations(more, {"gangsched.io/total-members": "3"})).run()
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Attempt 3 Scheduled",
        "    Queue wait",
        *cycle("Wait", HELD),
        "    Permit wait Allowed",
        *cycle("Scheduled", PLACED),
        "    Bind Scheduled",
    ]
    [wait] = c.named(names.PERMIT_WAIT)
    assert [event.name for event in wait.events] == ["looked at again"]
    assert said(wait, names.WAITS_FOR) == "2 of 3 members are here"


def test_a_gang_that_does_not_fit_until_room_is_freed() -> None:
    c = Traced(nodes=1).submit(gang("b", pods=1, gpus=8)).run()
    c.spans.clear()
    c.submit(gang("a", pods=1, gpus=8)).run().wait(3.0)
    c.delete("b-0").wait(10.0).run()
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Attempt 1 Unschedulable",
        "    Queue wait",
        *cycle("Unschedulable", ["PreFilter", "Filter", "PostFilter Unschedulable"]),
        "  Attempt 2 Scheduled",
        "    Queue wait",
        *cycle("Scheduled", PLACED),
        "    Bind Scheduled",
    ]
    first, second = c.named(names.QUEUE_WAIT)
    assert "Insufficient nvidia.com/gpu" in said(c.named(names.ATTEMPT)[0], names.REASON)
    assert "Insufficient nvidia.com/gpu" in said(second, names.REASON), "what it waited to be cured of"
    assert [event.name for event in first.events] == ["active"]
    assert [event.name for event in second.events] == ["unschedulable", "active"]


def test_a_gang_that_waits_for_its_victims() -> None:
    c = Traced(nodes=1).submit(gang("low", pods=2, gpus=4)).run()
    c.spans.clear()
    c.evictions = "slow"
    c.submit(gang("a", pods=1, gpus=8, priority=10)).run().wait(3.0)
    c.delete("low-0", "low-1").run()
    assert tree([span for span in c.spans if said(span, names.GROUP) != "d/low"])[:8] == [
        "schedule gang Scheduled",
        "  Attempt 2 Scheduled",
        "    Queue wait",
        *cycle("Wait", ["PreFilter", "Filter", "PostFilter"]),
        "    Permit wait Allowed",
    ]
    [wait] = c.named(names.PERMIT_WAIT)
    told = [event for event in wait.events if event.name == names.PREEMPTS]
    assert [(event.attributes or {})[names.POD_NAME] for event in told] == ["low-0", "low-1"]
    assert {(event.attributes or {})[names.NODE_NAME] for event in told} == {"n0"}
    assert "waiting for 2 pods of lower priority to go" in said(wait, names.WAITS_FOR)


def test_failed_binds_are_events_and_reservations_are_released() -> None:
    c = Traced(nodes=2).submit()
    c.answer = lambda bind: "403"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.answer = lambda bind: "ok"
    c.wait(5.0).run()
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Gathering",
        "  Attempt 1 BindFailed",
        "    Queue wait",
        *cycle("Scheduled", SCORED),
        "    Bind BindFailed",
        "    Unreserve",
        "  Attempt 2 Scheduled",
        "    Queue wait",
        *cycle("Scheduled", SCORED),
        "    Bind Scheduled",
    ]
    failed = c.named(names.BIND)[0]
    assert [event.name for event in failed.events] == ["failed", "failed"]
    assert "403" in str((failed.events[0].attributes or {})[names.REASON])
    reason = said(c.named(names.UNRESERVE)[0], names.REASON)
    assert "403 no; an admission policy or webhook refused it, not RBAC" in reason


def test_a_gang_bound_in_part_is_unwound_in_its_trace() -> None:
    c = Traced(Settings(on_partial_bind="unwind"), nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "422"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.delete("a-1")
    assert tree(c.spans) == [
        "schedule gang Gone",
        "  Gathering",
        "  Attempt 1 BoundInPart",
        "    Queue wait",
        *cycle("Scheduled", SCORED),
        "    Bind BoundInPart",
        "    Unreserve",
        "  Unwind",
        "  Queue wait Gone",
    ]
    [bind], [unwind] = c.named(names.BIND), c.named(names.UNWIND)
    assert [event.name for event in bind.events] == ["bound", "failed"]
    assert (said(bind, names.N_BOUND), said(bind, names.N_FAILED)) == (1, 1)
    assert "bound in part (1 of 2)" in said(bind, names.REASON)
    assert said(unwind, names.MEMBERS) == 1


def test_an_answer_that_was_lost_is_asked_about() -> None:
    c = Traced(nodes=1)
    c.answer = lambda bind: "unknown"
    c.submit(gang("a", pods=1)).run()
    bind = c.held_binds[0]
    pod = c.commit(bind)
    c.tell(ev.PodRead(bind.uid, pod))
    [span] = c.named(names.BIND)
    assert [event.name for event in span.events] == ["unknown", "bound"]
    assert said(span, names.N_BOUND) == 1
    assert "?" not in tree(c.spans)


def test_gangs_that_start_together_link_each_other() -> None:
    c = Traced(nodes=2)
    both = {"gangsched.io/groups": '["d/a","d/b"]'}
    c.submit(with_annotations(gang("a", pods=1, gpus=8), both)).run()
    c.submit(with_annotations(gang("b", pods=1, gpus=8), both)).run()
    roots = {said(root, names.GROUP): root.context for root in c.named(names.GANG)}
    assert len({context.trace_id for context in roots.values() if context}) == 2
    linked = {
        link.context.span_id
        for attempt in c.named(names.ATTEMPT)
        for link in attempt.links
        if (link.attributes or {})[names.LINK] == "starts together"
    }
    assert linked == {context.span_id for context in roots.values() if context}
    [wait] = c.named(names.PERMIT_WAIT)
    assert "group d/b does not exist" in said(wait, names.WAITS_FOR)
    assert said(wait, names.VERDICT) == names.ALLOWED


def test_a_gang_that_is_deleted_while_it_waits() -> None:
    c = Traced(nodes=1).submit(gang("a", pods=1, gpus=16)).run()
    c.delete("a-0")
    assert tree(c.spans) == [
        "schedule gang Gone",
        "  Attempt 1 Unschedulable",
        "    Queue wait",
        *cycle("Unschedulable", ["PreFilter", "Filter", "PostFilter Unschedulable"]),
        "  Queue wait Gone",
    ]


def test_late_members_of_a_whole_gang_have_a_trace_that_links_the_first() -> None:
    c = Traced(nodes=1).submit(gang("a", pods=2, gpus=1)).run()
    [first] = c.named(names.GANG)
    c.submit(gang("a", pods=1, first=2, gpus=1, min_members=2)).run()
    second = c.named(names.GANG)[1]
    assert first.context
    assert second.context
    assert second.context.trace_id != first.context.trace_id
    assert [link.context.trace_id for link in second.links] == [first.context.trace_id]


def test_a_bind_tells_of_the_claims_that_were_reserved_for_it() -> None:
    c = Traced(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2)).run()
    device = AllocatedDevice("gpu", "gpu.example.com", "n0", "gpu-0")
    users = [Consumer(resource="pods", name=f"a-{i}", uid=c.pod(f"a-{i}").metadata.uid) for i in range(2)]
    claim = ResourceClaim(ClaimMeta(name="shared", namespace="d", uid="u"))
    c.tracer.note_events([ev.ClaimPatched("u", 1, claim)])  # its finalizer
    status = ResourceClaimStatus(Allocation(AllocatedDevices([device])), users)
    c.tracer.note_events([ev.ClaimPatched("u", 2, replace(claim, status=status))])
    for held in c.held_binds:
        c.tell(ev.BindSucceeded(held.uid, held.attempt), ev.PodUpdated(c.commit(held)))
    [bind] = c.named(names.BIND)
    assert [event.name for event in bind.events] == [names.RESERVED_CLAIM, "bound", "bound"]
    told = bind.events[0].attributes or {}
    assert (told[names.CLAIM], told[names.DEVICES]) == ("d/shared", ("gpu.example.com/n0/gpu-0",))
