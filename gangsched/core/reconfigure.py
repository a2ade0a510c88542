"""Taking over another configuration while running: between two turns; pods keep what they hold.

Lives here: which parts of the core's state depend on profiles and settings, and how they follow. Not here:
validating the configuration (config, plugins), when it is read (extension.reload). Called by core.scheduler.

| what changes | groups that wait, queue or run |
|---|---|
| plugins, args, weights | reservations stay; Permit is asked anew; rejected groups may try again |
| a plugin that remembers reservations | the new one inherits from the one before it |
| QueueSort | the line is sorted anew |
| a profile comes | its pods, another scheduler's until now, are listed again and are ours |
| evictions are not allowed any more | who waits for victims gives up, what is being evicted stays |
| a profile goes | its reservations are released, its pods are another scheduler's and keep what they have |
| and has gangs that are being bound | those are bound or unwound as by the profile that it was; none begins |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.binding.group_outcome import GroupOutcome
from gangsched.core.framework.binding_points import InheritingPlugin
from gangsched.core.framework.plugin_calls import blamed
from gangsched.core.framework.profile import Profile
from gangsched.core.framework.serves import serves
from gangsched.core.groups.attempts import NOT_ANY_MORE, Attempts
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.membership import Membership
from gangsched.core.groups.pod_versions import is_unseen
from gangsched.core.preemption.victims import is_leaving
from gangsched.core.state.state import SharedState
from gangsched.core.state.transitions import Cause
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.model.objects import Pod
from gangsched.model.owners import kinds_read

_IS_GONE = "its profile is gone from the configuration"
_BY_PROFILE = ("nodes_to_score", "infer_gangs", "foreign_markers", "packing_weights")
_MOVING = (GroupState.BINDING, GroupState.UNWINDING)


def unfinished(shared: SharedState, names: frozenset[str]) -> list[Group]:
    """Groups of profiles other than `names` that cannot be dropped now.

    Binds or evictions are in flight, or it is bound in part; or a bind is answered and not shown by the watch
    yet: of these pods only we know where they are.
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
    """Its profile, and what its members name: it may not start where these differ, and yet they are in it."""
    return {group.scheduler_name, *(str(stated[0]) for stated in group.stated)}


def reconfigure(
    shared: SharedState,
    membership: Membership,
    group_specs: GroupSpecs,
    attempts: Attempts,
    outcome: GroupOutcome,
    profiles: Mapping[str, Profile],
    settings: Settings,
) -> None:
    """These profiles and settings are in effect from here on.

    A profile that goes stays beside them, retiring, while it has groups that are `unfinished`, until this is
    called again.
    """
    for group in shared.groups.values():
        if group.scheduler_name not in profiles and group.state is GroupState.WAITING:
            attempts.give_back(group, _IS_GONE)
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
        shared.drop_group(group)
    added = frozenset(profiles).difference(shared.profiles)
    _hand_over(shared, profiles)
    shared.configure(profiles, settings)
    _stop_evicting(shared, attempts, outcome)
    membership.reconfigured()
    membership.pre_enqueue.forget_all()
    for info in left:
        _put_anew(shared, membership, info.pod)
    group_specs.forget_strangers_of(added)
    for uid, kept in list(shared.cache.nominated.items()):
        if kept.info.group is None and kept.info.pod.spec.scheduler_name in added:
            shared.changes += shared.cache.unnominate(uid)  # another scheduler's word: it may be anywhere
    for info in list(shared.cache.pods.values()):
        if info.group is None and info.pod.spec.scheduler_name in added and info.uid not in shared.unanswered:
            _put_anew(shared, membership, info.pod)
    for info in list(shared.cache.pods.values()):
        if info.group is not None and info.state in (MemberState.PENDING, MemberState.GATED):
            membership.look_again(info.uid)
    for group in list(shared.groups.values()):
        if group.definition is not None and group.definition.unsupported:
            shared.touch(group)  # it may be refused no longer, or from now on
        if group.active_token or (group.state is GroupState.WAITING and group.n_assumed):
            shared.queue.activate(group, Cause.RECONFIGURED)
        elif group.state is GroupState.UNSCHEDULABLE:
            shared.queue.wake(group, Cause.RECONFIGURED, shared.now_s)


def _put_anew(shared: SharedState, membership: Membership, pod: Pod) -> None:
    """A pod that was known under the profiles before these."""
    if pod.spec.scheduler_name in shared.profiles:
        membership.join_again(pod)
    else:
        membership.put_stranger(pod, shared.cache.pods.get(pod.metadata.uid))


def _hand_over(shared: SharedState, profiles: Mapping[str, Profile]) -> None:
    """Plugins that are made anew learn what those before them remember of reservations, which stay."""
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
    """Also what was said by profile of these: an inferred gang must not fall apart while it is bound."""
    kept: dict[str, Any] = {}
    for field in _BY_PROFILE:
        own = getattr(before, field)
        kept[field] = {**getattr(settings, field), **{name: own[name] for name in names if name in own}}
    return replace(settings, **kept)


def _stop_evicting(shared: SharedState, attempts: Attempts, outcome: GroupOutcome) -> None:
    """Evictions are asked again until the pods go: those that are not allowed any more are not."""
    settings = shared.settings
    for group in list(shared.groups.values()):
        waited = group.preemption
        if waited is not None:
            is_wanted = settings.evicts_for_claims if waited.is_overrun else settings.allow_eviction
            if not is_wanted and not all(is_leaving(info) for info in waited.waits_for.values()):
                attempts.give_back(group, NOT_ANY_MORE)
        elif group.state is GroupState.UNWINDING:
            is_over = outcome.is_overrun(group) and not settings.ends_overrun
            if is_over or not settings.allow_eviction:
                outcome.stays(group)


def watched(profiles: Iterable[Profile], settings: Settings) -> tuple[str, ...]:
    """Kinds that some plugin names in its `watches` or that gangs are inferred from, each once, in order."""
    found = watched_by_plugins(profiles)
    for inferred in settings.infer_gangs.values():
        found.update(kinds_read(inferred))
    return tuple(sorted(found))


def watched_by_plugins(profiles: Iterable[Profile]) -> set[str]:
    """Kinds that some plugin names in its `watches`."""
    plugins = (plugin for profile in profiles for plugin in profile.plugins)
    return {kind for plugin in plugins for kind in getattr(plugin, "watches", ())}
