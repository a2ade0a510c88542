"""Which group a pod belongs to, and the group's numbers: all dialects become one PodGroup.

Lives here: the queries of all other rooms, over the table of dialects. Not here: how one dialect is written
(model.dialects, a file each), and what a group's members do, which is state (core.types.group). A pod that
names no group is a group of one.

To add a dialect, write `model/dialects/<name>.py` with one `Dialect` in it: the labels and annotations by
which a pod names its group, those by which it states the group's numbers, how the numbers are read from a pod
or from an object, and which kinds of object. Then add it to DIALECTS below, at its place: if a pod states one
name in several dialects, the first one wins. All else follows from the table: which kinds are watched, what
makes a pod change its group, what members must agree on. A dialect also needs a line in
gangsched.lab.sim.reading.documents, which reads pods for the checkers and shares no code with this, rights
for its kinds in deploy/rbac.yaml, and a text in docs/migrating.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gangsched.errors import ParseError
from gangsched.model import owners
from gangsched.model.devices.required_ids import annotated_required_ids
from gangsched.model.dialects import (
    core,
    coscheduling,
    foreign,
    kai,
    koordinator,
    lightweight,
    ours,
    volcano,
    yunikorn,
)
from gangsched.model.dialects.dialect import (
    ALL,
    GIVE_BACK,
    MOVE,
    POD,
    SINGLE,
    STAY,
    Dialect,
    GroupClaim,
    GroupKey,
    ObjectKind,
    PodGroup,
)
from gangsched.model.dialects.numbers import (
    DISRUPTION_KEY,
    GROUPS_KEY,
    IF_NOT_RECOVERED_KEY,
    MAX_MEMBERS,
    MAX_START_TOGETHER,
    OF_THE_GANG,
    ON_DEVICE_FAILURE_KEY,
    PARTIAL_BIND_KEY,
    RECOVER_WITHIN_KEY,
    TIMEOUT_KEY,
    TOTAL_MEMBERS_KEY,
    annotated_numbers,
    annotated_timeout_s,
    device_failure,
)
from gangsched.model.fields import Known
from gangsched.model.objects import CustomObject, Pod
from gangsched.model.owners.dialects import INFERRED_DIALECTS
from gangsched.model.stated.packing_weight import PACKING_WEIGHT_KEY, annotated_packing_weight
from gangsched.model.stated.topology import TOPOLOGY_KEY, annotated_topology, both
from gangsched.model.walltime import WALLTIME_ANNOTATIONS

GANG_KEY = "gangsched.io/gang"
RANK_KEY = "gangsched.io/rank"
ATTEMPT_KEY = "gangsched.io/attempt"
STARTED_IN_KEY = "gangsched.io/started-in-queue"
START_KEY = "gangsched.io/start"
BIND_KEYS = (GANG_KEY, RANK_KEY, ATTEMPT_KEY, START_KEY, STARTED_IN_KEY)
"""The keys that a bind writes besides devices; nothing else writes them."""

GROUP_LABEL = ours.LABEL
MIN_MEMBERS_KEY = ours.MIN_MEMBERS_KEY
COSCHEDULING_LABEL = coscheduling.LABEL
COSCHEDULING_OLD_LABEL = coscheduling.OLD_LABEL
LIGHTWEIGHT_NAME = lightweight.NAME
LIGHTWEIGHT_MIN = lightweight.MIN

DIALECTS: tuple[Dialect, ...] = (
    core.DIALECT,
    coscheduling.DIALECT,
    volcano.DIALECT,
    kai.DIALECT,
    ours.DIALECT,
    koordinator.DIALECT,
    yunikorn.DIALECT,
    lightweight.DIALECT,
)
"""All dialects; if several state one name, the first is the group's dialect."""

OBJECT_KINDS: Mapping[str, tuple[str, ObjectKind]] = {
    f"podgroups.{dialect.name}" + (f".{kind.api_group}" if kind is not dialect.kinds[0] else ""): (
        dialect.name,
        kind,
    )
    for dialect in DIALECTS
    for kind in dialect.kinds
}
"""By the kind's name in events: its dialect, and its index there."""

CORE = core.DIALECT.name
COSCHEDULING = coscheduling.DIALECT.name
OURS = ours.DIALECT.name
LIGHTWEIGHT = lightweight.DIALECT.name

__all__ = [
    "ALL",
    "ATTEMPT_KEY",
    "BIND_KEYS",
    "CORE",
    "COSCHEDULING",
    "COSCHEDULING_LABEL",
    "COSCHEDULING_OLD_LABEL",
    "DIALECTS",
    "DISRUPTION_KEY",
    "GANG_KEY",
    "GIVE_BACK",
    "GROUPS_KEY",
    "GROUP_LABEL",
    "IF_NOT_RECOVERED_KEY",
    "LIGHTWEIGHT",
    "LIGHTWEIGHT_MIN",
    "LIGHTWEIGHT_NAME",
    "MAX_MEMBERS",
    "MAX_START_TOGETHER",
    "MIN_MEMBERS_KEY",
    "MOVE",
    "N_COMMON",
    "OBJECT_KINDS",
    "OF_THE_GANG",
    "ON_DEVICE_FAILURE_KEY",
    "OURS",
    "PARTIAL_BIND_KEY",
    "POD",
    "PRIORITY_AT",
    "RANK_KEY",
    "RECOVER_WITHIN_KEY",
    "SINGLE",
    "STARTED_IN_KEY",
    "START_KEY",
    "STAY",
    "TIMEOUT_KEY",
    "TOTAL_MEMBERS_KEY",
    "GroupClaim",
    "GroupKey",
    "ObjectKind",
    "PodGroup",
    "api_group_order",
    "core_key",
    "core_key_beside",
    "group_from_object",
    "group_from_pod",
    "group_key",
    "identity_of",
    "is_inferred",
    "lone_key",
    "needs_object",
    "one_speaks",
    "role_of",
    "stated_by",
    "stated_names",
    "with_wishes_of",
]

_BY_NAME: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (*DIALECTS, *INFERRED_DIALECTS)}
_FIELDS: Mapping[str, Known] = {dialect.name: Known(dialect.fields) for dialect in DIALECTS if dialect.kinds}
_LABELS = {key: d.name for d in DIALECTS if d.compose is None for key in d.labels}
_ANNOTATIONS = {key: d.name for d in DIALECTS if d.compose is None for key in d.annotations}
_COMPOSING = tuple(d for d in DIALECTS if d.compose is not None)
_INFERRED = frozenset(dialect.name for dialect in INFERRED_DIALECTS)
_NAMING_LABELS = frozenset(key for dialect in DIALECTS for key in dialect.labels)
_NAMING_ANNOTATIONS = frozenset(key for dialect in DIALECTS for key in dialect.annotations)
_NOTHING: Mapping[str, str] = {}
_COMMON = ("spec.schedulerName", "spec.priority", TOPOLOGY_KEY, PACKING_WEIGHT_KEY)
PRIORITY_AT = _COMMON.index("spec.priority")
N_COMMON = len(_COMMON)
"""How many of stated_names come from the dialect; these are first."""

_TELLING_LABELS = frozenset(
    (
        *(k for d in DIALECTS for k in (*d.labels, *d.role_labels, *d.stated_labels)),
        *foreign.LABELS,
        *foreign.ASKING_LABELS,
        *owners.TELLING_LABELS,
    )
)
_TELLING_ANNOTATIONS = frozenset(
    (
        TOPOLOGY_KEY,
        PACKING_WEIGHT_KEY,
        *(k for d in DIALECTS for k in (*d.annotations, *d.role_annotations, *d.stated_annotations)),
        *foreign.ANNOTATIONS,
        *foreign.ASKING_ANNOTATIONS,
        *owners.TELLING_ANNOTATIONS,
    )
)


def _unknown_kind(key: GroupKey) -> bool | None:
    return None


def group_key(pod: Pod, is_basic: Callable[[GroupKey], bool | None] = _unknown_kind) -> GroupKey:
    """Returns the group a pod names, or the pod's own group of one. Raises: ParseError if it names two.

    is_basic: whether the core PodGroup of that key requires no gang; None while unknown. If it requires none,
    a name in the pod's metadata, or an unsupported mark (model.dialects.foreign), takes precedence. While
    unknown, the pod belongs to the core group, which waits for its object.
    """
    meta, reference = pod.metadata, pod.spec.scheduling_group
    named = _named(pod)
    if reference is not None and reference.pod_group_name:
        key = GroupKey(CORE, meta.namespace, reference.pod_group_name)
        basic = is_basic(key) if named or foreign.unsupported_marks(meta) else False
        if basic is None:
            return key
        if not basic:
            named.append((CORE, key.name, core.WHERE))
    if not named:
        return lone_key(pod)
    if len(named) == 1:
        return GroupKey(named[0][0], meta.namespace, named[0][1])
    if len({name for _, name, _ in named}) > 1:
        names = ", ".join(f"{where} names {name!r}" for _, name, where in named)
        raise ParseError(f"the pod names different groups: {names}; keep one")
    dialect = min((dialect for dialect, _, _ in named), key=[*_BY_NAME].index)
    return GroupKey(dialect, meta.namespace, named[0][1])


def core_key(pod: Pod) -> GroupKey | None:
    """Returns the core PodGroup's key if the pod names one."""
    reference = pod.spec.scheduling_group
    if reference is None or not reference.pod_group_name:
        return None
    return GroupKey(CORE, pod.metadata.namespace, reference.pod_group_name)


def core_key_beside(pod: Pod) -> GroupKey | None:
    """Returns the core PodGroup's key if the pod's metadata names a group too, or has a foreign mark."""
    key = core_key(pod)
    if key is None or not (_named(pod) or foreign.unsupported_marks(pod.metadata)):
        return None
    return key


def _named(pod: Pod) -> list[tuple[str, str, str]]:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    if (labels and not _NAMING_LABELS.isdisjoint(labels)) or (
        annotations and not _NAMING_ANNOTATIONS.isdisjoint(annotations)
    ):
        return _names(labels or _NOTHING, annotations or _NOTHING)
    return []


def _names(labels: Mapping[str, str], annotations: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(dialect, name, where) for each group name in the pod's metadata."""
    found = []
    for metadata, naming, dialect_of in (
        (labels, _NAMING_LABELS, _LABELS),
        (annotations, _NAMING_ANNOTATIONS, _ANNOTATIONS),
    ):
        if metadata and not naming.isdisjoint(metadata):
            keys = naming.intersection(metadata)
            for key in sorted(keys) if len(keys) > 1 else keys:
                if (name := metadata[key]) and key in dialect_of:
                    found.append((dialect_of[key], name, key))
    for dialect in _COMPOSING:
        if dialect.compose is not None and (composed := dialect.compose(labels, annotations)):
            found.append((dialect.name, composed, (*dialect.labels, *dialect.annotations)[0]))
    return found


def lone_key(pod: Pod) -> GroupKey:
    """Returns the key of the pod's own group of one, if it names no group."""
    meta = pod.metadata
    return GroupKey(POD, meta.namespace, meta.name, meta.uid)


def needs_object(key: GroupKey) -> bool:
    """True for dialects whose numbers are on a PodGroup object and not on the pods."""
    return key.dialect in _FIELDS


def is_inferred(key: GroupKey) -> bool:
    """True for gangs that no pod names: their controllers make them (model.owners)."""
    return key.dialect in _INFERRED


def group_from_pod(key: GroupKey, pod: Pod) -> PodGroup:
    """Reads the group's numbers as this member states them. Raises: ParseError naming the key."""
    meta = pod.metadata
    if key.dialect == POD:
        asked = annotated_topology(meta.annotations)
        annotated_packing_weight(meta.annotations)  # only checked: it means nothing for one pod
        timeout_s, marks = annotated_timeout_s(meta.annotations or _NOTHING), foreign.unsupported_marks(meta)
        lone = PodGroup(key, topology=asked, schedule_timeout_s=timeout_s, unsupported=marks)
        return foreign.with_asked(lone, pod)
    dialect = _BY_NAME[key.dialect]
    numbers = dialect.from_pod(key, meta.labels or _NOTHING, meta.annotations or _NOTHING)
    numbers.setdefault("topology", annotated_topology(meta.annotations))
    numbers.setdefault("packing_weight", annotated_packing_weight(meta.annotations))
    return foreign.with_asked(PodGroup(key, **numbers), pod)


def with_wishes_of(group: PodGroup, pod: Pod) -> PodGroup:
    """Adds the settings in a pod's annotations to a group described by an object: the author of a Job cannot
    annotate the PodGroup that its controller makes. Raises: ParseError naming the key.
    """
    asked = annotated_topology(pod.metadata.annotations)
    weight = annotated_packing_weight(pod.metadata.annotations)
    if asked:
        group = replace(group, topology=both(group.topology, asked))
    if weight is not None and group.packing_weight is None:
        group = replace(group, packing_weight=weight)
    return foreign.with_asked(group, pod)


def group_from_object(dialect: str, api_version: str, item: CustomObject) -> PodGroup:
    """Reads the group's numbers from its object. Raises: ParseError naming the field."""
    meta = item.metadata
    key = GroupKey(dialect, meta.namespace, meta.name)
    numbers = annotated_numbers(meta.annotations or _NOTHING, key)
    numbers["on_device_failure"] = device_failure(meta.annotations or _NOTHING)
    numbers["required_ids"] = annotated_required_ids(meta.annotations or _NOTHING)
    if walltime := _told_by(meta.annotations or _NOTHING, WALLTIME_ANNOTATIONS):
        numbers["walltime"] = walltime
    numbers |= _BY_NAME[dialect].from_object(item, numbers)
    for name, found in _FIELDS[dialect].search(item.spec or {})._asdict().items():
        numbers[name] = (*numbers.get(name, ()), *found)
    total_count = numbers["total_count"]
    if total_count and total_count < numbers["min_count"]:
        raise ParseError(
            f"{total_count} is less than the group's number, {numbers['min_count']}", field=TOTAL_MEMBERS_KEY
        )
    numbers |= {"uid": meta.uid, "api_version": api_version, "generation": meta.generation}
    return PodGroup(key, status=item.status or {}, **numbers)


def role_of(key: GroupKey, pod: Pod) -> str:
    """The pod's role in its group; "": it states none, or its dialect has no roles."""
    dialect = _BY_NAME.get(key.dialect)
    if dialect is None or not (dialect.role_annotations or dialect.role_labels):
        return ""
    return dialect.role_of(pod.metadata.labels or _NOTHING, pod.metadata.annotations or _NOTHING)


def one_speaks(key: GroupKey) -> bool:
    """Whether one member may state the group's numbers for all."""
    dialect = _BY_NAME.get(key.dialect)
    return dialect is not None and dialect.one_speaks


def api_group_order(dialect: str, api_version: str) -> int:
    """Ranks the API groups of a dialect whose objects may come from several: the smallest wins."""
    groups = [kind.api_group for kind in _BY_NAME[dialect].kinds]
    group = api_version.rpartition("/")[0]
    return groups.index(group) if group in groups else 0


def identity_of(pod: Pod) -> tuple[object, ...]:
    """Returns every editable value, as written, by which the pod names its group or states its numbers.

    Not all its labels: kube-apiserver copies a node's zone and region onto the pods bound to it (KEP-4742, on
    by default since 1.35).
    """
    spec, labels, annotations = pod.spec, pod.metadata.labels, pod.metadata.annotations
    return (
        None if not labels or _TELLING_LABELS.isdisjoint(labels) else _told_by(labels, _TELLING_LABELS),
        None
        if not annotations or _TELLING_ANNOTATIONS.isdisjoint(annotations)
        else _told_by(annotations, _TELLING_ANNOTATIONS),
        spec.scheduling_group,
        spec.priority,
    )


def _told_by(metadata: Mapping[str, str], keys: frozenset[str]) -> Mapping[str, str]:
    return {key: metadata[key] for key in keys.intersection(metadata)}


def stated_by(key: GroupKey, pod: Pod) -> tuple[object, ...]:
    """Returns a member's statements about its group, as written, in the order of stated_names."""
    spec, meta = pod.spec, pod.metadata
    own = meta.annotations or _NOTHING
    common = (spec.scheduler_name, spec.priority or 0, own.get(TOPOLOGY_KEY), own.get(PACKING_WEIGHT_KEY))
    dialect = _BY_NAME.get(key.dialect)
    if key.dialect == POD:
        marks = (*foreign.unsupported_marks(meta), *foreign.asked_of_others(pod))
        return (*common, own.get(TIMEOUT_KEY), *marks)
    if dialect is None or dialect.kinds:
        return common
    return (
        *common,
        *_told(meta.labels or _NOTHING, dialect.stated_labels),
        *_told(meta.annotations or _NOTHING, dialect.stated_annotations),
    )


def stated_names(key: GroupKey) -> tuple[str, ...]:
    """Returns the keys that members of a group must agree on."""
    dialect = _BY_NAME.get(key.dialect)
    if dialect is None or dialect.kinds:
        return _COMMON
    return (*_COMMON, *dialect.stated_labels, *dialect.stated_annotations)


def _told(metadata: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str | None, ...]:
    return tuple(map(metadata.get, keys))
