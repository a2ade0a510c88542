"""SchedulingGates: any gate holds the pod, in kube-scheduler's words."""

from __future__ import annotations

import pytest

from gangsched.core.framework.interface import Code
from gangsched.plugins.scheduling_gates import SchedulingGates
from tests.plugins.build import pod


@pytest.mark.parametrize("gates", [None, []])
def test_a_pod_without_gates_passes(gates: list[dict[str, str]] | None) -> None:
    assert SchedulingGates().pre_enqueue(pod(schedulingGates=gates)).is_success


def test_a_gated_pod_waits_and_names_its_gates() -> None:
    status = SchedulingGates().pre_enqueue(
        pod(schedulingGates=[{"name": "quota"}, {"name": "example.com/b"}])
    )
    assert status.code is Code.UNSCHEDULABLE
    assert status.reason == "waiting for scheduling gates: [quota example.com/b]"
    assert status.plugin == "SchedulingGates"
