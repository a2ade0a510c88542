"""ForeignNominations: room that another scheduler has nominated for its pod, and how long it is respected.

kube-scheduler writes `nominatedNodeName` when it evicts pods for a pod, and takes the room once they are
gone. A scheduler that no longer exists never takes it, and anybody who may write a pod's status can name a
node. So room is kept for a nomination only for a time, longer while pods on that node are on their way out.
The same pod's nomination of another node starts over. Called by core.groups.membership.
"""

from __future__ import annotations

from gangsched.core.preemption.victims import is_leaving
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import Deadlines
from gangsched.model.objects import Pod

KEEPS_S = 300.0
# The longest for which pods that are leaving prolong it: the longest grace period that preemption waits for.
MAX_KEEPS_S = 86_400.0
_AGAIN_S = 30.0


class ForeignNominations:
    """Keeps other schedulers' nominations, and ends those that are not used."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._since_s: dict[str, float] = {}
        self._until_s: Deadlines[str] = Deadlines(shared.timers)
        self._void: dict[str, str] = {}
        """UID -> the node that is no longer kept for the pod."""

    def put(self, pod: Pod) -> None:
        """Takes in the nomination of a pod of another scheduler, or that it has none."""
        shared, uid = self._shared, pod.metadata.uid
        is_placed = bool(pod.spec.node_name) or pod.is_terminal
        name = "" if is_placed else pod.status.nominated_node_name
        known = shared.cache.nominated.get(uid)
        if not name:
            self.forget(uid)
        elif self._void.get(uid) == name:
            return
        elif known is None or known.node_name != name:
            self._void.pop(uid, None)
            self._since_s[uid] = shared.now_s
            self._until_s.set(uid, shared.now_s + KEEPS_S)
        if (change := shared.cache.nominate(pod, name)) is not None:
            shared.changes.append(change)

    def forget(self, uid: str) -> None:
        """Forgets a pod that is gone, or has no nomination."""
        if self._since_s.pop(uid, None) is not None:
            self._until_s.drop(uid)
        if self._void:
            self._void.pop(uid, None)

    def advance(self) -> None:
        """Ends nominations that have been kept for long enough."""
        shared = self._shared
        for uid in self._until_s.take(shared.now_s):
            kept, since_s = shared.cache.nominated.get(uid), self._since_s[uid]
            if kept is None or kept.info.group is not None:
                self.forget(uid)
                continue
            there = shared.cache.by_node.get(kept.node_name, {}).values()
            if shared.now_s < since_s + MAX_KEEPS_S and any(is_leaving(info) for info in there):
                self._until_s.set(uid, shared.now_s + _AGAIN_S)
                continue
            shared.count("foreign_nominations_ended")
            shared.changes += shared.cache.unnominate(uid)
            self.forget(uid)
            self._void[uid] = kept.node_name
