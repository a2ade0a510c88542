"""StoreIndex: an index of the store's pods, updated on changes instead of rebuilt for each check.

Updated by lab.sim.world.api with every change of a pod or a group's object; read by the checkers. Parses with
lab.sim.reading.documents.
"""

from __future__ import annotations

from gangsched.lab.sim.objects import Key
from gangsched.lab.sim.reading.documents import MARK, Gang, gang_of, ids_of, is_refused, least
from gangsched.model.objects import CustomObject, Pod

OURS = "gangsched"
Place = tuple[str, str, str]
"""Node, resource, device ID."""

# In larger gangs, which workloads with intruders lack, only the first member is read.
_MAX_COMPARED = 64


class StoreIndex:
    """Gangs and holders of devices, as the store shows them."""

    def __init__(self) -> None:
        self.members: dict[Gang, dict[str, Pod]] = {}
        """Our pods by gang, then by UID, in order of arrival."""
        self.n_bound: dict[Gang, int] = {}
        """Numbers of our bound pods, by gang; n_running: only those that have not ended."""
        self.n_running: dict[Gang, int] = {}
        self.n_refused: dict[Gang, int] = {}
        """Numbers of pods that kubelet ended before any of their containers ran, by gang."""
        self.owners: dict[Place, dict[str, None]] = {}
        """UIDs of live pods with our mark, by device."""
        self.doubled: dict[Place, None] = {}
        self.uids: set[str] = set()
        self.n_comings = 0
        """A change counter of `uids`; n_takings: of `owners`."""
        self.n_takings = 0
        self.touched: dict[Gang, None] = {}
        """Gangs with changes; the reader empties it."""
        self.renewed: dict[Gang, None] = {}
        """Gangs whose members have changed only in fields that are not counted here; as `touched`."""
        self.changed: dict[str, Pod] = {}
        """Pods with our mark that have changed, by UID; as `touched`."""
        self._gangs: dict[str, Gang | None] = {}
        """The gang of every pod, by UID."""
        self._forged: set[str] = set()
        """Pods created with our mark: the scheduler did not write it, so it proves no ownership."""
        self._objects: dict[Key, CustomObject] = {}

    def least(self, gang: Gang) -> int | None:
        """Returns how many of the gang must start together; None if nothing states it."""
        item = self._objects.get((gang.dialect, gang.namespace, gang.name))
        for pod in self.members.get(gang, {}).values():
            return least(gang, pod, item)
        return None

    def disagree(self, gang: Gang) -> bool:
        """Whether its members state different numbers, which only an edit can cure."""
        members = self.members.get(gang, {})
        if len(members) > _MAX_COMPARED:
            return False
        item = self._objects.get((gang.dialect, gang.namespace, gang.name))
        return len({least(gang, pod, item) for pod in members.values()}) > 1

    def pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        """Updates the index when a pod was created, replaced by its next version, or is gone."""
        if before is None and after is not None and MARK in (after.metadata.annotations or ()):
            self._forged.add(after.metadata.uid)
        if before is not None and after is not None and counts_alike(before, after):
            self._renew(before, after)
            return
        if before is not None:
            self._count(before, is_there=False)
        if after is not None:
            self._count(after, is_there=True)
        leaves = self._gangs.pop(before.metadata.uid) if before is not None else None
        joins = _gang(after) if after is not None else None
        if after is not None:
            self._gangs[after.metadata.uid] = joins
        if before is not None and leaves is not None:
            self.touched[leaves] = None
            self._add(leaves, before, -1)
            if leaves != joins:  # else it keeps its place
                members = self.members[leaves]
                del members[before.metadata.uid]
                if not members:
                    del self.members[leaves]
        if after is not None and joins is not None:
            self.touched[joins] = None
            self._add(joins, after, 1)
            self.members.setdefault(joins, {})[after.metadata.uid] = after

    def _renew(self, before: Pod, after: Pod) -> None:
        """Takes in a version that changes nothing that is counted here."""
        uid = after.metadata.uid
        gang = self._gangs[uid]
        if MARK in (after.metadata.annotations or ()) and uid not in self._forged:
            self.changed[uid] = after
        if gang is not None:
            self.renewed[gang] = None
            self.members[gang][uid] = after

    def _add(self, gang: Gang, pod: Pod, n: int) -> None:
        if pod.spec.node_name:
            self.n_bound[gang] = self.n_bound.get(gang, 0) + n
            if not pod.is_terminal:
                self.n_running[gang] = self.n_running.get(gang, 0) + n
            elif is_refused(pod):
                self.n_refused[gang] = self.n_refused.get(gang, 0) + n

    def group_changed(self, key: Key, item: CustomObject | None) -> None:
        if item is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = item
        self.touched[Gang(*key)] = None

    def _count(self, pod: Pod, *, is_there: bool) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        (self.uids.add if is_there else self.uids.discard)(uid)
        self.n_comings += 1
        if MARK not in (pod.metadata.annotations or ()) or uid in self._forged:
            return
        if is_there:
            self.changed[uid] = pod
        else:
            self.changed.pop(uid, None)
        if not node or pod.is_terminal:
            return
        for resource, ids in ids_of(pod).items():
            for device_id in ids:
                self._own((node, resource, device_id), uid, is_there=is_there)

    def _own(self, place: Place, uid: str, *, is_there: bool) -> None:
        self.n_takings += 1
        owners = self.owners.setdefault(place, {})
        if is_there:
            owners[uid] = None
        else:
            owners.pop(uid, None)
        if len(owners) > 1:
            self.doubled[place] = None
        else:
            self.doubled.pop(place, None)


def counts_alike(one: Pod, other: Pod) -> bool:
    """Whether two versions of a pod certainly have the same gang, node and devices."""
    own, others = one.metadata, other.metadata
    return (
        one.spec is other.spec
        and own.uid == others.uid
        and own.annotations is others.annotations
        and own.labels is others.labels
        and one.is_terminal == other.is_terminal
    )


def _gang(pod: Pod) -> Gang | None:
    return gang_of(pod) if pod.spec.scheduler_name == OURS else None
