"""The extension points from a group's reservation on: Reserve, Permit, PreBind, Bind, PostBind.

Plugins import them from gangsched.plugin, where the table of all points is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from gangsched.core.framework.status import CycleState, Handle, Status
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.model.objects import Pod


@runtime_checkable
class ReservePlugin(Protocol):
    """`unreserve` cannot fail and may be called without `reserve`, or twice; plugins are called in reverse
    order.

    It is called for every reservation that ends without a bind: another Reserve or Permit refused, a wait
    ended, a PreBind or the bind failed, a member or its node is gone. Its exceptions are only reported.
    """

    name: str

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        """Called when every needed member of the group has its place; `placements` are of one template."""
        ...

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None: ...


@runtime_checkable
class InheritingPlugin(Protocol):
    """For plugins that remember what is reserved: a reload makes new ones, and reservations outlive it.

    Called before any other method, if a profile of the same name had a plugin of the same class. Its
    exceptions are only reported. Hooks of the earlier plugin that run at the edge go on until they end.
    """

    name: str

    def inherit(self, before: Any) -> None: ...


@runtime_checkable
class PermitPlugin(Protocol):
    """An `async def` gets the Handle as a third argument, and is called once for each set of reserved
    members; otherwise it is called in the group's turn, and does no I/O. The plugin (Handle.allow) or a
    person (POST /permit/{namespace}/{name}/allow) can release a waiting group, unless the plugin sets
    `may_be_overruled = False` (SupportsMayBeOverruled).
    """

    name: str

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status | Awaitable[Status]:
        """Called when every needed member is reserved, and again whenever the group or a sibling changes.

        `siblings` are the existing groups of start_together, by "namespace/name".
        """
        ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """No member of a gang is bound before every PreBind of every member has succeeded; members are processed
    side by side, one plugin after the other. Beside it: SupportsPreBindPreFlight.

    Permit, PreBind, Bind and PostBind: an `async def` fails after `hook_timeout_s` (SupportsHookTimeout, else
    hookTimeoutSeconds of the configuration); it is cancelled when its answer is no longer needed. A plain
    function must answer at once.
    """

    name: str

    def pre_bind(self, pod: Pod, node_name: str, handle: Handle) -> Status | Awaitable[Status]: ...


@runtime_checkable
class BindPlugin(Protocol):
    """The first plugin that does not SKIP binds; DefaultBinder is the core's own bind lane."""

    name: str

    def bind(
        self, pod: Pod, node_name: str, annotations: Mapping[str, str], handle: Handle
    ) -> Status | Awaitable[Status]:
        """`annotations` belong in the Binding: they carry devices, gang, rank and attempt.

        Use the pod's UID as precondition, and bind to that node or not at all. After SUCCESS, and after a
        failure, the API server is asked for the pod's real state; a refusal is trusted.
        """
        ...


@runtime_checkable
class PostBindPlugin(Protocol):
    """Called at most once: calls lost when a process ends are not repeated."""

    name: str

    def post_bind(self, pod: Pod, node_name: str, handle: Handle) -> Awaitable[None] | None: ...
