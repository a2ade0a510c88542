"""DefaultPreemption's arguments; who goes is tests/core/test_preemption.py and test_least_victims.py."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.plugins.default_preemption import Args


@pytest.mark.parametrize(
    ("args", "n_nodes", "n_weighed"),
    [({}, 50, 50), ({}, 500, 100), ({}, 5000, 500), ({"min_candidate_nodes_percentage": 100}, 5000, 5000)],
)
def test_the_larger_number_of_nodes_is_weighed(args: dict[str, Any], n_nodes: int, n_weighed: int) -> None:
    assert Args(**args).n_candidates(n_nodes) == n_weighed


@pytest.mark.parametrize(
    ("percentage", "absolute", "said"),
    [
        (101, 100, "minCandidateNodesPercentage: 101 is not within 0 to 100"),
        (-1, 100, "minCandidateNodesPercentage: -1 is not within 0 to 100"),
        (10, -1, "minCandidateNodesAbsolute: -1 is below 0"),
        (0, 0, "minCandidateNodesPercentage: cannot be 0 at the same time as minCandidateNodesAbsolute"),
    ],
)
def test_arguments_that_kube_scheduler_refuses(percentage: int, absolute: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Args(min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute)
