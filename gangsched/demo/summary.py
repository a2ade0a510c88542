"""The end of the demo in words: what became of each gang, with times, and what was never seen.

Pure: the chronicle in, lines out. Called by gangsched.demo.command.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.group import GroupState
from gangsched.demo.names import host_list, seconds
from gangsched.demo.scene import RUNNING, Change, Chronicle, took_s


def summary(seen: Chronicle) -> list[str]:
    """What happened, a line or two for each gang."""
    names = list(dict.fromkeys(group.short for group in seen.scene.groups))
    width = max(map(len, names), default=0)
    lines = [f"What happened in {seconds(seen.scene.at_s)}:"]
    for name in names:
        sentences = list(_life(seen.of(name)))
        lines.append(f"  {name:<{width}}  {sentences[0] if sentences else ''}")
        lines += [f"  {'':<{width}}  {sentence}" for sentence in sentences[1:]]
    if not seen.broken:
        lines.append("At no moment was a gang bound in part, or a GPU given to two pods.")
    return lines


def _life(changes: list[Change]) -> Iterator[str]:
    """One gang's life, in the sentences that matter; several of one name are told as one."""
    held: Change | None = None
    refused: Change | None = None
    for change in changes:
        view, state = change.seen.view, change.seen.view.state
        at = f"at {change.at_s:4.1f} s"
        if change.seen.gone:
            yield f"{at} deleted: what it had is free"
        elif state is GroupState.WAITING and held is None:
            held = change
            what = f"{len(view.ids)} GPUs " if view.ids else ""
            yield f"{at} reserved, {what}on {host_list(view.nodes)}; {change.seen.why}"
        elif held is not None and not view.holds and not view.n_bound:
            yield f"{at} all given back, after {seconds(change.at_s - held.at_s)} in Permit"
            held = None
        elif state is GroupState.UNSCHEDULABLE and refused is None:
            refused = change
            yield f"{at} refused: {_first_clause(change.seen.why)}"
        elif change.seen.word == RUNNING:
            yield f"{at} running, bound {_bound(change)}"


def _bound(change: Change) -> str:
    view = change.seen.view
    took = seconds(took_s(view) or 0.0)
    pods = "1 pod" if view.n_bound == 1 else f"all {view.n_bound} pods"
    gpus = f" with {len(view.ids)} GPU{'s' * (len(view.ids) != 1)}" if view.ids else ""
    return f"{took} after it was complete: {pods}{gpus} on {host_list(view.nodes)}"


def _first_clause(why: str) -> str:
    return why.partition(";")[0]
