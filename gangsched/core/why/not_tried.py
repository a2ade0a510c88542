"""Reasons why a group is not tried, or refused by a plugin once it was placed."""

from __future__ import annotations

from gangsched.core.why import MAX_NAMED, Because
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import marked

KEPT_FOR = "kept for groups that are promised room or have been passed as often as allowed"


class ProfileGone(Because, frozen=True):
    """A profile starts no gang any more."""

    profile: str

    def __str__(self) -> str:
        return f"profile {self.profile} is gone from the configuration"


class SetTooLarge(Because, frozen=True):
    """Too many groups start together; others: some that the gang lists. key: of the lists."""

    gang: str
    others: tuple[str, ...]
    n_most: int
    key: str

    def __str__(self) -> str:
        return (
            f"gang {self.gang} starts together with more than {self.n_most - 1} other groups, "
            f"directly ({', '.join(self.others)}…) or through them; at most {self.n_most} groups may start "
            f"together: shorten the lists in {self.key}"
        )


class SameName(Because, frozen=True):
    """A list names two groups of one name, one in each dialect."""

    gang: str
    name: str
    dialects: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        stated = " and ".join(f"a {dialect} one" for dialect in self.dialects)
        return (
            f"gang {self.gang} starts together with two groups named {self.name}, {stated}, and "
            f"{self.key} cannot tell them apart: rename one of them"
        )


class SetBusy(Because, frozen=True):
    """Another group of its set is being bound or unwound."""

    gang: str
    other: str
    state: str

    def __str__(self) -> str:
        other = marked("gang", [self.other])
        return f"gang {self.gang} starts together with {other}, which is {self.state}"


class LabelsNotIndexed(Because, frozen=True):
    """Pods are still being told apart by labels that selectors have only begun to use."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.labels[:MAX_NAMED]) + (", …" if len(self.labels) > MAX_NAMED else "")
        return (
            f"pods are still being indexed by labels that selectors have only begun to use ({named}); "
            "it is tried again within seconds"
        )


class AsksTooMuch(Because, frozen=True):
    """The pods of a unit ask too much together for one turn. where: the fields; n: how much, in words."""

    where: str
    n: str
    n_most: int

    def __str__(self) -> str:
        return (
            f"all pods that start together ask too much in {self.where}: {self.n},"
            f" at most {self.n_most:,} for one turn"
        )


class ClusterTooSmall(Because, frozen=True):
    """A gang's minResources are more than all nodes together have, in use or not."""

    gang: str
    resource: str
    wanted: int
    there: int

    def __str__(self) -> str:
        asks, have = amount_text(self.resource, self.wanted), amount_text(self.resource, self.there)
        return f"gang {self.gang}: minResources is {asks} {self.resource} and all nodes together have {have}"


class QueueFull(Because, frozen=True):
    """A queue's limit keeps a group out. kept: within the limit, for groups whose turn it is."""

    queue: str
    resource: str
    used: int
    limit: int
    kept: int
    needs: int

    def __str__(self) -> str:
        used, limit, kept, needs = (
            amount_text(self.resource, n) for n in (self.used, self.limit, self.kept, self.needs)
        )
        if self.needs > self.limit:
            what = f"needs {needs} {self.resource}, more than its limit of {limit}"
            return f"queue {self.queue}: {what}: it never starts"
        beside = f", {kept} {KEPT_FOR}" if self.kept else ""
        return f"queue {self.queue}: {used} of {limit} {self.resource} used{beside}, needs {needs}"


class NotDoneYet(Because, frozen=True):
    """Asked for what is right, and is not done here so far."""

    said: str

    def __str__(self) -> str:
        return self.said


class ClaimLeaves(Because, frozen=True):
    """Its members' resource claims are still being given back, by an attempt before."""

    claim: str

    def __str__(self) -> str:
        return f"resource claim {self.claim} is being deallocated"


class FilterOff(Because, frozen=True):
    """Asked for what a Filter enforces that the profile does not enable."""

    wish: str
    plugin: str

    def __str__(self) -> str:
        return f"{self.wish}: the filter {self.plugin}, which enforces it, is not enabled in this profile"


class DevicesOff(Because, frozen=True):
    """Asked for devices by name, by this annotation, in a profile without them."""

    key: str

    def __str__(self) -> str:
        return f"metadata.annotations: {self.key}: the plugin Devices is off in this pod's profile"


class PerhapsMisspelt(Because, frozen=True):
    """What is wrong with a group, and the keys on its pod that are not read and may be meant."""

    problem: str
    ignored: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.ignored}"


class ExtendersSilent(Because, frozen=True):
    """Extenders were asked about a gang's nodes and have not answered."""

    def __str__(self) -> str:
        return "extenders did not answer in time"


class RefusedInReserve(Because, frozen=True):
    """A plugin has refused a group that was placed, without a reason."""

    plugin: str

    def __str__(self) -> str:
        return f"{self.plugin} refused it in Reserve"


class RefusedInPermit(Because, frozen=True):
    """A plugin has refused a group that was reserved, without a reason."""

    plugin: str

    def __str__(self) -> str:
        return f"{self.plugin} refused it in Permit"
