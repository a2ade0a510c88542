"""PendingHooks: plugins' hooks running at the edge, by ticket; and the points whose answers change nothing.

The core never waits: RunHook is an effect, HookAnswered an event, and in between there is one HookCall here.
The caller decides which plugin is next, and what an answer means: core.binding.pre_bind (PreBind),
core.binding.binder (Bind), core.groups.attempts.permits (Permit), core.groups.members.pre_enqueue. PostBind
and Unreserve are informational, so they begin and end here. After a crash the old process's tickets are void:
its pods are found unbound and are planned again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gangsched.core.framework.interface import Code, Status
from gangsched.core.framework.plugin_calls import PluginError, blamed
from gangsched.core.framework.profile import Profile
from gangsched.core.types.group import Group, PodInfo
from gangsched.model.effects import BlamePlugin, CancelHooks, Effect, RecordEvent, RunHook
from gangsched.model.events import HookAnswered
from gangsched.model.objects import Pod

PERMIT, PRE_BIND, BIND, POST_BIND = "Permit", "PreBind", "Bind", "PostBind"
PRE_ENQUEUE = "PreEnqueue"
_NOTHING: Mapping[str, str] = {}


class HookCall:
    """A call of one plugin for one member (`info`), or for the group as a whole.

    attempt: the member's when the call was made, so that a late answer is not taken for a newer one's.
    later: the plugins to call after this one, by name.
    """

    __slots__ = ("attempt", "group", "info", "later", "plugin", "point", "ticket")

    def __init__(
        self,
        ticket: int,
        point: str,
        group: Group,
        info: PodInfo | None,
        plugin: str,
        later: Sequence[str],
    ) -> None:
        self.ticket = ticket
        self.point = point
        self.group = group
        self.info = info
        self.attempt = info.attempt if info is not None else 0
        self.plugin = plugin
        self.later = later


class PendingHooks:
    """Starts and tracks calls."""

    def __init__(self, effects: list[Effect], counters: Counter[str]) -> None:
        """effects, counters: the turn's and the scheduler's, to add to."""
        self._effects = effects
        self._counters = counters
        self._last_ticket = 0
        self.calls: dict[int, HookCall] = {}
        self.latest: HookCall | None = None
        """The call whose answer was taken last."""

    def ask(
        self,
        point: str,
        plugins: Sequence[str],
        group: Group,
        info: PodInfo | None = None,
        annotations: Mapping[str, str] = _NOTHING,
    ) -> HookCall:
        """Calls the first of `plugins`; the rest are handed to the code that takes the answer."""
        self._last_ticket += 1
        call = HookCall(self._last_ticket, point, group, info, plugins[0], plugins[1:])
        self.calls[call.ticket] = call
        self._effects.append(
            RunHook(
                ticket=call.ticket,
                point=point,
                profile=group.scheduler_name,
                plugin=call.plugin,
                group=group.key,
                pod=info.pod if info is not None else None,
                node_name=info.node_name if info is not None else "",
                annotations=annotations,
                cause_id=group.cause_id,
            )
        )
        return call

    def take(self, event: HookAnswered) -> HookCall | None:
        """Returns the call that this answers; None when it was cancelled. A failure is reported here, once;
        PreEnqueue's, which is retried, by core.groups.members.pre_enqueue."""
        call = self.latest = self.calls.pop(event.ticket, None)
        if call is not None and call.point != PRE_ENQUEUE and event.code == Code.ERROR.value:
            about = call.info.pod.key if call.info is not None else str(call.group.key)
            self.blame(PluginError(call.plugin, call.point, f"{about}: {event.reason}"), call.group)
        return call

    def cancel(self, calls: Iterable[HookCall]) -> None:
        """Cancels the calls that have not been answered."""
        tickets = tuple(call.ticket for call in calls if self.calls.pop(call.ticket, None) is not None)
        if tickets:
            self._effects.append(CancelHooks(tickets))

    def post_bind(self, info: PodInfo, profile: Profile) -> None:
        """Calls all PostBind plugins for a bound member; their answers change nothing."""
        if info.group is not None:
            for plugin in profile.post_binds:
                self.ask(POST_BIND, (plugin.name,), info.group, info)

    def unreserve(self, group: Group, infos: Sequence[PodInfo], profile: Profile) -> None:
        """Calls all Reserve plugins for members whose reservations are released, the last plugin first."""
        for plugin in reversed(profile.reserves):
            try:
                plugin.unreserve(group, infos)
            except Exception as error:  # nothing may keep a reservation from being released
                self.blame(blamed(plugin.name, "Unreserve", error), group)

    def blame(self, error: PluginError, group: Group | None = None, pod: Pod | None = None) -> None:
        """Reports a plugin's failure: counted by name, logged, and an event if a group suffers."""
        self._counters["plugin_errors"] += 1
        self._counters[f"plugin_errors/{error.plugin}/{error.point}"] += 1
        cause_id = group.cause_id if group is not None else ""
        self._effects.append(BlamePlugin(error.plugin, error.point, error.problem, cause_id))
        info = group.first() if group is not None else None
        about = info.pod if pod is None and info is not None else pod
        if about is not None:
            meta = about.metadata
            self._effects.append(
                RecordEvent(
                    *("Pod", "v1", meta.namespace, meta.name, meta.uid),
                    *("Warning", "PluginFailed", error.point, str(error)[:_MAX_NOTE], cause_id),
                )
            )


# kube-apiserver refuses longer event notes.
_MAX_NOTE = 1024


def status_of(event: HookAnswered, plugin: str) -> Status:
    """The answer as the Status that the plugin gave, or an equivalent one."""
    return Status(Code(event.code), event.reason, plugin, event.timeout_s)


__all__ = ["BIND", "PERMIT", "POST_BIND", "PRE_BIND", "PRE_ENQUEUE", "HookCall", "PendingHooks", "status_of"]
