"""EndedPods: pods that got other devices than planned, and ended before their annotations were corrected.

These pods no longer hold anything, so our records stay; only their annotations are corrected, from the report
of the node's agent (model.devices.report, `ended`), which lists them until that is done. Called by
core.device_audit.drift.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from gangsched.core.device_audit.reported_devices import (
    Allocation,
    as_reported,
    devices_text,
    in_order,
    listing_patch,
)
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import NEVER_S, PodInfo
from gangsched.core.types.states import ENDED
from gangsched.model.devices.labels import allocation_of
from gangsched.model.devices.report import DeviceReport

_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class EndedPod(msgspec.Struct):
    """One pod's state."""

    node_name: str
    had: Allocation
    resources: tuple[str, ...]
    n_tries: int = 0
    is_sent: bool = False


class EndedPods:
    """Pods whose annotations need correcting, by UID."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.pods: dict[str, EndedPod] = {}
        self._due: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.ENDED_POD)
        """When to check each next; NEVER_S: only after another event."""

    def compare(self, name: str, report: DeviceReport) -> list[tuple[PodInfo, str]]:
        """Compares with a node's report; returns new findings: pods, and the message about each."""
        there = {one.uid: one for one in report.ended}
        self._drop_of(name, there)
        found = []
        for uid, one in there.items():
            info = self._shared.cache.pods.get(uid)
            if uid in self.pods or info is None or info.group is None or info.pod.spec.node_name != name:
                continue
            planned, had = self._planned_and_actual(info, one.containers, report.resources)
            if in_order(planned) != in_order(had):
                self.pods[uid] = EndedPod(name, one.containers, report.resources)
                self._due.set(uid, self._shared.now_s)
                instead = f"{devices_text(had)} instead of the planned {devices_text(planned)}"
                found.append((info, f"kubelet gave it {instead}, and it has ended"))
        return found

    def node_gone(self, name: str) -> None:
        """Drops the node's pods: no report will tell any more what they had."""
        self._drop_of(name, ())

    def advance(self) -> list[PodInfo]:
        """Writes the corrections that are due; returns pods whose annotations are correct now."""
        now_s, right = self._shared.now_s, []
        devices = self._shared.settings.devices
        for uid in self._due.due(now_s):
            ended_pod, info = self.pods[uid], self._shared.cache.pods.get(uid)
            if info is None:
                self._drop(uid)
                continue
            self._due.set(uid, now_s + _RETRY_S)
            planned, had = self._planned_and_actual(info, ended_pod.had, ended_pod.resources)
            if in_order(planned) == in_order(had):
                self._drop(uid)
                right.append(info)
            elif info.state not in ENDED:
                pass  # the node's report came before the API server's event
            elif not devices.repair or ended_pod.is_sent:
                self._due.set(uid, NEVER_S)
            else:
                ended_pod.is_sent = True
                self._due.set(uid, NEVER_S)
                ended_pod.n_tries += 1
                self._shared.emit(listing_patch(info, had, in_labels=devices.in_labels))
        return right

    def _drop_of(self, name: str, there: Container[str]) -> None:
        """Drops this node's pods, except those in `there`."""
        for uid in [uid for uid, one in self.pods.items() if one.node_name == name and uid not in there]:
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        del self.pods[uid]
        self._due.drop(uid)

    def answered(self, uid: str, *, again_s: float) -> bool:
        """Takes in a patch's answer: checks again after `again_s`. False: the patch was not for an ended
        pod."""
        ended_pod = self.pods.get(uid)
        if ended_pod is None or not ended_pod.is_sent:
            return False
        ended_pod.is_sent = False
        pause_s = min(_RETRY_S * 2.0 ** min(ended_pod.n_tries, 10), _LONGEST_RETRY_S)
        self._due.set(uid, self._shared.now_s + max(again_s, pause_s))
        return True

    def _planned_and_actual(
        self, info: PodInfo, containers: Allocation, resources: tuple[str, ...]
    ) -> tuple[Allocation, Allocation]:
        planned, _ = allocation_of(info.pod)
        return planned, as_reported(info.pod, planned, containers, resources)
