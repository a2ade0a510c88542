"""RayClusters (ray.io), including those of a RayJob or RayService: the head and its workers are one gang.

Without the autoscaler all replicas are needed that KubeRay makes: no fewer than minReplicas, no more than
maxReplicas. With it a cluster starts with minReplicas of each group of workers and grows. A RayJob's
submitter and the Job that cleans up after a cluster are no Ray nodes and not part of the gang.

Source: KubeRay `ray-operator/controllers/ray/utils/util.go`, GetWorkerGroupDesiredReplicas.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners.owner import Claim, Count, Owner, OwnerName, Role, checked, named
from gangsched.model.owners.templates import Template, Wire

KIND = "RayCluster"
DIALECT = "raycluster"
CLUSTER_KEY = "ray.io/cluster"
NODE_TYPE_KEY = "ray.io/node-type"
GROUP_KEY = "ray.io/group"
_NODES_OF_RAY = ("head", "worker")
HEAD = "headgroup"


class HeadGroup(Wire):
    template: Template = msgspec.field(default_factory=Template)


class WorkerGroup(Wire):
    group_name: str = ""
    replicas: Count | None = None
    min_replicas: Count | None = None
    # By default the largest number of 32 bits.
    max_replicas: int | None = None
    num_of_hosts: Count | None = None
    suspend: bool | None = None
    template: Template = msgspec.field(default_factory=Template)

    @property
    def n_made(self) -> int:
        """Returns how many replicas KubeRay makes without the autoscaler."""
        least, asked = self.min_replicas or 0, self.replicas or 0
        if asked < least or self.max_replicas is None:
            return max(least, asked)
        return max(0, min(asked, self.max_replicas))


class RayClusterSpec(Wire):
    head_group_spec: HeadGroup = msgspec.field(default_factory=HeadGroup)
    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None


class RayCluster(Wire):
    metadata: ObjectMeta
    spec: RayClusterSpec = msgspec.field(default_factory=RayClusterSpec)


def claim(pod: Pod) -> Claim | None:
    labels = pod.metadata.labels or {}
    name = labels.get(CLUSTER_KEY)
    if not name or labels.get(NODE_TYPE_KEY) not in _NODES_OF_RAY:
        return None
    owner = OwnerName(KIND, pod.metadata.namespace, name)
    return Claim(DIALECT, name, name, owner, role=labels.get(GROUP_KEY, ""))


def read(cluster: RayCluster) -> Owner:
    spec = cluster.spec
    roles = [Role(HEAD, 1, spec.head_group_spec.template.spec.scheduler_name, leads=True)]
    for group in spec.worker_group_specs or ():
        replicas = (group.min_replicas or 0) if spec.enable_in_tree_autoscaling else group.n_made
        n_hosts = 1 if group.num_of_hosts is None else group.num_of_hosts
        count = 0 if group.suspend else replicas * n_hosts
        roles.append(Role(group.group_name, count, group.template.spec.scheduler_name))
    # With the autoscaler there may be more of them at any time.
    at_once = None if spec.enable_in_tree_autoscaling else sum(role.count for role in roles)
    this = named(KIND, cluster.metadata)
    return checked(Owner(this, cluster.metadata.uid, tuple(roles), at_once=at_once))
