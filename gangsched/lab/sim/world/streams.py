"""Stream: one kind's watch as the scheduler sees it: late, interrupted, relisted, never out of order.

The same table as kube.watch.reflector's, without bytes: changes missed while a watch was down are found by
comparison at the next list, and every existing object is delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gangsched.lab.sim.objects import Key
from gangsched.lab.sim.timeline import Timeline
from gangsched.model import events as ev
from gangsched.model.objects import CustomObject, Node, Pod

Item = Pod | Node | CustomObject
GROUPS = "podgroups"
_WITHOUT_S = 15.0
"""How long after its first failed list a process goes on without an optional kind (kube.watch.first_read)."""
API_VERSIONS = {
    "core": "scheduling.k8s.io/v1beta1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "volcano": "scheduling.volcano.sh/v1beta1",
    "kai": "scheduling.run.ai/v2alpha2",
}


class Stream:
    """What one watch has delivered, and the events in flight."""

    def __init__(
        self,
        kind: str,
        timeline: Timeline,
        *,
        delay_s: Callable[[], float],
        sink: Callable[[ev.Event], None],
        store: Callable[[], Iterable[tuple[Key, Any]]],
    ) -> None:
        self.kind = kind
        self._timeline = timeline
        self._delay_s = delay_s
        self._sink = sink
        self._store = store
        self._known: dict[Key, Any] = {}
        self._connection = 0
        self._up = False
        self._is_off = False
        self.is_offered = True
        """False while the server has no such kind."""
        self.is_read = False
        """Whether this process has listed the kind."""
        self._last_s = 0.0
        self.n_on_the_way = 0

    def send(self, key: Key, item: Any, *, deleted: bool = False) -> None:
        """Sends a change of the store; a watch that is down never shows it."""
        if not self._up:
            return
        self._last_s = max(self._last_s, self._timeline.now_s + self._delay_s())
        connection = self._connection
        self.n_on_the_way += 1

        def deliver() -> None:
            if connection == self._connection:
                self.n_on_the_way -= 1
                self._deliver(key, item, deleted=deleted)

        self._timeline.at(self._last_s, deliver)

    def cut(self, down_s: float) -> None:
        """Breaks the watch: events in flight are lost, and after `down_s` everything is listed again."""
        if self._is_off:
            return
        self._hang_up()
        connection = self._connection
        self._timeline.after(down_s, lambda: self._listed(connection))

    def withdraw(self) -> None:
        """Stops offering the kind; its known objects are kept."""
        self._hang_up()
        self.is_offered = False
        self.n_on_the_way = 0
        self._sink(ev.KindMissing(self.kind))

    def offer(self, down_s: float) -> None:
        """Offers the kind again."""
        self.is_offered = True
        self.cut(down_s)

    def shown(self, item: Any) -> bool:
        """Whether this version of it, or a later one, has been delivered."""
        meta = item.metadata
        known = self._known.get((meta.namespace, meta.name))
        return known is not None and int(known.metadata.resource_version) >= int(meta.resource_version)

    def hang_up(self) -> None:
        """Ends the process's watch: nothing is listed before the next process connects."""
        self._is_off = True
        self._hang_up()

    @property
    def is_optional(self) -> bool:
        """Whether a process decides without the kind when its lists fail for long."""
        return self.kind.startswith(f"{GROUPS}.")

    def reconnect(self, down_s: float, *, unread_s: float = 0.0) -> None:
        """Starts a new process's watch: it knows nothing and lists everything. unread_s: how long lists fail
        first."""
        self._is_off = self.is_read = False
        self._known.clear()
        self.cut(down_s + unread_s)
        if unread_s > _WITHOUT_S:
            connection = self._connection
            self._timeline.after(down_s + _WITHOUT_S, lambda: self._goes_without(connection))

    def _goes_without(self, connection: int) -> None:
        if connection == self._connection and not self._up:
            self._sink(ev.KindMissing(self.kind, is_unread=True))

    def _hang_up(self) -> None:
        self._connection += 1
        self._up = False
        self.n_on_the_way = 1  # the list to come

    def _listed(self, connection: int) -> None:
        if connection != self._connection:
            return
        self.n_on_the_way = 0
        if not self.is_offered:
            self._sink(ev.KindMissing(self.kind))
            return
        self._up = self.is_read = True
        self._last_s = self._timeline.now_s
        now = dict(self._store())
        for key, item in list(self._known.items()):
            other = now.get(key)
            if other is None or other.metadata.uid != item.metadata.uid:
                self._deliver(key, item, deleted=True)
        for key, item in now.items():
            self._deliver(key, item)
        self._sink(ev.KindSynced(self.kind))

    def _deliver(self, key: Key, item: Any, *, deleted: bool = False) -> None:
        is_new = key not in self._known
        if deleted:
            self._known.pop(key, None)
        else:
            self._known[key] = item
        self._sink(_event(self.kind, item, is_new=is_new, deleted=deleted))


def _event(kind: str, item: Any, *, is_new: bool, deleted: bool) -> ev.Event:
    if isinstance(item, Pod):
        return ev.PodDeleted(item) if deleted else ev.PodAdded(item) if is_new else ev.PodUpdated(item)
    if isinstance(item, Node):
        return ev.NodeDeleted(item) if deleted else ev.NodeAdded(item) if is_new else ev.NodeUpdated(item)
    group, _, dialect = kind.partition(".")
    if group != GROUPS:
        meta = item.metadata
        gone = ev.ObjectGone(kind, meta.namespace, meta.name, meta.uid)
        return gone if deleted else ev.ObjectPut(kind, item)
    version = API_VERSIONS[dialect]
    if deleted:
        return ev.PodGroupDeleted(dialect, version, item)
    made = ev.PodGroupAdded if is_new else ev.PodGroupUpdated
    return made(dialect, version, item)
