"""The fence's protocol as a model, explored exhaustively: every order of steps, losses, delays and crashes.

Two leaders that may both believe that they lead, two pods that want the same device, Bindings delayed or lost
without bound. What must hold: the device is never bound to two pods. Not here: how it is built
(kube.election.fence, core.binding.fenced_binds); the names of the steps are theirs. A state is

    fence    (version, epoch, pods that are listed): one object, written by compare-and-swap
    pods     (resource version, bound) of each
    net      Bindings on their way: (pod, resource version)
    leaders  (mode, epoch, known version of the fence, pods to bump, pods known to be bound, task, expected)

A leader is idle, taking over, or active. A task is (step, pod, resource version):

    decided    the resource version is chosen, nothing is written yet
    listed     the fence lists the pod: the Binding may be sent
    sent       its outcome is unknown
    giving up  it is being given up, its room is not free yet

The first three are shared. No step of a leader reads the other leader, so what it may do is a function of
what is shared and of itself, and is worked out once for the many states that have both in common.

A Binding that was refused is decided again with the version read since, so the fence is asked before it is
sent again. A leader may list pods that it expects to decide for, with the versions that it knows, also while
it binds another; what it then decides for such a version is listed already, until the fence is written
without the pod. ABLATIONS leave out one rule each; every one of them must be found broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

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
    "ahead only": "a list of those expected leaves out the pod that is being bound",
}


class Task(NamedTuple):
    step: str
    pod: int
    version: int


Expected = frozenset[tuple[int, int]]
"""Pods that the fence lists though nothing is decided about them, with the versions known then."""


class Leader(NamedTuple):
    mode: str = "idle"
    epoch: int = 0
    known: int = 0
    to_bump: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()
    task: Task | None = None
    expected: Expected = frozenset()


class Fence(NamedTuple):
    version: int = 1
    epoch: int = 0
    listed: frozenset[int] = frozenset()


class Pod(NamedTuple):
    version: int = 1
    bound: bool = False


class Shared(NamedTuple):
    """What is no leader's own: all may see it."""

    fence: Fence = Fence()
    pods: tuple[Pod, Pod] = (Pod(), Pod())
    net: frozenset[tuple[int, int]] = frozenset()
    crashes: int = 0

    def bumped(self, pod: int) -> Shared:
        now = self.pods[pod]
        return self.with_pod(pod, now._replace(version=min(now.version + 1, MAX_RV)))

    def with_pod(self, pod: int, now: Pod, **changes: Any) -> Shared:
        pods = (now, self.pods[1]) if pod == 0 else (self.pods[0], now)
        return self._replace(pods=pods, **changes)


class State(NamedTuple):
    shared: Shared = Shared()
    leaders: tuple[Leader, Leader] = (Leader(), Leader())


NOBODY_LEADS = State()
ONE_EXPECTS = State(
    Shared(Fence(2, 1, frozenset([0])), crashes=MAX_CRASHES),
    (Leader("active", epoch=1, known=2, expected=frozenset([(0, 1)])), Leader()),
)
"""Where one leads and expects a pod: within the bounds above, what takes three writes more begins here."""
Step = tuple[str, Shared, Leader]


def steps_of_others(shared: Shared, without: str) -> Iterator[tuple[str, Shared]]:
    """What may happen next by itself."""
    for pod in PODS:
        if shared.pods[pod].version < MAX_RV and not shared.pods[pod].bound:
            yield f"somebody edits {pod}", shared.bumped(pod)
    for pod, version in sorted(shared.net):
        now, rest = shared.pods[pod], shared.net - {(pod, version)}
        yield f"a Binding of {pod} is lost", shared._replace(net=rest)
        if not now.bound and (version == now.version or without == "no resource version"):
            yield f"{pod} is bound", shared.with_pod(pod, Pod(now.version + 1, bound=True), net=rest)


def steps_of_leader(shared: Shared, leader: Leader, without: str) -> Iterator[Step]:
    """What one of the leaders may do next."""
    if leader.mode != "idle" and shared.crashes < MAX_CRASHES:
        yield "crashes", shared._replace(crashes=shared.crashes + 1), Leader()
    if leader.mode == "idle":
        yield from _takes_over(shared, without)
    elif leader.mode == "taking over":
        yield from _bumps_and_lists(shared, leader, without)
    elif leader.task is None:
        yield from _decides(shared, leader, without)
    else:
        yield from _binds(shared, leader, leader.task, without)


def _takes_over(shared: Shared, without: str) -> Iterator[Step]:
    fence = shared.fence
    if fence.epoch < MAX_EPOCH and fence.version < MAX_VERSION:
        to_bump = frozenset[int]() if without == "no bump" else fence.listed
        taken = Fence(fence.version + 1, fence.epoch + 1, fence.listed)
        leader = Leader("taking over", taken.epoch, taken.version, to_bump)
        yield "swaps the epoch", shared._replace(fence=taken), leader


def _bumps_and_lists(shared: Shared, leader: Leader, without: str) -> Iterator[Step]:
    if leader.to_bump and without != "list first":
        pod = min(leader.to_bump)
        now = shared.pods[pod]
        if now.version < MAX_RV or now.bound:
            left = leader._replace(to_bump=leader.to_bump - {pod})
            yield f"bumps {pod}", shared if now.bound else shared.bumped(pod), left
    else:
        taken = frozenset(pod for pod in PODS if shared.pods[pod].bound)
        yield "lists", shared, leader._replace(mode="active", taken=taken)


def _decides(shared: Shared, leader: Leader, without: str) -> Iterator[Step]:
    yield from _bumps_late(shared, leader, without)
    if leader.taken:
        return
    for pod in PODS:
        now = shared.pods[pod]
        if not now.bound:
            yield f"decides for {pod}", shared, _decided(leader, Task("decided", pod, now.version))
    for pod, version in sorted(leader.expected):
        # As it knows the pod: what others have done with it since, it need not have heard.
        if without == "expected and read again":
            version = shared.pods[pod].version
        yield f"decides for {pod} as expected", shared, _decided(leader, Task("listed", pod, version))
    yield from _expects(shared, leader, without)


def _decided(leader: Leader, task: Task) -> Leader:
    """What is expected of a pod counts once."""
    expected = frozenset(one for one in leader.expected if one[0] != task.pod)
    return leader._replace(taken=frozenset([task.pod]), task=task, expected=expected)


def _expects(shared: Shared, leader: Leader, without: str) -> Iterator[Step]:
    """The compare-and-swap that lists a pod before anything is decided for it, and what is on its way."""
    fence = shared.fence
    if leader.known != fence.version and without != "no fence":
        return  # refused: it is deposed with its next write that somebody waits for
    own = [] if leader.task is None else [leader.task.pod]
    on_its_way = frozenset[int]() if without == "ahead only" else frozenset(own)
    for pod in PODS:
        now = shared.pods[pod]
        if not now.bound and fence.version < MAX_VERSION and pod not in own:
            for kept, listed in _kept(leader, on_its_way | {pod}, without):
                written = Fence(fence.version + 1, fence.epoch, listed)
                expected = kept | {(pod, now.version)}
                known = leader._replace(known=written.version, expected=expected)
                yield f"expects {pod}", shared._replace(fence=written), known


def _kept(leader: Leader, listed: frozenset[int], without: str) -> Iterator[tuple[Expected, frozenset[int]]]:
    """What is still expected after a write of these pods, namely what it lists beside them; and its list."""
    others = frozenset(one for one in leader.expected if one[0] not in listed)
    for kept in dict.fromkeys((frozenset[tuple[int, int]](), others)):
        pods = listed | {pod for pod, _ in kept}
        counts = others if without == "expected for ever" else kept
        yield counts, frozenset() if without == "forgets" else pods


def _binds(shared: Shared, leader: Leader, task: Task, without: str) -> Iterator[Step]:
    yield from _bumps_late(shared, leader, without)
    now = shared.pods[task.pod]
    if task.step == "decided":
        yield from _writes(shared, leader, task, without)
    else:
        yield from _expects(shared, leader, without)
    if task.step == "decided":
        return
    if task.step == "listed":
        if len(shared.net) < MAX_NET:
            version = now.version if without == "version read late" else task.version
            sent = leader._replace(task=task._replace(step="sent"))
            yield f"sends {task.pod}", shared._replace(net=shared.net | {(task.pod, version)}), sent
    elif now.bound:
        yield f"reads {task.pod}: bound", shared, leader._replace(task=None)
    elif task.step == "sent":
        if now.version != task.version:
            step = "listed" if without == "no check after a conflict" else "decided"
            yield f"reads {task.pod}", shared, leader._replace(task=Task(step, task.pod, now.version))
        yield f"gives {task.pod} up", shared, leader._replace(task=task._replace(step="giving up"))
    else:
        freed = leader._replace(taken=frozenset(), task=None)
        if without == "no bump when giving up":
            yield f"frees {task.pod}", shared, freed
        elif now.version < MAX_RV:
            yield f"bumps {task.pod} and frees it", shared.bumped(task.pod), freed


def _writes(shared: Shared, leader: Leader, task: Task, without: str) -> Iterator[Step]:
    """The compare-and-swap that lists the pod; what is not sent needs no bump to be given up."""
    fence = shared.fence
    yield f"gives {task.pod} up unsent", shared, leader._replace(taken=frozenset(), task=None)
    if leader.known != fence.version and without != "no fence":
        yield "is deposed", shared, Leader()
    elif fence.version < MAX_VERSION:
        for expected, listed in _kept(leader, frozenset([task.pod]), without):
            written = Fence(fence.version + 1, fence.epoch, listed)
            now = task._replace(step="listed")
            known = leader._replace(known=written.version, task=now, expected=expected)
            yield f"lists {task.pod} in the fence", shared._replace(fence=written), known


def _bumps_late(shared: Shared, leader: Leader, without: str) -> Iterator[Step]:
    if without == "list first" and leader.to_bump:
        pod = min(leader.to_bump)
        left = leader._replace(to_bump=leader.to_bump - {pod})
        yield f"bumps {pod} late", shared.bumped(pod), left


class Explored(NamedTuple):
    """`story`: the shortest way to a state in which both pods have the device; empty: there is none."""

    n_states: int
    story: tuple[str, ...]


T = TypeVar("T")
Numbered = tuple[int, int, int]
"""A state: the numbers of what is shared and of the two leaders."""


class Numbers(Generic[T]):
    """Gives each thing a number, in the order of their coming: numbers are compared and hashed at once."""

    def __init__(self) -> None:
        self.things: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, thing: T) -> int:
        number = self._numbers.setdefault(thing, len(self.things))
        if number == len(self.things):
            self.things.append(thing)
        return number


class Model:
    """The steps between numbered states."""

    def __init__(self, without: str) -> None:
        self._without = without
        self._shared = Numbers[Shared]()
        self._leaders = Numbers[Leader]()
        self._of_others: dict[int, list[tuple[str, int]]] = {}
        self._of_leader: dict[tuple[int, int], list[tuple[str, int, int]]] = {}

    def numbered(self, state: State) -> Numbered:
        one, other = state.leaders
        return self._shared.number(state.shared), self._leaders.number(one), self._leaders.number(other)

    def is_broken(self, state: Numbered) -> bool:
        return all(pod.bound for pod in self._shared.things[state[0]].pods)

    def steps(self, state: Numbered) -> Iterator[tuple[str, str, Numbered]]:
        """Everything that may happen next: whose step it is, what it is, where it leads."""
        shared, one, other = state
        for what, then, leader in self._steps_of_leader(shared, one):
            yield "0 ", what, (then, leader, other)
        for what, then, leader in self._steps_of_leader(shared, other):
            yield "1 ", what, (then, one, leader)
        for what, then in self._steps_of_others(shared):
            yield "", what, (then, one, other)

    def _steps_of_leader(self, shared: int, leader: int) -> list[tuple[str, int, int]]:
        known = self._of_leader.get((shared, leader))
        if known is None:
            found = steps_of_leader(self._shared.things[shared], self._leaders.things[leader], self._without)
            known = [
                (what, self._shared.number(then), self._leaders.number(now)) for what, then, now in found
            ]
            self._of_leader[shared, leader] = known
        return known

    def _steps_of_others(self, shared: int) -> list[tuple[str, int]]:
        known = self._of_others.get(shared)
        if known is None:
            found = steps_of_others(self._shared.things[shared], self._without)
            known = self._of_others[shared] = [(what, self._shared.number(then)) for what, then in found]
        return known


def explore(without: str = "", first: State = NOBODY_LEADS) -> Explored:
    """Every state that can be reached, breadth first, until one is broken."""
    model = Model(without)
    start = model.numbered(first)
    before: dict[Numbered, Numbered | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if model.is_broken(state):
            return Explored(len(before), _story(model, before, state))
        for _, _, following in model.steps(state):
            if following not in before:
                before[following] = state
                queue.append(following)
    return Explored(len(before), ())


def _story(model: Model, before: dict[Numbered, Numbered | None], state: Numbered) -> tuple[str, ...]:
    story = []
    while (earlier := before[state]) is not None:
        story.append(next(who + what for who, what, then in model.steps(earlier) if then == state))
        state = earlier
    return tuple(reversed(story))
