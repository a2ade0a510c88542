"""Why a group's queue keeps it out: there is no such queue, or a limit is exceeded, and what uses it up.

Called by core.explaining.room.
"""

from __future__ import annotations

from collections import Counter

from gangsched.core.cache.queues.tree import QUEUE_KEY
from gangsched.core.preemption.queue_rights import SYSTEM_PRIORITY
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.core.why.not_tried import KEPT_FOR
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import marked, sentence

_MAX_NAMED = 4


def names_wrong_queue(scheduler: Scheduler, group: Group) -> tuple[str, str] | None:
    """(the explanation, the cure); None if its pods name no queue, or one that takes them."""
    shared = scheduler.shared
    book = shared.queues()
    if book is None or group.is_half_bound:
        return None
    for info in shared.start_together.members_to_admit(group):
        if problem := book.tree.choice(info.pod).problem:
            return (
                sentence(f"Pod {info.pod.key} names a queue that does not take it: {problem}"),
                f"Correct {QUEUE_KEY} in the pods' template, and on the pods that exist: they are looked at"
                " again at once. Which namespaces a queue takes is in the scheduler's configuration.",
            )
    return None


def at_limit(scheduler: Scheduler, group: Group) -> tuple[str, str] | None:
    """(the explanation, the cure); None if no limit of its queue keeps it out."""
    shared = scheduler.shared
    book, view = shared.queues(), shared.queue_view
    if book is None or view is None or group.is_half_bound or group.priority >= SYSTEM_PRIORITY:
        return None
    asked = book.asked(shared.start_together.members_to_admit(group))
    over = book.over_limit(asked, view.kept_in_limits(group))
    if over is None:
        return None
    name, resource, needs, used, kept, limit = over
    amounts = (used, limit, needs, used + kept + needs - limit, kept)
    used_text, limit_text, needs_text, over_text, kept_text = (amount_text(resource, n) for n in amounts)
    kept_for = f", {kept_text} {KEPT_FOR}" if kept else ""
    sentence = (
        f"Queue {name} is at its limit: {used_text} of {limit_text} {resource} are used{kept_for}, and it"
        f" needs {needs_text}, {over_text} too many."
    )
    if passed := scheduler.attempts.kept.describe_in_limits(group):
        sentence += f" {passed}"
    if needs > limit:
        return sentence, f"Ask for less, or raise the limit of queue {name}: with this limit it never starts."
    cure = f"Wait until {over_text} {resource} of queue {name} are free, or raise its limit."
    return f"{sentence} {_holders(scheduler, name, resource)}", cure


def _holders(scheduler: Scheduler, name: str, resource: str) -> str:
    """Names the largest holders of the resource in the queue and the queues below it."""
    book = scheduler.shared.queue_book
    assert book is not None
    held: Counter[tuple[str, str]] = Counter()
    for leaf, path in book.tree.paths.items():
        if name in path:
            for info in book.on_nodes(leaf):
                group = info.group
                is_gang = group is not None and group.is_gang
                owner = ("gang", str(group.key)) if group is not None and is_gang else ("pod", info.pod.key)
                held[owner] += info.template.requests.get(resource, 0)
    most = sorted(((n, owner) for owner, n in held.items() if n), key=lambda one: (-one[0], one[1]))
    named = ", ".join(
        f"{marked(kind, [owner])} ({amount_text(resource, n)})" for n, (kind, owner) in most[:_MAX_NAMED]
    )
    more = f" and {len(most) - _MAX_NAMED} more" if len(most) > _MAX_NAMED else ""
    return f"Held by {named}{more}."
