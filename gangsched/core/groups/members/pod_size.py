"""What a pod counts for in its present version. Functions called by core.groups.members.membership.

A pod may be resized at any time, even while its bind is in flight: it was reserved with its former requests,
and runs with its new ones.
"""

from __future__ import annotations

from gangsched.core.binding.reservation_checks import is_resized
from gangsched.core.groups.members.pod_versions import is_edited
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PENDING, MemberState, PodInfo
from gangsched.core.types.templates.pod_template import device_demands_of
from gangsched.model.objects import Pod

AT_THE_GATE = (MemberState.GATED, PENDING)


def may_change_template(info: PodInfo, old: Pod, pod: Pod) -> bool:
    """Whether its template may be different with this version."""
    if pod.spec.node_name and not old.spec.node_name:
        return is_resized(info, pod)
    return (
        pod.spec != old.spec
        or pod.unreadable != old.unreadable
        or (not pod.spec.node_name and device_demands_of(pod) != device_demands_of(old))
        or (info.state in AT_THE_GATE and is_edited(old, pod))
    )


def recount_pod(shared: SharedState, info: PodInfo, pod: Pod) -> None:
    """Counts the pod by this version, on the node where it is."""
    template = shared.cache.template_of(pod)
    if template is info.template:
        return
    node_name, allocation = info.node_name, info.allocation
    change = shared.cache.forget(info)
    info.template = template
    if node_name:
        shared.cache.place(info, node_name, allocation)
        if change is not None:
            shared.changes.append(change)
    if info.group is not None:
        shared.mark_group(info.group)
        if shared.claims is not None:
            shared.claims.edited(info.group)
