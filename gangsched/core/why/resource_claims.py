"""Reasons about resource claims: which devices there are for the one that lacks most, and what they lack."""

from __future__ import annotations

from gangsched.core.why import MAX_NAMED, Because
from gangsched.model.resource_claims.objects import DeviceId, ResourceClaim
from gangsched.model.text.printable import marked, several

# Enough for an attribute of gpu.nvidia.com and what it is compared with.
_MAX_EXPRESSION = 72


class InUseBy(Because, frozen=True):
    """Who has n devices: a gang or a pod of ours, pods of another scheduler, or a claim without a user."""

    kind: str
    name: str
    n: int

    def __str__(self) -> str:
        if self.kind == "scheduler":
            return f"{self.n} by pods of {self.name}"
        return f"{self.n} by {marked(self.kind, [self.name], lead=f'{self.kind} ')}"


class Selected(Because, frozen=True):
    """How many devices pass a selector, of those that pass the ones before it."""

    n: int
    expression: str

    def __str__(self) -> str:
        return f"{self.n} pass {shortened(self.expression)}"


class RequestLacks(Because, frozen=True):
    """What a request finds among the devices of the nodes that suit the pod otherwise, each counted once.

    n_wanted: 0 for all. n_unseen: other nodes, which were not looked at. counters: those that free devices
    lack, n_uncounted of them. most: the most free ones on one node. resource: the extended resource that it
    serves; "": it is a request of the pod's own claim.
    """

    claim: str
    request: str
    device_class: str
    n_wanted: int
    n_devices: int
    n_nodes: int
    n_unseen: int
    n_of_class: int
    passes: tuple[Selected, ...]
    n_tainted: int
    taints: tuple[str, ...]
    n_used: int
    by: tuple[InUseBy, ...]
    n_uncounted: int
    counters: tuple[str, ...]
    n_free: int
    most: int
    node: str
    resource: str = ""

    @property
    def passes_none(self) -> bool:
        """Whether no device is of the class and passes all selectors."""
        return not self.n_of_class or any(not one.n for one in self.passes)

    def __str__(self) -> str:
        wanted = several(self.n_wanted, "device") if self.n_wanted else "all devices"
        claim = marked("resource claim", [self.claim])
        parts = [f"{self.n_of_class} are of the class", *map(str, self.passes)]
        if self.n_tainted:
            parts.append(f"{self.n_tainted} of these are tainted ({', '.join(self.taints)})")
        if self.n_used:
            by = [*map(str, self.by[:MAX_NAMED])] + ["others"] * (len(self.by) > MAX_NAMED)
            parts.append(f"{self.n_used} in use ({', '.join(by)})")
        if self.n_uncounted:
            parts.append(f"{self.n_uncounted} lack counters of their pool ({', '.join(self.counters)})")
        parts.append(f"{self.n_free} free")
        if 0 < self.most < self.n_free:
            parts.append(f"at most {self.most} on one node ({self.node})")
        unseen = f" ({self.n_unseen} more were not looked at)" * bool(self.n_unseen)
        devices = f"{several(self.n_devices, 'device')} on {several(self.n_nodes, 'node')}{unseen}"
        asks = f"Claim {claim}, request {self.request} (class"
        if self.resource:
            asks = f"{self.resource}, by a claim (class"
        return f"{asks} {self.device_class}, {wanted}): of {devices} {', '.join(parts)}."


class SelectorFails(Because, frozen=True):
    """A selector cannot be evaluated on a device."""

    expression: str
    device: str
    error: str

    def __str__(self) -> str:
        return f"The selector {shortened(self.expression)} fails on device {self.device}: {self.error}."


class PoolUnusable(Because, frozen=True):
    """None of a pool's devices is given out. n_more: other pools like that."""

    pool: str
    is_incomplete: bool
    problem: str
    n_more: int

    def __str__(self) -> str:
        state = "being updated" if self.is_incomplete else "invalid"
        more = f" So are {self.n_more} more." if self.n_more else ""
        return f"Resource pool {self.pool} is {state}: {self.problem}.{more}"


class ConstraintUnmet(Because, frozen=True):
    """Free devices do not agree in an attribute, or do not all differ. n_best: the best set on one node."""

    claim: str
    attribute: str
    is_distinct: bool
    n_best: int
    n_wanted: int
    node: str

    def __str__(self) -> str:
        how = "all differ in" if self.is_distinct else "agree in"
        claim = marked("resource claim", [self.claim])
        return (
            f"Claim {claim}: {several(self.n_wanted, 'free device')} of one node have to {how}"
            f" {self.attribute}; the best set found, on {self.node}, has {self.n_best} of {self.n_wanted}."
        )


class NotTogether(Because, frozen=True):
    """Each request could be served alone. is_beside: there are other members on the nodes."""

    is_beside: bool

    def __str__(self) -> str:
        beside = " beside those of its other members" if self.is_beside else ""
        return f"Each request of its claims finds free devices; all of them together{beside} do not."


class ServesOther(Because, frozen=True):
    """Nodes whose label names another ComputeDomain than the claims' channels are for; n in all."""

    label: str
    nodes: tuple[str, ...]
    n: int

    def __str__(self) -> str:
        where = ", ".join(self.nodes[:MAX_NAMED]) + (", …" if self.n > MAX_NAMED else "")
        nodes = f"{several(self.n, 'node')} ({where})"
        return f"Another ComputeDomain is served by {nodes}, by the label {self.label}."


class InTwoClaims(Because, frozen=True):
    """A device that a claim has is in another claim too, of this pod: another scheduler's."""

    device: str
    claim: str
    other: str
    pod: str = ""

    def __str__(self) -> str:
        other = marked("resource claim", [self.other])
        whose = f", of {marked('pod', [self.pod], lead='pod ')}" if self.pod else ""
        return f"device {self.device} of resource claim {self.claim} is in claim {other} too{whose}"


class AllocatedThere(Because, frozen=True):
    """A claim that is allocated restricts the pod to where its devices are. nodes: some of these; empty: none
    is known any more."""

    claim: str
    nodes: tuple[str, ...]
    by: tuple[InUseBy, ...]

    def __str__(self) -> str:
        where = ", ".join(self.nodes[:MAX_NAMED]) + (", …" if len(self.nodes) > MAX_NAMED else "")
        users = f", where it is in use ({', '.join(map(str, self.by[:MAX_NAMED]))})" if self.by else ""
        claim = marked("resource claim", [self.claim])
        return f"Claim {claim} is allocated on {where or 'no node that is known'}{users}."


def shortened(expression: str) -> str:
    """The expression's end: it mostly begins as all do."""
    text = " ".join(expression.split())
    return f"`{text}`" if len(text) <= _MAX_EXPRESSION else f"`…{text[1 - _MAX_EXPRESSION :]}`"


def in_two_claims(
    device: DeviceId, claim: ResourceClaim, other: ResourceClaim | None, uid: str = ""
) -> InTwoClaims:
    """Describes that a claim's device is in another one too; uid: the other's, where it is not known."""
    users = other.status.reserved_for if other is not None else None
    pod = f"{other.metadata.namespace}/{users[0].name}" if other is not None and users else ""
    return InTwoClaims(str(device), claim.key, other.key if other is not None else uid, pod)
