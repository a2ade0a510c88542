"""VolumeRestrictions: disks that only one node, or only one pod, may use at a time.

A GCE disk, an RBD image and an iSCSI target may be mounted twice on a node if all mounts are read-only, an
EBS volume not at all; a claim of access mode ReadWriteOncePod belongs to one pod in the whole cluster.
Source: kube-scheduler 1.37 `plugins/volumerestrictions/volume_restrictions.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from gangsched.core.cache.pods.volume_users import claims_for_one_pod, claims_of
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    Status,
)
from gangsched.core.types.templates.per_template import PerTemplate
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Pod, Volume
from gangsched.model.storage import CLAIMS
from gangsched.plugins.volumes.claims import claim_of, not_found

REASON_DISK = "node(s) had no available disk"
REASON_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)


_Disk = tuple[str, ...]
"""The disk's kind and what identifies it; an RBD image at one monitor."""


class VolumeRestrictions:
    """Filter on disks that are taken."""

    name = "VolumeRestrictions"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = (CLAIMS,)
    cured_by = Change.ROOM_FREED | Change.NODE_ADDED | Change.NODE_REMOVED | Change.OBJECT

    def __init__(self) -> None:
        self._disks: PerTemplate[Mapping[_Disk, bool]] = PerTemplate(limit=50_000)

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.volumes)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ObjectQueries) -> Status:
        if not template.volumes:
            return SKIP
        for volume in template.volumes:
            claim = volume.persistent_volume_claim
            if claim is not None and claim_of(view, (template.namespace, claim.claim_name)) is None:
                return Status.unresolvable(not_found("persistentvolumeclaim", claim.claim_name))
        is_exclusive = any(claims_for_one_pod(template, view.objects(CLAIMS)))
        return SUCCESS if is_exclusive or _disks(template.volumes) else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        mask = self._free_of_conflicts(template, view)
        if _is_used(template, view):
            mask[:] = False
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        free = self._free_of_conflicts(template, view)
        found = [(REASON_DISK, ~free)]
        if _is_used(template, view):
            found.append((REASON_POD, free))
        return found

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if template is None or change.what is Change.NODE_ADDED:
            return True
        if change.what is Change.OBJECT:
            return change.kind == CLAIMS
        if change.what is Change.NODE_REMOVED:  # the pods there use no claim any more
            return any(claims_for_one_pod(template, view.objects(CLAIMS)))
        return change.pod is None or _shares(template, change.pod)

    def _free_of_conflicts(self, template: PodTemplate, view: PodQueries) -> BoolArray:
        mask = np.ones(view.n_rows, dtype=np.bool_)
        wanted = self._of(template)
        if wanted:
            for row, users in view.volume_users().items():
                mask[row] = not any(_conflict(wanted, self._of(user)) for user in users)
        return mask

    def _of(self, template: PodTemplate) -> Mapping[_Disk, bool]:
        """The template's disks, worked out once: those of all pods are compared with each that mounts one."""
        found = self._disks.get(template)
        return self._disks.put(template, _disks(template.volumes)) if found is None else found


def _disks(volumes: Iterable[Volume]) -> dict[_Disk, bool]:
    """Returns disks that these volumes mount -> whether one may write; an EBS volume counts as written to.

    Two pods cannot both mount a disk on one node if either may write. Disks are looked up, as pods may list
    them by the thousand.
    """
    found: dict[_Disk, bool] = {}
    for one in volumes:
        gce, ebs, iscsi, rbd = one.gce_persistent_disk, one.aws_elastic_block_store, one.iscsi, one.rbd
        named: list[tuple[_Disk, bool]] = []
        if gce is not None:
            named.append((("gce", gce.pd_name), not gce.read_only))
        if ebs is not None:
            named.append((("ebs", ebs.volume_id), True))
        if iscsi is not None:
            named.append((("iscsi", iscsi.iqn), not iscsi.read_only))
        if rbd is not None:
            named += [(("rbd", rbd.pool, rbd.image, at), not rbd.read_only) for at in rbd.monitors or ()]
        for disk, writes in named:
            found[disk] = writes or found.get(disk, False)
    return found


def _conflict(wanted: Mapping[_Disk, bool], there: Mapping[_Disk, bool]) -> bool:
    return any(wanted[disk] or there[disk] for disk in wanted.keys() & there.keys())


def _is_used(template: PodTemplate, view: ClusterView) -> bool:
    return any(map(view.claim_users, claims_for_one_pod(template, view.objects(CLAIMS))))


def _shares(template: PodTemplate, gone: Pod) -> bool:
    """Whether the removed pod used a disk or a claim that pods of the template want."""
    volumes = gone.spec.volumes or ()
    if _conflict(_disks(template.volumes), _disks(volumes)):
        return True
    if gone.metadata.namespace != template.namespace:
        return False
    claims = (one.persistent_volume_claim for one in volumes)
    wanted = {name for _, name in claims_of(template)}
    return any(claim is not None and claim.claim_name in wanted for claim in claims)
