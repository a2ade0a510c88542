"""NodeVolumeLimits: how many volumes of a driver a node can have attached, and drivers that it lacks.

CSI drivers state the limits in the node's CSINode; in-tree volumes count for the driver that they were
migrated to. A node without a CSINode has no CSI; there the old cloud limits apply, which kube-scheduler has
dropped: 39 EBS volumes, 16 GCE disks, or the argument's number. Sources: kube-scheduler 1.37
`plugins/nodevolumelimits/csi.go`; kubernetes 1.26 `nodevolumelimits/non_csi.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    Status,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NODES,
    VOLUMES,
)
from gangsched.plugins.volumes.attached_volumes import (
    DRIVERS_OF_PLUGINS,
    EBS,
    GCE,
    AttachedVolumes,
    Unique,
    counted,
    may_count,
    storing,
    volumes_of,
)
from gangsched.plugins.volumes.missing_drivers import MissingDrivers

REASON = "node(s) exceed max volume count"
CLASSIC_LIMITS: Mapping[str, int] = {EBS: 39, GCE: 16}


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Replaces CLASSIC_LIMITS, the old limits by cloud. kube-scheduler has KUBE_MAX_PD_VOLS alone.

    Raises: ValueError.
    """

    max_pd_volumes: Annotated[
        int,
        Meta(
            description="How many in-tree EBS, GCE, Azure and Cinder volumes a node without CSI takes, of"
            " each kind; 0: what the environment variable `KUBE_MAX_PD_VOLS` says, else 39 EBS and 16 GCE."
        ),
    ] = 0

    def __post_init__(self) -> None:
        if self.max_pd_volumes < 0:
            raise ValueError(f"maxPdVolumes: {self.max_pd_volumes} is below 0")


class NodeVolumeLimits:
    """Filter on the number of attached volumes."""

    name = "NodeVolumeLimits"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = (CLAIMS, VOLUMES, CLASSES, NODES, ATTACHMENTS, DRIVERS)
    cured_by = Change.ROOM_FREED | Change.NODE_ADDED | Change.OBJECT

    def __init__(self, args: Args | None = None) -> None:
        most = args.max_pd_volumes if args is not None else 0
        self._missing = MissingDrivers()
        self._attached = AttachedVolumes(dict.fromkeys(DRIVERS_OF_PLUGINS, most) if most else CLASSIC_LIMITS)

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.volumes or _inline(template))

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        """Skips also when no node limits any of the drivers, as for storage that is not attached, and none
        of them has to be on the pod's node.
        """
        if not any(may_count(volume) for volume in template.volumes) and not _inline(template):
            return SKIP
        if self._missing.missing(template, view):
            return SUCCESS
        self._attached.follow(view)
        return SUCCESS if self._attached.limits_any(volumes_of(template, view)) else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        within = self._within_limits(template, view)
        drivers = self._missing.missing(template, view)
        return within & self._missing.admits(drivers, view) if drivers else within

    def _within_limits(self, template: PodTemplate, view: ClusterView) -> BoolArray:
        self._attached.follow(view)
        used = view.kept(self, lambda: _Used(self._attached, view))
        room = view.kept((self, template.serial), lambda: _Room(self._attached, template, used, view))
        return room.mask.copy()

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        lacking = [
            (f"{driver} CSI driver is not installed on the node", ~self._missing.rows_with(driver, view))
            for driver in self._missing.missing(template, view)
        ]
        return (*lacking, (REASON, ~self._within_limits(template, view)))

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if change.what is Change.OBJECT:
            return change.kind in self.watches
        if change.what is Change.ROOM_FREED and change.pod is not None:
            return any(may_count(volume) for volume in change.pod.spec.volumes or ())
        return True


def _inline(template: PodTemplate) -> bool:
    return any(volume.csi is not None for volume in template.spec.volumes or ())


class _Used:
    """The volumes of pods on the rows that a Trial has changed, as nodes count them; updated as pods are
    placed (ClusterView.kept)."""

    def __init__(self, attached: AttachedVolumes, view: ClusterView) -> None:
        self._attached = attached
        self.on: dict[int, set[Unique]] = {}
        self.n_held: dict[int, Mapping[str, int]] = {}
        """By row: how many of each driver's volumes the node has, or will have."""
        for row in {row for row, one, _ in view.moved if one.volumes}:
            self.on[row] = set()
            self._use(row, storing(row, view), view)
        for row, one, count in view.placed if self.on else ():
            self.add(view, row, one, count)

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """See Following.add."""
        if template.volumes:
            if row not in self.on:
                self.on[row] = set(self._attached.used(row))
            self._use(row, (template,), view)

    def _use(self, row: int, templates: Iterable[PodTemplate], view: ClusterView) -> None:
        used = self.on[row]
        for one in templates:
            used |= counted(volumes_of(one, view), self._attached.has_csi(row))
        self.n_held[row] = self._attached.n_held(view.name(row), used)


class _Room:
    """Where a template's volumes can be attached; updated as pods are placed (ClusterView.kept).

    mask: bool[n_rows]. used: of the same Trial, and updated before this.
    """

    def __init__(
        self, attached: AttachedVolumes, template: PodTemplate, used: _Used, view: ClusterView
    ) -> None:
        self._attached, self._used = attached, used
        self._wanted = volumes_of(template, view)
        self.mask = attached.open_to(self._wanted)
        for row in used.on:
            self._look(row)

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """See Following.add."""
        if template.volumes:
            self._look(row)

    def _look(self, row: int) -> None:
        used = self._used
        self.mask[row] = self._attached.fits(row, self._wanted, used.on[row], used.n_held[row])
