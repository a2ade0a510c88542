"""The fence's rules in the bug museum: each is left out once, and what it prevents happens.

One story: a bind is on its way when its process dies, or gives it up; a more important pod gets its devices;
the bind arrives. The real scheduler and the real state machine of the fence take part. The protocol itself is
explored in tests/kube/test_fence_model.py, with two replicas that decide at once, and the rules that only
that needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.binding import bind_sender
from gangsched.core.types.group import MemberState, PodInfo
from gangsched.kube.election.fence import FenceRecord
from gangsched.kube.election.steps import Create, Update
from gangsched.lab.sim.judges.places.device_holders import OneOwner
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.fence import FenceObject, SimFence
from gangsched.model import effects as ef
from gangsched.model import events as ev
from tests.support.inside import Inside

FENCED = Settings(fence=True)
Break = Callable[[pytest.MonkeyPatch], None]


class Story:
    """One node of 8 devices, which pod `a` is on its way to when everything else begins."""

    def __init__(self, settings: Settings = FENCED) -> None:
        self.held: list[ef.BindPod] = []
        workload = Workload((make_node("n0"),), (Arrival(1.0, (make_pod("a", gpus=8),)),))
        self.sim = Simulation(1, workload, settings=settings)
        self.sim.api.is_fenced = True  # binds outlive their process, whatever it does about that
        # Each write of a condition would change the pod's version too: there is none, as under load.
        self.sim.api._patch_condition = lambda effect: None  # type: ignore[method-assign]
        send = self.sim.api._send
        self.sim.api._send = self.held.append  # type: ignore[method-assign,assignment]
        self.sim.run_for(3.0)
        assert len(self.held) == 1
        self.sim.api._send = send  # type: ignore[method-assign]

    def arrives(self) -> None:
        self.sim.api._commit(self.held[0])

    @property
    def is_given_twice(self) -> bool:
        return bool(list(OneOwner().check(self.sim.api, self.sim.scheduler)))

    def after_a_crash(self) -> bool:
        """Its process dies, and the next one has the devices for another."""
        self.sim.api.create_pod(make_pod("b", gpus=8, priority=100))
        self.sim.crash()
        self.sim.run_for(5.0)
        assert self.sim.api.pods["d", "b"].spec.node_name
        self.arrives()
        return self.is_given_twice


def no_bump(patch: pytest.MonkeyPatch) -> None:
    """A new leader bumps no pod."""
    patch.setattr(SimFence, "_bump_inherited", SimFence._ready)


def forgets(patch: pytest.MonkeyPatch) -> None:
    """The fence is written without its list."""
    write = FenceObject.write

    def written(there: FenceObject, step: Create[FenceRecord] | Update[FenceRecord]) -> bool:
        done = write(there, step)
        if done and there.record is not None:
            there.record = replace(there.record, listed={})
        return done

    patch.setattr(FenceObject, "write", written)


def no_version(patch: pytest.MonkeyPatch) -> None:
    """A bind carries the UID alone."""
    made = bind_sender._binding

    def unversioned(info: PodInfo, *rest: Any) -> ef.BindPod:
        info.sent_version = ""
        return made(info, *rest)

    patch.setattr(bind_sender, "_binding", unversioned)


@pytest.mark.parametrize("broken", [no_bump, forgets, no_version])
def test_a_takeover_without_the_rule_gives_devices_twice(broken: Break) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        assert Story().after_a_crash()


def test_without_a_fence_they_are_given_twice() -> None:
    assert Story(Settings()).after_a_crash()


def test_a_takeover_with_all_rules_makes_the_bind_harmless() -> None:
    assert not Story().after_a_crash()


def lists_first(story: Story) -> None:
    """The bind arrives after the list, by which the next one has decided, and before the bumps."""
    story.sim.api.create_pod(make_pod("b", gpus=8, priority=100))
    bumped: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        bump = SimFence._bump_inherited

        def listed(fence: SimFence) -> None:
            taken, fence._taken = fence._taken, lambda: None
            taken()
            bumped.append(lambda: bump(fence))

        patch.setattr(SimFence, "_bump_inherited", listed)
        story.sim.crash()
        story.sim.run_for(3.0)
        story.arrives()
        for call in bumped:
            call()
        story.sim.run_for(3.0)


def test_a_list_from_before_the_bumps_misses_what_lands_between() -> None:
    with pytest.raises(Broken, match="is held by uid-d-a and uid-d-b"):
        lists_first(Story())


def gives_up(story: Story, patch: pytest.MonkeyPatch | None) -> bool:
    """No answer comes, and the node is taken away for a while: the bind is given up."""
    scheduler, sim = story.sim.scheduler, story.sim
    if patch is not None:
        lost = scheduler.binder.fenced.lost

        def freed(info: PodInfo, why: str, state: MemberState) -> None:
            info.bind_may_land = False
            lost(info, why, state)

        patch.setattr(scheduler.binder.fenced, "lost", freed)
    bind = story.held[0]
    node = sim.api.nodes["n0"]
    sim.api.put_node(replace(node, spec=replace(node.spec, unschedulable=True)))
    sim.run_for(1.0)
    sim.timeline.after(0.0, lambda: sim.deliver(ev.BindUnknown(bind.uid, bind.attempt, "timed out")))
    while Inside(scheduler).pod_info("a").state is not MemberState.PENDING:
        sim.run_for(0.01)  # from then on it backs off for a second
    sim.api.put_node(replace(node, spec=replace(node.spec, unschedulable=False)))
    sim.run_for(0.1)
    sim.api.create_pod(make_pod("b", gpus=8, priority=100))
    sim.run_for(0.5)
    assert sim.api.pods["d", "b"].spec.node_name
    story.arrives()
    return story.is_given_twice


def test_giving_up_without_a_bump_gives_devices_twice() -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert gives_up(Story(), patch)


def test_giving_up_makes_the_bind_harmless_first() -> None:
    assert not gives_up(Story(), None)
