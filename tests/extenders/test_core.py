"""What the core does with extenders: it asks, the group rests, and their answer holds for one attempt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings, default_config
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts, Interest
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.inside import Inside

GPU = "nvidia.com/gpu"


class Story:
    """One scheduler with extenders, and what it wants done."""

    def __init__(self, *interests: Interest) -> None:
        verdicts = ExtenderVerdicts(interests or (Interest("http://e"),))
        profiles = build_profiles(default_config(IN_TREE), extenders=verdicts)
        self.scheduler = Scheduler(profiles, Settings(), node_capacity=4, extenders=verdicts)
        self.effects: list[ef.Effect] = []
        self.now_s = 1.0
        self._version = 0
        self.tell(*(ev.KindSynced(kind) for kind in self.scheduler.kinds))
        for i in range(3):
            self.tell(ev.NodeAdded(make_node(f"n{i}", listed=False)))

    def tell(self, *events: ev.Event) -> None:
        self.effects += self.scheduler.handle(events, self.now_s)
        self.scheduler.validate()
        self.turns()

    def turns(self) -> None:
        while (group := self.scheduler.pop()) is not None:
            self.effects += self.scheduler.schedule(group, self.now_s)
            self.scheduler.validate()

    def create(self, *pods: Pod) -> None:
        for pod in pods:
            self._version += 1
            stored = replace(pod, metadata=replace(pod.metadata, resource_version=str(self._version)))
            self.tell(ev.PodAdded(stored))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.effects += self.scheduler.advance(self.now_s)
        self.scheduler.validate()
        self.turns()

    @property
    def asked(self) -> list[ef.AskExtenders]:
        return [one for one in self.effects if isinstance(one, ef.AskExtenders)]

    @property
    def bound(self) -> dict[str, str]:
        return {one.name: one.node for one in self.effects if isinstance(one, ef.BindPod)}

    @property
    def said(self) -> str:
        """Without what preemption has to say."""
        message = [one for one in self.effects if isinstance(one, ef.WritePodCondition)][-1].message
        return message.partition(" preemption: ")[0]

    def state(self) -> GroupState:
        [group] = Inside(self.scheduler).groups()
        return group.state


def answer(ask: ef.AskExtenders, *nodes: str, **more: Any) -> ev.ExtendersAnswered:
    return ev.ExtendersAnswered(ask.ticket, nodes=nodes, **more)


def test_a_pod_rests_until_they_have_answered_and_goes_where_they_say() -> None:
    story = Story()
    story.create(make_pod("a"))
    [ask] = story.asked
    assert (ask.name, ask.nodes, ask.extenders) == ("a", ("n0", "n1", "n2"), (0,))
    assert story.state() is GroupState.ASKING
    story.turns()
    assert not story.bound
    story.tell(answer(ask, "n2", failed={"n0": "no", "n1": "no"}))
    assert story.bound == {"a": "n2"}
    assert len(story.asked) == 1


def test_scores_are_added_as_kube_scheduler_adds_them() -> None:
    story = Story()
    story.create(make_pod("a"))
    story.tell(answer(story.asked[0], "n0", "n1", "n2", scores={"n0": 1, "n1": 30, "n2": 29}))
    assert story.bound == {"a": "n1"}


def test_what_they_refuse_is_reported_node_by_node() -> None:
    story = Story()
    story.create(make_pod("a"))
    story.tell(answer(story.asked[0], failed={"n0": "no licence", "n1": "no licence", "n2": "too hot"}))
    assert story.said == "0/3 nodes are available: 2 no licence, 1 too hot."
    assert story.state() is GroupState.UNSCHEDULABLE


def test_a_refused_pod_is_asked_about_again_when_anything_changes() -> None:
    story = Story()
    story.create(make_pod("a"))
    story.tell(answer(story.asked[0], failed=dict.fromkeys(("n0", "n1", "n2"), "no")))
    story.tell(ev.NodeAdded(make_node("n3", listed=False)))
    story.wait(20.0)
    assert story.asked[-1].nodes == ("n0", "n1", "n2", "n3")
    story.tell(answer(story.asked[-1], "n3"))
    assert story.bound == {"a": "n3"}


def test_one_that_fails_costs_the_attempt_and_is_named() -> None:
    story = Story()
    story.create(make_pod("a"))
    story.tell(ev.ExtendersAnswered(story.asked[0].ticket, error="extender http://e cannot be asked"))
    assert story.said == "extender http://e cannot be asked"
    assert story.state() is GroupState.BACKOFF
    story.wait(1.5)
    assert len(story.asked) == 2
    story.tell(answer(story.asked[1], "n0"))
    assert story.bound == {"a": "n0"}


def test_an_edge_that_never_answers_costs_the_attempt_too() -> None:
    story = Story(Interest("http://e", timeout_s=5.0))
    story.create(make_pod("a"))
    story.wait(60.0)
    assert "did not answer in time" in story.said
    story.tell(answer(story.asked[0], "n0"))
    assert not story.bound, "a late answer is nobody's"


def test_only_pods_with_a_managed_resource_are_asked_about() -> None:
    story = Story(Interest("http://e", frozenset((GPU,))), Interest("http://f", is_asked=False))
    story.create(make_pod("plain", gpus=0), make_pod("gpu", gpus=1))
    assert set(story.bound) == {"plain"}
    assert [(one.name, one.extenders) for one in story.asked] == [("gpu", (0,))]


def test_nobody_is_asked_when_no_node_is_left() -> None:
    story = Story()
    story.create(make_pod("a", gpus=9))
    assert not story.asked
    assert story.said == (
        f"0/3 nodes are available: 3 Insufficient {GPU}."
        " No node that suits it is large enough, even with nothing else running."
    )


def test_a_gang_is_asked_about_once_for_each_template() -> None:
    story = Story()
    gang: dict[str, Any] = {"group": "g", "min_members": 3}
    story.create(make_pod("g-0", gpus=8, **gang), make_pod("g-1", gpus=8, **gang))
    story.create(make_pod("g-2", gpus=0, **gang))
    assert [one.name for one in story.asked] == ["g-0", "g-2"]
    story.tell(answer(story.asked[0], "n1", "n2"))
    assert story.state() is GroupState.ASKING, "not all have been spoken of"
    story.tell(answer(story.asked[1], "n0"))
    assert story.bound == {"g-0": "n1", "g-1": "n2", "g-2": "n0"}


def test_what_has_filled_up_since_is_not_used() -> None:
    story = Story()
    story.create(make_pod("a", gpus=8))
    story.create(make_pod("b", gpus=8))
    first, second = story.asked
    story.tell(answer(first, "n0"), answer(second, "n0"))
    assert story.bound == {"a": "n0"}
    assert story.said == f"0/3 nodes are available: 1 Insufficient {GPU}."


def test_a_group_that_holds_gives_back_when_one_fails() -> None:
    """It waits in Permit for a member; with that member there is somebody to ask about."""
    story = Story()
    gang: dict[str, Any] = {"group": "g", "min_members": 1, "gpus": 1}
    total = {"gangsched.io/total-members": "2"}
    story.create(make_pod("g-0", annotations=total, **gang))
    story.tell(answer(story.asked[0], "n1"))
    assert story.state() is GroupState.WAITING
    story.create(make_pod("g-1", annotations=total, **gang))
    assert story.state() is GroupState.WAITING, "it holds what it holds while they are asked"
    story.tell(ev.ExtendersAnswered(story.asked[1].ticket, error="extender http://e is down"))
    assert story.state() is GroupState.BACKOFF
    story.wait(20.0)
    story.tell(answer(story.asked[-1], "n1"))
    assert story.bound == {"g-0": "n1", "g-1": "n1"}


def test_groups_that_start_together_are_asked_about_together() -> None:
    story = Story()
    both = {GROUPS_KEY: '["d/a", "d/b"]'}
    for name in ("a", "b"):
        story.create(make_pod(f"{name}-0", group=name, min_members=1, gpus=8, annotations=both))
    n_told = 0
    while not story.bound:
        assert n_told < 10
        story.tell(answer(story.asked[n_told], "n0", "n2"))
        n_told += 1
    assert sorted(story.bound.items()) == [("a-0", "n0"), ("b-0", "n2")]
    for ask in story.asked[n_told:]:
        story.tell(answer(ask, "n1"))
    assert len(story.bound) == 2, "what is still on its way is nobody's by now"


def test_room_is_made_first_and_they_are_asked_when_it_is_there() -> None:
    """As in kube-scheduler: who preempts does not ask extenders without a preemptVerb."""
    story = Story()
    small = [make_pod(f"small-{i}", gpus=8) for i in range(3)]
    bound = [replace(pod, spec=replace(pod.spec, node_name=f"n{i}")) for i, pod in enumerate(small)]
    story.create(*bound)
    story.create(make_pod("large", gpus=8, priority=10))
    assert not story.asked
    victims = [one.name for one in story.effects if isinstance(one, ef.EvictPod | ef.DeletePod)]
    assert len(victims) == 1
    [gone] = [pod for pod in bound if pod.metadata.name in victims]
    story.tell(ev.PodDeleted(gone))
    [ask] = story.asked
    assert ask.nodes == (gone.spec.node_name,)
    story.tell(answer(ask, gone.spec.node_name))
    assert story.bound == {"large": gone.spec.node_name}


def test_a_pod_that_goes_meanwhile_is_forgotten() -> None:
    story = Story()
    pod = make_pod("a")
    story.create(pod)
    story.tell(ev.PodDeleted(pod))
    story.tell(answer(story.asked[0], "n0"))
    assert not story.bound


@pytest.mark.parametrize("gone", ["n2", "n1"])
def test_a_node_that_goes_meanwhile_is_not_used(gone: str) -> None:
    story = Story()
    story.create(make_pod("a"))
    story.tell(ev.NodeDeleted(make_node(gone, listed=False)))
    story.tell(answer(story.asked[0], "n1", "n2", scores={"n2": 9}))
    assert story.bound == {"a": "n1" if gone == "n2" else "n2"}
