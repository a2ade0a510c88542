"""ReplicaSets, StatefulSets and Deployments (apps/v1): how many pods they make; they are followed by nothing.

Their pods are a gang only where these name one. Read to explain why a gang stays incomplete.
"""

from __future__ import annotations

import msgspec

from gangsched.model.objects import ObjectMeta
from gangsched.model.owners.owner import Count, Owner, OwnerName, Start
from gangsched.model.owners.templates import Wire

KINDS = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}
"""The resource of each kind."""


class ReplicasSpec(Wire):
    replicas: Count | None = None


class Replicas(Wire):
    kind: str
    metadata: ObjectMeta
    spec: ReplicasSpec = msgspec.field(default_factory=ReplicasSpec)


def read(item: Replicas) -> Owner:
    n = 1 if item.spec.replicas is None else item.spec.replicas
    named = OwnerName(item.kind, item.metadata.namespace, item.metadata.name)
    return Owner(named, item.metadata.uid, start=Start.NO_GANG, at_once=n)
