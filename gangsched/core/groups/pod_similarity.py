"""SimilarPod: findings about a pod that hold for each pod that differs from it only in its name.

A gang's pods come one after the other and alike, so all this is computed once a gang. core.groups.membership
keeps it for the pod that came last; nothing here depends on a pod's name or on the moment.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey


class SimilarPod(NamedTuple):
    """pod: the examined one; key: its group's, of dialect POD for a group of one.

    problem: what is wrong with how it names its group. identity, stated and role: as in
    core.types.group's PodInfo. edition: of the templates, for which `template` is valid. core_beside: the
    core PodGroup that it names beside a group named in its metadata.
    """

    pod: Pod
    template: PodTemplate
    key: GroupKey
    problem: str
    identity: tuple[object, ...]
    stated: tuple[object, ...]
    role: str
    edition: int
    core_beside: GroupKey | None


def are_alike(one: Pod, other: Pod) -> bool:
    """Whether users wrote the same except for the name; compares what differs most often first."""
    this, that = one.metadata, other.metadata
    return (
        this.labels == that.labels
        and this.annotations == that.annotations
        and this.namespace == that.namespace
        and one.spec == other.spec
        and this.owner_references == that.owner_references
    )
