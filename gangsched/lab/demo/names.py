"""Short names for many things: n[04-07] for nodes, as Slurm writes host lists, and for device IDs alike.

Called by gangsched.lab.demo.shows.screen and the words around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})")
ELLIPSIS = "…"


def host_list(names: Iterable[str]) -> str:
    """Gathers names that end with a number by the part before it; "-" for none."""
    stems: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            stem, digits = match.groups()
            # Only equally written numbers belong to one range: n9 and n10, n09 and n10, but not n9 and n09.
            width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
            stems.setdefault((stem, width), []).append(int(digits))
    _join_widths(stems)
    parts = [_bracket(stem, width, sorted(numbers)) for (stem, width), numbers in stems.items()]
    return ",".join([*parts, *plain]) or "-"


def _join_widths(stems: dict[tuple[str, int], list[int]]) -> None:
    """Joins n09 and n10: they are of one width, though only one of them shows it."""
    for stem, width in [key for key in stems if key[1]]:
        bare = stems.get((stem, 0), [])
        same = [number for number in bare if len(str(number)) == width]
        stems[stem, width] += same
        if len(same) == len(bare):
            stems.pop((stem, 0), None)
        elif same:
            stems[stem, 0] = [number for number in bare if number not in same]


def _bracket(stem: str, width: int, numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        f"{run[0]:0{width}}" if len(run) == 1 else f"{run[0]:0{width}}-{run[-1]:0{width}}" for run in runs
    ]
    return f"{stem}{parts[0]}" if len(numbers) == 1 else f"{stem}[{','.join(parts)}]"


def id_list(ids: Sequence[str], *, keep: int = 12) -> str:
    """Device IDs of one node: as a host list where they are numbered, else the first ones cut short."""
    if not ids:
        return "-"
    if len(ids) == 1:
        return ids[0]
    listed = host_list(ids)
    if "[" in listed and "," not in listed.partition("[")[0] and listed.count("[") == 1:
        return listed
    shown = [text if len(text) <= keep else text[: keep - 1] + ELLIPSIS for text in ids[:2]]
    more = len(ids) - len(shown)
    return " ".join(shown) + (f" +{more}" if more else "")


def seconds(value_s: float) -> str:
    """A length of time for people, at most six cells up to a day: 4 ms, 0.25 s, 12.3 s, 125 s, 33 min."""
    if value_s < 0.0995:
        return f"{max(value_s, 0) * 1000:.0f} ms"
    if value_s < 1:
        return f"{value_s:.2f} s"
    if value_s < 100:
        return f"{value_s:.1f} s"
    return f"{value_s:.0f} s" if value_s < 1000 else f"{value_s / 60:.0f} min"
