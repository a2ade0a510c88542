"""Waking: which groups that do not fit a turn's changes may have cured.

Thousands of equal pods wait for the same thing, so the plugins that refused them are asked once for all pods
that they refused alike. What becomes free on a claimed node is looked at as the group would find it, less
what the claims keep from it: otherwise each pod that ends where a gang waits would have the whole line tried
in vain. Such a group is woken when the claim moves or ends (core.queueing.claims, `freed`). Three things also
wake a group: its queue holds less than its guarantee because a pod of that queue is gone, on whatever node;
another queue begins to borrow, so that room may be made for the group; or what becomes free is enough
together with what the group may evict on that node: less important pods, or those of other queues. Called by
core.state.line.queue.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from gangsched.config import Settings
from gangsched.core.cache.cache import Cache
from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cycle.cycle import GANG, reserve_nominated
from gangsched.core.framework.eviction_rule import EvictionRule
from gangsched.core.framework.plan import TOPOLOGY
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.points.queueing import AdmitPlugin
from gangsched.core.framework.profile import DEVICES, Profile
from gangsched.core.preemption.victims import may_preempt, priority_of
from gangsched.core.queueing.claims import Claims
from gangsched.core.queueing.kept_from import kept_from
from gangsched.core.queueing.walltimes import Walltimes
from gangsched.core.state.holes import Holes
from gangsched.core.state.line.early_turns import Cures
from gangsched.core.state.line.enough import Enough, Sums
from gangsched.core.state.pending_hooks import PendingHooks
from gangsched.core.state.start_together import StartTogether
from gangsched.core.types.claim import StartClaim
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate

# These changes name their group and wake it directly.
_NAMES_GROUP = Change.GROUP_CHANGED | Change.SIBLING_CHANGED
# What refuses a group without naming a template: rules on gangs and their domains, and sums of all nodes.
_OUR_RULES = frozenset((GANG, TOPOLOGY, ""))
_GIVES_ROOM = Change.ROOM_FREED | Change.NODE_ALLOCATABLE | Change.NODE_DEVICES


class _Shared(Protocol):
    """What is read of core.state.state.SharedState."""

    cache: Cache
    settings: Settings
    hooks: PendingHooks
    queue_view: QueueView | None
    claims: Claims | None
    walltimes: Walltimes | None
    start_together: StartTogether
    holes: Holes

    @property
    def now_s(self) -> float: ...
    def profile_of(self, group: Group) -> Profile: ...
    def lowest_priority(self) -> int: ...


class Waking:
    """Asks the plugins that refused a group."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    def cured_by(self, changes: Sequence[ClusterChange]) -> Cures:
        """Returns which groups these changes may cure."""
        return _Cures(self._shared, [one for one in changes if not one.what & _NAMES_GROUP])

    def lacks_room(self, group: Group) -> bool:
        """Whether its last attempt failed for want of room, on nodes or within a limit: not if a plugin
        failed, or refused it once it was placed."""
        own = group.rejected_by
        if any(template is not None or name in _OUR_RULES for name, template in own):
            return True
        profile = self._shared.profile_of(group)
        return bool(profile.admit_plugins) and profile.admit_that_refused(own) is not None


class _Cures:
    """Some changes, and the plugins' answers about them."""

    def __init__(self, shared: _Shared, changes: Sequence[ClusterChange]) -> None:
        self._shared = shared
        self._changes = changes
        self._view = view = shared.cache.view
        self._enough = Enough(shared, view, shared.cache.nominated)
        self._answers: dict[Hashable, bool] = {}
        self._beside: dict[tuple[int, ...], ClusterView] = {(): view}
        """By the serials of claims: the changed nodes, less what these claims keep."""
        claims = shared.claims
        rows = {one.row for one in changes if one.row >= 0}
        self._all_names = {view.name(row) for row in rows}
        self._names = self._all_names if claims is not None and claims.by_key else set()
        there = claims.all if claims is not None and self._names else []
        self._claims = [claim for claim in there if not self._names.isdisjoint(claim.nodes)]
        self._has_less: dict[str, bool] = {}
        """By queue: whether some of its pods freed room, and it holds less than its guarantee."""
        self._lowest = shared.lowest_priority()
        self._without_lower: dict[tuple[int, ...], tuple[list[ClusterChange], ClusterView]] = {}
        """By priority and serials of claims: changes that freed more than pods of lower priority held there,
        and the nodes without lower pods and with all that the claims will need."""
        self._would_do: dict[Hashable, bool] = {}

    def may_cure(self, group: Group) -> bool:
        """Whether the group may fit now."""
        shared = self._shared
        profile, queues = shared.profile_of(group), shared.queue_view
        try:
            refusing = profile.admit_that_refused(group.rejected_by) if profile.admit_plugins else None
            if refusing is not None and queues is not None:
                members = shared.start_together.members_to_admit(group)
                again = (profile.admits_again(refusing, group, members, one, queues) for one in self._changes)
                return any(again) or self._may_make_way(profile, refusing, group, queues)
            kept: Sequence[StartClaim] = ()
            if self._is_cured(profile, group, self._view, ()):
                kept = self._kept_from(profile, group)
                serials = tuple(claim.serial for claim in kept)
                if not kept or self._is_cured(profile, group, self._less(serials, kept), serials):
                    return True
            if group.priority > self._lowest and self._may_preempt(profile, group, kept):
                return True
            return queues is not None and self._may_take(profile, group, queues)
        except PluginError as error:
            shared.hooks.blame(error, group)
            return True

    def _may_make_way(self, profile: Profile, refusing: AdmitPlugin, group: Group, queues: QueueView) -> bool:
        """Whether a group at a limit may have pods below it evicted since something there has changed."""
        book, shared = queues.queues, self._shared
        if book is None or not profile.post_filters or not shared.settings.allow_eviction:
            return False
        path = book.tree.paths.get(queues.queue_of(group), ())
        if not path or not any(self._frees(one, path[0], book) for one in self._changes):
            return False
        members = shared.start_together.members_to_admit(group)
        return profile.may_admit_without(refusing, group, members, queues)

    def is_news(self, group: Group) -> bool:
        """Whether a group that waits for victims may fit without them now: something has changed on its own
        nodes, or where no room is kept for units like it."""
        shared = self._shared
        assert group.preemption is not None
        if not self._all_names.isdisjoint(group.preemption.nodes):
            return True
        try:
            trial = self._enough.less_kept(group.priority)
            return self._is_cured(shared.profile_of(group), group, trial, (-1, group.priority))
        except PluginError as error:
            shared.hooks.blame(error, group)
            return True

    def sums(self, group: Group) -> Sums:
        """Says whether what is free adds up for the group (core.state.line.enough)."""
        return self._enough.sums(group)

    def _may_preempt(self, profile: Profile, group: Group, kept: Sequence[StartClaim]) -> bool:
        """Whether it may fit if pods of lower priority go, beside all that these claims will need.

        Room freed by such a pod is no news: the group could have had it evicted, unless it was kept from
        that.
        """
        if not profile.post_filters or not self._shared.settings.allow_eviction:
            return False
        key = (group.scheduler_name, group.rejected_by, group.priority, *(claim.serial for claim in kept))
        if key not in self._would_do:
            changes, view = self._less_important_gone(group.priority, kept)
            self._would_do[key] = any(
                profile.cures(one, _refused_then(profile, group, one), view) for one in changes
            )
        return self._would_do[key] and may_preempt(group, group.members.values())

    def _less_important_gone(
        self, priority: int, kept: Sequence[StartClaim]
    ) -> tuple[list[ClusterChange], ClusterView]:
        key = (priority, *(claim.serial for claim in kept))
        known = self._without_lower.get(key)
        if known is None:
            lower: dict[int, list[PodInfo]] = {}
            changes = []
            for one in self._changes:
                if not one.what & _GIVES_ROOM:
                    continue
                if one.row < 0:  # merged: some lower pod may be there
                    changes.append(one)
                    continue
                if one.pod is not None and not one.was_kept and (one.pod.spec.priority or 0) < priority:
                    continue
                if one.row not in lower:
                    there = self._view.pods_on(one.row)
                    lower[one.row] = [info for info in there if priority_of(info) < priority]
                if lower[one.row]:
                    changes.append(one)
            view = self._view
            if changes:
                view = trial = Trial(self._view)
                trial.remove(*(info for infos in lower.values() for info in infos))
                held = (one for claim in kept for one in claim.held)
                reserve_nominated(trial, [one for one in held if one.node_name in self._names])
            known = self._without_lower[key] = changes, view
        return known

    def _may_take(self, profile: Profile, group: Group, queues: QueueView) -> bool:
        """Whether it may evict other queues' pods now: its queue holds less than before, or what becomes free
        is enough with what it may take on that node."""
        book = queues.queues
        if book is None or not book.tree.guarantees or not profile.admit_plugins:
            return False
        path = book.tree.paths.get(queues.queue_of(group), ())
        if not any(_is_due(name, book) for name in path):
            return False
        has_less = any(self._has_less_now(name, book) for name in path)
        key = (group.scheduler_name, group.rejected_by, group.priority, len(group.members), path)
        if not has_less and key in self._would_do:
            return self._would_do[key]
        rule = profile.eviction_rule([group], self._shared.start_together.members_to_admit(group), queues)
        if rule is None or not rule.takes_any:
            return False
        if not has_less:
            self._would_do[key] = self._fits_without(profile, group, rule)
        return has_less or self._would_do[key]

    def _fits_without(self, profile: Profile, group: Group, rule: EvictionRule) -> bool:
        """Whether the group may fit where room was freed, if all pods go that it may evict there."""
        going = {
            row: [
                info
                for info in self._view.pods_on(row)
                if rule.may_take(info, is_lower=priority_of(info) < group.priority)
            ]
            for row in {one.row for one in self._changes if one.row >= 0 and one.what & _GIVES_ROOM}
        }
        trial = Trial(self._view)
        trial.remove(*(info for infos in going.values() for info in infos))
        return any(
            profile.cures(one, _refused_then(profile, group, one), trial)
            for one in self._changes
            if going.get(one.row) or (one.row < 0 and one.what & _GIVES_ROOM)
        )

    def _has_less_now(self, name: str, book: QueueBook) -> bool:
        known = self._has_less.get(name)
        if known is None:
            known = self._has_less[name] = _is_due(name, book) and any(
                self._frees(one, name, book) for one in self._changes
            )
        return known

    def _frees(self, change: ClusterChange, name: str, book: QueueBook) -> bool:
        """Whether the change frees room that the queue's pods held, not only room reserved for them."""
        if change.pod is None or not change.what & Change.ROOM_FREED:
            is_merged = change.row < 0 and bool(change.what & Change.ROOM_FREED)
            return is_merged or bool(change.what & (Change.NODE_REMOVED | Change.BORROWED))
        return name in book.tree.paths.get(book.tree.choice(change.pod).queue, ())

    def _is_cured(self, profile: Profile, group: Group, view: ClusterView, serials: tuple[int, ...]) -> bool:
        key = (group.scheduler_name, group.rejected_by, serials)
        if key not in self._answers:
            self._answers[key] = any(profile.cures(one, group.rejected_by, view) for one in self._changes)
        return self._answers[key]

    def _kept_from(self, profile: Profile, group: Group) -> Sequence[StartClaim]:
        """Returns the claims on changed nodes to which the group yields if it starts now. None for a group
        with a claim or with groups that start with it, nor where queues have rights to what is kept
        (core.kept.kept): those groups are woken by all room that would do for them."""
        shared, claims = self._shared, self._shared.claims
        if not self._claims or claims is None or shared.walltimes is None:
            return []
        if group.start_together or claims.claim(group) is not None:
            return []
        if shared.queue_view is not None and profile.admit_plugins:
            return []
        return kept_from(shared, [group], shared.now_s, among=self._claims).claims

    def _less(self, serials: tuple[int, ...], kept: Sequence[StartClaim]) -> ClusterView:
        known = self._beside.get(serials)
        if known is None:
            known = Trial(self._view)
            assert self._shared.claims is not None
            there = self._shared.claims.kept_now(kept)
            reserve_nominated(known, [one for one in there if one.node_name in self._names])
            self._beside[serials] = known
        return known


def _refused_then(
    profile: Profile, group: Group, change: ClusterChange
) -> Sequence[tuple[str, PodTemplate | None]]:
    """Returns what may refuse the group where pods are gone.

    A node without room was not asked for more, so unhealthy devices there were no reason yet.
    """
    own = group.rejected_by
    if not (profile.names_devices and change.what & Change.NODE_DEVICES):
        return own
    return (*own, *((DEVICES, template) for _, template in own if template is not None))


def _is_due(queue: str, book: QueueBook) -> bool:
    """Whether the queue holds less than its guarantee."""
    used = book.used(queue)
    return any(used.get(resource, 0) < amount for resource, amount in book.guaranteed(queue).items())
