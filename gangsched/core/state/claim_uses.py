"""ClaimUses: what is being written about resource claims, and for which pods. Data; core.binding.claim_writes
moves it.

A use is a pod's use of a claim. It is wanted from the pod's reservation on, until its bind has landed; when
the reservation ends first, its entry is taken off the claim, and with the last entry the allocation.
"""

from __future__ import annotations

import enum

import msgspec

from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.state.timers import DeadlineKind, Deadlines, Timers
from gangsched.core.types.group import PodInfo
from gangsched.core.why import Why
from gangsched.model.objects import Pod, RequestMapping
from gangsched.model.resource_claims.objects import Consumer, ResourceClaim, ResourceClaimSpec

DEALLOCATED_WITHIN_S = 5.0
"""How long after a victim has gone the cluster's resourceclaim controller may take to free its devices, which
takes it milliseconds; then gangsched does so."""
MAX_CLAIM_TRIES = 8
"""How many tries of a write in a row may have no clear answer before the gang is told why."""


class ClaimWrite(enum.Enum):
    """What is on its way for a claim, whose outcome is not known yet."""

    NONE = "none"
    KEEP = "keep"
    """The finalizer, without which a deleted claim would free a running pod's devices."""
    ADD = "add"
    """Entries for pods, and the allocation if the claim has none."""
    REMOVE = "remove"
    """Entries are taken off, with the last one the allocation."""
    MAKE = "make"
    """The claim itself, for a pod's extended resources."""
    DROP = "drop"
    """The claim is deleted: it was made for an attempt that has ended."""
    READ = "read"
    BUMP = "bump"


class MadeClaim(msgspec.Struct, frozen=True):
    """A claim that we make, for the extended resources of `pod`, a UID, where classes serve them."""

    namespace: str
    name: str
    pod: str
    pod_name: str
    spec: ResourceClaimSpec
    mappings: tuple[RequestMapping, ...]


class ClaimRecord(msgspec.Struct, eq=False):
    """One claim that reservations use. held, wants: by the pod's UID the entry for it, its own or its
    PodGroup's: the pod is reserved and nothing may be written for it yet; the entry is to be there. leaves:
    by their UIDs entries that are not to be there any more. latest: the newest
    version known, from an answer or the watch, None: it is gone; seen_version: the newest that the watch has
    shown.
    write: what is on its way, by the version `sent_version`. n_tries: how many in a row had no clear answer.
    is_left: whether its allocation, found without a user, is to be taken off. made: what is to be made, or
    was, if it is for extended resources; is_there: whether it has been. noted_at: the pod's version by which
    its status has last been sent, which is to state the claim. why: why the claim cannot be had.
    """

    uid: str
    latest: ResourceClaim | None
    seen_version: str
    group: str = ""
    cause_id: str = ""
    held: dict[str, Consumer] = {}
    wants: dict[str, Consumer] = {}
    leaves: dict[str, Consumer] = {}
    write: ClaimWrite = ClaimWrite.NONE
    ticket: int = 0
    sent_version: str = ""
    n_tries: int = 0
    is_left: bool = False
    made: MadeClaim | None = None
    is_there: bool = True
    noted_at: str = ""
    why: Why = ""

    @property
    def is_in_hand(self) -> bool:
        """Whether a write may still land, or others follow it. So long the fence must list the claim, so that
        a new leader bumps it."""
        return bool(self.wants or self.leaves) or self.write is not ClaimWrite.NONE

    def is_entry_used(self, consumer: Consumer) -> bool:
        """Whether a reserved pod needs the entry, which may be its PodGroup's."""
        return any(one.uid == consumer.uid for entries in (self.held, self.wants) for one in entries.values())


class ClaimUses:
    """All records, by claim and by pod. dirty: claims to be looked at before the turn ends."""

    def __init__(self, book: ClaimBook, timers: Timers) -> None:
        self._book = book
        self.records: dict[str, ClaimRecord] = {}
        self.of_pod: dict[str, dict[str, None]] = {}
        self.dirty: dict[str, None] = {}
        self.n_tickets = 0
        self.again_s: Deadlines[str] = Deadlines(timers, DeadlineKind.RESOURCE_CLAIM)
        """Claims of which a write has failed, and when it is tried again."""
        self.left_s: Deadlines[str] = Deadlines(timers, DeadlineKind.LEFT_CLAIM)
        """Claims that are allocated though no user of theirs has started, or is left, and when that is looked
        into."""
        self.evicted: dict[str, set[str]] = {}
        """By claim: the pods that it was reserved for, and that were evicted to make room and have gone."""
        self.until_s: Deadlines[str] = Deadlines(timers, DeadlineKind.BINDING_CONDITION)
        """Claims of which a device waits for its conditions, and how long at most."""

    @property
    def may_be_left(self) -> bool:
        """Whether claims may be allocated though no user of theirs has started: those found so, and those of
        PodGroups, which outlive their pods."""
        return bool(self.left_s or self._book.groups)

    def give_ticket(self, record: ClaimRecord) -> int:
        """Numbers the record's next write; an answer with an older number is to another write."""
        self.n_tickets += 1
        record.ticket = self.n_tickets
        return self.n_tickets

    def hold(self, info: PodInfo, uid_made: str = "", made: MadeClaim | None = None) -> None:
        """Notes a reserved pod's claims, of which nothing is written yet. made: the one that is to be made
        for it, and what stands for its UID."""
        consumers = self._book.consumers_of(info.pod)
        if made is not None:
            meta = info.pod.metadata
            consumers[uid_made] = Consumer(resource="pods", name=meta.name, uid=meta.uid)
            self.records[uid_made] = ClaimRecord(uid_made, None, "", made=made, is_there=False)
        for uid, consumer in consumers.items():
            record = self.records.get(uid)
            if record is None:
                claim = self._book.claims[uid]
                record = self.records[uid] = ClaimRecord(uid, claim, claim.metadata.resource_version)
            record.leaves.pop(consumer.uid, None)
            record.is_left = False
            record.held[info.uid] = consumer
            self.of_pod.setdefault(info.uid, {})[uid] = None

    def want(self, info: PodInfo, group: str, cause_id: str) -> None:
        """Has the entries of a pod that was held written on all its claims."""
        for uid in self.of_pod.get(info.uid, ()):
            record = self.records[uid]
            consumer = record.held.pop(info.uid, None)
            if consumer is not None:
                record.wants[info.uid] = consumer
            record.group, record.cause_id, record.why, record.n_tries = group, cause_id, "", 0
            self.dirty[uid] = None

    def unwant(self, pod: str) -> None:
        """Takes back what is held and wanted for a pod whose reservation has ended. Its claims may be others
        by now, which a pod with a reservation is not told."""
        if pod in self.of_pod:
            self._book.stale[pod] = None
        for uid in self.of_pod.pop(pod, ()):
            record = self.records[uid]
            record.held.pop(pod, None)
            consumer = record.wants.pop(pod, None)
            if consumer is not None and (consumer.uid == pod or not record.is_entry_used(consumer)):
                record.leaves[consumer.uid] = consumer
                self._book.leaving[uid] = None
            self.dirty[uid] = None

    def is_there(self, record: ClaimRecord, claim: ResourceClaim) -> None:
        """Takes in that a claim that was to be made is there, and what its UID is."""
        was, now = record.uid, claim.metadata.uid
        record.uid, record.latest, record.is_there = now, claim, True
        self.records[now] = self.records.pop(was)
        for pod in (*record.held, *record.wants):
            if pod in self.of_pod:
                self.of_pod[pod].pop(was, None)
                self.of_pod[pod][now] = None
        self._book.rename(was, now)
        self.again_s.drop(was)
        self.dirty.pop(was, None)
        self.dirty[now] = None
        shown = self._book.claims.get(now)
        if shown is not None:
            record.seen_version = shown.metadata.resource_version

    def user_gone(self, pod: Pod, due_s: float) -> None:
        """Has it looked into by then whether claims of its PodGroup, which do not end with their last pod,
        are still used."""
        for claim in self._book.claims_of(pod).values():
            if any(one.resource != "pods" for one in claim.status.reserved_for or ()):
                self.left_s.set_if_absent(claim.metadata.uid, due_s)

    def victim_gone(self, pod: Pod, due_s: float) -> None:
        """Has it looked into by then whether the devices that an evicted pod has left are free: a unit waits
        for them."""
        for claim in self._book.claims_of(pod).values():
            uid = claim.metadata.uid
            if claim.status.allocation is not None:
                self.evicted.setdefault(uid, set()).add(pod.metadata.uid)
                self.left_s.set(uid, due_s)

    def give_back(self, claim: ResourceClaim, group: str, cause_id: str) -> None:
        """Takes off an allocation that was found, with its users' entries: none of them has started."""
        meta = claim.metadata
        record = ClaimRecord(meta.uid, claim, meta.resource_version, group, cause_id, is_left=True)
        record.leaves = {one.uid: one for one in claim.status.reserved_for or ()}
        self.records[meta.uid] = record
        self._book.leaving[meta.uid] = None
        self.dirty[meta.uid] = None

    def landed(self, pod: str) -> None:
        """Ends the uses of a pod that is bound: its entries stay."""
        for uid in self.of_pod.pop(pod, ()):
            record = self.records[uid]
            record.held.pop(pod, None)
            record.wants.pop(pod, None)
            self.dirty[uid] = None

    def end(self, record: ClaimRecord) -> None:
        """Drops a record that nothing uses: what the API says of the claim is all there is to know."""
        del self.records[record.uid]
        self.again_s.drop(record.uid)
        self.until_s.drop(record.uid)
        self._book.leaving.pop(record.uid, None)
        self._book.release(record.uid)
        claim = self._book.claims.get(record.uid)
        if claim is not None:
            self._book.stale.update(dict.fromkeys(self._book.users(claim)))
