"""Groups waiting in Permit, and an administrator's decision: allow or reject.

Lives here: the answers of GET /permit and POST /permit/{namespace}/{name}/allow and …/reject. Not here: HTTP
and authorization (web.serving.server, access). A decision needs its own right on these paths: the right to
edit a gang does not allow bypassing an administrator's Permit plugin.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gangsched.core.groups.attempts.permits import may_be_overruled
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import NEVER_S, Group, GroupState
from gangsched.model.events import Event, GroupAllowed, GroupRejected
from gangsched.model.text.printable import clean


class Waiting:
    """Reserved groups that wait."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        put_nowait: Callable[[Event], None],
        may_act: Callable[[], bool],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._put = put_nowait
        self._may_act = may_act
        self._clock_s = clock_s

    def listed(self) -> bytes:
        """Returns JSON: each group's name, what it waits for by plugin, and for how long."""
        now_s = self._clock_s()
        found = []
        for group in sorted(self._groups(), key=lambda group: str(group.key)):
            left_s = group.deadline_s - now_s if group.deadline_s < NEVER_S else None
            found.append(
                {
                    "group": str(group.key),
                    "scheduler": group.scheduler_name,
                    "reserved": group.n_assumed,
                    "waitsFor": dict(self._scheduler.permits.waits_for(group)),
                    "secondsWaited": round(now_s - group.since_s, 1),
                    "secondsLeft": None if left_s is None else round(max(left_s, 0.0), 1),
                }
            )
        return msgspec.json.encode({"waiting": found})

    def decide(self, name: str, *, word: str, by: str, reason: str) -> tuple[int, str]:
        """Returns HTTP status and message; the core handles the gang in its next turn."""
        if not self._may_act():
            return 503, "this replica does not lead; ask the one that holds the lease"
        group = next((group for group in self._groups() if str(group.key) == name), None)
        if group is None:
            return 404, f"no group {clean(name)} waits in Permit"
        if word == "reject":
            self._put(GroupRejected(group.key, clean(by), clean(reason)))
            return 200, f"{name} gives back what it holds"
        stays = self._stays(group)
        if stays:
            return 409, f"{name} waits for what its own definition asks for, and cannot be allowed: {stays}"
        self._put(GroupAllowed(group.key, "", clean(by)))
        return 200, f"{name} need not wait"

    def _groups(self) -> list[Group]:
        groups = self._scheduler.shared.groups.values()
        return [group for group in groups if group.state is GroupState.WAITING and group.n_assumed]

    def _stays(self, group: Group) -> str:
        """Returns what the group would still wait for."""
        waits_for = self._scheduler.permits.waits_for(group)
        permits = self._scheduler.shared.profile_of(group).permits
        firm = [plugin.name for plugin in permits if not may_be_overruled(plugin)]
        return "; ".join(waits_for[name] for name in firm if name in waits_for)
