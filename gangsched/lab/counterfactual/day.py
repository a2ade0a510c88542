"""A day as values: what came to a cluster, when, and how it ended. Times in seconds from its beginning.

Lives here: values only. reading makes a day from a journal, model runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from gangsched.journal.records import Reconfigured, Start
from gangsched.model.events import Event
from gangsched.model.objects import Pod


class Ending(Enum):
    """Why a pod stopped holding its node, or why that is unknown.

    With the first three the pod ended after its run time, wherever it ran. cut off: evicted by the scheduler
    or removed with its node, so that it does not show its run time.
    """

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "deleted"
    CUT_OFF = "cut off"
    NOT_ENDED = "not ended"


class Edit(msgspec.Struct, frozen=True):
    """A user's change of a pod that was not yet bound; pod: the whole pod from then on."""

    after_s: float
    pod: Pod


class Life(msgspec.Struct, frozen=True):
    """One pod of the recording.

    pod: as it came. came_s: 0 for pods that existed when the recording began. bound_s, ended_s, gone_s: when
    it was bound, held nothing on its node any more, and was deleted; None: not in the recording. bound_s is
    below 0 if it was bound before. evicted: by the scheduler. replaces: UID of the pod that it replaces after
    an eviction or a node's removal; "": none. was_bound: when the recording began. placed: with its node and
    devices, if it was bound.
    """

    pod: Pod
    came_s: float
    was_bound: bool = False
    bound_s: float | None = None
    node: str = ""
    ended_s: float | None = None
    gone_s: float | None = None
    ending: Ending = Ending.NOT_ENDED
    evicted: bool = False
    replaces: str = ""
    edits: tuple[Edit, ...] = ()
    placed: Pod | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def run_s(self) -> float | None:
        """How long it held its node, if it ended by itself."""
        if self.bound_s is None or self.ended_s is None or self.ending in (Ending.CUT_OFF, Ending.NOT_ENDED):
            return None
        return self.ended_s - self.bound_s


class OtherEvent(msgspec.Struct, frozen=True):
    """An event about another object than a pod, at its time."""

    at_s: float
    event: Event


class Day(msgspec.Struct, frozen=True):
    """One recording.

    began_wall_s: when it began, in seconds since 1970. lives: by UID, in the order in which pods came.
    others: events of nodes, groups' objects and everything else, in order; those of the beginning are at 0.
    kinds: the kinds watched, and whether the server had them. start: of the first process. changes: later
    starts, and changes of the configuration. gaps: (from, until) without records, in seconds, and why.
    again_s: the median time from the end of an evicted pod to its replacement; None: there was none.
    n_unreadable: objects that could not be read; n_refused: binds and evictions that failed, or whose outcome
    was not known at once. lost: why some recorded data could not be read, a sentence for each place.
    """

    began_wall_s: float
    length_s: float
    lives: Mapping[str, Life]
    others: Sequence[OtherEvent]
    kinds: Mapping[str, bool]
    start: Start
    changes: Sequence[tuple[float, Start | Reconfigured]] = ()
    gaps: Sequence[tuple[float, float, str]] = ()
    again_s: float | None = None
    n_unreadable: int = 0
    n_refused: int = 0
    lost: Sequence[str] = ()
