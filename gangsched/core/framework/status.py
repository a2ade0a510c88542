"""Answers of plugins, and what plugins are given: one cycle's scratch space, the edge's handle.

gangsched.plugin re-exports all of this for plugin authors.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import msgspec

from gangsched.core.types.arrays import BoolArray, IntArray
from gangsched.core.types.group import Group
from gangsched.core.why import Because, Why

Rows = IntArray | slice
"""Which rows to compute: some, or EVERYWHERE."""

EVERYWHERE = slice(None)

MAX_SCORE = 100.0


class Code(enum.Enum):
    """What the scheduler does next with the answer; the values are kube-scheduler's names."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    """Not now. PostFilter may make room."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """No, and removing pods would not help: PostFilter skips these nodes."""
    WAIT = "Wait"
    """Permit and PreEnqueue only."""
    SKIP = "Skip"
    """PreFilter, PreScore and Bind only: nothing to do here for this pod."""
    PENDING = "Pending"
    """The plugin itself will signal when to retry."""
    ERROR = "Error"


class Status(msgspec.Struct, frozen=True, gc=False):
    """A plugin's answer; "no" is a value. `timeout_s` only with WAIT, `raise_by` only from PreEnqueue."""

    code: Code = Code.SUCCESS
    reason: str = ""
    plugin: str = ""
    timeout_s: float | None = None
    raise_by: int = 0
    because: Because | None = None
    """The reason as a value, if it is one of ours; `reason` is its words."""

    @property
    def why(self) -> Why:
        return self.because or self.reason

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
        """Permit: hold the reservations; None leaves the timeout to the group, then to the configuration.
        PreEnqueue: keep the pod out and ask again after this time, at most an hour; None: 10 s."""
        return cls(Code.WAIT, reason, plugin, timeout_s)

    @classmethod
    def refused(cls, code: Code, why: Why, *, plugin: str = "") -> Status:
        """A "no" for a reason that may be one of ours."""
        return cls(code, str(why), plugin, because=why if isinstance(why, Because) else None)

    @classmethod
    def let_in(cls, *, raise_by: int) -> Status:
        """PreEnqueue's success that raises the priority by which the pod's group is queued by this much.

        Priority for preemption stays; the largest of the members counts.
        """
        return cls(Code.SUCCESS, raise_by=raise_by)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


class NodeSubset(msgspec.Struct, frozen=True, gc=False):
    """PreFilter's other answer: only these rows, and the reason why the others are excluded.

    Shape: mask bool[n_rows].
    """

    mask: BoolArray
    reason: str


class CycleState:
    """Scratch space for one cycle and template: a plugin's PreFilter writes it, its Filter and Score read it.

    Keys belong to the plugin (its name, or a tuple that begins with it). When several orders of placing a
    gang are tried, each continues from a fork: values that change after PreFilter (in add_pod) have a `clone`
    method that returns a copy; all others are shared.
    """

    __slots__ = ("data", "group", "skipped", "subset", "subset_reasons", "unconcerned")

    def __init__(self, group: Group | None = None) -> None:
        self.group = group
        """The group whose members are placed; None when a template is evaluated by itself."""
        self.data: dict[Any, Any] = {}
        self.skipped: frozenset[str] = frozenset()
        """Plugins whose PreFilter answered SKIP."""
        self.unconcerned: frozenset[str] = frozenset()
        """Plugins that do not concern the template (SelectivePlugin); a subset of `skipped`."""
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
    """The I/O of hooks. Objects are plain dicts; paths are the API server's ("/api/v1/nodes").

    Requests raise errors.ApiError (`code`: the HTTP status, 0 when the outcome is unknown). The rights are
    those of the scheduler's service account.
    """

    log: Any
    """`info`, `warning`, `error`: the event as text, the facts as keywords."""

    async def get(self, path: str) -> Any: ...

    async def list(self, path: str, *, label_selector: str = "", field_selector: str = "") -> list[Any]: ...

    async def post(self, path: str, body: Any) -> Any: ...

    async def patch(self, path: str, body: Any, *, content_type: str = ...) -> Any:
        """A JSON merge patch, unless `content_type` differs."""
        ...

    async def ask(self, url: str, body: Any = None) -> Any:
        """Returns another HTTP service's JSON answer: to a POST of `body`, or to a GET without one.

        Raises: GangschedError: no answer, another code than 200, more than 64 KiB, not JSON. Redirects and
        proxies are not followed.
        """
        ...

    async def kubernetes(self) -> Any:
        """A kubernetes_asyncio.client.ApiClient with the scheduler's credentials: `CoreV1Api(await ...)`.

        Imported on first use, which takes seconds; the scheduler closes it at its end.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleeps between polls of something that another program has to do first."""
        ...

    def allow(self, group: str) -> bool:
        """Ends a group's ("namespace/name") wait for this plugin; False: no such group waits."""
        ...

    def reject(self, group: str, reason: str) -> bool:
        """Makes a group that waits in Permit release its reservations; False: no such group waits."""
        ...
