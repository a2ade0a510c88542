"""SelectedKeys: the pod labels that some selector looks at, and the rate at which more may be added.

Pods that differ in no selected label are interchangeable for placing. A key stays selected while a pod's
spec, an object (a service) or a term that is being counted names it. The most recently unused keys are kept
too, so that removing and adding a key again costs nothing.

A new key costs work only for the pods that have such a label: they are found by their labels' keys. The cost
of new keys per second is bounded. A key beyond this second's share waits, and with it only the groups whose
members have the label or name it; it is selected at the end of some later turn.

Kept by core.cache.pods.index, which passes in how to handle the pods of a new key; queried by
core.groups.attempts.attempts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from gangsched.core.types.group import ASSUMED, NO_ROW, PodInfo

# Pods regrouped per second, and in one burst: a fifteenth of the time, at 3 to 4 us each. One key may exceed
# it.
PODS_A_SECOND = 20_000
# The most recently unused keys that stay selected.
MAX_IDLE = 256
# Pods with more labels than this are looked at one by one: an entry for each of 100,000 keys is 30 MB a pod.
MAX_INDEXED = 256

_Shape = tuple[str, ...]


class Counts(Protocol):
    """Pods counted by labels; core.cache.pods.index has the one implementation."""

    def regroup(self, info: PodInfo) -> bool:
        """Counts a pod again, by its currently distinguishing labels; returns whether that took work."""
        ...


class SelectedKeys:
    """keys: those selected, in order of arrival; waiting: those to be selected.

    n_added: grows when a key is added. stale: unplaced pods whose template does not yet distinguish them by
    every key. promised: the same for pods with a reservation, for when it is released; and those of them that
    were edited.
    """

    def __init__(self, pods: Mapping[str, PodInfo], counts: Counts) -> None:
        self._pods = pods
        self._counts = counts
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
        """Pods by the keys of their labels; filled when the first key is added."""
        self._shapes: dict[str, dict[_Shape, None]] = {}
        self._wide: dict[str, PodInfo] = {}
        """Pods with more than MAX_INDEXED labels, as long as `_by_shape` is there."""

    # -- users of a key ------------------------------------------------------------------------------------

    def name(self, by: Hashable, keys: Iterable[str]) -> None:
        """Records that `by` (a pod's UID or another user) looks at exactly these labels from now on."""
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
        """Records that `by` no longer looks at any label."""
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
            # Pods may still be distinguished by it until they are regrouped, which is harmless.
            del self._idle[oldest], self.keys[oldest]

    # -- pace ----------------------------------------------------------------------------------------------

    def refill(self, now_s: float) -> None:
        """Adds waiting keys at the end of a turn, as far as this second's share goes."""
        if self._left != PODS_A_SECOND:  # else the share is whole, as nearly always
            self._left = min(PODS_A_SECOND, self._left + (now_s - self._at_s) * PODS_A_SECOND)
        self._at_s = now_s
        while self.waiting and self._left > 0:
            self._add(next(iter(self.waiting)))

    def unpaced(self) -> None:
        """Adds all waiting keys: no decisions are made yet, so no group waits for it."""
        self._left = math.inf
        self.add_now(list(self.waiting))

    def add_now(self, keys: Iterable[str]) -> None:
        """Adds these keys even beyond the share: the current query needs an exact answer."""
        for key in keys:
            if key in self.waiting:
                self._add(key)

    def waited_for(self, info: PodInfo) -> Iterator[str]:
        """Yields waiting keys without which this pod's possible nodes are unknown: of its labels and its
        spec."""
        for named in (info.pod.metadata.labels or (), self._named_by.get(info.uid, ())):
            yield from (key for key in named if key in self.waiting)

    def _add(self, key: str) -> None:
        del self.waiting[key]
        self.keys[key] = None
        self.n_added += 1
        self._left -= 1
        for info in self._having(key):
            if info.row != NO_ROW:
                self._left -= self._counts.regroup(info)
            if not info.node_name:
                self.stale[info.uid] = info
                self._left -= 1
            elif info.state is ASSUMED:
                self.promised[info.uid] = info

    # -- pods by label -------------------------------------------------------------------------------------

    def join(self, info: PodInfo) -> None:
        """Adds a pod."""
        labels = info.pod.metadata.labels
        if labels and self._by_shape is not None:
            self._enter(info, labels)

    def leave(self, info: PodInfo) -> None:
        """Removes a pod."""
        self.stale.pop(info.uid, None)
        self.promised.pop(info.uid, None)
        self.relabelled(info, info.pod.metadata.labels, None)

    def relabelled(
        self, info: PodInfo, before: Mapping[str, str] | None, now: Mapping[str, str] | None
    ) -> None:
        """Takes in a known pod's change of labels from `before` to `now`."""
        if self._by_shape is None:
            return
        if before:
            self._exit(info, before)
        if now:
            self._enter(info, now)

    def _exit(self, info: PodInfo, labels: Mapping[str, str]) -> None:
        assert self._by_shape is not None
        if len(labels) > MAX_INDEXED:
            self._wide.pop(info.uid, None)
            return
        shape = _shape(labels)
        alike = self._by_shape.get(shape)
        if alike is None or alike.pop(info.uid, None) is None or alike:
            return  # its labels differ; or it was never added, because its content made something raise
        del self._by_shape[shape]
        for key in shape:
            shapes = self._shapes[key]
            del shapes[shape]
            if not shapes:
                del self._shapes[key]

    def _enter(self, info: PodInfo, labels: Mapping[str, str]) -> None:
        assert self._by_shape is not None
        if len(labels) > MAX_INDEXED:
            self._wide[info.uid] = info
            return
        shape = _shape(labels)
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
        found = [info for shape in shapes for info in self._by_shape[shape].values()]
        found += [info for info in self._wide.values() if key in (info.pod.metadata.labels or ())]
        return found

    def recount(self) -> Iterator[str]:
        """Yields inconsistencies, in words; slow."""
        counts: dict[str, int] = {}
        for keys in self._named_by.values():
            for key in keys:
                counts[key] = counts.get(key, 0) + 1
        if counts != self._n_names:
            yield f"selected labels are named {self._n_names} times, and are {counts} times"
        if self.keys.keys() | self.waiting.keys() != counts.keys() | self._idle.keys():
            yield f"selected are {[*self.keys, *self.waiting]}; named {[*counts]}, idle {[*self._idle]}"
        if self._by_shape is not None:
            some = {info.uid: info.pod.metadata.labels or {} for info in self._pods.values()}
            if self._wide.keys() != {uid for uid, labels in some.items() if len(labels) > MAX_INDEXED}:
                yield "pods with many labels are kept by others than there are"
            labelled = {uid: _shape(own) for uid, own in some.items() if len(own) <= MAX_INDEXED}
            found = {uid: shape for shape, alike in self._by_shape.items() for uid in alike}
            if found != {uid: shape for uid, shape in labelled.items() if shape}:
                yield "pods are kept by other labels than they have"


def _shape(labels: Mapping[str, str]) -> _Shape:
    return tuple(sorted(labels))
