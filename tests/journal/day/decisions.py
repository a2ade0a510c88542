"""Decisions as lines: what the core answered in a call, for whom, and the first line that differs.

A decision is where a pod goes and with which devices, who is evicted, nominated or taken back, whom an
extender is asked about, and that a group has to wait. What is said about it (conditions, events, statuses) is
none: words may change freely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import zstandard

from gangsched.core.types.group import GroupState
from gangsched.journal.records import Record, Start, Turn, read_record
from gangsched.journal.replay.replaying import Divergence, Replay
from gangsched.model import effects as ef
from gangsched.model.devices.annotations import ALLOCATED_KEY

DIRECTORY = Path(__file__).parent / "kept"
DECISIONS = "decisions.txt"
ACCEPT = "make day"
_WAITS = (GroupState.UNSCHEDULABLE, GroupState.BACKOFF, GroupState.WAITING)
_ID = re.compile(r'"[^"]*?([0-9]+)"')


class Decided(NamedTuple):
    """One line: at which second of the day, for whom, and what."""

    at_s: float
    subject: str
    what: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at_s, 60.0)
        return f"{int(minutes) // 60:02}:{int(minutes) % 60:02}:{seconds:05.2f} {self.subject} {self.what}"


class DayReplay(Replay):
    """Makes a journal's calls, and keeps what is decided; answers may be other than the recorded ones."""

    def __init__(self, start: Start) -> None:
        super().__init__(start, compares=False)
        self.decided: list[Decided] = []
        """By the last call."""
        self._waits: dict[str, GroupState] = {}
        """What was told of a group last, until it is something else."""

    def play(self, record: Record) -> list[ef.Effect]:
        """Raises: Divergence (another group has its turn)."""
        effects = super().play(record)
        self.decided = list(self._lines(record, effects)) if isinstance(record, Turn) else []
        return effects

    def _lines(self, turn: Turn, effects: Sequence[ef.Effect]) -> Iterator[Decided]:
        by: dict[str, list[str]] = {}
        for effect in effects:
            found = _told(effect)
            if found is not None:
                by.setdefault(found[0], []).append(found[1])
        if turn.group is not None:
            group = self.scheduler.shared.groups.get(turn.group)
            state = None if group is None else group.state
            name = str(turn.group)
            if state in _WAITS and self._waits.get(name) is not state:
                by.setdefault(name, []).append(f"has to wait: {state.value}")
                self._waits[name] = state
            elif state not in _WAITS:
                self._waits.pop(name, None)
        for subject, said in by.items():
            yield Decided(turn.now_s, subject, ", ".join(said))


def _told(effect: ef.Effect) -> tuple[str, str] | None:
    """For whom, and what; None: it is no decision."""
    if isinstance(effect, ef.BindPod):
        member = effect.name.removeprefix(effect.group.partition("/")[2]).lstrip("-")
        ids = "".join(_ID.findall(effect.annotations.get(ALLOCATED_KEY, "").partition(":")[2]))
        return effect.group, f"{member} on {effect.node}{f'[{ids}]' if ids else ''}".lstrip()
    if isinstance(effect, ef.EvictPod):
        return f"{effect.namespace}/{effect.name}", "is evicted"
    if isinstance(effect, ef.DeletePod):
        return f"{effect.namespace}/{effect.name}", "is deleted"
    if isinstance(effect, ef.NominateNode):
        return f"{effect.namespace}/{effect.name}", f"is nominated for {effect.node or 'no node'}"
    if isinstance(effect, ef.PatchPod):
        return f"{effect.namespace}/{effect.name}", "has its devices written again"
    if isinstance(effect, ef.AskExtenders):
        return f"{effect.namespace}/{effect.name}", f"is shown to extenders for {len(effect.nodes)} nodes"
    return None


def decisions(records: Iterable[Record]) -> Iterator[Decided]:
    """One process's, in order. Raises: Divergence."""
    first, *others = records
    assert isinstance(first, Start)
    replay = DayReplay(first)
    for record in others:
        replay.play(record)
        yield from replay.decided


class Otherwise(Exception):
    """A decision differs from the one that is kept: which, when, for whom, and what to do."""


def compare(name: str, records: Iterable[Record], kept: Sequence[str]) -> int:
    """Makes a process's calls; returns how many decisions were made, all as kept. Raises: Otherwise."""
    found, n = decisions(records), 0
    while True:
        try:
            now = next(found, None)
        except Divergence as error:
            raise Otherwise(_difference(name, kept[n : n + 1], f"{_clock(error.at_s)} {error}")) from None
        if now is None and n == len(kept):
            return n
        if now is None or n == len(kept) or str(now) != kept[n]:
            raise Otherwise(_difference(name, kept[n : n + 1], "" if now is None else str(now)))
        n += 1


def _clock(at_s: float) -> str:
    return str(Decided(at_s, "", "")).strip()


def _difference(name: str, kept: Sequence[str], now: str) -> str:
    before = kept[0] if kept else ""
    return "\n".join(
        [
            f"The recorded day is decided otherwise, from this decision of {name} on:",
            f"  kept: {before or 'no more decisions'}",
            f"  now:  {now or 'no more decisions'}",
            f"If the change is meant to decide otherwise, `{ACCEPT}` makes the day again and reports"
            " what became of each gang; have the diff of tests/journal/day/kept reviewed with it.",
        ]
    )


def journals_in(directory: Path) -> dict[str, Path]:
    """By name of the process."""
    return {one.name.partition(".")[0]: one for one in sorted(directory.glob("*.jsonl.zst"))}


def records_of(path: Path) -> list[Record]:
    """Raises: ParseError (this version cannot read them)."""
    body = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    return [read_record(line) for line in body.splitlines()]


def read_kept(directory: Path) -> dict[str, list[str]]:
    """The lines of each process."""
    kept: dict[str, list[str]] = {}
    for line in (directory / DECISIONS).read_text().splitlines():
        if line.startswith("== "):
            kept[line[3:]] = []
        elif line and not line.startswith("#"):
            kept[next(reversed(kept))].append(line)
    return kept
