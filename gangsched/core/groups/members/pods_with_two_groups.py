"""PodsWithTwoGroups: pods that name a core PodGroup and also have a group by their metadata or controller.

Kept by core.groups.members.membership, to find them again when the PodGroup arrives: whether it requires a
gang decides which of the two names counts (model.pod_group).
"""

from __future__ import annotations

from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey, core_key


class PodsWithTwoGroups:
    """UIDs by the core PodGroup's key, in order of arrival."""

    def __init__(self) -> None:
        self._uids: dict[GroupKey, dict[str, None]] = {}

    def add(self, key: GroupKey, uid: str) -> None:
        """Adds a pod by its UID."""
        self._uids.setdefault(key, {})[uid] = None

    def remove(self, pod: Pod) -> None:
        """Removes a pod, if it is listed here."""
        if not self._uids:
            return
        key = core_key(pod)
        uids = self._uids.get(key) if key is not None else None
        if key is not None and uids is not None:
            uids.pop(pod.metadata.uid, None)
            if not uids:
                del self._uids[key]

    def beside(self, key: GroupKey) -> list[str]:
        """UIDs of the pods that name that PodGroup."""
        return [*self._uids.get(key, ())]
