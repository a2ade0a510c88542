"""GroupSpecs: a group's requirements, computed from its object, its members, and other schedulers' pods.

Here: PodGroup objects as read, and other schedulers' pods that name a group of ours. A mistake becomes
the group's `problem` and is reported to its members; it never raises. Called by
core.groups.members.membership and core.scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from gangsched.config.by_profile import IGNORE, REFUSE
from gangsched.core.binding.start_records import bound_by, numbers_of
from gangsched.core.groups.own_keys import OwnKeys, ignored_on_object
from gangsched.core.groups.owners import Owners
from gangsched.core.groups.priorities import ignored_wish, set_priority
from gangsched.core.resource_claims.pod_claims import SharingGroup
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import Group, MemberState, PodInfo
from gangsched.core.types.states import BINDING
from gangsched.core.why import Why
from gangsched.core.why.not_tried import PerhapsMisspelt
from gangsched.errors import ParseError
from gangsched.model.events import PodGroupAdded, PodGroupDeleted, PodGroupUpdated
from gangsched.model.objects import Pod
from gangsched.model.pod_group import (
    CORE,
    N_COMMON,
    POD,
    GroupKey,
    PodGroup,
    api_group_order,
    group_from_object,
    group_from_pod,
    group_key,
    is_inferred,
    needs_object,
    one_speaks,
    stated_names,
    with_wishes_of,
)
from gangsched.model.workloads import PRIORITY_CLASSES

# Limit on differing statements of a gang's bound members that are read.
_MAX_COMPARED = 16


class GroupSpecs:
    """Applies PodGroup objects and other schedulers' pods to our groups, and resolves a group's numbers."""

    def __init__(self, shared: SharedState, reporter: Reporter, owners: Owners) -> None:
        self._shared = shared
        self._reporter = reporter
        self._owners = owners
        self._objects: dict[GroupKey, PodGroup | str] = {}
        """PodGroup objects as read, or the problem with one."""
        self._read_from: dict[GroupKey, dict[int, PodGroupAdded | PodGroupUpdated]] = {}
        """The events they were read from, by the order of their API group, as a dialect may have several."""
        self._strangers: dict[GroupKey, Counter[str]] = {}
        """Group -> name of another scheduler -> number of members that name it."""
        self._stranger_of: dict[str, tuple[GroupKey, str]] = {}
        self.own_keys = OwnKeys(shared, reporter)
        self.asked_for: dict[str, None] = {}
        """Kinds that must be watched for some PodGroup, by the names under which they are watched."""

    def objects(self) -> list[PodGroupAdded | PodGroupUpdated]:
        """PodGroup objects as last received."""
        return [event for by_order in self._read_from.values() for event in by_order.values()]

    def put_object(self, event: PodGroupAdded | PodGroupUpdated) -> None:
        """Takes a PodGroup object's current state."""
        meta = event.item.metadata
        key = GroupKey(event.dialect, meta.namespace, meta.name)
        order = api_group_order(event.dialect, event.api_version)
        by_order = self._read_from.setdefault(key, {})
        before, first = by_order.get(order), min(by_order, default=order)
        by_order[order] = event
        if order <= first:
            self._take(key, before if order == first else None, event)

    def _take(
        self,
        key: GroupKey,
        before: PodGroupAdded | PodGroupUpdated | None,
        event: PodGroupAdded | PodGroupUpdated,
    ) -> None:
        known = self._objects.get(key)
        if before is not None and isinstance(known, PodGroup) and _differ_in_status(before, event):
            read: PodGroup | str = replace(known, status=event.item.status or {})
        else:
            read = _read(event)
            self.own_keys.put_object(key, event)
        self._objects[key] = read
        self._tell_claims(key)
        if isinstance(read, PodGroup) and read.priority_class:
            self.asked_for[PRIORITY_CLASSES] = None
        group = self._shared.groups.get(key)
        if group is not None and not _same_numbers(known, read):
            self._shared.mark_group(group)
        elif group is not None and group.definition is not None and isinstance(read, PodGroup):
            was = group.definition
            group.definition = replace(
                read,
                topology=was.topology,
                packing_weight=was.packing_weight,
                unsupported=was.unsupported,
                wishes=was.wishes,
            )

    def remove_object(self, event: PodGroupDeleted) -> None:
        """Forgets an object that is gone; a group that was never whole gathers again."""
        meta = event.item.metadata
        key = GroupKey(event.dialect, meta.namespace, meta.name)
        by_order = self._read_from.get(key, {})
        by_order.pop(api_group_order(event.dialect, event.api_version), None)
        if by_order:  # an object of the same name is left in another API group
            self._take(key, None, by_order[min(by_order)])
            return
        self._objects.pop(key, None)
        self._tell_claims(key)
        self._read_from.pop(key, None)
        self._mark_group(key)

    def refuse_object(self, key: GroupKey, uid: str, message: str) -> None:
        """Records that the object does not parse at all; its earlier content is void.

        An object known under another UID is another dialect's of the same name, and not affected.
        """
        known = self._objects.get(key)
        if isinstance(known, PodGroup) and known.uid != uid:
            return
        self._objects[key] = message
        self._tell_claims(key)
        self._mark_group(key)

    def _tell_claims(self, key: GroupKey) -> None:
        """Has the claims that a core PodGroup lists reserved for it from now on, and no others."""
        known, sharing = self._objects.get(key), None
        if key.dialect == CORE:
            if isinstance(known, PodGroup) and known.claims:
                sharing = SharingGroup(key.name, known.uid, frozenset(known.claims))
            self._shared.cache.claims.put_group((key.namespace, key.name), sharing)

    def ignored_of(self, group: Group) -> list[tuple[str, str]]:
        """(object, sentence) about keys of the group's object and members that are never read, and about
        wishes of the group that gangsched does not grant."""
        by_order = self._read_from.get(group.key)
        of_keys = ignored_on_object(by_order[min(by_order)].item.metadata) if by_order else ()
        wishes = () if group.definition is None else group.definition.wishes
        subject = f"gang {group.key}" if group.is_gang else f"pod {group.key}"
        found = [*self.own_keys.ignored_in_group(group, of_keys), *((subject, wish) for wish in wishes)]
        if priority := ignored_wish(group):
            found.append((f"PodGroup {group.key}", priority))
        return found

    def is_basic(self, key: GroupKey) -> bool | None:
        """Whether that PodGroup requires no gang; None if it does not exist."""
        known = self._objects.get(key)
        return known.is_basic if isinstance(known, PodGroup) else None if known is None else False

    def resolve(self, group: Group) -> None:
        """Computes the group's numbers, or the problem with them, from its members and its object."""
        listed, defined = group.start_together, group.definition
        info = _first_that_counts(group)
        if info is not None and not group.n_holding and not group.n_assumed:
            group.scheduler_name = info.pod.spec.scheduler_name  # failed members may name another one
        group.definition, group.problem = self._spec_of(group, info)
        self._reporter.redefined(group, before=defined)
        has_new_walltime = _walltime(group.definition) != _walltime(defined)
        book, walltimes = self._shared.queue_book, self._shared.walltimes
        counts = group.n_holding or group.is_complete
        if counts and book is not None and book.tree.goes_by_walltime and walltimes is not None:
            has_new_walltime = walltimes.has_changed(group) or has_new_walltime
        if group.n_holding and has_new_walltime:
            self._shared.end_edited(group.in_state(MemberState.BOUND)[0], group.members)
        if group.definition is not None and not group.problem and not group.has_started:
            group.problem = self._refusal(group, group.definition)
        if group.start_together != listed:
            self._shared.list_changed(group, listed)
        if (set_priority(self._shared, group) or has_new_walltime) and group.active_token:
            self._shared.queue.activate(group, Cause.PLACE_CHANGED)
        strangers = self._strangers.get(group.key)
        if strangers and not group.problem and not group.has_started:
            names = ", ".join(sorted({*strangers, group.scheduler_name}))
            group.problem = (
                f"gang {group.key}: members name different schedulers ({names}); "
                "a gang can only start whole if one scheduler places all of it"
            )

    def classes_changed(self) -> None:
        """Reconsiders groups with a priority class, as one has changed or is gone."""
        for key, known in self._objects.items():
            if isinstance(known, PodGroup) and known.priority_class and key in self._shared.groups:
                self._shared.mark_group(self._shared.groups[key])

    def _spec_of(self, group: Group, info: PodInfo | None) -> tuple[PodGroup | None, Why]:
        # A gang that runs or is being bound keeps the definition it was bound by until it has ended.
        standing = group.definition if group.n_bound or group.state is BINDING else None
        if group.own_problem:
            return standing, group.own_problem
        if len(group.stated) > 1 and not group.has_started and not _agree(group):
            return group.definition or self._as_some_state(group), _disagreement(group)
        if needs_object(group.key):
            known = self._objects.get(group.key)
            if known is None and group.n_bound:
                return bound_by(group, standing)
            if isinstance(known, str):
                return standing or numbers_of(group), known
            if known is not None:
                self.own_keys.beside_object(group, known.min_count)
            return _with_wishes(group, known, standing)
        if is_inferred(group.key):
            found, problem = self._owners.numbers(group)
            return (standing or numbers_of(group) if found is None and problem else found), problem
        if one_speaks(group.key):
            info = next((one for one in group.members.values() if _speaks(one.stated)), info)
        if info is None or (group.definition is not None and group.read_from == info.stated):
            return group.definition, ""
        try:
            found = group_from_pod(group.key, info.pod)
        except ParseError as error:
            problem = f"gang {group.key}: {error}" if group.is_gang else str(error)
            ignored = self.own_keys.perhaps_misspelt(group, info.pod)
            why: Why = PerhapsMisspelt(problem, ignored) if ignored else problem
            return standing or numbers_of(group), why
        group.read_from = info.stated
        return found, ""

    def _as_some_state(self, group: Group) -> PodGroup | None:
        """What its bound members state, or else its first member, if the members have always disagreed.

        If the bound ones disagree too, the statement with the fewest members counts: an edit evicts no pod.
        """
        if is_inferred(group.key):
            return self._owners.numbers(group)[0]
        known = self._objects.get(group.key)
        if isinstance(known, str) or (known is None and needs_object(group.key)):
            return numbers_of(group)
        speaking = group.in_state(MemberState.BOUND) or list(islice(group.members.values(), 1))
        found: list[PodGroup] = []
        for pod in islice({info.stated: info.pod for info in speaking}.values(), _MAX_COMPARED):
            with suppress(ParseError):
                found.append(with_wishes_of(known, pod) if known else group_from_pod(group.key, pod))
        return min(found, key=lambda one: one.min_count, default=None)

    def _refusal(self, group: Group, definition: PodGroup) -> str:
        """Why the group may not start as it is, "" if it may; also reports unsupported settings."""
        if definition.known_roles and _has_strange_role(group, definition):
            stranger = next((i for i in group.members.values() if i.role not in definition.known_roles), None)
            if stranger is not None:
                known = ", ".join(repr(role) for role in definition.known_roles if role)
                return (
                    f"gang {group.key}: member {stranger.pod.metadata.name} has role {stranger.role!r},"
                    f" which is not one of the group's: {known}"
                )
        if not definition.unsupported and not definition.wishes:
            return ""
        mode = self._shared.settings.foreign_markers.get(group.scheduler_name, REFUSE)
        subject = f"gang {group.key}" if group.is_gang else f"pod {group.key}"
        if mode == REFUSE and definition.unsupported:
            text = "; ".join(definition.unsupported)
            return f"{subject} asks for something that gangsched does not do: {text}"
        text = "; ".join((*definition.unsupported, *definition.wishes))
        if mode != IGNORE and group.warned != text:
            group.warned = text
            self._reporter.event(
                group, "Warning", "ForeignMarker", "Scheduling", f"{subject}: this is ignored: {text}"
            )
        return ""

    def note_stranger(self, pod: Pod) -> None:
        """Records a pod of another scheduler if it names a group and has not ended."""
        uid, key = pod.metadata.uid, self._key_of_stranger(pod)
        known, now = self._stranger_of.get(uid), None if key is None else (key, pod.spec.scheduler_name)
        if known == now:
            return
        self.forget_stranger(uid)
        if now is not None:
            key, name = self._stranger_of[uid] = now
            self._strangers.setdefault(key, Counter())[name] += 1
            self._mark_group(key)

    def _key_of_stranger(self, pod: Pod) -> GroupKey | None:
        if pod.is_terminal:
            return None
        try:
            key = group_key(pod, self.is_basic)
            if key.dialect == POD:
                key = self._owners.key_of_stranger(pod) or key
        except ParseError:
            return None
        return None if key.dialect == POD else key

    def _mark_group(self, key: GroupKey) -> None:
        if (group := self._shared.groups.get(key)) is not None:
            self._shared.mark_group(group)

    def forget_strangers_of(self, names: Collection[str]) -> None:
        """Forgets these schedulers' pods, which are ours from now on."""
        for uid in [uid for uid, (_, name) in self._stranger_of.items() if name in names]:
            self.forget_stranger(uid)

    def forget_stranger(self, uid: str) -> None:
        """Forgets a pod that is gone, or no longer a member."""
        known = self._stranger_of.pop(uid, None)
        if known is not None:
            key, name = known
            names = self._strangers[key]
            names[name] -= 1
            if names[name] <= 0:
                del names[name]
            if not names:
                del self._strangers[key]
            self._mark_group(key)


# -- whether members agree on what they state about the group, and which statement counts -----------------


def _speaks(stated: tuple[object, ...]) -> bool:
    """Whether a member states any number of the group, if one may speak for all."""
    return any(value is not None for value in stated[N_COMMON:])


def _first_that_counts(group: Group) -> PodInfo | None:
    """The member whose statement counts: if they differ, the first that has not failed and is not leaving."""
    first = group.first()
    if len(group.stated) < 2:
        return first
    return next((info for info in group.members.values() if _counts(info)), first)


def _counts(info: PodInfo) -> bool:
    return info.state not in (MemberState.FAILED, MemberState.LEAVING)


def _agree(group: Group) -> bool:
    """Whether the members that count agree. If one may speak for all, members without a statement agree."""
    stated = {info.stated for info in group.members.values() if _counts(info)}
    if not one_speaks(group.key):
        return len(stated) <= 1
    statements = {one for one in stated if _speaks(one)}
    return len(statements) <= 1 and len({one[:N_COMMON] for one in stated}) <= 1


def _disagreement(group: Group) -> str:
    """Returns on what the members disagree, with up to four of the values and a pod for each."""
    for i, name in enumerate(stated_names(group.key)):
        by_value: dict[object, str] = {}
        for info in group.members.values():
            if _counts(info):
                by_value.setdefault(info.stated[i], info.pod.metadata.name)
        if len(by_value) > 1:
            values = ", ".join(f"{value!r} ({pod})" for value, pod in list(by_value.items())[:4])
            return f"gang {group.key}: members disagree on {name}: {values}; give all of them the same"
    return f"gang {group.key}: members disagree on the group's numbers"


def _with_wishes(
    group: Group, known: PodGroup | None, standing: PodGroup | None
) -> tuple[PodGroup | None, str]:
    """(the object's definition with the pods' own requests merged in; what is wrong with these)."""
    info = _first_that_counts(group)
    if known is None or info is None:
        return known, ""
    try:
        return with_wishes_of(known, info.pod), ""
    except ParseError as error:
        return standing, f"gang {group.key}: {error}"


def _has_strange_role(group: Group, definition: PodGroup) -> bool:
    """Whether a member has an unknown role. Goes by counts, not to iterate a large gang for each new
    member."""
    if any(role not in definition.known_roles for role in group.n_of_role):
        return True
    return "" not in definition.known_roles and sum(group.n_of_role.values()) < group.n_existing


def _read(event: PodGroupAdded | PodGroupUpdated) -> PodGroup | str:
    try:
        return group_from_object(event.dialect, event.api_version, event.item)
    except ParseError as error:
        meta = event.item.metadata
        return f"PodGroup {meta.namespace}/{meta.name}: {error}"


def _differ_in_status(
    before: PodGroupAdded | PodGroupUpdated, event: PodGroupAdded | PodGroupUpdated
) -> bool:
    """Whether only the PodGroup's status changed, mostly by our own write."""
    then, now = before.item.metadata, event.item.metadata
    return (
        then.uid == now.uid
        and then.generation == now.generation
        and then.annotations == now.annotations
        and before.api_version == event.api_version
        and before.item.spec == event.item.spec
    )


def _same_numbers(known: PodGroup | str | None, read: PodGroup | str) -> bool:
    if not isinstance(known, PodGroup) or not isinstance(read, PodGroup):
        return known == read
    return _numbers_of(known) == _numbers_of(read)


def _walltime(definition: PodGroup | None) -> object:
    return None if definition is None else definition.walltime


def _numbers_of(group: PodGroup) -> PodGroup:
    return replace(group, api_version="", generation=0, status={})
