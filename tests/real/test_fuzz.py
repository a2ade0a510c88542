"""Hostile objects on a real API server for half a minute; the hour is `python -m tests.real.fuzz`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.fuzz import run

pytestmark = pytest.mark.real


def test_nothing_that_anybody_writes_ends_it_or_holds_a_good_gang_up(
    fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    seed = int(time.time())
    done = run(fresh_cluster, tmp_path, seed=seed, seconds=25)
    assert not done.found, f"seed {seed}\n{done.report()}"
    assert sum(done.made.values()) > 20, done.report()
    assert len(done.waits_s) > 5, done.report()
