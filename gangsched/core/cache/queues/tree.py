"""QueueTree: the configured queues, and which of them a pod is in.

Lives here: parents and leaves, and the labels that name a queue. Not here: reading the file (config.queues),
what queues hold and which is next (core.cache.queues.book).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gangsched.config.queues import QueueConfig, QueuesSettings
from gangsched.core.types.group import PodInfo
from gangsched.core.types.needed import requests_of
from gangsched.model.objects import Pod
from gangsched.model.pod_group import STARTED_IN_KEY
from gangsched.reading.strict import nearest

QUEUE_KEY = "gangsched.io/queue"
"""The pod's annotation, or label, that names its queue."""
OTHER_KEYS = ("kai.scheduler/queue", "scheduling.volcano.sh/queue-name", "yunikorn.apache.org/queue")
"""Other systems' labels or annotations that name a queue; of a dotted path the last name counts."""
OTHERS = "/other"
"""In place of a queue: no queue lists the pod's namespace."""
_MAX_KEPT = 16_384
# No queue name is as long. Annotations may have 256 KiB, and answers are kept when their pods have gone.
_MAX_WANTED = 80
_MAX_NAMED = 5
_NOTHING: Mapping[str, str] = {}


class Chosen(NamedTuple):
    """A pod's queue, and why it may not be scheduled in it; "" if it may."""

    queue: str
    problem: str = ""


class Place(tuple[tuple[bool, float, str], ...]):
    """A lane's place: (over its guarantee?, score, name) for each queue on the path down to it.

    The smallest place is where a walk from the root ends that takes the smallest child each time.
    """

    __slots__ = ()


class QueueTree:
    """The queues by name, and the path from the top to each."""

    def __init__(self, settings: QueuesSettings) -> None:
        self.settings = settings
        self.queues: dict[str, QueueConfig] = {one.name: one for one in settings.queues}
        self.paths: dict[str, tuple[str, ...]] = {OTHERS: (OTHERS,)}
        """From the top down to the queue itself."""
        for one in settings.queues:
            above = self.paths[one.parent] if one.parent else ()
            self.paths[one.name] = (*above, one.name)
        self.queues[OTHERS] = QueueConfig(OTHERS)
        self.children: dict[str, list[str]] = {}
        """The queues directly below each."""
        for one in settings.queues:
            if one.parent:
                self.children.setdefault(one.parent, []).append(one.name)
        self.guarantees = any(one.guaranteed for one in settings.queues)
        """Whether any queue has a guarantee."""
        self.goes_by_walltime = any(one.order == "shortest" for one in settings.queues)
        """Whether any queue has the order "shortest"."""
        self._exact: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        for one in settings.queues:
            for namespace in one.namespaces:
                if namespace.endswith("*"):
                    self._prefixes[namespace[:-1]] = one.name
                else:
                    self._exact[namespace] = one.name
        self._kept: dict[tuple[str, str], Chosen] = {}

    def choice(self, pod: Pod, sent: str = "") -> Chosen:
        """Returns the queue of a pod: the one that it names, else the closest one that lists its namespace.

        An exact name is closer than a prefix, and a longer prefix closer than a shorter one. For a pod on a
        node it is the queue in which the pod started, while that lists its namespace. sent: the queue that
        its bind names, if one was sent.
        """
        meta = pod.metadata
        labels, annotations = meta.labels or _NOTHING, meta.annotations or _NOTHING
        started = annotations.get(STARTED_IN_KEY) if pod.spec.node_name else sent
        if started:
            found = self._of_name(meta.namespace, started)
            if not found.problem:
                return found
        wanted = annotations.get(QUEUE_KEY) or labels.get(QUEUE_KEY, "")
        if not wanted and self.settings.reads_others:
            named = (labels.get(key) or annotations.get(key) for key in OTHER_KEYS)
            wanted = next((one.rsplit(".", 1)[-1] for one in named if one), "")
        return self._of_name(meta.namespace, wanted)

    def home_of(self, namespace: str) -> str:
        """Returns the closest queue that lists the namespace; OTHERS if none does."""
        return self._of_name(namespace, "").queue

    def asked(self, members: Iterable[PodInfo]) -> dict[str, dict[str, int]]:
        """Returns what the members ask of each queue that they are in, and of those above it."""
        by_queue: dict[str, list[PodInfo]] = {}
        for info in members:
            queue = self.choice(info.pod).queue
            if queue in self.paths:
                by_queue.setdefault(queue, []).append(info)
        asked: dict[str, dict[str, int]] = {}
        for queue, infos in by_queue.items():
            request = requests_of(infos)
            for name in self.paths[queue]:
                so_far = asked.setdefault(name, {})
                for resource, amount in request.items():
                    so_far[resource] = so_far.get(resource, 0) + amount
        return asked

    def due(self, queue: str) -> float:
        """Returns a queue's due share of the cluster, if all queues have pods in line; 0 to 1."""
        found = 1.0
        for name in self.paths.get(queue, ()):
            one = self.queues[name]
            beside = [other.share for other in self.settings.queues if other.parent == one.parent]
            found *= one.share / max(sum(beside), one.share)
        return found

    def _of_name(self, namespace: str, wanted: str) -> Chosen:
        key = namespace, wanted[:_MAX_WANTED]
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[key] = self._choose(*key)
        return found

    def _choose(self, namespace: str, wanted: str) -> Chosen:
        lists = self._listing(namespace)
        queue = lists[0] if lists else OTHERS
        if not wanted or wanted in lists:
            return Chosen(wanted or queue)
        # Whether there is a queue of that name is not for the tenants of a namespace that it does not list.
        why = f"no queue of this name takes pods of the namespace {namespace}"
        may = (
            f"those that do: {', '.join(lists[:_MAX_NAMED])}{nearest(wanted, lists)}"
            if lists
            else "nor does another"
        )
        return Chosen(queue, f"queue {wanted}: {why}; {may}")

    def _listing(self, namespace: str) -> list[str]:
        """Returns the queues that list the namespace, the closest first."""
        exact = self._exact.get(namespace)
        found = [exact] if exact is not None else []
        for n in range(len(namespace), -1, -1):
            if (by_prefix := self._prefixes.get(namespace[:n])) is not None and by_prefix not in found:
                found.append(by_prefix)
        return found

    def default_walltime_s(self, pod: Pod) -> float | None:
        """Returns the default walltime of the pod's queue, or of the closest queue above it that has one."""
        for name in reversed(self.paths.get(self.choice(pod).queue, ())):
            own = self.queues[name].default_walltime_s
            if own is not None:
                return own
        return None

    def bound(self, pod: Pod) -> int | Literal["auto"] | None:
        """Returns the bound on being passed, found likewise; None if no queue on the path has one."""
        for name in reversed(self.paths.get(self.choice(pod).queue, ())):
            own = self.queues[name].bound
            if own is not None:
                return own
        return None
