"""A cluster's past, written down as by a scheduler that only follows.

Pods are bound where and when they were; gangsched counterfactual asks what this scheduler would have done. So
they get its name, except those of DaemonSets, which belong to their nodes. Called by the command.
"""

from __future__ import annotations

from itertools import groupby

from msgspec.structs import replace

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.journal.records import HISTORY_OVER
from gangsched.lab.counterfactual.reading import MAX_DAYS
from gangsched.lab.importing.jobs import Written, no_state
from gangsched.lab.importing.kubernetes import Course, History
from gangsched.lab.importing.writing import JournalFile, VirtualRecorder
from gangsched.model import events as ev
from gangsched.model.objects import Pod, PodStatus
from gangsched.plugins import IN_TREE, build_profiles

UNKNOWN_NODE = "binds to nodes that are not in it"


def write_history(of: History, file: JournalFile) -> Written:
    """Writes the history down. Raises: ConfigError (no pod or no node is in it)."""
    for what, found in (("pod", of.courses), ("node", of.nodes)):
        if not found:
            raise ConfigError(
                f"has no {what}: kubectl get pods,nodes -A -o json prints both, to be given too"
            )
    began_s = min(course.came_s for course in of.courses.values())
    _check_length(of, began_s)
    config = default_config(IN_TREE)
    recorder = VirtualRecorder(file, began_s)
    core = Scheduler(
        build_profiles(config), config.settings, leading=False, pick=recorder.picks, wall_ahead_s=began_s
    )
    recorder.begin(core, config, no_state, leading=False)
    sources = _Sources(of, next(iter(core.shared.profiles)), began_s)
    first = [event for at_s, event in sources.nodes if at_s <= 0.0]
    recorder.handle(first, 0.0)
    recorder.handle([ev.KindSynced(kind) for kind in core.kinds], 0.0)
    later = sorted((*(one for one in sources.nodes if one[0] > 0.0), *sources.pods), key=lambda one: one[0])
    now_s = 0.0
    for now_s, events in groupby(later, key=lambda one: one[0]):
        recorder.handle([event for _, event in events], now_s)
    recorder.end(HISTORY_OVER, now_s)
    n_bound = sum(course.bound_s is not None for course in of.courses.values())
    return Written(n_bound, len(of.courses) - n_bound, now_s)


def _check_length(of: History, began_s: float) -> None:
    """Checks that the history is not too long. Raises: ConfigError."""
    times = ((one.came_s, one.bound_s, one.ended_s, one.gone_s) for one in of.courses.values())
    ended_s = max(
        *(at_s for some in times for at_s in some if at_s is not None),
        *(at_s for at_s, _ in of.nodes.values()),
    )
    days = (ended_s - began_s) / 86_400.0
    if days > MAX_DAYS:
        raise ConfigError(
            f"lasts {days:,.0f} days, more than {MAX_DAYS:,}: leave out what is older, or a time in it is"
            " wrong"
        )


class _Sources:
    """A history as events with their times, from its beginning."""

    def __init__(self, of: History, scheduler_name: str, began_s: float) -> None:
        self._of = of
        self._name = scheduler_name
        self._began_s = began_s
        self._version = 0
        self.nodes: list[tuple[float, ev.Event]] = [
            (max(at_s - began_s, 0.0), ev.NodeAdded(node)) for at_s, node in of.nodes.values()
        ]
        self.pods: list[tuple[float, ev.Event]] = []
        for uid, course in sorted(of.courses.items(), key=lambda one: (one[1].came_s, one[0])):
            self._tell(uid, course)

    def _tell(self, uid: str, course: Course) -> None:
        pod, meta = course.pod, course.pod.metadata
        is_ours = not any(one.kind == "DaemonSet" for one in meta.owner_references or () if one.controller)
        spec = replace(pod.spec, scheduler_name=self._name) if is_ours else pod.spec
        pod = Pod(replace(meta, uid=uid, deletion_timestamp=None), spec, pod.status)
        at_s = course.came_s
        self._put(at_s, ev.PodAdded(self._next(pod)))
        if course.bound_s is not None and course.node not in self._of.nodes:
            self._of.missing[UNKNOWN_NODE] += 1
        elif course.bound_s is not None:
            at_s = max(at_s, course.bound_s)
            pod = Pod(pod.metadata, replace(spec, node_name=course.node), PodStatus(phase="Running"))
            self._put(at_s, ev.PodUpdated(self._next(pod)))
        if course.ended_s is not None:
            at_s = max(at_s, course.ended_s)
            pod = replace(pod, status=PodStatus(phase=course.phase))
            self._put(at_s, ev.PodUpdated(self._next(pod)))
        if course.gone_s is not None:
            self._put(max(at_s, course.gone_s), ev.PodDeleted(self._next(pod)))

    def _put(self, at_s: float, event: ev.Event) -> None:
        self.pods.append((at_s - self._began_s, event))

    def _next(self, pod: Pod) -> Pod:
        self._version += 1
        return replace(pod, metadata=replace(pod.metadata, resource_version=str(self._version)))
