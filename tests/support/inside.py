"""What tests ask of a scheduler's own state, in a test's words.

Lives here: everything that tests read or spoil behind the scheduler's interface, so that a change of the
core's tables is made here alone. Called by tests.support.scenario, whose Cluster is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cache.devices.ledger import DeviceLedger
from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.profile import Profile
from gangsched.core.queueing.bypasses import Bypasses
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Nominated
from gangsched.model.objects import Pod


class Inside:
    """A scheduler and the state behind it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    # -- groups and pods -------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All groups, oldest first."""
        return [*self.scheduler.shared.groups.values()]

    def group(self, name: str) -> Group:
        """The group of this name, in whatever namespace."""
        return next(group for group in self.groups() if group.key.name == name)

    def group_names(self) -> list[str]:
        """namespace/name of all groups, oldest first."""
        return [str(group.key) for group in self.groups()]

    def pod_infos(self) -> dict[str, PodInfo]:
        """All pods that are known now, by UID."""
        return dict(self.scheduler.shared.cache.pods)

    def pod_info(self, name: str) -> PodInfo:
        """The pod of this name, as the scheduler knows it."""
        return next(info for info in self.pod_infos().values() if info.pod.metadata.name == name)

    def infos_on_nodes(self) -> list[PodInfo]:
        """All pods that are on a node or reserved there."""
        return [info for infos in self.scheduler.shared.cache.by_node.values() for info in infos.values()]

    def nominated(self) -> dict[str, Nominated]:
        """By UID: pods that a node is nominated for."""
        return self.scheduler.shared.cache.nominated

    def victims(self) -> list[str]:
        """UIDs of pods that some group waits to see gone."""
        return [*self.scheduler.shared.victims]

    def unanswered(self) -> dict[str, Pod]:
        """By UID: refused pods with a bind that may still land."""
        return self.scheduler.shared.unanswered

    # -- nodes -----------------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        """The cluster as a cycle sees it."""
        return self.scheduler.shared.cache.view

    def node_table(self) -> NodeTable:
        """The arrays of nodes."""
        return self.scheduler.shared.cache.nodes

    def ledger(self) -> DeviceLedger:
        """Who holds which device."""
        return self.scheduler.shared.cache.ledger

    # -- queues, claims, ends --------------------------------------------------------------------------

    def queue_view(self) -> QueueView:
        """What QueueSort sees; there must be a plugin that looks."""
        found = self.scheduler.shared.queue_view
        assert found is not None
        return found

    def queue_book(self) -> QueueBook:
        """What each queue holds; there must be queues."""
        found = self.scheduler.shared.queue_book
        assert found is not None
        return found

    def bypasses(self) -> Bypasses:
        """How often groups were passed; `queueing` must be configured."""
        found = self.scheduler.shared.queue.bypasses
        assert found is not None
        return found

    def claims(self) -> Claims:
        """All claims; `queueing` must enforce its bounds."""
        found = self.scheduler.shared.claims
        assert found is not None
        return found

    def claim(self, name: str) -> StartClaim:
        """The claim of the group of this name; it must have one."""
        found = self.claims().claim(self.group(name))
        assert found is not None
        return found

    def walltimes(self) -> Walltimes:
        """How long groups run; `queueing` must be configured."""
        found = self.scheduler.shared.walltimes
        assert found is not None
        return found

    def end_s(self, info: PodInfo) -> float:
        """When a pod on a node is expected to end."""
        return self.scheduler.shared.end_of(info).at_s

    # -- what it has done and by which rules -----------------------------------------------------------

    def count(self, name: str) -> int:
        """A counter of statistics(); 0 if nothing was counted."""
        return self.scheduler.shared.counters[name]

    def profiles(self) -> Mapping[str, Profile]:
        """The profiles in effect, by schedulerName."""
        return self.scheduler.shared.profiles
