"""Reasons about preemption and evictions: what waits for victims, and why there are none."""

from __future__ import annotations

from datetime import datetime

from gangsched.core.why import MAX_NAMED, Because, Why, time_text
from gangsched.model.text.printable import marked, several


class EvictionRefused(Because, frozen=True):
    """The API server refuses to evict a pod, in its words."""

    pod: str
    code: int
    message: str

    def __str__(self) -> str:
        return f"evicting {self.pod}: {self.code} {self.message}"


class Evicted(Because, frozen=True):
    """Why all of a gang is evicted, as a sentence."""

    why: Why

    def __str__(self) -> str:
        return f"{self.why}."


class EvictedAgain(Because, frozen=True):
    """Why a gang is evicted, and that an eviction was refused."""

    why: Why
    refused: EvictionRefused

    def __str__(self) -> str:
        return f"{self.why} It is asked again, refused: {self.refused}"


class RanPastWalltime(Because, frozen=True):
    """A gang or pod, with its kind in `name`, has run for longer than it stated. at: the end; None: the time
    of day is unknown."""

    name: str
    at: datetime | None

    def __str__(self) -> str:
        when = f", which was over{time_text('at', self.at)}" if self.at is not None else ""
        return f"{self.name} has run past its walltime{when}"


class BeingBound(Because, frozen=True):
    """Pods that may be evicted are being bound. whose: which pods these are."""

    whose: str

    def __str__(self) -> str:
        return f"{self.whose} are being bound and can be evicted after that"


class VictimSearchEnded(Because, frozen=True):
    """The search for victims ended at its limit. whose: which pods might go."""

    whose: str
    n_looks: int

    def __str__(self) -> str:
        return f"the search for {self.whose} to evict ended at searchVictims ({self.n_looks})"


class NoVictimsFound(Because, frozen=True):
    """No choice of victims makes room."""

    def __str__(self) -> str:
        return "no set of victims was found that makes room"


class WaitsForVictims(Because, frozen=True):
    """Room is reserved until these pods are gone, of the kind `whose`."""

    n_nodes: int
    pods: tuple[str, ...]
    whose: str

    def __str__(self) -> str:
        pods = _counted(self.pods, self.whose, "to go")
        return f"preemption: room is reserved on {several(self.n_nodes, 'node')}; waiting for {pods}"


class WaitsForClaims(Because, frozen=True):
    """Room is reserved until these resource claims are given back, whose pods are gone."""

    n_nodes: int
    claims: tuple[str, ...]

    def __str__(self) -> str:
        what = several(len(self.claims), "resource claim of a pod that is gone", _OF_PODS_GONE)
        names = marked("resource claim", self.claims)
        where = several(self.n_nodes, "node")
        return f"preemption: room is reserved on {where}; waiting for {what} to be given back: {names}"


_OF_PODS_GONE = "resource claims of pods that are gone"


class WouldTake(Because, frozen=True):
    """Where a group would be placed if these pods might be evicted."""

    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    whose: str

    def __str__(self) -> str:
        where = ", ".join(self.nodes[:MAX_NAMED]) + (", …" if len(self.nodes) > MAX_NAMED else "")
        pods = _counted(self.pods, self.whose)
        return f"preemption: it would be placed on {where} in place of {pods}; nothing is evicted"


def _counted(pods: tuple[str, ...], whose: str, what: str = "") -> str:
    n = f"1 {whose.replace('pods', 'pod', 1)}" if len(pods) == 1 else f"{len(pods)} {whose}"
    return f"{n}{' ' if what else ''}{what}: {marked('pod', pods)}"


class EvictionsPaused(Because, frozen=True):
    """Rounds of evictions did not let a group start, and the next has to wait. by_others: its room was taken
    by pods of another scheduler."""

    n_rounds: int
    by_others: bool
    left_s: int

    def __str__(self) -> str:
        how = ", as pods of another scheduler took the room" if self.by_others else ""
        return (
            f"preemption: {several(self.n_rounds, 'round')} of evictions did not let it start{how}; "
            f"no pod is evicted for it for another {self.left_s} s"
        )


class SearchesLater(Because, frozen=True):
    """Searches for victims that found none have had their share of the time."""

    def __str__(self) -> str:
        return (
            "preemption: failed searches have had their share of time; "
            "it looks for victims after its backoff."
        )


class RoomLost(Because, frozen=True):
    """The room that evictions made is gone. why: why it does not fit now."""

    why: Why

    def __str__(self) -> str:
        return f"preemption: the room that was made for it is gone: {self.why}"


class NoVictims(Because, frozen=True):
    """kube-scheduler's sentence on preemption: nodes where evicting pods might help, and the others."""

    n_nodes: int
    n_helpful: int

    def __str__(self) -> str:
        counts = [
            (self.n_helpful, "No preemption victims found for incoming pod"),
            (self.n_nodes - self.n_helpful, "Preemption is not helpful for scheduling"),
        ]
        text = ", ".join(f"{n} {why}" for n, why in counts if n)
        return f"0/{self.n_nodes} nodes are available: {text}."


class EvenWithAllGone(Because, frozen=True):
    """Preemption does not help. whose: the pods that might go; may_exist: the search ended before all
    placements beside some of them were tried."""

    whose: str
    why: Why
    may_exist: bool = False

    def __str__(self) -> str:
        more = " A placement beside some of them may exist: the search ended first." if self.may_exist else ""
        return f"even with all {self.whose} gone, {self.why}{more}"
