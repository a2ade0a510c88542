"""Two decisions side by side: every way in which they differ, in words; nothing where they are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.differential.kube import Attempt
from tests.differential.ours import Decision

_TAINT = re.compile(r" \{[^}]*\}$")
_REASON = re.compile(r"(\d+) (.+)")


def differences(theirs: Attempt, ours: Decision) -> list[str]:
    """kube-scheduler's decision against ours; they may choose different nodes of the same score only."""
    # It tells how many there were once the pod is bound.
    is_told = not theirs.is_error
    assert not is_told or theirs.n_feasible == len(theirs.feasible), "its log has been read wrongly"
    if theirs.feasible != ours.feasible:
        return [f"feasible: theirs {sorted(theirs.feasible)}, ours {sorted(ours.feasible)}"]
    found = [] if theirs.node else _refusals(theirs.message, ours)
    if theirs.totals:
        found += _scores(theirs, ours)
    if theirs.node:
        found += _choice(theirs, ours)
    return found


def _refusals(message: str, ours: Decision) -> list[str]:
    if ours.node:
        return [f"they refuse ({message}), we choose {ours.node}"]
    mine, other = reasons(ours.message), reasons(message)
    return [] if mine == other else [f"reasons: theirs {other}, ours {mine}"]


def reasons(message: str) -> dict[str, int]:
    """How many nodes are out for what: "0/3 nodes are available: 2 Insufficient cpu, 1 Too many pods.".

    Ours names each taint, in braces; kube-scheduler counts them together.
    """
    _, found, listed = message.partition(" nodes are available: ")
    if not found:
        return {message: -1}
    listed = listed.split(". ")[0].rstrip(".")
    matches = (_REASON.fullmatch(one) for one in listed.split(", "))
    # Refused before any node was looked at, it is the reason alone.
    counted: dict[str, int] = {}
    for match in filter(None, matches):
        reason = _TAINT.sub("", match[2])
        counted[reason] = counted.get(reason, 0) + int(match[1])
    return counted or {listed: -1}


def _scores(theirs: Attempt, ours: Decision) -> Iterable[str]:
    """Each plugin's scores are the same, or the same for all nodes where one side has nothing to say."""
    names = sorted({*ours.scores, *(plugin for scores in theirs.scores.values() for plugin in scores)})
    for name in names:
        other = {node: scores.get(name) for node, scores in theirs.scores.items()}
        mine = ours.scores.get(name)
        if mine is None or set(other.values()) == {None}:
            if len(set((mine or other).values())) > 1:
                yield f"{name}: theirs {other}, ours {mine}"
        elif mine != other:
            yield f"{name}: theirs {other}, ours {mine}"
    # Ours are what is kept between pods and added up; a plugin that gives all nodes the same may be left out.
    if len({total - ours.totals[node] for node, total in theirs.totals.items()}) > 1:
        yield f"sums: theirs {theirs.totals}, ours {ours.totals}"


def _choice(theirs: Attempt, ours: Decision) -> Iterable[str]:
    if ours.totals and ours.totals[theirs.node] < max(ours.totals.values()):
        yield f"they choose {theirs.node}, which is not among our best {ours.totals}"
    if not ours.node:
        yield f"they choose {theirs.node}, we refuse: {ours.message}"
    elif theirs.totals and theirs.totals[ours.node] < max(theirs.totals.values()):
        yield f"we choose {ours.node}, which is not among their best {theirs.totals}"
