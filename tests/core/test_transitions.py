"""The gang's table: every edge walked, nothing beside it, and the story that is remembered of it."""

from __future__ import annotations

import ast
from itertools import pairwise, product
from pathlib import Path

import pytest

import gangsched
from gangsched.core.state.tables.groups import TRANSITIONS, Cause, drawn, move, story
from gangsched.core.types.group import Group, GroupState
from gangsched.errors import InvariantError
from gangsched.model.pod_group import OURS, GroupKey

KEY = GroupKey(OURS, "default", "a")


def group_in(state: GroupState) -> Group:
    group = Group(KEY, "gangsched")
    group.state = group.moved_from = state
    return group


@pytest.mark.parametrize(("edge", "to"), TRANSITIONS.items(), ids=lambda one: str(one))
def test_every_edge_leads_where_the_table_says(edge: tuple[GroupState, Cause], to: GroupState) -> None:
    before, cause = edge
    group = group_in(before)
    assert move(group, cause, 7.0) is before
    assert group.state is to
    if before is to:
        assert (story(group), group.since_s) == ([], 0.0), "it has not moved"
    else:
        assert story(group) == [(7.0, cause, before, to)]
        assert group.since_s == 7.0


def test_a_move_that_the_table_does_not_have_is_a_defect_with_its_story() -> None:
    missing = [pair for pair in product(GroupState, Cause) if pair not in TRANSITIONS]
    assert missing
    for state, cause in missing:
        group = group_in(state)
        with pytest.raises(InvariantError, match=f"is {state.value} and cannot be moved by {cause.name}"):
            move(group, cause, 1.0)
        assert group.state is state
    group = group_in(GroupState.GATHERING)
    move(group, Cause.COMPLETE, 2.5)
    with pytest.raises(InvariantError) as caught:
        move(group, Cause.ALL_BOUND, 3.0)
    assert caught.value.story == ("2.500 active: enough members exist and its numbers are known",)


def test_every_state_is_reached_and_only_the_end_is_an_end() -> None:
    assert {to for (before, _), to in TRANSITIONS.items() if before is not to} == set(GroupState)
    left = {before for (before, _), to in TRANSITIONS.items() if before is not to}
    assert set(GroupState) - left == {GroupState.DELETED}
    assert {cause for _, cause in TRANSITIONS} == set(Cause)


def test_nothing_else_writes_a_groups_state() -> None:
    """Assignments to `group.state` and its like; a member's state is `info.state`."""
    writers = set()
    for path in (Path(gangsched.__file__).parent / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == "state":
                    owner = ast.unparse(target.value)
                    writers |= {(path.name, owner)} if owner != "info" else set()
    assert writers == {("groups.py", "group"), ("group.py", "self")}


def test_a_long_story_keeps_its_newer_half() -> None:
    group = group_in(GroupState.GATHERING)
    for k in range(500):
        cause = Cause.COMPLETE if group.state is GroupState.GATHERING else Cause.INCOMPLETE
        move(group, cause, float(k))
    told = story(group)
    assert 32 <= len(told) <= 64
    assert [moved.at_s for moved in told] == [float(k) for k in range(500 - len(told), 500)]
    assert told[-1].state is group.state
    for one, after in pairwise(told):
        assert one.state is after.before


def test_the_table_is_drawn_whole() -> None:
    text = drawn()
    assert all(f"`{cause.name}`" in text for cause in Cause)
    assert "| `ALL_BOUND` | every bind landed | binding | bound |" in text
