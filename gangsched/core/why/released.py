"""Reasons of a gang that is reserved: what it waits for, and why all of it is given back."""

from __future__ import annotations

from enum import Enum

from gangsched.core.why import Because, Why, words
from gangsched.model.text.printable import marked


class Reserved(Because, frozen=True):
    """A gang holds its reservations and waits in Permit, for at most wait_s in all."""

    gang: str
    waits_for: Why
    wait_s: float

    def __str__(self) -> str:
        then = f"for {self.wait_s:g} s at most, then all is given back and tried again"
        return f"gang {self.gang} is reserved and waits: {words(self.waits_for)}; {then}"


class OthersOfSet(Because, frozen=True):
    """A gang waits for another one that starts with it."""

    def __str__(self) -> str:
        return "another group that starts with it"


class WithProblem(Because, frozen=True):
    """What a gang waits for, and the problem of another that it names."""

    why: Why
    problem: str

    def __str__(self) -> str:
        return f"{self.why} ({self.problem})"


class GaveBack(Because, frozen=True):
    """A gang has given its reservations back."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} gave its reservations back: {self.why}"


class RestDoesNotFit(Because, frozen=True):
    """What is missing of a gang does not fit beside what is reserved."""

    why: Why

    def __str__(self) -> str:
        return f"the rest does not fit beside what was reserved: {self.why}"


class PermitTimedOut(Because, frozen=True):
    """A gang has waited in Permit for too long. waits_for: for what; "": it is not known."""

    waits_for: Why
    again_s: float

    def __str__(self) -> str:
        why = f" ({words(self.waits_for)})" if self.waits_for else ""
        return f"WaitOnPermit timed out{why}; it is tried again in {self.again_s:g} s"


class RejectedBy(Because, frozen=True):
    """A person has rejected a gang that waited. reason: in that person's words."""

    user: str
    reason: str

    def __str__(self) -> str:
        return f"rejected by {marked('user', [self.user])}" + (f": {self.reason}" if self.reason else "")


class PreemptedBy(Because, frozen=True):
    """A more important gang or pod takes what was reserved."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"preempted by {marked(self.kind, [self.name], lead=f'{self.kind} ')}"


class VictimsStay(Because, frozen=True):
    """The victims of a preemption did not go in time."""

    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"preemption: its victims did not go in time: {marked('pod', self.pods)}"


class VictimsProtected(Because, frozen=True):
    """The rule by which victims were chosen does not allow them any more."""

    def __str__(self) -> str:
        return "preemption: its victims may no longer be evicted"


class VictimNotEvicted(Because, frozen=True):
    """The API server has refused to evict a victim, in its words."""

    code: int
    message: str

    def __str__(self) -> str:
        return f"preemption: a victim could not be evicted: {self.code} {self.message}"


class NodeGone(Because, frozen=True):
    """A node with reservations is gone."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} is gone"


class NodeTooFull(Because, frozen=True):
    """More is reserved and bound on a node than it offers now."""

    node: str
    resource: str

    def __str__(self) -> str:
        return f"node {self.node} no longer has enough {self.resource}"


class NodeRefuses(Because, frozen=True):
    """A node's cordon, taints or labels refuse a pod that is reserved there."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} does not take the pod any more (cordon, taint or label)"


class DeviceGone(Because, frozen=True):
    """A reserved device is not listed any more, or not healthy."""

    device: str
    resource: str
    node: str

    def __str__(self) -> str:
        return f"device {self.device} of {self.resource} on {self.node} is gone or unhealthy"


class DeviceTaken(Because, frozen=True):
    """A reserved device is held by another pod."""

    device: str
    resource: str
    node: str

    def __str__(self) -> str:
        return f"device {self.device} of {self.resource} on {self.node} is now held by another pod"


class DeviceGivenAway(Because, frozen=True):
    """kubelet has given a reserved device to another pod."""

    device: str
    node: str

    def __str__(self) -> str:
        return f"kubelet gave {self.device} on {self.node} to another pod"


class Outdated(Enum):
    """Why something else should be reserved for a pod."""

    TAKEN = "another scheduler's pod has taken what was reserved"
    OTHER_DEVICES = "a member now asks for other devices than were reserved for it"
    STATED = "the status of a member that a device plugin is to serve states a claim for it by now"
    RESIZED = "a member was resized since it was reserved"


class ReservationOutdated(Because, frozen=True):
    """Something else should be reserved for a pod."""

    how: Outdated

    def __str__(self) -> str:
        return self.how.value
