"""PodIndex: how many pods on each node match a selector, and the affinity terms of the pods there.

Inactive until the first query: in a cluster whose pods have no terms about each other it costs one attribute
look-up per pod. Then pods are counted by class: pods that no live selector distinguishes (same namespace,
same labels that some selector looks at, same answer to whether it is being deleted). A term's count is the
sum over the classes that match it, updated with every pod that comes and goes. When a selector looks at a new
label, the pods with that label move to another class (core.cache.selected_keys).

Written only by core.cache.cache; read through core.cache.trial's view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np

from gangsched.core.cache.object_store import ObjectStore
from gangsched.core.cache.selected_keys import SelectedKeys
from gangsched.core.cache.volume_users import VolumeUsers
from gangsched.core.types.affinity_terms import Carried
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import NO_ROW, PodInfo
from gangsched.core.types.pod_template import NO_LABELS, PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import PodTerm

# Counts of terms not queried for long are evicted; they can be recomputed.
_MAX_KEPT_BYTES = 32 * 2**20
_MAX_KEPT_TERMS = 1_024
# Terms of pods are remembered for longer than the pods live, up to this many different ones.
_MAX_SAID = 10_000
NAMESPACES = "namespaces"


_ClassKey = tuple[str, frozenset[tuple[str, str]], bool]


class PodClass:
    """Pods that every selector treats alike: how many are on each row, and which counted terms match them."""

    __slots__ = ("counted", "key", "labels", "leaving", "namespace", "rows")

    def __init__(self, key: _ClassKey, labels: Mapping[str, str]) -> None:
        self.key = key
        self.namespace, _, self.leaving = key
        self.labels = labels
        self.rows: dict[int, int] = {}
        self.counted: list[_Counted] = []


class _Counted:
    """A queried term. Shape: counts int64[at least n_rows]."""

    __slots__ = ("counts", "term")

    def __init__(self, term: PodTerm, n_rows: int) -> None:
        self.term = term
        self.counts: IntArray = np.zeros(n_rows, dtype=np.int64)

    def add(self, row: int, n: int) -> None:
        if row >= len(self.counts):
            self.grow(max(row + 1, 2 * len(self.counts)))
        self.counts[row] += n

    def grow(self, n_rows: int) -> None:
        self.counts = np.concatenate([self.counts, np.zeros(n_rows - len(self.counts), dtype=np.int64)])


class PodIndex:
    """is_awake: there was a query, so arrivals and departures are recorded (`changes`).

    selected: the labels that some selector looks at; other labels do not distinguish pods. volumes: which
    pods use which volumes, kept whether awake or not.
    """

    def __init__(self, pods: Mapping[str, PodInfo], objects: ObjectStore) -> None:
        self._pods = pods
        self._objects = objects
        self.volumes = VolumeUsers()
        self.is_awake = False
        self.selected = SelectedKeys(pods, self._regroup)
        self.changes: list[ClusterChange] = []
        self._is_built = False
        self._namespaces_at = 0
        self._classes: dict[_ClassKey, PodClass] = {}
        self._terms: dict[PodTerm, _Counted] = {}
        self._carried: dict[Carried, dict[int, int]] = {}
        self._said: dict[Carried, None] = {}
        self._most_said = _MAX_SAID
        self._said_of: dict[int, tuple[int, list[Carried]]] = {}

    # -- labels of interest --------------------------------------------------------------------------------

    def project(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Returns the pod's labels that some selector looks at."""
        keys = self.selected.keys
        if not keys or not labels:
            return NO_LABELS
        if len(labels) < len(keys):
            return {key: labels[key] for key in sorted(labels) if key in keys}
        return {key: labels[key] for key in sorted(keys) if key in labels}

    def wake(self, affinity_terms: Iterable[Carried]) -> None:
        """Starts counting: a pod has terms about other pods, so pods matter to each other from now on."""
        self.is_awake = True
        if len(self._said) > self._most_said:
            self._said = {
                stated: None for info in self._pods.values() for stated in info.template.affinity_terms
            }
            self._said_of.clear()
            self._most_said = max(_MAX_SAID, 2 * len(self._said))
        for stated in affinity_terms:
            self._said.setdefault(stated)

    # -- pods come and go: called while awake only --------------------------------------------------------

    def enter(self, info: PodInfo) -> None:
        """Counts the pod on its row."""
        self.changes.append(ClusterChange(Change.POD_ADDED, info.row, pod=info.pod))
        if self._is_built:
            self._enter(info)

    def leave(self, info: PodInfo) -> None:
        """Stops counting the pod on its row."""
        if self._is_built:
            self._count(info.pod_class, info.row, -1)
            info.pod_class = None
            for stated in info.template.affinity_terms:
                self._carry(stated, info.row, -1)

    def relabel(self, info: PodInfo) -> None:
        """Takes in that a counted pod has new labels, or is being deleted now."""
        self.changes.append(ClusterChange(Change.POD_LABELS, info.row, pod=info.pod))
        self._regroup(info)

    def _regroup(self, info: PodInfo) -> bool:
        if self._is_built:
            self._count(info.pod_class, info.row, -1)
            info.pod_class = self._class_of(info.pod)
            self._count(info.pod_class, info.row, 1)
        return self._is_built

    def _enter(self, info: PodInfo) -> None:
        info.pod_class = self._class_of(info.pod)
        self._count(info.pod_class, info.row, 1)
        for stated in info.template.affinity_terms:
            self._carry(stated, info.row, 1)

    def _count(self, pod_class: PodClass, row: int, n: int) -> None:
        left = pod_class.rows.get(row, 0) + n
        if left:
            pod_class.rows[row] = left
        else:
            del pod_class.rows[row]
            if not pod_class.rows:
                del self._classes[pod_class.key]
        for counted in pod_class.counted:
            counted.add(row, n)

    def _carry(self, stated: Carried, row: int, n: int) -> None:
        rows = self._carried.get(stated)
        if rows is None:
            rows = self._carried[stated] = {}
        left = rows.get(row, 0) + n
        if left:
            rows[row] = left
        else:
            del rows[row]
            if not rows:
                del self._carried[stated]

    def _class_of(self, pod: Pod) -> PodClass:
        labels = self.project(pod.metadata.labels)
        leaving = pod.metadata.deletion_timestamp is not None
        key = (pod.metadata.namespace, frozenset(labels.items()), leaving)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(key, labels)
            pod_class.counted = [c for c in self._terms.values() if self.is_meant(c.term, pod_class)]
        return pod_class

    # -- queries -------------------------------------------------------------------------------------------

    def matching(self, term: PodTerm, n_rows: int) -> IntArray:
        """int64[n_rows]: pods on each row that match the term. Read-only."""
        self._build()
        counted = self._terms.pop(term, None)
        if counted is None:
            self.selected.name(term, term.keys)
            self.selected.add_now(term.keys)
            counted = _Counted(term, n_rows)
            for pod_class in self._classes.values():
                if self.is_meant(term, pod_class):
                    pod_class.counted.append(counted)
                    for row, n in pod_class.rows.items():
                        counted.add(row, n)
            if len(self._terms) >= _MAX_KEPT_TERMS or len(self._terms) * 8 * n_rows > _MAX_KEPT_BYTES:
                self._drop(next(iter(self._terms)))
        self._terms[term] = counted  # most recently used last
        if len(counted.counts) < n_rows:
            counted.grow(n_rows)
        return counted.counts[:n_rows]

    def carried(self) -> Mapping[Carried, Mapping[int, int]]:
        """Returns the terms of pods on nodes, with the number of pods by row."""
        self._build()
        return self._carried

    def said_of(self, template: PodTemplate) -> list[Carried]:
        """Returns terms of pods, placed or not, that match pods of this template; some of the pods may be
        gone."""
        if not self._said:
            return []
        self._hear_namespaces()
        n_heard, found = self._said_of.get(template.serial, (0, []))
        if n_heard < len(self._said):
            if len(self._said_of) > _MAX_SAID:
                self._said_of.clear()
            fresh = islice(self._said, n_heard, None)
            found = [*found, *(stated for stated in fresh if self.means_template(stated[1].term, template))]
            self._said_of[template.serial] = (len(self._said), found)
        return found

    def means_template(self, term: PodTerm, template: PodTemplate) -> bool:
        """Whether pods of the template, not being deleted, match the term."""
        return self._means(term, template.namespace, template.labels, leaving=False)

    def means_pod(self, term: PodTerm, pod: Pod) -> bool:
        """Whether the pod, as it is, matches the term."""
        meta = pod.metadata
        return self._means(
            term, meta.namespace, meta.labels or {}, leaving=meta.deletion_timestamp is not None
        )

    def is_meant(self, term: PodTerm, pod_class: PodClass) -> bool:
        """Whether the pods of the class match the term."""
        return self._means(term, pod_class.namespace, pod_class.labels, leaving=pod_class.leaving)

    def _means(self, term: PodTerm, namespace: str, labels: Mapping[str, str], *, leaving: bool) -> bool:
        if term.selector is None or (leaving and term.skip_leaving):
            return False
        if term.also and not all(self._means(one, namespace, labels, leaving=leaving) for one in term.also):
            return False
        if namespace not in term.namespaces:
            chosen = term.namespace_selector
            if chosen is None or not chosen.matches(self.namespace_labels(namespace)):
                return False
        return term.selector.matches(labels)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Empty if namespaces are not followed, or this one does not exist."""
        found = self._objects.of(NAMESPACES).get(("", namespace))
        return (found.metadata.labels if found is not None else None) or NO_LABELS

    # -- counting -----------------------------------------------------------------------------------

    def _build(self) -> None:
        self._hear_namespaces()
        if self._is_built:
            return
        self.is_awake = self._is_built = True
        for term in self._terms:
            self.selected.unname(term)
        self._classes, self._terms, self._carried = {}, {}, {}
        for info in self._pods.values():
            info.pod_class = None
            if info.row != NO_ROW:
                self._enter(info)

    def forget_counts(self, pods: Mapping[str, PodInfo]) -> None:
        """Discards counts that may be wrong: recounts volumes at once and the rest on the next query."""
        self._is_built = False
        self.volumes = VolumeUsers()
        for info in pods.values():
            if info.row != NO_ROW and info.template.volumes:
                self.volumes.enter(info)

    def _hear_namespaces(self) -> None:
        """Drops terms that look at namespaces if namespaces changed; they are evaluated again on demand."""
        revision = self._objects.revision(NAMESPACES)
        if revision != self._namespaces_at:
            self._namespaces_at = revision
            self._said_of.clear()
            for term in [term for term in self._terms if term.looks_at_namespaces]:
                self._drop(term)

    def _drop(self, term: PodTerm) -> None:
        counted = self._terms.pop(term)
        self.selected.unname(term)
        for pod_class in self._classes.values():
            if counted in pod_class.counted:
                pod_class.counted.remove(counted)

    # -- for core.invariants -------------------------------------------------------------------------------

    def recount(self, using_volumes: Iterable[PodInfo]) -> Iterator[str]:
        """Yields, in words, every count that differs from the sum over the pods; slow. using_volumes: the
        pods on nodes that use volumes."""
        yield from self.volumes.recount(using_volumes)
        yield from self.selected.recount()
        if not self._is_built:
            return
        carried: dict[Carried, dict[int, int]] = {}
        n_rows = 1 + max((info.row for info in self._pods.values()), default=NO_ROW)
        for counted in self._terms.values():
            counted.grow(max(n_rows, len(counted.counts)))  # rows not queried yet
        counts = {term: np.zeros_like(counted.counts) for term, counted in self._terms.items()}
        for info in self._pods.values():
            if (info.pod_class is None) != (info.row == NO_ROW):
                yield f"{info!r} is on row {info.row} and counted as {info.pod_class}"
            if info.row == NO_ROW:
                continue
            for term, rows in counts.items():
                rows[info.row] += self.means_pod(term, info.pod)
            for stated in info.template.affinity_terms:
                at = carried.setdefault(stated, {})
                at[info.row] = at.get(info.row, 0) + 1
        is_current = self._namespaces_at == self._objects.revision(NAMESPACES)
        for term, rows in counts.items():
            right = is_current or not term.looks_at_namespaces
            if right and not np.array_equal(rows, self._terms[term].counts):
                yield f"{term} counts {self._terms[term].counts}, the pods are {rows}"
        if carried != self._carried:
            yield f"what pods say of others is counted as {self._carried}, and is {carried}"
