"""Answers: what plugins answer with, and what they are handed: one cycle's scratch, the edge's handle.

Named to plugin authors by core.framework.interface, from which all of this is imported.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import msgspec

from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import Group

Rows = IntArray | slice
"""Which rows are asked about: some, or EVERYWHERE."""

EVERYWHERE = slice(None)

MAX_SCORE = 100.0


class Code(enum.Enum):
    """What is done next with the answer; the values are kube-scheduler's names."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    """Not as things stand. PostFilter may make room."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Not, and no pod that goes away would help: PostFilter does not look at these nodes."""
    WAIT = "Wait"
    """Permit only."""
    SKIP = "Skip"
    """PreFilter, PreScore and Bind only: nothing to do here for this pod."""
    PENDING = "Pending"
    """The plugin itself will say when to look again."""
    ERROR = "Error"


class Status(msgspec.Struct, frozen=True, gc=False):
    """A plugin's answer; "no" is a value. `timeout_s` only with WAIT."""

    code: Code = Code.SUCCESS
    reason: str = ""
    plugin: str = ""
    timeout_s: float | None = None

    @property
    def is_success(self) -> bool:
        return self is SUCCESS or self.code is Code.SUCCESS

    @classmethod
    def unschedulable(cls, reason: str, *, plugin: str = "") -> Status:
        return cls(Code.UNSCHEDULABLE, reason, plugin)

    @classmethod
    def unresolvable(cls, reason: str, *, plugin: str = "") -> Status:
        return cls(Code.UNRESOLVABLE, reason, plugin)

    @classmethod
    def wait(cls, reason: str, *, timeout_s: float | None = None, plugin: str = "") -> Status:
        """Hold the reservations; None leaves the timeout to the group, then to the configuration."""
        return cls(Code.WAIT, reason, plugin, timeout_s)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


class NodeSubset(msgspec.Struct, frozen=True, gc=False):
    """PreFilter's other answer: nowhere but on these rows, and the reason that the others are told.

    Shape: mask bool[n_rows].
    """

    mask: BoolArray
    reason: str


class CycleState:
    """Scratch for one cycle and template: what a plugin's PreFilter leaves here its Filter and Score read.

    Keys are the plugin's own (its name, or a tuple that begins with it). When several orders of placing a
    gang are tried each goes on from a fork: values that change after PreFilter (in add_pod) have a `clone`
    method that answers with a copy; all others are shared.
    """

    __slots__ = ("data", "group", "skipped", "subset", "subset_reasons", "unconcerned")

    def __init__(self, group: Group | None = None) -> None:
        self.group = group
        """Whose members are placed; None where a template is asked about by itself."""
        self.data: dict[Any, Any] = {}
        self.skipped: frozenset[str] = frozenset()
        """Plugins whose PreFilter said SKIP."""
        self.unconcerned: frozenset[str] = frozenset()
        """Plugins that have nothing to say about the template (SelectivePlugin); among `skipped`."""
        self.subset: BoolArray | None = None
        self.subset_reasons: tuple[tuple[str, NodeSubset], ...] = ()

    def fork(self) -> CycleState:
        other = CycleState(self.group)
        other.data = {k: v.clone() if hasattr(v, "clone") else v for k, v in self.data.items()}
        other.skipped = self.skipped
        other.unconcerned = self.unconcerned
        other.subset = self.subset
        other.subset_reasons = self.subset_reasons
        return other


class Handle(Protocol):
    """What hooks do their I/O with. Objects are plain dicts; paths are the API server's ("/api/v1/nodes").

    Requests raise errors.ApiError (`code`: the HTTP status, 0 where nothing certain was heard). The rights
    are those of the scheduler's service account.
    """

    log: Any
    """`info`, `warning`, `error`: what happened as text, the facts as keywords."""

    async def get(self, path: str) -> Any: ...

    async def list(self, path: str, *, label_selector: str = "", field_selector: str = "") -> list[Any]: ...

    async def post(self, path: str, body: Any) -> Any: ...

    async def patch(self, path: str, body: Any, *, content_type: str = ...) -> Any:
        """A JSON merge patch, unless said otherwise."""
        ...

    async def kubernetes(self) -> Any:
        """A kubernetes_asyncio.client.ApiClient with the scheduler's credentials: `CoreV1Api(await ...)`.

        Imported when it is first asked for, which takes seconds; the scheduler closes it at its end.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Before looking again at what others have to do first."""
        ...

    def allow(self, group: str) -> bool:
        """A group ("namespace/name") need not wait for this plugin any more; False: no such group waits."""
        ...

    def reject(self, group: str, reason: str) -> bool:
        """A group that waits in Permit gives back what it holds; False: no such group waits."""
        ...
