"""The tables of a Binding and of a gang's start: every edge walked, nothing beside it, one writer each."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

import gangsched
from gangsched.core.state.tables import binds as bind_table
from gangsched.core.state.tables import groups as transitions
from gangsched.core.state.tables import starts as start_table
from gangsched.core.state.tables.binds import BINDS, BindCause, move_bind, move_binds
from gangsched.core.state.tables.starts import STARTS, StartCause, move_start
from gangsched.core.types.group import Group
from gangsched.core.types.states import ON_ITS_WAY, BindState, GroupState, StartState
from gangsched.errors import InvariantError
from tests.support.scenario import Cluster, cluster, gang

CORE = Path(gangsched.__file__).parent / "core"


def one_gang() -> tuple[Cluster, Group]:
    c = cluster().submit(gang("a", pods=2)).run()
    [group] = c.groups()
    return c, group


def test_a_binding_moves_as_the_table_says_and_in_no_other_way() -> None:
    _, group = one_gang()
    [info, other] = group.members.values()
    for state, cause in product(BindState, BindCause):
        info.bind = state
        if (state, cause) in BINDS:
            move_bind(info, cause)
            assert info.bind is BINDS[state, cause]
            continue
        with pytest.raises(InvariantError, match=f"is {state.value} and cannot be moved by {cause.name}"):
            move_bind(info, cause)
        assert info.bind is state
    info.bind = other.bind = BindState.NONE
    move_binds([info, other], BindCause.SENDS)
    assert (info.bind, other.bind) == (BindState.SENT, BindState.SENT)


def test_a_gangs_start_moves_as_the_table_says_and_in_no_other_way() -> None:
    _, group = one_gang()
    for state, cause in product(StartState, StartCause):
        group.start = state
        if (state, cause) in STARTS:
            move_start(group, cause)
            assert group.start is STARTS[state, cause]
            continue
        with pytest.raises(InvariantError, match=f"is {state.value} and cannot be moved by {cause.name}"):
            move_start(group, cause)
        assert group.start is state


def test_each_table_forbids_more_than_it_allows_and_uses_every_cause() -> None:
    tables = (
        (BINDS, BindState, BindCause),
        (STARTS, StartState, StartCause),
        (transitions.TRANSITIONS, GroupState, transitions.Cause),
    )
    for table, states, causes in tables:
        assert 2 * len(table) < len(states) * len(causes)
        assert {cause for _, cause in table} == set(causes)
        assert set(table.values()) == set(states)


def test_what_may_land_is_given_up_only_by_what_makes_sure_that_it_cannot() -> None:
    """Nothing leads out of `sent`, `reading` and `bumping` but the server's answers, and faults of ours."""
    sure = {BindCause.LANDED, BindCause.FREED, BindCause.SEEN, BindCause.CONTAINED, BindCause.DROPPED}
    out = [pair for pair, to in BINDS.items() if pair[0] in ON_ITS_WAY and to not in ON_ITS_WAY]
    leaving = {cause for _, cause in out}
    assert leaving == sure


@pytest.mark.parametrize(("attribute", "writer"), [("bind", "binds.py"), ("start", "starts.py")])
def test_each_state_has_one_writer(attribute: str, writer: str) -> None:
    writers = set()
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            for target in targets:
                for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                    if isinstance(one, ast.Attribute) and one.attr == attribute:
                        writers.add((path.name, ast.unparse(one.value)))
    others = {("group.py", "self")} if attribute == "start" else set()
    assert writers - others == {(writer, "info" if attribute == "bind" else "group")}


def test_the_tables_are_drawn_whole() -> None:
    for drawn, causes in ((bind_table.drawn(), BindCause), (start_table.drawn(), StartCause)):
        assert all(f"`{cause.name}`" in drawn for cause in causes)
