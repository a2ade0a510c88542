"""Owners: gangs that no pod names, inferred from pods and their controllers' objects.

Here: owners as last read, which groups depend on which, and what each namespace infers. Not here: what each
controller writes (model.owners), pods and their groups (core.groups.members.membership). A pod whose owner
has not been seen waits with its gang, with a message; it is never started alone. Called by core.scheduler,
core.groups.members.membership, core.groups.members.pod_similarity, group_spec and reconciler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from msgspec.structs import replace

from gangsched.core.binding.start_records import numbers_of
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import DONE, Group, GroupState
from gangsched.core.why import Why
from gangsched.core.why.incomplete import NeverAtOnce, OwnerNotReady, OwnerUnseen, OwnerUnserved
from gangsched.core.why.nodes import FormerRevisions
from gangsched.errors import ParseError
from gangsched.model.events import OwnerGone, OwnerPut
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners import (
    INFER_LABEL,
    ORDERED,
    Claim,
    Owner,
    OwnerName,
    Role,
    Start,
    claim_of,
    is_marked,
    kinds_read,
    owners_of,
)
from gangsched.model.owners.dialects import WHOLE
from gangsched.model.pod_group import GroupKey, PodGroup, group_from_pod, lone_key
from gangsched.reading.strict import nearest

# Limits on objects that do not decode, and on owners that were reported; the oldest are forgotten.
_MAX_REFUSED = 10_000
_MAX_TOLD = 10_000
# Limit on the groups of one owner that are looked at for a message.
_MAX_SIBLINGS = 256
# Limits on members searched for what makes them, and on what is named.
_MAX_LOOKED_AT = 1_000
MAX_MAKERS = 4
_ALL, _NONE = "all", "none"


class Owners:
    """Controllers' objects, and the keys and numbers of the gangs inferred from them."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._known: dict[OwnerName, Owner] = {}
        self._refused: dict[OwnerName, str] = {}
        """Errors of objects that do not decode."""
        self._unserved: dict[str, None] = {}
        """Kinds, by the names under which they are watched, that the API server lacks or denies us."""
        self._namespaces: dict[str, tuple[str, ...]] = {}
        """Namespaces with a setting of their own -> what is inferred there."""
        self.asked_for: dict[str, None] = {}
        """Kinds that must be watched for some namespace, by the names under which they are watched."""
        self._groups: dict[OwnerName, dict[GroupKey, None]] = {}
        """Owner -> groups whose key or number depends on it, whether it has been seen or not."""
        self._owner_of: dict[GroupKey, OwnerName] = {}
        self._reported: dict[str, None] = {}
        """UIDs of owners reported as not one gang."""

    def all(self) -> list[Owner]:
        """Owners as last read."""
        return list(self._known.values())

    def owner(self, key: GroupKey) -> Owner | None:
        """The object that the group's key or number depends on, if it has been seen."""
        named = self._owner_of.get(key)
        return None if named is None else self._known.get(named)

    # -- events ----------------------------------------------------------------------------------------

    def put(self, event: OwnerPut) -> list[Group]:
        """Takes an owner's current state; returns the groups that it may change."""
        owner = event.owner
        before = self._known.get(owner.named)
        self._known[owner.named] = owner
        was_refused = self._refused.pop(owner.named, None) is not None
        if before is not None and not was_refused:
            # No gang depends on its controller's deadline.
            now = replace(owner, deadline_s=before.deadline_s, began_at=before.began_at)
            return self._of(owner.named) if before != now else []
        return self._of(owner.named)

    def remove(self, event: OwnerGone) -> list[Group]:
        """Forgets an owner that is gone; its pods will follow."""
        known = self._known.get(event.named)
        self._refused.pop(event.named, None)
        if known is not None and known.uid == event.uid:
            del self._known[event.named]
        return self._of(event.named)

    def refuse(self, named: OwnerName, message: str) -> list[Group]:
        """Records that the object does not decode; forgets what was known about it."""
        self._known.pop(named, None)
        self._refused[named] = message
        if len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        return self._of(named)

    def served(self, kind: str, is_served: bool) -> list[Group]:
        """Records whether the API server serves this kind to us; returns the groups that may change."""
        if (kind not in self._unserved) is is_served:
            return []
        if is_served:
            del self._unserved[kind]
        else:
            self._unserved[kind] = None
        names = [named for named in self._groups if _followed_as(named) == kind]
        return [group for named in names for group in self._of(named)]

    def put_namespace(self, meta: ObjectMeta) -> list[Group]:
        """Takes a namespace's current state; returns its groups if inference there has changed."""
        text = (meta.labels or {}).get(INFER_LABEL)
        before = self._namespaces.get(meta.name)
        if text is None:
            if before is None:
                return []
            del self._namespaces[meta.name]
        else:
            inferred, unknown = read_inferred(text.split("."))
            if unknown:
                self._reporter.refused(
                    "Namespace", "", meta.name, meta.uid, f"label {INFER_LABEL}: {unknown}"
                )
            if inferred == before:
                return []
            self._namespaces[meta.name] = inferred
            self.asked_for.update(dict.fromkeys(kinds_read(inferred)))
        return [group for key, group in self._shared.groups.items() if key.namespace == meta.name]

    def _of(self, named: OwnerName) -> list[Group]:
        groups = self._shared.groups
        return [groups[key] for key in self._groups.get(named, ()) if key in groups]

    # -- which pod belongs where --------------------------------------------------------------------------

    def claim_of(self, pod: Pod) -> Claim | None:
        """The gang that the pod's controller implies, if such gangs are inferred."""
        inferred = self._namespaces.get(pod.metadata.namespace)
        if inferred is None:
            inferred = self._shared.settings.infer_gangs.get(pod.spec.scheduler_name, ())
        return claim_of(pod, inferred) if inferred else None

    def key_of(self, pod: Pod) -> GroupKey | None:
        """The group of a pod that names none; None if nothing is inferred. Raises: ParseError."""
        claim = self.claim_of(pod)
        if claim is None:
            return None
        if claim.problem:
            raise ParseError(claim.problem)
        start = self._start(claim, pod)
        name = claim.group
        if start is Start.ROLE_BY_ROLE and claim.role:
            name = f"{name}-{claim.role}"
        key = GroupKey(claim.dialect, pod.metadata.namespace, name, claim.uid)
        if start is Start.NO_GANG or (start is Start.LEADER_FIRST and claim.is_leader):
            key = lone_key(pod)
        if claim.owner is not None:
            self._groups.setdefault(claim.owner, {})[key] = None
            self._owner_of[key] = claim.owner
        return key

    def key_of_stranger(self, pod: Pod) -> GroupKey | None:
        """The gang that another scheduler's pod counts for; only if the pod itself states the number."""
        if not is_marked(pod):
            return None
        claim = claim_of(pod, self._namespaces.get(pod.metadata.namespace, self._anywhere))
        if claim is None or not claim.n_pods:
            return None
        return GroupKey(claim.dialect, pod.metadata.namespace, claim.group, claim.uid)

    @property
    def _anywhere(self) -> tuple[str, ...]:
        wanted = {name for names in self._shared.settings.infer_gangs.values() for name in names}
        return tuple(name for name in ORDERED if name in wanted)

    def _start(self, claim: Claim, pod: Pod) -> Start:
        """When its controller creates the gang's pods. Reports once each owner that is not one gang."""
        owner = self._known.get(claim.owner) if claim.owner is not None else None
        if owner is None or owner.start is Start.AT_ONCE:
            owner, start = None, claim.start
        else:
            start = owner.start
        why = _how(claim, owner)
        if why and not pod.spec.node_name:
            about = claim.owner if owner is None else owner.uid
            self._tell(str(about), f"{claim.owner} is not one gang, {why}", pod)
        return start

    def _tell(self, owner: str, message: str, pod: Pod) -> None:
        if owner in self._reported:
            return
        self._reported[owner] = None
        if len(self._reported) > _MAX_TOLD:
            del self._reported[next(iter(self._reported))]
        self._reporter.pod_event(pod, "Warning", "NotOneGang", "Scheduling", message)

    def starts_apart(self, group: Group) -> str:
        """How the pods that belong together with a lone pod start, and why; "" if none do."""
        info = group.first()
        claim = self.claim_of(info.pod) if info is not None and not group.is_gang else None
        if claim is None or claim.owner is None:
            return ""
        owner = self._known.get(claim.owner)
        how = _how(claim, None if owner is None or owner.start is Start.AT_ONCE else owner)
        return how and f"{claim.owner}: {how}"

    def forget(self, group: Group) -> None:
        """Forgets what was recorded for a group that is gone."""
        named = self._owner_of.pop(group.key, None)
        if named is not None:
            keys = self._groups[named]
            keys.pop(group.key, None)
            if not keys:
                del self._groups[named]

    # -- how many --------------------------------------------------------------------------------------

    def numbers(self, group: Group) -> tuple[PodGroup | None, str]:
        """(the numbers of a gang made by a controller, None if unknown; what is wrong with them)."""
        info = group.first()
        claim = None if info is None else self.claim_of(info.pod)
        if info is None or claim is None:
            return group.definition, ""
        owner, start, n_pods = None, claim.start, claim.n_pods
        least: dict[str, int] = {}
        leading = [claim.leading_role] if claim.leading_role and claim.role else []
        if claim.owner is not None:
            if claim.owner in self._refused:
                return None, f"{claim.owner}: {self._refused[claim.owner]}"
            owner = self._known.get(claim.owner)
            if owner is None and not (claim.may_miss_owner and _followed_as(claim.owner) in self._unserved):
                return self._as_it_was(group, info.pod), ""
        if owner is not None:
            if owner.problem:
                return None, owner.problem
            if owner.waits:
                return self._as_it_was(group, info.pod), ""
            start = claim.start if owner.start is Start.AT_ONCE else owner.start
            role = claim.role if start is Start.ROLE_BY_ROLE else ""
            is_owed = not claim.n_pods and owner.n_owed(group.scheduler_name, role) is not None
            if is_owed and group.definition is not None and _is_counted(group):
                return group.definition, ""
            # Not for a gang found running: its later pods come one by one as earlier ones succeed.
            is_owed = is_owed and not (group.n_holding and group.counts[DONE])
            roles = owner.own_roles(group.scheduler_name, role)
            n_pods = n_pods or sum(one.count for one in roles)
            if is_owed:
                n_pods = sum(one.n_owed or 0 for one in roles) + group.counts[DONE]
            if info.role in {one.name for one in roles}:
                least = _least_of_each(group, roles, is_owed=is_owed)
            leading += [one.name for one in roles if one.leads]
        if start is Start.LEADER_FIRST:
            n_pods, leading = n_pods - 1, []
        n_pods = max(1, n_pods)
        read = (info.stated, n_pods, least, leading)
        if group.definition is not None and group.read_from == read:
            return group.definition, ""
        group.read_from = read
        return _definition(group, info.pod, n_pods, least, leading)

    @staticmethod
    def _as_it_was(group: Group, pod: Pod) -> PodGroup | None:
        """Keeps the numbers that a gang was started with until it has ended; its Bindings have them too."""
        if group.definition is None and (bound_by := numbers_of(group)) is not None:
            return _definition(group, pod, bound_by.min_count, {}, ())[0]
        return group.definition if group.n_bound or group.state is GroupState.BINDING else None

    # -- words -----------------------------------------------------------------------------------------

    def why_missing(self, group: Group) -> Why:
        """What the gang's number waits for; "" if its owner is not one of these."""
        named = self._owner_of.get(group.key)
        if named is None:
            return ""
        owner = self._known.get(named)
        if owner is not None:
            return OwnerNotReady(str(named), owner.waits)
        return (OwnerUnserved if _followed_as(named) in self._unserved else OwnerUnseen)(str(named))

    def former_revisions(self, group: Group) -> Why:
        """A sentence on pods of the same owner's former revisions that hold room while the group has none; ""
        if there are none."""
        named, info = self._owner_of.get(group.key), group.first()
        claim = None if named is None or info is None else self.claim_of(info.pod)
        if named is None or claim is None or not claim.revision:
            return ""
        n_former = 0
        for key in islice(self._groups[named], _MAX_SIBLINGS):
            other = self._shared.groups.get(key)
            if other is None or other is group or not other.n_holding:
                continue
            first = other.first()
            theirs = None if first is None else self.claim_of(first.pod)
            if theirs is not None and theirs.revision and theirs.revision != claim.revision:
                n_former += other.n_holding
        return FormerRevisions(n_former, str(named), claim.update) if n_former else ""

    def makers(self, group: Group) -> dict[OwnerName, Owner | None]:
        """The objects that make its members, MAX_MAKERS and one more at the most, as last read; None: not
        seen. Empty if something else has made one of its members."""
        found: dict[OwnerName, Owner | None] = {}
        for info in islice(group.members.values(), _MAX_LOOKED_AT):
            meta = info.pod.metadata
            of = owners_of(info.pod) or tuple(
                OwnerName(one.kind, meta.namespace, one.name)
                for one in meta.owner_references or ()
                if one.controller
            )
            if not of:
                return {}
            for named in of:
                found.setdefault(named, self._known.get(named))
            if len(found) > MAX_MAKERS:
                break
        return found

    def why_never(self, group: Group) -> Why:
        """Why the missing members will not come while the existing ones wait; "" if they may."""
        info = group.first()
        for named in () if info is None else owners_of(info.pod):
            owner = self._known.get(named)
            if owner is not None and owner.why and self._owner_of.get(group.key) != named:
                return NeverAtOnce(str(named), owner.why, owner.cure)
        return ""


def read_inferred(names: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """(the kinds of inference that are named, in order of precedence; what is wrong with another name)."""
    wanted = [name for name in names if name]
    if _ALL in wanted:
        return ORDERED, ""
    known = {name.lower(): name for name in ORDERED}
    found = {known[name.lower()] for name in wanted if name.lower() in known}
    unknown = [name for name in wanted if name.lower() not in known and name != _NONE]
    text = ""
    if unknown:
        all_names = ", ".join((*ORDERED, _ALL, _NONE))
        text = f"{unknown[0][:63]!r} is not one of {all_names}{nearest(unknown[0], ORDERED)}"
    return tuple(name for name in ORDERED if name in found), text


def _is_counted(group: Group) -> bool:
    """Whether the gang keeps the numbers that it was started with: its members have begun to succeed, or may
    do so at any moment. Its object shows a success later than the pod does, and must not enlarge a gang that
    is being bound.
    """
    return group.state is GroupState.BINDING or (group.n_holding > 0 and group.counts[DONE] > 0)


def _how(claim: Claim, owner: Owner | None) -> str:
    """How an owner's pods start if they are not one gang, why, and what its user can do; "" if they are."""
    of = claim if owner is None else owner
    if not of.why:
        return ""
    how = "each of its roles is a gang of its own"
    if of.start is Start.NO_GANG:
        how = "its pods are started one by one"
    elif of.start is Start.LEADER_FIRST:
        if not claim.is_leader:
            return ""
        how = (
            f"its leader is started alone, and no room is kept for its workers ({claim.n_pods - 1}), which "
            "may find none"
        )
    return f"{how}: {of.why}; {of.cure}"


def _least_of_each(group: Group, roles: Iterable[Role], *, is_owed: bool) -> dict[str, int]:
    """Role -> how many of it must start together, ended ones included. is_owed: by what has not succeeded."""
    least: dict[str, int] = {}
    for one in roles:
        least[one.name] = least.get(one.name, 0) + ((one.n_owed or 0) if is_owed else one.count)
    if is_owed and group.counts[DONE]:
        for info in group.in_state(DONE):
            least[info.role] = least.get(info.role, 0) + 1
    return least if len(least) > 1 else {}


def _definition(
    group: Group, pod: Pod, n_pods: int, least: Mapping[str, int], leading: Collection[str]
) -> tuple[PodGroup | None, str]:
    """least: how many of each role start together. A gang that may start with fewer needs only the leading
    roles: nothing states how many of the others are enough. With 1 each pod may start by itself.
    """
    try:
        stated = group_from_pod(group.key, pod)
    except ParseError as error:
        return None, f"gang {group.key}: {error}"
    min_count = n_pods if stated.min_count == WHOLE else min(stated.min_count, n_pods)
    if min_count < n_pods:
        least = dict.fromkeys(leading if min_count > 1 else (), 1)
    return replace(stated, min_count=min_count, roles={role: n for role, n in least.items() if n}), ""


def _followed_as(named: OwnerName) -> str:
    return f"owners.{named.kind}"
