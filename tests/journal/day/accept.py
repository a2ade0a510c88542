"""`make day`: makes the recorded day again, after a change that is meant to decide otherwise.

Prints what became of the gangs, before and now; the diff of the kept files is what a reviewer reads. Where
nothing decides otherwise the same bytes are written again.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gangsched.model.text.printable import several
from tests.journal.day.decisions import DECISIONS, DIRECTORY, decisions, journals_in, read_kept, records_of
from tests.journal.day.making import DAY_S, N_GANGS, journals

_HEAD = """\
# What is decided on the recorded day (tests/journal/day), a line for each decision and group. Not written by
# hand: `make day` writes it, after a change that is meant to decide otherwise.
"""
_LINE = re.compile(r"(\d+):(\d\d):(\d\d\.\d\d) (\S+) (.*)")
_PLACE = re.compile(r"\bon n\d")
_MAX_TOLD = 10


class Fate(NamedTuple):
    """What became of a group: when it got its first places, and which."""

    at_s: float
    where: str


def make(directory: Path, *, n_gangs: int = N_GANGS, day_s: float = DAY_S) -> None:
    """Writes journals and decisions."""
    directory.mkdir(exist_ok=True)
    for path in journals_in(directory).values():
        path.unlink()
    parts = [_HEAD]
    for name, body in journals(n_gangs, day_s=day_s):
        path = directory / f"{name}.jsonl.zst"
        path.write_bytes(body)
        parts += [f"== {name}\n", *(f"{one}\n" for one in decisions(records_of(path)))]
    (directory / DECISIONS).write_text("".join(parts))


def compared(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Lines for whoever has to say yes to it."""
    for name in {**before, **now}:
        was, is_now = before.get(name, ()), now.get(name, ())
        if was == is_now:
            yield f"{name}: {len(is_now):,} decisions, all as before"
            continue
        first = next((n for n, pair in enumerate(zip(was, is_now, strict=False)) if pair[0] != pair[1]), 0)
        yield f"{name}: {len(was):,} decisions before, {len(is_now):,} now; the first that differs:"
        yield f"  before: {was[first] if first < len(was) else 'none'}"
        yield f"  now:    {is_now[first] if first < len(is_now) else 'none'}"
        yield from _by_gang(_fates(was), _fates(is_now))
        yield f"  evicted: {several(_n_evicted(was), 'pod')} before, {_n_evicted(is_now)} now"


def _by_gang(was: Mapping[str, Fate], now: Mapping[str, Fate]) -> Iterable[str]:
    both = [name for name in was if name in now]
    moved = [name for name in both if was[name].where != now[name].where]
    shifted = {name: d for name in both if (d := now[name].at_s - was[name].at_s)}
    later = sorted((d for d in shifted.values() if d > 0), reverse=True)
    earlier = sorted(d for d in shifted.values() if d < 0)
    yield (
        f"  of {len(both)} groups placed in both, {len(moved)} got other places, {len(earlier)} came earlier"
        f" and {len(later)} later: {sum(shifted.values()) / max(len(both), 1):+.1f} s a group"
    )
    for words, names in (("never placed now", set(was) - set(now)), ("placed only now", set(now) - set(was))):
        if names:
            more = " ..." if len(names) > _MAX_TOLD else ""
            yield f"  {words}: {', '.join(sorted(names)[:_MAX_TOLD])}{more}"
    for name in sorted(shifted, key=lambda one: (-abs(shifted[one]), one))[:_MAX_TOLD]:
        yield f"  {name}: {shifted[name]:+.1f} s"


def _fates(lines: Sequence[str]) -> dict[str, Fate]:
    found: dict[str, Fate] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None and _PLACE.search(match[5]):
            at_s = 3600.0 * int(match[1]) + 60.0 * int(match[2]) + float(match[3])
            found.setdefault(match[4], Fate(at_s, match[5]))
    return found


def _n_evicted(lines: Sequence[str]) -> int:
    return sum(line.endswith((" is evicted", " is deleted")) for line in lines)


def main() -> int:
    before = read_kept(DIRECTORY) if (DIRECTORY / DECISIONS).exists() else {}
    print(f"making {N_GANGS:,} gangs' day again; about a minute")
    make(DIRECTORY)
    for line in compared(before, read_kept(DIRECTORY)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
