"""`bench --load-balance --real`, short: a few tasks as processes in cgroups, measured by agents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangsched.agent.probes.cgroup import CGROUPS
from gangsched.errors import GangschedError
from gangsched.lab.bench.balance import real
from gangsched.lab.bench.balance.model import ALGORITHMS, BASELINE, KINDS, OURS, WORKERS
from gangsched.lab.bench.balance.task import Flow
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.node import CannotRun

pytestmark = pytest.mark.real

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}
# What a machine may lack.
_CANNOT = ("run this as root", "real workers need", "cannot be made of a cgroup", "is in memory")
MEMORY = next(kind for kind in KINDS if kind.name == "memory")


def left() -> list[Path]:
    """Cgroups and network namespaces of ours."""
    name = f"gangsched-bench-{os.getpid()}-*"
    return [*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}"), *Path("/run/netns").glob(name)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("on_kubelets", [False, True], ids=["processes", "kubelets"])
def test_tasks_run_in_their_workers_and_agents_see_them(
    monkeypatch: pytest.MonkeyPatch, on_kubelets: bool
) -> None:
    monkeypatch.setattr(real, "INTERVAL_S", 0.1)
    try:
        found = real.place(BY_NAME[OURS], WORKERS, [MEMORY] * 3, seconds=4.0, on_kubelets=on_kubelets)
    except CannotRun as error:
        if error.is_cured_by_us and os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real kubelet: {error}")
    except GangschedError as error:
        if any(why in str(error) for why in _CANNOT):
            pytest.skip(str(error))
        raise
    assert found.ended == []
    assert sum(n for kinds in found.placed.values() for n in kinds.values()) == 3
    for worker in WORKERS:
        used, stated = found.used[worker.name], found.stated[worker.name]
        assert used.memory <= stated.memory + 0.05, "what its tasks have, and little besides"
    assert sum(used.memory for used in found.used.values()) > 0
    assert left() == [], "nothing of it is left"


def test_without_root_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(GangschedError, match="cgroups with links of their own: run this as root"):
        real.place(BY_NAME[BASELINE], WORKERS, [], seconds=1.0)


def test_a_task_that_was_held_up_does_not_make_up_for_it() -> None:
    flow = Flow(100.0)
    assert flow.due(0.2) == pytest.approx(20)
    flow.took(20)
    assert flow.due(0.3) == pytest.approx(10)
    assert flow.due(60.0) == pytest.approx(50), "half a second's, not a minute's"
