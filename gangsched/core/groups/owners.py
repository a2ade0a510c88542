"""Owners: gangs that no pod names, inferred from pods and their controllers' objects.

Here: owners as last read, which groups depend on which, and what each namespace infers. Not here: what each
controller writes (model.owners), pods and their groups (core.groups.membership). A pod whose owner has
not been seen waits with its gang, with a message; it is never started alone. Called by core.scheduler,
core.groups.membership, pod_similarity, group_spec and reconciler.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from gangsched.config.strict import nearest
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import DONE, Group, GroupState
from gangsched.errors import ParseError
from gangsched.model.events import OwnerGone, OwnerPut
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners import (
    INFER_LABEL,
    ORDERED,
    Claim,
    Owner,
    OwnerName,
    Start,
    claim_of,
    is_marked,
    kinds_read,
    owners_of,
)
from gangsched.model.owners.dialects import WHOLE
from gangsched.model.pod_group import GroupKey, PodGroup, group_from_pod, lone_key

# Limits on objects that do not decode, and on owners that were reported; the oldest are forgotten.
_MAX_REFUSED = 10_000
_MAX_TOLD = 10_000
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
        self._told: dict[str, None] = {}
        """UIDs of owners reported as not one gang."""
        shared.on_given_back.append(self._left)

    def all(self) -> list[Owner]:
        """Owners as last read."""
        return list(self._known.values())

    def of_group(self, key: GroupKey) -> Owner | None:
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
            return claim.start
        if owner.start is not Start.LEADER_FIRST and owner.why and not pod.spec.node_name:
            self._tell(owner, pod)
        return owner.start

    def _tell(self, owner: Owner, pod: Pod) -> None:
        if owner.uid in self._told:
            return
        self._told[owner.uid] = None
        if len(self._told) > _MAX_TOLD:
            del self._told[next(iter(self._told))]
        how = "each of its roles is a gang of its own"
        if owner.start is Start.NO_GANG:
            how = "its pods are started one by one"
        message = f"{owner.named} is not one gang, {how}: {owner.why}; {owner.cure}"
        self._reporter.pod_event(pod, "Warning", "NotOneGang", "Scheduling", message)

    def _left(self, group: Group) -> None:
        """Forgets what was recorded for a group that is gone."""
        if group.members:
            return
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
        if claim.owner is not None:
            if claim.owner in self._refused:
                return None, f"{claim.owner}: {self._refused[claim.owner]}"
            owner = self._known.get(claim.owner)
            if owner is None and not (claim.may_miss_owner and _followed_as(claim.owner) in self._unserved):
                return self._as_it_was(group), ""
        if owner is not None:
            if owner.problem:
                return None, owner.problem
            if owner.waits:
                return self._as_it_was(group), ""
            start = claim.start if owner.start is Start.AT_ONCE else owner.start
            role = claim.role if start is Start.ROLE_BY_ROLE else ""
            n_pods = n_pods or owner.n_pods(group.scheduler_name, role)
            n_owed = None if claim.n_pods else owner.n_owed(group.scheduler_name, role)
            if n_owed is not None:
                if group.definition is not None and _is_counted(group):
                    return group.definition, ""
                # Not for a gang found running: its later pods come one by one as earlier ones succeed.
                if not (group.n_holding and group.counts[DONE]):
                    n_pods = n_owed + group.counts[DONE]
        n_pods = max(1, n_pods - (start is Start.LEADER_FIRST))
        if group.definition is not None and group.read_from == (info.stated, n_pods):
            return group.definition, ""
        group.read_from = (info.stated, n_pods)
        return _definition(group, info.pod, n_pods)

    @staticmethod
    def _as_it_was(group: Group) -> PodGroup | None:
        """Keeps the numbers that a gang was started with until it has ended."""
        return group.definition if group.n_bound or group.state is GroupState.BINDING else None

    # -- words -----------------------------------------------------------------------------------------

    def missing(self, group: Group) -> str:
        """What the gang's number waits for; "" if its owner is not one of these."""
        named = self._owner_of.get(group.key)
        if named is None:
            return ""
        owner = self._known.get(named)
        if owner is not None:
            return f"{named}, which {owner.waits}"
        if _followed_as(named) in self._unserved:
            return (
                f"{named}, but the API server does not serve this kind or does not let the scheduler read "
                "it; inferGangs or a label on the namespace turns this off"
            )
        return f"{named}, which has not been seen (yet)"

    def never(self, group: Group) -> str:
        """Why the missing members will not come while the existing ones wait; "" if they may."""
        info = group.first()
        for named in () if info is None else owners_of(info.pod):
            owner = self._known.get(named)
            if owner is not None and owner.why and self._owner_of.get(group.key) != named:
                return f"{named} never has all its pods at once: {owner.why}; {owner.cure}"
        return ""


def read_inferred(names: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """(the kinds of inference that are named, in order of precedence; what is wrong with another name)."""
    wanted = [name for name in names if name]
    if _ALL in wanted:
        return ORDERED, ""
    known = {name.lower(): name for name in ORDERED}
    found = {known[name.lower()] for name in wanted if name.lower() in known}
    unknown = [name for name in wanted if name.lower() not in known and name != _NONE]
    said = ""
    if unknown:
        all_names = ", ".join((*ORDERED, _ALL, _NONE))
        said = f"{unknown[0][:63]!r} is not one of {all_names}{nearest(unknown[0], ORDERED)}"
    return tuple(name for name in ORDERED if name in found), said


def _is_counted(group: Group) -> bool:
    """Whether the gang keeps the numbers that it was started with: its members have begun to succeed, or may
    do so at any moment. Its object shows a success later than the pod does, and must not enlarge a gang that
    is being bound.
    """
    return group.state is GroupState.BINDING or (group.n_holding > 0 and group.counts[DONE] > 0)


def _definition(group: Group, pod: Pod, n_pods: int) -> tuple[PodGroup | None, str]:
    try:
        stated = group_from_pod(group.key, pod)
    except ParseError as error:
        return None, f"gang {group.key}: {error}"
    min_count = n_pods if stated.min_count == WHOLE else min(stated.min_count, n_pods)
    return replace(stated, min_count=min_count), ""


def _followed_as(named: OwnerName) -> str:
    return f"owners.{named.kind}"
