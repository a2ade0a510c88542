"""LateMoves: pods whose group is to be decided anew, as soon as their binds are answered.

While its bind is on its way a pod stays in its group, since the reservation must outlive the answer. If it
was edited meanwhile, or what puts it into a group was, it moves once the answer has come: a pod whose bind
has failed may have no later version that would show it. Called by core.groups.membership and core.scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

from gangsched.core.state.state import SharedState
from gangsched.core.types.group import BOUND, ON_ITS_WAY, PodInfo


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

    def look(self) -> None:
        """Once a turn: decides about those whose binds have been answered."""
        for uid in list(self._uids):
            info = self._shared.cache.pods.get(uid)
            if info is not None and info.group is not None:
                if info.bind in ON_ITS_WAY:
                    continue
                if info.state is BOUND and not info.pod.spec.node_name:
                    continue  # the watch has yet to tell of the bind
            del self._uids[uid]
            if info is not None and info.group is not None:
                self._decide(info)
