"""Reasons about devices under running pods: they have failed, or are not those planned."""

from __future__ import annotations

from gangsched.core.why import Because


class DeviceFailed(Because, frozen=True):
    """Devices have failed under a running pod. devices: in words."""

    devices: str
    node: str
    pod: str

    def __str__(self) -> str:
        return f"device {self.devices} on node {self.node} has failed under {self.pod}"


class EvictionsOff(Because, frozen=True):
    """A pod with failed devices is left alone, as the settings have it."""

    pod: str

    def __str__(self) -> str:
        return f"pod {self.pod} stays: allowEviction is off"


class GivenOthers(Because, frozen=True):
    """kubelet gave a pod other devices than planned. now, planned: in words."""

    now: str
    planned: str

    def __str__(self) -> str:
        return f"kubelet gave it {self.now} instead of the planned {self.planned}"


class Exchanged(Because, frozen=True):
    """What was planned for a pod went to another one. now: the devices that it has instead, in words."""

    now: str

    def __str__(self) -> str:
        return f"what was planned for it went to another pod; instead it has {self.now}"


class WentToAnother(Because, frozen=True):
    """kubelet gave a device that was planned for a pod to another one."""

    device: str

    def __str__(self) -> str:
        return f"kubelet gave {self.device}, which was planned for it, to another pod"


class AgainstConstraint(Because, frozen=True):
    """The devices that a pod has do not satisfy its constraint, in words."""

    devices: tuple[str, ...]
    resource: str
    constraint: str

    def __str__(self) -> str:
        return f"{', '.join(self.devices)} are not {self.resource} {self.constraint}"


class ListedOtherwise(Because, frozen=True):
    """A pod's annotations or labels do not list the devices that it has. how: in words, as `has`."""

    how: str
    has: str

    def __str__(self) -> str:
        return f"{self.how}; it was given {self.has}"
