"""What a plugin may have beside the methods of its points: a protocol for each, and how to ask for it.

The framework asks for each of them by `serves`, and nowhere by the member's name; extension.signatures reads
the arguments and types below to tell the author of a plugin what is wrong with it. Plugins import these from
gangsched.plugin, except the last three, which are between the scheduler and its own plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gangsched.core.cache.nodes.usage_trackers import UsageTracker
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filled_node import FilledNode
from gangsched.core.framework.status import CycleState, Status
from gangsched.core.types.arrays import FloatArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate

if TYPE_CHECKING:
    from typing_extensions import TypeIs

P = TypeVar("P")


def serves(plugin: object, point: Callable[..., P]) -> TypeIs[P]:
    """Whether the plugin has all members of `point`, a protocol; one that is None counts as missing.

    Answers as isinstance does, which before Python 3.12 computes a protocol's members each time.
    """
    for name in _members(point):  # noqa: SIM110 (a start asks this a hundred times; a generator is twice as slow)
        if getattr(plugin, name, None) is None:
            return False
    return True


@cache
def _members(point: Callable[..., object]) -> tuple[str, ...]:
    public = [name for name in vars(point) if not name.startswith("_")]
    return (*point.__annotations__, *public)


class SupportsWatches(Protocol):
    @property
    def watches(self) -> tuple[str, ...]:
        """The other kinds that it reads through `view.objects`, by plural and group
        ("persistentvolumeclaims", "replicasets.apps")."""
        ...


class SupportsHookTimeout(Protocol):
    @property
    def hook_timeout_s(self) -> float:
        """How long one call of its `async def` hooks may take; 0, or without this: hookTimeoutSeconds."""
        ...


class SupportsUsageLabels(Protocol):
    @property
    def usage_labels(self) -> tuple[str, ...]:
        """A QueueSort's labels, at most four, for `view.used_by_label`."""
        ...


class SupportsRekey(Protocol):
    @property
    def rekey_s(self) -> float:
        """How often `lane_key` is called again if it read `waited_s`; without this every 10 s."""
        ...


class SupportsSigns(Protocol):
    @property
    def signs(self) -> bool:
        """False if with these arguments it reads nothing of a pod's metadata: `sign` is not called."""
        ...


class SupportsSignedAnnotations(Protocol):
    @property
    def signed_annotations(self) -> frozenset[str]:
        """`sign` is not called for pods without any of these."""
        ...


class SupportsSignsOwners(Protocol):
    @property
    def signs_owners(self) -> bool:
        """True: `sign` is not called for pods without ownerReferences."""
        ...


class SupportsSeesPods(Protocol):
    @property
    def sees_pods(self) -> bool:
        """Whether its Filter depends on where pods are. Without it False for `filter`, True for
        `filter_node`."""
        ...


class SupportsTopologyKeys(Protocol):
    def topology_keys(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[str] | None:
        """Beside `filter`: two nodes with the same room and the same pods differ for it only in these labels.
        None, or without this: no two nodes are alike."""
        ...


class SupportsAtMost(Protocol):
    def at_most(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        room: IntArray,
        others: Sequence[PodTemplate],
    ) -> int:
        """Beside `filter`: an upper bound of how many pods of the template can still be placed, whatever is
        placed beside them, if each row takes at most `room` (int64[n_rows]); `others` are the templates that
        may be placed too."""
        ...


class SupportsTogether(Protocol):
    def together(self, templates: Sequence[PodTemplate], view: ClusterView) -> IntArray | None:
        """Beside `filter` or `capacity`: at most how many pods of these each row still takes, in any mix
        (int64[n_rows]). None: no bound."""
        ...


class SupportsAtMostTogether(Protocol):
    def at_most_together(self, templates: Sequence[PodTemplate], view: ClusterView, room: IntArray) -> int:
        """As at_most, for all of these in any mix."""
        ...


class SupportsCapacityOn(Protocol):
    def capacity_on(
        self, state: CycleState, template: PodTemplate, view: ClusterView, row: int
    ) -> int | None:
        """As `capacity` for a single row, in plain numbers; must give the same result."""
        ...


class SupportsNormalize(Protocol):
    def normalize(self, state: CycleState, template: PodTemplate, scores: FloatArray) -> FloatArray:
        """Gets score's results, of any range, and maps them to 0..100."""
        ...


class SupportsScoreByRow(Protocol):
    @property
    def score_by_row(self) -> bool:
        """True: a row's score depends on that row alone, so scores are kept and only changed rows are
        recomputed, also from one gang to the next of its kind (core.framework.scores.batching).

        Not with normalize or pre_score; with pre_filter only beside `tells_by_template`. Whatever it reads
        beside the view must be a usage tracker (core.cache.nodes.usage_trackers), which reports changed rows.
        """
        ...


class SupportsTellsByTemplate(Protocol):
    @property
    def tells_by_template(self) -> bool:
        """True: what its PreFilter leaves for Score follows from the template."""
        ...


class SupportsSpreads(Protocol):
    def spreads(self, template: PodTemplate, members: Sequence[PodTemplate]) -> bool:
        """Whether the template prefers to be away from the gang's other members (their templates, itself
        included), so that they are placed one at a time by score and not packed."""
        ...


class SupportsIsStated(Protocol):
    def is_stated(self, template: PodTemplate, view: ClusterView) -> bool:
        """Whether the pod itself states the preference; asked often. What a gang's pods state comes before
        how tightly it fits, all other scores after it (core.cycle.choosing.packing)."""
        ...


class SupportsOnlyRepels(Protocol):
    @property
    def only_repels(self) -> bool:
        """True: what the pod states can only lower a node's score."""
        ...


class SupportsStatesOfNodes(Protocol):
    @property
    def states_of_nodes(self) -> bool:
        """True: its scores change only with the labels and taints of nodes, and are the same for any part of
        the nodes that they do not tell apart."""
        ...


class SupportsPreferredCapacity(Protocol):
    def preferred_capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> IntArray | None:
        """int64[n_rows]: how many more copies each node takes with all that their pods hope for. A gang that
        fits within it is packed within it."""
        ...


class SupportsScoreFilled(Protocol):
    """Beside score_by_row this, score_filled_at or ignores_placed spares a call for each member where packing
    has a weight."""

    def score_filled(self, template: PodTemplate, node: FilledNode) -> FloatArray | None:
        """float64[n], as `score` of one node that has 0 to n - 1 more of these pods, by what FilledNode shows
        alone."""
        ...


class SupportsScoreFilledAt(Protocol):
    def score_filled_at(
        self, state: CycleState, template: PodTemplate, view: ClusterView, row: int, n: int
    ) -> FloatArray | None:
        """As score_filled, for one row by all that score reads."""
        ...


class SupportsIgnoresPlaced(Protocol):
    @property
    def ignores_placed(self) -> bool:
        """True: a Trial changes no score."""
        ...


class SupportsMayBeOverruled(Protocol):
    @property
    def may_be_overruled(self) -> bool:
        """False: nothing can release a group that waits for this Permit."""
        ...


class SupportsPreBindPreFlight(Protocol):
    def pre_bind_pre_flight(self, template: PodTemplate) -> Status:
        """Pure. SKIP: its PreBind has nothing to do for pods of this template, which then cost nothing."""
        ...


class KeepsUsage(Protocol):
    @property
    def usage_tracker(self) -> UsageTracker: ...


class PollsMetricsServer(Protocol):
    @property
    def metrics_server_s(self) -> float:
        """The interval at which it wants metrics-server polled; 0: not at all."""
        ...


class RunsOverNodes(Protocol):
    """A plugin that is sampled (extension.budget)."""

    def over_nodes(self, point: str, loop: Callable[..., list[Any]], *args: Any) -> list[Any]:
        """Runs the loop, with these arguments, as one call of the plugin."""
        ...
