"""LateMoves: pods whose group is to be decided anew, as soon as it is known whether they are bound.

While its bind is on its way a pod stays in its group, since the reservation must outlive the answer; so does
a pod that is bound by the answer alone, since no version of it names its node yet. If it was edited
meanwhile, or what puts it into a group was, it moves afterwards: a pod whose bind has failed may have no
later version that would show it. Called by core.groups.membership and core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.core.groups.pod_versions import is_unseen
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PodInfo


class LateMoves:
    """Pods with binds on their way whose group may be another one by now."""

    def __init__(self, shared: SharedState, decide: Callable[[PodInfo], None]) -> None:
        """`decide`: puts a pod into the group that it names now."""
        self._shared = shared
        self._decide = decide
        self._uids: dict[str, None] = {}

    def note(self, info: PodInfo) -> None:
        """It has a bind on its way."""
        self._uids[info.uid] = None

    def must_wait(self, info: PodInfo) -> bool:
        """Whether it is decided about later: where it is, if anywhere, is not known from the pod yet."""
        if is_unseen(info):
            self.note(info)
            return True
        return False

    def look(self) -> None:
        """Once a turn: decides about those whose binds have failed, or have been told by the watch."""
        for uid in list(self._uids):
            info = self._shared.cache.pods.get(uid)
            if info is None or info.group is None:
                del self._uids[uid]
            elif not is_unseen(info):
                del self._uids[uid]
                self._decide(info)
