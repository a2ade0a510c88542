"""Applies a new configuration while running, between two turns; pods keep what they hold.

Here: which parts of the core's state depend on profiles and settings, and how they are updated. Not here:
validating the configuration (config, plugins), when it is read (extension.reload). Called by core.scheduler.

| what changes | what happens to groups |
|---|---|
| plugins, args, weights | reservations stay; Permit is asked again; rejected groups may try again |
| a plugin that remembers reservations | the new instance inherits from the old one |
| QueueSort | the queue is sorted again |
| a profile is added | its pods, another scheduler's until now, are listed again and become ours |
| evictions are no longer allowed | groups that wait for victims give up; pods still being evicted stay |
| a profile is removed | its reservations are released; its pods become another scheduler's, as they are |
| ... while it binds gangs | those are bound or unwound by the old profile; no new attempt begins |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.cache.queues.kueue_admissions import ADMISSIONS
from gangsched.core.framework.plugin_calls import blamed
from gangsched.core.framework.points.binding import InheritingPlugin
from gangsched.core.framework.profile import Profile
from gangsched.core.framework.supports import SupportsWatches, serves
from gangsched.core.groups.attempts.attempts import NOT_ANY_MORE, Attempts
from gangsched.core.groups.members.membership import Membership
from gangsched.core.groups.members.pod_versions import is_unseen
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.turns.parts import SchedulerParts
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.model.objects import Pod
from gangsched.model.owners import kinds_read

_IS_GONE = "its profile is gone from the configuration"
_BY_PROFILE = ("nodes_to_score", "infer_gangs", "foreign_markers", "packing_weights")
_MOVING = (GroupState.BINDING, GroupState.UNWINDING)


def unfinished(shared: SharedState, names: frozenset[str]) -> list[Group]:
    """Groups of profiles other than `names` that cannot be dropped now.

    Their binds or evictions are in flight, or they are bound in part. Or a bind is answered but the watch
    does not show it yet, so only we know where the pod is.
    """
    groups = [group for group in shared.groups.values() if not names.issuperset(_names_of(group))]
    return [
        group
        for group in groups
        if group.state in _MOVING
        or (group.is_half_bound and shared.settings.allow_eviction)
        or any(map(is_unseen, group.members.values()))
    ]


def _names_of(group: Group) -> set[str]:
    """The group's profile, and those its members name; if these differ it may not start."""
    return {group.scheduler_name, *(str(stated[0]) for stated in group.stated)}


def reconfigure(on: SchedulerParts, profiles: Mapping[str, Profile], settings: Settings) -> None:
    """Puts these profiles and settings into effect.

    A removed profile that has `unfinished` groups is kept, retiring, until this is called again without them.
    """
    shared, membership, attempts = on.shared, on.membership, on.attempts
    for group in shared.groups.values():
        if group.scheduler_name not in profiles and group.state is GroupState.WAITING:
            attempts.commits.give_back(group, _IS_GONE)
    staying = [_names_of(group) for group in unfinished(shared, frozenset(profiles))]
    shared.retiring = frozenset(name for names in staying for name in names if name not in profiles)
    if shared.retiring:
        profiles = {**profiles, **{name: shared.profiles[name] for name in sorted(shared.retiring)}}
        settings = _with_those_of(shared.settings, settings, shared.retiring)
    gone = [group for group in shared.groups.values() if group.scheduler_name not in profiles]
    left = [info for group in gone for info in group.members.values()]
    for group in shared.groups.values():
        if group.scheduler_name in profiles and not profiles.keys() >= _names_of(group):
            left += [one for one in group.members.values() if one.pod.spec.scheduler_name not in profiles]
    for info in left:
        membership.let_go(info)
    for group in gone:
        membership.drop(group)
    added = frozenset(profiles).difference(shared.profiles)
    _hand_over(shared, profiles)
    shared.configure(profiles, settings)
    _stop_evicting(shared, attempts, on.binder.outcome)
    membership.reconfigured()
    membership.pre_enqueue.forget_all()
    for info in left:
        _put_again(shared, membership, info.pod)
    on.group_specs.forget_strangers_of(added)
    for uid, kept in list(shared.cache.nominated.items()):
        if kept.info.group is None and kept.info.pod.spec.scheduler_name in added:
            shared.release_kept(uid)  # another scheduler nominated the node
    for info in list(shared.cache.pods.values()):
        if info.group is None and info.pod.spec.scheduler_name in added and info.uid not in shared.unanswered:
            _put_again(shared, membership, info.pod)
    for info in list(shared.cache.pods.values()):
        if info.group is not None and info.state in (MemberState.PENDING, MemberState.GATED):
            membership.ask_pre_enqueue(info.uid)
    for group in list(shared.groups.values()):
        if group.definition is not None and (group.definition.unsupported or group.definition.wishes):
            shared.mark_group(group)  # the new settings decide whether it is refused
        if group.active_token or (group.state is GroupState.WAITING and group.n_assumed):
            shared.queue.activate(group, Cause.RECONFIGURED)
        elif group.state is GroupState.UNSCHEDULABLE:
            shared.queue.wake(group, Cause.RECONFIGURED, shared.now_s)


def _put_again(shared: SharedState, membership: Membership, pod: Pod) -> None:
    """Puts a known pod back under the new profiles: as ours, or as another scheduler's."""
    if pod.spec.scheduler_name in shared.profiles:
        membership.join_again(pod)
    else:
        membership.put_stranger(pod, shared.cache.pods.get(pod.metadata.uid))


def _hand_over(shared: SharedState, profiles: Mapping[str, Profile]) -> None:
    """Lets new plugin instances inherit what the old ones remember of reservations, which stay."""
    for name in [name for name in profiles if name in shared.profiles]:
        for plugin in profiles[name].plugins:
            before = shared.profiles[name].plugin(plugin.name)
            is_another = before is not plugin and type(before) is type(plugin)
            if not is_another or not serves(plugin, InheritingPlugin):
                continue
            try:
                plugin.inherit(before)
            except Exception as error:  # the configuration is in effect all the same
                shared.hooks.blame(blamed(plugin.name, "Inherit", error))


def _with_those_of(before: Settings, settings: Settings, names: Iterable[str]) -> Settings:
    """Keeps the per-profile settings of `names`: an inferred gang must not fall apart while it is bound."""
    kept: dict[str, Any] = {}
    for field in _BY_PROFILE:
        own = getattr(before, field)
        kept[field] = {**getattr(settings, field), **{name: own[name] for name in names if name in own}}
    return replace(settings, **kept)


def _stop_evicting(shared: SharedState, attempts: Attempts, outcome: GroupOutcome) -> None:
    """Stops evictions that are no longer allowed; they would be requested again until the pods go."""
    settings = shared.settings
    for group in list(shared.groups.values()):
        waited = group.preemption
        if waited is not None:
            is_wanted = settings.evicts_for_claims if waited.is_overrun else settings.allow_eviction
            if not is_wanted and not all(is_leaving(info) for info in waited.waits_for.values()):
                attempts.commits.give_back(group, NOT_ANY_MORE)
        elif group.state is GroupState.UNWINDING:
            is_over = outcome.is_overrun(group) and not settings.ends_overrun
            if is_over or not settings.allow_eviction:
                outcome.stays(group)


def watched(profiles: Iterable[Profile], settings: Settings) -> tuple[str, ...]:
    """Kinds that some plugin `watches` or that gangs are inferred from, each once, sorted."""
    found = watched_by_plugins(profiles)
    for inferred in settings.infer_gangs.values():
        found.update(kinds_read(inferred))
    if settings.queues is not None and settings.queues.by_kueue:
        found.add(ADMISSIONS)
    return tuple(sorted(found))


def watched_by_plugins(profiles: Iterable[Profile]) -> set[str]:
    """Kinds that some plugin names in its `watches`."""
    plugins = (plugin for profile in profiles for plugin in profile.plugins)
    return {kind for plugin in plugins if serves(plugin, SupportsWatches) for kind in plugin.watches}
