"""EndedPods: pods that got other devices than planned, and ended before their annotations were corrected.

They hold nothing any more, so our records stay; only their annotations are corrected, from the report of the
node's agent (model.device_report, `ended`), which lists them until that is done. Called by
core.device_audit.drift.
"""

from __future__ import annotations

import math

import msgspec

from gangsched.core.device_audit.reported_devices import Allocation, as_reported, in_order, told, written_anew
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import ENDED, PodInfo
from gangsched.model.device_labels import allocation_of
from gangsched.model.device_report import DeviceReport

_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class EndedPod(msgspec.Struct):
    """One pod's state. due_s: when to check it next; `inf`: only after another event."""

    node_name: str
    had: Allocation
    resources: tuple[str, ...]
    due_s: float
    n_tries: int = 0
    is_sent: bool = False


class EndedPods:
    """By UID: pods whose annotations need correcting."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.pods: dict[str, EndedPod] = {}

    def compare(self, name: str, report: DeviceReport) -> list[tuple[PodInfo, str]]:
        """News in a node's report: pods, and the message about each."""
        there = {one.uid: one for one in report.ended}
        for uid in [
            uid for uid, ended_pod in self.pods.items() if ended_pod.node_name == name and uid not in there
        ]:
            del self.pods[uid]
        found = []
        for uid, one in there.items():
            info = self._shared.cache.pods.get(uid)
            if uid in self.pods or info is None or info.group is None or info.pod.spec.node_name != name:
                continue
            planned, had = self._said_and_had(info, one.containers, report.resources)
            if in_order(planned) != in_order(had):
                self.pods[uid] = EndedPod(name, one.containers, report.resources, self._shared.now_s)
                found.append(
                    (info, f"kubelet gave it {told(had)}, planned were {told(planned)}, and it has ended")
                )
        return found

    def advance(self) -> list[PodInfo]:
        """Writes what is due; returns pods whose annotations are correct now."""
        now_s, right = self._shared.now_s, []
        devices = self._shared.settings.devices
        for uid in [uid for uid, ended_pod in self.pods.items() if ended_pod.due_s <= now_s]:
            ended_pod, info = self.pods[uid], self._shared.cache.pods.get(uid)
            if info is None:
                del self.pods[uid]
                continue
            planned, had = self._said_and_had(info, ended_pod.had, ended_pod.resources)
            if in_order(planned) == in_order(had):
                del self.pods[uid]
                right.append(info)
            elif info.state not in ENDED:
                ended_pod.due_s = now_s + _RETRY_S  # the node's report came before the API server's event
            elif not devices.repair or ended_pod.is_sent:
                ended_pod.due_s = math.inf
            else:
                ended_pod.is_sent, ended_pod.due_s = True, math.inf
                ended_pod.n_tries += 1
                self._shared.emit(written_anew(info, had, in_labels=devices.in_labels))
        return right

    def next_deadline_s(self) -> float:
        return min((ended_pod.due_s for ended_pod in self.pods.values()), default=math.inf)

    def answered(self, uid: str, *, again_s: float) -> bool:
        """A patch was answered: check again after `again_s`. False: it was none of ours."""
        ended_pod = self.pods.get(uid)
        if ended_pod is None or not ended_pod.is_sent:
            return False
        ended_pod.is_sent = False
        ended_pod.due_s = self._shared.now_s + max(
            again_s, min(_RETRY_S * 2.0 ** min(ended_pod.n_tries, 10), _LONGEST_RETRY_S)
        )
        return True

    def _said_and_had(
        self, info: PodInfo, containers: Allocation, resources: tuple[str, ...]
    ) -> tuple[Allocation, Allocation]:
        planned, _ = allocation_of(info.pod)
        return planned, as_reported(info.pod, planned, containers, resources)
