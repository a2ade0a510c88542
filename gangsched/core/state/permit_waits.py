"""PermitWait: what is known about one reserved group's wait in Permit, as data
(core.groups.attempts.permits).
"""

from __future__ import annotations

from gangsched.core.framework.status import Status
from gangsched.core.state.pending_hooks import HookCall


class PermitWait:
    """What is known about one reserved group.

    allowed: plugins that were overruled, "" for all; answers, open: async plugins' answers and open calls
    about `members`; waits_for: plugin -> its reason, as of the group's last turn.
    """

    __slots__ = ("allowed", "answers", "members", "open", "waits_for")

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.members: frozenset[str] = frozenset()
        self.answers: dict[str, Status] = {}
        self.open: dict[str, HookCall] = {}
        self.waits_for: dict[str, str] = {}
