"""What the fence lists ahead: queued pods and their claims, before anything is decided about them.

Lives here: which of them, and for which a write needs no write of the fence of its own. Not here: requests
and the rest of the list (kube.election.fence, the only caller).

Listing a pod that is never bound is harmless: a new leader bumps it in vain. A bind of a listed pod needs no
write of its own if it carries the version that the pod had when the list was sent: a successor bumps the pod,
so the bind cannot succeed. It needs one if the version differs, or once a list without the pod was sent,
answered or not. Likewise for claims and their patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from itertools import islice

from gangsched.kube.election.fence_list import Expected, Line
from gangsched.model.effects import BindPod, PatchClaim

# Sending these takes the lanes as long as several writes of the fence, even on a busy server.
MAX_AHEAD = 768
# When this share is used up, the next pods are listed: the rest outlasts a write, and the gain is worth one.
_SHARE_USED = 2 / 3
# Fewer binds than this share of the limit are not worth a write for which nothing waits.
_SHARE_WORTH = 0.125


class Foreseen(Enum):
    """What the list states about an effect's object."""

    NOT = auto()
    ASKED = auto()
    LISTED = auto()


class Ahead:
    """Pods that are listed before they are placed, and their claims."""

    def __init__(self, line: Line, max_pods: int = MAX_AHEAD) -> None:
        """line: returns what is in the scheduling queue. max_pods: limit on the listed objects."""
        self._line = line
        self._max_pods = max_pods
        self._listed: dict[str, str] = {}
        """In both the stored list and the one being written: UID -> version."""
        self._asked: dict[str, str] = {}
        """Only in the list being written."""
        self._n_listed = 0
        self._n_used = 0

    def use(self, effect: BindPod | PatchClaim) -> Foreseen:
        """Whether the object is listed with the effect's version; each object counts once."""
        uid, version = effect.uid, effect.resource_version
        listed, asked = self._listed.pop(uid, ""), self._asked.pop(uid, "")
        if version and version in (listed, asked):
            self._n_used += 1
            return Foreseen.LISTED if version == listed else Foreseen.ASKED
        return Foreseen.NOT

    @property
    def is_short(self) -> bool:
        """Whether most listed pods are bound, so that the next gangs should be listed."""
        return self._n_used >= max(_SHARE_USED * self._n_listed, _SHARE_WORTH * self._max_pods)

    def misses(self) -> int:
        """How many bytes the first queued gang needs in the list; 0: it is listed, or must not be."""
        first = next(iter(self._line()), ())
        if len(first) > self._max_pods or all(map(self._knows, first)):
            return 0
        return sum(one.object.n_bytes for one in first)

    def find(self, n_bytes: int) -> Mapping[str, Expected]:
        """Returns the pods of the first queued gangs, by UID, as far as they fit into `n_bytes`."""
        found: dict[str, Expected] = {}
        for gang in islice(self._line(), self._max_pods):
            n_bytes -= sum(one.object.n_bytes for one in gang)
            if n_bytes < 0 or len(found) + len(gang) > self._max_pods:
                break
            found.update((one.object.uid, one) for one in gang)
        return found

    def knows_all(self, found: Mapping[str, Expected]) -> bool:
        """Whether all of these are listed."""
        return all(map(self._knows, found.values()))

    def _knows(self, one: Expected) -> bool:
        uid = one.object.uid
        return self._listed.get(uid, self._asked.get(uid)) == one.version

    def put_off(self) -> None:
        """There are no pods to list: look again when as many more are used up."""
        self._n_used = 0

    def ask(self, found: Mapping[str, Expected]) -> None:
        """A list is being written whose only undecided pods are these."""
        before, self._listed, self._asked = self._listed, {}, {}
        for uid, one in found.items():
            stays = before.get(uid) == one.version
            (self._listed if stays else self._asked)[uid] = one.version
        self._n_listed, self._n_used = len(found), 0

    def written(self) -> None:
        """The list that was sent is stored."""
        self._listed |= self._asked
        self._asked = {}

    def unanswered(self) -> None:
        """The list may be stored now, or later."""
        self._listed, self._asked = {}, {}
