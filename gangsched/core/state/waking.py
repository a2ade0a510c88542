"""Waking: which groups that do not fit a turn's changes may have cured.

Thousands of equal pods wait for the same thing, so the plugins that refused them are asked once for all that
they refused alike. Called by core.state.queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from gangsched.core.cache.namespace_usage import QueueView
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Profile
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.core.types.group import Group, PodInfo

# These name their group and wake it directly.
_NAMES_GROUP = Change.GROUP_CHANGED | Change.SIBLING_CHANGED


class Waking:
    """Asks the plugins that refused a group."""

    def __init__(
        self,
        profile_of: Callable[[Group], Profile],
        queue_view: Callable[[], QueueView | None],
        members_to_admit: Callable[[Group], list[PodInfo]],
        blame: Callable[[PluginError, Group], None],
    ) -> None:
        self._profile_of = profile_of
        self._queue_view = queue_view
        self._members_to_admit = members_to_admit
        self._blame = blame

    def cured_by(self, changes: Sequence[ClusterChange], view: ClusterView) -> Callable[[Group], bool]:
        """A function that says whether one of these changes may cure a group."""
        heard = [one for one in changes if not one.what & _NAMES_GROUP]
        known: dict[Hashable, bool] = {}

        def is_cured(group: Group) -> bool:
            return bool(heard) and self._is_cured(group, heard, view, known)

        return is_cured

    def _is_cured(
        self, group: Group, changes: Sequence[ClusterChange], view: ClusterView, known: dict[Hashable, bool]
    ) -> bool:
        profile, queues = self._profile_of(group), self._queue_view()
        try:
            refusing = profile.admit_that_refused(group.rejected_by) if profile.admit_plugins else None
            if refusing is not None and queues is not None:
                members = self._members_to_admit(group)
                return any(profile.admits_again(refusing, group, members, one, queues) for one in changes)
            key = (group.scheduler_name, group.rejected_by)
            if key not in known:
                known[key] = any(profile.cures(one, group.rejected_by, view) for one in changes)
            return known[key]
        except PluginError as error:
            self._blame(error, group)
            return True
