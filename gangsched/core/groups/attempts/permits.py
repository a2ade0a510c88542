"""Permits: Permit's answers, from synchronous plugins, from plugins at the edge, and from people.

Answers are kept while the group keeps its reservations; once it releases them, plugins are asked again. What
a group waits for is recorded here, for a plugin (through its handle) or an operator (through the secure port)
that wants to release it. The wait itself is a state of core.state.tables.groups' table, ended by its
deadline.

    sync plugin      called in the group's turn, and again whenever the group or a sibling changes
    async plugin     called at the edge once for each set of reserved members; the group waits for its answer
    GroupAllowed     ends the wait for the named plugin, or for every plugin that may be overruled
    GroupRejected    releases everything
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.core.framework.interface import SUCCESS, Code, Status
from gangsched.core.framework.supports import SupportsMayBeOverruled, serves
from gangsched.core.state.pending_hooks import PERMIT, HookCall, status_of
from gangsched.core.state.plugin_waits import PermitWait
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.model.events import GroupAllowed, HookAnswered


class Permits:
    """Calls Permit, and keeps the answers (core.state.plugin_waits)."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._waits = shared.permit_waits

    def ask(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        """Asks Permit: the first "no" wins, else "wait" if any plugin says so. Raises: PluginError."""
        observer = self._shared.observer
        if observer is None:
            return self._ask(group, siblings)
        observer.point_began(PERMIT)
        code = Code.ERROR
        try:
            status = self._ask(group, siblings)
            code = status.code
            return status
        finally:
            observer.point_ended(PERMIT, code)

    def _ask(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        profile = self._shared.profile_of(group)
        wait = self._waits.get(group.key)
        overruled = self._overruled(group, wait) if wait is not None and wait.allowed else frozenset()
        waits: list[Status] = []
        for plugin in profile.permits:
            if plugin.name in overruled:
                continue
            if plugin.name in profile.async_permits:
                status = self._asked(group, plugin.name)
            else:
                status = profile.ask_permit(plugin, group, siblings)
            if status.is_success:
                continue
            if status.code is Code.WAIT:
                waits.append(status)
            elif status.code is not Code.SKIP:
                return status
        if not waits:
            return SUCCESS
        known = self._waits.setdefault(group.key, PermitWait())
        known.waits_for = {status.plugin: status.reason for status in waits}
        timeouts = [status.timeout_s for status in waits if status.timeout_s is not None]
        reason = "; ".join(status.reason for status in waits if status.reason)
        return Status(Code.WAIT, reason, waits[0].plugin, min(timeouts) if timeouts else None)

    def _asked(self, group: Group, plugin: str) -> Status:
        """An async plugin's answer, or "wait" until it comes."""
        wait = self._waits.setdefault(group.key, PermitWait())
        members = frozenset(info.uid for info in group.in_state(MemberState.ASSUMED))
        if members != wait.members:
            self._shared.hooks.cancel(wait.open.values())
            wait.members, wait.answers, wait.open = members, {}, {}
        known = wait.answers.get(plugin)
        if known is not None:
            return known
        if plugin not in wait.open:
            wait.open[plugin] = self._shared.hooks.ask(PERMIT, (plugin,), group)
        return Status.wait(f"{plugin} is being asked", plugin=plugin)

    def answered(self, call: HookCall, event: HookAnswered) -> None:
        """Takes an async plugin's answer; the group is reconsidered in its turn."""
        group, wait = call.group, self._waits.get(call.group.key)
        if wait is None or wait.open.get(call.plugin) is not call:
            return
        del wait.open[call.plugin]
        status = status_of(event, call.plugin)
        if status.code is Code.WAIT and not status.reason:
            status = Status.wait(f"{call.plugin} says wait", timeout_s=status.timeout_s, plugin=call.plugin)
        wait.answers[call.plugin] = status
        if group.state is GroupState.WAITING:
            if status.code is Code.WAIT and status.timeout_s is not None:
                # Its timeout runs from its answer, not from the call; another plugin's earlier timeout stays.
                ends_s = self._shared.now_s + status.timeout_s
                alone = len(wait.waits_for) == 1
                self._shared.queue.set_deadline(group, ends_s if alone else min(ends_s, group.deadline_s))
            self._shared.queue.activate(group, Cause.LOOK_AGAIN)

    def allow(self, event: GroupAllowed) -> bool:
        """Ends a group's wait for the named plugin, or for all; returns whether the group waited."""
        group, wait = self._shared.groups.get(event.group), self._waits.get(event.group)
        if group is None or wait is None or group.state is not GroupState.WAITING:
            return False
        wait.allowed.add(event.plugin)
        self._shared.queue.activate(group, Cause.LOOK_AGAIN)
        return True

    def is_asking(self, group: Group) -> bool:
        """Whether it waits only for pending answers, which is not worth reporting."""
        wait = self._waits.get(group.key)
        return wait is not None and bool(wait.open) and set(wait.open) == set(wait.waits_for)

    def waits_for(self, group: Group) -> Mapping[str, str]:
        """Plugin -> reason, for a group that waits."""
        wait = self._waits.get(group.key)
        return wait.waits_for if wait is not None else {}

    def forget(self, group: Group) -> None:
        """Forgets earlier answers, as the group binds."""
        self._shared.forget_permit(group)

    def _overruled(self, group: Group, wait: PermitWait) -> frozenset[str]:
        permits = self._shared.profile_of(group).permits
        named = (plugin for plugin in permits if "" in wait.allowed or plugin.name in wait.allowed)
        return frozenset(plugin.name for plugin in named if may_be_overruled(plugin))


def may_be_overruled(plugin: object) -> bool:
    """Whether people may overrule it; not a plugin that enforces the group's definition: the gang would be
    incomplete."""
    return not serves(plugin, SupportsMayBeOverruled) or bool(plugin.may_be_overruled)
