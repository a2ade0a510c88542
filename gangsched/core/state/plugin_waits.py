"""What waits for plugins, as data: reserved groups for Permit (PermitWait), and the pods that PreEnqueue
keeps out of the queue, with those to ask about again (EnqueueWaits).

PermitWaits are kept by core.groups.attempts.permits. EnqueueWaits are filled and asked by
core.groups.members.pre_enqueue; which changes of the cluster may cure such pods is heard by core.state.state
together with the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gangsched.core.cache.cache import Cache
from gangsched.core.framework.interface import CuringPlugin
from gangsched.core.framework.plugin_calls import blamed
from gangsched.core.framework.profile import Profile
from gangsched.core.framework.status import Status
from gangsched.core.framework.supports import serves
from gangsched.core.state.pending_hooks import HookCall, PendingHooks
from gangsched.core.types.cluster_events import ClusterChange

# With more pairs of a change and a pod, every pod is asked about again instead.
_MAX_PAIRS = 20_000


class PermitWait:
    """What is known about one reserved group's wait in Permit.

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


class _Shared(Protocol):
    """What is read of core.state.state.SharedState."""

    cache: Cache
    hooks: PendingHooks
    profiles: Mapping[str, Profile]


class EnqueueWaits:
    """The pods that PreEnqueue plugins keep out."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self.by_plugin: dict[str, dict[str, None]] = {}
        """Plugin -> UIDs of the pods that it keeps out, if it names changes that may cure them."""
        self.again: dict[str, None] = {}
        """UIDs of the pods to ask the plugins about again."""

    def clear(self) -> None:
        """Forgets all of them."""
        self.by_plugin.clear()
        self.again.clear()

    def note_cured(self, changes: Sequence[ClusterChange]) -> None:
        """Notes the pods that the changes may cure."""
        for name, uids in self.by_plugin.items():
            if not uids:
                continue
            for profile in self._shared.profiles.values():
                plugin = profile.plugin(name)
                if plugin is None or not serves(plugin, CuringPlugin):
                    continue
                matching = [change for change in changes if change.what & plugin.cured_by]
                is_many = len(matching) * len(uids) > _MAX_PAIRS
                for uid in uids if matching else ():
                    if uid not in self.again and (is_many or self._cures(plugin, matching, uid)):
                        self.again[uid] = None

    def _cures(self, plugin: CuringPlugin, matching: Iterable[ClusterChange], uid: str) -> bool:
        info = self._shared.cache.pods.get(uid)
        if info is None:
            return False
        try:
            return any(plugin.cures(one, info.template, self._shared.cache.view) for one in matching)
        except Exception as error:
            self._shared.hooks.blame(blamed(plugin.name, "EventsToRegister", error), info.group, info.pod)
            return True
