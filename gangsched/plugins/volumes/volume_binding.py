"""VolumeBinding: places a pod where its volumes are or can be, and binds its claims before the pod.

Bound claims restrict the pod to nodes that reach their volumes. Claims that wait for their first consumer get
the smallest sufficient volume, or one provisioned where the pod goes. Reserve records the choice, so that no
other pod takes it; PreBind writes it down and waits until the claims are bound
(plugins.volumes.claim_binding). Source: kube-scheduler 1.37
`plugins/volumebinding/{volume_binding,binder,scorer}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.pods.volume_users import claims_of
from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.objects import ObjectQueries
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    ClusterChange,
    CycleState,
    FloatArray,
    Handle,
    IntArray,
    Status,
)
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.errors import ApiError
from gangsched.model.objects import Pod
from gangsched.model.storage import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    DRIVERS,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from gangsched.plugins.resources.node_resources_fit import ShapePoint, on_lines
from gangsched.plugins.volumes.claim_binding import bind_claims
from gangsched.plugins.volumes.claims import (
    WAITS,
    claim_of,
    class_name,
    class_of,
    is_bound,
    lost,
    not_found,
    on_nodes,
    volume_of,
)
from gangsched.plugins.volumes.free_volumes import FreeVolumes, request_of, size_of
from gangsched.plugins.volumes.provisioning import Provisioning
from gangsched.plugins.volumes.volume_matching import (
    Choice,
    Given,
    Matching,
)

REASON_NODE = "node(s) didn't match PersistentVolume's node affinity"
REASON_BIND = "node(s) didn't find available persistent volumes to bind"
REASON_SPACE = "node(s) did not have enough free storage"
REASON_LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
MAX_UNBOUND = 100
"""Claims of a pod that wait for their first consumer; more than any node's attach limit."""
MAX_SELECTED = 50
"""Requirements of their selectors together; each is compared with all volumes."""
_DEFAULT_SHAPE = (ShapePoint(0, 10), ShapePoint(100, 0))


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """VolumeBindingArgs. Raises: ValueError."""

    bind_timeout_seconds: Annotated[int, Meta(description="How long a claim may take to be bound.")] = 600
    shape: Annotated[
        tuple[ShapePoint, ...],
        Meta(
            description="The score by percent of storage in use: points of `utilization`, rising, and"
            " `score`, 0 to 10."
        ),
    ] = _DEFAULT_SHAPE

    def __post_init__(self) -> None:
        if self.bind_timeout_seconds < 0:
            raise ValueError(f"bindTimeoutSeconds: {self.bind_timeout_seconds} is below 0")
        if not self.shape:
            msgspec.structs.force_setattr(self, "shape", _DEFAULT_SHAPE)
        if any(a.utilization >= b.utilization for a, b in pairwise(self.shape)):
            raise ValueError("shape: the points must be sorted by rising utilization")


class _Claims(msgspec.Struct, frozen=True):
    """A template's claims by what they need, and the view that they were read from."""

    bound: tuple[PersistentVolumeClaim, ...]
    unbound: tuple[PersistentVolumeClaim, ...]
    view: ClusterView
    looked_up: list[tuple[str, BoolArray]] = []


class VolumeBinding:
    """Filter, Score, Reserve and PreBind for claims."""

    name = "VolumeBinding"
    sees_pods: ClassVar[bool] = True
    watches: ClassVar[tuple[str, ...]] = (CLAIMS, VOLUMES, CLASSES, DRIVERS, CAPACITIES)
    cured_by = Change.NODE_ADDED | Change.NODE_LABELS | Change.OBJECT | Change.ROOM_FREED

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()
        self._shape = [(point.utilization, point.score * 10) for point in self._args.shape]
        self._promised: dict[str, Choice] = {}
        """By pod's UID: volumes that no other pod may take."""
        self._to_bind: dict[str, Choice] = {}
        """By pod's UID: choices that PreBind has not finished; their claims may be seen bound before."""
        self._waiting: set[int] = set()
        """Serials of templates with pods in `_to_bind`, and of some that had; cleared when that is empty."""
        self._looked_at: tuple[int, int, int, int, str] | None = None
        """State when `_forget_bound` last looked: a gang's members ask again and again."""
        self._volumes, self._provisioning = FreeVolumes(), Provisioning()
        self.hook_timeout_s = float(self._args.bind_timeout_seconds)

    # -- filter and score ----------------------------------------------------------------------------------

    def concerns(self, template: PodTemplate) -> bool:
        return bool(template.volumes)

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        if self._promised:
            self._forget_bound(view)
        bound: list[PersistentVolumeClaim] = []
        unbound: list[PersistentVolumeClaim] = []
        for volume, key in zip(_claiming(template), claims_of(template), strict=True):
            claim = claim_of(view, key)
            problem = _problem(claim, key, template, is_own=volume.ephemeral is not None)
            if claim is None or problem:
                return Status.unresolvable(problem)
            (bound if is_bound(claim) else unbound).append(claim)
        if not bound and not unbound:
            return SKIP
        if too_much := _too_much(unbound):
            return Status.unresolvable(too_much)
        for claim in unbound:
            storage_class = class_of(view, class_name(claim))
            waits = storage_class is not None and storage_class.volume_binding_mode == WAITS
            if claim.spec.volume_name or not waits:
                return Status.unresolvable(_IMMEDIATE)
        state.data[self.name] = _Claims(tuple(bound), tuple(unbound), view)
        return SUCCESS

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        mask = view.live.copy()
        for _, out in self._judged(state, view):
            mask &= ~out
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        return self._judged(state, view)

    def _judged(self, state: CycleState, view: ClusterView) -> list[tuple[str, BoolArray]]:
        claims: _Claims = state.data[self.name]
        answers = self._where_bound(claims, view)
        if claims.unbound:
            ok, no_space = self._matching(claims, view).answer()
            answers = [*answers, (REASON_BIND, ~ok & ~no_space), (REASON_SPACE, no_space)]
        return answers

    def _where_bound(self, claims: _Claims, view: ClusterView) -> list[tuple[str, BoolArray]]:
        """Returns reasons from bound claims; computed once per cycle, as placing siblings does not change
        them."""
        if claims.looked_up and len(claims.looked_up[0][1]) == view.n_rows:
            return claims.looked_up
        reached, is_lost = view.live.copy(), np.zeros(view.n_rows, dtype=np.bool_)
        for claim in claims.bound:
            volume = volume_of(view, claim.spec.volume_name)
            if volume is None:
                is_lost = reached.copy()  # of two reasons, the earlier volume's unreachability wins
                break
            on = on_nodes(volume, view)
            reached = reached if on is None else reached & on
        claims.looked_up[:] = [(REASON_NODE, ~reached), (REASON_LOST, is_lost)]
        return claims.looked_up

    def _forget_bound(self, view: ObjectQueries) -> None:
        """Drops reservations whose claims are bound or gone, according to the API server. While PreBind may
        still write for a claim that is gone, no other claim gets its volume."""
        if self._present(view) == self._looked_at:
            return
        for uid, choice in list(self._promised.items()):
            given = [(one, volume.metadata.name) for one, volume in choice.volumes]
            claims = [*given, *((one, "") for one in choice.made)]
            if all(_is_over(claim, volume, view, writes=uid in self._to_bind) for claim, volume in claims):
                del self._promised[uid]
        self._looked_at = self._present(view)

    def _present(self, view: ObjectQueries) -> tuple[int, int, int, int, str]:
        """Returns a value that changes with whatever `_forget_bound` looks at."""
        revisions = view.objects_revision(CLAIMS), view.objects_revision(VOLUMES)
        last = next(reversed(self._promised), "")
        return *revisions, len(self._to_bind), len(self._promised), last

    def _matching(self, claims: _Claims, view: ClusterView) -> Matching:
        return Matching(claims.unbound, view, self._volumes, self._provisioning, self._given(view))

    def _given(self, view: ClusterView) -> Given:
        """Returns volumes given by reservations, and to siblings placed on a Trial."""

        def made() -> _Siblings:
            return _Siblings(self._promised.values(), self._volumes, self._provisioning, view)

        return view.kept(self, made).given

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        """Scores how full the storage would be with the claims, by `shape`; the mean over classes."""
        claims: _Claims = state.data[self.name] if self.name in state.data else _Claims((), (), view)
        if not claims.unbound:
            return None
        matching = self._matching(claims, view)
        scores = np.where(matching.answer()[0][rows], self._fullness(matching.everywhere()), 0.0)
        for k in np.flatnonzero(matching.unlike()[rows]):
            scores[k] = self._score(matching, int(rows[k]))
        return scores if scores.any() else None

    def _score(self, matching: Matching, row: int) -> float:
        choice, _ = matching.choice(row)
        if choice is None or choice.volumes:
            return self._fullness(() if choice is None else choice.volumes)
        used: dict[str, tuple[int, int]] = {}
        for claim in choice.made:
            capacity = int(matching.provision(claim).capacity[row])
            if capacity >= 0:
                requested, _ = used.get(class_name(claim), (0, 0))
                used[class_name(claim)] = requested + request_of(claim), capacity
        return self._mean(used)

    def _fullness(self, given: Iterable[tuple[PersistentVolumeClaim, PersistentVolume]]) -> float:
        """Scores fullness with these volumes."""
        used: dict[str, tuple[int, int]] = {}
        for claim, volume in given:
            requested, capacity = used.get(volume.spec.storage_class_name, (0, 0))
            sizes = requested + request_of(claim), capacity + size_of(volume.spec)
            used[volume.spec.storage_class_name] = sizes
        return self._mean(used)

    def _mean(self, used: Mapping[str, tuple[int, int]]) -> float:
        """used: by class, the requested amount and the capacity."""
        if not used:
            return 0.0
        total = sum(
            on_lines(self._shape, 100 if not has or wants > has else wants * 100 // has)
            for wants, has in used.values()
        )
        return float(int(total / len(used) + 0.5))

    def cures(self, change: ClusterChange, template: PodTemplate | None, view: ClusterView) -> bool:
        if change.what is Change.OBJECT:
            return change.kind in self.watches
        if change.what is Change.ROOM_FREED:
            return change.pod is None or any(
                one.persistent_volume_claim or one.ephemeral for one in change.pod.spec.volumes or ()
            )
        return True

    # -- reserve -------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        claims: _Claims | None = state.data.get(self.name)
        if claims is None or not claims.unbound:
            return SUCCESS
        if not self._to_bind:
            self._waiting.clear()  # each pod with its own claims has its own template
        view = claims.view.base()
        for placement in placements:
            row = placement.row
            given = Given(self._promised.values())
            choice, _ = Matching(claims.unbound, view, self._volumes, self._provisioning, given).choice(row)
            if choice is None:
                what = f"the volumes of {placement.info.pod.key} on {view.name(row)}"
                return Status.unschedulable(f"{what} are no longer free")
            self._promised[placement.info.uid] = self._to_bind[placement.info.uid] = choice
            self._waiting.add(placement.info.template.serial)
        return SUCCESS

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None:
        for info in infos:
            self._promised.pop(info.uid, None)
            self._to_bind.pop(info.uid, None)

    def inherit(self, before: VolumeBinding) -> None:
        """Shares the books: a PreBind of the earlier plugin that still runs removes what it has finished."""
        self._promised, self._to_bind = before._promised, before._to_bind
        self._waiting = before._waiting

    # -- binding -------------------------------------------------------------------------------------------

    def pre_bind_pre_flight(self, template: PodTemplate) -> Status:
        """Skips when nothing was reserved for pods of the template."""
        return SUCCESS if template.serial in self._waiting else SKIP

    async def pre_bind(self, pod: Pod, node_name: str, handle: Handle) -> Status:
        uid = pod.metadata.uid
        choice = self._to_bind.get(uid)
        if choice is None:
            return SUCCESS
        try:
            problem = await bind_claims(choice, node_name, handle)
        except ApiError as error:
            problem = f"binding volumes: {error}"
        finally:
            if self._to_bind.get(uid) is choice:  # and not reserved again meanwhile
                del self._to_bind[uid]
        return Status.unschedulable(problem) if problem else SUCCESS


class _Siblings:
    """What reservations give, and what siblings placed on a Trial get; updated as they are placed
    (ClusterView.kept)."""

    def __init__(
        self,
        promised: Iterable[Choice],
        volumes: FreeVolumes,
        provisioning: Provisioning,
        view: ClusterView,
    ) -> None:
        self.given = Given(promised)
        self._volumes, self._provisioning = volumes, provisioning
        for row, template, count in view.placed:
            self.add(view, row, template, count)

    def add(self, view: ClusterView, row: int, template: PodTemplate, count: int) -> None:
        """See Following.add."""
        claims = [claim for key in claims_of(template) if (claim := claim_of(view, key)) is not None]
        unbound = [claim for claim in claims if not is_bound(claim)]
        if unbound:
            choice, _ = Matching(unbound, view, self._volumes, self._provisioning, self.given).choice(row)
            if choice is not None:
                self.given.give(choice)


def _claiming(template: PodTemplate) -> list[Any]:
    return [one for one in template.volumes if one.persistent_volume_claim or one.ephemeral]


def _problem(
    claim: PersistentVolumeClaim | None, key: tuple[str, str], template: PodTemplate, *, is_own: bool
) -> str:
    namespace, name = key
    if claim is None and is_own:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
    if claim is None:
        return not_found("persistentvolumeclaim", name)
    if claim.status.phase == "Lost":
        return lost(claim)
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    pod = template.pod.metadata
    owners = claim.metadata.owner_references or ()
    if is_own and not any(owner.controller and owner.uid == pod.uid for owner in owners):
        return f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.name} (pod is not owner)"
    return ""


def _too_much(unbound: Sequence[PersistentVolumeClaim]) -> str:
    """Returns why the claims cost more than a turn may; "" if they do not. The API server bounds neither."""
    if len(unbound) > MAX_UNBOUND:
        return f"{len(unbound)} PVCs without a volume, at most {MAX_UNBOUND} are compared with each node"
    n = 0
    for one in (claim.spec.selector for claim in unbound if claim.spec.selector is not None):
        n += len(one.match_labels or ()) + len(one.match_expressions or ())
    if n > MAX_SELECTED:
        return f"PVC selectors of {n:,} requirements, at most {MAX_SELECTED} are compared with volumes"
    return ""


def _is_over(promised: PersistentVolumeClaim, volume_name: str, view: ObjectQueries, *, writes: bool) -> bool:
    """Whether the reservation is over: the claim is gone and PreBind no longer writes for it, or it is bound
    and its volume is known to be its own.

    Claims and volumes are watched separately, so the volume may look free for a while after the claim is
    bound.
    """
    claim = claim_of(view, (promised.metadata.namespace, promised.metadata.name))
    if claim is None or claim.metadata.uid != promised.metadata.uid:
        return not writes
    volume = volume_of(view, volume_name) if claim.spec.volume_name == volume_name else None
    return is_bound(claim) and (volume is None or volume.spec.claim_ref is not None)


__all__ = ["Args", "VolumeBinding"]
