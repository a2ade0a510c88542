"""The protocol of claims on the fence as a model: pods, claims, several leaders, and what others write.

What must hold at any moment:

A  A device is never in two claims of ours.
B  A bound pod's claim is allocated and reserved for it, be the pod ours or somebody else's.
D  A gang's first pod is bound only where the claims of all its pods are reserved.
E  No pod is bound whose device another scheduler had allocated before we did.
C  And the rest of D: wherever it is, the leader can bring everything to rest, by steps of its own and the
   resourceclaim controller's: each gang is bound whole, or not at all and without an allocation. For that it
   need not start anything: only a gang that is bound in part has to be planned.

A *use* is a pod's use of a claim. It is reserved by an entry of the claim's `reservedFor` with the UID of the
pod, or of its PodGroup. What a leader does, in any order that these rules allow:

take over  sends: the fence, by compare-and-swap: epoch + 1, with the list as it was.
           done: bump. refused: read the fence, once more.
bump       sends: to each pod and claim on the list a patch of a mark, without a version; also to claims whose
           pod is gone. The list stays as it is.
           done, the last one: read pods and claims, and lead. The book is not older than this.
read       if: nothing for it is on its way. sends: a read, or takes it from the watch.
           done: the version is READ, which is not of use yet; uses are as the entries say, by UID.
list       sends: the fence, by compare-and-swap: any pods and claims, among them all for which anything is on
           its way. done: their versions that are READ are LISTED; those LISTED that it leaves out are READ.
           refused, and the epoch is another's: deposed, nothing more is sent.
plan       if: the gang's pods and claims are read, the devices free in the book.
           done: uses are WANTED, the devices promised. Taken back at will, as long as nothing is sent.
keep       if: a claim is read, without the finalizer. sends: a patch that sets it, with the version as read.
           done: the answer's version takes the place of that one. Otherwise: read.
add        if: the claim is LISTED and has the finalizer, uses are WANTED.
           sends: status with entries for these uses, beside those there are, and with an allocation if there
           is none; the LISTED version.
           done: uses are RESERVED; the answer's version is LISTED. Otherwise: settle.
look       if: all uses of the gang's unbound pods are RESERVED. Waits until the watch has shown these writes:
           then all that others wrote before is known.
           done: uses are LOOKED. The device is in another claim, or any other "no": remove.
bind       if: the pod is LISTED, and all uses of the gang's unbound pods are LOOKED, for the UIDs known.
           sends: a Binding with UID and LISTED version.
           done: the pod is bound. Otherwise: settle.
remove     if: the claim is LISTED; its uses are RESERVED or LOOKED, and their pods read and not bound, nor is
           any of the gang where the entry is the gang's; no Binding of the whole gang is on its way. Or: it
           is LISTED, and allocated without any entry, be its pods there or gone.
           sends: status without these entries, and without the allocation if no entry is left then; the
           LISTED version.
           done: uses are NO; the device is free; the answer's version is LISTED. Otherwise: settle.
settle     if: an add, a bind or a remove is on its way. sends: a read; where that shows neither its effect
           nor a newer version, a bump, whose answer is then the read.
           done: it cannot land any more. Everything is as read, and the version READ.
evict      if: a gang is bound in part, and nothing for it is on its way. sends: evictions of its bound pods.

On its way is what was sent and is neither answered nor settled. A device is free in the book while no other
claim that can have it is allocated, or has a use that is not NO. A gang that is bound in part has no steps of
its own: its bound pods are left out, and the claims of the others are found allocated, or are not.

A version only grows, so all that counts is whether it still is the object's. The model has no numbers: what
somebody holds is current or stale; a write with a stale version has no effect, and is not kept. So edits,
bumps, tries and writes of the fence have no bound. Leaders, gangs, deletions and devices have (see Scenario);
a process that starts again is a new leader. A lost message is one that never lands, a crashed leader one that
does nothing more: each may, from any state on. Of the fence there are the epoch and the list; its writes are
in tests/kube/fence_model.py. The book is what claims are now: a plan by an older one is a plan made earlier,
unless it is older than the takeover. Not here: binding conditions (they are a "no" when looking, or none),
and which of several devices is taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

ABLATIONS = {
    "no version on claims": "writes of claims carry the UID alone",
    "no version on pods": "a Binding carries the UID alone",
    "no bump of claims": "a new leader bumps pods only",
    "no bump of pods": "a new leader bumps claims only",
    "no bump where the pod is gone": "a new leader bumps the claims of the listed pods that there are",
    "list first": "a new leader reads and lists before it has bumped",
    "the swap empties the list": "a new leader's first write has no list, as it knows whom to bump",
    "unlists what is on its way": "the next list leaves out what has a write that is not settled",
    "unlisted ones stay of use": "versions are of use after a list without their objects",
    "no fence": "a list is taken as written whoever owns the fence",
    "reads of claims are of use": "a claim's version is used as read, the fence unasked",
    "reads of pods are of use": "a pod's version is used as read, the fence unasked",
    "no bump of claims given up": "a write of a claim is given up without a bump",
    "no bump of pods given up": "a Binding is given up without a bump",
    "plans by an old book": "what was allocated before the takeover is not known when planning",
    "frees at once": "a device is free in the book when its removal is sent",
    "removes in doubt": "entries are removed while their pods' Bindings may land",
    "removes beside binds": "entries are removed while Bindings of other pods of the gang may land",
    "removes what it has not read": "entries are removed of pods that were not read since the takeover",
    "binds unreserved": "a pod is bound when its claims are planned",
    "binds one by one": "a pod is bound when its own claims are reserved",
    "binds without a look": "pods are bound when their claims are reserved",
    "found is looked at": "what is found reserved, as by an earlier leader, is bound without a look",
    "reserved by name": "an entry for a pod of the same name counts",
    "removes everything": "a claim is deallocated whoever else has an entry",
    "removes what others of the group use": "a group's entry is removed for its unbound pods",
    "replaces entries": "entries are written without those that others wrote",
    "leaves the allocation": "entries are removed, and the allocation stays",
    "adopts nothing": "what is found allocated is left as it is",
    "completes nothing": "a gang that is bound in part is not planned again",
    "no finalizer": "claims are allocated without it",
}

# A pod, and what is known of an allocation: SECOND is one of a device that another scheduler had already.
UNBOUND, BOUND, GONE = range(3)
ALLOCATED, SECOND = 1, 2
# An entry of reservedFor, as bits: for the pod, and for a pod of its name that is gone.
ENTRY, FORMER = 1, 2
# What a leader has of a claim, and of a pod. It does not know that a version is stale, or that a pod is OLD.
UNREAD, READ, LISTED, STALE, ADDING, REMOVING = range(6)
SENT, IS_BOUND, OLD = 4, 5, 6
READABLE = (UNREAD, STALE, OLD)
WRITING = (ADDING, REMOVING)
SEEN_UNBOUND = (READ, LISTED, STALE, OLD)
# What a leader knows of a use. From WANTED_OLD on: of one by a pod that is gone, which it does not know.
NO, WANTED, RESERVED, LOOKED, LEAVING, WANTED_OLD, RESERVED_OLD, LOOKED_OLD = range(8)
AGED = {WANTED: WANTED_OLD, RESERVED: RESERVED_OLD, LOOKED: LOOKED_OLD}
PLANNED = (WANTED, WANTED_OLD)
HELD = (RESERVED, LOOKED, RESERVED_OLD, LOOKED_OLD)
# What is on its way for a use.
ADD, ADD_OLD, REMOVE = 1, 2, 3

State = tuple[int, ...]
Now = list[int]
Take = Callable[[int], list[int]]


class Scenario(NamedTuple):
    """What is bounded. Gangs, pods, claims and devices are numbers from 0 on."""

    gangs: tuple[tuple[tuple[int, ...], ...], ...]
    """For each gang its pods, each as the claims that it names; several may name the same one."""
    devices: tuple[int, ...]
    """For each claim the one device that it can have."""
    n_leaders: int = 2
    has_rival: bool = False
    """Another scheduler may allocate device 0 in a claim of its own, and free it, at any time."""
    has_stranger: bool = False
    """A pod of another scheduler may use claim 0, which that one allocates if need be."""
    n_deleted: int = 0
    """How many pods may be deleted; each may then be created anew. The controller removes their entries."""
    deletes_claims: bool = False
    """Claims may be deleted and created anew: without a finalizer, or without entries, at once."""
    for_group: tuple[int, ...] = ()
    """Claims that are reserved for a gang as a whole, by one entry: it stays while any pod of it is bound."""
    evicts: bool = False
    """The leader may evict the bound pods of half-bound gangs: for scenarios that leave no other way."""


class Places:
    """Where in a state one leader's knowledge is, and what it has on its way."""

    def __init__(self, n_pods: int, n_claims: int, n_uses: int, take: Take) -> None:
        self.pod = take(n_pods)
        self.claim = take(n_claims)
        self.use = take(n_uses)
        self.bump_pod = take(n_pods)
        self.bump_claim = take(n_claims)
        self.own = slice(self.pod[0], self.bump_claim[-1] + 1)
        (self.is_deposed,) = take(1)
        self.bind = take(n_pods)
        self.write = take(n_uses)

    def is_bumping(self, s: Sequence[int]) -> bool:
        return any(s[at] for at in (*self.bump_pod, *self.bump_claim))


Named = Iterator[tuple[str, State]]


class Model:
    """The steps from a state to the next ones, and what is wrong with a state."""

    def __init__(self, scenario: Scenario, without: str = "") -> None:
        self.scenario, self.without = scenario, without
        self.size = 0
        pods = [pod for gang in scenario.gangs for pod in gang]
        uses = [(pod, claim) for pod, claims in enumerate(pods) for claim in claims]
        self.pods, self.uses = range(len(pods)), range(len(uses))
        self.claims, self.gangs = range(len(scenario.devices)), range(len(scenario.gangs))
        self.pod_of, self.claim_of = [pod for pod, _ in uses], [claim for _, claim in uses]
        self.gang_of = [number for number, gang in enumerate(scenario.gangs) for _ in gang]
        self.pods_of = [[pod for pod in self.pods if self.gang_of[pod] == gang] for gang in self.gangs]
        self.claims_of = [sorted({claim for pod in gang for claim in pod}) for gang in scenario.gangs]
        self.uses_of = [[use for use in self.uses if self.pod_of[use] == pod] for pod in self.pods]
        self.users = [[use for use in self.uses if self.claim_of[use] == claim] for claim in self.claims]
        self.gang_uses = [[use for pod in gang for use in self.uses_of[pod]] for gang in self.pods_of]
        self.group_uses = [use for use in self.uses if self.claim_of[use] in scenario.for_group]
        (self.epoch,) = self._take(1)
        self.listed_pod = self._take(len(self.pods))
        self.listed_claim = self._take(len(self.claims))
        self.pod = self._take(len(self.pods))
        self.allocation = self._take(len(self.claims))
        self.finalizer = self._take(len(self.claims))
        self.entry = self._take(len(self.uses))
        self.rival, self.stranger, self.n_deleted, self.is_torn = self._take(4)
        self.leaders = [
            Places(len(self.pods), len(self.claims), len(self.uses), self._take)
            for _ in range(scenario.n_leaders)
        ]
        own = self.leaders[0].own
        self._nothing = [0] * (own.stop - own.start)
        usable = (LISTED, STALE, OLD)
        self._claim_usable = (*usable, READ) if without == "reads of claims are of use" else usable[:2]
        self._pod_usable = (*usable, READ) if without == "reads of pods are of use" else usable
        self._reads_count_late = READ in self._claim_usable + self._pod_usable or without == "no fence"
        self._looked = LOOKED if scenario.has_rival else RESERVED

    def _take(self, n: int) -> list[int]:
        self.size += n
        return list(range(self.size - n, self.size))

    def first(self) -> State:
        """One leads, and has read nothing yet."""
        state = [0] * self.size
        state[self.epoch] = 1
        return tuple(state)

    # -- what is wrong ---------------------------------------------------------------------------------

    def fault(self, s: State) -> str:
        """Which of A, B, D and E is broken; "" if none."""
        holders: dict[int, int] = {}
        for claim, device in enumerate(self.scenario.devices):
            if s[self.allocation[claim]] and holders.setdefault(device, claim) != claim:
                return "A: a device is in two claims"
        for use in self.uses:
            if s[self.pod[self.pod_of[use]]] == BOUND:
                allocation = s[self.allocation[self.claim_of[use]]]
                if not allocation or not s[self.entry[use]] & ENTRY:
                    return "B: a pod is bound without its claim"
                if allocation == SECOND:
                    return "E: a pod is bound to a device that somebody else had before"
        if s[self.stranger] and not s[self.allocation[0]]:
            return "B: a stranger's pod has lost its claim"
        return "D: the first pod is bound before all claims are reserved" if s[self.is_torn] else ""

    def is_settled(self, s: State) -> bool:
        """Whether each gang is bound whole, or not at all and without anything allocated for it."""
        if self.leaders[s[self.epoch] - 1].is_bumping(s):
            return False
        for gang in self.gangs:
            alive = [s[self.pod[pod]] for pod in self.pods_of[gang] if s[self.pod[pod]] != GONE]
            n_bound = alive.count(BOUND)
            if n_bound != len(alive) and n_bound:
                return False
            if not n_bound and any(s[self.entry[use]] for use in self.gang_uses[gang]):
                return False
        return all(self._is_used(s, claim) for claim in self.claims if s[self.allocation[claim]])

    def _is_used(self, s: Sequence[int], claim: int) -> bool:
        """Whether any entry of its reservedFor is left."""
        by_stranger = claim == 0 and s[self.stranger]
        return bool(by_stranger) or any(s[self.entry[use]] for use in self.users[claim])

    # -- what changes ----------------------------------------------------------------------------------

    def _pod_changed(self, t: Now, pod: int) -> None:
        """It has a new version: those that are held, and Bindings on their way, are stale."""
        for me in self.leaders:
            if t[me.pod[pod]] in (READ, LISTED):
                t[me.pod[pod]] = STALE
            if self.without != "no version on pods":
                t[me.bind[pod]] = 0

    def _claim_changed(self, t: Now, claim: int) -> None:
        for me in self.leaders:
            if t[me.claim[claim]] in (READ, LISTED):
                t[me.claim[claim]] = STALE
            if self.without != "no version on claims":
                for use in self.users[claim]:
                    t[me.write[use]] = 0

    def _pod_goes(self, t: Now, pod: int) -> None:
        """What names its UID names a pod that is gone, whatever comes under its name."""
        t[self.pod[pod]] = GONE
        self._pod_changed(t, pod)
        for me in self.leaders:
            if t[me.pod[pod]] == STALE:
                t[me.pod[pod]] = OLD
        for use in self.uses_of[pod]:
            if use in self.group_uses:
                continue
            if t[self.entry[use]] & ENTRY:
                t[self.entry[use]] = FORMER
            for me in self.leaders:
                t[me.use[use]] = AGED.get(t[me.use[use]], t[me.use[use]])
                if t[me.write[use]] == ADD:
                    t[me.write[use]] = ADD_OLD

    def _entries_removed(self, t: Now, claim: int) -> None:
        """With the last entry the allocation goes, in the same write."""
        if not self._is_used(t, claim):
            t[self.allocation[claim]] = 0

    def without_idle(self, s: State) -> State:
        """The same state, as to what may follow, without leaders that can have no effect any more.

        One that another has followed will not list again: what it has read is of no use to it. Without any
        version of use, and without an answer that could bring one, nothing that it sends has an effect.
        """
        for me in self.leaders[: s[self.epoch] - 1]:
            if not s[me.is_deposed]:
                t = list(s)
                for at in (*me.bump_pod, *me.bump_claim):
                    t[at] = 0
                if not self._reads_count_late:
                    for at in (*me.pod, *me.claim):
                        t[at] = STALE if t[at] == READ else t[at]
                    is_armed = any(t[at] == LISTED for at in (*me.pod, *me.claim))
                    if not is_armed and not any(t[at] for at in me.write):
                        self._depose(t, me)
                s = tuple(t)
        return s

    def _depose(self, t: Now, me: Places) -> None:
        t[me.own] = self._nothing
        t[me.is_deposed] = 1

    # -- steps -----------------------------------------------------------------------------------------

    def steps(self, s: State) -> Iterator[tuple[bool, str, State]]:
        """Everything that may happen next: may the leader count on it, what it is, where it leads."""
        yield from self._others(s)
        n_led = s[self.epoch]
        if n_led < self.scenario.n_leaders:
            yield False, *self._takes_over(s, n_led)
        for number, me in enumerate(self.leaders[:n_led]):
            leads = number == n_led - 1
            for part in (self._lands_bind, self._lands_write):
                for what, then in part(s, me):
                    yield leads, f"{number}: {what}", then
            if s[me.is_deposed]:
                continue
            for what, then in self._own(s, me, leads):
                yield leads, f"{number} {what}", then
            for gang in () if me.is_bumping(s) and self.without != "list first" else self.gangs:
                # Only a gang that is bound in part has to be planned, whatever else there is to do.
                has_to = any(s[self.pod[pod]] == BOUND for pod in self.pods_of[gang])
                if not (has_to and self.without == "completes nothing"):
                    for what, then in self._plans(s, me, gang):
                        yield leads and has_to, f"{number} {what}", then

    def _own(self, s: State, me: Places, leads: bool) -> Named:
        if me.is_bumping(s):
            yield from self._bumps(s, me)
            if self.without != "list first":
                return
        yield from self._lists(s, me) if leads or self.without == "no fence" else self._is_refused(s, me)
        if leads:
            yield from self._evicts(s, me)
        for step in (self._reads, self._unplans, self._looks, self._keeps, self._adds, self._removes):
            yield from step(s, me)
        for step in (self._settles_claims, self._binds, self._settles_binds):
            yield from step(s, me)

    def _others(self, s: State) -> Iterator[tuple[bool, str, State]]:
        """Edits, deletions, another scheduler, and the resourceclaim controller, who may be counted on."""
        for pod in self.pods:
            t = list(s)
            self._pod_changed(t, pod)
            if s[self.pod[pod]] == UNBOUND and (then := tuple(t)) != s:
                yield False, f"somebody edits pod {pod}", then
            if s[self.pod[pod]] != GONE and s[self.n_deleted] < self.scenario.n_deleted:
                t = list(s)
                t[self.n_deleted] += 1
                self._pod_goes(t, pod)
                yield False, f"pod {pod} is deleted", tuple(t)
            if s[self.pod[pod]] == GONE and self.scenario.n_deleted:
                t = list(s)
                t[self.pod[pod]] = UNBOUND
                yield False, f"pod {pod} is created anew", tuple(t)
        for use in self.uses:
            if s[self.entry[use]] & FORMER:
                t = list(s)
                t[self.entry[use]] &= ENTRY
                self._entries_removed(t, self.claim_of[use])
                self._claim_changed(t, self.claim_of[use])
                yield True, f"the controller removes the entry of a former pod {self.pod_of[use]}", tuple(t)
        for claim in self.claims:
            t = list(s)
            self._claim_changed(t, claim)
            if (then := tuple(t)) != s:
                yield False, f"somebody edits claim {claim}", then
            if self.scenario.deletes_claims and not (s[self.finalizer[claim]] and self._is_used(s, claim)):
                t[self.finalizer[claim]] = t[self.allocation[claim]] = 0
                for use in self.users[claim]:
                    t[self.entry[use]] = 0
                yield False, f"claim {claim} is deleted and created anew", tuple(t)
        if self.scenario.has_rival:
            t = list(s)
            t[self.rival] = 1 - s[self.rival]
            for claim in self.claims:
                t[self.allocation[claim]] = min(s[self.allocation[claim]], ALLOCATED)
            yield False, f"another scheduler {'frees' if s[self.rival] else 'allocates'} device 0", tuple(t)
        if self.scenario.has_stranger:
            t = list(s)
            self._claim_changed(t, 0)
            t[self.stranger] = 1 - s[self.stranger]
            t[self.allocation[0]] = t[self.allocation[0]] or ALLOCATED
            t[self.finalizer[0]] = int(self.scenario.deletes_claims)
            # By its scheduler's hand the allocation stays, whoever is left; by the controller's it goes.
            yield False, f"a stranger {'gives up' if s[self.stranger] else 'reserves'} claim 0", tuple(t)
            if s[self.stranger]:
                self._entries_removed(t, 0)
                yield False, "the controller removes a stranger's entry", tuple(t)

    def _takes_over(self, s: State, number: int) -> tuple[str, State]:
        """The fence's epoch is swapped; its list stays until the last bump is answered."""
        t, me = list(s), self.leaders[number]
        t[self.epoch] = number + 1
        for pod in self.pods:
            t[me.bump_pod[pod]] = s[self.listed_pod[pod]] and int(self.without != "no bump of pods")
        for claim in self.claims:
            are_gone = all(s[self.pod[self.pod_of[use]]] == GONE for use in self.users[claim])
            is_left_out = self.without == "no bump of claims" or (
                self.without == "no bump where the pod is gone" and are_gone
            )
            t[me.bump_claim[claim]] = s[self.listed_claim[claim]] and int(not is_left_out)
        if self.without == "the swap empties the list":
            for at in (*self.listed_pod, *self.listed_claim):
                t[at] = 0
        return f"{number} takes over", tuple(t)

    def _bumps(self, s: State, me: Places) -> Named:
        for pod in self.pods:
            if s[me.bump_pod[pod]]:
                t = list(s)
                t[me.bump_pod[pod]] = 0
                if s[self.pod[pod]] == UNBOUND:
                    self._pod_changed(t, pod)
                yield f"bumps pod {pod}", tuple(t)
        for claim in self.claims:
            if s[me.bump_claim[claim]]:
                t = list(s)
                t[me.bump_claim[claim]] = 0
                self._claim_changed(t, claim)
                yield f"bumps claim {claim}", tuple(t)

    def _reads(self, s: State, me: Places) -> Named:
        for pod in self.pods:
            is_over = s[me.pod[pod]] == IS_BOUND and s[self.pod[pod]] != BOUND
            if s[me.pod[pod]] in READABLE or is_over:
                t = list(s)
                self._pod_read(t, me, pod)
                if (then := tuple(t)) != s:
                    yield f"reads pod {pod}", then
        for claim in self.claims:
            if s[me.claim[claim]] not in WRITING:
                t = list(s)
                self._claim_read(t, me, claim)
                tells_more = any(t[me.use[use]] != s[me.use[use]] for use in self.users[claim])
                if s[me.claim[claim]] in READABLE or tells_more:
                    yield f"reads claim {claim}", tuple(t)

    def _pod_read(self, t: Now, me: Places, pod: int) -> None:
        """Its version, and its UID: what is reserved for another UID is not reserved for it."""
        t[me.pod[pod]] = (READ, IS_BOUND, UNREAD)[t[self.pod[pod]]]
        for use in self.uses_of[pod]:
            known = t[me.use[use]]
            if t[me.claim[self.claim_of[use]]] in WRITING and known in (*PLANNED, LEAVING):
                continue  # settled first
            if t[self.pod[pod]] == BOUND or (t[self.pod[pod]] == GONE and use not in self.group_uses):
                t[me.use[use]] = NO
            elif known >= WANTED_OLD:
                t[me.use[use]] = known - 4 if self.without == "reserved by name" else NO

    def _claim_read(self, t: Now, me: Places, claim: int) -> None:
        """Its version and its entries."""
        t[me.claim[claim]] = READ
        for use in self.users[claim]:
            pod, known, entry = self.pod_of[use], t[me.use[use]], t[self.entry[use]]
            is_old = known >= WANTED_OLD or (t[me.pod[pod]] == OLD and use not in self.group_uses)
            if t[me.pod[pod]] == IS_BOUND:
                known = NO
            elif is_old and entry & FORMER:
                known = max(known, RESERVED_OLD)
            elif is_old:
                known = WANTED_OLD if known == WANTED_OLD else NO
            elif known == NO and self.without == "adopts nothing":
                known = NO
            elif entry & ENTRY or (entry and self.without == "reserved by name"):
                known = max(known, self._looked if self.without == "found is looked at" else RESERVED)
            elif known != WANTED:
                known = NO
            t[me.use[use]] = known

    def _is_on_its_way(self, s: State, me: Places, gang: int) -> bool:
        return any(s[me.pod[pod]] == SENT for pod in self.pods_of[gang]) or any(
            s[me.claim[self.claim_of[use]]] in WRITING and s[me.use[use]] in (*PLANNED, LEAVING)
            for use in self.gang_uses[gang]
        )

    def _is_refused(self, s: State, me: Places) -> Named:
        t = list(s)
        self._depose(t, me)
        yield "is deposed", tuple(t)

    def _lists(self, s: State, me: Places) -> Named:
        sending: tuple[int, ...] = (SENT,)
        held = [(me.pod[pod], self.listed_pod[pod], sending) for pod in self.pods]
        held += [(me.claim[claim], self.listed_claim[claim], WRITING) for claim in self.claims]
        must = [listed for at, listed, writing in held if s[at] in writing]
        if self.without == "unlists what is on its way":
            must = []
        may = [(at, listed) for at, listed, _ in held if s[at] in (READ, LISTED)]
        for n in range(len(may) + 1):
            for chosen in itertools.combinations(may, n):
                t = list(s)
                for _, listed, _ in held:
                    t[listed] = int(listed in must)
                for at, listed in may:
                    if (at, listed) in chosen:
                        t[at], t[listed] = LISTED, 1
                    elif self.without != "unlisted ones stay of use":
                        t[at] = READ
                if (then := tuple(t)) != s:
                    yield f"lists {self._listed_ones(then)}", then

    def _listed_ones(self, s: State) -> str:
        ones = [f"pod {pod}" for pod in self.pods if s[self.listed_pod[pod]]]
        ones += [f"claim {claim}" for claim in self.claims if s[self.listed_claim[claim]]]
        return " and ".join(ones) or "nothing"

    def _plans(self, s: State, me: Places, gang: int) -> Named:
        pods = self.pods_of[gang]
        unbound = [pod for pod in pods if s[me.pod[pod]] in SEEN_UNBOUND]
        wanted = [use for pod in unbound for use in self.uses_of[pod] if s[me.use[use]] == NO]
        claims = {self.claim_of[use] for use in wanted}
        is_read = all(s[me.claim[claim]] in (READ, LISTED, STALE) for claim in claims)
        is_read = is_read and all(s[me.pod[pod]] != UNREAD for pod in pods)
        if wanted and is_read and all(self._is_to_be_had(s, me, claim) for claim in claims):
            t = list(s)
            for use in wanted:
                is_old = s[me.pod[self.pod_of[use]]] == OLD and use not in self.group_uses
                t[me.use[use]] = WANTED_OLD if is_old else WANTED
            yield f"plans gang {gang}", tuple(t)

    def _unplans(self, s: State, me: Places) -> Named:
        for gang in self.gangs:
            planned = [use for use in self.gang_uses[gang] if s[me.use[use]] in PLANNED]
            unsent = [use for use in planned if s[me.claim[self.claim_of[use]]] != ADDING]
            if unsent:
                t = list(s)
                for use in unsent:
                    t[me.use[use]] = NO
                yield f"plans gang {gang} no more", tuple(t)

    def _is_to_be_had(self, s: State, me: Places, claim: int) -> bool:
        """Whether the claim is allocated already, or its device is free in the book."""
        if s[self.allocation[claim]]:
            return True
        device = self.scenario.devices[claim]
        for other in self.claims:
            if other != claim and self.scenario.devices[other] == device:
                if self.without == "frees at once" and s[me.claim[other]] == REMOVING:
                    continue
                if self.without == "plans by an old book" and s[me.claim[other]] == UNREAD:
                    continue
                if s[self.allocation[other]] or any(s[me.use[use]] for use in self.users[other]):
                    return False
        return device != 0 or not s[self.rival]

    def _keeps(self, s: State, me: Places) -> Named:
        if self.scenario.deletes_claims:
            for claim in self.claims:
                had = s[me.claim[claim]]
                if had in (READ, LISTED) and not s[self.finalizer[claim]]:
                    t = list(s)
                    self._claim_changed(t, claim)
                    t[self.finalizer[claim]], t[me.claim[claim]] = 1, had
                    yield f"sets the finalizer of claim {claim}", tuple(t)

    def _adds(self, s: State, me: Places) -> Named:
        for claim in self.claims:
            wanted = [use for use in self.users[claim] if s[me.use[use]] in PLANNED]
            needs_finalizer = self.scenario.deletes_claims and self.without != "no finalizer"
            is_kept = s[self.finalizer[claim]] or s[me.claim[claim]] == STALE or not needs_finalizer
            if wanted and is_kept and s[me.claim[claim]] in self._claim_usable:
                t = list(s)
                t[me.claim[claim]] = ADDING
                for use in wanted:
                    if s[me.claim[claim]] != STALE or self.without == "no version on claims":
                        t[me.write[use]] = ADD if s[me.use[use]] == WANTED else ADD_OLD
                yield f"adds to claim {claim}", tuple(t)

    def _removes(self, s: State, me: Places) -> Named:
        for claim, gang in itertools.product(self.claims, self.gangs):
            is_left = s[self.allocation[claim]] and not self._is_used(s, claim)
            held = [
                use
                for use in self.users[claim]
                if self.gang_of[self.pod_of[use]] == gang
                and (is_left if s[me.use[use]] == NO else self._is_removable(s, me, use))
            ]
            may_land = any(s[me.pod[pod]] == SENT for pod in self.pods_of[gang])
            if may_land and self.without not in ("removes in doubt", "removes beside binds"):
                continue
            if held and s[me.claim[claim]] in self._claim_usable:
                t = list(s)
                t[me.claim[claim]] = REMOVING
                for use in held:
                    t[me.use[use]] = LEAVING
                    if s[me.claim[claim]] != STALE or self.without == "no version on claims":
                        t[me.write[use]] = REMOVE
                yield f"removes gang {gang} from claim {claim}", tuple(t)

    def _is_removable(self, s: State, me: Places, use: int) -> bool:
        """Whether it is reserved, and its pod known as unbound; for a gang's entry, every pod of it."""
        if s[me.use[use]] not in HELD:
            return False
        pod = self.pod_of[use]
        known = s[me.pod[pod]]
        if use in self.group_uses and self.without != "removes what others of the group use":
            gang = self.pods_of[self.gang_of[pod]]
            return all(s[me.pod[one]] in SEEN_UNBOUND or s[self.pod[one]] == GONE for one in gang)
        is_unread = known == UNREAD and self.without == "removes what it has not read"
        return known in SEEN_UNBOUND or is_unread or self.without == "removes in doubt"

    def _lands_write(self, s: State, me: Places) -> Named:
        for claim in self.claims:
            written = [use for use in self.users[claim] if s[me.write[use]]]
            if not written:
                continue
            t = list(s)
            self._claim_changed(t, claim)
            removes = s[me.write[written[0]]] == REMOVE
            for use in written:
                t[me.write[use]] = 0
            if removes:
                for use in self._same_entry(claim, written, self.without == "removes everything"):
                    t[self.entry[use]] = 0
                if self.without == "removes everything":
                    t[self.allocation[claim]] = 0
                elif self.without != "leaves the allocation":
                    self._entries_removed(t, claim)
            else:
                if self.without == "replaces entries":
                    for use in self.users[claim]:
                        t[self.entry[use]] = 0
                for use in self._same_entry(claim, written):
                    t[self.entry[use]] |= FORMER if s[me.write[use]] == ADD_OLD else ENTRY
                if not t[self.allocation[claim]]:
                    is_second = s[self.rival] and self.scenario.devices[claim] == 0
                    t[self.allocation[claim]] = SECOND if is_second else ALLOCATED
            what = f"claim {claim} is {'removed from' if removes else 'added to'}"
            yield f"{what}, the answer is lost", tuple(t)
            if t[me.claim[claim]] == (REMOVING if removes else ADDING):
                t[me.claim[claim]] = LISTED
                for use in self.users[claim]:
                    if removes and t[me.use[use]] == LEAVING:
                        t[me.use[use]] = NO
                    elif not removes and t[me.use[use]] in PLANNED:
                        t[me.use[use]] += 1
                yield f"{what}, and answered", tuple(t)

    def _same_entry(self, claim: int, written: list[int], is_all: bool = False) -> list[int]:
        """Uses that have the entries of the written ones: of a claim for a group, those of the whole gang."""
        gangs = {self.gang_of[self.pod_of[use]] for use in written}
        is_group = claim in self.scenario.for_group
        users = self.users[claim]
        of_gangs = [use for use in users if is_group and self.gang_of[self.pod_of[use]] in gangs]
        return users if is_all else of_gangs or written

    def _settles_claims(self, s: State, me: Places) -> Named:
        for claim in self.claims:
            if s[me.claim[claim]] in WRITING:
                t = list(s)
                may_land = any(s[me.write[use]] for use in self.users[claim])
                if may_land and self.without != "no bump of claims given up":
                    self._claim_changed(t, claim)
                t[me.claim[claim]] = READ
                for use in self.users[claim]:
                    known, entry = s[me.use[use]], s[self.entry[use]]
                    if known == WANTED and entry & ENTRY:
                        t[me.use[use]] = RESERVED
                    elif known == WANTED_OLD and entry & FORMER:
                        t[me.use[use]] = RESERVED_OLD
                    elif known == LEAVING:
                        t[me.use[use]] = RESERVED if entry & ENTRY else RESERVED_OLD if entry else NO
                yield f"{'bumps' if may_land else 'reads'} claim {claim}, its write is settled", tuple(t)

    def _looks(self, s: State, me: Places) -> Named:
        """It may find more than was written before ours; it must find that."""
        for gang in self.gangs if self.scenario.has_rival else ():
            pods = [pod for pod in self.pods_of[gang] if s[me.pod[pod]] != IS_BOUND]
            uses = [use for pod in pods for use in self.uses_of[pod]]
            is_second = any(s[self.allocation[self.claim_of[use]]] == SECOND for use in uses)
            if is_second and self.without != "binds without a look":
                continue
            if uses and all(s[me.use[use]] in HELD for use in uses):
                t = list(s)
                for use in uses:
                    if t[me.use[use]] in (RESERVED, RESERVED_OLD):
                        t[me.use[use]] += 1
                if (then := tuple(t)) != s:
                    yield f"looks at gang {gang}", then

    def _is_ready(self, s: State, me: Places, use: int) -> bool:
        known = s[me.use[use]]
        if known >= WANTED_OLD and s[me.pod[self.pod_of[use]]] in (OLD, SENT):
            known -= 4  # as it believes
        return known in (self._looked, LOOKED) or (known == WANTED and self.without == "binds unreserved")

    def _binds(self, s: State, me: Places) -> Named:
        for pod in self.pods:
            gang = [pod] if self.without == "binds one by one" else self.pods_of[self.gang_of[pod]]
            uses = [use for one in gang if s[me.pod[one]] != IS_BOUND for use in self.uses_of[one]]
            if s[me.pod[pod]] in self._pod_usable and all(self._is_ready(s, me, use) for use in uses):
                t = list(s)
                t[me.pod[pod]] = SENT
                is_stale = s[me.pod[pod]] in (STALE, OLD)
                t[me.bind[pod]] = int(not is_stale or self.without == "no version on pods")
                yield f"binds pod {pod}", tuple(t)

    def _lands_bind(self, s: State, me: Places) -> Named:
        for pod in self.pods:
            if s[me.bind[pod]] and s[self.pod[pod]] == UNBOUND:
                t = list(s)
                self._pod_changed(t, pod)
                t[me.bind[pod]], t[self.pod[pod]] = 0, BOUND
                gang = self.pods_of[self.gang_of[pod]]
                # A pod that is gone has taken its entries with it, at any time.
                is_first = all(s[self.pod[one]] == UNBOUND for one in gang) and not s[self.n_deleted]
                uses = self.gang_uses[self.gang_of[pod]]
                if is_first and not all(s[self.entry[use]] for use in uses):
                    t[self.is_torn] = 1
                yield f"pod {pod} is bound", tuple(t)

    def _settles_binds(self, s: State, me: Places) -> Named:
        for pod in self.pods:
            if s[me.pod[pod]] == SENT:
                t = list(s)
                may_land = s[me.bind[pod]] and s[self.pod[pod]] == UNBOUND
                if may_land and self.without != "no bump of pods given up":
                    self._pod_changed(t, pod)
                self._pod_read(t, me, pod)
                found = ("not bound", "bound", "gone")[s[self.pod[pod]]]
                yield f"{'bumps' if may_land else 'reads'} pod {pod}: {found}", tuple(t)

    def _evicts(self, s: State, me: Places) -> Named:
        for gang in self.gangs if self.scenario.evicts else ():
            bound = [pod for pod in self.pods_of[gang] if s[me.pod[pod]] == IS_BOUND]
            if len(bound) < len(self.pods_of[gang]) and not self._is_on_its_way(s, me, gang):
                for pod in bound:
                    if s[self.pod[pod]] == BOUND:
                        t = list(s)
                        self._pod_goes(t, pod)
                        t[me.pod[pod]] = UNREAD
                        yield f"evicts pod {pod}", tuple(t)
