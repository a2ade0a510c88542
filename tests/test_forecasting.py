"""Forecasting: the edge's estimates of starts, for the core to tell."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.lab.sim.objects import make_pod
from gangsched.model.events import Event, StartsEstimated
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.process.forecasting import Forecasting
from tests.support.scenario import Cluster, cluster, with_annotations


class Estimating:
    """A scheduler with one that runs and one that waits, and what it is told."""

    def __init__(self) -> None:
        self.leads = True
        self.told: list[Event] = []
        self.c: Cluster = cluster(nodes=1, gpus=8, settings=Settings(queueing=QueueingSettings()))
        self.c.submit(with_annotations([make_pod("runs", gpus=8)], {WALLTIME_KEY: "600s"})).run()
        self.c.submit(make_pod("waits", gpus=8)).run()
        self.forecasting = Forecasting(
            self.c.scheduler, self.put, may_act=lambda: self.leads, clock_s=lambda: self.c.now_s
        )

    async def put(self, events: Sequence[Event]) -> None:
        self.told += events
        self.c.tell(*events)


async def test_the_core_receives_each_estimate_and_once_that_there_is_none() -> None:
    one = Estimating()
    assert await one.forecasting.look() > 0
    [told] = one.told
    assert isinstance(told, StartsEstimated)
    [(key, at_s)] = told.starts
    assert key.name == "waits"
    assert 601.0 <= at_s <= 615.0
    one.c.delete("waits").run()
    for _ in range(3):
        await one.forecasting.look()
    assert one.told[1:] == [StartsEstimated(one.c.now_s, ())]


async def test_a_standby_tells_nothing() -> None:
    one = Estimating()
    one.leads = False
    await one.forecasting.look()
    assert not one.told
