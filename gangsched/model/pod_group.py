"""Which group a pod belongs to, and what a group asks for: the dialects that become one PodGroup.

Ours (label and annotations, no CRD), the core API (`spec.schedulingGroup` and scheduling.k8s.io PodGroup),
scheduler-plugins' CRD and its lightweight labels. A pod that names no group is a group of one. What a group's
members do is state and lives in core.types.group. Sources: KEP-4671, KEP-5832 (core), scheduler-plugins
KEP-42 (coscheduling), Koordinator's gang documentation (the spirit of `groups`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gangsched.errors import ParseError
from gangsched.model import bounded
from gangsched.model.objects import CustomObject, Pod
from gangsched.model.resources import parse_quantities

GROUP_LABEL = "gangsched.io/pod-group"
MIN_MEMBERS_KEY = "gangsched.io/min-members"
TOTAL_MEMBERS_KEY = "gangsched.io/total-members"
TIMEOUT_KEY = "gangsched.io/schedule-timeout"
GROUPS_KEY = "gangsched.io/groups"
PARTIAL_BIND_KEY = "gangsched.io/on-partial-bind"
DISRUPTION_KEY = "gangsched.io/disruption-mode"
ON_DEVICE_FAILURE_KEY = "gangsched.io/on-device-failure"
GANG_KEY = "gangsched.io/gang"
RANK_KEY = "gangsched.io/rank"
ATTEMPT_KEY = "gangsched.io/attempt"

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
COSCHEDULING_OLD_LABEL = "pod-group.scheduling.sigs.k8s.io"
LIGHTWEIGHT_NAME = "pod-group.scheduling.sigs.k8s.io/name"
LIGHTWEIGHT_MIN = "pod-group.scheduling.sigs.k8s.io/min-available"

POD = "pod"
OURS = "gangsched"
CORE = "core"
COSCHEDULING = "coscheduling"
LIGHTWEIGHT = "lightweight"

_WITH_OBJECT = frozenset({CORE, COSCHEDULING})

SINGLE = "single"
ALL = "all"

_GROUP_LABELS = (
    (GROUP_LABEL, OURS),
    (COSCHEDULING_LABEL, COSCHEDULING),
    (COSCHEDULING_OLD_LABEL, COSCHEDULING),
    (LIGHTWEIGHT_NAME, LIGHTWEIGHT),
)
GROUP_LABELS = tuple(label for label, _ in _GROUP_LABELS)
"""Where a pod names its group, spec.schedulingGroup apart."""
_GROUP_LABEL_NAMES = frozenset(GROUP_LABELS)

MAX_MEMBERS = 100_000
MAX_START_TOGETHER = 64
_NUMBER = re.compile(r"[0-9]{1,9}")
# Nine digits a part: a number that no float holds must not get as far as arithmetic.
_DURATION = re.compile(
    r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?|(?P<bare>[0-9]{1,9})"
)


_decode_names = bounded.decoder(list[str])


class GroupKey(NamedTuple):
    """Identity of a group; `uid` only for a lone pod, so that its successor of the same name is another."""

    dialect: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodGroup(msgspec.Struct, frozen=True, gc=False):
    """What a group asks for, whatever dialect said it.

    min_count members must start together; total_count (>= min_count), where given, are waited for in
    Permit; min_resources are what the members must add up to before the group may start; start_together
    are the "namespace/name" of groups that start only with this one, and its own. disruption_mode: whether
    preemption takes its pods one by one (SINGLE) or together (ALL); "": together once fewer than min_count
    would stay.
    preempts: whether it may take others' room at all.
    """

    key: GroupKey
    min_count: int = 1
    total_count: int = 0
    schedule_timeout_s: float | None = None
    min_resources: Mapping[str, int] = {}
    start_together: tuple[str, ...] = ()
    on_partial_bind: str = ""
    disruption_mode: str = ""
    preempts: bool = True
    on_device_failure: str = ""
    priority: int | None = None
    uid: str = ""
    api_version: str = ""
    generation: int = 0
    status: Mapping[str, Any] = {}


def group_key(pod: Pod) -> GroupKey:
    """The group a pod names, or the group of one that it is. Raises: ParseError if it names two."""
    namespace = pod.metadata.namespace
    named: list[tuple[str, str, str]] = []
    labels = pod.metadata.labels
    if labels and not _GROUP_LABEL_NAMES.isdisjoint(labels):
        for label, dialect in _GROUP_LABELS:
            name = labels.get(label)
            if name:
                named.append((dialect, name, label))
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        named.append((CORE, pod.spec.scheduling_group.pod_group_name, "spec.schedulingGroup.podGroupName"))
    if not named:
        return lone_key(pod)
    if len(named) == 1:
        return GroupKey(named[0][0], namespace, named[0][1])
    if len({name for _, name, _ in named}) > 1:
        said = ", ".join(f"{where} names {name!r}" for _, name, where in named)
        raise ParseError(f"the pod names different groups: {said}; keep one")
    # Several spellings of one name are one group; the one with an object behind it has the last word.
    order = (CORE, COSCHEDULING, OURS, LIGHTWEIGHT)
    dialect = min((dialect for dialect, _, _ in named), key=order.index)
    return GroupKey(dialect, namespace, named[0][1])


def lone_key(pod: Pod) -> GroupKey:
    """The group of one that the pod is where it names none."""
    meta = pod.metadata
    return GroupKey(POD, meta.namespace, meta.name, meta.uid)


def needs_object(key: GroupKey) -> bool:
    """True for dialects whose numbers are on a PodGroup object and not on the pods."""
    return key.dialect in _WITH_OBJECT


def group_from_pod(key: GroupKey, pod: Pod) -> PodGroup:
    """The group's numbers as this member states them. Raises: ParseError naming the key."""
    annotations = pod.metadata.annotations or {}
    if key.dialect == POD:
        return PodGroup(key)
    if key.dialect == LIGHTWEIGHT:
        text = (pod.metadata.labels or {}).get(LIGHTWEIGHT_MIN, "1")
        return PodGroup(key, min_count=_count(text, LIGHTWEIGHT_MIN))
    min_count = _count(annotations.get(MIN_MEMBERS_KEY, "1"), MIN_MEMBERS_KEY)
    total_count = _count(annotations.get(TOTAL_MEMBERS_KEY, "0"), TOTAL_MEMBERS_KEY, at_least=0)
    if total_count and total_count < min_count:
        raise ParseError(
            f"{total_count} is less than {MIN_MEMBERS_KEY}, {min_count}", field=TOTAL_MEMBERS_KEY
        )
    timeout = annotations.get(TIMEOUT_KEY)
    return PodGroup(
        key,
        min_count=min_count,
        total_count=total_count,
        schedule_timeout_s=None if timeout is None else parse_duration_s(timeout, TIMEOUT_KEY),
        start_together=_start_together(annotations.get(GROUPS_KEY), key),
        on_partial_bind=_partial_bind(annotations.get(PARTIAL_BIND_KEY)),
        disruption_mode=_disruption_mode(annotations.get(DISRUPTION_KEY)),
    )


def group_from_object(dialect: str, api_version: str, item: CustomObject) -> PodGroup:
    """The group's numbers from its object. Raises: ParseError naming the field."""
    meta = item.metadata
    key = GroupKey(dialect, meta.namespace, meta.name)
    spec = item.spec or {}
    annotations = meta.annotations or {}
    read = _core_numbers if dialect == CORE else _coscheduling_numbers
    total_count = _count(annotations.get(TOTAL_MEMBERS_KEY, "0"), TOTAL_MEMBERS_KEY, at_least=0)
    timeout = annotations.get(TIMEOUT_KEY)
    numbers: dict[str, Any] = {
        "total_count": total_count,
        "start_together": _start_together(annotations.get(GROUPS_KEY), key),
        "on_partial_bind": _partial_bind(annotations.get(PARTIAL_BIND_KEY)),
        "disruption_mode": _disruption_mode(annotations.get(DISRUPTION_KEY)),
        "on_device_failure": _device_failure(annotations.get(ON_DEVICE_FAILURE_KEY)),
        "schedule_timeout_s": None if timeout is None else parse_duration_s(timeout, TIMEOUT_KEY),
        "uid": meta.uid,
        "api_version": api_version,
        "generation": meta.generation,
        "status": item.status or {},
    }
    numbers.update(read(spec))
    if dialect == CORE and not numbers["disruption_mode"]:
        numbers["disruption_mode"] = SINGLE
    if total_count and total_count < numbers["min_count"]:
        raise ParseError(
            f"{total_count} is less than the group's number, {numbers['min_count']}", field=TOTAL_MEMBERS_KEY
        )
    return PodGroup(key, **numbers)


def _core_numbers(spec: Mapping[str, Any]) -> dict[str, Any]:
    policy = spec.get("schedulingPolicy")
    gang = policy.get("gang") if isinstance(policy, dict) else None
    numbers: dict[str, Any] = {"min_count": 1}
    if isinstance(gang, dict):
        numbers["min_count"] = _count(gang.get("minCount", 1), "spec.schedulingPolicy.gang.minCount")
    priority = spec.get("priority")
    if isinstance(priority, int):
        numbers["priority"] = priority
    mode = spec.get("disruptionMode")
    # The API's own word goes before the annotation; a PodGroup without either is disrupted pod by pod.
    if isinstance(mode, dict) and (ALL in mode or SINGLE in mode):
        numbers["disruption_mode"] = ALL if ALL in mode else SINGLE
    numbers["preempts"] = spec.get("preemptionPolicy") != "Never"
    return numbers


def _coscheduling_numbers(spec: Mapping[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {"min_count": _count(spec.get("minMember", 1), "spec.minMember")}
    if spec.get("scheduleTimeoutSeconds") is not None:
        numbers["schedule_timeout_s"] = float(
            _count(spec["scheduleTimeoutSeconds"], "spec.scheduleTimeoutSeconds")
        )
    resources = spec.get("minResources")
    if isinstance(resources, dict):
        try:
            numbers["min_resources"] = parse_quantities(resources)
        except ParseError as error:
            raise ParseError(error.message, field=f"spec.minResources.{error.field}") from None
    return numbers


def _count(value: object, field: str, *, at_least: int = 1) -> int:
    text = str(value)
    if not _NUMBER.fullmatch(text) or not at_least <= int(text) <= MAX_MEMBERS:
        raise ParseError(f"{text[:80]!r} is not a whole number from {at_least} to {MAX_MEMBERS}", field=field)
    return int(text)


def _start_together(text: str | None, own: GroupKey) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        names = _decode_names(text)
    except (bounded.TooLong, bounded.TooDeep) as error:
        raise ParseError(str(error), field=GROUPS_KEY) from None
    except msgspec.MsgspecError:
        raise ParseError(
            f'{text[:80]!r} is not a JSON list of groups, as ["team-a/train","team-a/data"]', field=GROUPS_KEY
        ) from None
    full = {name if "/" in name else f"{own.namespace}/{name}" for name in names} | {str(own)}
    if len(full) > MAX_START_TOGETHER:
        raise ParseError(
            f"{len(full)} groups start together, this one included; at most {MAX_START_TOGETHER} may",
            field=GROUPS_KEY,
        )
    return tuple(sorted(full)) if len(full) > 1 else ()


def _partial_bind(text: str | None) -> str:
    if text not in (None, "complete", "unwind"):
        raise ParseError(f"{text[:80]!r} is neither complete nor unwind", field=PARTIAL_BIND_KEY)
    return text or ""


def _disruption_mode(text: str | None) -> str:
    if text not in (None, SINGLE, ALL):
        raise ParseError(f"{text[:80]!r} is neither {SINGLE} nor {ALL}", field=DISRUPTION_KEY)
    return text or ""


def _device_failure(text: str | None) -> str:
    if text not in (None, "none", "evictMember", "evictGang"):
        raise ParseError(
            f"{text[:80]!r} is none of none, evictMember, evictGang", field=ON_DEVICE_FAILURE_KEY
        )
    return text or ""


def parse_duration_s(text: str, field: str) -> float:
    """Go's durations as people write them: "90s", "5m", "1h30m"; bare digits are seconds.

    Raises: ParseError, also for zero.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ParseError(f"{text[:80]!r} is not a duration; examples: 90s, 5m, 1h30m", field=field)
    hours, minutes, rest, bare = match.groups()
    seconds = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or bare or 0)
    if seconds <= 0:
        raise ParseError(f"{text[:80]!r} is not a positive duration", field=field)
    return seconds
