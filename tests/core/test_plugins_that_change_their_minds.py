"""Plugins that refuse, raise or make gangs wait by chance, while devices fail and evictions are refused.

What no storm has. Each step checks the scheduler's accounts, as every scenario does; at the end the plugins
agree to all, and there is room: then nobody waits, is half bound, or has room kept.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import inventory, make_node
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.long import all_but
from tests.support.scenario import Cluster, gang, with_annotations

_LASTING = (GroupState.BOUND, GroupState.GATHERING, GroupState.GATED)


class Moody:
    """A plugin that agrees to all, but for a part of what it is asked, from 0 to 1."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.refuses = 0.0

    def says(self, *moods: str) -> Status:
        if self.rng.random() >= self.refuses:
            return SUCCESS
        mood = self.rng.choice(moods)
        if mood == "raises":
            raise ValueError("of bad temper")
        if mood == "waits":
            return Status.wait("in two minds", timeout_s=self.rng.choice((None, 1.0, 20.0)))
        return Status.unschedulable("no")


class MoodyPermit(Moody):
    name = "MoodyPermit"

    def permit(self, group: Any, siblings: Any) -> Status:
        return self.says("refuses", "raises", "waits")


class MoodyReserve(Moody):
    name = "MoodyReserve"

    def reserve(self, state: Any, group: Any, placements: Any) -> Status:
        return self.says("refuses", "raises")

    def unreserve(self, state: Any, group: Any, placements: Any) -> None: ...


class MoodyAdmit(Moody):
    name = "MoodyAdmit"

    def admit(self, group: Any, members: Any, view: Any) -> Status:
        return self.says("refuses", "raises")


class MoodyPreFilter(Moody):
    name = "MoodyPreFilter"

    def pre_filter(self, state: Any, template: Any, view: Any) -> Status:
        return self.says("refuses", "raises")


def settings(rng: Random) -> Settings:
    queueing = QueueingSettings(
        rng.choice((1, 2, None)), mode="hard", on_overrun=rng.choice(("none", "evict"))
    )
    return Settings(
        devices=DeviceSettings(
            on_failure=rng.choice(("evictGang", "evictMember")), failure_grace_s=rng.choice((0.0, 5.0))
        ),
        on_partial_bind=rng.choice(("complete", "unwind")),
        settle_s=rng.choice((4.0, 20.0)),
        permit_wait_s=rng.choice((3.0, 30.0)),
        queueing=queueing if rng.random() < 0.7 else None,
    )


class Weather:
    """What happens to a cluster, step by step."""

    def __init__(self, seed: int, *plugins: type[Moody]) -> None:
        self.rng = rng = Random(seed)
        self.plugins = [kind(rng) for kind in plugins if rng.random() < 0.5]
        self.cluster = Cluster(settings(rng), make=lambda made: make_scheduler(made, *self.plugins))
        self.binds = ["ok"]
        self.cluster.answer = lambda bind: rng.choice(self.binds)
        for i in range(rng.randint(1, 4)):
            self.cluster.node(make_node(f"n{i}", gpus=8))
        self.n_gangs = 0

    def step(self) -> None:
        deeds = (*(self.gang,) * 3, *(self.end,) * 3, *(self.leave,) * 2, self.device, *(self.mood,) * 2)
        self.rng.choice((*deeds, self.server, self.answers, *(self.wait,) * 4))()
        self.cluster.run()

    def gang(self) -> None:
        rng, name = self.rng, f"g{self.n_gangs}"
        if len(self.cluster.pods) > 24:
            return
        self.n_gangs += 1
        n, gpus, priority = rng.randint(1, 3), rng.choice((1, 2, 4, 8)), rng.choice((0, 0, 5, 10))
        pods = gang(name, pods=n, gpus=gpus, priority=priority, min_members=rng.randint(1, n))
        if rng.random() < 0.5:
            pods = with_annotations(pods, {WALLTIME_KEY: rng.choice(("5s", "30s", "600s"))})
        self.cluster.submit(pods)

    def end(self) -> None:
        """A pod is deleted, or ends."""
        pods = sorted(self.cluster.pods.values(), key=lambda pod: pod.metadata.name)
        if not pods:
            return
        pod = self.rng.choice(pods)
        if pod.spec.node_name and self.rng.random() < 0.4:
            self.cluster.phase(pod.metadata.name, self.rng.choice(("Failed", "Succeeded")))
        else:
            self.cluster.delete(pod.metadata.name)

    def leave(self) -> None:
        """Some that were asked to go are gone."""
        for pod in list(self.cluster.pods.values()):
            if pod.metadata.deletion_timestamp is not None and self.rng.random() < 0.7:
                self.cluster.delete(pod.metadata.name)

    def device(self) -> None:
        """Devices of a node fail, or all are well again."""
        node = self.cluster.nodes[self.rng.choice(sorted(self.cluster.nodes))]
        failed = self.rng.sample(range(8), self.rng.choice((0, 1, 2, 8)))
        listed = inventory(node.metadata.name, 8, unhealthy=failed)
        own = {**(node.metadata.annotations or {}), INVENTORY_KEY: listed}
        self.cluster.node(replace(node, metadata=replace(node.metadata, annotations=own)))

    def mood(self) -> None:
        for plugin in self.plugins:
            plugin.refuses = self.rng.choice((0.0, 0.0, 0.3, 1.0))

    def server(self) -> None:
        self.cluster.evictions = self.rng.choice(("ok", "slow", "429", "403"))
        self.binds = self.rng.choice((["ok"], ["ok", "hold"], ["ok", "422"], ["hold"]))

    def answers(self) -> None:
        """To binds that were held."""
        c = self.cluster
        for bind in list(c.held_binds):
            c.held_binds.remove(bind)
            if bind.uid not in c.pods:
                continue
            if c.pods[bind.uid].spec.node_name:
                c.tell(ev.BindFailed(bind.uid, bind.attempt, 409, "Conflict", "is already assigned"))
                c.read(bind.name)
            elif self.rng.random() < 0.7:
                bound = c.commit(bind)
                c.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound))
            else:
                c.tell(ev.BindFailed(bind.uid, bind.attempt, 422, "Invalid", "no"))

    def wait(self) -> None:
        self.cluster.wait(self.rng.choice((0.5, 1.0, 2.0, 5.0, 12.0, 40.0)))

    def calm(self) -> None:
        """Everybody agrees to all, and there is room for all."""
        c = self.cluster
        for plugin in self.plugins:
            plugin.refuses = 0.0
        self.binds, c.evictions = ["ok"], "ok"
        for i in range(40):
            c.node(make_node(f"new{i}", gpus=8))
        for _ in range(30):
            self.answers()
            for pod in list(c.pods.values()):
                if pod.metadata.deletion_timestamp is not None:
                    c.delete(pod.metadata.name)
            c.run().wait(50.0).run()


# The last ones have found faults, as has 4.
@pytest.mark.parametrize("seed", all_but(5, [*range(50), 1042, 1699, 1741, 3004]))
def test_everybody_starts_once_they_agree(seed: int) -> None:
    weather = Weather(seed, MoodyPermit, MoodyReserve, MoodyAdmit, MoodyPreFilter)
    for _ in range(120):
        weather.step()
    weather.calm()
    c = weather.cluster
    assert [unrest for group in c.groups() if (unrest := _unrest(group))] == []
    assert c.scheduler.shared.claims is None or c.claims().all == []


def _unrest(group: Group) -> str:
    waits = group.state not in _LASTING or (group.is_complete and group.n_pending and not group.problem)
    return f"{group!r}: {group.message}" if waits or group.is_half_bound else ""
