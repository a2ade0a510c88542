"""How important a group is: by what its pods were admitted with, and how far its PodGroup's word counts.

Kubernetes admits priority pod by pod: ResourceQuotas with a scope and admission policies see a pod's class,
none of them a PodGroup's. So a PodGroup that asks for more than its pods have comes earlier among groups of
equal priority in its own queue (Group.wished_priority), and nothing else follows from it, unless the
configuration lists its class. Less than its pods have counts everywhere. Called by core.groups.group_spec.
"""

from __future__ import annotations

from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.model.pod_group import PRIORITY_AT, PodGroup
from gangsched.model.text.printable import one_line
from gangsched.model.workloads import PRIORITY_CLASSES

_GONE = (MemberState.FAILED, MemberState.LEAVING)


def set_priority(shared: SharedState, group: Group) -> bool:
    """Sets the group's priority and wished_priority; returns whether either has changed."""
    before = group.priority, group.wished_priority
    definition, first = group.definition, group.first()
    own = _of_pods(group) if first is None or len(group.stated) > 1 else first.pod.spec.priority or 0
    if definition is None or (definition.priority is None and not definition.priority_class):
        group.priority = group.wished_priority = own
        return before != (own, own)
    wished = _wished(shared, definition, own)
    if definition.priority_class in shared.settings.pod_group_classes:
        group.priority = _by_class(shared, definition, own)
    else:
        group.priority = min(own, wished)
    group.wished_priority = max(group.priority, wished)
    if group.priority < own:
        shared.lowest_of_groups = min(shared.lowest_of_groups, group.priority)
    return (group.priority, group.wished_priority) != before


def ignored_wish(group: Group) -> str:
    """What a PodGroup wishes that asks for more than its pods have; "" if it does not."""
    definition = group.definition
    if definition is None or group.wished_priority <= group.priority:
        return ""
    named = one_line(definition.priority_class)
    by = f"PriorityClass {named}" if named else "spec.priority"
    return (
        f"it asks for priority {group.wished_priority} ({by}), and its pods have "
        f"{group.priority}: that orders groups of equal priority in one queue, and nothing else; give the "
        "pods a class of that value, or have the class listed in podGroupPriorityClasses"
    )


def _of_pods(group: Group) -> int:
    """The priority that its members were admitted with; the least, where those of a running gang differ."""
    if len({statement[PRIORITY_AT] for statement in group.stated}) > 1:
        there = [_admitted(info) for info in group.members.values() if info.state not in _GONE]
        if there:
            return min(there)
    first = group.first()
    return group.priority if first is None else _admitted(first)


def _admitted(info: PodInfo) -> int:
    return info.pod.spec.priority or 0


def _wished(shared: SharedState, definition: PodGroup, own: int) -> int:
    return _by_class(shared, definition, own) if definition.priority is None else definition.priority


def _by_class(shared: SharedState, definition: PodGroup, own: int) -> int:
    """The value of the class that the PodGroup names. For another system's, only if the pods have no priority
    of their own (none, or the default)."""
    classes = shared.cache.objects.objects(PRIORITY_CLASSES)
    named = classes.get(("", definition.priority_class))
    if named is None:
        return own
    given = [one.value for one in classes.values() if one.global_default]
    return named.value if definition.priority is not None or own in (0, *given) else own
