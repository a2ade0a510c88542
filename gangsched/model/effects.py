"""Effects, in the imperative: everything that the core returns.

Carried out by kube.effects.dispatcher (or the simulator), whose every outcome comes back as an event.
`cause_id` ties an effect to the attempt that wanted it, so that one gang's life can be traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey


class _Effect(msgspec.Struct, frozen=True, gc=False):
    """Shared options of all effects."""


class BindPod(_Effect, frozen=True):
    """POST pods/{name}/binding: node, annotations and labels in one write, `uid` as precondition.

    A non-empty `resource_version` is a precondition too, and makes the bind a fenced one: it is sent when the
    fence lists its pod, which was written after that version was read.

    Answered by exactly one of BindSucceeded, BindFailed, BindUnknown, BindCancelled with the same `uid` and
    `attempt`. A 429 or a connection that could not be opened counts as no answer: the edge retries.
    """

    uid: str
    namespace: str
    name: str
    node: str
    annotations: Mapping[str, str]
    group: str
    attempt: int
    cause_id: str
    labels: Mapping[str, str] = {}
    resource_version: str = ""


class CancelBinds(_Effect, frozen=True):
    """Withdraw the binds of this cause that have not been sent; each is answered by BindCancelled."""

    cause_id: str


class GetPod(_Effect, frozen=True):
    """Consistent read of one pod; retried until the server answers, then PodRead."""

    uid: str
    namespace: str
    name: str
    cause_id: str


class BumpPod(_Effect, frozen=True):
    """Patch pods/status so that the pod's resource version changes, `uid` as precondition; then PodBumped.

    No bind that was sent for the pod before can land after that. Retried until the outcome is certain.
    """

    uid: str
    namespace: str
    name: str
    cause_id: str


class EvictPod(_Effect, frozen=True):
    """POST pods/{name}/eviction with `uid` as precondition; then EvictionSucceeded or EvictionFailed."""

    uid: str
    namespace: str
    name: str
    cause_id: str


class PatchPod(_Effect, frozen=True):
    """Merge-patch annotations and labels of a pod, `uid` and `resource_version` as preconditions; None: taken
    away.

    Answered by PodPatched or PodPatchFailed. The only write to a pod that is bound already.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    annotations: Mapping[str, str | None]
    cause_id: str
    labels: Mapping[str, str | None] = {}


class DeletePod(_Effect, frozen=True):
    """Writes the condition DisruptionTarget (PreemptionByScheduler) with `message`, then DELETE, both with
    `uid` as precondition; then EvictionSucceeded or EvictionFailed. Disruption budgets do not stop it."""

    uid: str
    namespace: str
    name: str
    message: str
    cause_id: str


class NominateNode(_Effect, frozen=True):
    """Patch pods/status: nominatedNodeName ("": none), `uid` as precondition; a later one replaces a waiting
    one."""

    uid: str
    namespace: str
    name: str
    node: str
    cause_id: str


class WritePodCondition(_Effect, frozen=True):
    """Patch pods/status: one condition by type, `uid` as precondition; a later one replaces a waiting one."""

    uid: str
    namespace: str
    name: str
    type: str
    status: str
    reason: str
    message: str
    cause_id: str


class WritePodGroupStatus(_Effect, frozen=True):
    """Merge-patch podgroups/status, `uid` as precondition; a later one replaces a waiting one."""

    uid: str
    namespace: str
    name: str
    api_version: str
    status: Mapping[str, Any]
    cause_id: str


class RecordEvent(_Effect, frozen=True):
    """Create an events.k8s.io/v1 Event about an object; the first thing dropped under load, and counted."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    action: str
    message: str
    cause_id: str


class ReadRefusals(_Effect, frozen=True):
    """Read what a group's controller (kind, name, its `uid`) was told when it made pods, from its Events.

    Answered by RefusalsRead, or not at all.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    group: GroupKey
    cause_id: str


class RunHook(_Effect, frozen=True):
    """Call one plugin of a profile at one point, at the edge, where it may do I/O.

    point: Permit (of the whole group; `pod` is None), PreEnqueue, PreBind, Bind or PostBind. PreBind and Bind
    run once the fence, if there is one, lists the pod. Answered by exactly one HookAnswered with the same
    `ticket`, at the hook's deadline at the latest, unless it is cancelled.
    """

    ticket: int
    point: str
    profile: str
    plugin: str
    group: GroupKey
    pod: Pod | None
    node_name: str
    annotations: Mapping[str, str]
    cause_id: str


class CancelHooks(_Effect, frozen=True):
    """These hooks are not needed any more: cancel them, without an answer."""

    tickets: tuple[int, ...]


class BlamePlugin(_Effect, frozen=True):
    """Log that a plugin raised, answered nonsense or took too long."""

    plugin: str
    point: str
    problem: str
    cause_id: str


class AskExtenders(_Effect, frozen=True):
    """Ask the configuration's extenders, by index, about a pod and the nodes that would take it.

    One pod represents all of its template in its group. Answered by exactly one ExtendersAnswered.
    """

    ticket: int
    uid: str
    namespace: str
    name: str
    nodes: tuple[str, ...]
    extenders: tuple[int, ...]
    cause_id: str


Effect = (
    BindPod
    | CancelBinds
    | GetPod
    | BumpPod
    | EvictPod
    | DeletePod
    | NominateNode
    | PatchPod
    | WritePodCondition
    | WritePodGroupStatus
    | RecordEvent
    | ReadRefusals
    | RunHook
    | CancelHooks
    | BlamePlugin
    | AskExtenders
)
