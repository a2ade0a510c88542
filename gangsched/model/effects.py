"""Effects, named in the imperative: everything that the core returns.

kube.effects.dispatcher (or the simulator) carries them out, and every outcome comes back as an event.
`cause_id` ties an effect to the attempt that caused it, so that one gang's life can be traced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.model.objects import ExtendedClaimStatus, Pod
from gangsched.model.pod_group import GroupKey


class _Effect(msgspec.Struct, frozen=True, gc=False):
    """Shared options of all effects."""


class BindPod(_Effect, frozen=True):
    """POST pods/{name}/binding: node, annotations and labels in one write, `uid` as precondition.

    A non-empty `resource_version` is a precondition too and makes the bind fenced: it is sent once the fence,
    written after that version was read, lists its pod.

    Answered by exactly one of BindSucceeded, BindFailed, BindUnknown, BindCancelled with the same `uid` and
    `attempt`. A 429 or a failure to connect counts as no answer: the edge retries.
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
    """Withdraw the binds and the writes of claims of this cause that have not been sent; each is answered by
    BindCancelled or ClaimCancelled.
    """

    cause_id: str


class GetPod(_Effect, frozen=True):
    """Read one pod consistently; retried until the server answers, then PodRead."""

    uid: str
    namespace: str
    name: str
    cause_id: str


class BumpPod(_Effect, frozen=True):
    """Patch pods/status to change the pod's resource version, `uid` as precondition; then PodBumped.

    After that, no bind sent earlier for the pod can succeed. Retried until the outcome is certain.
    """

    uid: str
    namespace: str
    name: str
    cause_id: str


class PatchClaim(_Effect, frozen=True):
    """Merge patch of a ResourceClaim, or fields of its status; `uid` and `resource_version` are
    preconditions.

    patch: a JSON object without uid and resourceVersion, with something that the claim of that version does
    not have: {"metadata": {"finalizers": all of them, "annotations": …}} or, for its status, {"status":
    {"allocation": …, "reservedFor": all of them}}, in which null stands for none. An allocation without
    allocationTimestamp gets the time of sending (the core has no wall clock).

    Fenced like a bind: sent once the fence, written after that version was read, lists the claim; or at once,
    if the version is that of the latest ClaimPatched and the claim has been listed since. Answered by exactly
    one of ClaimPatched, ClaimRefused, ClaimUnclear, ClaimCancelled with the same `uid` and `ticket`. A 429 or
    a failure to connect counts as no answer: the edge retries.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    patch: bytes
    is_status: bool
    group: str
    ticket: int
    cause_id: str


class MakeClaim(_Effect, frozen=True):
    """POST a ResourceClaim for a pod's extended resources, by the UID `owner`; `uid` stands for the claim's
    until it has one.

    Not fenced: until it is allocated the claim holds nothing. Answered like a PatchClaim, with what it made
    in ClaimPatched; ClaimRefused with code 409: there is one of that name.
    """

    uid: str
    namespace: str
    name: str
    owner: str
    body: bytes
    ticket: int
    cause_id: str


class DropClaim(_Effect, frozen=True):
    """DELETE a ResourceClaim that is not allocated; `uid` and `resource_version` are preconditions.

    Answered like a PatchClaim: by ClaimGone, ClaimRefused, ClaimUnclear or ClaimCancelled. A finalizer may
    keep the claim for a while.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    ticket: int
    cause_id: str


class NoteClaim(_Effect, frozen=True):
    """Patch pods/status with the claim that serves the pod's extended resources, before its Binding: kubelet
    reads it there. `uid` and `resource_version`, the pod's, are preconditions.

    Answered by ClaimNoted, or by ClaimCancelled.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    claim: ExtendedClaimStatus
    ticket: int
    cause_id: str


class GetClaim(_Effect, frozen=True):
    """Read one ResourceClaim consistently; retried until the server answers, then ClaimRead.

    owner: the UID of the pod that it was made for, if its own is not known. The version that it answers is
    not safe from a new leader: a patch with it is sent after a write of the fence.
    """

    uid: str
    namespace: str
    name: str
    cause_id: str
    owner: str = ""


class BumpClaim(_Effect, frozen=True):
    """Patch a ResourceClaim to change its resource version, `uid` as precondition; then ClaimBumped.

    After that, no patch sent earlier for the claim can succeed. Retried until the outcome is certain.
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
    """Merge-patch a pod's annotations and labels (None removes), with `uid` and `resource_version` fixed.

    Answered by PodPatched or PodPatchFailed. The only write to a pod that is already bound.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    annotations: Mapping[str, str | None]
    cause_id: str
    labels: Mapping[str, str | None] = {}


class DeletePod(_Effect, frozen=True):
    """Write the condition DisruptionTarget (PreemptionByScheduler) with `message`, then DELETE, both with
    `uid` as precondition; then EvictionSucceeded or EvictionFailed. Disruption budgets do not stop it.
    """

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


DEVICES_HEALTHY = "DevicesHealthy"
GANG_WHOLE = "gangsched.io/GangWhole"
"""On a few bound members, and on a core PodGroup: only of gangs that are not whole, or were not."""
START_PROMISED = "gangsched.io/StartPromised"
POD_REFUSED, NODE_REFUSED = "PodRefused", "NodeRefused"
"""Event reasons for objects that hold devices and are counted only as far as they can be parsed."""
KAI_CONDITION = "UnschedulableOnNodePool"
KAI_NODE_POOL = "default"
"""The name that KAI gives to all nodes of a cluster without node pools."""
GROUP_CONDITIONS = frozenset(
    {
        *("PodGroupScheduled", "PodGroupInitiallyScheduled", DEVICES_HEALTHY, GANG_WHOLE, START_PROMISED),
        *("Scheduled", "Unschedulable"),  # Volcano's
        KAI_CONDITION,
    }
)
"""Types of the conditions of groups that a scheduler writes; those of other types are other programs'."""


def is_our_condition(condition: object) -> bool:
    """Whether a scheduler writes this condition of a group; KAI has one for each pool of nodes."""
    if not isinstance(condition, Mapping):
        return False
    kind, pool = condition.get("type"), condition.get("nodePool", KAI_NODE_POOL)
    return isinstance(kind, str) and kind in GROUP_CONDITIONS and pool == KAI_NODE_POOL


class WritePodGroupStatus(_Effect, frozen=True):
    """Patch podgroups/status, `uid` as precondition; a later one replaces a waiting one. Of its conditions
    those of GROUP_CONDITIONS are written, and other programs' stay as they are then."""

    uid: str
    namespace: str
    name: str
    api_version: str
    status: Mapping[str, Any]
    cause_id: str


class RecordEvent(_Effect, frozen=True):
    """Create an events.k8s.io/v1 Event about an object; dropped first under load, and then counted."""

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
    """Read from the Events of a group's controller (kind, name, its `uid`) why its pods were refused.

    Answered by RefusalsRead, or not at all.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    group: GroupKey
    cause_id: str


class RunHook(_Effect, frozen=True):
    """Call one plugin of a profile at one extension point, at the edge, where it may do I/O.

    point: Permit (of the whole group; `pod` is None), PreEnqueue, PreBind, Bind or PostBind. PreBind and Bind
    run once the fence, if there is one, lists the pod. Answered by exactly one HookAnswered with the same
    `ticket`, by the hook's deadline, unless cancelled.
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
    """Cancel these hooks, which are no longer needed; there is no answer."""

    tickets: tuple[int, ...]


class BlamePlugin(_Effect, frozen=True):
    """Log that a plugin raised, returned an invalid answer or took too long."""

    plugin: str
    point: str
    problem: str
    cause_id: str


class AskExtenders(_Effect, frozen=True):
    """Ask the configured extenders, by index, about a pod and the nodes where it fits.

    One pod represents all pods of its template in its group. Answered by exactly one ExtendersAnswered.
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
    | PatchClaim
    | MakeClaim
    | DropClaim
    | NoteClaim
    | GetClaim
    | BumpClaim
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
