"""Which trace a gang is in: submitters' links, sampling, another process's root; limits; the end."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import make_node
from gangsched.model import events as ev
from gangsched.model.effects import BindPod
from gangsched.model.objects import CustomObject, ObjectMeta, SchedulingGroup
from gangsched.model.pod_group import CORE
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.telemetry import names
from tests.support.scenario import gang, with_annotations
from tests.telemetry.traced import Traced, said, tree

SUBMITTERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SUBMITTERS_TRACE = 0x0AF7651916CD43DD8448EB211C80319C


def submitters_of(c: Traced) -> list[int]:
    [root] = c.named(names.GANG)
    return [
        link.context.trace_id for link in root.links if (link.attributes or {}).get(names.LINK) == "submitter"
    ]


def test_the_submitters_trace_is_linked_once_for_all_members() -> None:
    c = Traced(nodes=1)
    c.submit(with_annotations(gang("a", pods=3), {names.SUBMITTERS_KEY: SUBMITTERS})).run()
    assert submitters_of(c) == [SUBMITTERS_TRACE]


def test_the_submitters_trace_may_be_on_the_group() -> None:
    c = Traced(nodes=1)
    meta = ObjectMeta(name="a", namespace="d", uid="g", annotations={names.SUBMITTERS_KEY: SUBMITTERS})
    c.object(CORE, CustomObject(meta, {"schedulingPolicy": {"gang": {"minCount": 1}}}))
    [pod] = gang("a", pods=1)
    pod = replace(
        pod,
        metadata=replace(pod.metadata, labels=None, annotations=None),
        spec=replace(pod.spec, scheduling_group=SchedulingGroup("a")),
    )
    c.submit(pod).run()
    assert submitters_of(c) == [SUBMITTERS_TRACE]


def test_a_bad_value_is_ignored_and_reported_once() -> None:
    bad = "00-00000000000000000000000000000000-b7ad6b7169203331-01"
    with structlog.testing.capture_logs() as logs:
        c = Traced(nodes=1)
        c.submit(with_annotations(gang("a", pods=3, gpus=5), {names.SUBMITTERS_KEY: bad})).run()
        c.node(make_node("n1", gpus=16)).wait(15.0).run()
    assert c.placed("a")
    assert submitters_of(c) == []
    [line] = [line for line in logs if line["log_level"] == "warning"]
    assert (line["gang"], line["value"]) == ("d/a", bad)
    [root] = c.named(names.GANG)
    assert root.context
    assert line["trace_id"] == f"{root.context.trace_id:032x}"


def test_nothing_is_traced_at_ratio_0_and_the_binding_carries_that_flag() -> None:
    c = Traced(nodes=1, ratio=0.0)
    c.submit(gang("a", pods=2)).run()
    assert c.spans == []
    written = {bind.annotations[names.TRACEPARENT_KEY] for bind in c.all(BindPod)}
    assert len(written) == 1
    assert written.pop().endswith("-00")
    c.delete("a-0", "a-1")
    assert not c.tracer._unsampled


def test_a_ratio_traces_some_gangs_whole_and_others_not_at_all() -> None:
    c = Traced(nodes=10, ratio=0.5)
    for i in range(40):
        c.submit(gang(f"g{i}", pods=2))
    c.run()
    roots = c.named(names.GANG)
    assert 0 < len(roots) < 40
    assert "?" not in tree(c.spans)


def test_a_gang_found_half_bound_goes_on_in_its_trace() -> None:
    c = Traced(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.wait(10.0)
    c.submit(gang("a", pods=2, gpus=8)).run()
    before = {span.context.trace_id for span in c.spans if span.context}
    c.answer = lambda bind: "ok"
    c.wait(3.0).restart().run()
    assert c.placed("a")
    assert {span.context.trace_id for span in c.spans if span.context} == before
    assert tree(c.spans) == [
        "schedule gang Scheduled",
        "  Gathering",
        "  Attempt 2 Scheduled",
        "    Queue wait",
        "    Cycle Scheduled",
        "      PreFilter",
        "      Filter",
        "      Reserve",
        "    Bind Scheduled",
    ], "what the dead process had not ended is not told, and nothing is without a parent"
    [root] = c.named(names.GANG)
    assert said(root, names.CONTINUED) is True
    assert root.start_time is not None
    assert root.start_time <= min(span.start_time or 0 for span in c.spans), "from its first member on"


def test_a_gang_that_was_not_sampled_stays_so_after_a_restart() -> None:
    c = Traced(nodes=2, ratio=0.0)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.answer, c.ratio = (lambda bind: "ok"), 1.0
    c.restart().run()
    assert c.placed("a")
    assert c.spans == []


def test_a_large_gang_makes_spans_that_a_browser_opens() -> None:
    c = Traced()
    for i in range(75):
        c.node(make_node(f"n{i}", gpus=8))
    c.submit(gang("a", pods=300, gpus=2)).run()
    [bind], [reserve] = c.named(names.BIND), c.named(names.RESERVE)
    assert len(bind.events) == names.MAX_PLAIN_EVENTS
    assert said(bind, names.EVENTS_UNTOLD) == 300 - names.MAX_PLAIN_EVENTS
    assert said(bind, names.N_BOUND) == 300
    assert len(said(reserve, names.DEVICES)) == len(said(reserve, names.NODES)) == names.MAX_LISTED
    assert (said(reserve, names.N_DEVICES), said(reserve, names.N_NODES)) == (600, 75)


def test_a_gang_that_is_tried_for_weeks_does_not_make_an_endless_trace() -> None:
    c = Traced(nodes=1)
    c.submit(gang("b", pods=1, gpus=8)).run().spans.clear()
    c.submit(gang("a", pods=1, gpus=8)).run()
    for _ in range(100):
        c.wait(300.0).run()
    assert len(c.named(names.ATTEMPT)) == names.MAX_FAILED_TOLD
    c.delete("b-0").wait(15.0).run()
    assert c.placed("a")
    *_, last = c.named(names.ATTEMPT)
    assert said(last, names.VERDICT) == names.SCHEDULED
    [root] = c.named(names.GANG)
    told = len(c.named(names.ATTEMPT))
    assert said(root, names.ATTEMPTS_UNTOLD) == said(root, names.ATTEMPTS) - told
    assert "?" not in tree(c.spans)


def test_stopping_ends_open_spans() -> None:
    c = Traced(nodes=1)
    c.submit(with_annotations(gang("a", pods=2, min_members=2), {"gangsched.io/total-members": "3"})).run()
    c.submit(gang("b", pods=1, first=0, min_members=2))
    c.tracer.stop()
    assert "?" not in tree(c.spans)
    verdicts = {said(root, names.GROUP): said(root, names.VERDICT) for root in c.named(names.GANG)}
    assert verdicts == {"d/a": names.STOPPED, "d/b": names.STOPPED}
    [wait] = c.named(names.PERMIT_WAIT)
    assert said(wait, names.VERDICT) == names.STOPPED


def test_stopping_leaves_the_root_of_a_half_bound_gang_to_its_next_process() -> None:
    c = Traced(nodes=2)
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.tracer.stop()
    assert c.named(names.GANG) == []
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert len(c.named(names.GANG)) == 1
    assert "?" not in tree(c.spans)


def test_stopping_counts_answers_that_the_core_had_no_time_for() -> None:
    c = Traced(nodes=1)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=2)).run()
    c.tracer.note_events([ev.BindSucceeded(bind.uid, bind.attempt) for bind in c.held_binds])
    c.tracer.stop()
    [root] = c.named(names.GANG)
    assert said(root, names.VERDICT) == names.SCHEDULED


def test_nothing_is_remembered_of_gangs_that_are_bound_or_gone() -> None:
    c = Traced(nodes=1)
    c.submit(gang("a", pods=2)).run()
    c.submit(gang("b", pods=1, gpus=16)).run()
    c.delete("b-0")
    tracer = c.tracer
    left = (tracer._traces, tracer._of_member, tracer._binding, tracer._to_gather, tracer._touched)
    assert not any(left)


def test_a_follower_tells_nothing_until_it_leads() -> None:
    c = Traced()
    profiles = build_profiles(default_config(IN_TREE))
    c.scheduler = Scheduler(profiles, c.settings, leading=False, observer=c.tracer)
    c.node(make_node("n0", gpus=8))
    c.tell(*(ev.KindSynced(kind) for kind in c.scheduler.kinds))
    c.submit(gang("a", pods=2)).run()
    c.wait(100.0)
    assert c.spans == []
    assert not c.tracer._traces
    c.tell(ev.LeadershipGained()).run()
    assert c.placed("a")
    [root] = c.named(names.GANG)
    assert (root.end_time or 0) - (root.start_time or 0) < 1e9, "it begins with its leadership"
