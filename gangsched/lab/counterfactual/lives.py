"""Lives: the life of each recorded pod, from the versions that the watch has shown.

Called by reading, in the order of time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from statistics import median

import msgspec
from msgspec.structs import replace

from gangsched.lab.counterfactual.day import Edit, Ending, Life
from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_BY_CONTAINER, VISIBLE_KEY
from gangsched.model.devices.labels import allocated_labels
from gangsched.model.objects import Pod, PodStatus
from gangsched.model.pod_group import BIND_KEYS

_WRITTEN = frozenset((ALLOCATED_KEY, VISIBLE_KEY, *BIND_KEYS))
# Source: kubernetes `staging/src/k8s.io/api/core/v1/types.go`, PodReasonPreemptionByScheduler.
_DISRUPTED = "DisruptionTarget"
_PREEMPTED = "PreemptionByScheduler"
_ENDINGS = {"Succeeded": Ending.SUCCEEDED, "Failed": Ending.FAILED}


class _Course(msgspec.Struct):
    """A life as far as known, in seconds since 1970; leaves_s: when its deletion was requested.

    disrupted: it was evicted, by any client, or its node was removed.
    """

    first: Pod
    came_s: float
    last: Pod
    was_bound: bool = False
    bound_s: float | None = None
    leaves_s: float | None = None
    ended_s: float | None = None
    gone_s: float | None = None
    ending: Ending = Ending.NOT_ENDED
    evicted: bool = False
    disrupted: bool = False
    edits: list[tuple[float, Pod]] = []


class Lives:
    """All pods ever shown by the watch."""

    def __init__(self) -> None:
        self._by_uid: dict[str, _Course] = {}
        self._there: dict[str, _Course] = {}
        self._unseen: dict[str, None] | None = {}
        """Pods that the list under way has not yet shown; None: there is no list under way."""

    def listed_anew(self) -> None:
        """Begins a list: another process starts and is shown everything."""
        self._unseen = dict.fromkeys(self._there)

    def listed(self, now_s: float) -> None:
        """Ends the list: pods that it did not show were deleted meanwhile."""
        for uid in self._unseen or ():
            self._end(self._there[uid], now_s)
        self._unseen = None

    def put(self, pod: Pod, now_s: float) -> None:
        """Takes in a version of a pod."""
        uid = pod.metadata.uid
        course = self._by_uid.get(uid)
        if course is None:
            course = self._begin(pod, now_s)
        if self._unseen is not None:
            self._unseen.pop(uid, None)
        if pod.spec.node_name and course.bound_s is None:
            course.bound_s = now_s
        elif course.bound_s is None and _differ(
            _unplaced(pod), course.edits[-1][1] if course.edits else course.first
        ):
            course.edits.append((now_s, _unplaced(pod)))
        if pod.metadata.deletion_timestamp is not None and course.leaves_s is None:
            course.leaves_s = now_s
        if course.ended_s is None and (why := _disruption(pod)):
            course.disrupted = True
            course.evicted = course.evicted or why == _PREEMPTED
        if pod.is_terminal and course.ended_s is None:
            course.ended_s, course.ending = now_s, _ENDINGS[pod.status.phase]
        course.last = pod

    def _begin(self, pod: Pod, now_s: float) -> _Course:
        """Begins a life; a pod shown by a list may be older than now_s."""
        is_listed, made = self._unseen is not None, pod.metadata.creation_timestamp
        came_s = min(now_s, made.timestamp()) if is_listed and made is not None else now_s
        course = _Course(_unplaced(pod), came_s, pod)
        if pod.spec.node_name and is_listed:
            course.was_bound = True
            course.bound_s = min(now_s, _placed_s(pod) or now_s)
        self._by_uid[pod.metadata.uid] = self._there[pod.metadata.uid] = course
        return course

    def gone(self, pod: Pod, now_s: float) -> None:
        """Takes in that a pod was deleted."""
        course = self._there.get(pod.metadata.uid)
        if course is not None:
            self._end(course, now_s)

    def _end(self, course: _Course, now_s: float) -> None:
        course.gone_s = now_s
        if course.bound_s is not None and course.ended_s is None:
            course.ended_s, course.ending = now_s, Ending.DELETED
        self._there.pop(course.first.metadata.uid, None)

    def evicted(self, uid: str) -> None:
        """Takes in that the scheduler evicted a pod."""
        if uid in self._there:
            self._there[uid].evicted = True

    def node_gone(self, name: str) -> None:
        """Takes in that a node was removed, with the pods that ran there."""
        for course in self._there.values():
            if course.last.spec.node_name == name and course.ended_s is None:
                course.disrupted = True

    # -- the answer ------------------------------------------------------------------------------------

    def all_since(self, began_s: float) -> tuple[dict[str, Life], float | None]:
        """Returns all lives in seconds since began_s, and the median time to replace a pod cut off."""
        courses = {uid: one for uid, one in self._by_uid.items() if not _is_over(one, began_s)}
        replaces, took_s = _successors(courses.values())
        in_order = sorted(courses.items(), key=lambda one: (max(one[1].came_s, began_s), one[0]))
        found = {uid: _life(course, began_s, replaces.get(uid, "")) for uid, course in in_order}
        return found, median(took_s) if took_s else None


def _is_over(course: _Course, began_s: float) -> bool:
    """Whether the pod ended before the day; its replacement then counts as an original pod."""
    return any(at_s is not None and at_s <= began_s for at_s in (course.gone_s, course.ended_s))


def _life(course: _Course, began_s: float, replaces: str) -> Life:
    def since(at_s: float | None) -> float | None:
        return None if at_s is None else at_s - began_s

    was_bound = course.was_bound and course.bound_s is not None and course.bound_s <= began_s
    return Life(
        pod=course.first,
        came_s=max(course.came_s - began_s, 0.0),
        was_bound=was_bound,
        bound_s=since(course.bound_s),
        node=course.last.spec.node_name,
        ended_s=since(course.ended_s),
        gone_s=since(course.gone_s),
        ending=Ending.CUT_OFF if _is_cut_off(course) else course.ending,
        evicted=course.evicted,
        replaces=replaces,
        edits=tuple(Edit(max(at_s - course.came_s, 0.0), pod) for at_s, pod in course.edits),
        placed=None if course.bound_s is None else _placed(course, began_s),
    )


def _placed(course: _Course, began_s: float) -> Pod:
    """Returns the bound pod, without a deletion requested after the day began."""
    pod = course.last
    meta, conditions = pod.metadata, pod.status.conditions
    if course.leaves_s is None or course.leaves_s > began_s:
        meta = replace(meta, deletion_timestamp=None)
        conditions = [one for one in conditions or () if one.type != _DISRUPTED]
    return replace(pod, metadata=meta, status=replace(pod.status, phase="Running", conditions=conditions))


def _is_cut_off(course: _Course) -> bool:
    return course.ended_s is not None and (course.evicted or course.disrupted)


def _successors(courses: Iterable[_Course]) -> tuple[dict[str, str], list[float]]:
    """Returns for replacements the UID of the pod that they replace; and how long each took."""
    in_order = sorted(courses, key=_came_s)
    place = {id(course): at for at, course in enumerate(in_order)}
    by_maker: dict[tuple[str, str], list[_Course]] = {}
    for course in in_order:
        for maker in _makers(course.first):
            by_maker.setdefault(maker, []).append(course)
    replaces: dict[str, str] = {}
    took_s = []
    for course in sorted(filter(_is_cut_off, in_order), key=lambda one: one.ended_s or 0.0):
        ended_s = course.ended_s or 0.0
        left_s = min(ended_s, course.leaves_s or ended_s)
        for one in _in_turn(course, by_maker, left_s):
            # Of two pods that one call shows as ended, neither replaces the other.
            if place[id(one)] > place[id(course)] and one.first.metadata.uid not in replaces:
                replaces[one.first.metadata.uid] = course.first.metadata.uid
                took_s.append(max(one.came_s - (course.gone_s or ended_s), 0.0))
                break
    return replaces, took_s


def _in_turn(
    course: _Course, by_maker: dict[tuple[str, str], list[_Course]], from_s: float
) -> Iterator[_Course]:
    """Yields candidates that came from then on, those of its name first."""
    for maker in _makers(course.first):
        same = by_maker[maker]
        yield from (same[at] for at in range(bisect_left(same, from_s, key=_came_s), len(same)))


def _came_s(course: _Course) -> float:
    return course.came_s


def _makers(pod: Pod) -> list[tuple[str, str]]:
    """Returns what a replacement shares with the pod: its name, or its controller."""
    meta = pod.metadata
    found = [(meta.namespace, meta.name)]
    return found + [("", one.uid) for one in meta.owner_references or () if one.controller and one.uid]


def _placed_s(pod: Pod) -> float | None:
    """Returns when it was bound, or else started; None: neither is stated."""
    placed_at = pod.bound_at or pod.status.start_time
    return None if placed_at is None else placed_at.timestamp()


def _disruption(pod: Pod) -> str:
    """Returns why it is about to be disrupted, by its condition, whichever process evicted it."""
    for one in pod.status.conditions or ():
        if one.type == _DISRUPTED and one.status == "True":
            return one.reason or one.type
    return ""


def _unplaced(pod: Pod) -> Pod:
    """Returns the pod as its user made it, without what schedulers and kubelets wrote."""
    meta = pod.metadata
    annotations = {
        key: value
        for key, value in (meta.annotations or {}).items()
        if key not in _WRITTEN and not key.partition("/")[0].endswith(VISIBLE_BY_CONTAINER)
    }
    theirs = allocated_labels(meta.labels)
    labels = {key: value for key, value in (meta.labels or {}).items() if key not in theirs}
    meta = replace(meta, annotations=annotations, labels=labels, resource_version="", deletion_timestamp=None)
    return Pod(metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus())


def _differ(one: Pod, other: Pod) -> bool:
    mine, theirs = one.metadata, other.metadata
    return (mine.labels, mine.annotations, one.spec) != (theirs.labels, theirs.annotations, other.spec)
