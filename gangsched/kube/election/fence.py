"""The fence: the list of writes that may be in flight, stored before the first of them is sent.

Leader election alone does not prevent late binds: a leader that is paused, or whose packets are delayed, may
bind after another has taken over. Lives here: the content of the one object, its owner, and the effects that
wait for it, as a pure state machine. Not here: its requests (kube.election.fence_keeper), the bumps
(kube.effects.bumps), decisions (the core). tests/kube/fence_model.py checks the protocol exhaustively. What
is said here of binds and their pods holds for patches of ResourceClaims and their claims too.

| state | on | to | asks next |
|---|---|---|---|
| Untaken | begin() | | GET |
| Untaken | GET: none | | POST, epoch 1, ours |
| Untaken | GET: another's | | PUT, epoch + 1, ours, its list as it was |
| Untaken | POST or PUT answered; GET: ours (an answer was lost) | Taken | nothing: its list is bumped first |
| Untaken | close() | Untaken | nothing more: the successor will take it |
| Taken | bumped() | Owned | |
| Owned | a bind or a hook waits | | PUT, listing it and dropping settled pods |
| Owned | the first queued pods are unlisted and nothing waits; most pods listed ahead are bound | | PUT |
| Owned | a bind arrives for a pod listed ahead with the same version | | nothing: it may be sent |
| Owned | a patch arrives with the version that our last one made, its claim listed since | | nothing |
| Owned | PUT answered; GET: ours, with it in the list | Owned | listed effects may be sent; the next batch |
| Owned | GET: ours, without it | Owned | PUT again |
| Owned | GET: another's, or none | Deposed | |
| Owned | close() | Owned | PUT, dropping settled pods, until only unsettled ones are listed |
| any | refused (409, too), or not answered | | GET |

A PUT carries the version that it replaces, so one of two writers is refused. At most one of several
unanswered PUTs over the same version succeeds; a list that is read back counts only under a newer version
than that.

Each PUT also lists as many of the next queued pods as fit, before anything is decided about them
(kube.election.fence_ahead). So its round trip overlaps with binding earlier pods, or with placing a gang that
arrives alone. Unforeseen binds gather while a PUT is in flight and while enough listed binds are still
unsent, and then share one PUT. Binds beyond MAX_LIST_BYTES wait, in order, until earlier ones are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from gangsched.kube.election.fence_ahead import MAX_AHEAD, Ahead, Foreseen
from gangsched.kube.election.fence_list import CLAIMS, Line, Listed, ListedObject
from gangsched.kube.election.steps import Create, Get, Update, one_more
from gangsched.model.effects import BindPod, PatchClaim, RunHook

# An object's annotations may have 256 KiB in all. This fits several times the binds decided ahead.
MAX_LIST_BYTES = 128 * 1024

Fenced = BindPod | PatchClaim | RunHook


class FenceRecord(msgspec.Struct, frozen=True, gc=False):
    """Content of the object; listed None: the list is unreadable and may contain any unbound pod."""

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
        self,
        identity: str,
        *,
        is_on_its_way: Callable[[str], bool],
        line: Line = tuple,
        max_bytes: int = MAX_LIST_BYTES,
        max_ahead: int = MAX_AHEAD,
    ) -> None:
        """`identity`: unique to this process. `is_on_its_way`: may a write to an object (by UID) still
        succeed, or, to a claim, others follow before its gang is settled?

        `line`: returns the pods in the scheduling queue, which are listed before they are placed.
        """
        self.identity = identity
        self.state = FenceState.UNTAKEN
        self.epoch = 0
        self.inherited: Listed | None = {}
        """Objects with writes by an earlier leader that may be in flight; None: any object."""
        self.n_written = 0
        self._is_on_its_way = is_on_its_way
        self._max_bytes = max_bytes
        self._seen = FenceRecord()
        self._version = ""
        self._must_read = True
        self._is_closed = False
        self._asked: Create[FenceRecord] | Update[FenceRecord] | None = None
        self._listed: dict[str, ListedObject] = {}
        self._made: dict[str, str] = {}
        """Versions that our own patches have made of claims, by UID, each listed without a gap since."""
        self._batch: list[Fenced] = []
        self._waiting: deque[Fenced] = deque()
        self._released: list[Fenced] = []
        self._ahead = Ahead(line, max_ahead)
        self._expects = False
        self._is_asking = False

    # -- what waits ------------------------------------------------------------------------------------

    @property
    def n_waiting(self) -> int:
        """Binds, patches and hooks that may not be sent yet."""
        return len(self._waiting) + len(self._batch) + len(self._released)

    @property
    def n_released(self) -> int:
        """Waiting effects that are listed and not yet taken."""
        return len(self._released)

    @property
    def is_writing(self) -> bool:
        """Whether a list with a batch has been sent and is not confirmed."""
        return bool(self._batch)

    def submit(self, effect: Fenced) -> None:
        """Queue it until the fence lists it."""
        foreseen = Foreseen.NOT if isinstance(effect, RunHook) else self._ahead.use(effect)
        if isinstance(effect, PatchClaim) and self._made.pop(effect.uid, "") == effect.resource_version:
            foreseen = Foreseen.LISTED
        if self._is_closed or foreseen is Foreseen.NOT:
            self._waiting.append(effect)
        elif foreseen is Foreseen.ASKED:
            self._batch.append(effect)
        else:
            self._released.append(effect)

    def patched(self, uid: str, version: str) -> None:
        """One of our patches of a claim has made this version.

        As our patch succeeded, no successor had bumped the claim before; and if one does later, as it is in
        its list, the version is another. So the next patch needs no write of the list if it carries this
        version. A version that was read proves nothing: the bump may have come before it.
        """
        if uid in self._listed:
            self._made[uid] = version

    @property
    def is_idle(self) -> bool:
        """Whether the fence is owned and nothing is being written or waits."""
        is_busy = self._is_asking or self._must_read or self.n_waiting or self._expects or self._is_closed
        return self.state is FenceState.OWNED and not is_busy

    @property
    def is_short_ahead(self) -> bool:
        """Whether more pods should be listed ahead now, even if no effect waits."""
        return self._ahead.is_short

    def expect(self) -> bool:
        """List the first queued pods with the next request, if the fence is idle and does not list them yet.

        Returns whether it will do so.
        """
        n_bytes = self._ahead.misses() if self.is_idle else 0
        if not n_bytes or n_bytes > self._max_bytes - _n_bytes(self._unsettled()):
            return False
        self._expects = True
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
        """Stop releasing; from here on the list only shrinks as binds are settled."""
        self._is_closed = True

    @property
    def is_short(self) -> bool:
        """Whether the list is ours and has only binds that may still succeed."""
        listed = self._seen.listed
        return (
            self.state is FenceState.OWNED
            and not self._must_read
            and listed is not None
            and all(map(self._is_on_its_way, listed))
        )

    def bumped(self) -> None:
        """Take over the list: binds of earlier leaders can no longer succeed."""
        assert self.state is FenceState.TAKEN
        self.state = FenceState.OWNED
        self.inherited = {}

    # -- requests --------------------------------------------------------------------------------------

    def next(self) -> Step | None:
        """The next request; None: nothing to write, or blocked until something is settled."""
        is_too_late = self._is_closed and self.state is FenceState.UNTAKEN
        if is_too_late or self.state in (FenceState.DEPOSED, FenceState.TAKEN):
            return None
        step = self._next()
        self._is_asking = step is not None
        return step

    def _next(self) -> Step | None:
        if self._must_read:
            return Get()
        if self.state is FenceState.UNTAKEN:
            record = FenceRecord(one_more(self._seen.epoch), self.identity, self._seen.listed)
            self._asked = Update(record, self._version) if self._version else Create(record)
            return self._asked
        if self._shorten() if self._is_closed else self._batch or self._fill():
            self._asked = Update(FenceRecord(self.epoch, self.identity, self._listed), self._version)
            return self._asked
        return None

    def _shorten(self) -> bool:
        """Take settled pods out of the list; False: there are none."""
        self._list(self._unsettled())
        return not self.is_short

    def _list(self, listed: dict[str, ListedObject]) -> None:
        self._listed = listed
        self._made = {uid: version for uid, version in self._made.items() if uid in listed}

    def _unsettled(self) -> dict[str, ListedObject]:
        return {uid: one for uid, one in self._listed.items() if self._is_on_its_way(uid)}

    def _fill(self) -> bool:
        """Build the next list: binds in flight, waiting binds, queued pods; False: nothing to write."""
        is_due = self._expects or self._ahead.is_short
        self._expects = False
        if not (self._waiting or is_due):
            return False
        listed = self._unsettled()
        n_left = self._max_bytes - _n_bytes(listed)
        while self._waiting:
            one = _listed(self._waiting[0])
            if one.uid not in listed:
                n_left -= one.n_bytes
                if n_left < 0 and listed:
                    break
                listed[one.uid] = one
            self._batch.append(self._waiting.popleft())
        ahead = {} if self._waiting else self._ahead.find(n_left)
        if not self._batch and self._ahead.knows_all(ahead):
            self._ahead.put_off()
            return False
        self._list({**listed, **{uid: one.object for uid, one in ahead.items()}})
        self._ahead.ask(ahead)
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
        return listed is not None and all(_listed(one).uid in listed for one in self._batch)

    def absent(self) -> None:
        """GET: there is no such object."""
        self._must_read = self._is_asking = False
        self._seen, self._version = FenceRecord(), ""
        if self.state is FenceState.OWNED:  # deleted by hand; another process may have made and lost one
            self.state = FenceState.DEPOSED

    def written(self, version: str) -> None:
        """POST or PUT: done."""
        assert self._asked is not None
        self._is_asking = False
        self._seen, self._version = self._asked.record, version
        self.n_written += 1
        self._ahead.written()
        if self.state is FenceState.UNTAKEN:
            self._taken(self._asked.record)
        else:
            self._release()

    def unanswered(self) -> None:
        """Refused or not answered: the write may have taken effect, or may later."""
        self._must_read, self._is_asking = True, False
        self._ahead.unanswered()

    def _taken(self, record: FenceRecord) -> None:
        self.state = FenceState.TAKEN
        self.epoch = record.epoch
        self.inherited = record.listed

    def _release(self) -> None:
        if not self._is_closed:
            self._released += self._batch
            self._batch = []


def _listed(effect: Fenced) -> ListedObject:
    if isinstance(effect, BindPod):
        return ListedObject(effect.uid, effect.namespace, effect.name, effect.group)
    if isinstance(effect, PatchClaim):
        return ListedObject(effect.uid, effect.namespace, effect.name, effect.group, CLAIMS)
    assert effect.pod is not None, "only hooks about a pod are fenced"
    meta = effect.pod.metadata
    return ListedObject(meta.uid, meta.namespace, meta.name, str(effect.group))


def _n_bytes(listed: Listed) -> int:
    return sum(one.n_bytes for one in listed.values())
