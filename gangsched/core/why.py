"""Reasons as values, and the words for each.

A reason is kept as what it names (nodes, members, devices, amounts, other groups), and becomes text only
where it leaves the core: in a condition, an event, an answer of `explain`. What decides, explains or judges
reads the values and never a text. Names of other namespaces' objects are marked in the words
(model.text.printable), so that administrators and tenants each get their own rendering of one value.

What somebody else has said (a plugin of users, the API server, a field that does not parse) is a text from
the start and stays one. Not here: what decides. Called by all rooms of the core, and by plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import islice

import msgspec

from gangsched.model.resources import amount_text
from gangsched.model.text.printable import MAX_MESSAGE, marked, several

# A reason's words with their marked names, before they are rendered; what a server answers is of any length.
_MAX_MARKED = 8 * MAX_MESSAGE
# This many things are named in a reason.
MAX_NAMED = 3
KEPT_FOR = "kept for groups that are promised room or have been passed as often as allowed"


class Because(msgspec.Struct, frozen=True):
    """A reason of ours; its text is a sentence with the names in it marked."""


Why = Because | str
"""A reason of ours, or what somebody else has said."""


def words(why: Why) -> str:
    """Tells the reason with its names marked, cut to size."""
    return str(why)[:_MAX_MARKED]


def parts_of(why: Why) -> Iterator[Why]:
    """Yields the reason and all that it is made of, from the whole to the parts."""
    yield why
    if isinstance(why, Because):
        for name in why.__struct_fields__:
            held = getattr(why, name)
            for one in held if isinstance(held, tuple) else (held,):
                if isinstance(one, Because):
                    yield from parts_of(one)


def is_about(why: Why, *kinds: type[Because]) -> bool:
    """Whether it is one of these kinds of reasons, or has one in it."""
    return any(isinstance(one, kinds) for one in parts_of(why))


# -- one after the other, and about whom -------------------------------------------------------------------


class Several(Because, frozen=True):
    """Reasons, one after the other."""

    parts: tuple[Why, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.parts))


def together(*whys: Why) -> Why:
    """Joins reasons; what is joined already is not nested."""
    found: list[Why] = []
    for why in whys:
        found += _parts(why)
    return found[0] if len(found) == 1 else Several(tuple(found))


def beyond(beginning: Why, whole: Why) -> tuple[Why, ...] | None:
    """Returns what `whole` adds to its beginning; None: it begins otherwise."""
    begun, found = _parts(beginning), _parts(whole)
    return found[len(begun) :] if found[: len(begun)] == begun else None


def _parts(why: Why) -> tuple[Why, ...]:
    return why.parts if isinstance(why, Several) else (why,)


class OfGang(Because, frozen=True):
    """A reason that concerns a whole gang."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang}: {self.why}"


class OfMember(Because, frozen=True):
    """Why a member is refused; in a gang, all of whose members get the message."""

    member: str
    why: Why

    def __str__(self) -> str:
        return f"member {self.member}: {self.why}"


def without_gang(gang: str, why: Why) -> Why:
    """Leaves out the gang's name in front, which is there already."""
    first, *rest = _parts(why)
    return together(first.why, *rest) if isinstance(first, OfGang) and first.gang == gang else why


class OfPlugin(Because, frozen=True):
    """Why a plugin keeps a group out, whatever room it has."""

    plugin: str
    why: Why

    def __str__(self) -> str:
        return f"{self.plugin}: {self.why}"


# -- where a pod cannot go ---------------------------------------------------------------------------------


class Insufficient(Because, frozen=True):
    """kube-scheduler's reason for nodes with too little of something."""

    what: str

    def __str__(self) -> str:
        return f"Insufficient {self.what}"


class UntoleratedTaint(Because, frozen=True):
    """A taint that the pod does not tolerate; without a key: one of several others."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        text = "node(s) had untolerated taint(s)"
        if not self.key:
            return text
        value = f"={self.value}" if self.value else ""
        return f"{text} {{{self.key}{value}:{self.effect}}}"


class Excluded(Because, frozen=True):
    """How many nodes a plugin excludes, and its reason."""

    n: int
    plugin: str
    why: Why

    def __str__(self) -> str:
        return f"{self.n} {self.why}"


class NodesExcluded(Because, frozen=True):
    """kube-scheduler's sentence: each node is counted under the first reason that excludes it."""

    n_nodes: int
    by: tuple[Excluded, ...]

    def __str__(self) -> str:
        text = ", ".join(map(str, self.by))
        return f"0/{self.n_nodes} nodes are available" + (f": {text}." if text else ".")


class FewFit(Because, frozen=True):
    """How many members of a gang fit, and why one does not. role: of which they are counted; "": of all."""

    role: str
    n_fit: int
    n_wanted: int
    member: str
    why: Why

    def __str__(self) -> str:
        role = f"role {self.role}: " if self.role else ""
        return f"{role}{self.n_fit} of {self.n_wanted} fit; member {self.member}: {self.why}"


class NearestDomain(Because, frozen=True):
    """Why no domain takes a group, and what the nearest one lacks."""

    said: str
    where: str
    why: Why

    def __str__(self) -> str:
        return f"{self.said}. In {self.where}: {self.why}"


class SearchEnd(Enum):
    """How the search for placements in other orders ended."""

    PROVED = "No placement exists: every order of placing them ends like this."
    PROVED_THERE = "There every order of placing them ends like this."
    """What is proved is proved of one domain alone."""
    GAVE_UP = "A placement may exist: the search for one ended at searchPlacements."
    IN_TURNS = (
        "A placement may exist: only some of the many domains are tried at a time, and the others later."
    )
    """Only other domains are untried."""


class Searched(Because, frozen=True):
    """How the search for placements in other orders ended."""

    end: SearchEnd

    def __str__(self) -> str:
        return self.end.value


class DeviceSetsGivenUp(Because, frozen=True):
    """The search for sets of devices ended at its budget on these nodes."""

    nodes: tuple[str, ...]

    def __str__(self) -> str:
        some = ", ".join(self.nodes[:MAX_NAMED]) + (", ..." if len(self.nodes) > MAX_NAMED else "")
        return f"A placement may exist: the search for sets of devices was given up on {some}."


def proved_there(why: Why) -> Why:
    """Limits what is proved to one domain."""
    proved, there = Searched(SearchEnd.PROVED), Searched(SearchEnd.PROVED_THERE)
    return together(*(there if one == proved else one for one in _parts(why)))


# -- what it lacks ------------------------------------------------------------------------------------------


class TooFewNodes(Because, frozen=True):
    """Waiting does not help: n_fit of n_wanted would fit with nothing else running."""

    n_fit: int
    n_wanted: int

    def __str__(self) -> str:
        if self.n_wanted == 1:
            return "No node that suits it is large enough, even with nothing else running."
        return f"Too few nodes suit it: with nothing else running, {self.n_fit} of {self.n_wanted} would fit."


class TakenByItself(Because, frozen=True):
    """How many nodes had room until other members of the gang were placed there."""

    n_nodes: int

    def __str__(self) -> str:
        return f"Of these, {self.n_nodes} had room until its other members were placed there."


class ReservedBy(Because, frozen=True):
    """Who has reserved how much of what is short. by: (the name, marked, and the amount)."""

    resource: str
    by: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        amount = amount_text(self.resource, sum(n for _, n in self.by))
        by_name = {name: amount_text(self.resource, n) for name, n in self.by}
        return f"{amount} {self.resource} are reserved by {named(by_name)}."


class UnhealthyDevices(Because, frozen=True):
    """(ID, node) of unhealthy devices where room is short; n_more are not named."""

    devices: tuple[tuple[str, str], ...]
    n_more: int

    def __str__(self) -> str:
        more = f", {self.n_more} more" if self.n_more else ""
        return f"Unhealthy: {', '.join(f'{one} on {node}' for one, node in self.devices)}{more}."


class HeldBy(Because, frozen=True):
    """A group, or another scheduler's pod, that holds what is short, and when it is due to end, by what."""

    kind: str
    name: str
    amount: int
    ends: datetime
    how: str


class HeldUntil(Because, frozen=True):
    """Who holds what is short and has a known end, the soonest first; n_more are not named."""

    resource: str
    by: tuple[HeldBy, ...]
    n_more: int

    def __str__(self) -> str:
        parts: list[str] = []
        for one in self.by:
            amount = amount_text(self.resource, one.amount)
            what = amount if parts else f"holds {amount} {self.resource}"
            parts.append(f"{marked(one.kind, [one.name])} {what} until {minute(one.ends)} ({one.how})")
        if self.n_more:
            parts.append(f"{self.n_more} more have a known end")
        return "; ".join(parts) + "."


class QueueFull(Because, frozen=True):
    """A queue's limit keeps a group out. kept: within the limit, for groups whose turn it is."""

    queue: str
    resource: str
    used: int
    limit: int
    kept: int
    needs: int

    def __str__(self) -> str:
        used, limit, kept, needs = (
            amount_text(self.resource, n) for n in (self.used, self.limit, self.kept, self.needs)
        )
        if self.needs > self.limit:
            what = f"needs {needs} {self.resource}, more than its limit of {limit}"
            return f"queue {self.queue}: {what}: it never starts"
        beside = f", {kept} {KEPT_FOR}" if self.kept else ""
        return f"queue {self.queue}: {used} of {limit} {self.resource} used{beside}, needs {needs}"


class DefinitionMissing(Because, frozen=True):
    """A gang's object does not exist, or nothing else defines it. missing: in words."""

    gang: str
    missing: str

    def __str__(self) -> str:
        return f"gang {self.gang} waits for {self.missing}"


class MembersMissing(Because, frozen=True):
    """A gang has been incomplete for a while. roles: which lack members, in words; more: what else is known
    of why, in words."""

    gang: str
    n_existing: int
    n_needed: int
    n_gated: int
    roles: str
    more: str

    def __str__(self) -> str:
        text = f"gang {self.gang} waits for members: {self.n_existing} of {self.n_needed} exist"
        gated = f", {self.n_gated} more are gated" if self.n_gated else ""
        return f"{text}{gated}{self.roles}{self.more}"


# -- not tried, or refused once it was placed --------------------------------------------------------------


class ProfileGone(Because, frozen=True):
    """A profile starts no gang any more."""

    profile: str

    def __str__(self) -> str:
        return f"profile {self.profile} is gone from the configuration"


class SetTooLarge(Because, frozen=True):
    """Too many groups start together; others: some that the gang lists. key: of the lists."""

    gang: str
    others: tuple[str, ...]
    n_most: int
    key: str

    def __str__(self) -> str:
        return (
            f"gang {self.gang} starts together with more than {self.n_most - 1} other groups, "
            f"directly ({', '.join(self.others)}…) or through them; at most {self.n_most} groups may start "
            f"together: shorten the lists in {self.key}"
        )


class SameName(Because, frozen=True):
    """A list names two groups of one name, one in each dialect."""

    gang: str
    name: str
    dialects: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        stated = " and ".join(f"a {dialect} one" for dialect in self.dialects)
        return (
            f"gang {self.gang} starts together with two groups named {self.name}, {stated}, and "
            f"{self.key} cannot tell them apart: rename one of them"
        )


class SetBusy(Because, frozen=True):
    """Another group of its set is being bound or unwound."""

    gang: str
    other: str
    state: str

    def __str__(self) -> str:
        other = marked("gang", [self.other])
        return f"gang {self.gang} starts together with {other}, which is {self.state}"


class LabelsNotIndexed(Because, frozen=True):
    """Pods are still being told apart by labels that selectors have only begun to use."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.labels[:MAX_NAMED]) + (", …" if len(self.labels) > MAX_NAMED else "")
        return (
            f"pods are still being indexed by labels that selectors have only begun to use ({named}); "
            "it is tried again within seconds"
        )


class RefusedInReserve(Because, frozen=True):
    """A plugin has refused a group that was placed, without a reason."""

    plugin: str

    def __str__(self) -> str:
        return f"{self.plugin} refused it in Reserve"


class RefusedInPermit(Because, frozen=True):
    """A plugin has refused a group that was reserved, without a reason."""

    plugin: str

    def __str__(self) -> str:
        return f"{self.plugin} refused it in Permit"


class AsksTooMuch(Because, frozen=True):
    """The pods of a unit ask too much together for one turn. where: the fields; n: how much, in words."""

    where: str
    n: str
    n_most: int

    def __str__(self) -> str:
        return (
            f"all pods that start together ask too much in {self.where}: {self.n},"
            f" at most {self.n_most:,} for one turn"
        )


class ClusterTooSmall(Because, frozen=True):
    """A gang's minResources are more than all nodes together have, in use or not."""

    gang: str
    resource: str
    wanted: int
    there: int

    def __str__(self) -> str:
        asks, have = amount_text(self.resource, self.wanted), amount_text(self.resource, self.there)
        return f"gang {self.gang}: minResources is {asks} {self.resource} and all nodes together have {have}"


class ExtendersSilent(Because, frozen=True):
    """Extenders were asked about a gang's nodes and have not answered."""

    def __str__(self) -> str:
        return "extenders did not answer in time"


# -- reservations that are given back ----------------------------------------------------------------------


class GaveBack(Because, frozen=True):
    """A gang has given its reservations back."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} gave its reservations back: {self.why}"


class RestDoesNotFit(Because, frozen=True):
    """What is missing of a gang does not fit beside what is reserved."""

    why: Why

    def __str__(self) -> str:
        return f"the rest does not fit beside what was reserved: {self.why}"


class PermitTimedOut(Because, frozen=True):
    """A gang has waited in Permit for too long. waits_for: for what; "": it is not known."""

    waits_for: Why
    again_s: float

    def __str__(self) -> str:
        why = f" ({words(self.waits_for)})" if self.waits_for else ""
        return f"WaitOnPermit timed out{why}; it is tried again in {self.again_s:g} s"


class RejectedBy(Because, frozen=True):
    """A person has rejected a gang that waited. reason: in that person's words."""

    user: str
    reason: str

    def __str__(self) -> str:
        return f"rejected by {marked('user', [self.user])}" + (f": {self.reason}" if self.reason else "")


class PreemptedBy(Because, frozen=True):
    """A more important gang or pod takes what was reserved."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"preempted by {marked(self.kind, [self.name], lead=f'{self.kind} ')}"


class VictimsStay(Because, frozen=True):
    """The victims of a preemption did not go in time."""

    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"preemption: its victims did not go in time: {marked('pod', self.pods)}"


class VictimsProtected(Because, frozen=True):
    """The rule by which victims were chosen does not allow them any more."""

    def __str__(self) -> str:
        return "preemption: its victims may no longer be evicted"


class VictimNotEvicted(Because, frozen=True):
    """The API server has refused to evict a victim, in its words."""

    code: int
    message: str

    def __str__(self) -> str:
        return f"preemption: a victim could not be evicted: {self.code} {self.message}"


class NodeGone(Because, frozen=True):
    """A node with reservations is gone."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} is gone"


class NodeTooFull(Because, frozen=True):
    """More is reserved and bound on a node than it offers now."""

    node: str
    resource: str

    def __str__(self) -> str:
        return f"node {self.node} no longer has enough {self.resource}"


class NodeRefuses(Because, frozen=True):
    """A node's cordon, taints or labels refuse a pod that is reserved there."""

    node: str

    def __str__(self) -> str:
        return f"node {self.node} does not take the pod any more (cordon, taint or label)"


class DeviceGone(Because, frozen=True):
    """A reserved device is not listed any more, or not healthy."""

    device: str
    resource: str
    node: str

    def __str__(self) -> str:
        return f"device {self.device} of {self.resource} on {self.node} is gone or unhealthy"


class DeviceTaken(Because, frozen=True):
    """A reserved device is held by another pod."""

    device: str
    resource: str
    node: str

    def __str__(self) -> str:
        return f"device {self.device} of {self.resource} on {self.node} is now held by another pod"


class DeviceGivenAway(Because, frozen=True):
    """kubelet has given a reserved device to another pod."""

    device: str
    node: str

    def __str__(self) -> str:
        return f"kubelet gave {self.device} on {self.node} to another pod"


class DeviceFailed(Because, frozen=True):
    """Devices have failed under a running pod. devices: in words."""

    devices: str
    node: str
    pod: str

    def __str__(self) -> str:
        return f"device {self.devices} on node {self.node} has failed under {self.pod}"


class MembersLeft(Because, frozen=True):
    """Members that waited have left, and too few are there. roles: which lack members, in words."""

    n_existing: int
    n_needed: int
    roles: str

    def __str__(self) -> str:
        return f"{self.n_existing} of {self.n_needed} members are left{self.roles}"


class RanPastWalltime(Because, frozen=True):
    """A gang or pod, with its kind in `name`, has run for longer than it stated. at: the end; None: the time
    of day is unknown."""

    name: str
    at: datetime | None

    def __str__(self) -> str:
        when = f", which was over{time_text('at', self.at)}" if self.at is not None else ""
        return f"{self.name} has run past its walltime{when}"


class Outdated(Enum):
    """Why something else should be reserved for a pod."""

    TAKEN = "another scheduler's pod has taken what was reserved"
    OTHER_DEVICES = "a member now asks for other devices than were reserved for it"
    RESIZED = "a member was resized since it was reserved"


class ReservationOutdated(Because, frozen=True):
    """Something else should be reserved for a pod."""

    how: Outdated

    def __str__(self) -> str:
        return self.how.value


# -- evictions, and devices that are not those planned -----------------------------------------------------


class EvictionRefused(Because, frozen=True):
    """The API server refuses to evict a pod, in its words."""

    pod: str
    code: int
    message: str

    def __str__(self) -> str:
        return f"evicting {self.pod}: {self.code} {self.message}"


class Evicted(Because, frozen=True):
    """Why all of a gang is evicted, as a sentence."""

    why: Why

    def __str__(self) -> str:
        return f"{self.why}."


class EvictedAgain(Because, frozen=True):
    """Why a gang is evicted, and that an eviction was refused."""

    why: Why
    refused: EvictionRefused

    def __str__(self) -> str:
        return f"{self.why} It is asked again, refused: {self.refused}"


class BeingBound(Because, frozen=True):
    """Pods that may be evicted are being bound. whose: which pods these are."""

    whose: str

    def __str__(self) -> str:
        return f"{self.whose} are being bound and can be evicted after that"


class VictimSearchEnded(Because, frozen=True):
    """The search for victims ended at its limit. whose: which pods might go."""

    whose: str
    n_looks: int

    def __str__(self) -> str:
        return f"the search for {self.whose} to evict ended at searchVictims ({self.n_looks})"


class NoVictimsFound(Because, frozen=True):
    """No choice of victims makes room."""

    def __str__(self) -> str:
        return "no set of victims was found that makes room"


class GivenOthers(Because, frozen=True):
    """kubelet gave a pod other devices than planned. now, planned: in words."""

    now: str
    planned: str

    def __str__(self) -> str:
        return f"kubelet gave it {self.now} instead of the planned {self.planned}"


class Exchanged(Because, frozen=True):
    """What was planned for a pod went to another one. now: the devices that it has instead, in words."""

    now: str

    def __str__(self) -> str:
        return f"what was planned for it went to another pod; instead it has {self.now}"


class WentToAnother(Because, frozen=True):
    """kubelet gave a device that was planned for a pod to another one."""

    device: str

    def __str__(self) -> str:
        return f"kubelet gave {self.device}, which was planned for it, to another pod"


class AgainstConstraint(Because, frozen=True):
    """The devices that a pod has do not satisfy its constraint, in words."""

    devices: tuple[str, ...]
    resource: str
    constraint: str

    def __str__(self) -> str:
        return f"{', '.join(self.devices)} are not {self.resource} {self.constraint}"


class ListedOtherwise(Because, frozen=True):
    """A pod's annotations or labels do not list the devices that it has. how: in words, as `has`."""

    how: str
    has: str

    def __str__(self) -> str:
        return f"{self.how}; it was given {self.has}"


# -- binds that failed -------------------------------------------------------------------------------------


class NotBound(Because, frozen=True):
    """No bind of a gang has landed."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} was not bound: {self.why}"


class StartedInPart(Because, frozen=True):
    """A gang has started with the members that it needs, and binds of others have failed."""

    gang: str
    why: Why

    def __str__(self) -> str:
        return f"gang {self.gang} has started without all of its members: {self.why}"


class AnswerUnclear(Because, frozen=True):
    """The API server gives no clear answer to a gang's binds. message: in its words."""

    gang: str
    message: str

    def __str__(self) -> str:
        return (
            f"gang {self.gang} keeps what it has reserved until the API server itself gives a clear answer: "
            f"{words(self.message)}"
        )


# -- what is kept for it, and from it ----------------------------------------------------------------------


class StartKept(Because, frozen=True):
    """A group has a claim. at: its start, in whole minutes; None: the time of day is unknown. n_unstated: how
    many pods on its nodes state no end, so that the start is an estimate."""

    at: datetime | None
    is_promise: bool
    n_nodes: int
    n_unstated: int

    def __str__(self) -> str:
        nodes = f"{self.n_nodes} node{'s' if self.n_nodes != 1 else ''}"
        if self.is_promise:
            return f"It starts{time_text('by', self.at)}: room is kept for it on {nodes}."
        about, n = time_text("about", self.at), self.n_unstated
        return f"An estimate: it starts{about}; room is kept for it on {nodes}; no end stated by {n} there."


class KeptForClaim(Because, frozen=True):
    """Free room that a claim keeps from a group, and when its own group starts."""

    resource: str
    amount: int
    kind: str
    name: str
    at: datetime | None
    is_promise: bool

    def __str__(self) -> str:
        amount = f"{amount_text(self.resource, self.amount)} {self.resource}"
        kept = f"{amount} are kept for {marked(self.kind, [self.name])}"
        if self.is_promise:
            return f"{kept}, which is promised to start{time_text('by', self.at)}."
        return f"{kept}, which may start{time_text('about', self.at)}."


class KeptLater(Because, frozen=True):
    """A group has been passed as often as its bound allows, and its claim would keep too much idle."""

    bound: int
    at: datetime | None
    resource: str

    def __str__(self) -> str:
        about = time_text("about", self.at)
        when = f" from{about}" if about else " later"
        return (
            f"It has reached its bound of {self.bound}, and room will be kept for it{when}:"
            f" until then that would keep too much {self.resource} idle."
        )


class PassedAtLimit(Because, frozen=True):
    """How many groups have passed one that a limit keeps out; is_kept: and no further ones do."""

    n: int
    bound: int
    is_kept: bool

    def __str__(self) -> str:
        is_kept = ", and what it needs is kept for it there" if self.is_kept else ""
        return f"{several(self.n, 'group')} passed it there (at most {self.bound} may){is_kept}."


class ClaimsFirst(Because, frozen=True):
    """A start would pass several groups that are at their bounds."""

    def __str__(self) -> str:
        return "groups ahead of it have been passed as often as allowed: room is kept for them first"


def time_text(preposition: str, at: datetime | None) -> str:
    """ " by 2026-01-02 03:04 UTC"; "" if it is not known."""
    return "" if at is None else f" {preposition} {at:%Y-%m-%d %H:%M} UTC"


def named(amounts: Mapping[str, int | str]) -> str:
    """ "a (16), b (8), 2 more"."""
    parts = [f"{name} ({n})" if len(amounts) > 1 else name for name, n in islice(amounts.items(), MAX_NAMED)]
    more = len(amounts) - len(parts)
    return ", ".join(parts) + (f", {more} more" if more else "")


def minute(at: datetime) -> str:
    """The time of an end that is known to the minute at best."""
    return f"about {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


# -- what is written and not done --------------------------------------------------------------------------


class NotDoneYet(Because, frozen=True):
    """Asked for what is right, and is not done here so far."""

    said: str

    def __str__(self) -> str:
        return self.said


class FilterOff(Because, frozen=True):
    """Asked for what a Filter enforces that the profile does not enable."""

    wish: str
    plugin: str

    def __str__(self) -> str:
        return f"{self.wish}: the filter {self.plugin}, which enforces it, is not enabled in this profile"


class DevicesOff(Because, frozen=True):
    """Asked for devices by name, by this annotation, in a profile without them."""

    key: str

    def __str__(self) -> str:
        return f"metadata.annotations: {self.key}: the plugin Devices is off in this pod's profile"


class PerhapsMisspelt(Because, frozen=True):
    """What is wrong with a group, and the keys on its pod that are not read and may be meant."""

    problem: str
    ignored: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.ignored}"


# -- waiting -----------------------------------------------------------------------------------------------


class Reserved(Because, frozen=True):
    """A gang holds its reservations and waits in Permit, for at most wait_s in all."""

    gang: str
    waits_for: Why
    wait_s: float

    def __str__(self) -> str:
        then = f"for {self.wait_s:g} s at most, then all is given back and tried again"
        return f"gang {self.gang} is reserved and waits: {words(self.waits_for)}; {then}"


class OthersOfSet(Because, frozen=True):
    """A gang waits for another one that starts with it."""

    def __str__(self) -> str:
        return "another group that starts with it"


class WithProblem(Because, frozen=True):
    """What a gang waits for, and the problem of another that it names."""

    why: Why
    problem: str

    def __str__(self) -> str:
        return f"{self.why} ({self.problem})"


class WaitsForVictims(Because, frozen=True):
    """Room is reserved until these pods are gone, of the kind `whose`."""

    n_nodes: int
    pods: tuple[str, ...]
    whose: str

    def __str__(self) -> str:
        pods = _counted(self.pods, self.whose, "to go")
        return f"preemption: room is reserved on {several(self.n_nodes, 'node')}; waiting for {pods}"


class WouldTake(Because, frozen=True):
    """Where a group would be placed if these pods might be evicted."""

    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    whose: str

    def __str__(self) -> str:
        where = ", ".join(self.nodes[:MAX_NAMED]) + (", …" if len(self.nodes) > MAX_NAMED else "")
        pods = _counted(self.pods, self.whose)
        return f"preemption: it would be placed on {where} in place of {pods}; nothing is evicted"


def _counted(pods: tuple[str, ...], whose: str, what: str = "") -> str:
    n = f"1 {whose.replace('pods', 'pod', 1)}" if len(pods) == 1 else f"{len(pods)} {whose}"
    return f"{n}{' ' if what else ''}{what}: {marked('pod', pods)}"


class EvictionsPaused(Because, frozen=True):
    """Rounds of evictions did not let a group start, and the next has to wait. by_others: its room was taken
    by pods of another scheduler."""

    n_rounds: int
    by_others: bool
    left_s: int

    def __str__(self) -> str:
        how = ", as pods of another scheduler took the room" if self.by_others else ""
        return (
            f"preemption: {several(self.n_rounds, 'round')} of evictions did not let it start{how}; "
            f"no pod is evicted for it for another {self.left_s} s"
        )


class SearchesLater(Because, frozen=True):
    """Searches for victims that found none have had their share of the time."""

    def __str__(self) -> str:
        return (
            "preemption: failed searches have had their share of time; "
            "it looks for victims after its backoff."
        )


class RoomLost(Because, frozen=True):
    """The room that evictions made is gone. why: why it does not fit now."""

    why: Why

    def __str__(self) -> str:
        return f"preemption: the room that was made for it is gone: {self.why}"


class NoVictims(Because, frozen=True):
    """kube-scheduler's sentence on preemption: nodes where evicting pods might help, and the others."""

    n_nodes: int
    n_helpful: int

    def __str__(self) -> str:
        counts = [
            (self.n_helpful, "No preemption victims found for incoming pod"),
            (self.n_nodes - self.n_helpful, "Preemption is not helpful for scheduling"),
        ]
        text = ", ".join(f"{n} {why}" for n, why in counts if n)
        return f"0/{self.n_nodes} nodes are available: {text}."


class EvenWithAllGone(Because, frozen=True):
    """Preemption does not help. whose: the pods that might go; may_exist: the search ended before all
    placements beside some of them were tried."""

    whose: str
    why: Why
    may_exist: bool = False

    def __str__(self) -> str:
        more = " A placement beside some of them may exist: the search ended first." if self.may_exist else ""
        return f"even with all {self.whose} gone, {self.why}{more}"
