"""LateMoves: pods that are regrouped as soon as it is known whether they are bound.

While its bind is in flight a pod stays in its group, since the reservation must outlive the answer. So does a
pod that only the answer shows as bound, since no version of it names its node yet. If it, or what puts it
into a group, was edited meanwhile, it moves afterwards: a pod whose bind has failed may get no later version
that would show the edit. Called by core.groups.members.membership and core.scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.groups.members.pod_versions import is_unseen
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PodInfo


class LateMoves:
    """Pods with binds in flight whose group may have changed meanwhile."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.uids: dict[str, None] = {}
        """Those that were edited while it was not known where they are."""

    def note(self, info: PodInfo) -> None:
        """Notes a pod with a bind in flight, to decide about later."""
        self.uids[info.uid] = None

    def must_wait(self, info: PodInfo) -> bool:
        """Whether to decide later, as the pod does not show yet where it is, if anywhere; notes it then."""
        if is_unseen(info):
            self.note(info)
            return True
        return False

    def take_settled(self) -> Iterator[PodInfo]:
        """Takes out and yields the pods whose binds have failed, or that the watch shows as bound."""
        for uid in list(self.uids):
            info = self._shared.cache.pods.get(uid)
            if info is None or info.group is None:
                del self.uids[uid]
            elif not is_unseen(info):
                del self.uids[uid]
                yield info
