"""ClusterView: the cache's state, read-only, for plugins and the cycle: every subject of core.cache.view.

core.cache.trial's Trial is a copy of it to place pods on, with the same queries. Made by core.cache.cache.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol, TypeVar

from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.object_store import ObjectStore
from gangsched.core.cache.pods.index import PodIndex
from gangsched.core.cache.view.devices import DeviceQueries
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.cache.view.room import RoomQueries
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.candidates import Cluster
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate


class Following(Protocol):
    """A plugin's data about a Trial, updated as pods are placed on it (ClusterView.kept)."""

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """Adds `count` pods of one template placed on `row`; `view` shows them already."""
        ...


FollowingT = TypeVar("FollowingT", bound=Following)


class ClusterView(RoomQueries, DeviceQueries, PodQueries, NodeQueries, ObjectQueries):
    """Read-only view over all node rows, with the queries of every subject."""

    __slots__ = ("_by_node", "_index", "_ledger", "_nodes", "_objects", "claims")

    def __init__(
        self,
        nodes: NodeTable,
        ledger: DeviceLedger,
        by_node: Mapping[str, Mapping[str, PodInfo]],
        index: PodIndex,
        objects: ObjectStore,
        claims: ClaimBook,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._by_node = by_node
        self._index = index
        self._objects = objects
        self.claims = claims
        """Claims of Dynamic Resource Allocation as they are, without a Trial's placements."""

    @property
    def claimed(self) -> Cluster:
        """Devices that claims hold; without those of the pods that a Trial has removed."""
        return self.claims.cluster

    def base(self) -> ClusterView:
        """Returns the cache's state, without a Trial's placements."""
        return ClusterView(self._nodes, self._ledger, self._by_node, self._index, self._objects, self.claims)

    def kept(self, key: Hashable, make: Callable[[], FollowingT]) -> FollowingT:
        """Returns the result of `make`; a Trial keeps it, and updates it with the pods placed since.

        Rebuilt on a fork, and after pods were removed. The cache's own view keeps nothing.
        """
        return make()
