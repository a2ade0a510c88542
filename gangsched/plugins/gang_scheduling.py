"""GangScheduling: when a gang whose members are all reserved may start (Permit).

It waits for things that the user has yet to create: groups that start together with it, members up to
total-members. It never waits for free resources (core.state.tables.groups says why). Named as
kube-scheduler's own gang plugin. Called by core.framework.profile.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import SUCCESS, Change, ClusterChange, Status
from gangsched.core.types.group import Group, MemberState
from gangsched.core.types.templates.pod_template import PodTemplate


class GangScheduling:
    """Permit for gangs; a lone pod passes."""

    name = "GangScheduling"
    may_be_overruled = False
    """The waits are part of the gang's definition: starting without them would bind an incomplete gang."""
    cured_by = Change.GROUP_CHANGED | Change.SIBLING_CHANGED

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        definition = group.definition
        if definition is None or group.has_started:
            return SUCCESS
        for name in () if group.starts_alone else group.start_together:
            if name != str(group.key):
                missing = _missing(name, siblings.get(name))
                if missing:
                    return Status.wait(missing, plugin=self.name)
        n_here = group.n_assumed + group.n_bound
        if n_here < definition.total_count:
            return Status.wait(f"{n_here} of {definition.total_count} members are here", plugin=self.name)
        return SUCCESS

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        return True


def _missing(name: str, sibling: Group | None) -> str:
    if sibling is None:
        return f"group {name} does not exist, or does not list this group"
    has_begun = sibling.has_started or sibling.counts[MemberState.DONE]
    if has_begun or sibling.n_assumed + sibling.n_bound >= sibling.min_count:
        return ""
    return f"group {name}: {sibling.n_existing} of {sibling.min_count} members exist"
