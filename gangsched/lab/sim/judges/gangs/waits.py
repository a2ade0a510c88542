"""Waits: checks that a gang that holds room without being bound gives it back when its time is over.

The time is what its pods state, parsed here separately, or the configuration's. Lives here: Permit's wait,
and the wait for victims. Not here: whether other groups get the room (lab.sim.judges.queueing.given_back,
lab.sim.judges.queueing.filling). Called by lab.sim.judges.step_judges after every step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.lab.sim.reading.documents import gang_of
from gangsched.lab.sim.reading.received import Received
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey

_KEY, _ALONE = "gangsched.io/schedule-timeout", "pod"
_OURS = "GangScheduling"
_STATED = re.compile(r"([0-9]{1,6})s")
_GRACE_S = 30.0
"""Kubernetes' default, for a pod that states none."""
_SLACK_S = 1.0
"""A turn comes a moment after its time."""


class Waits:
    """room-held-briefly: a gang holds room no longer than it or the configuration states, and with victims to
    wait for, their grace longer. Counted from the first step in which it holds the room."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[GroupKey, int], tuple[float, float]] = {}
        """By group and the number of its preemption (0: none): since when it holds room, and until when it
        may, by the longest time that was in force meanwhile."""

    def check(
        self, scheduler: Scheduler, received: Received, excuses: Callable[[Group], bool]
    ) -> Iterator[str]:
        """Checks groups that wait while they hold room, or for room that is kept for them; not those that may
        wait for a plugin, which has a time of its own."""
        now_s = scheduler.shared.now_s
        held: dict[tuple[GroupKey, int], tuple[float, float]] = {}
        for group in scheduler.shared.queue.waiting:
            promised = group.preemption
            holds = promised is not None or group.n_assumed
            if not holds or excuses(group) or _waits_for_plugins(group, scheduler):
                continue
            key = (group.key, promised.number if promised is not None else 0)
            since_s, until_s = self._since_s.get(key, (now_s, 0.0))
            until_s = max(until_s, since_s + _longest_s(group, scheduler, received))
            held[key] = since_s, until_s
            if now_s > until_s + _SLACK_S:
                yield (
                    f"room-held-briefly: {group.key} holds room for {now_s - since_s:.1f} s, "
                    f"until {until_s - since_s:.1f}"
                )
        self._since_s = held


def _waits_for_plugins(group: Group, scheduler: Scheduler) -> bool:
    """Whether Permit asks plugins other than GangScheduling, or the profile is not known."""
    profile = scheduler.shared.profiles.get(group.scheduler_name)
    return profile is None or any(plugin.name != _OURS for plugin in profile.permits)


def _longest_s(group: Group, scheduler: Scheduler, received: Received) -> float:
    """Returns how long this group may hold room, as things are now; inf if a time is stated in a form that
    the storms do not use."""
    stated_s = {_stated_s(received.pods[uid]) for uid in group.members if uid in received.pods}
    whole_s = max((one for one in stated_s if one is not None), default=0.0)
    if None in stated_s or not stated_s:
        whole_s = max(whole_s, scheduler.shared.settings.permit_wait_s)
    if group.preemption is None:
        return whole_s
    going = [received.pods[uid].spec for uid in group.preemption.waits_for if uid in received.pods]
    graces_s = [pod.termination_grace_period_seconds for pod in going]
    return whole_s + max((_GRACE_S if one is None else float(one) for one in graces_s), default=_GRACE_S)


def _stated_s(pod: Pod) -> float | None:
    """How long its annotation lets its gang wait; None: as long as the configuration does. A pod alone has no
    gang, so its annotation does not count."""
    text = (pod.metadata.annotations or {}).get(_KEY)
    gang = gang_of(pod)
    if text is None or gang is None or gang.dialect == _ALONE:
        return None
    stated = _STATED.fullmatch(text)
    return float(stated[1]) if stated else math.inf
