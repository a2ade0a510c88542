"""ClaimWrites: brings each resource claim to what is wanted of it: allocated and reserved, or given back.

Between the reservation of a gang and its first Binding all claims of all members are written; one that cannot
be had takes back the others (core.binding.pre_bind). Nothing here waits for a write: what a claim needs next
follows from the newest version known of it, and at most one write of a claim is on its way.

    newest version                                 next
    ─────────────────────────────────────────────  ─────────────────────────────────────────────────────────
    lacks an entry that is wanted, no finalizer    KEEP: a patch of its finalizer
    lacks an entry that is wanted                  ADD: the entries, and the allocation if there is none
    has an entry that leaves, no bind of its       REMOVE: without it; without the allocation, once no entry
    gang is on its way                             is left
    has all that is wanted, none that leaves       nothing; when the watch has shown it, it is looked at
    there is none yet: it is for extended          MAKE: the claim (core.binding.made_claims), of which the
    resources, and wanted                          pod's status is to tell before its Binding
    made for an attempt that has ended             DROP: it is deleted, once it is not allocated

A write of unknown outcome is settled first: a read; where that shows the version that the write was about, a
bump, after which it cannot land. Every write carries the version that it was decided by, and is sent once the
fence lists the claim under that version. tests/kube/claim_model.py checks the protocol exhaustively.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from gangsched.core.binding.made_claims import MadeClaims
from gangsched.core.resource_claims.book import same_devices
from gangsched.core.resource_claims.pod_claims import too_many_users
from gangsched.core.state.claim_uses import MAX_CLAIM_TRIES, ClaimRecord, ClaimWrite
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import ASSUMED, BOUND, DONE, ON_ITS_WAY, PENDING, Group, GroupState, PodInfo
from gangsched.core.types.states import ENDED
from gangsched.core.why import Why
from gangsched.core.why.resource_claims import in_two_claims
from gangsched.model.effects import BumpClaim, GetClaim, PatchClaim
from gangsched.model.events import (
    ClaimBumped,
    ClaimCancelled,
    ClaimGone,
    ClaimPatched,
    ClaimRead,
    ClaimRefused,
    ClaimUnclear,
    ClaimUnread,
)
from gangsched.model.resource_claims.objects import (
    CLAIMED_FOR_KEY,
    FINALIZER,
    MAX_RESERVED_FOR,
    AllocatedDevice,
    Allocation,
    Consumer,
    ResourceClaim,
)

BINDING_TIMEOUT_S = 600.0
"""How long a device may take until its binding conditions are true, as kube-scheduler's bindingTimeout."""
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 5.0
_encode = msgspec.json.Encoder().encode


class ClaimWrites:
    """Writes what reservations want of claims, and takes it back."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.made = MadeClaims(shared)

    # -- what units ask --------------------------------------------------------------------------------

    def problem(self, members: Iterable[PodInfo]) -> Why:
        """Returns why one of the members' claims cannot be had, as far as is known; "" if all may be."""
        for record in self._records(members):
            if not record.why and self.is_written(record):
                record.why = self._looked(record)
            if record.why:
                return record.why
        return ""

    def are_ready(self, members: Iterable[PodInfo]) -> bool:
        """Whether all claims of the members are reserved for them, as the watch has shown, and their devices
        wait for nothing. Those that do get until `bindingTimeout` from now."""
        uses, records = self._shared.claim_uses, self._records(members)
        if not all(map(self.is_written, records)):
            return False
        waiting = [one for one in records if one.latest is not None and awaited(one.latest)]
        for one in waiting:
            uses.until_s.set_if_absent(one.uid, self._shared.now_s + BINDING_TIMEOUT_S)
        unstated = [one for one in records if one.made is not None and not self.made.is_stated(one)]
        return not waiting and not unstated

    def _records(self, members: Iterable[PodInfo]) -> list[ClaimRecord]:
        """Each once: many members may share one."""
        uses = self._shared.claim_uses
        uids = dict.fromkeys(uid for info in members for uid in uses.of_pod.get(info.uid, ()))
        return [uses.records[uid] for uid in uids]

    def give_up_waiting(self) -> None:
        """Ends the wait for conditions of devices that have not come true in time."""
        uses = self._shared.claim_uses
        for uid in uses.until_s.due(self._shared.now_s):
            uses.until_s.drop(uid)
            record = uses.records.get(uid)
            if record is not None and record.latest is not None and (still := awaited(record.latest)):
                name, seconds = record.latest.key, f"{BINDING_TIMEOUT_S:.0f} s"
                record.why = f"resource claim {name}: {still[0]} did not come true in {seconds}"
                self._tell(record)

    def is_written(self, record: ClaimRecord) -> bool:
        """Whether the claim is reserved for all that want it, as the watch has shown."""
        claim = record.latest
        return (
            claim is not None
            and record.write is ClaimWrite.NONE
            and not _lacking(record, claim)
            and _is_as_new(record.seen_version, claim.metadata.resource_version)
        )

    def _looked(self, record: ClaimRecord) -> Why:
        """Returns what is wrong with a claim that is reserved, now that all earlier writes are known.

        The watch has shown ours; and a list that it makes anew, in no order of versions, reaches one turn as
        a whole.
        """
        claim = record.latest
        allocation = claim.status.allocation if claim is not None else None
        if claim is None or allocation is None:
            return ""
        book = self._shared.cache.claims
        for one in allocation.devices.results:
            if failed := _failed_condition(claim, one):
                return f"resource claim {claim.key}: device {one.id} reports {failed}"
            if one.admin_access or one.share_id is not None:
                continue
            others = [uid for uid in book.holders(one.id) if uid != record.uid]
            if others:
                other = book.claims.get(others[0])
                self._shared.count("claim_conflicts")
                return in_two_claims(one.id, claim, other, others[0])
        return ""

    # -- in each turn ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Sends what claims need next that have changed, or whose pause is over."""
        uses = self._shared.claim_uses
        for uid in uses.again_s.due(self._shared.now_s):
            uses.again_s.drop(uid)
            uses.dirty[uid] = None
        due, uses.dirty = uses.dirty, {}
        for uid in due:
            record = uses.records.get(uid)
            if record is not None and record.write is ClaimWrite.NONE and uid not in uses.again_s:
                self._step(record)

    def follow(self, group: Group) -> None:
        """Follows what has become of the group's members: reservations end, binds land."""
        uses = self._shared.claim_uses
        for info in group.members.values():
            if info.uid in uses.of_pod and info.state is not ASSUMED:
                if info.state in (BOUND, DONE):
                    uses.landed(info.uid)
                else:
                    uses.unwant(info.uid)
                    self._shared.enqueue_waits.again[info.uid] = None
        if uses.may_be_left and group.state in (GroupState.UNSCHEDULABLE, GroupState.BACKOFF):
            self._give_back_found(group)
        if uses.dirty:
            self.advance()

    def watched(self, uid: str, claim: ResourceClaim | None) -> None:
        """Takes in what the watch shows of a claim; None: that it is gone."""
        uses = self._shared.claim_uses
        record = uses.records.get(uid)
        if claim is None or claim.status.allocation is None:
            uses.evicted.pop(uid, None)
        if record is None:
            if claim is None or (claim.status.allocation is None and not claim.extended_for):
                uses.left_s.drop(uid)
            elif _is_marked(claim):
                uses.left_s.set_if_absent(uid, self._shared.now_s + self._shared.settings.settle_s)
            return
        if claim is not None:
            record.seen_version = claim.metadata.resource_version
        self._take_in(record, claim)
        self.advance()

    def sweep(self) -> None:
        """Gives back what is allocated though none of its users has started, as a process that has ended, or
        an edit, may leave it: nobody else would; and what victims have left, if the controller does not."""
        shared, uses = self._shared, self._shared.claim_uses
        for uid in uses.left_s.due(shared.now_s):
            uses.left_s.drop(uid)
            claim = shared.cache.claims.claims.get(uid)
            if claim is None or uid in uses.records:
                continue
            gone = uses.evicted.get(uid, ())
            if not _is_marked(claim) and not gone:
                continue
            is_useless = self._is_of_no_use(claim)
            if claim.status.allocation is None and not is_useless:
                continue
            if (is_useless and shared.decides) or self._may_give_back(claim, gone):
                shared.count("claims_swept", not gone)
                mark = (claim.metadata.annotations or {}).get(CLAIMED_FOR_KEY, "")
                uses.give_back(claim, mark, "sweep")
            elif any(not one.node_name for one in self._users(claim)):
                uses.left_s.set(uid, shared.now_s + shared.settings.settle_s)
        self.advance()

    def _give_back_found(self, group: Group) -> None:
        """Gives back what was found allocated for members of a group that does not fit with it."""
        uses, book = self._shared.claim_uses, self._shared.cache.claims
        found = {
            claim.metadata.uid: claim
            for info in group.in_state(PENDING)
            for claim in book.claims_of(info.pod).values()
        }
        for uid, claim in found.items():
            is_left = uid in uses.left_s or (uid not in uses.records and _is_of_group(claim))
            if is_left and claim.status.allocation is not None and self._may_give_back(claim):
                uses.left_s.drop(uid)
                uses.give_back(claim, str(group.key), group.cause_id)

    def _may_give_back(self, claim: ResourceClaim, gone: Collection[str] = ()) -> bool:
        """Whether we have allocated the claim, and only for pods of ours that have not started; or whoever
        has, only for pods that are gone."""
        shared, is_ours = self._shared, _is_marked(claim)
        if not shared.decides or not (is_ours or gone):
            return False
        users = [one for one in self._users(claim) if one.state not in ENDED or one.uid not in gone]
        for entry in claim.status.reserved_for or ():
            if _is_group(entry):
                # Its PodGroup may have started, and be about to get new pods, while it has none.
                if not users:
                    return False
                continue
            if entry.uid in gone:
                continue
            info = shared.cache.pods.get(entry.uid) if is_ours else None
            if info is None or info.group is None or info.node_name or info.state in (BOUND, DONE, ASSUMED):
                return False
        return not any(one.node_name for one in users)

    def _is_of_no_use(self, claim: ResourceClaim) -> bool:
        """Whether it was made for a pod's extended resources, in an attempt that has ended."""
        pod, uses = claim.extended_for, self._shared.claim_uses
        if not pod or claim.status.allocation is not None or claim.metadata.deletion_timestamp is not None:
            return False
        making = (uses.records[uid].made for uid in uses.of_pod.get(pod, ()))
        if any(one is not None and f"{one.namespace}/{one.name}" == claim.key for one in making):
            return False
        info = self._shared.cache.pods.get(pod)
        if info is not None and info.pod.metadata.namespace != claim.metadata.namespace:
            return False  # whoever wrote it there has no say about this pod
        stated = info.pod.status.extended_resource_claim_status if info is not None else None
        is_stated = stated is not None and stated.resource_claim_name == claim.metadata.name
        return info is None or not info.node_name or not is_stated

    def _users(self, claim: ResourceClaim) -> list[PodInfo]:
        pods = self._shared.cache.pods
        return [pods[uid] for uid in self._shared.cache.claims.users(claim) if uid in pods]

    def _step(self, record: ClaimRecord) -> None:
        uses, claim = self._shared.claim_uses, record.latest
        if claim is None:
            record.leaves = {}
            if record.wants and record.made is not None and not record.is_there:
                if not record.why:
                    record.write = ClaimWrite.MAKE
                    self.made.make(record, record.made)
            elif record.wants:
                record.why = record.why or "its resource claim is gone"
                self._tell(record)
            else:
                self._end_if_shown(record)
            return
        there = {one.uid for one in claim.status.reserved_for or ()}
        gone = [uid for uid, one in record.leaves.items() if uid in there and not self._stays(one, claim)]
        is_empty = claim.status.allocation is not None and not there
        if gone or ((record.leaves or record.is_left) and not record.wants and is_empty):
            if self._may_land(record.leaves.values(), claim):
                uses.dirty[record.uid] = None
            else:
                self._remove(record, claim, gone)
            return
        record.leaves = {}
        if record.wants and not record.why and _lacking(record, claim):
            self._add(record, claim)
        elif record.wants:
            self._tell(record)
        else:
            self._end_if_shown(record)

    def _end_if_shown(self, record: ClaimRecord) -> None:
        """Ends a record that nothing uses, once the book knows what it knows: until then the next reservation
        would take an allocation for there that has been taken back."""
        uses, claim = self._shared.claim_uses, record.latest
        if claim is None:
            is_shown = record.uid not in self._shared.cache.claims.claims
        else:
            is_shown = _is_as_new(record.seen_version, claim.metadata.resource_version)
        if not is_shown or record.held:
            return
        is_kept = record.why or not self._shared.decides
        if claim is not None and record.uid not in uses.again_s and not is_kept and self._is_of_no_use(claim):
            record.write = ClaimWrite.DROP
            self.made.drop(record, claim)
        else:
            uses.end(record)

    def _stays(self, entry: Consumer, claim: ResourceClaim) -> bool:
        """Whether a PodGroup's entry is needed by a pod that has started; it ends with the PodGroup."""
        return _is_group(entry) and any(one.node_name for one in self._users(claim))

    def _may_land(self, entries: Iterable[Consumer], claim: ResourceClaim) -> bool:
        """Whether a Binding of one of their pods, or of its gang, may still land."""
        pods = self._shared.cache.pods
        infos: list[PodInfo] = []
        for entry in entries:
            infos += self._users(claim) if _is_group(entry) else filter(None, (pods.get(entry.uid),))
        groups = {id(info.group): info.group for info in infos}
        return any(
            one.bind in ON_ITS_WAY
            for group in groups.values()
            if group is not None
            for one in group.members.values()
        )

    def _add(self, record: ClaimRecord, claim: ResourceClaim) -> None:
        meta, status = claim.metadata, claim.status
        promised = self._shared.cache.claims.promised.get(record.uid)
        if meta.deletion_timestamp is not None:
            record.why = f"resource claim {claim.key} is being deleted"
        elif status.allocation is None and promised is None:
            record.why = f"resource claim {claim.key} has been deallocated"
        elif status.allocation is not None and promised is not None and _differ(status.allocation, promised):
            record.why = f"resource claim {claim.key} has been allocated by another scheduler"
            self._shared.count("claim_conflicts")
        lacking = _lacking(record, claim)
        if len(status.reserved_for or ()) + len(lacking) > MAX_RESERVED_FOR:
            record.why = too_many_users(claim)
        if record.why:
            self._tell(record)
        elif FINALIZER not in (meta.finalizers or ()) or not _is_marked(claim, record.group):
            finalizers = dict.fromkeys((*(meta.finalizers or ()), FINALIZER))
            mark = {CLAIMED_FOR_KEY: record.group}
            patch = {"metadata": {"finalizers": [*finalizers], "annotations": mark}}
            self._send(record, claim, ClaimWrite.KEEP, patch)
        else:
            written: dict[str, Any] = {"reservedFor": [*(status.reserved_for or ()), *lacking]}
            if status.allocation is None:
                written["allocation"] = promised
            self._send(record, claim, ClaimWrite.ADD, {"status": written})

    def _remove(self, record: ClaimRecord, claim: ResourceClaim, gone: Sequence[str]) -> None:
        left = [one for one in claim.status.reserved_for or () if one.uid not in gone]
        written: dict[str, Any] = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
        self._send(record, claim, ClaimWrite.REMOVE, {"status": written})

    def _send(
        self, record: ClaimRecord, claim: ResourceClaim, write: ClaimWrite, patch: dict[str, Any]
    ) -> None:
        meta = claim.metadata
        ticket = self._shared.claim_uses.give_ticket(record)
        record.write = write
        record.sent_version = meta.resource_version
        self._shared.count("claims_written")
        self._shared.emit(
            PatchClaim(
                record.uid,
                meta.namespace,
                meta.name,
                meta.resource_version,
                _encode(patch),
                write is not ClaimWrite.KEEP,
                record.group,
                ticket,
                record.cause_id,
            )
        )

    def _tell(self, record: ClaimRecord) -> None:
        """Has the groups looked at whose members want the claim."""
        for group in self._groups(record):
            self._shared.mark_group(group)

    def _groups(self, record: ClaimRecord) -> Iterable[Group]:
        infos = (self._shared.cache.pods.get(pod) for pod in record.wants)
        return {
            id(one.group): one.group for one in infos if one is not None and one.group is not None
        }.values()

    # -- answers ---------------------------------------------------------------------------------------

    def patched(self, event: ClaimPatched) -> None:
        record = self._expected(event.uid, event.ticket)
        if record is not None:
            record.n_tries = 0
            if not record.is_there:
                self._shared.claim_uses.is_there(record, event.claim)
            self._settled(record, event.claim)
            self.advance()

    def gone(self, event: ClaimGone) -> None:
        """Takes in that a claim of ours is deleted, or will be when its finalizers allow."""
        record = self._expected(event.uid, event.ticket)
        if record is not None:
            self._settled(record, None)
            self.advance()

    def refused(self, event: ClaimRefused) -> None:
        record = self._expected(event.uid, event.ticket)
        if record is None:
            return
        if record.write is ClaimWrite.MAKE and event.code == 409:
            self._read(record)  # an earlier request may have made it
            return
        name = record.latest.key if record.latest is not None else event.uid
        if record.made is not None:
            name = f"{record.made.namespace}/{record.made.name}"
        why = f"writing resource claim {name}: {event.message} ({event.code})"
        if event.code == 404 and record.write is not ClaimWrite.MAKE:
            self._settled(record, None)
            self.advance()
            return
        if record.wants or record.write is ClaimWrite.DROP:
            record.why = why
        record.write = ClaimWrite.NONE
        self._pause(record, why)

    def cancelled(self, event: ClaimCancelled) -> None:
        record = self._expected(event.uid, event.ticket)
        if record is not None:
            record.write = ClaimWrite.NONE
            self._shared.claim_uses.dirty[record.uid] = None
            self.advance()

    def unclear(self, event: ClaimUnclear) -> None:
        record = self._expected(event.uid, event.ticket)
        if record is None:
            return
        if record.latest is None and record.is_there:  # the watch has shown it gone: nothing can land
            self._settled(record, None)
            self.advance()
            return
        record.n_tries += 1
        if record.n_tries >= MAX_CLAIM_TRIES and record.wants:
            name = record.latest.key if record.latest is not None else event.uid
            record.why = f"writing resource claim {name}: {event.message}"
        self._read(record)

    def _read(self, record: ClaimRecord) -> None:
        record.write = ClaimWrite.READ
        if record.latest is not None:
            meta = record.latest.metadata
            self._shared.emit(GetClaim(record.uid, meta.namespace, meta.name, record.cause_id))
        elif record.made is not None:
            made = record.made
            self._shared.emit(GetClaim(record.uid, made.namespace, made.name, record.cause_id, made.pod))

    def read(self, event: ClaimRead) -> None:
        record = self._shared.claim_uses.records.get(event.uid)
        if record is None or record.write is not ClaimWrite.READ:
            return
        claim = event.claim
        if not record.is_there:
            if claim is not None:
                self._shared.claim_uses.is_there(record, claim)
            elif record.n_tries >= MAX_CLAIM_TRIES and record.wants:
                record.why = record.why or f"resource claim {record.uid} cannot be made"
            record.n_tries += claim is None
            self._settled(record, claim)
            self.advance()
        elif claim is not None and claim.metadata.resource_version == record.sent_version:
            record.write = ClaimWrite.BUMP
            meta = claim.metadata
            self._shared.count("claims_bumped")
            self._shared.emit(BumpClaim(record.uid, meta.namespace, meta.name, record.cause_id))
        else:
            self._settled(record, claim)
            self.advance()

    def unread(self, event: ClaimUnread) -> Iterable[tuple[Group, str]]:
        """Returns the groups whose members want a claim of which it is still not known what a write has come
        to, and why."""
        record = self._shared.claim_uses.records.get(event.uid)
        if record is None or record.latest is None or record.write is not ClaimWrite.READ:
            return ()
        why = f"reading resource claim {record.latest.key}: {event.message}"
        return [(group, why) for group in self._groups(record)]

    def bumped(self, event: ClaimBumped) -> None:
        record = self._shared.claim_uses.records.get(event.uid)
        if record is not None and record.write is ClaimWrite.BUMP:
            self._settled(record, event.claim)
            self.advance()

    def _settled(self, record: ClaimRecord, claim: ResourceClaim | None) -> None:
        """Takes in a version after which no write that was sent can land."""
        record.write = ClaimWrite.NONE
        self._take_in(record, claim)
        if record.n_tries:
            self._pause(record, record.why)
        self._tell(record)

    def _take_in(self, record: ClaimRecord, claim: ResourceClaim | None) -> None:
        known = record.latest
        if claim is None and not record.is_there:
            pass  # it is still to be made
        elif claim is None or claim.metadata.uid != record.uid:
            record.latest = None
        elif known is None or not _is_as_new(
            known.metadata.resource_version, claim.metadata.resource_version
        ):
            record.latest = claim
            self._count(record, known, claim)
        self._shared.claim_uses.dirty[record.uid] = None
        if record.wants and record.write is ClaimWrite.NONE:
            self._tell(record)

    def _count(self, record: ClaimRecord, known: ResourceClaim | None, claim: ResourceClaim) -> None:
        """Counts what a newer version shows that we have brought about."""
        was, now = known is not None and known.status.allocation is not None, claim.status.allocation
        if was == (now is not None):
            return
        promised = self._shared.cache.claims.promised.get(record.uid)
        if now is not None and record.wants and promised is not None and same_devices(now, promised):
            self._shared.count("claims_allocated")
        elif now is None and (record.leaves or record.is_left):
            self._shared.count("claims_taken_back")

    def _pause(self, record: ClaimRecord, why: Why) -> None:
        wait_s = min(_FIRST_RETRY_S * 2 ** max(record.n_tries - 1, 0), _LONGEST_RETRY_S)
        self._shared.claim_uses.again_s.set(record.uid, self._shared.now_s + wait_s)
        self._tell(record)

    def _expected(self, uid: str, ticket: int) -> ClaimRecord | None:
        record = self._shared.claim_uses.records.get(uid)
        return record if record is not None and record.ticket == ticket and _is_sent(record) else None


def _is_marked(claim: ResourceClaim, group: str = "") -> bool:
    """Whether the claim says that we allocated it, for this group, or for any."""
    mark = (claim.metadata.annotations or {}).get(CLAIMED_FOR_KEY)
    return mark == group if group else mark is not None


def _is_group(entry: Consumer) -> bool:
    return entry.resource != "pods"


def _is_of_group(claim: ResourceClaim) -> bool:
    return any(_is_group(one) for one in claim.status.reserved_for or ())


def _differ(one: Allocation, other: Allocation) -> bool:
    return not same_devices(one, other)


def awaited(claim: ResourceClaim) -> list[str]:
    """Returns what devices of an allocated claim wait for before its pods may be bound (KEP-5007)."""
    allocation = claim.status.allocation
    return [
        f"condition {name} of device {one.id}"
        for one in (allocation.devices.results if allocation is not None else ())
        for name in one.binding_conditions or ()
        if name not in _true_conditions(claim, one)
    ]


def _failed_condition(claim: ResourceClaim, one: AllocatedDevice) -> str:
    true = _true_conditions(claim, one)
    return next((name for name in one.binding_failure_conditions or () if name in true), "")


def _true_conditions(claim: ResourceClaim, one: AllocatedDevice) -> set[str]:
    return {
        condition.type
        for device in claim.status.devices or ()
        if (device.driver, device.pool, device.device, device.share_id) == (*one.id, one.share_id)
        for condition in device.conditions or ()
        if condition.status == "True"
    }


def _is_sent(record: ClaimRecord) -> bool:
    return record.write not in (ClaimWrite.NONE, ClaimWrite.READ, ClaimWrite.BUMP)


def _lacking(record: ClaimRecord, claim: ResourceClaim) -> list[Consumer]:
    """Returns the wanted entries that the claim does not have; all of them while it is not allocated."""
    wanted = {one.uid: one for one in record.wants.values()}
    if claim.status.allocation is None:
        return list(wanted.values())
    there = {one.uid for one in claim.status.reserved_for or ()}
    return [one for uid, one in wanted.items() if uid not in there]


def _is_as_new(version: str, other: str) -> bool:
    """Whether a version is the other one or a later one."""
    if version.isdecimal() and other.isdecimal():
        return int(version) >= int(other)
    return version == other


__all__ = ["ClaimWrites"]
