"""Both schedulers' results for each pod: ours, theirs, when, and the verdict.

Lives here: keeping them, and the verdict. Not here: finding them out (follower.py) and formatting
(report.py). Times are the core's: a monotonic clock in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from gangsched.shadow.judge import Judgement

# About 400 bytes each. Beyond it the oldest are counted and dropped.
MAX_RECORDS = 100_000
# A judgement has an array as long as the cluster; it is dropped once they have placed the pod.
_MAX_JUDGEMENTS = 500


class Verdict(enum.Enum):
    SAME = "same node"
    EQUAL = "equally good node"
    OTHER = "other node"
    ONLY_OURS = "only we would have placed it"
    ONLY_THEIRS = "only they placed it"
    NEITHER = "nobody placed it"


class PodRecord(msgspec.Struct):
    """ours, theirs: node names, "" for none; ours_said, theirs_said: why none, or what it waits for.

    n_decisions: how often we chose a node for it. why: why their node was not ours. is_closed: they have
    placed it and we have decided.
    """

    name: str
    group: str
    is_gang: bool
    seen_s: float
    ours: str = ""
    ours_s: float | None = None
    ours_said: str = ""
    n_decisions: int = 0
    theirs: str = ""
    theirs_s: float | None = None
    theirs_said: str = ""
    why: str = ""
    is_closed: bool = False
    is_gone: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.ours and self.theirs:
            if self.ours == self.theirs:
                return Verdict.SAME
            return Verdict.OTHER if self.why or self.is_gang else Verdict.EQUAL
        if self.ours:
            return Verdict.ONLY_OURS
        return Verdict.ONLY_THEIRS if self.theirs else Verdict.NEITHER

    @property
    def lead_s(self) -> float | None:
        """How much earlier we decided than their bind was seen; negative: later."""
        if self.ours_s is None or self.theirs_s is None or not self.ours:
            return None
        return self.theirs_s - self.ours_s


class Records:
    """By UID, in the order in which pods were first seen."""

    def __init__(self) -> None:
        self._records: dict[str, PodRecord] = {}
        self._judgements: dict[str, tuple[Judgement, int]] = {}
        self.let_go: dict[Verdict, int] = dict.fromkeys(Verdict, 0)

    def __iter__(self) -> Iterator[PodRecord]:
        return iter(self._records.values())

    def get(self, uid: str) -> PodRecord | None:
        return self._records.get(uid)

    def counts(self) -> dict[Verdict, int]:
        """Counts the verdicts of all pods so far, including dropped ones."""
        found = dict(self.let_go)
        for record in self:
            found[record.verdict] += 1
        return found

    def seen(self, uid: str, record: PodRecord) -> None:
        """Adds a pod that is not placed yet; an existing record stays."""
        self._records.setdefault(uid, record)
        while len(self._records) > MAX_RECORDS:
            oldest = next(iter(self._records))
            self.let_go[self._records.pop(oldest).verdict] += 1
            self._judgements.pop(oldest, None)

    def chose(
        self,
        uid: str,
        node: str,
        now_s: float,
        *,
        judged: tuple[Judgement, int] | None = None,
        waits: str = "",
    ) -> None:
        """Records that we would have placed it; `judged` with the chosen node's row. The first decision's
        time counts."""
        record = self._records.get(uid)
        if record is None or record.is_closed:
            return
        if not record.ours:
            record.ours_s = now_s
        record.ours, record.ours_said = node, waits
        record.n_decisions += 1
        if judged is not None and len(self._judgements) < _MAX_JUDGEMENTS:
            self._judgements[uid] = judged

    def refused(self, uid: str, why: str, now_s: float) -> None:
        """Records that we would not have placed it, at this time."""
        record = self._records.get(uid)
        if record is not None and not record.is_closed:
            record.ours, record.ours_said, record.ours_s = "", why, now_s
            self._judgements.pop(uid, None)

    def they_bound(self, uid: str, node: str, now_s: float) -> None:
        record = self._records.get(uid)
        if record is not None and not record.theirs:
            record.theirs, record.theirs_s, record.theirs_said = node, now_s, ""

    def they_refused(self, uid: str, why: str) -> None:
        record = self._records.get(uid)
        if record is not None and not record.theirs:
            record.theirs_said = why

    def close(self, uid: str, row: int | None) -> None:
        """Closes the record: they have placed it on the node of `row`, None if we do not know the node."""
        record, judged = self._records.get(uid), self._judgements.pop(uid, None)
        if record is None:
            return
        record.is_closed = True
        if not record.ours or record.ours == record.theirs or judged is None:
            return
        judgement, chosen = judged
        record.why = "the node is not known here" if row is None else judgement.why_not(row, chosen)

    def gone(self, uid: str) -> None:
        record = self._records.get(uid)
        if record is not None:
            record.is_gone = True
        self._judgements.pop(uid, None)
