"""ClaimBook: all claims, classes, pools and taints, and who has which device: allocated and promised alike.

A promise is an allocation that was decided and is not yet seen on the watch; its devices are taken from then
on, and stay taken until the watch shows the claim without them, or its write can no longer land. The cache is
the only writer; trials read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Protocol

import msgspec

from gangsched.core.resource_claims.candidates import Cluster, NodeOffer
from gangsched.core.resource_claims.devices import PoolBook
from gangsched.core.resource_claims.extended import ENTRY, ExtendedResources
from gangsched.core.resource_claims.holdings import Holdings
from gangsched.core.resource_claims.pod_claims import ClaimNeed, SharingGroup, problem_of, used_claims
from gangsched.core.resource_claims.requests import ClaimProblem, PreparedClaim
from gangsched.core.resource_claims.selectors import Selectors
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    DEVICE_CLASSES,
    SLICES,
    TAINT_RULES,
    Allocation,
    Consumer,
    DeviceClass,
    DeviceId,
    DeviceTaintRule,
    PoolId,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)

KINDS = (CLAIMS, SLICES, DEVICE_CLASSES, TAINT_RULES)
_encode = msgspec.json.Encoder().encode

Place = tuple[str, str]
"""(namespace, name) of a claim."""


class _Asked(Protocol):
    """device_resources: the extended resources that a pod requests."""

    @property
    def namespace(self) -> str: ...

    @property
    def device_resources(self) -> tuple[str, ...]: ...


class PlacedPod(Protocol):
    """A pod as the cache holds it. node_name: where it is, or is about to be; "": it waits."""

    @property
    def node_name(self) -> str: ...

    @property
    def template(self) -> _Asked: ...


_NOBODY: Mapping[str, None] = MappingProxyType({})
_NO_PODS: Mapping[str, PlacedPod] = MappingProxyType({})


class _Offer:
    """What a node offers, and what of the node that depends on."""

    __slots__ = ("labels", "offer", "revision")

    def __init__(self, labels: Mapping[str, str] | None, revision: tuple[int, int], offer: NodeOffer) -> None:
        self.labels = labels
        self.revision = revision
        self.offer = offer


class ClaimBook:
    """Claims and devices. touched: names of nodes of which an answer may have changed, "" for all of them;
    reported: those of which drivers or rules say something new; stale: UIDs of pods whose claims have
    changed; clashes: (device, UIDs of two claims that have it); freed: whether devices have become free, or a
    claim has fewer users.
    Whoever acts on these clears them. leaving: claims that are being taken back, whose pods wait for that.
    """

    def __init__(self, pods: Mapping[str, PlacedPod] = _NO_PODS) -> None:
        """pods: all that are known, by UID."""
        self._pods = pods
        self.pools = PoolBook()
        self.classes: dict[str, DeviceClass] = {}
        self.selectors = Selectors()
        self.holdings = Holdings()
        self.claims: dict[str, ResourceClaim] = {}
        self.promised: dict[str, Allocation] = {}
        self.touched: dict[str, None] = {}
        self.reported: dict[str, None] = {}
        self.stale: dict[str, None] = {}
        self.clashes: list[tuple[DeviceId, str, str]] = []
        self.leaving: dict[str, None] = {}
        self.freed = False
        self.picks_better = True
        """Whether claims get the better ones of the devices that would do, or those that come first."""
        self.edition = 0
        """Changes with classes and taint rules, by which equal devices may differ from then on."""
        self._rules: dict[str, DeviceTaintRule] = {}
        self.cluster = Cluster(self.holdings, self.selectors, self._rules)
        self.extended = ExtendedResources(self.classes, self.selectors)
        self._unread: dict[str, str] = {}
        self._named: dict[Place, str] = {}
        self._users: dict[Place, dict[str, bool]] = {}
        """By claim: the pods that use it, and whether it is their PodGroup's."""
        self.groups: dict[Place, SharingGroup] = {}
        self._members: dict[Place, dict[str, Pod]] = {}
        """By PodGroup: its pods with claims."""
        self.uses: dict[str, tuple[Place, ...]] = {}
        self._holders: dict[PoolId, dict[DeviceId, dict[str, None]]] = {}
        self._counted: dict[str, tuple[Allocation, ...]] = {}
        self._offers: dict[str, _Offer] = {}
        self._digests: dict[str, str] = {}
        self._specs: dict[str, ResourceClaim] = {}
        self._n_alike: Counter[str] = Counter()
        self._made_for: dict[Place, dict[str, None]] = {}
        """By (namespace, UID) of a pod: the claims made for its extended resources; several while former ones
        are deleted. Anybody may write another pod's UID into a claim of his own namespace."""
        self._prepared: dict[str, PreparedClaim | ClaimProblem] = {}

    @property
    def is_in_use(self) -> bool:
        """Whether there are claims to allocate, or may be: a class, or a pod that uses claims."""
        return bool(self.classes or self.uses)

    # -- what the API server says ----------------------------------------------------------------------

    def put(self, kind: str, one: ResourceClaim | ResourceSlice | DeviceClass | DeviceTaintRule) -> None:
        """Takes in an object's state."""
        if isinstance(one, ResourceClaim):
            self._put_claim(one)
        elif isinstance(one, ResourceSlice):
            self._touch(one.pool_id)
            self.pools.put(one)
            self._touch(one.pool_id)
            self.reported.update(self.pools.nodes_of(one.pool_id))
        elif isinstance(one, DeviceClass):
            self.classes[one.metadata.name] = one
            self._reconsider()
            self._reconsider_pods()
        else:
            self._rules[one.metadata.name] = one
            self.reported[""] = None
            self._reconsider()

    def renew(self, claim: ResourceClaim) -> None:
        """Takes in the newest version of a claim, which says what the one before said: its next write is by
        that version."""
        if claim.metadata.uid in self.claims:
            self.claims[claim.metadata.uid] = claim

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Takes in that an object is gone."""
        if kind == CLAIMS:
            self._remove_claim((namespace, name))
        elif kind == SLICES:
            pool_id = self.pools.pool_of(name)
            if pool_id is not None:
                self._touch(pool_id)
                self.pools.remove(name)
        elif (self.classes if kind == DEVICE_CLASSES else self._rules).pop(name, None) is not None:
            self.reported[""] = None
            self._reconsider()
            if kind == DEVICE_CLASSES:
                self._reconsider_pods()

    def _reconsider_pods(self) -> None:
        """Has waiting pods looked at whose resources classes may serve, or serve no longer."""
        self.stale.update(
            (uid, None)
            for uid, pod in self._pods.items()
            if pod.template.device_resources and not pod.node_name
        )

    def _put_claim(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        place = (meta.namespace, meta.name)
        before = self._named.get(place)
        if before is not None and before != meta.uid:
            self._remove_claim(place)
        known = self.claims.get(meta.uid)
        self._named[place] = meta.uid
        self.claims[meta.uid] = claim
        if known is None:
            digest = self._digests[meta.uid] = blake2b(_encode(claim.spec), digest_size=16).hexdigest()
            self._n_alike[digest] += 1
            self._specs.setdefault(digest, claim)
            if pod := claim.extended_for:
                self._made_for.setdefault((meta.namespace, pod), {})[meta.uid] = None
        self._count(meta.uid)
        # Pods that are left may all be evicted now, and then its devices are free.
        self.freed = self.freed or (known is not None and _lost_a_user(known, claim))
        self.stale.update(dict.fromkeys(self._users.get(place, ())))
        if known is None or known.status.allocation is None:
            self._note_clashes(claim)

    def _note_clashes(self, claim: ResourceClaim) -> None:
        """Notes which of its devices the API server shows in other claims too."""
        allocation, mine = claim.status.allocation, claim.metadata.uid
        for one in allocation.devices.results if allocation is not None else ():
            if one.admin_access or one.share_id is not None:
                continue
            for uid in self.holders(one.id):
                other = self.claims.get(uid)
                if uid != mine and other is not None and other.status.allocation is not None:
                    self.clashes.append((one.id, mine, uid))

    def _remove_claim(self, place: Place) -> None:
        uid = self._named.pop(place, None)
        if uid is None:
            return
        claim = self.claims.pop(uid)
        if pod := claim.extended_for:
            made = self._made_for.get((place[0], pod), {})
            made.pop(uid, None)
            if not made:
                self._made_for.pop((place[0], pod), None)
        digest = self._digests.pop(uid)
        self._n_alike[digest] -= 1
        if not self._n_alike[digest]:
            del self._n_alike[digest], self._specs[digest]
            self._prepared.pop(digest, None)
        self._count(uid)
        self.stale.update(dict.fromkeys(self._users.get(place, ())))

    def _reconsider(self) -> None:
        self.extended.reconsider()
        self.edition += 1
        self._prepared.clear()
        self.touched[""] = None

    def _touch(self, pool_id: PoolId) -> None:
        self.touched.update(self.pools.nodes_of(pool_id))

    def note_read(self, kind: str, why_not: str) -> None:
        """Takes in that a kind was listed, or is not served: ""; or why it is not known which there are."""
        if kind in KINDS and why_not != self._unread.get(kind, ""):
            self._unread.pop(kind, None)
            if why_not:
                self._unread[kind] = why_not
            self.stale.update(dict.fromkeys(self.uses))
            if self.classes:
                self.edition += 1
                self._reconsider_pods()

    # -- who has what ----------------------------------------------------------------------------------

    def promise(self, uid: str, allocation: Allocation) -> None:
        """Takes devices for a claim, from now on and until `release`."""
        self.promised[uid] = allocation
        self._count(uid)

    def release(self, uid: str) -> None:
        """Ends a promise; what the API server says remains counted."""
        if self.promised.pop(uid, None) is not None:
            self._count(uid)

    def rename(self, uid: str, now: str) -> None:
        """Keeps a promise under another UID: that of the claim, which has been made meanwhile."""
        promised, freed = self.promised.pop(uid, None), self.freed
        if promised is not None:
            self._count(uid)
            self.promise(now, promised)
            self.freed = freed
        if self.leaving.pop(uid, "") is None:
            self.leaving[now] = None

    def keep(self, allocation: Allocation, n: int = 1) -> None:
        """Counts devices as given out that a node may still use, whatever claims say; with n = -1 no
        longer."""
        self.holdings.add(allocation, n)
        self.freed = self.freed or n < 0
        for one in allocation.devices.results:
            self._touch(PoolId(one.driver, one.pool))

    def allocation(self, uid: str) -> Allocation | None:
        """Returns what the claim has, or gets."""
        claim = self.claims.get(uid)
        stored = claim.status.allocation if claim is not None else None
        return stored if stored is not None else self.promised.get(uid)

    def holders(self, device: DeviceId) -> Iterable[str]:
        """Returns the UIDs of the claims that have the device, or a share of it."""
        return self._held(device).get(device, _NOBODY).keys()

    def held_of(self, pool_id: PoolId) -> list[DeviceId]:
        """Returns the pool's devices that claims have, listed or not."""
        return sorted(self._holders.get(pool_id, ()))

    def n_held(self, pool_id: PoolId) -> int:
        """Returns how many of the pool's devices claims have."""
        return len(self._holders.get(pool_id, ()))

    def _held(self, device: DeviceId) -> dict[DeviceId, dict[str, None]]:
        return self._holders.get(PoolId(device.driver, device.pool), {})

    def without(self, gone: Iterable[Pod], *, released: bool = False) -> Cluster:
        """Returns what searches read, if these pods were gone: the devices of claims without other users are
        free. released: those of claims that only pods use which are gone already, too."""
        uids = {pod.metadata.uid for pod in gone}
        claims = {
            claim.metadata.uid: claim
            for pod in gone
            if pod.spec.resource_claims or self._made_for
            for claim in self.claims_of(pod).values()
        }
        if released:
            claims |= {claim.metadata.uid: claim for claim in self.left_behind()}
            entries = (one for claim in claims.values() for one in claim.status.reserved_for or ())
            uids.update(one.uid for one in entries if one.resource == "pods")
        freed = [
            allocation
            for uid, claim in claims.items()
            if uids.issuperset(self.users(claim))
            and uids.issuperset(one.uid for one in claim.status.reserved_for or ())
            for allocation in self._counted.get(uid, ())
        ]
        if not freed:
            return self.cluster
        holdings = self.holdings.copy()
        for allocation in freed:
            holdings.add(allocation, -1)
        return self.cluster._replace(holdings=holdings)

    def left_behind(self) -> Iterator[ResourceClaim]:
        """Yields the claims that only pods use which are gone: their devices are not free before the claims
        are given back."""
        return (self.claims[uid] for uid in self._counted if self._is_orphan(uid))

    def nodes_left_behind(self) -> set[str]:
        """Returns the nodes that may reach devices of such claims, "" if any node may."""
        return {name for claim in self.left_behind() for name in self.nodes_of(claim)}

    def nodes_of(self, claim: ResourceClaim) -> Iterator[str]:
        """Yields the nodes that may reach the claim's devices, "" if any node may."""
        allocation = claim.status.allocation
        for one in allocation.devices.results if allocation is not None else ():
            yield from self.pools.nodes_of(PoolId(one.driver, one.pool))

    def _is_orphan(self, uid: str) -> bool:
        """Whether the claim is still reserved for pods, and none of them is known any more."""
        claim = self.claims.get(uid)
        if claim is None or uid in self.promised or any(True for _ in self.users(claim)):
            return False
        reserved = claim.status.reserved_for or ()
        return bool(reserved) and all(one.resource == "pods" for one in reserved)

    def _count(self, uid: str) -> None:
        """Counts what the claim has now in place of what it had."""
        claim = self.claims.get(uid)
        stored = claim.status.allocation if claim is not None else None
        promised = self.promised.get(uid)
        if stored is not None and promised is not None and same_devices(stored, promised):
            promised = None
        now = tuple(one for one in (stored, promised) if one is not None)
        before = self._counted.pop(uid, ())
        if now:
            self._counted[uid] = now
        if before == now:
            return
        self.freed = self.freed or bool(before)
        for allocation in before:
            self.holdings.add(allocation, -1)
            for one in allocation.devices.results:
                there = self._held(one.id)
                holders = there.get(one.id, {})
                holders.pop(uid, None)
                if not holders and there.pop(one.id, None) is not None and not there:
                    del self._holders[PoolId(one.driver, one.pool)]
        for allocation in now:
            self.holdings.add(allocation)
            for one in allocation.devices.results:
                if not one.admin_access:
                    there = self._holders.setdefault(PoolId(one.driver, one.pool), {})
                    there.setdefault(one.id, {})[uid] = None
        for allocation in (*before, *now):
            for one in allocation.devices.results:
                self._touch(PoolId(one.driver, one.pool))

    # -- pods ------------------------------------------------------------------------------------------

    def join(self, pod: Pod) -> None:
        """Notes which claims a pod uses, now or from this version on."""
        uid = pod.metadata.uid
        self.leave(pod)
        if (group := _group_of(pod)) is not None:
            self._members.setdefault(group, {})[uid] = pod
        used = [one for one in used_claims(pod, self._sharing(pod)) if one.name]
        if used:
            places = self.uses[uid] = tuple((pod.metadata.namespace, one.name or "") for one in used)
            for place, one in zip(places, used, strict=True):
                self._users.setdefault(place, {})[uid] = one.is_group

    def leave(self, pod: Pod) -> None:
        """Forgets a pod."""
        uid = pod.metadata.uid
        for place in self.uses.pop(uid, ()):
            users = self._users.get(place, {})
            users.pop(uid, None)
            if not users:
                self._users.pop(place, None)
        if (group := _group_of(pod)) is not None and (members := self._members.get(group)) is not None:
            members.pop(uid, None)
            if not members:
                del self._members[group]

    def put_group(self, place: Place, group: SharingGroup | None) -> None:
        """Takes in the claims of the PodGroup of that namespace and name; None: it has none, or is gone."""
        if self.groups.get(place) == group:
            return
        self.groups.pop(place, None)
        if group is not None:
            self.groups[place] = group
        for uid, pod in list(self._members.get(place, {}).items()):
            self.join(pod)
            self.stale[uid] = None

    def _sharing(self, pod: Pod) -> SharingGroup | None:
        group = _group_of(pod) if self.groups else None
        return None if group is None else self.groups.get(group)

    def users(self, claim: ResourceClaim) -> Iterable[str]:
        """Returns the UIDs of the known pods that use the claim."""
        users = self._users.get((claim.metadata.namespace, claim.metadata.name), {}).keys()
        owner = claim.extended_for
        known = self._pods.get(owner) if owner else None
        if known is None or known.template.namespace != claim.metadata.namespace:
            return users
        return {**dict.fromkeys(users), owner: None}.keys()

    def _made(self, pod: Pod) -> list[ResourceClaim]:
        """The claims that were made for a pod's extended resources."""
        meta = pod.metadata
        return [self.claims[uid] for uid in self._made_for.get((meta.namespace, meta.uid), ())]

    def user(self, claim: ResourceClaim) -> str:
        """Returns the UID of a known pod that uses the claim: of one that it is reserved for, if there is
        one; "" for none."""
        reserved = [one.uid for one in claim.status.reserved_for or ()]
        return next((uid for uid in (*reserved, *self.users(claim)) if uid in self._pods), "")

    def n_taking(self, uid: str) -> int:
        """Returns how many entries the claim has for pods that do not wait, with those about to be added."""
        claim = self.claims[uid]
        users = self._users.get((claim.metadata.namespace, claim.metadata.name), {})
        taking = {one.uid for one in claim.status.reserved_for or ()}
        taking.update(pod for pod, is_group in users.items() if not is_group and self._has_node(pod))
        return sum(pod not in users or self._has_node(pod) for pod in taking)

    def _has_node(self, uid: str) -> bool:
        info = self._pods.get(uid)
        return info is not None and bool(info.node_name)

    def named(self, namespace: str, name: str) -> ResourceClaim | None:
        """Returns the claim of that name."""
        uid = self._named.get((namespace, name))
        return None if uid is None else self.claims[uid]

    def problem(self, pod: Pod) -> str:
        """Returns why the pod's claims are not ready for it; "" if they are."""
        for kind, why_not in self._unread.items():
            return f"it is not known which {kind} there are: listing them {why_not}"
        return problem_of(pod, lambda name: self.named(pod.metadata.namespace, name), self._sharing(pod))

    def awaits(self, pod: Pod) -> bool:
        """Whether a claim of the pod is still to be made, or to be shown by the watch."""
        of = pod.metadata.namespace
        return not self._unread and any(
            one.name is None or self.named(of, one.name) is None for one in used_claims(pod)
        )

    def claims_of(self, pod: Pod) -> dict[str, ResourceClaim]:
        """Returns the pod's claims by entry, those that exist; under ENTRY the one for its extended
        resources."""
        found: dict[str, ResourceClaim] = {}
        if self._made_for and (made := self._made(pod)):
            status = pod.status.extended_resource_claim_status
            stated = "" if status is None else status.resource_claim_name
            found[ENTRY] = next((one for one in made if one.metadata.name == stated), made[0])
        for used in used_claims(pod):
            claim = None if used.name is None else self.named(pod.metadata.namespace, used.name)
            if claim is not None:
                found[used.entry] = claim
        return found

    def consumers_of(self, pod: Pod) -> dict[str, Consumer]:
        """Returns by UID of the pod's claims whom they are to be reserved for: the pod, or its PodGroup."""
        meta, group, found = pod.metadata, self._sharing(pod), {}
        for used in used_claims(pod, group):
            claim = None if used.name is None else self.named(meta.namespace, used.name)
            if claim is not None:
                consumer = Consumer(resource="pods", name=meta.name, uid=meta.uid)
                if used.is_group and group is not None:
                    consumer = group.consumer
                found[claim.metadata.uid] = consumer
        return found

    def may_need(self, pod: Pod) -> bool:
        """Whether `needs` may find something; asked of every pod."""
        is_stated = pod.status.extended_resource_claim_status is not None
        return bool(pod.spec.resource_claims or self.classes or is_stated)

    def needs(self, pod: Pod) -> tuple[ClaimNeed, ...] | None:
        """Returns what the pod needs of its claims, and of classes that serve its extended resources; None
        until all of that is known."""
        extended = self.extended.need_of(pod)
        if extended is None and not pod.spec.resource_claims:
            return ()
        if self.problem(pod):
            return None
        found = []
        for used in used_claims(pod, self._sharing(pod)):
            claim = self.named(pod.metadata.namespace, used.name or "")
            assert claim is not None, "its claims are ready"
            uid = claim.metadata.uid
            is_open = used.is_own and self.allocation(uid) is None
            digest, shared = (self._digests[uid], "") if is_open else ("", uid)
            found.append(ClaimNeed(used.entry, digest, shared, used.is_group))
        return tuple(found) if extended is None else (*found, extended)

    # -- devices ---------------------------------------------------------------------------------------

    def offer(self, node: Node) -> NodeOffer:
        """Returns what the node offers to claims."""
        name, labels = node.metadata.name, node.metadata.labels
        known, revision = self._offers.get(name), self.pools.revision_at(name)
        if known is not None and known.revision == revision:
            is_still = not self.pools.has_shared or known.labels == labels
            if is_still:
                return known.offer

        there = labels or {}
        offer = NodeOffer(self.pools.at(name, there), name, there)
        self._offers[name] = _Offer(labels, revision, offer)
        return offer

    def forget_node(self, name: str) -> None:
        """Forgets what is kept of a node that is gone."""
        self._offers.pop(name, None)
        self.extended.forget_node(name)

    def prepared(self, digest: str) -> PreparedClaim:
        """Returns what claims of that spec ask for. Raises: ClaimProblem."""
        found = self._prepared.get(digest)
        if found is None:
            try:
                found = PreparedClaim(self._spec(digest), self.classes)
            except ClaimProblem as problem:
                found = problem
            self._prepared[digest] = found
        if isinstance(found, ClaimProblem):
            raise found
        return found

    def _spec(self, digest: str) -> ResourceClaimSpec:
        known = self._specs.get(digest)
        if known is not None:
            return known.spec
        made = self.extended.claims.get(digest)
        if made is None:
            raise ClaimProblem("too many kinds of pods ask for resources of device classes")
        return made.spec

    def digest(self, uid: str) -> str:
        """Returns the digest of the claim's spec."""
        return self._digests[uid]


def _group_of(pod: Pod) -> Place | None:
    reference = pod.spec.scheduling_group
    if reference is None or not reference.pod_group_name:
        return None
    return pod.metadata.namespace, reference.pod_group_name


def _lost_a_user(before: ResourceClaim, now: ResourceClaim) -> bool:
    """Whether the claim was reserved for somebody for whom it is no more."""
    there = {one.uid for one in now.status.reserved_for or ()}
    return any(one.uid not in there for one in before.status.reserved_for or ())


def same_devices(one: Allocation, other: Allocation) -> bool:
    """Whether two allocations give the same devices, and the same shares of them, to the same requests."""
    return _devices(one) == _devices(other)


def _devices(allocation: Allocation) -> list[tuple[str, DeviceId, str]]:
    return sorted((each.request, each.id, each.share_id or "") for each in allocation.devices.results)
