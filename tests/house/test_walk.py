"""The walk of a gang is short, leads nowhere twice, and is the one that the docs draw."""

from __future__ import annotations

import pytest

from tests.docs.walk import CORE, IN, OUT
from tests.house.walk import MOMENTS, Walk, files, traced

# All that a reader has to follow. To be 150 and 70: whoever shortens the walk lowers them.
MAX_HOPS, MAX_FILES = 348, 136
# What leads on. Deciding where a gang goes and committing it are two places, apart from its turn.
MAX_LEADING, MAX_LEADING_FILES = 25, 22
# It leads back into a file that it had left where a lane asks what is sent over it.
RETURNS = {
    ("kube/effects/binding_lane.py", "kube/transport/lane.py", "kube/effects/binding_lane.py"),
}


@pytest.fixture(scope="module")
def walk() -> Walk:
    return traced()


def test_a_gang_comes_by_every_moment_in_order(walk: Walk) -> None:
    assert [*map(tuple, walk.moments)] == [*MOMENTS]


def test_it_is_short(walk: Walk) -> None:
    assert len(walk.hops) <= MAX_HOPS
    assert len(files(walk.hops)) <= MAX_FILES
    assert len(walk.leading) <= MAX_LEADING
    assert len(files(walk.leading)) <= MAX_LEADING_FILES


def test_it_leads_nowhere_back_and_forth(walk: Walk) -> None:
    assert {*walk.returns} == RETURNS


def test_the_picture_shows_where_it_leads_through(walk: Walk) -> None:
    """All but the last step, which is the answer's."""
    steps = [(step.file, step.name) for step in (*IN, *CORE, *OUT[:-1])]
    places = [(place.file, place.name) for place in walk.places]
    at = [places.index(step) for step in steps]
    assert at == sorted(at)
