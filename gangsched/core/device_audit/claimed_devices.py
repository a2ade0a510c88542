"""ClaimedDevices: what nodes make of devices that claims have given to pods, as far as pods tell it.

    a pod is bound, and its sandbox is not there after two minutes      event, every ten minutes until it is
    a pod that kubelet had admitted is gone, and had not ended          its devices stay taken for a while

The first is how a driver that is gone shows: its ResourceSlices may outlive it, and so the devices look free.
The second is a pod that was deleted by force. The API server forgets it at once, its claims are deallocated,
and its containers may still run on the node. A replica that follows keeps the devices too, and so does a new
leader. A process that starts later knows nothing of it: the claim, which alone could say so, is gone with the
pod or free for anybody, and what the next one would need to read, as an entry of its reservations for nobody,
would have to be written with every allocation and taken back after every pod. Called by
core.groups.members.membership.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import BOUND, PodInfo
from gangsched.core.why import Why
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import Allocation, ResourceClaim

REASON = "DevicesNotPrepared"
PREPARED_WITHIN_S = 120.0
"""kubelet tries every few seconds; images are pulled later."""
_TELL_AGAIN_S = 600.0
HELD_AFTER_FORCE_S = 30.0
"""As long as kubelet gives the containers of a pod by default to end."""
# Set by kubelet once all devices are prepared and the pod's sandbox and network are there (KEP-3085).
_SANDBOX = "PodReadyToStartContainers"


class ClaimedDevices:
    """Pods that wait for their devices on their node, and devices of pods that were deleted by force."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self.unprepared_s: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.UNPREPARED)
        """By UID: when it is looked whether the pod's devices are prepared."""
        self.held_s: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.HELD_DEVICES)
        """By UID of a claim: until when devices that it had stay taken."""
        self._held: dict[str, Allocation] = {}

    def pod_bound(self, info: PodInfo) -> None:
        """Takes in that a pod is on its node."""
        pod = info.pod
        if pod.uses_claims and pod.spec.scheduler_name in self._shared.profiles:
            self.unprepared_s.set_if_absent(info.uid, self._shared.now_s + PREPARED_WITHIN_S)

    def pod_gone(self, pod: Pod) -> None:
        """Takes in the last version of a pod that is gone, before the cache forgets it."""
        self.unprepared_s.drop(pod.metadata.uid)
        self._free()  # here too: in a replica that follows, for weeks perhaps, no deadline is applied
        if not pod.uses_claims or pod.is_terminal or pod.status.start_time is None:
            return
        book = self._shared.cache.claims
        for claim in book.claims_of(pod).values():
            allocation, uid = claim.status.allocation, claim.metadata.uid
            others = [one for one in claim.status.reserved_for or () if one.uid != pod.metadata.uid]
            if allocation is not None and not others and uid not in self._held:
                self._held[uid] = allocation
                book.keep(allocation)
                self.held_s.set(uid, self._shared.now_s + HELD_AFTER_FORCE_S)

    def advance(self) -> None:
        """Tells of pods whose devices are not prepared in time, and frees devices that were kept."""
        shared = self._shared
        self._free()
        for uid in self.unprepared_s.take(shared.now_s):
            info = shared.cache.pods.get(uid)
            if info is None or info.state is not BOUND or not waits_for_devices(info.pod):
                continue
            if why := _why_unprepared(info, shared.cache.claims.claims_of(info.pod).values()):
                self._reporter.pod_event(info.pod, "Warning", REASON, "Scheduling", str(why))
            self.unprepared_s.set(uid, shared.now_s + _TELL_AGAIN_S)

    def _free(self) -> None:
        for uid in self.held_s.take(self._shared.now_s):
            self._shared.cache.claims.keep(self._held.pop(uid), -1)


def waits_for_devices(pod: Pod) -> bool:
    """Whether kubelet has not brought the pod as far as its first container."""
    if pod.status.phase not in ("", "Pending") or pod.metadata.deletion_timestamp is not None:
        return False
    return not any(one.type == _SANDBOX and one.status == "True" for one in pod.status.conditions or ())


def _why_unprepared(info: PodInfo, claims: Iterable[ResourceClaim]) -> Why:
    given = [
        one
        for claim in claims
        for one in (claim.status.allocation.devices.results if claim.status.allocation is not None else ())
    ]
    if not given:
        return ""
    drivers = ", ".join(dict.fromkeys(one.driver for one in given))
    more = f" and {len(given) - 1} more" if len(given) > 1 else ""
    return (
        f"its devices ({given[0].id}{more}) have not been prepared on node {info.node_name}"
        f" for {PREPARED_WITHIN_S:.0f} s or more: is the driver {drivers} running there?"
    )
