"""Shadow mode beside another scheduler: what we would have done, what it did, and that nothing leaves."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.core.groups.attempts.extenders import ExtenderVerdicts, Interest
from gangsched.lab.sim.objects import make_pod
from gangsched.model import events as ev
from gangsched.model.effects import AskExtenders
from gangsched.model.objects import Pod
from gangsched.shadow.records import Verdict
from gangsched.shadow.report import report_data, report_text
from tests.shadow.scenario import THEIRS, Story


def pod(name: str, **fields: Any) -> Pod:
    return make_pod(name, scheduler=THEIRS, **fields)


@pytest.fixture
def story() -> Story:
    return Story().node("n0").node("n1")


def text(story: Story) -> list[str]:
    return report_text(story.shadow.records, names=[THEIRS], for_s=story.now_s).splitlines()


def test_the_same_node(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    story.now_s = 1.5
    story.they_bind("a", "n0")
    assert story.record("a").verdict is Verdict.SAME
    assert story.record("a").lead_s == 0.5
    assert story.left == []
    assert story.scheduler.statistics()["members"]["bound"] == 1
    assert text(story) == [
        "shadow of default-scheduler for 1.5 s: 1 pod: 1 same node",
        "decided 0.500 s earlier (median of 1 pod that both placed)",
    ]


def test_their_node_takes_the_place_of_ours(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    assert (story.free_gpus("n0"), story.free_gpus("n1")) == (0, 8)
    story.they_bind("a", "n1")
    assert (story.free_gpus("n0"), story.free_gpus("n1")) == (8, 0)
    assert story.record("a").verdict is Verdict.EQUAL, "both nodes were empty"


def test_another_node_is_reported_with_the_scores(story: Story) -> None:
    story.create(pod("first", gpus=0, cpu="32")).turns().they_bind("first", "n0")
    story.create(pod("a", gpus=0, cpu="8")).turns().they_bind("a", "n0")
    record = story.record("a")
    assert (record.verdict, record.ours, record.theirs) == (Verdict.OTHER, "n1", "n0")
    assert record.why.startswith("it scores ")
    assert text(story)[2].startswith("d/a: theirs n0, ours n1: it scores ")


def test_a_node_that_would_not_do_is_reported_with_the_reason(story: Story) -> None:
    story.create(pod("first", gpus=8)).turns().they_bind("first", "n0")
    story.create(pod("a", gpus=4)).turns().they_bind("a", "n0")
    assert story.record("a").why == "Insufficient nvidia.com/gpu"


def test_the_faster_one_is_compared_too(story: Story) -> None:
    """Both events in one batch: its bind is heard of before our turn, and held back until we have had it."""
    story.create(pod("a", gpus=8), pod("b", gpus=8))
    story.tell(story.bound("a", "n1"), story.bound("b", "n0"))
    assert story.scheduler.statistics()["members"]["pending"] == 2
    story.turns()
    assert [story.record(name).ours for name in "ab"] == ["n0", "n0"], "b is decided with a where it is"
    assert story.scheduler.statistics()["members"]["bound"] == 2
    assert [story.record(name).verdict for name in "ab"] == [Verdict.EQUAL, Verdict.SAME]


def test_a_pod_that_we_hear_of_in_the_batch_of_its_bind(story: Story) -> None:
    made = pod("a", gpus=8)
    story.tell(ev.PodAdded(story._stored(made)), story.bound("a", "n0")).turns()
    assert story.record("a").verdict is Verdict.SAME


def test_a_pod_that_is_born_on_a_node_is_none_of_our_business(story: Story) -> None:
    born = pod("born")
    story.pods["born"] = born
    story.tell(story.bound("born", "n0")).turns()
    assert story.shadow.records.get(born.metadata.uid) is None
    assert story.free_gpus("n0") == 7


def test_they_refuse_what_we_would_place(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    story.they_refuse("a", "0/2 nodes are available: 2 node(s) had untolerated taint(s).")
    record = story.record("a")
    assert (record.verdict, record.ours) == (Verdict.ONLY_OURS, "n0")
    assert story.free_gpus("n0") == 8, "what we held for it is given back"
    assert text(story)[-1] == (
        "d/a: theirs none (0/2 nodes are available: 2 node(s) had untolerated taint(s).), ours n0"
    )


def test_patience_ends(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    assert story.free_gpus("n0") == 0
    story.now_s += 30.0
    story.shadow.advance(story.now_s)
    assert story.free_gpus("n0") == 8
    story.wait(120.0)
    assert story.record("a").n_decisions > 1
    assert story.record("a").verdict is Verdict.ONLY_OURS
    story.they_bind("a", "n0")
    assert story.record("a").verdict is Verdict.SAME
    assert story.left == []


def test_we_refuse_what_they_place(story: Story) -> None:
    story.create(pod("a", gpus=9)).turns().they_bind("a", "n1")
    record = story.record("a")
    assert record.verdict is Verdict.ONLY_THEIRS
    assert record.ours_said == (
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
        " No node that suits it is large enough, even with nothing else running."
    )
    assert text(story)[-1] == f"d/a: theirs n1, ours none: {record.ours_said}"


def test_the_victims_of_a_gang_are_reported_and_none_is_evicted(story: Story) -> None:
    story.create(*(pod(f"low-{k}", gpus=8) for k in range(2))).turns()
    story.they_bind("low-0", "n0").they_bind("low-1", "n1")
    story.create(*(pod(f"g-{k}", group="g", min_members=2, gpus=8, priority=10) for k in range(2))).turns()
    said = story.record("g-0").ours_said
    told = "preemption: it would be placed on n0, n1 in place of 2 pods of lower priority: d/low-0, d/low-1"
    assert said.endswith(f"2 Insufficient nvidia.com/gpu. {told}; nothing is evicted")
    assert text(story)[-1] == f"gang d/g: theirs none, ours none ({said})"
    assert story.left == []
    story.wait()
    assert story.left == [], "nor later"
    # The other scheduler makes the room: by then it fits, and both have placed it.
    story.delete("low-0").delete("low-1").wait().turns()
    story.they_bind("g-0", "n0").they_bind("g-1", "n1")
    assert text(story)[-1].startswith("gang d/g: the same nodes (n0, n1)")


def test_the_victims_of_a_lone_pod_are_reported(story: Story) -> None:
    story.create(*(pod(f"low-{k}", gpus=8, priority=k) for k in range(2))).turns()
    story.they_bind("low-0", "n0").they_bind("low-1", "n1")
    story.create(pod("high", gpus=8, priority=10)).turns()
    assert "it would be placed on n0 in place of 1 pod of lower priority: d/low-0" in text(story)[-1]
    assert text(story)[-1].startswith("d/high: nobody placed it; ours: 0/2 nodes are available")


def test_a_gang_that_they_start_in_part(story: Story) -> None:
    members = [pod(f"g-{k}", group="g", min_members=3, gpus=8) for k in range(3)]
    story.node("n2").create(members[0])
    story.they_bind("g-0", "n2")
    assert story.record("g-0").ours_said == "1 of 3 members exist"
    story.create(*members[1:]).turns()
    story.now_s += 4.0
    story.they_bind("g-1", "n0")
    lines = text(story)
    assert lines[-1].startswith("gang d/g: theirs n0, n2 over 4.000 s, ours n0, n1")
    assert story.left == [], "nobody is evicted for it"


def test_equal_members_of_a_gang_may_change_places(story: Story) -> None:
    story.create(*(pod(f"g-{k}", group="g", min_members=2, gpus=8) for k in range(2))).turns()
    story.they_bind("g-0", "n1").they_bind("g-1", "n0")
    assert text(story)[-1].startswith("gang d/g: the same nodes (n0, n1), theirs at once")
    data = report_data(story.shadow.records, names=[THEIRS], for_s=1.0)
    assert data["gangs"][0]["same"] is True
    assert data["gangs"][0]["ours"] == {"n0": 1, "n1": 1}


def test_a_deleted_pod_gives_back_what_we_held(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    record = story.record("a")
    story.delete("a")
    assert record.is_gone
    assert story.free_gpus("n0") == 8
    assert text(story)[-1] == "d/a: theirs none (deleted before), ours n0"


def test_extenders_are_asked_and_nothing_else_leaves() -> None:
    story = Story(ExtenderVerdicts((Interest("http://e"),))).node("n0").node("n1")
    story.create(pod("a")).turns()
    [ask] = story.left
    assert isinstance(ask, AskExtenders)
    story.they_bind("a", "n0")
    assert story.record("a").ours == "", "their bind waits until the extender has spoken"
    story.tell(ev.ExtendersAnswered(ask.ticket, nodes=("n1",), failed={"n0": "no licence"})).turns()
    record = story.record("a")
    assert (record.verdict, record.ours, record.theirs) == (Verdict.OTHER, "n1", "n0")
    assert record.why == "no licence"
    assert len(story.left) == 1


def test_what_others_wrote_does_not_reach_the_terminal_as_it_is(story: Story) -> None:
    story.create(pod("a", gpus=8)).turns()
    story.they_refuse("a", "no\x1b[31m\nnodes" + "x" * 1000)
    assert "\x1b" not in text(story)[-1]
    assert len(text(story)[-1]) < 600
    data = report_data(story.shadow.records, names=[THEIRS], for_s=1.0)
    assert data["counts"]["only we would have placed it"] == 1
    assert data["pods"][0]["theirs"] is None
