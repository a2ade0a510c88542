"""SelectedKeys: the labels of pods that some selector looks at, and how fast more of them may come.

Pods that differ in no selected label are one and the same to placing. A key is selected for as long as a
pod's spec, an object (a service) or a term that is being counted names it; the last few that nobody names any
more are kept, so that one who takes a key away and names it again makes no work.

A new key costs the pods that have such a label, and no others: they are found by the keys of their labels.
What new keys cost in a second is bounded. A key that comes when this second's share is spent waits, and with
it those groups alone whose members have the label or name it; it is selected at the end of some later turn.

Kept by core.cache.pod_index, which is told what to do with the pods of a new key; asked by
core.groups.attempts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping

from gangsched.core.types.group import ASSUMED, NO_ROW, PodInfo

# Pods told apart anew, a second and at once: a fifteenth of the time, at 3 to 4 us each. One key may be more.
PODS_A_SECOND = 20_000
# Keys that nobody names any more and that are still told apart, the newest.
MAX_IDLE = 256

_Shape = tuple[str, ...]


class SelectedKeys:
    """keys: those selected, in the order in which they came; waiting: those that are to be.

    n_added: moves when a key is added. stale: pods without a node whose template does not tell them apart by
    every key yet; promised: the same of pods that are promised a node, for when they are given back.
    """

    def __init__(self, pods: Mapping[str, PodInfo], regroup: Callable[[PodInfo], bool]) -> None:
        """regroup: counts a pod on a row by its labels as they are told apart now; whether that was work."""
        self._pods = pods
        self._regroup = regroup
        self.keys: dict[str, None] = {}
        self.waiting: dict[str, None] = {}
        self.stale: dict[str, PodInfo] = {}
        self.promised: dict[str, PodInfo] = {}
        self.n_added = 0
        self._named_by: dict[Hashable, frozenset[str]] = {}
        self._n_names: dict[str, int] = {}
        self._idle: dict[str, None] = {}
        self._left = math.inf
        self._at_s = 0.0
        self._by_shape: dict[_Shape, dict[str, PodInfo]] | None = None
        """Pods by the keys of their labels; from the first key on."""
        self._shapes: dict[str, dict[_Shape, None]] = {}

    # -- who names a key -----------------------------------------------------------------------------------

    def name(self, by: Hashable, keys: Iterable[str]) -> None:
        """`by`, a pod's UID or whatever else it is, looks at these labels from now on, and at no others."""
        now = frozenset(keys)
        before = self._named_by.get(by, frozenset())
        if now == before:
            return
        if now:
            self._named_by[by] = now
        else:
            del self._named_by[by]
        for key in sorted(now - before):
            n = self._n_names[key] = self._n_names.get(key, 0) + 1
            if n == 1:
                self._idle.pop(key, None)
                if key not in self.keys:
                    self.waiting[key] = None
                    if self._left > 0:
                        self._add(key)
        for key in sorted(before - now):
            self._drop(key)

    def unname(self, by: Hashable) -> None:
        """It looks at nothing any more."""
        if by in self._named_by:
            self.name(by, ())

    def _drop(self, key: str) -> None:
        self._n_names[key] -= 1
        if self._n_names[key]:
            return
        del self._n_names[key]
        if key in self.waiting:
            del self.waiting[key]
            return
        self._idle[key] = None
        if len(self._idle) > MAX_IDLE:
            oldest = next(iter(self._idle))
            # Pods that were told apart by it still are until they are looked at again: no harm.
            del self._idle[oldest], self.keys[oldest]

    # -- how fast ------------------------------------------------------------------------------------------

    def refill(self, now_s: float) -> None:
        """A turn ends: adds keys that wait, as far as this second's share goes."""
        self._left = min(PODS_A_SECOND, self._left + (now_s - self._at_s) * PODS_A_SECOND)
        self._at_s = now_s
        while self.waiting and self._left > 0:
            self._add(next(iter(self.waiting)))

    def unpaced(self) -> None:
        """Nothing is decided yet, so that nobody waits while keys are added: as many as there are."""
        self._left = math.inf
        self.add_now(list(self.waiting))

    def add_now(self, keys: Iterable[str]) -> None:
        """Adds those of the keys that wait, whatever is left: what is asked now is answered exactly."""
        for key in keys:
            if key in self.waiting:
                self._add(key)

    def waited_for(self, info: PodInfo) -> Iterator[str]:
        """Keys without which it cannot be said where this pod may go: its labels' and its spec's."""
        for named in (info.pod.metadata.labels or (), self._named_by.get(info.uid, ())):
            yield from (key for key in named if key in self.waiting)

    def _add(self, key: str) -> None:
        del self.waiting[key]
        self.keys[key] = None
        self.n_added += 1
        self._left -= 1
        for info in self._having(key):
            if info.row != NO_ROW:
                self._left -= self._regroup(info)
            if not info.node_name:
                self.stale[info.uid] = info
                self._left -= 1
            elif info.state is ASSUMED:
                self.promised[info.uid] = info

    # -- who has a label -----------------------------------------------------------------------------------

    def join(self, info: PodInfo) -> None:
        """The pod is known from now on."""
        labels = info.pod.metadata.labels
        if labels and self._by_shape is not None:
            self._enter(info, _shape(labels))

    def leave(self, info: PodInfo) -> None:
        """The pod is known no longer."""
        self.stale.pop(info.uid, None)
        self.promised.pop(info.uid, None)
        self.relabelled(info, info.pod.metadata.labels, None)

    def relabelled(
        self, info: PodInfo, before: Mapping[str, str] | None, now: Mapping[str, str] | None
    ) -> None:
        """A known pod had those labels, and has these."""
        if self._by_shape is None:
            return
        if before:
            self._exit(info, _shape(before))
        if now:
            self._enter(info, _shape(now))

    def _exit(self, info: PodInfo, shape: _Shape) -> None:
        assert self._by_shape is not None
        alike = self._by_shape.get(shape)
        if alike is None or alike.pop(info.uid, None) is None or alike:
            return  # others are there; or it never came in, because what it says made something raise
        del self._by_shape[shape]
        for key in shape:
            shapes = self._shapes[key]
            del shapes[shape]
            if not shapes:
                del self._shapes[key]

    def _enter(self, info: PodInfo, shape: _Shape) -> None:
        assert self._by_shape is not None
        alike = self._by_shape.get(shape)
        if alike is None:
            alike = self._by_shape[shape] = {}
            for key in shape:
                self._shapes.setdefault(key, {})[shape] = None
        alike[info.uid] = info

    def _having(self, key: str) -> Collection[PodInfo]:
        if self._by_shape is None:
            self._by_shape = {}
            for info in self._pods.values():
                self.join(info)
        shapes = self._shapes.get(key, ())
        return [info for shape in shapes for info in self._by_shape[shape].values()]

    def recount(self) -> Iterator[str]:
        """What is kept and is not so, in words; slow."""
        counts: dict[str, int] = {}
        for keys in self._named_by.values():
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
        if counts != self._n_names:
            yield f"selected labels are named {self._n_names} times, and are {counts} times"
        if self.keys.keys() | self.waiting.keys() != counts.keys() | self._idle.keys():
            yield f"selected are {[*self.keys, *self.waiting]}; named {[*counts]}, idle {[*self._idle]}"
        if self._by_shape is not None:
            labelled = {info.uid: _shape(info.pod.metadata.labels or {}) for info in self._pods.values()}
            found = {uid: shape for shape, alike in self._by_shape.items() for uid in alike}
            if found != {uid: shape for uid, shape in labelled.items() if shape}:
                yield "pods are kept by other labels than they have"


def _shape(labels: Mapping[str, str]) -> _Shape:
    return tuple(sorted(labels))
