"""The load of `bench --dashboard`: a cluster that is half full, and gangs that come at their times and go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.rounds.workload import PodRef, group_name, node, node_name, pod_document, pod_name
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.process.garbage_collection import GarbageCollection

GPUS, SIZE = 8, 8
# More than a page of the queue shows.
N_WAITING = 150


class Load:
    """Gangs that come at their times, and go."""

    def __init__(self, scheduler: Scheduler, rate: int, lasts: int) -> None:
        """`lasts`: a gang goes when that many later ones have come."""
        self._scheduler = scheduler
        self.rate = rate
        self._lasts = lasts
        self._n = 0
        self._there: deque[list[Pod]] = deque()
        self.garbage = GarbageCollection()
        self.n_attempts = 0
        self.now_s = 0.0
        """The load's own time: n gangs come in n / rate seconds."""

    def gangs(self, n: int) -> list[list[Pod]]:
        """Makes parsed pods: decoding bytes is not the loop's time here."""
        made = [gang("load", self._n + i) for i in range(n)]
        self._n += n
        return made

    async def run(self, gangs: Sequence[list[Pod]]) -> None:
        """Lets the gangs come in real time."""
        began_s = time.monotonic()
        for i, pods in enumerate(gangs):
            await anyio.sleep(max(began_s + i / self.rate - time.monotonic(), 0.0))
            self.turn(pods)

    def turn(self, pods: list[Pod]) -> None:
        """Lets one gang come, decides on it and binds it; the one that came `lasts` gangs before goes."""
        place(self._scheduler, pods)
        self.n_attempts += 1
        self.now_s += 1 / self.rate
        self._there.append(pods)
        if len(self._there) > self._lasts:
            gone = self._there.popleft()
            self._scheduler.handle([ev.PodDeleted(pod) for pod in gone], time.monotonic())
        self.garbage.between_turns()


def place(scheduler: Scheduler, pods: list[Pod]) -> None:
    """Adds a gang and binds it. Raises: GangschedError if it is not placed at once."""
    scheduler.handle([ev.PodAdded(pod) for pod in pods], time.monotonic())
    effects: list[ef.Effect] = []
    while (answer := scheduler.schedule_next(time.monotonic())) is not None:
        effects += answer
    binds = [effect for effect in effects if isinstance(effect, ef.BindPod)]
    if len(binds) != len(pods):
        raise GangschedError(f"{len(binds)} of {len(pods)} pods were placed")
    scheduler.handle([ev.BindSucceeded(bind.uid, bind.attempt) for bind in binds], time.monotonic())


def gang(prefix: str, number: int) -> list[Pod]:
    """Makes pods of one GPU that start together."""
    return [_pod(prefix, PodRef(number, rank)) for rank in range(SIZE)]


def _pod(prefix: str, ref: PodRef, *, on: int | None = None) -> Pod:
    """Makes a pod; with `on`, one of another scheduler that runs on that node, without devices."""
    document: dict[str, Any] = pod_document(prefix, ref, "gangsched" if on is None else "default-scheduler")
    del document["spec"]["schedulingGroup"]
    name = pod_name(prefix, ref)
    document["metadata"] |= {"uid": name, "resourceVersion": "1"}
    if on is None:
        document["metadata"]["labels"] = {GROUP_LABEL: group_name(prefix, ref.gang)}
        document["metadata"]["annotations"] = {MIN_MEMBERS_KEY: str(SIZE)}
    else:
        document["spec"]["nodeName"] = node_name(on)
        document["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
        document["status"] = {"phase": "Running"}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def filled(n_nodes: int, n_pods: int) -> Scheduler:
    """Makes the cluster before the load: half of its devices taken, the rest of its pods without devices."""
    config = default_config(IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings, node_capacity=n_nodes)
    now_s = time.monotonic()
    scheduler.handle([ev.NodeAdded(node(i, GPUS)) for i in range(n_nodes)], now_s)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], now_s)
    n_stay = min(n_nodes * GPUS // SIZE // 2, n_pods // SIZE)
    for number in range(n_stay):
        place(scheduler, gang("stays", number))
    others = n_pods - n_stay * SIZE
    for first in range(0, others, 1000):
        some = range(first, min(first + 1000, others))
        pods = [_pod("other", PodRef(i, 0), on=i % n_nodes) for i in some]
        scheduler.handle([ev.PodAdded(pod) for pod in pods], now_s)
    for number in range(N_WAITING):
        # One member is missing: the gang is in the queue, and is not tried.
        scheduler.handle([ev.PodAdded(pod) for pod in gang("waits", number)[1:]], now_s)
    return scheduler
