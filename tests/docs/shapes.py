"""The table of docs/controllers.md: which shape of a gang is tested in which way.

It is made from the tests' own parameters: a shape that is taken out of a test is out of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from tests.real import test_controllers, test_job_controller, test_shapes
from tests.real.shapes import CONTROLLERS, NAMED, SHAPES

COLUMNS = ("whole", "one node short", "restart", "priority", "elastic", "status back")
JOB = "Job with `spec.scheduling`, by its real controller"
ON_ITS_PODS = "on its pods"


class Proof(NamedTuple):
    """A test, the shapes that it runs with, and the columns that it stands for."""

    test: Callable[..., None]
    shapes: Collection[str]
    columns: tuple[str, ...]


PROOFS = (
    Proof(test_shapes.test_whole_one_node_short_and_restarted, NAMED, COLUMNS[:3]),
    Proof(
        test_controllers.test_whole_one_node_short_and_the_next_attempt,
        test_controllers.KINDS,
        COLUMNS[:3],
    ),
    Proof(
        test_shapes.test_a_more_important_gang_takes_room_for_its_least_and_grows_when_there_is_more,
        SHAPES,
        ("priority", "elastic"),
    ),
    Proof(test_shapes.test_its_object_tells_where_the_gang_stands, test_shapes.STATUSES, ("status back",)),
    Proof(
        test_job_controller.test_a_job_that_asks_for_a_gang_is_bound_whole_or_not_at_all,
        (JOB,),
        COLUMNS[:2],
    ),
    Proof(test_job_controller.test_a_gang_that_lost_all_its_pods_starts_whole_again, (JOB,), ("restart",)),
    Proof(
        test_job_controller.test_a_job_that_is_resumed_starts_whole_without_the_index_that_has_succeeded,
        (JOB,),
        ("restart",),
    ),
    Proof(
        test_job_controller.test_a_more_important_job_takes_room_for_its_least_and_grows_when_there_is_more,
        (JOB,),
        ("priority", "elastic"),
    ),
    Proof(
        test_job_controller.test_the_group_says_that_it_waits_and_that_it_was_scheduled,
        (JOB,),
        ("status back",),
    ),
)


def cell(shape: str, column: str) -> str:
    """The numbers of the tests; where a gang has no object of its own, only its pods can say anything."""
    numbered = enumerate(PROOFS, 1)
    if found := [str(n) for n, proof in numbered if shape in proof.shapes and column in proof.columns]:
        return ", ".join(found)
    of_its_own = shape == JOB or SHAPES[shape].status
    return "" if column != "status back" or of_its_own else ON_ITS_PODS


def table() -> str:
    """Shapes down, columns across, then the tests by number."""
    lines = [f"| gang of | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for shape in (*NAMED, *CONTROLLERS, JOB):
        lines.append(f"| {shape} | {' | '.join(cell(shape, column) for column in COLUMNS)} |")
    lines.append("")
    for n, proof in enumerate(PROOFS, 1):
        path = proof.test.__module__.replace(".", "/") + ".py"
        lines.append(f"{n}. `{path}`: {proof.test.__name__.removeprefix('test_').replace('_', ' ')}")
    return "\n".join(lines) + "\n"
