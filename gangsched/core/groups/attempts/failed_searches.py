"""FailedSearches: a search for victims that found none serves all pods that would search alike, and costs a
bounded part of the time.

One answer serves the lone pods of one template, priority and queue until something that a search reads has
changed: the nodes' rows, other units' nominations and victims, or any event but a version of a node or of a
pod that differs in its status alone (a heartbeat, a condition). Gangs, pods in a topology, pods at a limit
and profiles with plugins from elsewhere are searched for each time. A "no" is never kept longer than
KEPT_S, and a "yes" is never kept.

Failed searches, kept answers aside, may cost NODES_A_SECOND looks at nodes on average, which is about a tenth
of the time whatever the size of the cluster; what is not spent is saved up, to ten seconds' worth. After that
units that do not fit wait for their backoff and search then, in their order. A namespace with no failed
search for NAMESPACE_S always has one, so that no tenant uses up the share of the others. The core has no
clock: work is counted, and the time is the scheduler's. Called by core.groups.attempts.making_room and
core.scheduler.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from gangsched.core.cycle.domains.topology import requires_domain
from gangsched.core.framework.interface import Code, DryRun, Status
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand, Profile
from gangsched.core.state.state import SharedState
from gangsched.core.why import together
from gangsched.core.why.evictions import SearchesLater
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod

KEPT_S = 60.0
# A search costs about 20 us a node where pods hold all of them: a tenth of the time on 5,000 nodes.
NODES_A_SECOND = 5_000.0
SAVED_S = 10.0
NAMESPACE_S = 60.0
# A gang's search runs several cycles for one of a lone pod. No search costs more than searchVictims allows:
# about half a second.
_A_GANG = 3
_MOST_AT_ONCE = 25_000
_MAX_NAMESPACES = 4096
_MAX_KEPT = 1024
_IN_TREE = "gangsched.plugins."
LATER = SearchesLater()


class _Kept(msgspec.Struct, gc=False):
    """An answer, what it holds for, and until when."""

    read: tuple[Any, ...]
    until_s: float
    answer: Status


class FailedSearches:
    """Answers of searches that failed, and the work they took."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._kept: dict[Hashable, _Kept] = {}
        self._n_news = 0
        self._has_news = False
        self._profile: Profile | None = None
        self._is_ours = False
        """Whether all plugins of that profile are our own, which read nothing but the view."""
        self._spent = 0.0
        """Looks at nodes that are not paid for yet, at `_spent_s`."""
        self._spent_s = 0.0
        self._failed_s: dict[str, float] = {}
        """By namespace: when a search of its pods last failed."""

    # -- what has changed --------------------------------------------------------------------------------

    def note_news(self, events: Sequence[ev.Event]) -> Sequence[ev.Event]:
        """Notes whether one of these may change an answer, before they are applied; returns them."""
        if not self._has_news and self._kept:
            self._has_news = any(map(self._is_news, events))
        return events

    def _is_news(self, event: ev.Event) -> bool:
        cache = self._shared.cache
        if isinstance(event, ev.PodUpdated):
            info = cache.pods.get(event.pod.metadata.uid)
            return info is None or not _is_alike(info.pod, event.pod)
        if isinstance(event, ev.NodeUpdated):
            row = cache.nodes.row_of.get(event.node.metadata.name)
            known = cache.nodes.nodes[row] if row is not None else None
            return known is None or not cache.nodes.is_as_known(known, event.node)
        return not isinstance(event, ev.LoadReported)  # what that changes is noted in the nodes' journal

    # -- kept answers ------------------------------------------------------------------------------------

    def known(self, key: Hashable, dry_run: DryRun) -> Status | None:
        """Returns what a search would find out again; None: it must search."""
        kept = self._kept.get(key)
        if kept is None or kept.until_s < self._shared.now_s or kept.read != self._read(dry_run):
            return None
        self._shared.count("preemption_answers_kept")
        return kept.answer

    def key_of(self, demands: Sequence[Demand]) -> Hashable:
        """Equal for units that search alike; None: this one searches for itself."""
        if len(demands) != 1 or len(demands[0].members) != 1 or requires_domain(demands):
            return None
        [demand] = demands
        [info] = demand.members
        group = demand.group
        if group.is_gang or len(group.members) != 1 or group.start_together or demand.within is not None:
            return None
        if not self._is_in_tree(demand.profile):
            return None
        book = self._shared.queue_book
        return (
            group.scheduler_name,
            info.template.serial,
            group.priority,
            info.pod.spec.priority,
            info.pod.spec.preemption_policy,
            book.queue_of(info) if book is not None else "",
        )

    def _is_in_tree(self, profile: Profile) -> bool:
        if self._profile is not profile:
            plugins = profile.points.plugins().values()
            self._profile = profile
            self._is_ours = all(type(one).__module__.startswith(_IN_TREE) for one in plugins)
        return self._is_ours

    def _read(self, dry_run: DryRun) -> tuple[Any, ...]:
        """Everything that decides a search's answer, beside its key."""
        if self._has_news:
            self._n_news, self._has_news = self._n_news + 1, False
        shared = self._shared
        nodes = shared.cache.nodes
        return (
            self._n_news,
            shared.settings,
            shared.profiles,
            nodes.journal_end,
            nodes.static_revision,
            nodes.images.revision,
            shared.cache.objects.n_changes,
            tuple(shared.stuck),
            tuple(dry_run.going),
            tuple((uid, kept.node_name, kept.priority) for uid, kept in shared.cache.nominated.items()),
            tuple((one.info.uid, one.node_name, one.priority, id(one.keeps)) for one in dry_run.nominated),
            dry_run.lowest_priority,
        )

    # -- the share of time -------------------------------------------------------------------------------

    def may_search(self, demands: Sequence[Demand]) -> bool:
        """Whether failed searches have some of their share left for this unit."""
        self._pay()
        if self._spent < NODES_A_SECOND * SAVED_S:
            return True
        before_s = self._shared.now_s - NAMESPACE_S
        return any(self._failed_s.get(demand.group.key.namespace, before_s) <= before_s for demand in demands)

    def failed(self, key: Hashable, demands: Sequence[Demand], dry_run: DryRun, answer: Status) -> None:
        """Counts a search that found nothing, and keeps its answer for its like."""
        self._pay()
        n_kinds = sum(len(demand.by_template()) for demand in demands)
        is_lone = len(demands) == 1 and len(demands[0].members) == 1
        n_nodes = self._shared.cache.nodes.n_live * n_kinds * (1 if is_lone else _A_GANG)
        self._spent += min(n_nodes, _MOST_AT_ONCE)
        if len(self._failed_s) >= _MAX_NAMESPACES:
            self._failed_s.clear()
        self._failed_s.update((demand.group.key.namespace, self._shared.now_s) for demand in demands)
        if key is None or answer.code is Code.PENDING:
            return
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[key] = _Kept(self._read(dry_run), self._shared.now_s + KEPT_S, answer)

    def _pay(self) -> None:
        now_s = self._shared.now_s
        self._spent = max(self._spent - NODES_A_SECOND * (now_s - self._spent_s), 0.0)
        self._spent_s = now_s


def later(error: FitError) -> FitError:
    """The answer for a unit whose search has to wait."""
    return msgspec.structs.replace(error, why=together(error.why, LATER), code=Code.PENDING)


def _is_alike(known: Pod, pod: Pod) -> bool:
    """Whether nothing but the status differs, and of that nothing that matters to others."""
    return (
        known.spec == pod.spec
        and known.unreadable == pod.unreadable
        and known.status.phase == pod.status.phase
        and known.status.nominated_node_name == pod.status.nominated_node_name
        and _unversioned(known.metadata) == _unversioned(pod.metadata)
    )


def _unversioned(meta: ObjectMeta) -> ObjectMeta:
    return msgspec.structs.replace(meta, resource_version="", generation=0)
