"""Owner and Claim: what a controller's object says of its pods, and what a pod says of its controller.

Both are plain values in which no controller is left: core.groups.owners puts them together without knowing
what a JobSet is. Made by the files beside this one, one for each controller.
"""

from __future__ import annotations

import enum
from typing import Annotated, NamedTuple

import msgspec

from gangsched.model.dialects.numbers import MAX_MEMBERS
from gangsched.model.objects import ObjectMeta

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMBERS)]
"""A number of pods or of replicas; what is beyond costs the object that has it."""
DEFAULT_SCHEDULER = "default-scheduler"


class Start(enum.Enum):
    """When a controller creates the pods of one gang."""

    AT_ONCE = "at-once"
    LEADER_FIRST = "leader-first"
    ROLE_BY_ROLE = "role-by-role"
    NO_GANG = "no-gang"


class OwnerName(NamedTuple):
    """Which object; `kind` as the API has it."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Role(msgspec.Struct, frozen=True, gc=False):
    """Pods of one template. count: how many must start together; scheduler_name: "" where none is named.

    n_owed: how many of these have not succeeded, None where the object does not say.
    """

    name: str
    count: int
    scheduler_name: str = ""
    n_owed: int | None = None


class Owner(msgspec.Struct, frozen=True, gc=False):
    """What an object says of its pods.

    why: the field that has them start otherwise than all at once, and what it does; cure: what its user may
    do about it. waits: what the object lacks until its numbers count. problem: what is wrong with it.
    deadline_s: so long after began_at, in Unix time, its controller ends all of it, None: never.
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

    def n_pods(self, scheduler_name: str, role: str = "") -> int:
        """How many pods start together that are this scheduler's; with `role` only of that one.

        Where templates name this scheduler, the others are somebody else's. Where none does, it was set on
        the pods when they were made, and all of them are counted.
        """
        return sum(one.count for one in self._own(scheduler_name, role))

    def n_owed(self, scheduler_name: str, role: str = "") -> int | None:
        """How many of these have not succeeded, None where the object does not say."""
        owed = [one.n_owed for one in self._own(scheduler_name, role)]
        return None if None in owed else sum(n for n in owed if n is not None)

    def _own(self, scheduler_name: str, role: str) -> list[Role]:
        roles = [one for one in self.roles if not role or one.name == role]
        own = [one for one in roles if (one.scheduler_name or DEFAULT_SCHEDULER) == scheduler_name]
        if not any(one.scheduler_name == scheduler_name for one in self.roles):
            own = [one for one in roles if not one.scheduler_name] or roles
        return own


class Claim(NamedTuple):
    """What a pod says of the gang that its controller makes of it.

    dialect, group and uid: of the gang's key. owner: the object to be asked, None where the pod says all.
    n_pods: the gang's number as the pod has it, 0: it is in the object. start, why and cure: as in Owner,
    where already the pod tells. may_miss_owner: the pod's number counts where the object's kind is not
    served. stated: what all members must say alike.
    """

    dialect: str
    group: str
    uid: str = ""
    owner: OwnerName | None = None
    n_pods: int = 0
    role: str = ""
    is_leader: bool = False
    may_miss_owner: bool = False
    start: Start = Start.AT_ONCE
    why: str = ""
    cure: str = ""
    problem: str = ""


def named(kind: str, meta: ObjectMeta) -> OwnerName:
    """The name of the object with this metadata."""
    return OwnerName(kind, meta.namespace, meta.name)


def read_count(text: str | None, field: str) -> tuple[int, str]:
    """The number in a label or annotation, or what is wrong with it."""
    if text is not None and text.isdecimal() and text.isascii() and 0 < len(text) < 10:
        number = int(text)
        if 1 <= number <= MAX_MEMBERS:
            return number, ""
    shown = "missing" if text is None else f"{text[:80]!r}"
    return 0, f"{field}: {shown}, it should be a whole number from 1 to {MAX_MEMBERS}"


def checked(owner: Owner) -> Owner:
    """The same, with its problem where its numbers add up to too much."""
    total = sum(role.count for role in owner.roles)
    if total <= MAX_MEMBERS:
        return owner
    problem = f"{owner.named} has {total} pods, at most {MAX_MEMBERS} can be a gang"
    return msgspec.structs.replace(owner, problem=problem)
