"""Runs a simulated cluster in real time: the one asyncio task that it needs.

Lives here: the clock, waking up, and yielding the loop between slices. Not here: what is simulated
(cluster.py). Called by the embedded cluster's assembly.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from gangsched.lab.apiserver.simulated.cluster import SimulatedCluster

# About 1 ms of work before waiting requests get their turn.
_SLICE = 5
# Deadlines this close together are processed together; heartbeats would otherwise wake the loop one by one.
_TICK_S = 0.02


async def run(cluster: SimulatedCluster) -> None:
    """Runs the cluster until it is cancelled. Nothing else may start the cluster."""
    loop = asyncio.get_running_loop()
    awake = asyncio.Event()
    began_s = monotonic()
    cluster.start(awake.set)
    try:
        while True:
            awake.clear()
            now_s = (monotonic() - began_s) * cluster.speed
            if cluster.step(now_s, budget=_SLICE):
                await asyncio.sleep(0)
                continue
            timer: asyncio.TimerHandle | None = None
            deadline_s = cluster.next_deadline_s()
            if deadline_s is not None:
                timer = loop.call_later(max((deadline_s - now_s) / cluster.speed, _TICK_S), awake.set)
            await awake.wait()
            if timer is not None:
                timer.cancel()
    finally:
        cluster.stop()
