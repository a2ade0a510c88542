"""Devices of a group that has started which are not well: by whose word, and what is done about it and when.

Called by core.explaining.explain.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gangsched.core.explaining.room import Found
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, Group, MemberState
from gangsched.model.devices.unwell import UNKNOWN, told_by_kubelet

_MAX_NAMED = 3


def with_devices(scheduler: Scheduler, group: Group, found: Found, now_s: float) -> Found:
    """Adds to what was found which of its devices have failed, or may have."""
    failures = list(scheduler.health.of_group(group))
    told = [f"{str(one.failed)[0].upper()}{str(one.failed)[1:]}." for one in failures[:_MAX_NAMED]]
    if len(failures) > _MAX_NAMED:
        told.append(f"Devices of {len(failures) - _MAX_NAMED} more of its pods have failed.")
    if unknown := list(islice(_unknown(scheduler, group), _MAX_NAMED)):
        told.append(f"Whether these are well is Unknown to their kubelets: {', '.join(unknown)}.")
    if not told:
        return found
    found.answer = " ".join((found.answer, *told))
    if failures:
        first = min(failures, key=lambda one: one.acts_s)
        found.cures = (*found.cures, f"Look at the node: gangsched devices {first.failed.node} --all.")
        found.then = found.then or _then(first.policy, first.acts_s, now_s)
    return found


def _then(policy: str, acts_s: float, now_s: float) -> str:
    if policy == "none":
        return "Nothing is evicted for that (onDeviceFailure: none)."
    if acts_s >= NEVER_S:
        return ""
    what = "Its gang" if policy == "evictGang" else "The pod"
    return f"{what} is evicted in {max(acts_s - now_s, 0.0):.0f} s unless it is well by then."


def _unknown(scheduler: Scheduler, group: Group) -> Iterator[str]:
    """Yields devices of which kubelets do not know whether they are well."""
    book = scheduler.shared.cache.claims
    for info in group.in_state(MemberState.BOUND):
        claims = book.claims_of(info.pod) if info.pod.uses_claims else {}
        for told in told_by_kubelet(info.pod, info.ids, claims):
            if told.health == UNKNOWN:
                yield f"{told.id} of {told.of} under pod {info.pod.key}"
