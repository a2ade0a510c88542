"""LeaderWorkerSets (leaderworkerset.x-k8s.io): one gang for each replica, its leader and its workers.

The pod states everything except whether its workers are created only when the leader is ready, or has a node.
In that case the leader starts alone, and then the workers as a gang.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Claim, Count, Owner, OwnerName, Start, named, read_count
from gangsched.model.owners.templates import Wire

KIND = "LeaderWorkerSet"
DIALECT = "leaderworkerset"
NAME_KEY = "leaderworkerset.sigs.k8s.io/name"
REPLICA_KEY = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_KEY = "leaderworkerset.sigs.k8s.io/worker-index"
REVISION_KEY = "leaderworkerset.sigs.k8s.io/template-revision-hash"
SIZE_KEY = "leaderworkerset.sigs.k8s.io/size"
EXCLUSIVE_KEY = "leaderworkerset.sigs.k8s.io/exclusive-topology"

_UPDATE = (
    "spec.rolloutStrategy.rollingUpdateConfiguration with maxUnavailable of at least 1 and maxSurge 0 lets "
    "it delete a replica before it makes the next"
)
LEADER, WORKER = "leader", "worker"
_EXCLUSIVE_WHY = f"annotation {EXCLUSIVE_KEY}: it creates the workers when the leader has a node"
_EXCLUSIVE_CURE = "use gangsched.io/topology in its place"


def role_of_index(index: str) -> str:
    """Returns the role of the pod with this worker-index."""
    return LEADER if index == "0" else WORKER


class LeaderWorkerTemplate(Wire):
    size: Count | None = None


class LeaderWorkerSetSpec(Wire):
    startup_policy: str = ""
    replicas: Count | None = None
    leader_worker_template: LeaderWorkerTemplate = msgspec.field(default_factory=LeaderWorkerTemplate)

    @property
    def n_at_once(self) -> int:
        """Returns how many pods all its replicas have."""
        size = self.leader_worker_template.size
        return (1 if self.replicas is None else self.replicas) * (1 if size is None else size)


class LeaderWorkerSet(Wire):
    metadata: ObjectMeta
    spec: LeaderWorkerSetSpec = msgspec.field(default_factory=LeaderWorkerSetSpec)


def claim(pod: Pod) -> Claim | None:
    meta, labels, annotations = pod.metadata, pod.metadata.labels or {}, pod.metadata.annotations or {}
    name = labels.get(NAME_KEY)
    if not name:
        return None
    index = labels.get(WORKER_KEY, "")
    parts = [name, labels.get(REPLICA_KEY, ""), labels.get(REVISION_KEY, "")]
    count, problem = read_count(annotations.get(SIZE_KEY), SIZE_KEY)
    is_exclusive = EXCLUSIVE_KEY in annotations
    return Claim(
        DIALECT,
        "-".join(part for part in parts if part),
        name,
        OwnerName(KIND, meta.namespace, name),
        n_pods=count,
        role=role_of_index(index) if index else "",
        leading_role=LEADER,
        is_leader=index == "0",
        may_miss_owner=True,
        start=Start.LEADER_FIRST if is_exclusive else Start.AT_ONCE,
        why=_EXCLUSIVE_WHY if is_exclusive else "",
        cure=_EXCLUSIVE_CURE if is_exclusive else "",
        problem=problem,
        revision=labels.get(REVISION_KEY, ""),
        update=_UPDATE,
    )


def read(item: LeaderWorkerSet) -> Owner:
    start, why, cure = Start.AT_ONCE, "", ""
    if item.spec.startup_policy == "LeaderReady":
        start = Start.LEADER_FIRST
        why = "spec.startupPolicy is LeaderReady: it creates the workers when the leader is ready"
        cure = "set it to LeaderCreated to have all of a replica start together"
    elif EXCLUSIVE_KEY in (item.metadata.annotations or ()):
        start, why, cure = Start.LEADER_FIRST, _EXCLUSIVE_WHY, _EXCLUSIVE_CURE
    this = named(KIND, item.metadata)
    return Owner(this, item.metadata.uid, (), start, why, cure, at_once=item.spec.n_at_once)
