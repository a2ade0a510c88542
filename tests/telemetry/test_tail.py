"""Gangs outside the sampling ratio that are traced all the same: slow, failed and preempting ones."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.tracing import KeepTraces
from gangsched.lab.sim.objects import at
from gangsched.model.effects import BindPod
from gangsched.model.events import PodUpdated
from gangsched.telemetry import names
from gangsched.telemetry.tail import FAILED, PREEMPTING, SLOW
from tests.support.scenario import gang, with_annotations
from tests.telemetry.traced import Traced, said, tree

ALL = KeepTraces(slower_than_s=60.0, failed=True, preempting=True)


def kept(c: Traced) -> dict[str, str]:
    """Gang -> why it is traced."""
    return {said(root, names.GROUP): said(root, names.KEPT) for root in c.named(names.GANG)}


def test_a_gang_that_is_bound_at_once_leaves_no_span() -> None:
    c = Traced(nodes=1, ratio=0.0, keep=ALL)
    c.submit(gang("a", pods=2)).run()
    assert c.placed("a")
    assert c.spans == []
    assert all(bind.annotations[names.TRACEPARENT_KEY].endswith("-00") for bind in c.all(BindPod))
    tracer = c.tracer
    assert tracer.tail is not None
    assert not any((tracer._traces, tracer.tail._held, tracer.tail.size))


def test_a_slow_gang_is_traced_whole_from_its_first_span_on() -> None:
    c = Traced(nodes=1, ratio=0.0, keep=ALL)
    c.submit(gang("a", pods=1, gpus=8)).run()
    c.submit(gang("b", pods=2, gpus=4)).run().wait(59.0)
    assert c.spans == []
    c.wait(10.0).delete("a-0").wait(15.0).run()
    assert c.placed("b")
    assert kept(c) == {"d/b": SLOW}
    lines = tree(c.spans)
    assert lines[0] == "schedule gang Scheduled"
    assert "  Attempt 1 Unschedulable" in lines
    assert "?" not in lines


def test_a_slow_gang_that_still_waits_can_be_read_already() -> None:
    c = Traced(nodes=1, ratio=0.0, keep=ALL)
    c.submit(gang("a", pods=1, gpus=16)).run()
    c.wait(310.0).run()  # tried again after five minutes
    assert c.named(names.ATTEMPT)
    assert not c.named(names.GANG)
    assert c.tracer.tail is not None
    assert c.tracer.tail.size == 0


def test_a_gang_that_gives_its_reservations_back_is_traced() -> None:
    c = Traced(Settings(permit_wait_s=5.0), nodes=1, ratio=0.0, keep=KeepTraces(failed=True))
    total = {"gangsched.io/total-members": "3"}
    c.submit(with_annotations(gang("a", pods=2, min_members=2), total)).run()
    assert c.spans == []
    c.wait(6.0)
    assert said(c.named(names.ATTEMPT)[0], names.VERDICT) == names.GIVEN_BACK
    c.submit(with_annotations(gang("a", pods=1, first=2, min_members=2), total)).wait(15.0).run()
    assert kept(c) == {"d/a": FAILED}
    assert "?" not in tree(c.spans)


def test_a_gang_that_was_tried_in_vain_and_is_deleted_is_traced() -> None:
    c = Traced(nodes=1, ratio=0.0, keep=KeepTraces(failed=True))
    c.submit(gang("a", pods=1, gpus=16)).run().wait(300.0).delete("a-0").run()
    c.submit(gang("b", pods=1, min_members=2)).run().delete("b-0").run()
    assert kept(c) == {"d/a": FAILED}, "b was never tried"


def test_a_gang_that_preempts_is_traced_and_its_victims_gang_is_not() -> None:
    settings = Settings(allow_eviction=True)
    c = Traced(settings, nodes=1, ratio=0.0, keep=KeepTraces(preempting=True))
    c.submit(gang("low", pods=1, gpus=8)).run()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run().wait(60.0).run()
    assert c.placed("high")
    assert kept(c) == {"d/high": PREEMPTING}


def test_the_ratio_goes_on_beside_it() -> None:
    c = Traced(nodes=1, ratio=1.0, keep=ALL)
    c.submit(gang("a", pods=2)).run()
    assert kept(c) == {"d/a": None}


def test_held_spans_are_bounded_and_the_root_counts_the_dropped_ones() -> None:
    most = 200
    c = Traced(nodes=1, ratio=0.0, keep=KeepTraces(failed=True, max_held_spans=most))
    c.submit(gang("full", pods=1, gpus=8)).run()
    for i in range(40):
        c.submit(gang(f"g{i}", pods=1, gpus=8))
    c.run()
    tail = c.tracer.tail
    assert tail is not None
    for _ in range(5):
        c.wait(300.0).run()
        assert tail.size <= most
    assert c.spans == []
    c.delete(*(f"g{i}-0" for i in range(40)))
    assert len(kept(c)) == 40
    untold = [n for root in c.named(names.GANG) if (n := said(root, names.SPANS_UNTOLD))]
    assert untold
    assert "?" not in tree(c.spans), "what is left is one tree each"
    assert tail.size == 0


def test_gangs_undecided_when_the_process_ends_are_not_traced() -> None:
    c = Traced(nodes=1, ratio=0.0, keep=ALL)
    c.submit(gang("a", pods=1, gpus=16)).run()
    c.tracer.stop()
    assert c.spans == []


def test_a_half_bound_gang_goes_on_in_its_trace_and_is_kept() -> None:
    c = Traced(nodes=2, ratio=0.0, keep=KeepTraces(failed=True))
    c.answer = lambda bind: "ok" if bind.name == "a-0" else "hold"
    c.submit(gang("a", pods=2, gpus=8)).run()
    c.answer = lambda bind: "ok"
    c.restart().run()
    assert c.placed("a")
    assert kept(c) == {"d/a": FAILED}


def test_two_gangs_whose_bound_members_name_one_trace_are_distinguished() -> None:
    """Annotations are copied with the manifests of pods, and whoever makes pods can write any."""
    named = {names.TRACEPARENT_KEY: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    c = Traced(nodes=1, ratio=0.0, keep=KeepTraces(failed=True))
    pods = [pod for name in "ab" for pod in with_annotations(gang(name, pods=2), named)]
    for pod in (pods[0], pods[2]):
        pods[pods.index(pod)] = replace(pod, spec=replace(pod.spec, node_name="n0"))
    created = (replace(pod, metadata=replace(pod.metadata, creation_timestamp=at(1.0))) for pod in pods)
    c.tell(*(PodUpdated(c.store(pod)) for pod in created)).run()
    assert c.placed("a")
    assert c.placed("b")
    assert kept(c) == {"d/a": FAILED, "d/b": FAILED}
    assert c.tracer.tail is not None
    assert not c.tracer.tail._held
