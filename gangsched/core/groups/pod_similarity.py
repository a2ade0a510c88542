"""SimilarPod: what was found out about a pod and holds for each one that differs from it in its name alone.

A gang's pods come one after the other and alike, so all this is worked out once a gang. Kept by
core.groups.membership, of the pod that came last; what depends on a pod's name, or on the moment, is not
here.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched.core.types.pod_template import PodTemplate
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey


class SimilarPod(NamedTuple):
    """pod: the one that was looked at; key: its group's, of dialect POD where it is a group of one.

    problem: what is wrong with how it names its group. identity and stated: as in core.types.group's PodInfo.
    edition: of the templates, by which `template` is right. core_beside: the core PodGroup that it names
    beside a group that its metadata names.
    """

    pod: Pod
    template: PodTemplate
    key: GroupKey
    problem: str
    identity: tuple[object, ...]
    stated: tuple[object, ...]
    edition: int
    core_beside: GroupKey | None


def are_alike(one: Pod, other: Pod) -> bool:
    """Whether their users wrote the same, but for the name; what is most often another comes first."""
    this, that = one.metadata, other.metadata
    return (
        this.labels == that.labels
        and this.annotations == that.annotations
        and this.namespace == that.namespace
        and one.spec == other.spec
        and this.owner_references == that.owner_references
    )
