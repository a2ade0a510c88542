"""NodeResourcesFit: how many copies of a pod fit into the free resources, and which nodes suit it best.

Filter and capacity are integer arithmetic on the resource columns. The scores are kube-scheduler's, rounded
down at the same steps, so that ties are equal. As there, a container without requests counts as 100m and
200Mi, also for pods already on a node; and a pod-level request (spec.resources) counts in scores once the pod
is on a node, not before (the filter always counts it). Sources: kube-scheduler
`plugins/noderesources/{fit,resource_allocation,least_allocated,most_allocated,
requested_to_capacity_ratio}.go`, `util/pod_resources.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import floordiv
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.framework.interface import (
    EVERYWHERE,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FilledNode,
    FloatArray,
    IntArray,
    Rows,
)
from gangsched.core.types.arrays import NO_LIMIT
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.core.why.nodes import Insufficient
from gangsched.errors import ParseError
from gangsched.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    SCORING_DEFAULTS,
    is_extended,
    pod_requests,
)
from gangsched.model.text.names import is_qualified_name
from gangsched.plugins.resources.least_asked import least_asked

StrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]

# The first columns of every table, in this order.
NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_PADDED = (CPU, MEMORY)
# A hundred times this fits an int64; above it percentages are computed from less precise amounts.
_MAX_PRECISE = 2**56

_Scored = tuple[IntArray, IntArray, IntArray, IntArray]
"""(columns [k], requests [k, 1], weights [k, 1], which of the k are cpu or memory), int64."""


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A resource and its weight, 1 to 100; 0 means 1, by kube-scheduler's defaulting."""

    name: Annotated[str, Meta(description="A resource that counts for the score.")]
    weight: Annotated[int, Meta(description="Its weight, 1 to 100.")] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 100:
            raise ValueError(f"weight: resource weight of {self.name} is {self.weight}, not within 1..100")
        if not self.weight:
            msgspec.structs.force_setattr(self, "weight", 1)


class ShapePoint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """utilization 0..100, score 0..10."""

    utilization: Annotated[int, Meta(description="A point of the shape: percent in use.")]
    score: Annotated[int, Meta(description="The score there, 0 to 10.")]

    def __post_init__(self) -> None:
        if not 0 <= self.utilization <= 100:
            raise ValueError(f"utilization: {self.utilization} is not within 0..100")
        if not 0 <= self.score <= 10:
            raise ValueError(f"score: {self.score} is not within 0..10")


class RatioShape(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """RequestedToCapacityRatioParam: straight lines between points, utilization rising."""

    shape: tuple[ShapePoint, ...] = ()

    def __post_init__(self) -> None:
        if not self.shape:
            raise ValueError("shape: at least one point is needed")
        places = [point.utilization for point in self.shape]
        if any(a >= b for a, b in pairwise(places)):
            raise ValueError("shape: the points must be sorted by rising utilization")


DEFAULT_RESOURCES = (ResourceSpec(CPU), ResourceSpec(MEMORY))


class ScoringStrategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which nodes score higher: emptier (LeastAllocated), fuller (MostAllocated), or by a shape.

    A given strategy must state its type, as in kube-scheduler.
    """

    type: Annotated[
        StrategyType,
        Meta(
            description="`LeastAllocated` prefers empty nodes, `MostAllocated` full ones,"
            " `RequestedToCapacityRatio` goes by a shape."
        ),
    ]
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RatioShape | None = None

    def __post_init__(self) -> None:
        if (self.type == "RequestedToCapacityRatio") != (self.requested_to_capacity_ratio is not None):
            raise ValueError(
                "requestedToCapacityRatio belongs to type RequestedToCapacityRatio, and to no other type"
            )
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", DEFAULT_RESOURCES)


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """NodeResourcesFitArgs. Ignored resources must be extended resources; only the filter ignores them."""

    ignored_resources: Annotated[
        tuple[str, ...],
        Meta(description="Extended resources that the filter does not count."),
    ] = ()
    ignored_resource_groups: Annotated[
        tuple[str, ...],
        Meta(description="The same by group: `example.com` ignores `example.com/anything`."),
    ] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")

    def __post_init__(self) -> None:
        for name in self.ignored_resources:
            if not is_qualified_name(name):
                raise ValueError(f"ignoredResources: {name!r} is not a resource's name")
        for group in self.ignored_resource_groups:
            if "/" in group:
                raise ValueError(f"ignoredResourceGroups: resource group name {group!r} can't contain '/'")
            if not is_qualified_name(group):
                raise ValueError(f"ignoredResourceGroups: {group!r} is not a resource group's name")


class NodeResourcesFit:
    """Capacity by free resources, Score by how full a node would be with the pod on it."""

    name = "NodeResourcesFit"
    cured_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.ROOM_FREED
    score_by_row = True

    def __init__(self, args: Args | None = None) -> None:
        args = args or Args()
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        strategy = args.scoring_strategy
        self._weights = {one.name: one.weight for one in strategy.resources}
        self._score_of = _score_table(strategy)
        self._skips_zero = strategy.type == "RequestedToCapacityRatio"
        self._least = strategy.type == "LeastAllocated"
        self._scoring: PerTemplate[tuple[int, _Scored]] = PerTemplate()

    def capacity(
        self, state: CycleState, template: PodTemplate, view: RoomQueries, rows: Rows = EVERYWHERE
    ) -> IntArray | None:
        if template.missing and any(not self._ignores(name) for name in template.missing):
            return np.zeros_like(view.free(0)[rows])
        is_plain = not (self._ignored or self._ignored_groups or template.by_class)
        if is_plain and not isinstance(rows, slice):
            # For a few rows one small matrix is cheaper than a pass for each resource.
            room = view.free_at(template.column_array, rows)
            few: IntArray = np.maximum(np.minimum.reduce(room // template.amount_array, axis=0), 0)
            return few
        total: IntArray | None = None
        for name, column, amount in self._asked(template):
            free = view.free(column)[rows]
            own = free if amount == 1 else free // amount
            if name in template.by_class:
                own = np.where(view.served_by_class(name)[rows], NO_LIMIT, own)
            total = own if total is None else np.minimum(total, own)
        # Free resources are below zero where another scheduler overcommits.
        return None if total is None else np.maximum(total, 0)

    def capacity_on(
        self, state: CycleState, template: PodTemplate, view: RoomQueries, row: int
    ) -> int | None:
        if template.missing or self._ignored or self._ignored_groups or template.by_class:
            total = self.capacity(state, template, view, np.array([row]))
            return None if total is None else total.item()
        free = view.free_on(template.columns, row)
        return max(0, min(map(floordiv, free, template.amounts))) if free else None

    def together(self, templates: Sequence[PodTemplate], view: RoomQueries) -> IntArray | None:
        """Bounds by the least request of any of them, for each resource that all of them request."""
        total: IntArray | None = None
        counted = [
            {at: n for name, at, n in self._asked(one) if name not in one.by_class} for one in templates
        ]
        for column, amount in least_asked(counted):
            own = view.free(column) // amount
            total = own if total is None else np.minimum(total, own)
        return None if total is None else np.maximum(total, 0)

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[Why, BoolArray]]:
        found: list[tuple[Why, BoolArray]] = []
        for name, column, amount in self._asked(template):
            short = view.free(column) < amount
            if name == PODS:
                found.append(("Too many pods", short))
            else:
                if name in template.by_class:
                    short = short & ~view.served_by_class(name)
                found.append((Insufficient(name), short))
        nowhere = np.ones(view.n_rows, dtype=np.bool_)
        found += [(Insufficient(name), nowhere) for name in template.missing if not self._ignores(name)]
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: RoomQueries, rows: IntArray
    ) -> FloatArray | None:
        """Weighted mean over the strategy's resources that the node has."""
        scored = self._scored(template)
        allocatable, free = view.room_at(scored[0], rows)
        return self._mean(scored, allocatable, free, view.padding_at(rows) if len(scored[3]) else None)

    def score_filled(self, template: PodTemplate, node: FilledNode) -> FloatArray:
        """As score of one node: as it is, and with 1 to n - 1 more of these pods."""
        scored = self._scored(template)
        columns = scored[0]
        padding = node.padding if len(scored[3]) else None
        return self._mean(scored, node.allocatable[columns], node.free[columns], padding)

    def _mean(
        self, scored: _Scored, allocatable: IntArray, free: IntArray, padding: IntArray | None
    ) -> FloatArray:
        columns, requests, weights, padded = scored
        asked = allocatable - free + requests
        if padding is not None:
            # cpu and memory are columns 0 and 1 in both.
            asked[padded] += padding[columns[padded]]
        own = self._of_resource(allocatable, asked)
        counts = (own > 0) if self._skips_zero else (allocatable > 0)
        total = (own * weights * counts).sum(axis=0)
        weight = np.maximum((weights * counts).sum(axis=0), 1)
        if self._skips_zero:
            rounded: FloatArray = np.floor(total / weight + 0.5)
            return rounded
        whole: FloatArray = (total // weight).astype(np.float64)
        return whole

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: RoomQueries) -> bool:
        if template is None or change.row < 0:
            return True
        if any(not self._ignores(name) for name in template.missing):
            return False
        asked = list(self._asked(template))
        if not change.what & Change.NODE_ADDED and change.resources.isdisjoint(name for name, _, _ in asked):
            return False
        return all(
            view.free(column)[change.row] >= amount
            or (name in template.by_class and bool(view.served_by_class(name)[change.row]))
            for name, column, amount in asked
        )

    def _asked(self, template: PodTemplate) -> Iterator[tuple[str, int, int]]:
        """Yields (name, column, amount) of the requests that the filter checks."""
        everything = zip(template.names, template.columns, template.amounts, strict=True)
        if not self._ignored and not self._ignored_groups:
            return everything
        return (one for one in everything if not self._ignores(one[0]))

    def _ignores(self, name: str) -> bool:
        if not is_extended(name):
            return False
        return name in self._ignored or name.split("/", 1)[0] in self._ignored_groups

    def _of_resource(self, allocatable: IntArray, asked: IntArray) -> IntArray:
        """0..100 for each resource, rounded down; arbitrary, and unused, on a node without the resource."""
        size = np.maximum(allocatable, 1)
        asked = np.clip(asked, 0, size)  # cap at the node's size
        if np.maximum.reduce(size, axis=None, initial=1) > _MAX_PRECISE:
            shift = np.where(size > _MAX_PRECISE, 7, 0)
            size, asked = size >> shift, asked >> shift
        if self._least:
            # Rounds the free share, not the used one.
            return (size - asked) * 100 // size
        used = asked * 100 // size
        return used if self._score_of is None else self._score_of[used] * (allocatable > 0)

    def _scored(self, template: PodTemplate) -> _Scored:
        """Returns the resources scored for the template; extended resources only if requested."""
        known = self._scoring.get(template)
        if known is not None and known[0] == len(template.names):
            return known[1]
        requests = _scoring_requests(template)
        columns: dict[str, int] = dict(zip(template.names, template.columns, strict=True))
        columns.update({name: column for column, name in enumerate(NATIVE)})
        names = [
            name
            for name in self._weights
            if name in NATIVE or (name != PODS and requests.get(name) and name in columns)
        ]
        scored = (
            np.array([columns[name] for name in names], dtype=np.int64),
            np.array([[requests.get(name, 0)] for name in names], dtype=np.int64).reshape(-1, 1),
            np.array([[self._weights[name]] for name in names], dtype=np.int64).reshape(-1, 1),
            np.array([i for i, name in enumerate(names) if name in _PADDED], dtype=np.int64),
        )
        return self._scoring.put(template, (len(template.names), scored))[1]


def _scoring_requests(template: PodTemplate) -> Mapping[str, int]:
    try:
        return pod_requests(template.spec, unstated=SCORING_DEFAULTS, pod_level=False)
    except ParseError:
        return template.requests  # such a template is rejected before scoring


def _score_table(strategy: ScoringStrategy) -> IntArray | None:
    """Returns the score by whole percent of use, 101 entries; None when the percentage is the score."""
    if strategy.requested_to_capacity_ratio is None:
        return None
    points = [(p.utilization, p.score * 10) for p in strategy.requested_to_capacity_ratio.shape]
    return np.array([on_lines(points, percent) for percent in range(101)], dtype=np.int64)


def on_lines(points: Sequence[tuple[int, int]], percent: int) -> int:
    """Returns the score at `percent` on straight lines between (percent, score) points.

    Source: `plugins/helper/shape_score.go`, BuildBrokenLinearFunction; Go divides towards zero.
    """
    for i, (at, score) in enumerate(points):
        if percent <= at:
            if i == 0:
                return score
            before, low = points[i - 1]
            return low + int((score - low) * (percent - before) / (at - before))
    return points[-1][1]
