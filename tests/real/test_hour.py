"""Tenants with objects of up to 1.4 MB beside two replicas; `python -m tests.hostile.hour` is longer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.hostile.hour import run

pytestmark = pytest.mark.real


def test_no_object_of_a_tenant_ends_a_replica_or_holds_another_tenants_gang_up(
    assets: Assets, tmp_path: Path
) -> None:
    seed = int(time.time())
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as plane:
        done = run(plane, tmp_path, seed=seed, seconds=20)
    assert not done.found, f"seed {seed}\n{done.line(done.whole)}\n" + "\n".join(done.found)
    assert len(done.replicas) == 2
    assert done.whole.n_created > 3, done.line(done.whole)
    assert done.whole.n_bytes > 10_000, done.line(done.whole)
