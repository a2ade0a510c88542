"""Owner: what a controller's object states about its pods. Claim: what a pod states about its controller.

Both are plain values independent of the kind of controller: core.groups.owners combines them without knowing
what a JobSet is. The files beside this one make them, one for each controller.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from gangsched.model.dialects.numbers import MAX_MEMBERS
from gangsched.model.objects import ObjectMeta

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]
"""A number of pods or replicas; an object with a larger one does not decode."""
DEFAULT_SCHEDULER = "default-scheduler"


class Start(enum.Enum):
    """When a controller creates the pods of one gang."""

    AT_ONCE = "at-once"
    LEADER_FIRST = "leader-first"
    ROLE_BY_ROLE = "role-by-role"
    NO_GANG = "no-gang"


class OwnerName(NamedTuple):
    """Names an object; `kind` as in the API."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Role(msgspec.Struct, frozen=True, gc=False):
    """Pods of one template. count: how many must start together; scheduler_name: "" if not set.

    n_owed: how many of these have not succeeded; None if the object does not state it. leads: the pods of
    other roles are of no use without it.
    """

    name: str
    count: int
    scheduler_name: str = ""
    n_owed: int | None = None
    leads: bool = False


class Owner(msgspec.Struct, frozen=True, gc=False):
    """What an object states about its pods.

    why: the field because of which they do not start all at once, and its effect; cure: what its user can do
    about it. waits: what the object still lacks before its numbers count. problem: what is wrong with it.
    admitted: what Kueue has admitted of it and still counts, as in model.resources; owns: UIDs of its owners.
    deadline_s: its controller ends everything this long after began_at (Unix time); None: never. at_once: how
    many pods it makes at the same time, of all templates; None: more may come without a change of the object.
    """

    named: OwnerName
    uid: str
    roles: tuple[Role, ...] = ()
    start: Start = Start.AT_ONCE
    why: str = ""
    cure: str = ""
    waits: str = ""
    problem: str = ""
    deadline_s: int | None = None
    began_at: float = 0.0
    admitted: Mapping[str, int] = {}
    owns: tuple[str, ...] = ()
    at_once: int | None = None

    def n_pods(self, scheduler_name: str, role: str = "") -> int:
        """Returns how many of this scheduler's pods start together; with `role`, only pods of that role.

        If some templates name this scheduler, the rest belong to another one. If none does, the scheduler was
        set on the pods when they were created, and all pods count.
        """
        return sum(one.count for one in self.own_roles(scheduler_name, role))

    def n_owed(self, scheduler_name: str, role: str = "") -> int | None:
        """Returns how many of these have not succeeded; None if the object does not state it."""
        owed = [one.n_owed for one in self.own_roles(scheduler_name, role)]
        return None if None in owed else sum(n for n in owed if n is not None)

    def own_roles(self, scheduler_name: str, role: str = "") -> list[Role]:
        """Returns the roles of which these pods are."""
        roles = [one for one in self.roles if not role or one.name == role]
        own = [one for one in roles if (one.scheduler_name or DEFAULT_SCHEDULER) == scheduler_name]
        if not any(one.scheduler_name == scheduler_name for one in self.roles):
            own = [one for one in roles if not one.scheduler_name] or roles
        return own


class Claim(NamedTuple):
    """What a pod states about the gang that its controller makes it part of.

    dialect, group, uid: parts of the gang's key. owner: the object to read; None if the pod states
    everything. n_pods: the gang's size as stated on the pod; 0: the object states it. start, why, cure: as in
    Owner, if the pod already determines them. role: the pod's; leading_role: the one without which the pods
    of others are of no use, where the pod states it. may_miss_owner: the pod's number counts if the object's
    kind is not served. revision: which version of its owner's template the pod is of; update: what lets an
    update go on that waits for the pods of a former one. stated: values that must be equal on all members.
    """

    dialect: str
    group: str
    uid: str = ""
    owner: OwnerName | None = None
    n_pods: int = 0
    role: str = ""
    leading_role: str = ""
    is_leader: bool = False
    may_miss_owner: bool = False
    start: Start = Start.AT_ONCE
    why: str = ""
    cure: str = ""
    problem: str = ""
    revision: str = ""
    update: str = ""


def named(kind: str, meta: ObjectMeta) -> OwnerName:
    """Returns the name of the object with this metadata."""
    return OwnerName(kind, meta.namespace, meta.name)


def read_count(text: str | None, field: str) -> tuple[int, str]:
    """Reads the number in a label or annotation; returns (number, "") or (0, what is wrong)."""
    if text is not None and text.isdecimal() and text.isascii() and 0 < len(text) < 10:
        number = int(text)
        if 1 <= number <= MAX_MEMBERS:
            return number, ""
    shown = "missing" if text is None else f"{text[:80]!r}"
    return 0, f"{field}: {shown}, it should be a whole number from 1 to {MAX_MEMBERS}"


def checked(owner: Owner) -> Owner:
    """Returns the owner, with a problem added if its numbers sum to more than a gang may have."""
    total = sum(role.count for role in owner.roles)
    if total <= MAX_MEMBERS:
        return owner
    problem = f"{owner.named} has {total} pods, at most {MAX_MEMBERS} can be a gang"
    return msgspec.structs.replace(owner, problem=problem)
