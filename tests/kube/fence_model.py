"""The fence's protocol as a model, explored exhaustively: every order of steps, losses, delays and crashes.

Two leaders that may both believe that they lead, two pods that want the same device, Bindings delayed or lost
without bound. What must hold: the device is never bound to two pods. Not here: how it is built
(kube.election.fence, core.binding.fenced_binds); the names of the steps are theirs. A state is

    fence    (version, epoch, pods that are listed): one object, written by compare-and-swap
    pods     (resource version, bound) of each
    leaders  (mode, epoch, known version of the fence, pods to bump, pods known to be bound, task, expected)
    net      Bindings on their way: (pod, resource version)

A leader is idle, taking over, or active. A task is (step, pod, resource version):

    decided    the resource version is chosen, nothing is written yet
    listed     the fence lists the pod: the Binding may be sent
    sent       its outcome is unknown
    giving up  it is being given up, its room is not free yet

A Binding that was refused is decided again with the version read since, so the fence is asked before it is
sent again. A leader may list a pod that it expects to decide for, with the version that it knows; what it
then decides for that version is listed already, until the fence is written again. ABLATIONS leave out one
rule each; every one of them must be found broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

PODS = (0, 1)
MAX_EPOCH, MAX_VERSION, MAX_RV, MAX_NET, MAX_CRASHES = 2, 5, 4, 2, 1
ABLATIONS = {
    "no fence": "binds are sent whether or not another leader has taken over",
    "no resource version": "a Binding carries the UID alone",
    "no bump": "a new leader bumps nobody",
    "list first": "a new leader lists before it bumps, and bumps while it decides",
    "no check after a conflict": "a refused Binding is sent again with what was read, the fence unasked",
    "no bump when giving up": "the room of a Binding of unknown outcome is free at once",
    "forgets": "the fence is written without its list",
    "version read late": "a Binding carries the version of when it is sent, not of before it was listed",
    "expected and read again": "what was expected is sent with the version of when it is decided",
    "expected for ever": "what was expected counts as listed after a write without it",
}


class Task(NamedTuple):
    step: str
    pod: int
    version: int


class Leader(NamedTuple):
    mode: str = "idle"
    epoch: int = 0
    known: int = 0
    to_bump: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    task: Task | None = None
    expected: tuple[int, int] | None = None


class Fence(NamedTuple):
    version: int = 1
    epoch: int = 0
    listed: frozenset[int] = frozenset()


class Pod(NamedTuple):
    version: int = 1
    bound: bool = False


class State(NamedTuple):
    fence: Fence = Fence()
    pods: tuple[Pod, Pod] = (Pod(), Pod())
    leaders: tuple[Leader, Leader] = (Leader(), Leader())
    net: frozenset[tuple[int, int]] = frozenset()
    crashes: int = 0

    def led(self, i: int, leader: Leader, **changes: Any) -> State:
        """The state with another leader in the place of the `i`th, and what else changes."""
        other = self.leaders[1 - i]
        both = (leader, other) if i == 0 else (other, leader)
        return self._replace(leaders=both, **changes)

    def bumped(self, pod: int) -> tuple[Pod, Pod]:
        now = self.pods[pod]
        return self.with_pod(pod, now._replace(version=min(now.version + 1, MAX_RV)))

    def with_pod(self, pod: int, now: Pod) -> tuple[Pod, Pod]:
        return (now, self.pods[1]) if pod == 0 else (self.pods[0], now)


NOBODY_LEADS = State()
ONE_EXPECTS = State(
    Fence(2, 1, frozenset([0])),
    leaders=(Leader("active", epoch=1, known=2, expected=(0, 1)), Leader()),
    crashes=MAX_CRASHES,
)
"""Where one leads and expects a pod: within the bounds above, what takes three writes more begins here."""
Step = tuple[str, State]


def steps(state: State, without: str) -> Iterator[Step]:
    """Everything that may happen next."""
    for i, leader in enumerate(state.leaders):
        if leader.mode != "idle" and state.crashes < MAX_CRASHES:
            yield f"{i} crashes", state.led(i, Leader(), crashes=state.crashes + 1)
        if leader.mode == "idle":
            yield from _takes_over(state, i, without)
        elif leader.mode == "taking over":
            yield from _bumps_and_lists(state, i, leader, without)
        elif leader.task is None:
            yield from _decides(state, i, leader, without)
        else:
            yield from _binds(state, i, leader, leader.task, without)
    for pod in PODS:
        if state.pods[pod].version < MAX_RV and not state.pods[pod].bound:
            yield f"somebody edits {pod}", state._replace(pods=state.bumped(pod))
    for pod, version in state.net:
        now, rest = state.pods[pod], state.net - {(pod, version)}
        yield f"a Binding of {pod} is lost", state._replace(net=rest)
        if not now.bound and (version == now.version or without == "no resource version"):
            pods = state.with_pod(pod, Pod(now.version + 1, bound=True))
            yield f"{pod} is bound", state._replace(pods=pods, net=rest)


def _takes_over(state: State, i: int, without: str) -> Iterator[Step]:
    fence = state.fence
    if fence.epoch < MAX_EPOCH and fence.version < MAX_VERSION:
        to_bump = frozenset[int]() if without == "no bump" else fence.listed
        taken = Fence(fence.version + 1, fence.epoch + 1, fence.listed)
        leader = Leader("taking over", taken.epoch, taken.version, to_bump)
        yield f"{i} swaps the epoch", state.led(i, leader, fence=taken)


def _bumps_and_lists(state: State, i: int, leader: Leader, without: str) -> Iterator[Step]:
    if leader.to_bump and without != "list first":
        pod = min(leader.to_bump)
        now = state.pods[pod]
        if now.version < MAX_RV or now.bound:
            left = leader._replace(to_bump=leader.to_bump - {pod})
            yield f"{i} bumps {pod}", state.led(i, left, pods=state.pods if now.bound else state.bumped(pod))
    else:
        taken = frozenset(pod for pod in PODS if state.pods[pod].bound)
        yield f"{i} lists", state.led(i, leader._replace(mode="active", taken=taken))


def _decides(state: State, i: int, leader: Leader, without: str) -> Iterator[Step]:
    yield from _bumps_late(state, i, leader, without)
    for pod in PODS:
        now = state.pods[pod]
        if not leader.taken and not now.bound:
            task = Task("decided", pod, now.version)
            taken = frozenset([pod])
            yield f"{i} decides for {pod}", state.led(i, leader._replace(taken=taken, task=task))
    if leader.taken:
        return
    if leader.expected is not None:
        # As it knows the pod: what others have done with it since, it need not have heard.
        pod, version = leader.expected
        if without == "expected and read again":
            version = state.pods[pod].version
        decided = leader._replace(taken=frozenset([pod]), task=Task("listed", pod, version), expected=None)
        yield f"{i} decides for {pod} as expected", state.led(i, decided)
    yield from _expects(state, i, leader, without)


def _expects(state: State, i: int, leader: Leader, without: str) -> Iterator[Step]:
    """The compare-and-swap that lists a pod before anything is decided for it."""
    fence = state.fence
    if leader.known != fence.version and without != "no fence":
        return  # refused: it is deposed with its next write that somebody waits for
    for pod in PODS:
        now = state.pods[pod]
        if not now.bound and fence.version < MAX_VERSION:
            written = Fence(fence.version + 1, fence.epoch, _list(pod, without))
            known = leader._replace(known=written.version, expected=(pod, now.version))
            yield f"{i} expects {pod}", state.led(i, known, fence=written)


def _list(pod: int, without: str) -> frozenset[int]:
    return frozenset() if without == "forgets" else frozenset([pod])


def _binds(state: State, i: int, leader: Leader, task: Task, without: str) -> Iterator[Step]:
    yield from _bumps_late(state, i, leader, without)
    now = state.pods[task.pod]
    if task.step == "decided":
        yield from _writes(state, i, leader, task, without)
    elif task.step == "listed":
        if len(state.net) < MAX_NET:
            version = now.version if without == "version read late" else task.version
            sent = leader._replace(task=task._replace(step="sent"))
            yield f"{i} sends {task.pod}", state.led(i, sent, net=state.net | {(task.pod, version)})
    elif now.bound:
        yield f"{i} reads {task.pod}: bound", state.led(i, leader._replace(task=None))
    elif task.step == "sent":
        if now.version != task.version:
            step = "listed" if without == "no check after a conflict" else "decided"
            again = leader._replace(task=Task(step, task.pod, now.version))
            yield f"{i} reads {task.pod}", state.led(i, again)
        giving_up = leader._replace(task=task._replace(step="giving up"))
        yield f"{i} gives {task.pod} up", state.led(i, giving_up)
    else:
        freed = leader._replace(taken=frozenset(), task=None)
        if without == "no bump when giving up":
            yield f"{i} frees {task.pod}", state.led(i, freed)
        elif now.version < MAX_RV:
            yield f"{i} bumps {task.pod} and frees it", state.led(i, freed, pods=state.bumped(task.pod))


def _writes(state: State, i: int, leader: Leader, task: Task, without: str) -> Iterator[Step]:
    """The compare-and-swap that lists the pod; what is not sent needs no bump to be given up."""
    fence = state.fence
    yield f"{i} gives {task.pod} up unsent", state.led(i, leader._replace(taken=frozenset(), task=None))
    if leader.known != fence.version and without != "no fence":
        yield f"{i} is deposed", state.led(i, Leader())
    elif fence.version < MAX_VERSION:
        written = Fence(fence.version + 1, fence.epoch, _list(task.pod, without))
        expected = leader.expected if without == "expected for ever" else None
        task = task._replace(step="listed")
        known = leader._replace(known=written.version, task=task, expected=expected)
        yield f"{i} lists {task.pod} in the fence", state.led(i, known, fence=written)


def _bumps_late(state: State, i: int, leader: Leader, without: str) -> Iterator[Step]:
    if without == "list first" and leader.to_bump:
        pod = min(leader.to_bump)
        left = leader._replace(to_bump=leader.to_bump - {pod})
        yield f"{i} bumps {pod} late", state.led(i, left, pods=state.bumped(pod))


class Explored(NamedTuple):
    """`story`: the shortest way to a state in which both pods have the device; empty: there is none."""

    n_states: int
    story: tuple[str, ...]


def explore(without: str = "", first: State = NOBODY_LEADS) -> Explored:
    """Every state that can be reached, breadth first, until one is broken."""
    seen: dict[State, Step | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        if all(pod.bound for pod in state.pods):
            return Explored(len(seen), _story(seen, state))
        for what, following in steps(state, without):
            if following not in seen:
                seen[following] = (what, state)
                queue.append(following)
    return Explored(len(seen), ())


def _story(seen: dict[State, Step | None], state: State) -> tuple[str, ...]:
    story = []
    while (step := seen[state]) is not None:
        what, state = step
        story.append(what)
    return tuple(reversed(story))
