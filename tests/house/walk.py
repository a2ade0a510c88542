"""The walk of one gang through the code, from a real trace of calls: `python -m tests.house.walk`.

A whole scheduler process runs in virtual time on a wire in memory (gangsched.lab.sim.wire). What is traced
begins when WatchState is given the bytes of the watch event that makes a gang complete, and ends when the
bytes of its first Binding go to the socket.

A hop is a call from a function in one file to a function in another; the same hop again (for the next pod) is
the same hop. What the event loop joins (the inbox, a socket) is no call and no hop.

The walk is counted whole: every hop, and every file that one leads to, is what a reader has to follow.
Some hops lead on, from one moment at which something becomes of the gang to the next (MOMENTS): the calls
that are open at such a moment. The others come back with an answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, NamedTuple

import structlog.testing

from gangsched.config import default_config
from gangsched.lab.sim.wire.loop import VirtualLoop, virtual_time
from gangsched.lab.sim.wire.network import MemoryNetwork
from gangsched.lab.sim.wire.run import credentials_for
from gangsched.lab.sim.wire.server import ApiServer
from gangsched.lab.sim.wire.weather import STORM, Weather
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp

HOUSE = Path(__file__).parents[2] / "gangsched"
START = ("kube/watch/watch_state.py", "WatchState.lines")
GANG, N_PODS = "g", 2
# Not the scheduler: what the test drives it with.
_OUTSIDE = ("lab/",)
# Something becomes of the gang when one of these is called.
MOMENTS = (
    ("kube/watch/pod_reader.py", "PodReader.lines"),
    ("process/loop.py", "Inbox.put"),
    ("core/types/group.py", "Group.add"),
    ("core/state/tables/groups.py", "move"),
    ("core/cycle/placing.py", "Placing.put"),
    ("core/cache/cache.py", "Cache.assume"),
    ("core/binding/bind_sender.py", "_binding"),
    ("kube/effects/binding_lane.py", "OnceLane.submit"),
    ("kube/effects/binding_lane.py", "binding_body"),
    ("kube/transport/connection.py", "Connection.write"),
)


class Place(NamedTuple):
    """A function in a file of the house."""

    file: str
    name: str


class Hop(NamedTuple):
    """A call from one file to another."""

    caller: Place
    callee: Place


class Tracer:
    """Hears of each call; collects hops in the order in which each was first made."""

    def __init__(self) -> None:
        self.hops: dict[Hop, None] = {}
        self.leading: dict[Hop, None] = {}
        self.moments: dict[Place, None] = {}
        self.places: dict[Place, None] = {}
        self.returns: dict[tuple[str, ...], None] = {}
        self.is_on = False
        self._places: dict[CodeType, Place | None] = {}

    def place(self, code: CodeType) -> Place | None:
        """Where a function of the scheduler is; None: it is none."""
        if code not in self._places:
            path = Path(code.co_filename)
            found = None
            if path.is_relative_to(HOUSE):
                file = path.relative_to(HOUSE).as_posix()
                if not file.startswith(_OUTSIDE):
                    found = Place(file, code.co_qualname.replace(".<locals>", ""))
            self._places[code] = found
        return self._places[code]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.is_on:
            return
        callee = self.place(frame.f_code)
        if callee is None:
            return
        stack = [callee, *self._callers(frame)]
        if len(stack) > 1 and stack[1].file != callee.file:
            self.hops.setdefault(Hop(stack[1], callee))
        if callee in MOMENTS:
            self.moments.setdefault(callee)
            self.places.update(dict.fromkeys(reversed(stack)))
            self.returns.update(dict.fromkeys(_returns(stack[::-1])))
            for caller, called in pairwise(reversed(stack)):
                if caller.file != called.file:
                    self.leading.setdefault(Hop(caller, called))

    def _callers(self, frame: FrameType) -> Iterator[Place]:
        back = frame.f_back
        while back is not None:
            found = self.place(back.f_code)
            if found is not None:
                yield found
            back = back.f_back


class Walk(NamedTuple):
    """Each in the order of the first call. leading: the hops that lead on; places: the functions that these
    lead through.

    returns: where they lead back into a file that they had left: that file, those between, and it again.
    """

    hops: list[Hop]
    leading: list[Hop]
    moments: list[Place]
    places: list[Place]
    returns: list[tuple[str, ...]]


def traced() -> Walk:
    """Run one gang through a scheduler and follow it."""
    tracer = Tracer()
    with structlog.testing.capture_logs(), virtual_time() as loop:
        loop.run_until_complete(_run(loop, tracer))
    return Walk([*tracer.hops], [*tracer.leading], [*tracer.moments], [*tracer.places], [*tracer.returns])


def _returns(stack: list[Place]) -> Iterator[tuple[str, ...]]:
    files = [file for file, _ in groupby(stack, lambda place: place.file)]
    for first, file in enumerate(files):
        if file in files[first + 1 :]:
            yield tuple(files[first : files.index(file, first + 1) + 1])


def files(hops: Iterable[Hop]) -> list[str]:
    """Returns those that the hops leave or enter, in order."""
    return [*dict.fromkeys(place.file for hop in hops for place in hop)]


async def _run(loop: VirtualLoop, tracer: Tracer) -> None:
    weather = Weather(Random("walk"), STORM.without(STORM.faults))
    server = ApiServer(loop, weather, seed="walk", note=lambda _: None)
    for k in range(2):
        status = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        node = {"metadata": {"name": f"n{k}"}, "status": {"allocatable": status, "capacity": status}}
        server.registry.create(server.registry.resource("nodes"), node)
    bound = loop.create_future()

    def sent(number: int, way: bytes, data: bytes) -> None:
        if b"/binding" in data and data.startswith(b"POST") and tracer.is_on:
            tracer.is_on = False
            sys.setprofile(None)
            bound.set_result(None)

    network = MemoryNetwork(loop, weather, server.accept, sent)
    app = SchedulerApp(default_config(IN_TREE), credentials_for(network, loop), seed=1)
    task = loop.create_task(app.run(on_signals=False))
    await asyncio.sleep(30.0)
    pods = server.registry.resource("pods")
    server.registry.create(pods, _pod(0), namespace="default")
    await asyncio.sleep(30.0)
    with _FromTheLastMember(tracer):
        server.registry.create(pods, _pod(1), namespace="default")
        await asyncio.wait_for(bound, 60.0)
    await app.stop(10.0)
    await task


class _FromTheLastMember:
    """Within it the trace begins with the first batch of lines that WatchState gets."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __enter__(self) -> None:
        tracer = self._tracer

        def waiting(frame: FrameType, event: str, arg: Any) -> None:
            if event == "call" and tracer.place(frame.f_code) == START and b'"g-1"' in _bytes(frame):
                tracer.is_on = True
                sys.setprofile(tracer)
                tracer(frame, event, arg)

        sys.setprofile(waiting)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def _bytes(frame: FrameType) -> bytes:
    return next((value for value in frame.f_locals.values() if isinstance(value, bytes)), b"")


def _pod(k: int) -> dict[str, Any]:
    labels = {"gangsched.io/pod-group": GANG}
    annotations = {"gangsched.io/min-members": str(N_PODS)}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": f"{GANG}-{k}", "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "gangsched", "containers": [container]},
    }


def report(walk: Walk) -> Iterator[str]:
    """The hops in order, with a mark where one leads on, then the sums."""
    leading = {*walk.leading}
    for n, hop in enumerate(walk.hops, 1):
        mark = "*" if hop in leading else " "
        yield f"{n:3}{mark} {hop.caller.file} {hop.caller.name} -> {hop.callee.file} {hop.callee.name}"
    yield f"{len(walk.hops)} hops between {len(files(walk.hops))} files"
    yield f"* leads on: {len(walk.leading)} hops, {len(files(walk.leading))} files"


def main(write: Callable[[str], None] = print) -> None:
    for line in report(traced()):
        write(line)


if __name__ == "__main__":
    main()
