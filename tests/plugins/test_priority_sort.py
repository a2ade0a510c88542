"""PrioritySort: priority first, then who was complete first."""

from __future__ import annotations

from gangsched.core.types.group import Group
from gangsched.model.pod_group import OURS, GroupKey
from gangsched.plugins.priority_sort import PrioritySort


def group(name: str, *, priority: int, first_complete_s: float) -> Group:
    made = Group(GroupKey(OURS, "default", name), "gangsched")
    made.priority = priority
    made.first_complete_s = first_complete_s
    return made


def test_higher_priority_goes_first_then_the_earlier_group() -> None:
    groups = [
        group("late", priority=0, first_complete_s=9.0),
        group("early", priority=0, first_complete_s=1.0),
        group("urgent", priority=100, first_complete_s=50.0),
        group("never-mind", priority=-5, first_complete_s=0.0),
    ]
    ordered = sorted(groups, key=PrioritySort().sort_key)
    assert [one.key.name for one in ordered] == ["urgent", "early", "late", "never-mind"]
