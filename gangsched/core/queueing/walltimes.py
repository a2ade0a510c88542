"""Walltimes: how long each group runs: stated, enforced, predicted, by default, or without end.

For each member the first of these that is known counts; a gang runs as long as its longest member. A
prediction is the mean of the last two runs of the same kind, which beats cleverer methods (Tsafrir, Etsion,
Feitelson, TPDS 2007). Runs are read from pods that succeeded: from when kubelet admitted the first to when
the last ended, by the node's clock. So listing the pods after a restart teaches as much as watching them did.
Called by core.groups.attempts.attempts, core.groups.members.membership and core.state.state; read by web.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.queues.tree import QueueTree
from gangsched.core.types.group import LEAVING, Group, PodInfo
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GroupKey, PodGroup
from gangsched.model.resources import is_extended
from gangsched.model.walltime import SOURCES, Walltime, pod_walltime, stated_walltime

_MAX_KINDS = 4096
_MAX_TOLD = 4096
# Limit on ended pods not evaluated yet; they are evaluated only when a walltime is asked for.
_MAX_FRESH = 8192
_ENDINGS = ("Ready", "ContainersReady")
_SAID = ("stated", "enforced")
_MAX_PODS = 8192
_DIGITS = re.compile(r"[0-9]+")
# The suffix of names that Kubernetes generates; it has no vowels, so that it spells no word by chance.
_SUFFIX = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}")

_Kind = tuple[str, str, str, int]
"""(namespace, scheduler name, name without digits and suffixes, extended resources of one pod)"""


class _Known(msgspec.Struct, gc=False):
    """A group's walltime, and what it was computed from: its object, and its members as of `n_changes`.
    n_learned: the state of known runs and defaults; None: it follows from statements alone."""

    definition: PodGroup | None
    n_changes: int
    n_learned: int | None
    walltime: Walltime


class _Run(msgspec.Struct):
    group: GroupKey
    began_s: float
    ended_s: float


class Walltimes:
    """Knows how long groups run, and learns from ended groups."""

    def __init__(self, settings: QueueingSettings) -> None:
        self._settings = settings
        self.tree: QueueTree | None = None
        """The queues, whose defaults take precedence over their profiles'; None: none are configured."""
        self._runs: dict[_Kind, list[_Run]] = {}
        """The last two runs of each kind, the most recently updated kind last."""
        self._fresh: deque[tuple[Group, PodInfo]] = deque(maxlen=_MAX_FRESH)
        self._reported: dict[GroupKey, tuple[str, ...]] = {}
        self._n_learned = 0
        """Changes with every run, and with the defaults."""
        self._known: WeakKeyDictionary[Group, _Known] = WeakKeyDictionary()
        self._last_s: WeakKeyDictionary[Group, float] = WeakKeyDictionary()
        """The walltimes that `has_changed` found last."""
        self._by_pod: dict[str, tuple[Pod, Walltime]] = {}
        """UID -> (pod, its walltime), for pods in no group."""

    def configure(self, settings: QueueingSettings) -> None:
        """Applies new defaults; what was learned stays."""
        self._settings = settings
        self._n_learned += 1

    def walltime(self, group: Group) -> Walltime:
        """The group's walltime as of now: statements may be edited while it runs."""
        self._learn()
        known = self._known.get(group)
        if (
            known is not None
            and known.definition is group.definition
            and known.n_changes == group.n_changes
            and known.n_learned in (None, self._n_learned)
        ):
            return known.walltime
        found, is_known = self._asked(group)
        n_learned = None if is_known else self._n_learned
        self._known[group] = _Known(group.definition, group.n_changes, n_learned, found)
        return found

    def before(self, group: Group) -> Walltime:
        """The group's walltime as computed last: as its members leave one by one it is not computed again."""
        known = self._known.get(group)
        return self.walltime(group) if known is None else known.walltime

    def has_changed(self, group: Group) -> bool:
        """Whether the group's walltime has changed since the last call: an object or a pod was edited, or a
        member came or went."""
        walltime_s = self.walltime(group).seconds
        before_s, self._last_s[group] = self._last_s.get(group, walltime_s), walltime_s
        return walltime_s != before_s

    def pod_walltime(self, pod: Pod) -> Walltime:
        """The walltime that a pod in no group states."""
        known = self._by_pod.get(pod.metadata.uid)
        if known is None or known[0] is not pod:
            known = self._by_pod[pod.metadata.uid] = (pod, pod_walltime(pod))
            if len(self._by_pod) > _MAX_PODS:
                del self._by_pod[next(iter(self._by_pod))]
        return known[1]

    def _asked(self, group: Group) -> tuple[Walltime, bool]:
        """(the walltime, whether it follows from statements alone, so that only an edit changes it)."""
        definition = group.definition
        stated = stated_walltime(None, definition.walltime if definition is not None else None)
        if stated.source == "stated":
            return stated, True
        longest: Walltime | None = None
        is_known = True
        problems = dict.fromkeys(f"PodGroup: {one}" for one in stated.problems)
        before: Pod | None = None
        for info in group.members.values():
            if info.state is LEAVING or (before is not None and _say_the_same(info.pod, before)):
                continue
            before = info.pod
            own = self._of_member(group, info)
            is_known = is_known and (own.source in _SAID or (own.source == "never" and bool(own.field)))
            name = info.pod.metadata.name
            problems |= dict.fromkeys(f"pod {name}: {one}" for one in own.problems)
            if longest is None or _order(own) > _order(longest):
                longest = own
        return replace(longest or Walltime(), problems=tuple(problems)), is_known

    def problems(self, group: Group) -> tuple[str, ...]:
        """The group's unreadable walltime statements, if not reported before. Reads no walltime where none is
        stated."""
        definition = group.definition
        is_stated = group.states_walltime or (definition is not None and bool(definition.walltime))
        if not is_stated and not self._reported:
            return ()
        found = self.walltime(group).problems if is_stated else ()
        if self._reported.get(group.key, ()) == found:
            return ()
        self._reported.pop(group.key, None)
        if found:
            self._reported[group.key] = found
            if len(self._reported) > _MAX_TOLD:
                del self._reported[next(iter(self._reported))]
        return found

    def finished(self, group: Group, info: PodInfo) -> None:
        """Records that a member succeeded; evaluated on the next query, as its group may be incomplete."""
        self._fresh.append((group, info))

    def _of_member(self, group: Group, info: PodInfo) -> Walltime:
        own = pod_walltime(info.pod)
        if own.source != "never" or own.field:
            return own
        predicted_s = self._predicted_s(_kind_of(group, info))
        if predicted_s is not None:
            return Walltime(predicted_s, "predicted", "the last runs of its kind", own.problems)
        default_s = None if self.tree is None else self.tree.default_walltime_s(info.pod)
        if default_s is None:
            default_s = self._settings.default_walltime_s.get(group.scheduler_name)
        if default_s is not None:
            return Walltime(default_s, "default", "defaultWalltime", own.problems)
        return own

    def _predicted_s(self, kind: _Kind) -> float | None:
        runs = self._runs.get(kind)
        return sum(run.ended_s - run.began_s for run in runs) / len(runs) if runs else None

    def _learn(self) -> None:
        while self._fresh:
            group, info = self._fresh.popleft()
            times = _times_of(info.pod)
            if times is None:
                continue
            kind, (began_s, ended_s) = _kind_of(group, info), times
            runs = self._runs.pop(kind, [])
            same = next((run for run in runs if _is_part_of(run, group, began_s, ended_s)), None)
            if same is not None:
                same.began_s, same.ended_s = min(same.began_s, began_s), max(same.ended_s, ended_s)
            else:
                runs.append(_Run(group.key, began_s, ended_s))
                runs.sort(key=lambda run: run.ended_s)
            self._runs[kind] = runs[-2:]
            self._n_learned += 1
            if len(self._runs) > _MAX_KINDS:
                del self._runs[next(iter(self._runs))]


def _is_part_of(run: _Run, group: Group, began_s: float, ended_s: float) -> bool:
    """Whether a member's time overlaps this run of its group; else the group has run again since."""
    return run.group == group.key and began_s <= run.ended_s and run.began_s <= ended_s


def _order(one: Walltime) -> tuple[float, int]:
    """A sort key: the longer walltime is greater, then the more certain source."""
    return one.seconds, -SOURCES.index(one.source)


def _say_the_same(one: Pod, other: Pod) -> bool:
    this, that = one.metadata, other.metadata
    return (
        this.annotations == that.annotations
        and this.labels == that.labels
        and this.owner_references == that.owner_references
        and one.spec.active_deadline_seconds == other.spec.active_deadline_seconds
        and one.spec.containers == other.spec.containers
    )


def _times_of(pod: Pod) -> tuple[float, float] | None:
    """(when it was admitted, when its containers stopped); None if the node has not reported that."""
    began = pod.status.start_time
    ends = [
        one.last_transition_time
        for one in pod.status.conditions or ()
        if one.type in _ENDINGS and one.status == "False" and one.last_transition_time is not None
    ]
    if began is None or not ends:
        return None
    began_s, ended_s = began.timestamp(), max(end.timestamp() for end in ends)
    return (began_s, ended_s) if ended_s > began_s else None


def _kind_of(group: Group, info: PodInfo) -> _Kind:
    meta = info.pod.metadata
    name = group.key.name
    if not group.is_gang:
        name = (meta.controller or meta).name
    n_devices = sum(n for resource, n in _extended(info.template.requests))
    return meta.namespace, group.scheduler_name, kind_name(name), n_devices


def kind_name(name: str) -> str:
    """The name without digits and Kubernetes' suffix; unchanged if nothing would be left."""
    parts = name.split("-")
    while len(parts) > 1 and _SUFFIX.fullmatch(parts[-1]):
        parts.pop()
    left = [part for one in parts if (part := _DIGITS.sub("", one))]
    return "-".join(left) or name


def _extended(requests: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(resource, n) for resource, n in requests.items() if is_extended(resource)]
