"""`gangsched doctor`: whatever it finds, it says what mends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gangsched.config.election import LeaderElectionSettings
from gangsched.devices.report import GONE, MISMATCH, TWICE, DeviceRow, Holder, NodeMap
from gangsched.doctor import checks, cluster_checks
from gangsched.doctor.findings import Finding, Work
from gangsched.doctor.reading import Facts
from tests.docs.pages import ROOT

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Each place where a finding is made that is not \"ok\"."""
    for path in (ROOT / "gangsched" / "doctor").glob("*.py"):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "found":
                level = one.args[1]
                if not (isinstance(level, ast.Constant) and level.value == "ok"):
                    yield f"{path.name}:{one.lineno}", one


@pytest.mark.parametrize("call", [one for _, one in calls()], ids=[where for where, _ in calls()])
def test_no_finding_is_made_without_a_cure(call: ast.Call) -> None:
    assert len(call.args) == 4
    assert not (isinstance(call.args[3], ast.Constant) and not call.args[3].value)


def test_what_cannot_be_read_says_who_could() -> None:
    facts = Facts(("gangsched-system", "gangsched"), NOW)
    found = [
        *checks.check_version(facts),
        *checks.check_rights(facts),
        *checks.check_policies(facts, Work(), with_agents=True),
        *checks.check_flow_schemas(facts),
        *checks.check_replicas(facts, Work()),
        *checks.check_leases(facts, LeaderElectionSettings(leader_elect=True), Work()),
        *checks.check_clock(facts),
    ]
    assert len(found) == 7
    assert {one.level for one in found} == {"unknown"}
    assert all(one.cure for one in found)


def drift_of(state: str, health: str, *pods: str, kubelet: str = "", problem: str = "") -> Finding:
    holders = tuple(Holder(pod, pod, "main") for pod in pods)
    row = DeviceRow("nvidia.com/gpu", "GPU-1", health, state, holders, kubelet)
    node = NodeMap("n0", () if problem else (row,), problems=(problem,) if problem else ())
    [found] = cluster_checks.check_drift([node])
    return found


def test_each_drift_has_a_command_of_its_own() -> None:
    twice = drift_of(TWICE, "Healthy", "d/a", "d/b")
    assert twice.cure.startswith("kubectl -n d delete pod b, and see who wrote")
    other = drift_of(MISMATCH, "Healthy", "d/a", kubelet="d/c")
    assert other.cure.startswith("kubectl -n d delete pod a: its successor gets")
    unplanned = drift_of(MISMATCH, "Healthy", kubelet="d/c")
    assert unplanned.cure.startswith("kubectl -n d delete pod c: ")
    gone = drift_of("planned", GONE, "d/a")
    assert gone.cure == (
        "Check the agent and the devices of n0; if it is gone for good, kubectl -n d delete pod a"
    )
    assert drift_of("", "", problem="annotation: not JSON").cure.startswith("Correct the annotation")
