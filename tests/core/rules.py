"""A Filter of the tests' own for constraints between pods, and the same rules once more in plain Python.

A pod's annotation "rules" says: role=a; apart=host:a (no pod of role a in my domain of that label, nor mine
beside one that says so of me); near=rack:a (one there already); even=rack:1 (no domain of that label holds
more pods of my role than the emptiest plus 1, mine included). Domains are those of nodes that have the label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import SKIP, SUCCESS, BoolArray, CycleState, IntArray, Status
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod

KEY = "rules"


class Rules(msgspec.Struct, frozen=True):
    role: str = ""
    apart: tuple[tuple[str, str], ...] = ()
    near: tuple[tuple[str, str], ...] = ()
    even: tuple[tuple[str, int], ...] = ()

    @property
    def keys(self) -> list[str]:
        return sorted({key for key, _ in (*self.apart, *self.near, *self.even)})


def rules_of(pod: Pod) -> Rules:
    return parse((pod.metadata.annotations or {}).get(KEY, ""))


def parse(text: str) -> Rules:
    role = ""
    pairs: dict[str, list[Any]] = {"apart": [], "near": [], "even": []}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, _, value = part.partition("=")
        if name == "role":
            role = value
        else:
            key, _, what = value.partition(":")
            pairs[name].append((key, int(what) if name == "even" else what))
    return Rules(role, tuple(pairs["apart"]), tuple(pairs["near"]), tuple(pairs["even"]))


def may_go(
    rules: Rules,
    row: int,
    labels: Sequence[Mapping[str, str]],
    on: Sequence[Sequence[Rules]],
    *,
    first_may: bool = False,
) -> bool:
    """Whether a pod of `rules` may go to a node; `on`: the pods of each node, `labels`: its labels.

    first_may: as in Kubernetes, a pod that wants to be near its own kind may be the first of it.
    """

    def beside(key: str) -> Iterable[Rules]:
        mine = labels[row][key]
        return (one for at, those in enumerate(on) if labels[at].get(key) == mine for one in those)

    def n_in(key: str, domain: str) -> int:
        there = (those for at, those in enumerate(on) if labels[at].get(key) == domain)
        return sum(one.role == rules.role for those in there for one in those)

    for key, role in rules.apart:
        if key in labels[row] and any(one.role == role for one in beside(key)):
            return False
    for key, role in rules.near:
        if key not in labels[row]:
            return False
        anywhere = [
            one for at, those in enumerate(on) if key in labels[at] for one in those if one.role == role
        ]
        if first_may and role == rules.role and not anywhere:
            continue
        if not any(one.role == role for one in beside(key)):
            return False
    for key, skew in rules.even:
        if key not in labels[row]:
            return False
        domains = sorted({node[key] for node in labels if key in node})
        counts = {domain: n_in(key, domain) for domain in domains}
        if counts[labels[row][key]] + 1 > min(counts.values()) + skew:
            return False
    for at, those in enumerate(on):
        for one in those:
            for key, role in one.apart:
                same = key in labels[row] and labels[at].get(key) == labels[row][key]
                if role == rules.role and same:
                    return False
    return True


class Neighbours:
    """The Filter. `tells_keys`: whether it says which labels matter, so that nodes can be alike to it."""

    name = "Neighbours"
    sees_pods = True

    def __init__(self, *, tells_keys: bool = True) -> None:
        if tells_keys:
            self.topology_keys = self._topology_keys

    def sign(self, pod: Pod) -> Hashable:
        return (pod.metadata.annotations or {}).get(KEY)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        mine = rules_of(template.pod)
        on = _on(view)
        others = {rule for those in on for one in those for _, rule in one.apart}
        return SUCCESS if mine.keys or mine.role in others else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        labels = [_labels(view, row) for row in range(view.n_rows)]
        on, mine = _on(view), rules_of(template.pod)
        return np.array([may_go(mine, row, labels, on) for row in range(view.n_rows)], dtype=np.bool_)

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        mask = self.filter(state, template, view)
        return () if mask is None else (("node(s) had the wrong neighbours", ~mask),)

    def _topology_keys(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Sequence[str]:
        return ["host", "rack"]


class Bounded(Neighbours):
    """Says how many it lets be placed at the most, for what is simple to say: apart from one's own kind."""

    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        mine, most = rules_of(template.pod), int(room.sum())
        for key, role in mine.apart:
            if role == mine.role:
                rows = np.flatnonzero(room > 0).tolist()
                named = {label for row in rows if (label := _labels(view, row).get(key)) is not None}
                unnamed = sum(int(room[row]) for row in rows if key not in _labels(view, row))
                most = min(most, len(named) + unnamed)
        return most


def _labels(view: ClusterView, row: int) -> Mapping[str, str]:
    node = view.node(row)
    return (node.metadata.labels or {}) if node is not None else {}


def _on(view: ClusterView) -> list[list[Rules]]:
    on = [[rules_of(info.pod) for info in view.pods_on(row)] for row in range(view.n_rows)]
    for row, template, count in view.placed:
        on[row] += [rules_of(template.pod)] * count
    return on
