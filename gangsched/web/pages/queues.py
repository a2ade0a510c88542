"""What each queue uses and is entitled to: GET /queues. Called by web.pages.queue, for
web.commands.queues.
"""

from __future__ import annotations

from gangsched.core.state.state import SharedState
from gangsched.core.types.states import NOT_QUEUED
from gangsched.web.pages.answers import QueueShare, QueuesPage


def queues_page(shared: SharedState) -> QueuesPage:
    """The page as of the last turn."""
    view = shared.queue_view
    book = view.queues if view is not None else None
    if book is None or view is None:
        return QueuesPage(())
    waiting = dict.fromkeys(book.tree.queues, 0)
    for group in shared.groups.values():
        if group.state not in NOT_QUEUED:
            for name in book.tree.paths.get(view.queue_of(group), ()):
                waiting[name] += 1
    rows = []
    for name, queue in book.tree.queues.items():
        used, guaranteed = dict(book.used(name)), dict(book.guaranteed(name))
        rows.append(
            QueueShare(
                queue=name,
                depth=len(book.tree.paths[name]) - 1,
                share=queue.share,
                used=used,
                guaranteed=guaranteed,
                limit=dict(queue.limit),
                borrowed={r: used[r] - n for r, n in guaranteed.items() if used.get(r, 0) > n},
                pods=book.n_pods(name),
                share_used=round(book.dominant(name), 6),
                share_decayed=round(book.decayed(name, view.now_s), 6),
                score=round(book.score(name, view.now_s), 6),
                waiting=waiting[name],
            )
        )
    return QueuesPage(tuple(rows))
