"""PrioritySort: the queue's order. QueueSort only; called by core.state.line.queue when a group becomes
active.

Source: kube-scheduler `plugins/queuesort/priority_sort.go`.
"""

from __future__ import annotations

from typing import Any

from gangsched.core.types.group import Group


class PrioritySort:
    """Higher priority first, with what PreEnqueue adds to it; then the group that was complete first.

    kube-scheduler compares the time at which an entity entered the queue; ours is kept through failed
    attempts, so that an attempt does not cost a gang its place.
    """

    name = "PrioritySort"

    def sort_key(self, group: Group) -> tuple[Any, ...]:
        return (-group.priority - group.raised, group.first_complete_s)
