"""What an update of a pod may change, where the recorded requests are too short to show it."""

from __future__ import annotations

from typing import Any

from gangsched.lab.apiserver.kinds.pods.updates import update_problems
from tests.support.bodies import pod
from tests.support.compared import Compared


def tolerating(n_keys: int) -> dict[str, Any]:
    tolerations = [{"key": Compared(f"key-{i:04}"), "operator": "Exists"} for i in range(n_keys)]
    spec: dict[str, Any] = pod("a", tolerations=tolerations)["spec"]
    return spec


def test_a_pod_of_many_tolerations_is_compared_by_index() -> None:
    n = 300
    old, new, fewer = tolerating(n), tolerating(n + 1), tolerating(n - 1)
    Compared.n_times = 0
    assert update_problems(new, old) == []
    assert Compared.n_times < 10 * n
    assert "existing toleration can not be modified" in str(update_problems(fewer, old))
