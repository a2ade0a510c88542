"""What the fence lists ahead: pods in line, before anything is decided about them.

Lives here: which pods, and for which of them a bind needs no write of its own. Not here: requests and the
rest of the list (kube.election.fence, the only caller).

Listing a pod that is never bound is harmless: a new leader bumps it for nothing. A bind of a listed pod needs
no write of its own if it carries the version that the pod had when the list was asked for: a successor bumps
the pod, and the bind cannot land. It does need one with another version, or after a list without the pod was
asked for, answered or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from itertools import islice

from gangsched.kube.election.fence_list import Expected, Line
from gangsched.model.effects import BindPod

# The lanes take several writes of the fence to send these, also on a server that is busy with them.
MAX_AHEAD = 768
# When this share of them is used up, the next are listed: the rest outlasts a write, and each is worth one.
_SHARE_USED = 2 / 3
# Fewer binds than this share of what may be listed are not worth a write that nobody waits for.
_SHARE_WORTH = 0.125


class Foreseen(Enum):
    """What is known of a bind's pod."""

    NOT = auto()
    ASKED = auto()
    LISTED = auto()


class Ahead:
    """Pods that are listed before they are placed."""

    def __init__(self, line: Line, max_pods: int = MAX_AHEAD) -> None:
        """line: returns the pods in the scheduling queue. max_pods: the most that are listed."""
        self._line = line
        self._max_pods = max_pods
        self._listed: dict[str, str] = {}
        """In the list that is stored and in the one that is asked for: UID -> version."""
        self._asked: dict[str, str] = {}
        """Only in the one that is asked for."""
        self._n_listed = 0
        self._n_used = 0

    def use(self, bind: BindPod) -> Foreseen:
        """Whether the pod is listed as the bind knows it; each pod counts once."""
        uid, version = bind.uid, bind.resource_version
        listed, asked = self._listed.pop(uid, ""), self._asked.pop(uid, "")
        if version and version in (listed, asked):
            self._n_used += 1
            return Foreseen.LISTED if version == listed else Foreseen.ASKED
        return Foreseen.NOT

    @property
    def is_short(self) -> bool:
        """Whether most of what is listed has been bound, so that the next gangs should be listed."""
        return self._n_used >= max(_SHARE_USED * self._n_listed, _SHARE_WORTH * self._max_pods)

    def misses(self) -> int:
        """How many bytes the first gang in line needs in the list; 0: it is listed, or must not be."""
        first = next(iter(self._line()), ())
        if len(first) > self._max_pods or all(map(self._knows, first)):
            return 0
        return sum(one.pod.n_bytes for one in first)

    def find(self, n_bytes: int) -> Mapping[str, Expected]:
        """The pods of the first gangs in line, by UID, as long as they fit into `n_bytes`."""
        found: dict[str, Expected] = {}
        for gang in islice(self._line(), self._max_pods):
            n_bytes -= sum(one.pod.n_bytes for one in gang)
            if n_bytes < 0 or len(found) + len(gang) > self._max_pods:
                break
            found.update((one.pod.uid, one) for one in gang)
        return found

    def knows_all(self, found: Mapping[str, Expected]) -> bool:
        """Whether all of these are listed."""
        return all(map(self._knows, found.values()))

    def _knows(self, one: Expected) -> bool:
        uid = one.pod.uid
        return self._listed.get(uid, self._asked.get(uid)) == one.version

    def put_off(self) -> None:
        """There is nobody to list: look again when as many more are used up."""
        self._n_used = 0

    def ask(self, found: Mapping[str, Expected]) -> None:
        """A list with these, and with no others that nothing is decided about, is asked for."""
        before, self._listed, self._asked = self._listed, {}, {}
        for uid, one in found.items():
            stays = before.get(uid) == one.version
            (self._listed if stays else self._asked)[uid] = one.version
        self._n_listed, self._n_used = len(found), 0

    def written(self) -> None:
        """The list that was asked for is stored."""
        self._listed |= self._asked
        self._asked = {}

    def unanswered(self) -> None:
        """It may be stored, or be stored later."""
        self._listed, self._asked = {}, {}
