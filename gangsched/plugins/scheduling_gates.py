"""SchedulingGates: a pod with any scheduling gate is not scheduled and not counted. PreEnqueue only.

Source: kube-scheduler `plugins/schedulinggates/scheduling_gates.go`.
"""

from __future__ import annotations

from gangsched.core.framework.interface import SUCCESS, Status
from gangsched.model.objects import Pod


class SchedulingGates:
    """Holds a pod until its last gate is removed; the update that removes it triggers another check."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        names = " ".join(gate.name for gate in gates)
        return Status.unschedulable(f"waiting for scheduling gates: [{names}]", plugin=self.name)
