"""The fence: the list of binds that may be in flight, written down before the first of them is sent.

Leader election alone does not prevent late binds: a leader that is paused, or whose packets the network
delays, binds after another has taken over. Lives here: the content of the one object, its owner, and the
effects that wait for it, as a pure state machine. Not here: its requests (kube.election.fence_keeper), the
bumps (kube.effects.bumps), decisions (the core). tests/kube/fence_model.py checks the protocol exhaustively.

| state | on | to | asks next |
|---|---|---|---|
| Untaken | begin() | | GET |
| Untaken | GET: none | | POST, epoch 1, ours |
| Untaken | GET: another's | | PUT, epoch + 1, ours, its list as it was |
| Untaken | POST or PUT answered; GET: ours (an answer was lost) | Taken | nothing: its list is bumped first |
| Taken | bumped() | Owned | |
| Owned | a bind or a hook waits | | PUT, with it in the list, without what is settled |
| Owned | a bind is expected and nothing waits | | PUT, with its pod in the list |
| Owned | an expected bind comes, its pod as it was | | nothing: it may be sent with that PUT's answer |
| Owned | PUT answered; GET: ours, with it in the list | Owned | listed effects may be sent; the next batch |
| Owned | GET: ours, without it | Owned | PUT again |
| Owned | GET: another's, or none | Deposed | |
| Owned | close() | Owned | PUT, without what is settled, until nothing else is listed |
| any | refused (409, too), or not answered | | GET |

A PUT carries the version that it replaces, so of two writers one is refused. Of several unanswered PUTs over
the same version at most one lands; a list that is read back counts only under a newer version than the one
they replace.

While a PUT is in flight the next batch gathers, and it goes on gathering while enough listed binds are still
to be sent: under load many gangs share one PUT, and a single gang waits for one round trip. Binds beyond
MAX_LIST_BYTES wait, in order, until others are settled.

Pods may be listed before anything is decided about them (`expect`), so that the round trip passes while
their gang is placed. Listing a pod that is never bound is harmless. Its bind needs no PUT of its own if it
carries the version that the pod had when that PUT was asked for: a successor bumps the pod, and the bind
cannot land. With another version, or after another PUT, it waits as all others do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from gangsched.kube.election.steps import Create, Get, Update
from gangsched.model.effects import BindPod, RunHook
from gangsched.model.objects import Pod

# An object's annotations may have 256 KiB in all. This fits several times the binds decided ahead.
MAX_LIST_BYTES = 128 * 1024

Fenced = BindPod | RunHook
# More than this are placed by several cycles, and then one round trip is a small part of it.
MAX_EXPECTED = 64


class ListedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with a bind that may be in flight."""

    uid: str
    namespace: str
    name: str
    gang: str

    @property
    def n_bytes(self) -> int:
        """Its size in the list, at most."""
        return len(self.uid) + len(self.name.encode()) + len(self.gang.encode()) + 20


Listed = Mapping[str, ListedPod]
"""By UID."""


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A pod that may be bound next, as it is known."""

    pod: ListedPod
    version: str


class FenceRecord(msgspec.Struct, frozen=True, gc=False):
    """Content of the object; listed None: the list is unreadable, so it may hold any unbound pod."""

    epoch: int = 0
    holder: str = ""
    listed: Listed | None = msgspec.field(default_factory=dict)


Step = Get | Create[FenceRecord] | Update[FenceRecord]


class FenceState(Enum):
    UNTAKEN = "untaken"
    TAKEN = "taken"
    OWNED = "owned"
    DEPOSED = "deposed"


class Fence:
    """The table above. Call `next` when the previous request has been answered."""

    def __init__(
        self, identity: str, *, is_on_its_way: Callable[[str], bool], max_bytes: int = MAX_LIST_BYTES
    ) -> None:
        """`identity`: unique to this process. `is_on_its_way`: may a pod's bind (by UID) still land?"""
        self.identity = identity
        self.state = FenceState.UNTAKEN
        self.epoch = 0
        self.inherited: Listed | None = {}
        """Pods whose binds by an earlier leader may be in flight; None: any pod."""
        self.n_written = 0
        self._is_on_its_way = is_on_its_way
        self._max_bytes = max_bytes
        self._seen = FenceRecord()
        self._version = ""
        self._must_read = True
        self._is_closed = False
        self._asked: Create[FenceRecord] | Update[FenceRecord] | None = None
        self._listed: dict[str, ListedPod] = {}
        self._batch: list[Fenced] = []
        self._waiting: deque[Fenced] = deque()
        self._released: list[Fenced] = []
        self._expected: Sequence[Expected] = ()
        self._versions: dict[str, str] = {}
        """Of expected pods in the list that was last asked for, by UID."""
        self._is_asking = False

    # -- what waits ------------------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        """Binds and hooks that may not be sent yet."""
        return len(self._waiting) + len(self._batch) + len(self._released)

    @property
    def is_writing(self) -> bool:
        """Whether a batch is in a list that was requested and is not confirmed."""
        return bool(self._batch)

    def submit(self, effect: Fenced) -> None:
        """Queue it until the fence lists it."""
        if not isinstance(effect, BindPod) or not self._is_foreseen(effect):
            self._waiting.append(effect)
        elif self._is_asking:
            self._batch.append(effect)
        else:
            self._released.append(effect)

    def _is_foreseen(self, bind: BindPod) -> bool:
        """Whether the last requested list has the pod as the bind knows it; true once for each pod."""
        version = self._versions.pop(bind.uid, "")
        return version != "" and version == bind.resource_version and not self._is_closed

    @property
    def is_idle(self) -> bool:
        """Whether it is owned, and nothing is being written or waits to be."""
        is_busy = self._is_asking or self._must_read or self.n_waiting or self._expected or self._is_closed
        return self.state is FenceState.OWNED and not is_busy

    def expect(self, pods: Sequence[Expected]) -> bool:
        """List these with the next request, if the fence is idle; returns whether it will."""
        if not self.is_idle or not 0 < len(pods) <= MAX_EXPECTED:
            return False
        self._expected = pods
        return True

    def take_back(self, is_meant: Callable[[Fenced], bool]) -> list[Fenced]:
        """Remove matching effects that were not released; a listed one that is never sent is harmless."""
        taken = [one for one in (*self._released, *self._batch, *self._waiting) if is_meant(one)]
        if taken:
            self._released = [one for one in self._released if not is_meant(one)]
            self._batch = [one for one in self._batch if not is_meant(one)]
            self._waiting = deque(one for one in self._waiting if not is_meant(one))
        return taken

    def take_released(self) -> Sequence[Fenced]:
        """Effects that have been listed and may be sent, each once."""
        released, self._released = self._released, []
        return released

    def close(self) -> None:
        """Release nothing any more; from here on the list only gets shorter, as binds are settled."""
        self._is_closed = True

    @property
    def is_short(self) -> bool:
        """Whether the list is ours and holds only binds that may still land."""
        listed = self._seen.listed
        return (
            self.state is FenceState.OWNED
            and not self._must_read
            and listed is not None
            and all(map(self._is_on_its_way, listed))
        )

    def bumped(self) -> None:
        """Take the list over: no bind of an earlier leader can land any more."""
        assert self.state is FenceState.TAKEN
        self.state = FenceState.OWNED
        self.inherited = {}

    # -- requests --------------------------------------------------------------------------------------

    def next(self) -> Step | None:
        """The next request; None: nothing to write, or blocked until something is settled."""
        if self.state in (FenceState.DEPOSED, FenceState.TAKEN):
            return None
        step = self._next()
        self._is_asking = step is not None
        return step

    def _next(self) -> Step | None:
        if self._must_read:
            return Get()
        if self.state is FenceState.UNTAKEN:
            record = FenceRecord(self._seen.epoch + 1, self.identity, self._seen.listed)
            self._asked = Update(record, self._version) if self._version else Create(record)
            return self._asked
        if self._shorten() if self._is_closed else self._batch or self._fill():
            self._asked = Update(FenceRecord(self.epoch, self.identity, self._listed), self._version)
            return self._asked
        return None

    def _shorten(self) -> bool:
        """Take settled pods out of the list; False: there are none."""
        self._listed = self._unsettled()
        return not self.is_short

    def _unsettled(self) -> dict[str, ListedPod]:
        return {uid: pod for uid, pod in self._listed.items() if self._is_on_its_way(uid)}

    def _fill(self) -> bool:
        """Build the next batch, and the list with it and without settled pods; False: nothing to write."""
        expected, self._expected = self._expected, ()
        if not (self._waiting or expected):
            return False
        listed = self._unsettled()
        n_bytes = sum(pod.n_bytes for pod in listed.values())
        if not self._waiting:
            return self._foresee(expected, listed, n_bytes)
        while self._waiting:
            pod = _listed_pod(self._waiting[0])
            if pod.uid not in listed:
                n_bytes += pod.n_bytes
                if n_bytes > self._max_bytes and listed:
                    break
                listed[pod.uid] = pod
            self._batch.append(self._waiting.popleft())
        if self._batch:
            self._listed = listed
            self._versions = {}
        return bool(self._batch)

    def _foresee(self, expected: Sequence[Expected], listed: dict[str, ListedPod], n_bytes: int) -> bool:
        """Put expected pods into the list, if there is room for all of them."""
        if n_bytes + sum(one.pod.n_bytes for one in expected) > self._max_bytes:
            return False
        self._listed = {**listed, **{one.pod.uid: one.pod for one in expected}}
        self._versions = {one.pod.uid: one.version for one in expected}
        return True

    # -- answers ---------------------------------------------------------------------------------------

    def found(self, record: FenceRecord, version: str) -> None:
        """GET: the object as read."""
        self._must_read = self._is_asking = False
        is_newer = version != self._version
        self._seen, self._version = record, version
        if record.holder != self.identity:
            if self.state is FenceState.OWNED:
                self.state = FenceState.DEPOSED
        elif self.state is FenceState.UNTAKEN:
            self._taken(record)
        elif is_newer and self._is_listed(record):
            self._release()

    def _is_listed(self, record: FenceRecord) -> bool:
        listed = record.listed
        return listed is not None and all(_listed_pod(one).uid in listed for one in self._batch)

    def absent(self) -> None:
        """GET: there is no such object."""
        self._must_read = self._is_asking = False
        self._seen, self._version = FenceRecord(), ""
        if self.state is FenceState.OWNED:  # deleted by hand; others may have made and lost one since
            self.state = FenceState.DEPOSED

    def written(self, version: str) -> None:
        """POST or PUT: done."""
        assert self._asked is not None
        self._is_asking = False
        self._seen, self._version = self._asked.record, version
        self.n_written += 1
        if self.state is FenceState.UNTAKEN:
            self._taken(self._asked.record)
        else:
            self._release()

    def unanswered(self) -> None:
        """Refused or not answered: the write may have been done, or may be done later."""
        self._must_read, self._is_asking = True, False
        self._versions = {}

    def _taken(self, record: FenceRecord) -> None:
        self.state = FenceState.TAKEN
        self.epoch = record.epoch
        self.inherited = record.listed

    def _release(self) -> None:
        if not self._is_closed:
            self._released += self._batch
            self._batch = []


def expected_of(pod: Pod, gang: str) -> Expected:
    """The pod, as it is known now, as an Expected."""
    meta = pod.metadata
    return Expected(ListedPod(meta.uid, meta.namespace, meta.name, gang), meta.resource_version)


def _listed_pod(effect: Fenced) -> ListedPod:
    if isinstance(effect, BindPod):
        return ListedPod(effect.uid, effect.namespace, effect.name, effect.group)
    assert effect.pod is not None, "only hooks about a pod are fenced"
    meta = effect.pod.metadata
    return ListedPod(meta.uid, meta.namespace, meta.name, str(effect.group))


# -- the list as text --------------------------------------------------------------------------------------

_decode_list = msgspec.json.Decoder(dict[str, dict[str, str]]).decode


def list_text(pods: Iterable[ListedPod]) -> str:
    """`{"default/train":{"6f1c…":"default/train-0"}}`: gang, UID, pod."""
    gangs: dict[str, dict[str, str]] = {}
    for pod in pods:
        gangs.setdefault(pod.gang, {})[pod.uid] = f"{pod.namespace}/{pod.name}"
    return msgspec.json.encode(gangs).decode()


def read_list(text: str) -> Listed | None:
    """None: it cannot be read."""
    try:
        gangs = _decode_list(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    listed = {}
    for gang, pods in gangs.items():
        for uid, place in pods.items():
            namespace, slash, name = place.partition("/")
            if not (uid and namespace and slash and name):
                return None
            listed[uid] = ListedPod(uid, namespace, name, gang)
    return listed
