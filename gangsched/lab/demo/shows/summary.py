"""The end of the demo in words: each gang's outcome, with times, and what was never seen.

Pure: the chronicle in, lines out. Called by gangsched.lab.demo.command.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.explaining.reports import GroupView
from gangsched.core.types.group import GroupState
from gangsched.lab.demo.names import host_list, seconds
from gangsched.lab.demo.scene import Change, Chronicle, promise_of, took_s
from gangsched.model.text.printable import several


def summary(seen: Chronicle) -> list[str]:
    """Returns what happened, a line or two for each gang."""
    names = list(dict.fromkeys(group.short for group in seen.scene.groups))
    width = max(map(len, names), default=0)
    lines = [f"What happened in {seconds(seen.scene.at_s)}:"]
    for name in names:
        sentences = list(_life(seen.history(name)))
        lines.append(f"  {name:<{width}}  {sentences[0] if sentences else ''}")
        lines += [f"  {'':<{width}}  {sentence}" for sentence in sentences[1:]]
    if not seen.broken:
        lines.append("At no moment was a gang bound in part, or a GPU given to two pods.")
    return lines


def _life(changes: list[Change]) -> Iterator[str]:
    """Yields one gang's life, in the sentences that matter; several of one name are merged."""
    held: Change | None = None
    refused = bound = promised = False
    for change in changes:
        view, state = change.seen.view, change.seen.view.state
        at = f"{change.at_s:5.1f} s "
        if change.seen.gone:
            yield f"{at} deleted; what it had is free"
            refused = bound = promised = False
        elif (promise := promise_of(change.seen)) and not promised:
            promised = True
            yield f"{at} {promise.rstrip('.')}"
        elif state is GroupState.WAITING and held is None:
            held = change
            why = change.seen.why.partition(", or ")[0]
            yield f"{at} held {_gpus(view)} on {host_list(view.nodes)}: {why}"
        elif held is not None and not view.holds and not view.n_bound:
            yield f"{at} gave all of it back, after {seconds(change.at_s - held.at_s)} in Permit"
            held = None
        elif state is GroupState.UNSCHEDULABLE and not refused:
            refused = True
            # The first sentence's first half: a line has room for no more.
            yield f"{at} refused: {change.seen.why.partition(';')[0].partition('. ')[0]}"
        elif took_s(view) is not None and not bound:
            bound, held = True, None
            yield f"{at} bound after {seconds(took_s(view) or 0.0)}: {_size(view)} on {host_list(view.nodes)}"


def _size(view: GroupView) -> str:
    pods = f"{several(view.n_bound, 'pod')}"
    return f"{pods}, {_gpus(view)}" if view.ids else pods


def _gpus(view: GroupView) -> str:
    return f"{several(len(view.ids), 'GPU')}"
