"""A gang that has to be in one rack, where extenders have a say: the rack is chosen among their nodes."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import events as ev
from gangsched.model.objects import Node
from gangsched.model.stated.topology import TOPOLOGY_KEY
from tests.extenders.test_core import Story, answer

RACK = "example.com/rack"


def node(name: str, rack: str) -> Node:
    made = make_node(name, listed=False)
    meta = msgspec.structs.replace(made.metadata, labels={RACK: rack}, resource_version="7")
    return replace(made, metadata=meta)


def in_one_rack() -> Story:
    """Racks a (n0, n1) and b (n2, n3), and a gang of two that fill a node each."""
    story = Story()
    for name, rack in (("n0", "a"), ("n1", "a"), ("n2", "b"), ("n3", "b")):
        story.tell(ev.NodeUpdated(node(name, rack)))
    for k in range(2):
        own = {TOPOLOGY_KEY: f"required: {RACK}"}
        story.create(make_pod(f"g-{k}", group="g", min_members=2, gpus=8, annotations=own))
    return story


def test_they_are_asked_about_all_racks_and_the_gang_goes_where_they_leave_one_whole() -> None:
    story = in_one_rack()
    [ask] = story.asked
    assert ask.nodes == ("n0", "n1", "n2", "n3")
    story.tell(answer(ask, "n0", "n2", "n3", failed={"n1": "no licence"}))
    assert set(story.bound.values()) == {"n2", "n3"}


def test_where_they_leave_no_rack_whole_nothing_is_bound_and_both_reasons_are_reported() -> None:
    story = in_one_rack()
    story.tell(answer(story.asked[0], "n0", "n2", failed={"n1": "no licence", "n3": "no licence"}))
    assert not story.bound
    assert RACK in story.said
    assert "no licence" in story.said
