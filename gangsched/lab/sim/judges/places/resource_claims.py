"""What no write of a resource claim may do, what no bind may rest on, and what may not stay allocated.

ClaimRules looks at the store at the moment when a patch of a scheduler, or a Binding, takes effect there:
what then holds is what drivers and kubelets act by. What others write is no fault of ours: a device that
another allocator has given out earlier may be in a claim of ours too, until we have seen that; nobody may be
bound by it. Called by lab.sim.runs.claim_run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.judges.gangs.starts import reserved_by
from gangsched.lab.sim.reading.documents import Gang, gang_of
from gangsched.lab.sim.reading.store_index import OURS
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.resource_claims.objects import (
    ALL_OF_IT,
    EXTENDED,
    GPU,
    NET,
    NET_DRIVER,
    PARTS,
    TEMPLATE_KEY,
    TEMPLATES,
    Template,
    claims_of,
    is_entry_of,
    is_kept,
    is_reserved_for,
    is_usable_on,
    lacks_claim,
    n_extended,
    offers_extended,
    reserved_for,
)
from gangsched.model.effects import BindPod
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import CLAIMS, SLICES, DeviceId, ResourceClaim, SliceDevice

Claims = Mapping[tuple[str, ...], ResourceClaim]


class ClaimRules:
    """device-in-one-claim: no device, and no more of a counter than there is, is in two claims that we have
    allocated. claims-as-asked: an allocation has what its claim asks for. claims-kept: it is written only
    onto a claim with a finalizer. entries-of-others: no write takes off an entry of a pod that is not ours,
    or that is bound. claims-before-binds: a pod is bound only where all its claims are allocated and reserved
    for it, with no device that another had before; a gang's first pod only where all members' are.
    """

    def __init__(self, api: SimApi) -> None:
        self._api = api
        self._found: list[str] = []
        self._ours: set[str] = set()
        """UIDs of claims whose allocation, as it is, a scheduler of ours has written."""
        self._second: dict[str, set[str]] = {}
        """By claim of ours: others' claims, allocated before it, that have a device of it."""
        self._devices: dict[DeviceId, SliceDevice] = {}
        """Every device that was ever published, as it was then."""
        self._offering: set[str] = set()
        """Nodes where a plugin has ever offered EXTENDED: which the scheduler may still believe."""
        self._n_judged: dict[str, int] = {}
        api.claims.on_written.append(self._written)
        api.on_bound.append(self._bound)

    @property
    def _claims(self) -> Claims:
        return self._api.objects[CLAIMS]

    def check(self, sent: Mapping[str, Sequence[BindPod]], scheduler: Scheduler | None) -> Iterator[str]:
        """After every turn. sent: all binds that were sent, by UID. scheduler: which has just decided; None:
        there are several, of which some may be deposed."""
        for one in self._api.objects[SLICES].values():
            for device in one.spec.devices:
                self._devices[DeviceId(one.spec.driver, one.spec.pool.name, device.name)] = device
        self._offering |= {name for name, one in self._api.nodes.items() if offers_extended(one)}
        found, self._found = self._found, []
        yield from found
        new = []
        for uid, binds in sent.items():
            if len(binds) > self._n_judged.get(uid, 0):
                self._n_judged[uid] = len(binds)
                new.append(binds[-1])
        if new and scheduler is not None:
            yield from self._starts(new, scheduler)

    # -- patches -----------------------------------------------------------------------------------------

    def _written(self, before: ResourceClaim, after: ResourceClaim) -> None:
        self._found += self._entries_left(before, after)
        uid = after.metadata.uid
        if after.status.allocation is None:
            self._ours.discard(uid)
            self._second.pop(uid, None)
        elif before.status.allocation is None:
            if not is_kept(after):
                self._found += [f"claims-kept: {after.key} is allocated, and has no finalizer"]
            self._found += self._devices_taken(after)
            self._found += self._as_asked(after)
            self._ours.add(uid)

    def _entries_left(self, before: ResourceClaim, after: ResourceClaim) -> Iterator[str]:
        pods = {pod.metadata.uid: pod for pod in self._api.pods.values()}
        for entry in before.status.reserved_for or ():
            if entry.resource == "pods" or entry.uid in reserved_for(after):
                continue
            runs = [one for one in pods.values() if one.spec.node_name and not one.is_terminal]
            if any(is_entry_of(entry, one) for one in runs):
                yield f"entries-of-others: {after.key} is no longer reserved for {entry.name}, which runs"
        for uid in reserved_for(before) - reserved_for(after):
            pod = pods.get(uid)
            if pod is not None and after.extended_for == uid and after not in claims_of(pod, self._claims):
                continue  # it was made for an attempt that has ended; the pod has another
            if pod is not None and (
                pod.spec.scheduler_name != OURS or (pod.spec.node_name and not pod.is_terminal)
            ):
                whose = (
                    f"on {pod.spec.node_name}" if pod.spec.scheduler_name == OURS else "another scheduler's"
                )
                yield f"entries-of-others: {after.key} is no longer reserved for {pod.metadata.name}, {whose}"

    def _devices_taken(self, claim: ResourceClaim) -> Iterator[str]:
        uid, mine = claim.metadata.uid, _devices(claim)
        there = {one.metadata.uid for one in self._claims.values()}
        self._ours &= there
        if len(set(mine)) < len(mine):
            yield f"device-in-one-claim: {claim.key} is given a device twice: {mine}"
        parts: Counter[str] = Counter()
        for other in self._claims.values():
            theirs = set(_devices(other))
            if other.metadata.uid == uid or other.metadata.uid in self._ours:
                parts.update({one.pool: PARTS[one.name] for one in theirs if one.name in PARTS})
            if other.metadata.uid == uid:
                continue
            shared = theirs.intersection(mine)
            if shared and other.metadata.uid in self._ours:
                yield f"device-in-one-claim: {min(shared)} is given to {claim.key}, and {other.key} has it"
            elif shared:
                self._second.setdefault(uid, set()).add(other.metadata.uid)
        for pool, n in parts.items():
            if n > ALL_OF_IT and any(one.pool == pool for one in mine):
                yield f"device-in-one-claim: {claim.key} takes too much of {pool}: {n} of {ALL_OF_IT}"

    def _as_asked(self, claim: ResourceClaim) -> Iterator[str]:
        if claim.extended_for:
            asked = claim.spec.devices.requests or ()
            template = Template(GPU, sum(one.exactly.count for one in asked if one.exactly is not None))
        else:
            template = TEMPLATES[(claim.metadata.annotations or {})[TEMPLATE_KEY]]
        mine = _devices(claim)
        known = [self._devices[one] for one in mine if one in self._devices]
        if len(known) < len(mine) or len(mine) != template.n or not _suit(template, mine, known):
            given = [str(one) for one in mine]
            yield f"claims-as-asked: {claim.key} asks for {template}, and is given {given}"

    # -- binds -------------------------------------------------------------------------------------------

    def _bound(self, pod: Pod) -> None:
        if pod.spec.scheduler_name == OURS:
            self._found += self._unready(pod, pod.spec.node_name)

    def _unready(self, pod: Pod, node: str) -> Iterator[str]:
        """node: which it goes to; "": it is not known."""
        name = pod.metadata.name
        if node not in self._offering and lacks_claim(pod, self._api.nodes.get(node)):
            yield f"claims-before-binds: {name} goes to {node}, and states no claim for {EXTENDED}"
        for claim in claims_of(pod, self._claims):
            if claim is None:
                yield f"claims-before-binds: {name} goes to {node}, and has not all its claims"
            elif claim.status.allocation is None or not is_reserved_for(claim, pod):
                yield f"claims-before-binds: {name} goes to {node}, and {claim.key} is not reserved for it"
            elif node and not is_usable_on(claim, node):
                yield f"claims-before-binds: {name} goes to {node}, where {claim.key} is not"
            else:
                yield from self._held_before(claim, name)

    def _held_before(self, claim: ResourceClaim, name: str) -> Iterator[str]:
        mine = set(_devices(claim))
        others = self._second.get(claim.metadata.uid, ())
        for other in self._claims.values():
            if other.metadata.uid in others and mine.intersection(_devices(other)):
                yield f"claims-before-binds: {name} is bound, and {other.key} had its device before"

    def _starts(self, binds: Sequence[BindPod], scheduler: Scheduler) -> Iterator[str]:
        """Of gangs none of whose pods is bound yet: all members that are reserved have their claims."""
        pods = {pod.metadata.uid: pod for pod in self._api.pods.values()}
        begin = {gang_of(pods[bind.uid]) for bind in binds if bind.uid in pods}
        reserved = reserved_by(scheduler)
        for gang in begin:
            if gang is None or self._has_begun(gang):
                continue
            for uid, pod in self._api.index.members.get(gang, {}).items():
                if uid in reserved and pod.metadata.deletion_timestamp is None and not pod.is_terminal:
                    yield from self._unready(pod, "")

    def _has_begun(self, gang: Gang) -> bool:
        return any(pod.spec.node_name for pod in self._api.index.members.get(gang, {}).values())


def _suit(template: Template, ids: Sequence[DeviceId], devices: Sequence[SliceDevice]) -> bool:
    """Whether all of these devices are as asked for, each of them and together."""
    if template.device_class == NET:
        return all(one.driver == NET_DRIVER for one in ids)
    kinds = {one.attributes["kind"].string_value for one in devices}
    models = {one.attributes["model"].string_value for one in devices if template.model}
    shared = {one.attributes[template.alike].int_value for one in devices if template.alike}
    is_one_node = len({one.pool for one in ids}) == 1
    return kinds == {template.device_class} and models <= {template.model} and len(shared) < 2 and is_one_node


def _devices(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    return [] if allocation is None else [one.id for one in allocation.devices.results]


def at_rest(api: SimApi, schedulers: Sequence[Scheduler]) -> Iterator[str]:
    """claims-given-back: at rest nothing is allocated or reserved for a pod that is not bound, but for groups
    that wait for others; and nothing is on its way. cache-is-store: each scheduler knows the claims as they
    are."""
    claims: Claims = api.objects[CLAIMS]
    pods = {pod.metadata.uid: pod for pod in api.pods.values()}
    waiting = {
        uid
        for scheduler in schedulers
        for group in scheduler.shared.groups.values()
        if group.state is GroupState.WAITING
        for uid in group.members
    }
    for claim in claims.values():
        entries = reserved_for(claim)
        owner = pods.get(claim.extended_for)
        # What an ended pod owns, and what is deleted already, is for the cluster's controller to take away.
        is_ours_to_delete = (
            owner is not None and not owner.is_terminal and claim.metadata.deletion_timestamp is None
        )
        if is_ours_to_delete and claim.status.allocation is None:
            yield f"claims-given-back: {claim.key} was made for an attempt, and is left"
        for entry in claim.status.reserved_for or ():
            users = [pod for pod in pods.values() if entry.resource != "pods" and is_entry_of(entry, pod)]
            if users and not any(pod.spec.node_name or pod.metadata.uid in waiting for pod in users):
                yield f"claims-given-back: {claim.key} is reserved for {entry.name}, of which no pod is bound"
        if claim.status.allocation is not None and not entries:
            yield f"claims-given-back: {claim.key} is allocated, and nobody has it"
        for uid in entries - waiting:
            pod = pods.get(uid)
            if pod is not None and not pod.spec.node_name:
                yield f"claims-given-back: {claim.key} is reserved for {pod.metadata.name}, not bound"
    for scheduler in schedulers:
        for record in scheduler.shared.claim_uses.records.values():
            if not (record.held.keys() | record.wants.keys()) <= waiting or record.leaves:
                yield f"claims-given-back: at rest claim {record.uid} is still written: {record!r:.200}"
        book = scheduler.shared.cache.claims
        known = {uid: one.metadata.resource_version for uid, one in book.claims.items()}
        stored = {one.metadata.uid: one.metadata.resource_version for one in claims.values()}
        if known != stored:
            yield f"cache-is-store: claims {sorted(known.items() ^ stored.items())} differ"
        if strange := book.promised.keys() - scheduler.shared.claim_uses.records.keys():
            yield f"claims-given-back: devices are promised to claims {sorted(strange)} at rest"


def unserved(scheduler: Scheduler, start: Callable[[], Scheduler], now_s: float) -> Iterator[str]:
    """claims-found: at rest a fresh process finds devices for no group with claims that this one has left."""
    if any(group.n_assumed for group in scheduler.shared.groups.values()):
        return
    fresh = start()
    while fresh.schedule_next(now_s) is not None:
        pass
    for uid in reserved_by(fresh):
        info = scheduler.shared.cache.pods.get(uid)
        group = info.group if info is not None else None
        if info is None or group is None or info.node_name:
            continue
        if not info.pod.spec.resource_claims and not n_extended(info.pod):
            continue
        if group.state in (GroupState.UNSCHEDULABLE, GroupState.GATED):
            found = fresh.shared.cache.pods[uid].node_name
            name = info.pod.metadata.name
            yield f"claims-found: {group.key} waits, and {name} fits on {found}: {group.message}"
            return
