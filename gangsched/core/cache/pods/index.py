"""PodIndex: how many pods on each node match a selector, and the affinity terms of the pods there.

Inactive until the first query: in a cluster whose pods have no terms about each other it costs one attribute
look-up per pod. Then pods are counted by class: pods that no live selector distinguishes (same namespace,
same labels that some selector looks at, same answer to whether it is being deleted). A term is compared with
all classes at once (core.cache.pods.label_table). That a pod came or went is one entry of a log: class, row,
sign. A term's count is the sum over the entries whose classes match it; a query reads those that are new to
it. When a selector looks at a new label, the pods with it move to another class
(core.cache.pods.selected_keys).

Written only by core.cache.cache; read through core.cache.trial's view.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from gangsched.core.cache.object_store import ObjectStore
from gangsched.core.cache.pods.carried_terms import CarriedTerms, TermCounts
from gangsched.core.cache.pods.label_table import LabelTable
from gangsched.core.cache.pods.selected_keys import SelectedKeys
from gangsched.core.cache.pods.volume_users import VolumeUsers
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import NO_ROW, PodInfo
from gangsched.core.types.templates.affinity_terms import Carried
from gangsched.core.types.templates.pod_template import NO_LABELS, PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.selectors import PodTerm

# Counts of terms not queried for long are evicted; they can be recomputed.
_MAX_KEPT_BYTES = 32 * 2**20
_MAX_KEPT_TERMS = 1_024
# The log is rewritten from the pods when it has this many entries for each, and this many more.
_LOG_FACTOR, _LOG_MORE = 4, 4_096
# So many entries of it are read one by one: after a gang, its members.
_FEW = 16
NAMESPACES = "namespaces"

_ClassKey = tuple[str, frozenset[tuple[str, str]], bool]


class PodClass:
    """Pods that every selector treats alike. number: its row in the table of classes."""

    __slots__ = ("key", "labels", "leaving", "n_pods", "namespace", "number")

    def __init__(self, key: _ClassKey, labels: Mapping[str, str], number: int) -> None:
        self.key = key
        self.namespace, _, self.leaving = key
        self.labels = labels
        self.number = number
        self.n_pods = 0


class PodIndex:
    """is_awake: there was a query, so arrivals and departures are recorded (`changes`).

    selected: the labels that some selector looks at; other labels do not distinguish pods. volumes: which
    pods use which volumes, kept whether awake or not.
    """

    def __init__(
        self, pods: Mapping[str, PodInfo], objects: ObjectStore, changes: list[ClusterChange]
    ) -> None:
        self._pods = pods
        self._objects = objects
        self.volumes = VolumeUsers()
        self.is_awake = False
        self.selected = SelectedKeys(pods, self)
        self.changes = changes
        self._is_built = False
        self._namespaces_at = 0
        self._terms: dict[PodTerm, Counted] = {}
        self._carried = CarriedTerms(self)
        self._forget_classes()

    def _forget_classes(self) -> None:
        self._classes: dict[_ClassKey, PodClass] = {}
        self._log = PodLog()
        self._n_counted = 0
        self._labels = LabelTable()
        """One row for each class, by its number."""
        self._leaving = array("b")
        self._spaces = array("i")
        """By class: the namespace's number."""
        self._numbers: dict[str, int] = {}
        """Namespaces of classes; their labels, row by row, in _space_labels."""
        self._space_labels = LabelTable()

    # -- labels of interest --------------------------------------------------------------------------------

    def project(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Returns the pod's labels that some selector looks at."""
        keys = self.selected.keys
        if not keys or not labels:
            return NO_LABELS
        if len(labels) < len(keys):
            return {key: labels[key] for key in sorted(labels) if key in keys}
        return {key: labels[key] for key in sorted(keys) if key in labels}

    def start_counting(self, affinity_terms: Iterable[Carried]) -> None:
        """Starts counting: a pod has terms about other pods, so pods matter to each other from now on."""
        self.is_awake = True
        if self._carried.is_full:
            self._carried.keep(
                stated for info in self._pods.values() for stated in info.template.affinity_terms
            )
        for stated in affinity_terms:
            self._carried.add(stated)

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
                self._carried.count(stated, info.row, -1)

    def relabel(self, info: PodInfo) -> None:
        """Takes in that a counted pod has new labels, or is being deleted now."""
        self.changes.append(ClusterChange(Change.POD_LABELS, info.row, pod=info.pod))
        self.regroup(info)

    def regroup(self, info: PodInfo) -> bool:
        """Counts a pod again, by its currently distinguishing labels; returns whether that took work."""
        if self._is_built:
            self._count(info.pod_class, info.row, -1)
            info.pod_class = self._class_of(info.pod)
            self._count(info.pod_class, info.row, 1)
        return self._is_built

    def _enter(self, info: PodInfo) -> None:
        info.pod_class = self._class_of(info.pod)
        self._count(info.pod_class, info.row, 1)
        for stated in info.template.affinity_terms:
            self._carried.count(stated, info.row, 1)

    def _count(self, pod_class: PodClass, row: int, n: int) -> None:
        self._log.add(pod_class.number, row, n)
        self._n_counted += n
        pod_class.n_pods += n
        if not pod_class.n_pods:
            del self._classes[pod_class.key]

    def _class_of(self, pod: Pod) -> PodClass:
        labels = self.project(pod.metadata.labels)
        leaving = pod.metadata.deletion_timestamp is not None
        key = (pod.metadata.namespace, frozenset(labels.items()), leaving)
        pod_class = self._classes.get(key)
        if pod_class is None:
            pod_class = self._classes[key] = PodClass(key, labels, self._labels.add(labels))
            self._leaving.append(leaving)
            self._spaces.append(self._number_of(key[0]))
        return pod_class

    def _number_of(self, namespace: str) -> int:
        number = self._numbers.get(namespace)
        if number is None:
            number = self._numbers[namespace] = self._space_labels.add(self.namespace_labels(namespace))
        return number

    # -- queries -------------------------------------------------------------------------------------------

    def matching(self, term: PodTerm, n_rows: int) -> IntArray:
        """int64[n_rows]: pods on each row that match the term. Read-only."""
        self._build()
        if len(self._log) > _LOG_FACTOR * self._n_counted + _LOG_MORE:
            self._write_log()
        counted = self._terms.pop(term, None)
        if counted is None:
            self.selected.name(term, term.keys)
            self.selected.add_now(term.keys)
            counted = Counted(term, n_rows)
            n_bytes = 8 * n_rows + len(self._labels)
            if len(self._terms) >= _MAX_KEPT_TERMS or len(self._terms) * n_bytes > _MAX_KEPT_BYTES:
                self._drop(next(iter(self._terms)))
        self._terms[term] = counted  # most recently used last
        self._bring_up_to_date(counted)
        counted.grow(n_rows)
        return counted.counts[:n_rows]

    def _bring_up_to_date(self, counted: Counted) -> None:
        if counted.n_read == len(self._log):
            return
        n_known = len(counted.means)
        if n_known < len(self._labels):
            counted.means = np.concatenate([counted.means, self._matched(counted.term, n_known)])
        self._log.count(counted)

    def _matched(self, term: PodTerm, first: int) -> BoolArray:
        """bool[n]: whether the term matches the pods of each class from number `first` on."""
        if term.selector is None:
            return np.zeros(len(self._labels) - first, dtype=np.bool_)
        spaces = np.zeros(len(self._numbers), dtype=np.bool_)
        if term.namespace_selector is not None:
            spaces = self._space_labels.matches(term.namespace_selector)
        spaces[[self._numbers[name] for name in term.namespaces if name in self._numbers]] = True
        mask = spaces[np.frombuffer(self._spaces[first:], dtype=np.int32)]
        mask &= self._labels.matches(term.selector, first)
        if term.skip_leaving:
            mask &= np.frombuffer(self._leaving[first:], dtype=np.int8) == 0
        for one in term.also:
            mask &= self._matched(one, first)
        return mask

    def _write_log(self) -> None:
        """Rewrites the log from the pods, without classes that have none left."""
        for counted in self._terms.values():
            self._bring_up_to_date(counted)
        live = list(self._classes.values())
        old = [pod_class.number for pod_class in live]
        self._forget_classes()
        for pod_class in live:
            self._classes[pod_class.key] = pod_class
            pod_class.number = self._labels.add(pod_class.labels)
            self._leaving.append(pod_class.leaving)
            self._spaces.append(self._number_of(pod_class.namespace))
        for info in self._pods.values():
            if info.pod_class is not None:
                self._log.add(info.pod_class.number, info.row, 1)
        self._n_counted = len(self._log)
        for counted in self._terms.values():
            counted.means, counted.n_read = counted.means[old], len(self._log)

    def terms_about(self, template: PodTemplate) -> list[TermCounts]:
        """Returns terms of pods, placed or not, that match pods of this template, with the number of pods on
        each row; some of the pods may be gone."""
        if not len(self._carried):
            return _NONE
        self._hear_namespaces()
        return self._carried.about(template)

    def carried_against(self, template: PodTemplate) -> list[tuple[Carried, Mapping[int, int]]]:
        """Those of them that pods on nodes have: row -> number of pods."""
        if not (about := self.terms_about(template)):
            return []
        self._build()
        return [(one.stated, one.rows) for one in about if one.rows]

    def means_template(self, term: PodTerm, template: PodTemplate) -> bool:
        """Whether pods of the template, not being deleted, match the term."""
        return self._means(term, template.namespace, template.labels, leaving=False)

    def means_pod(self, term: PodTerm, pod: Pod) -> bool:
        """Whether the pod, as it is, matches the term."""
        meta = pod.metadata
        return self._means(
            term, meta.namespace, meta.labels or {}, leaving=meta.deletion_timestamp is not None
        )

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
        found = self._objects.objects(NAMESPACES).get(("", namespace))
        return (found.metadata.labels if found is not None else None) or NO_LABELS

    # -- counting -----------------------------------------------------------------------------------

    def _build(self) -> None:
        self._hear_namespaces()
        if self._is_built:
            return
        self.is_awake = self._is_built = True
        for term in self._terms:
            self.selected.unname(term)
        self._terms = {}
        self._forget_classes()
        self._carried.forget_rows()
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
            self._carried.forget_found()
            self._numbers_changed()
            for term in [term for term in self._terms if term.looks_at_namespaces]:
                self._drop(term)

    def _drop(self, term: PodTerm) -> None:
        del self._terms[term]
        self.selected.unname(term)

    def _numbers_changed(self) -> None:
        """Reads the labels of namespaces again."""
        self._space_labels = LabelTable()
        for namespace in self._numbers:
            self._space_labels.add(self.namespace_labels(namespace))

    # -- for core.turns.invariants ---------------------------------------------------------------------------

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
            self._bring_up_to_date(counted)
            counted.grow(n_rows)  # rows not queried yet
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
        known = {one.stated: one.rows for one in self._carried if one.rows}
        if carried != known:
            yield f"what pods say of others is counted as {known}, and is {carried}"


class PodLog:
    """Which pods came (1) and went (-1): parallel arrays of classes, rows and signs."""

    __slots__ = ("classes", "rows", "signs")

    def __init__(self) -> None:
        self.classes, self.rows, self.signs = array("i"), array("i"), array("b")

    def __len__(self) -> int:
        return len(self.signs)

    def add(self, number: int, row: int, sign: int) -> None:
        self.classes.append(number)
        self.rows.append(row)
        self.signs.append(sign)

    def count(self, counted: Counted) -> None:
        """Adds to the counts what is new; `counted.means` covers all classes."""
        at, means = counted.n_read, counted.means
        counted.n_read = len(self)
        # Slices are copies: an array cannot grow while NumPy looks at its memory.
        classes, rows, signs = self.classes[at:], self.rows[at:], self.signs[at:]
        if len(signs) <= _FEW:
            for number, row, sign in zip(classes, rows, signs, strict=True):
                if means[number]:
                    counted.grow(row + 1)
                    counted.counts[row] += sign
            return
        chosen = means[np.frombuffer(classes, dtype=np.int32)]
        there = np.frombuffer(rows, dtype=np.int32)[chosen]
        if len(there):
            counted.grow(int(there.max()) + 1)
            weights = np.frombuffer(signs, dtype=np.int8)[chosen]
            more = np.bincount(there, weights=weights, minlength=len(counted.counts))
            counted.counts += more.astype(np.int64)


class Counted:
    """A queried term. Shapes: counts int64[at least n_rows], means bool[classes that it was compared with].

    n_read: entries of the log that are counted.
    """

    __slots__ = ("counts", "means", "n_read", "term")

    def __init__(self, term: PodTerm, n_rows: int) -> None:
        self.term = term
        self.counts: IntArray = np.zeros(n_rows, dtype=np.int64)
        self.means: BoolArray = np.zeros(0, dtype=np.bool_)
        self.n_read = 0

    def grow(self, n_rows: int) -> None:
        if n_rows > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(n_rows - len(self.counts), dtype=np.int64)])


_NONE: list[TermCounts] = []
