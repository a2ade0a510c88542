"""Events, named in the past tense: the only way anything reaches the core.

The edge makes them (kube.watch.reflector from the API server's messages, kube.effects.dispatcher from
outcomes of effects), and so does the simulator. Every event is idempotent: receiving it twice, or an older
one again, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.model.objects import CustomObject, Node, Pod
from gangsched.model.owners.owner import Owner, OwnerName
from gangsched.model.pod_group import GroupKey
from gangsched.model.resource_claims.objects import ResourceClaim
from gangsched.model.stated.load import ReportedUsage


class _Event(msgspec.Struct, frozen=True, gc=False):
    """Shared options of all events."""


class PodAdded(_Event, frozen=True):
    pod: Pod


class PodUpdated(_Event, frozen=True):
    pod: Pod


class PodDeleted(_Event, frozen=True):
    """The pod is gone from the API server; `pod` is its last known state."""

    pod: Pod


class NodeAdded(_Event, frozen=True):
    node: Node


class NodeUpdated(_Event, frozen=True):
    node: Node


class NodeDeleted(_Event, frozen=True):
    node: Node


class LoadReported(_Event, frozen=True):
    """metrics-server's report about a node, if it is polled."""

    usage: ReportedUsage


class PodGroupAdded(_Event, frozen=True):
    """A PodGroup object of `dialect` (`core` or `coscheduling`); `api_version` is the one it was read in."""

    dialect: str
    api_version: str
    item: CustomObject


class PodGroupUpdated(_Event, frozen=True):
    dialect: str
    api_version: str
    item: CustomObject


class PodGroupDeleted(_Event, frozen=True):
    dialect: str
    api_version: str
    item: CustomObject


class OwnerPut(_Event, frozen=True):
    """A controller's object, as it describes its pods now."""

    owner: Owner


class OwnerGone(_Event, frozen=True):
    """It is gone from the API server."""

    named: OwnerName
    uid: str


class ObjectPut(_Event, frozen=True):
    """An object of another kind; `kind` as plugins name it ("services", "replicasets.apps")."""

    kind: str
    object: Any


class ObjectGone(_Event, frozen=True):
    """It is gone from the API server."""

    kind: str
    namespace: str
    name: str
    uid: str


class ObjectRefused(_Event, frozen=True):
    """An object that does not parse; `message` says why. What can be read of it came before, as its update.

    `kind` is Pod, Node, PodGroup or the kind of a controller's object. `node_name` and `scheduler_name` are
    set if they could be read.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    message: str
    scheduler_name: str = ""
    node_name: str = ""


class KindSynced(_Event, frozen=True):
    """The first consistent list of a kind (`pods`, `podgroups.core`, …) is complete."""

    kind: str


class KindMissing(_Event, frozen=True):
    """The server does not serve this kind now; not an error. KindSynced follows when it appears.

    is_unread: the kind may be served, but its list has failed for long; only gangs that need such an object
    wait. is_forbidden: the right to list it is missing.
    """

    kind: str
    is_unread: bool = False
    is_forbidden: bool = False


class LeadershipGained(_Event, frozen=True):
    """This process may decide from now on; before, it only followed. Once lost, it never leads again."""


class QueueUsageRead(_Event, frozen=True):
    """The recent usage of each queue, as a share of the cluster, that an earlier process saved age_s ago."""

    decayed: dict[str, float]
    age_s: float


class StartsEstimated(_Event, frozen=True):
    """When queued groups start if nothing else arrives (core.estimates), computed as of `from_s`; both on the
    core's clock. A queued group that is missing has no estimate.
    """

    from_s: float
    starts: tuple[tuple[GroupKey, float], ...]


class BindSucceeded(_Event, frozen=True):
    """The server answered that this pod is bound as requested."""

    uid: str
    attempt: int


class BindFailed(_Event, frozen=True):
    """The server itself refused this pod for good: the bind did not and will not take effect."""

    uid: str
    attempt: int
    code: int
    reason: str
    message: str


class BindUnknown(_Event, frozen=True):
    """The outcome of this bind is unknown (timeout, cut, 5xx, 409, a proxy's page): a GET must decide.

    refused: the server itself refused without naming a pod, as when a webhook denies. If the pod is not
    bound, the same bind is worth few more tries.
    """

    uid: str
    attempt: int
    message: str
    refused: bool = False


class BindCancelled(_Event, frozen=True):
    """This bind was withdrawn before any byte of it was sent."""

    uid: str
    attempt: int


class ClaimPatched(_Event, frozen=True):
    """The server has written this patch, and this is the claim after it: its version is always a new one."""

    uid: str
    ticket: int
    claim: ResourceClaim


class ClaimRefused(_Event, frozen=True):
    """The server itself refused this patch of this claim for good: it did not and will not take effect.

    `code` 404 or an immutable uid: the claim is gone; 403, or 422 about `resourceclaims/binding`: a right is
    missing, and the message names it.
    """

    uid: str
    ticket: int
    code: int
    reason: str
    message: str


class ClaimUnclear(_Event, frozen=True):
    """The outcome of this patch is unknown (timeout, cut, 5xx, 409, a proxy's page): GetClaim must decide,
    and BumpClaim ends what may still be on its way.

    refused: as in BindUnknown.
    """

    uid: str
    ticket: int
    message: str
    refused: bool = False


class ClaimCancelled(_Event, frozen=True):
    """This patch was withdrawn before any byte of it was sent."""

    uid: str
    ticket: int


class ClaimGone(_Event, frozen=True):
    """The server has deleted this claim, or will as soon as its finalizers allow."""

    uid: str
    ticket: int


class ClaimNoted(_Event, frozen=True):
    """The answer to NoteClaim, by the pod's UID. message: why it is not known to have been written; "": it
    was. code: 0: nothing is known; 409: the pod has changed."""

    uid: str
    ticket: int
    code: int = 0
    message: str = ""


class ClaimRead(_Event, frozen=True):
    """The answer to GetClaim, from a consistent read made after the request; None: no such claim any more."""

    uid: str
    claim: ResourceClaim | None


class ClaimUnread(_Event, frozen=True):
    """A GetClaim got several answers, none from the API server itself; retries continue."""

    uid: str
    message: str


class ClaimBumped(_Event, frozen=True):
    """The answer to BumpClaim: the claim after it, with what landed before. None: the claim is gone."""

    uid: str
    claim: ResourceClaim | None


class ExtendersAnswered(_Event, frozen=True):
    """The extenders' answer for a pod: the nodes that passed, the reasons for the rest, and scores by node.

    error: the failure of an extender that may not be ignored; the other fields are empty then.
    """

    ticket: int
    error: str = ""
    nodes: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}
    scores: Mapping[str, int] = {}


class PodRead(_Event, frozen=True):
    """The answer to GetPod, from a consistent read made after the request; None: no pod of that name."""

    uid: str
    pod: Pod | None


class PodUnread(_Event, frozen=True):
    """A GetPod got several answers, none from the API server itself; retries continue."""

    uid: str
    message: str


class PodBumped(_Event, frozen=True):
    """The answer to BumpPod: the pod after it; if it has a node, a bind came first. None: the pod is gone."""

    uid: str
    pod: Pod | None


class PodPatched(_Event, frozen=True):
    """The server has stored the annotations; the watch shows them too, before or after this."""

    uid: str


class PodPatchFailed(_Event, frozen=True):
    """The patch failed, or may have (`code` 0, 5xx). 409, 422: another version or pod; 403: no right."""

    uid: str
    code: int
    message: str


class EvictionSucceeded(_Event, frozen=True):
    uid: str


class EvictionFailed(_Event, frozen=True):
    """An eviction was refused (`code` 429: a disruption budget; 403: the verb is missing; 404: gone)."""

    uid: str
    code: int
    message: str


class RefusalsRead(_Event, frozen=True):
    """Why the API server last refused pods of the group's controller (kind, name); "": no recent refusal."""

    group: GroupKey
    kind: str
    name: str
    message: str


class HookAnswered(_Event, frozen=True):
    """The outcome of RunHook. `code` is the value of a framework.Code.

    Error: the plugin raised, returned an invalid answer or was late, so its side effects are unknown.
    """

    ticket: int
    code: str
    reason: str = ""
    timeout_s: float | None = None
    raise_by: int = 0


class GroupAllowed(_Event, frozen=True):
    """A group that waits in Permit stops waiting for `plugin`; "" means for any of them.

    by: the plugin or the user that decided it.
    """

    group: GroupKey
    plugin: str
    by: str


class GroupRejected(_Event, frozen=True):
    """A group that waits in Permit must release its reservations."""

    group: GroupKey
    by: str
    reason: str


Event = (
    PodAdded
    | PodUpdated
    | PodDeleted
    | NodeAdded
    | NodeUpdated
    | NodeDeleted
    | LoadReported
    | PodGroupAdded
    | PodGroupUpdated
    | PodGroupDeleted
    | OwnerPut
    | OwnerGone
    | ObjectPut
    | ObjectGone
    | ObjectRefused
    | KindSynced
    | KindMissing
    | LeadershipGained
    | QueueUsageRead
    | StartsEstimated
    | BindSucceeded
    | BindFailed
    | BindUnknown
    | BindCancelled
    | ClaimPatched
    | ClaimRefused
    | ClaimUnclear
    | ClaimCancelled
    | ClaimGone
    | ClaimNoted
    | ClaimRead
    | ClaimUnread
    | ClaimBumped
    | ExtendersAnswered
    | PodRead
    | PodUnread
    | PodBumped
    | PodPatched
    | PodPatchFailed
    | EvictionSucceeded
    | EvictionFailed
    | RefusalsRead
    | HookAnswered
    | GroupAllowed
    | GroupRejected
)
