"""NodeResourcesBalancedAllocation: prefers nodes whose resources are evenly used with the pod on them.

It scores the change: how evenly cpu, memory and other resources are used with the pod, against without it.
About 75 where little changes, towards 100 where the pod evens the node out, towards 50 where it makes it
lopsided. Source: kube-scheduler `plugins/noderesources/balanced_allocation.go`, in the same floating point
steps, so that rounding agrees. With `formula: AsPrinted` it is BalancedResourceAllocation as Kubernetes had
it up to 1.11 and as papers print it, `10 - |cpu - memory| * 10` of the requested shares with the pod, in
0..100.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.interface import (
    MAX_SCORE,
    BoolArray,
    CycleState,
    FilledNode,
    FloatArray,
    IntArray,
)
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.resources import CPU, MEMORY, PODS
from gangsched.plugins.resources.node_resources_fit import DEFAULT_RESOURCES, NATIVE, ResourceSpec


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """NodeResourcesBalancedAllocationArgs; all resources weigh the same. formula: kube-scheduler has none."""

    resources: Annotated[
        tuple[ResourceSpec, ...],
        Meta(description="The resources that count: `name`, and `weight`, which must be 1."),
    ] = DEFAULT_RESOURCES
    formula: Annotated[
        Literal["Change", "AsPrinted"],
        Meta(
            description="`AsPrinted` scores `10 - |cpu - memory| * 10` of the requested shares, as Kubernetes"
            " 1.11 did and papers print it."
        ),
    ] = "Change"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for one in self.resources:
            if one.weight != 1:
                raise ValueError(f"resource weight of {one.name} is {one.weight}, must be 1")
            if one.name in seen:
                raise ValueError(f"resource {one.name} is named twice")
            seen.add(one.name)
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)
        if self.formula == "AsPrinted" and {one.name for one in self.resources} != {CPU, MEMORY}:
            raise ValueError("formula AsPrinted is about cpu and memory, and takes no other resources")


class NodeResourcesBalancedAllocation:
    """Score by how the pod changes the balance of what is used."""

    name = "NodeResourcesBalancedAllocation"
    score_by_row = True

    def __init__(self, args: Args | None = None) -> None:
        args = args or Args()
        self._names = tuple(one.name for one in args.resources if one.name != PODS)
        self._as_printed = args.formula == "AsPrinted"
        self._scored: PerTemplate[tuple[int, tuple[IntArray, IntArray]]] = PerTemplate()

    def score(
        self, state: CycleState, template: PodTemplate, view: RoomQueries, rows: IntArray
    ) -> FloatArray | None:
        """50 to 100 in whole numbers; AsPrinted: 0 to 100. None for a pod that requests none of the
        resources."""
        if not any(name in template.requests for name in self._names):
            return None
        columns, requests = self._columns_of(template)
        return self._change(requests, *view.room_at(columns, rows))

    def score_filled(self, template: PodTemplate, node: FilledNode) -> FloatArray | None:
        """As score of one node: as it is, and with 1 to n - 1 more of these pods."""
        if not any(name in template.requests for name in self._names):
            return None
        columns, requests = self._columns_of(template)
        return self._change(requests, node.allocatable[columns], node.free[columns])

    def _change(self, requests: IntArray, allocatable: IntArray, free: IntArray) -> FloatArray:
        used, has = allocatable - free, allocatable != 0
        if self._as_printed:
            of_cpu, of_memory = np.minimum((used + requests) / np.where(has, allocatable, 1), 1.0)
            as_printed: FloatArray = MAX_SCORE - np.abs(of_cpu - of_memory) * MAX_SCORE
            return as_printed
        without, with_pod = (_evenness(asked, allocatable, has) for asked in (used, used + requests))
        half = int(MAX_SCORE) // 2
        scores: FloatArray = (half + (half + with_pod - without) // 2).astype(np.float64)
        return scores

    def _columns_of(self, template: PodTemplate) -> tuple[IntArray, IntArray]:
        """Returns (columns [k], requests [k, 1]), int64; others than cpu, memory and disk only if
        requested."""
        known = self._scored.get(template)
        if known is not None and known[0] == len(template.names):
            return known[1]
        columns: dict[str, int] = {name: column for column, name in enumerate(NATIVE)}
        columns.update(zip(template.names, template.columns, strict=True))
        names = [name for name in self._names if name in columns]
        found = (
            np.array([columns[name] for name in names], dtype=np.int64),
            np.array([[template.requests.get(name, 0)] for name in names], dtype=np.int64).reshape(-1, 1),
        )
        return self._scored.put(template, (len(template.names), found))[1]


def _evenness(asked: IntArray, allocatable: IntArray, has: BoolArray) -> IntArray:
    """int64[n] in 0..100: 100 where the same share of each of the node's resources is used."""
    shares = np.minimum(asked / np.where(has, allocatable, 1), 1.0) * has
    whole: IntArray = ((1 - _deviation(shares, has)) * MAX_SCORE).astype(np.int64)
    return whole


def _deviation(shares: FloatArray, has: BoolArray) -> FloatArray:
    """The standard deviation over a node's resources; for two, half their distance, without squares."""
    if len(shares) == 2:
        of_two: FloatArray = np.abs((shares[0] - shares[1]) / 2) * has.all(axis=0)
        return of_two
    if len(shares) < 2:
        return np.zeros(shares.shape[1])
    n_has = np.maximum(has.sum(axis=0), 1)
    high = np.where(has, shares, -np.inf).max(axis=0)
    low = np.where(has, shares, np.inf).min(axis=0)
    mean = _sum(shares) / n_has
    squares = _sum(np.where(has, (shares - mean) * (shares - mean), 0.0))
    of_some: FloatArray = np.select(
        [n_has > 2, n_has == 2], [np.sqrt(squares / n_has), (high - low) / 2], 0.0
    )
    return of_some


def _sum(terms: FloatArray) -> FloatArray:
    """Adds row after row, as a loop does: another order would round differently."""
    total: FloatArray = terms[0].copy()
    for row in terms[1:]:
        total += row
    return total
