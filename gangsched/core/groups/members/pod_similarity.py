"""SimilarPod: findings about a pod that hold for each pod that differs from it only in its name.

A gang's pods arrive one by one and are alike, so all this is computed once per gang. SimilarPods keeps it for
the last pod; nothing here depends on a pod's name or on the time. Called by core.groups.members.membership.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched.core.cache.cache import Cache
from gangsched.core.groups.group_spec import GroupSpecs
from gangsched.core.groups.own_keys import Ignored
from gangsched.core.groups.owners import Owners
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import ParseError
from gangsched.model.objects import Pod
from gangsched.model.pod_group import (
    CORE,
    POD,
    GroupKey,
    core_key,
    core_key_beside,
    group_key,
    identity_of,
    lone_key,
    role_of,
    stated_by,
)
from gangsched.model.stated.index import states_index
from gangsched.model.walltime import states_walltime


class SimilarPod(NamedTuple):
    """pod: the examined one; key: its group's, of dialect POD for a group of one.

    problem: what is wrong with how it names its group. identity, stated and role: as in
    core.types.group's PodInfo. edition: of the templates, for which `template` is valid. core_beside: the
    core PodGroup that it names beside a group named in its metadata. ignored: its keys that are never read.
    states_walltime, states_index: whether it has a key of walltimes, one of indexes.
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
    ignored: tuple[Ignored, ...]
    states_walltime: bool
    states_index: bool


class SimilarPods:
    """Examines pods; reuses the findings for a pod like the last one."""

    def __init__(self, cache: Cache, group_specs: GroupSpecs, owners: Owners) -> None:
        self._cache = cache
        self._templates = cache.template_table
        self._group_specs = group_specs
        self._owners = owners
        self._latest: SimilarPod | None = None

    def similar_pod(self, pod: Pod) -> SimilarPod:
        like = self._latest
        if like is None or like.edition != self._templates.edition or not are_alike(pod, like.pod):
            like = self._meet(pod)
        return like

    def forget(self) -> None:
        """Forgets the last pod, as the rules that put pods into groups have changed."""
        self._latest = None

    def forget_core(self) -> None:
        """Forgets the last pod if it names a core PodGroup beside another group."""
        if self._latest is not None and self._latest.core_beside is not None:
            self._latest = None

    def _meet(self, pod: Pod) -> SimilarPod:
        """Examines a pod unlike the last one."""
        templates = self._templates
        template = self._cache.template_of(pod)
        key, problem, holds = self.key_of(pod)
        statements = (identity_of(pod), stated_by(key, pod), role_of(key, pod))
        beside = self._core_key_beside(pod)
        ignored = self._group_specs.own_keys.ignored(pod, key)
        keys = (states_walltime(pod.metadata), states_index(pod.metadata))
        like = SimilarPod(pod, template, key, problem, *statements, templates.edition, beside, ignored, *keys)
        self._latest = like if holds and templates.is_of_all_alike(pod) else None
        return like

    def key_of(self, pod: Pod) -> tuple[GroupKey, str, bool]:
        """(the pod's group, or a group of one if its statement is wrong; what is wrong with it; whether this
        holds for every pod like it)."""
        try:
            key = group_key(pod, self._group_specs.is_basic)
            names_none = key.dialect == POD or (key.dialect == CORE and self._group_specs.is_basic(key))
            if names_none and (inferred := self._owners.key_of(pod)) is not None:
                return inferred, "", inferred.dialect != POD
            return key, "", True
        except ParseError as error:
            return lone_key(pod), str(error), True

    def _core_key_beside(self, pod: Pod) -> GroupKey | None:
        """The core PodGroup that the pod names, if the pod has another group in case that one is basic."""
        key = core_key_beside(pod)
        if key is None and (core := core_key(pod)) is not None and self._owners.claim_of(pod) is not None:
            return core
        return key


def are_alike(one: Pod, other: Pod) -> bool:
    """Whether the pods are the same except for the name; compares first what differs most often.

    other: one of no claim made for its extended resources; of a pod's status that alone decides where it may
    go.
    """
    this, that = one.metadata, other.metadata
    return (
        this.labels == that.labels
        and this.annotations == that.annotations
        and this.namespace == that.namespace
        and one.spec == other.spec
        and one.unreadable == other.unreadable
        and this.owner_references == that.owner_references
        and one.status.extended_resource_claim_status is None
    )


class PodsWithTwoGroups:
    """Pods that name a core PodGroup and also have a group by their metadata or controller.

    Kept to find them again when the PodGroup arrives: whether it requires a gang decides which of the two
    names counts (model.pod_group). UIDs by the core PodGroup's key, in order of arrival.
    """

    def __init__(self) -> None:
        self._uids: dict[GroupKey, dict[str, None]] = {}

    def add(self, key: GroupKey, uid: str) -> None:
        """Adds a pod by its UID."""
        self._uids.setdefault(key, {})[uid] = None

    def remove(self, pod: Pod) -> None:
        """Removes a pod, if it is listed here."""
        if not self._uids:
            return
        key = core_key(pod)
        uids = self._uids.get(key) if key is not None else None
        if key is not None and uids is not None:
            uids.pop(pod.metadata.uid, None)
            if not uids:
                del self._uids[key]

    def beside(self, key: GroupKey) -> list[str]:
        """UIDs of the pods that name that PodGroup."""
        return [*self._uids.get(key, ())]
