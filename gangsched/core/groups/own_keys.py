"""OwnKeys: annotations and labels that are meant for us but never read: misspelt, or in a wrong place.

A key that is never read changes nothing, so a misspelt walltime would look as if it counted. Each such key is
reported once for each group, by an event, and `gangsched explain` lists the group's present ones. Here: which
keys are read where, and the sentences. Pods that are alike are examined once
(core.groups.members.pod_similarity), and again when a PodGroup or a pod is edited. Called by core.groups and
core.explaining.explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gangsched.config import Settings
from gangsched.core.cache.queues.tree import QUEUE_KEY
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import PENDING, Group, MemberState
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_KEY
from gangsched.model.devices.constraints import CONSTRAINTS_KEY
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY
from gangsched.model.events import PodGroupAdded, PodGroupUpdated
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.owners import is_marked
from gangsched.model.pod_group import (
    BIND_KEYS,
    GROUP_LABEL,
    GROUPS_KEY,
    MIN_MEMBERS_KEY,
    OF_THE_GANG,
    ON_DEVICE_FAILURE_KEY,
    OURS,
    POD,
    TOTAL_MEMBERS_KEY,
    GroupKey,
    group_from_pod,
    is_inferred,
    needs_object,
)
from gangsched.model.stated.bandwidth import DIRECTION_KEY, EXPECTED_KEY, REQUIRED_KEY, SCOPE_KEY
from gangsched.model.stated.packing_weight import PACKING_WEIGHT_KEY
from gangsched.model.stated.topology import TOPOLOGY_KEY
from gangsched.model.text.printable import clean
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.reading.strict import nearest_name

PREFIX = "gangsched.io/"
_DOMAIN, _NAME_ALONE = "gangsched.io", "gangsched"
# Limit on slips in a misspelt domain: letters too many, missing, wrong or swapped. No other project's domain
# is as near.
_MAX_SLIPS = 2
_SHORTEST, _LONGEST = len(_NAME_ALONE), len(_DOMAIN) + _MAX_SLIPS
_OF_OBJECT = frozenset(OF_THE_GANG)
_ON_BOTH = _OF_OBJECT | {
    ON_DEVICE_FAILURE_KEY,
    REQUIRE_IDS_KEY,
    PACKING_WEIGHT_KEY,
    TOPOLOGY_KEY,
    WALLTIME_KEY,
}
"""Annotations that are read on a pod or its PodGroup."""
_ON_PODS = _ON_BOTH | {
    MIN_MEMBERS_KEY,
    QUEUE_KEY,
    CONSTRAINTS_KEY,
    REQUIRED_KEY,
    EXPECTED_KEY,
    DIRECTION_KEY,
    SCOPE_KEY,
}
_LABELS = frozenset((GROUP_LABEL, QUEUE_KEY))
WRITTEN_KEYS = frozenset((*BIND_KEYS, ALLOCATED_KEY, VISIBLE_KEY, f"{PREFIX}traceparent", f"{PREFIX}fenced"))
"""Annotations that the scheduler itself writes on pods."""
_MAKES_A_GANG = frozenset((MIN_MEMBERS_KEY, TOTAL_MEMBERS_KEY, GROUPS_KEY))
"""Annotations that show that a lone pod was meant to be in a gang; the others mean nothing for one pod."""
_POD_ANNOTATIONS = _ON_PODS | WRITTEN_KEYS
_NO_LABELS: frozenset[str] = frozenset()
_NO_GANG = f"the pod has no label {GROUP_LABEL} that names its gang"
_OBJECT_SAYS = "it is read only on the gang's PodGroup, for all members"
_OTHER_WORDS = f"it is read only in gangs of the label {GROUP_LABEL}; another system's keys make this gang"
_NO_QUEUES = "no queues are configured, so the pod is in none"
_NOTHING: Mapping[str, str] = {}

# Limits: keys in one sentence; keys reported per group, so that endless edits make no endless stream of
# events; groups remembered; keys remembered as good.
_MAX_NAMED = 3
_MAX_OF_GROUP = 16
_MAX_TOLD = 4096
_MAX_GOOD = 4096
# The longest name of ours has 20 letters. Comparing takes time in proportion to both lengths.
_MAX_COMPARED = 40
_MAX_SHOWN = 80
# Limits per pod: comparing is slow, and a user who fills 256 KiB of annotations with slips needs no full
# list.
_MAX_SLIPS_TOLD = 16
_MAX_DOMAINS = 64


class Ignored(NamedTuple):
    """A key that is not read where it is: an annotation or a label of a Pod or a PodGroup.

    why: the reason that it does not count although it is spelt correctly.
    """

    kind: str
    where: str
    key: str
    why: str = ""


def ignored_on_pod(pod: Pod, key: GroupKey, *, has_queues: bool) -> tuple[Ignored, ...]:
    """The pod's keys that are not read; nearly always none. key: its group's. has_queues: some are
    configured."""
    labels, annotations = pod.metadata.labels or _NOTHING, pod.metadata.annotations or _NOTHING
    found = _ignored("Pod", labels, _LABELS, annotations, _POD_ANNOTATIONS)
    return (*_without_effect(pod, key, has_queues=has_queues), *found)


def _without_effect(pod: Pod, group: GroupKey, *, has_queues: bool) -> Iterator[Ignored]:
    """Keys that would count if the pod were in a gang, if its gang had no object or were in our own dialect,
    or if there were queues."""
    labels, annotations = pod.metadata.labels or _NOTHING, pod.metadata.annotations or _NOTHING
    # An inferred gang has no label of ours, and may be known only once its controller's object is seen.
    is_lone = group.dialect == POD
    if is_lone and not _MAKES_A_GANG.isdisjoint(annotations):
        if GROUP_LABEL not in labels and not is_marked(pod):
            for key in annotations:
                if key in _MAKES_A_GANG:
                    yield Ignored("Pod", "annotation", key, _NO_GANG)
    elif not (is_lone or group.dialect == OURS or is_inferred(group)):
        has_object = needs_object(group)
        for key in annotations:
            if key in _OF_OBJECT:
                yield Ignored("Pod", "annotation", key, _OBJECT_SAYS if has_object else _OTHER_WORDS)
        if MIN_MEMBERS_KEY in annotations and not has_object:
            yield from _another_number(pod, group)
    if not has_queues:
        for where, own in (("annotation", annotations), ("label", labels)):
            if own.get(QUEUE_KEY):
                yield Ignored("Pod", where, QUEUE_KEY, _NO_QUEUES)


def _another_number(pod: Pod, group: GroupKey) -> Iterator[Ignored]:
    """Yields MIN_MEMBERS_KEY if it differs from the number that the pod states in another dialect."""
    try:
        number = group_from_pod(group, pod).min_count
    except ParseError:
        return  # the gang is refused for it, or another member says the number
    if (pod.metadata.annotations or _NOTHING)[MIN_MEMBERS_KEY] != str(number):
        yield Ignored("Pod", "annotation", MIN_MEMBERS_KEY, _OTHER_WORDS)


def ignored_on_object(meta: ObjectMeta) -> tuple[Ignored, ...]:
    """The PodGroup's keys that are not read."""
    return _ignored("PodGroup", meta.labels or _NOTHING, _NO_LABELS, meta.annotations or _NOTHING, _ON_BOTH)


def _other_number(pod: Pod, number: int) -> tuple[Ignored, ...]:
    """MIN_MEMBERS_KEY, if it differs from `number`, the PodGroup's."""
    text = (pod.metadata.annotations or _NOTHING).get(MIN_MEMBERS_KEY, str(number))
    if text == str(number):
        return ()
    why = f"it says {text[:_MAX_SHOWN]!r}, but the gang's PodGroup counts, and it says {number}"
    return (Ignored("Pod", "annotation", MIN_MEMBERS_KEY, why),)


def _ignored(
    kind: str,
    labels: Mapping[str, str],
    known_labels: frozenset[str],
    annotations: Mapping[str, str],
    known: frozenset[str],
) -> tuple[Ignored, ...]:
    found = []
    for key in annotations:
        if key.startswith(PREFIX) and key not in known:
            found.append(Ignored(kind, "annotation", key))
    for key in labels:
        if key.startswith(PREFIX) and key not in known_labels:
            found.append(Ignored(kind, "label", key))
    return (*found, *_of_misspelt_domains(kind, labels, annotations))


def _of_misspelt_domains(
    kind: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[Ignored]:
    """Keys whose domain and name are both nearly ours; other keys belong to another project."""
    slips = {domain for domain in _domains((*labels, *annotations)) if _is_slip(domain)}
    if slips:
        keys = [Ignored(kind, "annotation", key) for key in annotations]
        keys += [Ignored(kind, "label", key) for key in labels]
        meant = [one for one in keys if one.key.partition("/")[0] in slips]
        yield from (one for one in meant[:_MAX_SLIPS_TOLD] if _meant(one))


def _domains(keys: Iterable[str]) -> dict[str, None]:
    """Domains, about as long as ours, of keys that are not ours; each once, at most 64."""
    found: dict[str, None] = {}
    for key in keys:
        if (
            _SHORTEST <= key.find("/") <= _LONGEST
            and not key.startswith(PREFIX)
            and len(found) < _MAX_DOMAINS
        ):
            found[key.partition("/")[0]] = None
    return found


def _is_slip(domain: str) -> bool:
    return domain == _NAME_ALONE or _differ_by(domain, _DOMAIN, _MAX_SLIPS)


def _differ_by(one: str, other: str, n_slips: int) -> bool:
    """Whether at most `n_slips` slips turn one into the other."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    if not n_slips or not (one or other):
        return one == other
    left = n_slips - 1
    return (
        _differ_by(one[1:], other[1:], left)
        or _differ_by(one[1:], other, left)
        or _differ_by(one, other[1:], left)
        or (one[:2] == other[1::-1] and _differ_by(one[2:], other[2:], left))
    )


def ignored_text(ignored: Sequence[Ignored]) -> str:
    """What is wrong with each, and what is meant, as one sentence without its full stop; bounded."""
    sentences = [_told(one) for one in ignored[:_MAX_NAMED]]
    more = len(ignored) - len(sentences)
    return "; ".join(sentences) + (f"; and {more} more" if more else "")


def _told(one: Ignored) -> str:
    subject = f"{one.where} {one.key[:_MAX_SHOWN]} is ignored"
    if not one.key.startswith(PREFIX):
        return f"{subject}; did you mean {_meant(one)}?"
    if one.why:
        return f"{subject}: {one.why}"
    if one.kind == "Pod" and one.where == "annotation" and one.key in _LABELS:
        return f"{subject}: it is read as a label"
    if one.where == "label" and one.key in (_ON_PODS if one.kind == "Pod" else _ON_BOTH):
        return f"{subject}: it is read as an annotation"
    if one.kind == "PodGroup" and one.key in _ON_PODS | _LABELS:
        return f"{subject}: it is read on pods"
    meant = _meant(one)
    return subject + (f"; did you mean {meant}?" if meant else ": there is no such key")


def _meant(one: Ignored) -> str:
    """The nearest key by letters, or else the one with the most words in common; "" if none is near."""
    known = _LABELS | _ON_PODS if one.kind == "Pod" else _ON_BOTH
    name = one.key.partition("/")[2]
    if len(name) > _MAX_COMPARED:
        return ""
    names = sorted(key.removeprefix(PREFIX) for key in known)
    if near := nearest_name(name, names):
        return PREFIX + near
    words = _words(name)
    best = max(names, key=lambda known_name: len(words & _words(known_name)))
    return PREFIX + best if words & _words(best) else ""


def _words(name: str) -> set[str]:
    """The words of a name, without plurals: counts and count are one word."""
    return {word.removesuffix("s") for word in name.lower().replace("_", "-").split("-")}


class OwnKeys:
    """Reports ignored keys, once for each group and key."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._reported: dict[GroupKey, frozenset[Ignored]] = {}
        self._reported_queues: tuple[Settings, dict[tuple[str, str], None]] = (shared.settings, {})
        """Settings without queues, and the (namespace, queue) pairs of lone pods reported under them."""
        self._good: tuple[set[str], set[str]] = (set(), set())
        """Label keys and annotation keys of pods that are fine: they are read, or not ours."""

    def ignored(self, pod: Pod, key: GroupKey) -> tuple[Ignored, ...]:
        """As ignored_on_pod, but skips keys that other pods had too."""
        labels, annotations = pod.metadata.labels or _NOTHING, pod.metadata.annotations or _NOTHING
        good_labels, good = self._good
        if good.issuperset(annotations) and good_labels.issuperset(labels):
            return tuple(_without_effect(pod, key, has_queues=self._has_queues))
        found = self._on_pod(pod, key)
        if not found:
            if len(good) + len(good_labels) > _MAX_GOOD:
                good.clear()
                good_labels.clear()
            good.update(annotations)
            good_labels.update(labels)
        return found

    @property
    def _has_queues(self) -> bool:
        return self._shared.settings.queues is not None

    def _on_pod(self, pod: Pod, key: GroupKey) -> tuple[Ignored, ...]:
        return ignored_on_pod(pod, key, has_queues=self._has_queues)

    def ignored_in_group(self, group: Group, on_object: Sequence[Ignored]) -> list[tuple[str, str]]:
        """(object, sentence) about the group's present keys: its object's, and those of one member of each
        kind."""
        found = [(f"PodGroup {group.key}", ignored_text(on_object))] if on_object else []
        seen: set[tuple[Ignored, ...]] = {()}
        number = group.definition.min_count if group.definition and needs_object(group.key) else None
        for info in islice(group.members.values(), _MAX_TOLD):
            ignored = self._on_pod(info.pod, group.key)
            if number is not None:
                ignored += _other_number(info.pod, number)
            if ignored not in seen and len(found) < _MAX_NAMED:
                seen.add(ignored)
                found.append((f"pod {info.pod.key}", ignored_text(ignored)))
        return found

    def perhaps_misspelt(self, group: Group, pod: Pod) -> str:
        """Which of the pod's keys are not read, and may be meant by a missing one; "" for none."""
        ignored = self._on_pod(pod, group.key)
        return ignored_text(ignored) if ignored else ""

    def tell(self, group: Group, pod: Pod, ignored: Sequence[Ignored]) -> None:
        """Reports these keys of the pod as not read. For a lone pod that names a queue where there are none,
        only the first such pod is reported."""
        new = self._new(group.key, ignored)
        if group.key.dialect == POD:
            new = [one for one in new if one.why != _NO_QUEUES or self._is_first_of_queue(pod, one)]
        if new:
            message = clean(f"pod {pod.key}: {ignored_text(new)}")
            self._reporter.pod_event(
                pod, "Warning", "KeyIgnored", "Scheduling", message, cause_id=group.cause_id
            )

    def edited(self, group: Group, pod: Pod) -> None:
        """Reports ignored keys of a pod whose labels or annotations were edited."""
        if ignored := self.ignored(pod, group.key):
            self.tell(group, pod, ignored)

    def beside_object(self, group: Group, number: int) -> None:
        """Reports a pod's number of members that differs from that of the group's object."""
        info = group.first()
        if info is not None and info.state in (PENDING, MemberState.GATED):
            self.tell(group, info.pod, _other_number(info.pod, number))

    def put_object(self, key: GroupKey, event: PodGroupAdded | PodGroupUpdated) -> None:
        """Reports ignored keys of a PodGroup that is new or was edited."""
        meta = event.item.metadata
        if (ignored := ignored_on_object(meta)) and (new := self._new(key, ignored)):
            message = clean(f"PodGroup {key}: {ignored_text(new)}")
            self._reporter.object_event(event, "Warning", "KeyIgnored", "Scheduling", message)

    def _is_first_of_queue(self, pod: Pod, ignored: Ignored) -> bool:
        """Whether no lone pod of this namespace has named the same queue since the configuration was read."""
        settings, known = self._reported_queues
        if settings is not self._shared.settings:
            known = {}
            self._reported_queues = self._shared.settings, known
        meta = pod.metadata
        named = (meta.labels if ignored.where == "label" else meta.annotations) or _NOTHING
        queue = meta.namespace, named.get(ignored.key, "")[:_MAX_SHOWN]
        is_first = queue not in known
        known[queue] = None
        if len(known) > _MAX_TOLD:
            del known[next(iter(known))]
        return is_first

    def _new(self, key: GroupKey, ignored: Sequence[Ignored]) -> list[Ignored]:
        """The keys that were not reported for this group yet."""
        known = self._reported.get(key, frozenset())
        new = [one for one in ignored if one not in known][: _MAX_OF_GROUP - len(known)]
        if new:
            self._reported[key] = known.union(new)
            if len(self._reported) > _MAX_TOLD:
                del self._reported[next(iter(self._reported))]
        return new
