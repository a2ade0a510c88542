"""Symmetry: which nodes, and which ways of placing members on them, are interchangeable.

Two nodes are alike when everything that a Filter of these templates may look at is equal: free resources,
which templates they admit, the pods on them. Two racks are alike when the nodes in them are. Swapping alike
nodes gives the same result, so core.cycle.orders.order_search tries one of them. Plugins that see pods
declare which labels form racks and zones (topology_keys); if one does not, no two nodes are alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gangsched.core.cache.trial import Trial
from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import PodSpec

Counts = tuple[int, ...]
"""How many members of each kind a node holds."""


class Symmetry:
    """Symmetry of the Trial's present state. keys: labels that form domains; None: every node is unlike any
    other.

    room: for each kind how many members each node takes, int64[n_kinds, n_rows]; sees_pods: whether the pods
    on nodes count.
    """

    def __init__(
        self,
        trial: Trial,
        templates: Sequence[PodTemplate],
        room: IntArray,
        keys: Sequence[str] | None,
        *,
        sees_pods: bool,
    ) -> None:
        self._levels: list[IntArray] = []
        self._domains: list[dict[int, int]] = []
        self._paths: list[tuple[int, ...]] = [()] * trial.n_rows
        """By row: its domain at each level."""
        if keys is None:
            self.group: IntArray = np.arange(trial.n_rows, dtype=np.int64)
            self._leaves: list[int] = self.group.tolist()
            return
        columns = [trial.label(key)[0].astype(np.int64) for key in keys]
        shared = [codes for codes in columns if _is_shared(codes, trial.live)]
        nested = _nested(shared, trial.live)
        # A label with a different value on each node still matters: some nodes may not have it.
        told_apart = [(codes >= 0).astype(np.int64) for codes in columns]
        if nested is None:
            told_apart += shared
        leaf = _coded(_rows_of(trial, templates, room, told_apart, sees_pods=sees_pods))
        self._leaves = leaf.tolist()
        self.group = leaf
        for level in nested or ():  # from the widest domains to the narrowest
            self._levels.append(level)
        kinds = leaf
        for level in reversed(self._levels):
            classes = _classes(level, kinds, trial.live)
            self._domains.insert(0, classes)
            kinds = np.array([classes.get(int(code), -1) for code in level], dtype=np.int64)
            self.group = _coded(zip(self.group.tolist(), kinds.tolist(), strict=True))
        if self._levels:
            self._paths = list(zip(*(level.tolist() for level in self._levels), strict=True))

    def representatives(self, rows: IntArray, placed: Mapping[int, Counts]) -> IntArray:
        """Returns one of `rows` for each group of alike ones, the first, in the order of rows."""
        group = self.group[rows].copy()
        if placed:
            touched = np.array(sorted(placed), dtype=np.int64)
            for level in self._levels:
                # A domain with members counts as unlike all others here; key() compares more precisely.
                codes = np.unique(level[touched])
                at = np.minimum(np.searchsorted(codes, level[rows]), len(codes) - 1)
                group = group * (len(codes) + 1) + np.where(codes[at] == level[rows], at + 1, 0)
            own: dict[Hashable, int] = {}
            where = {int(rows[i]): i for i in np.flatnonzero(np.isin(rows, touched)).tolist()}
            for row, counts in placed.items():
                i = where.get(row)
                if i is not None:
                    group[i] = -1 - own.setdefault((int(group[i]), counts), len(own))
        _, first = np.unique(group, return_index=True)
        found: IntArray = rows[np.sort(first)]
        return found

    def key(self, placed: Mapping[int, Counts]) -> Hashable:
        """Returns a key that is equal for ways of placing with equivalent results."""
        leaves: dict[tuple[int, ...], list[Any]] = {}
        for row, counts in placed.items():
            leaves.setdefault(self._paths[row], []).append((self._leaves[row], counts))
        found: dict[tuple[int, ...], list[Any]] = leaves
        for depth in range(len(self._levels) - 1, -1, -1):
            wider: dict[tuple[int, ...], list[Any]] = {}
            for path, inside in found.items():
                domain = (self._domains[depth].get(path[-1], -1), tuple(sorted(inside)))
                wider.setdefault(path[:-1], []).append(domain)
            found = wider
        return tuple(sorted(inside for some in found.values() for inside in some))


def _is_shared(codes: IntArray, live: BoolArray) -> bool:
    """Whether two nodes share a value. A label with each value on one node (the host name) forms no
    domains."""
    named = codes[live & (codes >= 0)]
    return len(named) > 0 and int(np.bincount(named).max()) > 1


def _nested(columns: list[IntArray], live: BoolArray) -> list[IntArray] | None:
    """Sorts the labels from the widest domains to the narrowest; None if they overlap.

    Nodes without the label form one domain together.
    """
    ordered = sorted(columns, key=lambda codes: len(np.unique(codes[live])))
    for wide, narrow in pairwise(ordered):
        pairs = np.unique(np.stack([narrow[live], wide[live]]), axis=1)
        if pairs.shape[1] != len(np.unique(narrow[live])):
            return None
    return ordered


def _classes(level: IntArray, kinds: IntArray, live: BoolArray) -> dict[int, int]:
    """Domain -> its class: equal for domains with the same kinds of nodes, each as often."""
    inside: dict[int, list[int]] = {}
    for code, kind in zip(level[live].tolist(), kinds[live].tolist(), strict=True):
        inside.setdefault(code, []).append(kind)
    known: dict[Hashable, int] = {}
    classes = {}
    for code in sorted(inside):
        # A plugin that needs the label sees no domain in nodes without it, so they are unlike all nodes with
        # it.
        inner = (code < 0, tuple(sorted(inside[code])))
        classes[code] = known.setdefault(inner, len(known))
    return classes


def _coded(rows: Iterable[Hashable]) -> IntArray:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(row, len(known)) for row in rows], dtype=np.int64)


def _rows_of(
    trial: Trial,
    templates: Sequence[PodTemplate],
    room: IntArray,
    told_apart: Sequence[IntArray],
    *,
    sees_pods: bool,
) -> Iterable[Hashable]:
    """Yields the distinguishing properties of each row."""
    columns = sorted({column for template in templates for column in template.columns})
    arrays = [room, np.stack([trial.live, trial.unschedulable, trial.taint_class])]
    arrays += [codes[None] for codes in told_apart]
    arrays += [trial.free(column)[None] for column in columns]
    arrays += [trial.label(key)[0][None] for key in sorted({k for t in templates for k in _keys(t.spec)})]
    resources = sorted({r for t in templates for r in t.requests if r in trial.listed})
    placed = trial.placed
    has_ports = any(template.host_ports for template in templates)
    for row, numbers in enumerate(zip(*np.concatenate(arrays).tolist(), strict=True)):
        devices = []
        for resource in resources:
            inventory = trial.inventory(row, resource)
            topology = None if inventory is None else id(inventory.topology)
            devices.append((topology, trial.device_mask(row, resource) if topology else 0))
        ports = frozenset(trial.ports().get(row, {}).items()) if has_ports else None
        held: list[int] = []
        if sees_pods and trial.live[row]:
            held = [info.template.serial for info in trial.pods_on(row)]
            held += [one.serial for at, one, n in placed if at == row for _ in range(n)]
        yield numbers, tuple(devices), ports, tuple(sorted(held))


def _keys(spec: PodSpec) -> Iterable[str]:
    """Yields the labels that the pod itself requires: a plugin may leave nodes without them out of its
    counts."""
    yield from spec.node_selector or ()
    rules = spec.affinity.node_affinity if spec.affinity else None
    required = rules.required_during_scheduling_ignored_during_execution if rules else None
    for term in (required.node_selector_terms if required else None) or ():
        for one in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield one.key
