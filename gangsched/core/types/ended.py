"""How a group that has started ended: by what has become of its pods, in a word and in words.

Pure; read by the core's explanations and by what shows gangs to people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gangsched.core.types.states import DONE, LEAVING, MemberState

if TYPE_CHECKING:
    from gangsched.core.types.group import Group

End = Literal["", "succeeded", "failed", "ended"]
"""ended: all that is left has succeeded, and others that it needed are gone."""


def end_of(group: Group) -> End:
    """Returns "" while a member runs or waits. A gang with failed members is failed although its controller
    may make others in their place: it then waits for these."""
    counts = group.counts
    n_done, n_failed = counts[DONE], counts[MemberState.FAILED]
    if not n_done + n_failed or n_done + n_failed + counts[LEAVING] < len(group.members):
        return ""
    if n_failed:
        return "failed"
    return "succeeded" if n_done >= group.min_count else "ended"


def ended_text(group: Group, of: str = "") -> str:
    """Returns "3 have succeeded, 1 has failed"; "" if none has ended. of: comes after the first number."""
    counts = group.counts
    ways = ((counts[DONE], "succeeded"), (counts[MemberState.FAILED], "failed"))
    found = [(n, "has" if n == 1 else "have", how) for n, how in ways if n]
    return ", ".join(f"{n}{'' if i else of} {has} {how}" for i, (n, has, how) in enumerate(found))
