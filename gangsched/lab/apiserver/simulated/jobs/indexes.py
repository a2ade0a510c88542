"""Completion indexes in the form of a Job's status: "0,2-4,7".

Source of the format: kubernetes pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Collection


def parse(text: str, completions: int) -> set[int]:
    """Returns the indexes below `completions`; skips anything but intervals, as the controller does."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            found.update(range(int(first), min(int(last or first) + 1, completions)))
    return found


def text(indexes: Collection[int]) -> str:
    """Formats indexes; runs of three and more get a dash."""
    parts: list[str] = []
    ordered = sorted(indexes)
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        first, last = ordered[at], ordered[end]
        if last > first + 1:
            parts.append(f"{first}-{last}")
        else:
            parts += [str(each) for each in ordered[at : end + 1]]
        at = end + 1
    return ",".join(parts)


def pending(taken: Collection[int], count: int, completions: int) -> list[int]:
    """The lowest `count` indexes that are not taken."""
    found: list[int] = []
    for index in range(completions):
        if len(found) >= count:
            break
        if index not in taken:
            found.append(index)
    return found
