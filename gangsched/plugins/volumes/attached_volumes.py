"""AttachedVolumes: which volumes the pods on each node use, and how many of each driver are attached there.

Kept up to date with what has changed: nodes' rows by the cache's journal; claims, volumes, attachments and
CSINodes by the object store's journal. Read only by NodeVolumeLimits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from gangsched.core.cache.object_store import Name
from gangsched.core.cache.pods.volume_users import claims_of
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.framework.interface import BoolArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.objects import Volume
from gangsched.model.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    NODES,
    VOLUMES,
    CsiNode,
    PersistentVolumeClaim,
    VolumeAttachment,
    VolumeSpec,
)
from gangsched.plugins.volumes.claims import claim_of, class_name, class_of, volume_of

EBS, GCE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"
DRIVERS_OF_PLUGINS: Mapping[str, str] = {
    EBS: "ebs.csi.aws.com",
    GCE: "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
}
"""In-tree plugins, and the CSI drivers that they were migrated to."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

Unique = tuple[str, str]
"""(CSI driver, or an in-tree plugin's name; the volume's own name)."""

_FOLLOWED = (CLAIMS, VOLUMES, NODES, ATTACHMENTS)
_NO_LIMIT = 2**62
_NOTHING: Mapping[str, int] = MappingProxyType({})


class _OnRow(NamedTuple):
    """One node. used: its pods' volumes as the node counts them; n_held: attached volumes by driver."""

    has_csi: bool
    limits: Mapping[str, int]
    used: frozenset[Unique]
    n_held: Mapping[str, int]
    claims: frozenset[Name]
    volumes: frozenset[str]


class _Attachment(NamedTuple):
    node_name: str
    volume: str


_EMPTY = _OnRow(False, _NOTHING, frozenset(), _NOTHING, frozenset(), frozenset())


class AttachedVolumes:
    """By row of the cache; `fits` answers for what a Trial changes."""

    def __init__(self, classic: Mapping[str, int]) -> None:
        """classic: the limits of nodes without a CSINode."""
        self._classic = classic
        self._mark = -1
        self._n_rows = -1
        self._revisions: dict[str, int] = {}
        self._clear(0)

    def _clear(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._rows: dict[int, _OnRow] = {}
        self._has_csi: BoolArray = np.zeros(n_rows, dtype=np.bool_)
        self._n_limited = Counter[str]()
        self._limits: dict[str, IntArray] = {}
        """By requested driver: int64[n_rows]."""
        self._n_held: dict[str, IntArray] = {}
        """Likewise: the number of attached volumes."""
        self._users: dict[Unique, set[int]] = {}
        self._rows_of_claims: dict[Name, set[int]] = {}
        self._rows_of_volumes: dict[str, set[int]] = {}
        self._attachments: dict[Name, _Attachment] = {}
        self._on_nodes: dict[str, dict[Name, Unique]] = {}
        self._of_volumes: dict[str, set[Name]] = {}

    # -- asking ------------------------------------------------------------------------------------------

    def limits_any(self, wanted: Iterable[Unique]) -> bool:
        """Whether some node limits one of these volumes' drivers."""
        drivers = {driver for driver, _ in wanted}
        drivers |= {DRIVERS_OF_PLUGINS[plugin] for plugin in drivers if plugin in DRIVERS_OF_PLUGINS}
        return any(self._n_limited[driver] or driver in self._classic for driver in drivers)

    def open_to(self, wanted: Iterable[Unique]) -> BoolArray:
        """bool[n_rows]: the nodes that can take these volumes too."""
        mask: BoolArray = np.ones(self._n_rows, dtype=np.bool_)
        for rows, new in ((self._has_csi, counted(wanted, True)), (~self._has_csi, counted(wanted, False))):
            by_driver: dict[str, list[Unique]] = {}
            for one in new:
                by_driver.setdefault(one[0], []).append(one)
            for driver, some in by_driver.items():
                limits, n_held = self._columns(driver)
                n_new = np.full(self._n_rows, len(some), dtype=np.int64)
                for one in some:
                    n_new[list(self._users.get(one, ()))] -= 1
                mask &= (n_new == 0) | (n_held + n_new <= limits) | ~rows
        return mask

    def has_csi(self, row: int) -> bool:
        """Whether the row's node has a CSINode."""
        return bool(self._has_csi[row])

    def used(self, row: int) -> frozenset[Unique]:
        """Returns the volumes of the pods on a row, as its node counts them."""
        return self._rows.get(row, _EMPTY).used

    def n_held(self, node_name: str, used: Set[Unique]) -> Mapping[str, int]:
        """By driver: number of volumes that a node has if its pods use those."""
        return _by_driver(used | set(self._on_nodes.get(node_name, {}).values()))

    def fits(self, row: int, wanted: Iterable[Unique], used: Set[Unique], n_held: Mapping[str, int]) -> bool:
        """Whether a node can take these volumes too if its pods use `used`, and it has n_held by driver."""
        there = self._rows.get(row, _EMPTY)
        new = _by_driver(counted(wanted, there.has_csi) - used)
        return all(
            n_held.get(driver, 0) + n <= there.limits.get(driver, _NO_LIMIT) for driver, n in new.items()
        )

    def _columns(self, driver: str) -> tuple[IntArray, IntArray]:
        """Returns (limits, numbers of attached volumes), kept once a driver has been requested."""
        if driver not in self._limits:
            self._limits[driver] = np.full(self._n_rows, _NO_LIMIT, dtype=np.int64)
            self._n_held[driver] = np.zeros(self._n_rows, dtype=np.int64)
            for row, one in self._rows.items():
                self._fill(driver, row, one)
        return self._limits[driver], self._n_held[driver]

    def _fill(self, driver: str, row: int, one: _OnRow) -> None:
        self._limits[driver][row] = one.limits.get(driver, _NO_LIMIT)
        self._n_held[driver][row] = one.n_held.get(driver, 0)

    # -- keeping up --------------------------------------------------------------------------------------

    def follow(self, view: ClusterView) -> None:
        """Brings up to date the nodes, on the cache's own view, for which something has changed."""
        base = view.base()
        revisions = {kind: base.objects_revision(kind) for kind in (*_FOLLOWED, CLASSES)}
        if (base.journal_end, base.n_rows, revisions) == (self._mark, self._n_rows, self._revisions):
            return
        rows = self._changed(base, revisions)
        if rows is None:
            self._clear(base.n_rows)
            for name in base.objects(ATTACHMENTS):
                self._attach(name, base)
            rows = set(np.flatnonzero(base.live).tolist())
        self._mark, self._revisions = base.journal_end, revisions
        for row in rows:
            self._put(row, base)

    def _changed(self, base: ClusterView, revisions: Mapping[str, int]) -> set[int] | None:
        """Returns the rows to look at again; None: all."""
        known = self._revisions
        rows = base.rows_since(self._mark) if base.n_rows == self._n_rows else None
        if rows is None or known[CLASSES] != revisions[CLASSES]:
            return None
        names = {kind: base.objects_since(kind, known[kind]) for kind in _FOLLOWED}
        claims, volumes, nodes, attachments = (names[kind] for kind in _FOLLOWED)
        if claims is None or volumes is None or nodes is None or attachments is None:
            return None
        for claim in claims:
            rows |= self._rows_of_claims.get(claim, set())
        again = set(attachments)
        for _, volume in volumes:
            rows |= self._rows_of_volumes.get(volume, set())
            again |= self._of_volumes.get(volume, set())
        touched = {name for _, name in nodes}
        for attachment in again:
            touched |= self._attach(attachment, base)
        return rows | {row for name in touched if (row := base.row_of(name)) is not None}

    def _attach(self, name: Name, base: ObjectQueries) -> set[str]:
        """Takes in an attachment as it is now, or that it is gone; returns the nodes that it was and is
        on."""
        touched = set()
        before = self._attachments.pop(name, None)
        if before is not None:
            touched.add(before.node_name)
            there = self._on_nodes.get(before.node_name, {})
            there.pop(name, None)
            if not there:
                self._on_nodes.pop(before.node_name, None)
            _unlink(self._of_volumes, (before.volume,), name)
        one: VolumeAttachment | None = base.objects(ATTACHMENTS).get(name)
        if one is None:
            return touched
        spec, unique = one.spec, None
        volume = volume_of(base, spec.source.persistent_volume_name)
        if spec.attacher and volume is not None and volume.spec.csi is not None:
            unique = (spec.attacher, volume.spec.csi.volume_handle)
            self._on_nodes.setdefault(spec.node_name, {})[name] = unique
        now = _Attachment(spec.node_name, spec.source.persistent_volume_name)
        self._attachments[name] = now
        _link(self._of_volumes, (now.volume,), name)
        return touched | {now.node_name}

    def _put(self, row: int, base: ClusterView) -> None:
        before = self._rows.pop(row, None)
        if before is not None:
            self._n_limited.subtract(before.limits.keys())
            _unlink(self._users, before.used, row)
            _unlink(self._rows_of_claims, before.claims, row)
            _unlink(self._rows_of_volumes, before.volumes, row)
        now = self._row(row, base) if base.live[row] else _EMPTY
        if now is not _EMPTY:
            self._rows[row] = now
            self._n_limited.update(now.limits.keys())
            _link(self._users, now.used, row)
            _link(self._rows_of_claims, now.claims, row)
            _link(self._rows_of_volumes, now.volumes, row)
        self._has_csi[row] = now.has_csi
        for driver in self._limits:
            self._fill(driver, row, now)

    def _row(self, row: int, base: ClusterView) -> _OnRow:
        name = base.name(row)
        csi_node: CsiNode | None = base.objects(NODES).get(("", name))
        templates = storing(row, base)
        claims = frozenset(key for template in templates for key in claims_of(template))
        found = (claim_of(base, key) for key in claims)
        used = {one for template in templates for one in volumes_of(template, base)}
        used = counted(used, csi_node is not None)
        return _OnRow(
            has_csi=csi_node is not None,
            limits=self._classic if csi_node is None else _limits_of(csi_node),
            used=frozenset(used),
            n_held=_by_driver(used | set(self._on_nodes.get(name, {}).values())),
            claims=claims,
            volumes=frozenset(claim.spec.volume_name for claim in found if claim is not None),
        )


def storing(row: int, view: PodQueries) -> set[PodTemplate]:
    """Returns the templates of a row's pods that have volumes."""
    return {info.template for info in view.pods_on(row) if info.template.volumes}


def may_count(volume: Volume) -> bool:
    """Whether some node may count the volume."""
    return bool(volume.persistent_volume_claim or volume.ephemeral or _in_tree(volume))


def volumes_of(template: PodTemplate, view: ObjectQueries) -> set[Unique]:
    """Returns the volumes of the template's pods, each once; missing claims are left out."""
    found = {unique for volume in template.volumes if (unique := _in_tree(volume)) is not None}
    for key in claims_of(template):
        claim = claim_of(view, key)
        unique = _behind(claim, view) if claim is not None else None
        if unique is not None:
            found.add(unique)
    return found


def counted(used: Iterable[Unique], has_csi: bool) -> set[Unique]:
    """Returns the volumes as a node counts them: with CSI, in-tree volumes count for their driver."""
    if not has_csi:
        return set(used)
    return {(DRIVERS_OF_PLUGINS.get(plugin, plugin), name) for plugin, name in used}


def _by_driver(some: Iterable[Unique]) -> Counter[str]:
    return Counter(driver for driver, _ in some)


def _limits_of(csi_node: CsiNode) -> Mapping[str, int]:
    return {
        driver.name: min(max(driver.allocatable.count, -1), _NO_LIMIT)
        for driver in csi_node.spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _in_tree(source: Volume | VolumeSpec) -> Unique | None:
    """Returns (in-tree plugin, the disk's name); None if it is of no plugin with its own limit."""
    if source.aws_elastic_block_store is not None:
        return EBS, source.aws_elastic_block_store.volume_id
    if source.gce_persistent_disk is not None:
        return GCE, source.gce_persistent_disk.pd_name
    if source.azure_disk is not None:
        return "kubernetes.io/azure-disk", source.azure_disk.disk_uri
    if source.cinder is not None:
        return "kubernetes.io/cinder", source.cinder.volume_id
    return None


def _behind(claim: PersistentVolumeClaim, view: ObjectQueries) -> Unique | None:
    """Returns the claim's volume; if unbound, a placeholder for the one that its class would provision."""
    volume = volume_of(view, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        csi = volume.spec.csi
        if csi is not None:
            return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
        return _in_tree(volume.spec)
    storage_class = class_of(view, class_name(claim))
    if storage_class is None or not storage_class.provisioner:
        return None
    # A placeholder that no volume has as its name: the volume does not exist yet.
    return storage_class.provisioner, f"{claim.metadata.namespace}/{claim.metadata.name}"


def _link(there: dict[KeyT, set[ValueT]], keys: Iterable[KeyT], value: ValueT) -> None:
    for key in keys:
        there.setdefault(key, set()).add(value)


def _unlink(there: dict[KeyT, set[ValueT]], keys: Iterable[KeyT], value: ValueT) -> None:
    """Removes the value; a key without values is dropped."""
    for key in keys:
        values = there[key]
        values.discard(value)
        if not values:
            del there[key]
