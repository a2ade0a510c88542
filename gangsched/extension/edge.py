"""Edge: receives the effects about plugins: hooks to run, hooks to cancel, plugins to blame.

Lives here: which object a hook is called on, and with what. Not here: running it (runner), its API (handle).
Made by process.app for every process; a scheduler without hooks loads and starts none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState
from gangsched.kube.client import ApiClient
from gangsched.model.effects import BlamePlugin, CancelHooks, RunHook
from gangsched.model.events import Event

if TYPE_CHECKING:
    from gangsched.extension.handle import Handle
    from gangsched.extension.runner import HookRunner

_log = structlog.get_logger(__name__)


class Edge:
    """The hooks' side of one scheduler process."""

    def __init__(
        self,
        scheduler: Scheduler,
        client: ApiClient,
        *,
        emit_nowait: Callable[[Event], None],
        may_act: Callable[[], bool],
    ) -> None:
        self._scheduler = scheduler
        self._client = client
        self._emit = emit_nowait
        self._may_act = may_act
        self._handles: dict[str, Handle] = {}
        self._runner: HookRunner | None = None

    def take(self, effect: RunHook | CancelHooks | BlamePlugin) -> None:
        """Take an effect; never blocks."""
        if isinstance(effect, BlamePlugin):
            _log.error("a plugin failed", plugin=effect.plugin, point=effect.point, err=effect.problem)
            return
        if self._runner is None:
            self._runner = self._made()
        self._runner.submit(effect)

    async def drain(self, grace_s: float) -> bool:
        """Let Bind and PostBind hooks finish within `grace_s`; cancel the others at once.

        Returns whether no Bind hook was cancelled.
        """
        return self._runner is None or await self._runner.drain(grace_s)

    def cancel_all(self) -> None:
        """Cancel all hooks: this process may not act any more, or ends."""
        if self._runner is not None:
            self._runner.cancel_all()
        for handle in self._handles.values():
            handle.close()

    async def close(self) -> None:
        """The process ends: close everything."""
        self.cancel_all()
        for handle in self._handles.values():
            await handle.close_kubernetes()
            await handle.close_outside()

    def waiting(self, name: str) -> Group | None:
        """Return the group "namespace/name" if it waits in Permit."""
        groups = self._scheduler.shared.groups.values()
        return next((g for g in groups if g.state is GroupState.WAITING and str(g.key) == name), None)

    def _made(self) -> HookRunner:
        from gangsched.extension.runner import HookRunner

        return HookRunner(
            emit_nowait=self._emit,
            find=self._find,
            groups=self._groups,
            handle=self._handle,
            timeout_s=lambda: self._scheduler.shared.settings.hook_timeout_s,
            may_run=self._may_act,
            view=lambda: self._scheduler.shared.queue_view,
        )

    def _find(self, effect: RunHook) -> object | None:
        profile = self._scheduler.shared.profiles.get(effect.profile)
        return None if profile is None else profile.points.plugins().get(effect.plugin)

    def _groups(self, effect: RunHook) -> tuple[Group, Mapping[str, Group]] | None:
        group = self._scheduler.shared.groups.get(effect.group)
        return None if group is None else (group, self._scheduler.shared.siblings(group))

    def _handle(self, plugin: str) -> Handle:
        handle = self._handles.get(plugin)
        if handle is None:
            from gangsched.extension.handle import Handle

            handle = self._handles[plugin] = Handle(
                plugin, self._client.another(), emit_nowait=self._emit, waiting=self.waiting
            )
        return handle
