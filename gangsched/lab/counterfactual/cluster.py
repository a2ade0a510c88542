"""The cluster of a model: the simulator's API server without failures, and actors that act as recorded.

Pods arrive when they did, end after their recorded run time, wherever they run, and are deleted as long after
their end as recorded. A pod that is evicted, or whose node is removed, is recreated and runs for its whole
run time again. Nothing is random: equal inputs give equal days.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from random import Random

import msgspec
from msgspec.structs import replace

from gangsched.lab.counterfactual.day import Day, Ending, Life
from gangsched.lab.counterfactual.run_times import RunTimes
from gangsched.lab.sim.objects import at
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.actors import reborn
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.store import KINDS
from gangsched.lab.sim.world.weather import CALM, BindFate, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY
from gangsched.model.objects import Pod
from gangsched.model.pod_group import BIND_KEYS, DIALECTS

DELAY_S = 0.005
"""Delay of each direction of a request, and of each watch message."""
AGAIN_S = 1.0
"""Time until a controller has recreated a pod, if the recording has no example."""
_EPOCH_S = at(0.0).timestamp()
_GROUPS = (ev.PodGroupAdded, ev.PodGroupUpdated)
_NODES = (ev.NodeAdded, ev.NodeUpdated)
_IN_STORE = frozenset(one.name for one in DIALECTS if f"podgroups.{one.name}" in KINDS)


class Fair(Weather):
    """Each request arrives and takes the same time."""

    def __init__(self) -> None:
        super().__init__(Random(0), CALM)

    def bind_fate(self) -> BindFate:
        return BindFate.ARRIVES

    def latency_s(self) -> float:
        return DELAY_S

    def watch_delay_s(self) -> float:
        return DELAY_S

    def coin(self) -> bool:
        return False

    def eviction_refused(self) -> bool:
        return False


class Course(msgspec.Struct):
    """What happens to one recorded pod in a model, including all its replacements.

    bound_s: when it was first bound; group: its gang according to the core. gone_s: when it was withdrawn or
    ended for good. unknown: it ran although the recording lacks its run time.
    """

    came_s: float
    bound_s: float | None = None
    group: str = ""
    gone_s: float | None = None
    n_evicted: int = 0
    unknown: bool = False


class Cluster:
    """Provides the inputs of a model's core, and carries out its effects."""

    def __init__(self, day: Day, ours: Collection[str], hear: Callable[[ev.Event], None]) -> None:
        """ours: schedulerNames that the core serves; pods of other schedulers are bound as recorded."""
        self.day = day
        self.timeline = Timeline()
        self.api = SimApi(self.timeline, Fair(), hear)
        self.api.wall_offset_s = day.began_wall_s - _EPOCH_S
        self._ours = ours
        self._hear = hear
        self._runs = RunTimes(day)
        self._made_for: dict[str, str] = {}
        self._evicted: set[str] = set()
        self._lost: set[str] = set()
        self._name_is_free: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._left_behind: list[ev.Event] = []
        self.courses: dict[str, Course] = {}
        self.n_evicted = 0
        self.n_delayed = 0
        """Pods that came later than recorded, since an earlier pod still had their name."""
        self.group_of: Callable[[str], str] = lambda uid: ""
        self.api.on_bound.append(self._bound)
        self.api.on_gone.append(self._gone)

    def begin(self) -> None:
        """Creates what exists at the beginning, and schedules everything that follows."""
        first: list[ev.Event] = []
        for other in self.day.others:
            if other.at_s > 0.0:
                self.timeline.at(other.at_s, partial(self._tell, other.event))
            elif not self._stored(other.event):
                first.append(other.event)
        for life in self.day.lives.values():
            self._plan(life)
        self.timeline.advance_to(0.0)
        for event in first:
            self._hear(event)
        for kind, stream in self.api.streams.items():
            stream.is_offered = self.day.kinds.get(kind, False)
        self.api.connect(down_s=lambda: 0.0)

    def carry_out(self, effect: ef.Effect) -> None:
        """Carries out one effect of the core."""
        if isinstance(effect, ef.EvictPod | ef.DeletePod):
            self._evicted.add(effect.uid)
        elif isinstance(effect, ef.AskExtenders):
            self._hear(ev.ExtendersAnswered(effect.ticket, nodes=effect.nodes))
            return
        self.api.carry_out(effect)

    # -- objects ---------------------------------------------------------------------------------------

    def _stored(self, event: ev.Event) -> bool:
        """Puts an event's object into the store; returns whether the store keeps this kind."""
        if isinstance(event, _NODES):
            self.api.put_node(event.node)
        elif isinstance(event, _GROUPS) and event.dialect in _IN_STORE:
            self.api.put_group(event.dialect, event.item)
        else:
            return False
        return True

    def _tell(self, event: ev.Event) -> None:
        if self._stored(event):
            return
        if isinstance(event, ev.NodeDeleted):
            self._remove_node(event.node.metadata.name)
        elif isinstance(event, ev.PodGroupDeleted | ev.OwnerGone):
            self._left_behind.append(event)
            self._clear_up()
        else:
            self._hear(event)

    def _remove_node(self, name: str) -> None:
        there = [pod for pod in self.api.pods.values() if pod.spec.node_name == name]
        self.api.delete_node(name)
        for pod in there:
            if not pod.is_terminal:
                self._lost.add(pod.metadata.uid)
            self.api.delete_pod(pod)

    def _clear_up(self) -> None:
        """Deletes objects of gangs when they were deleted, but not before the last of their pods."""
        left, self._left_behind = self._left_behind, []
        for event in left:
            if self._has_pods(event):
                self._left_behind.append(event)
            elif isinstance(event, ev.PodGroupDeleted) and event.dialect in _IN_STORE:
                meta = event.item.metadata
                self.api.delete_group(event.dialect, meta.namespace, meta.name)
            else:
                self._hear(event)

    def _has_pods(self, event: ev.Event) -> bool:
        if isinstance(event, ev.OwnerGone):
            return any(
                owner.uid == event.uid
                for pod in self.api.pods.values()
                for owner in pod.metadata.owner_references or ()
            )
        if isinstance(event, ev.PodGroupDeleted):
            name = f"{event.item.metadata.namespace}/{event.item.metadata.name}"
            return any(self.group_of(pod.metadata.uid) == name for pod in self.api.pods.values())
        return False

    # -- pods ------------------------------------------------------------------------------------------

    def _is_ours(self, life: Life) -> bool:
        return life.pod.spec.scheduler_name in self._ours

    def _plan(self, life: Life) -> None:
        """Schedules everything that is known in advance about one pod."""
        if life.was_bound and life.placed is not None:
            course = self.courses[life.uid] = Course(0.0, 0.0)
            self.api.create_pod(life.placed)
            ended_s = self._goes_on_to_s(life, course)
            if ended_s is not None:
                self.timeline.at(ended_s, partial(self._end, life.placed, life))
        elif not self._is_ours(life):
            self.timeline.at(life.came_s, partial(self._come, life, life.pod))
            if life.bound_s is not None:
                self.timeline.at(max(life.bound_s, life.came_s), partial(self._bind_as_recorded, life))
            elif life.gone_s is not None:
                self.timeline.at(life.gone_s, partial(self._withdraw, life))
        elif not life.replaces:
            self.courses[life.uid] = Course(life.came_s)
            self.timeline.at(life.came_s, partial(self._come, life, life.pod))
            for edit in life.edits:
                self.timeline.at(life.came_s + edit.after_s, partial(self._edit, life, edit.pod))
            if life.bound_s is None and life.gone_s is not None:
                self.timeline.at(life.gone_s, partial(self._withdraw, life))

    def _goes_on_to_s(self, life: Life, course: Course) -> float | None:
        """Returns when a pod that was there before ends, if not evicted; None: after all known run times."""
        if life.ending is not Ending.CUT_OFF or not self._is_ours(life):
            return life.ended_s
        if life.placed is not None and life.placed.metadata.deletion_timestamp is not None:
            self._lost.add(life.uid)  # its deletion was requested before
            return life.ended_s
        run_s, is_known = self._runs.run_time(life)
        course.unknown = not is_known
        return None if run_s is None else max((life.bound_s or 0.0) + run_s, life.ended_s or 0.0)

    def _come(self, life: Life, pod: Pod) -> None:
        key = (pod.metadata.namespace, pod.metadata.name)
        if key in self.api.pods:
            self.n_delayed += 1
            self._name_is_free.setdefault(key, []).append(partial(self._come, life, pod))
            return
        self.api.create_pod(pod)
        if not self._is_ours(life) and life.ended_s is not None:
            self.timeline.at(life.ended_s, partial(self._end, pod, life))

    def _bind_as_recorded(self, life: Life) -> None:
        had = life.placed.metadata.annotations or {} if life.placed is not None else {}
        written = {key: had[key] for key in (ALLOCATED_KEY, *BIND_KEYS) if key in had}
        self.api.bind_as_stranger(life.pod, life.node, written)

    def _edit(self, life: Life, pod: Pod) -> None:
        now = self.api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is None or now.metadata.uid != life.uid or now.spec.node_name:
            return
        meta = replace(now.metadata, labels=pod.metadata.labels, annotations=pod.metadata.annotations)
        self.api.update_pod(now, metadata=meta, spec=pod.spec)

    def _withdraw(self, life: Life) -> None:
        """Deletes a pod whose user deleted it before it was ever bound."""
        now = self._now(life.pod)
        if now is not None and not now.spec.node_name:
            self.api.delete_pod(now)

    def _bound(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        life = self._life_of(uid)
        self.timeline.after(0.5, partial(self._run, pod))
        course = self.courses.get(life.uid)
        if course is None:
            return
        if course.bound_s is None:
            course.bound_s = self.timeline.now_s
        course.group = course.group or self.group_of(uid)
        run_s, is_known = self._runs.run_time(life)
        course.unknown = course.unknown or not is_known
        if run_s is not None:
            self.timeline.after(run_s, partial(self._end, pod, life))

    def _life_of(self, uid: str) -> Life:
        return self.day.lives[self._made_for.get(uid, uid)]

    def _now(self, pod: Pod) -> Pod | None:
        now = self.api.pods.get((pod.metadata.namespace, pod.metadata.name))
        return now if now is not None and now.metadata.uid == pod.metadata.uid else None

    def _run(self, pod: Pod) -> None:
        now = self._now(pod)
        if now is not None and not now.is_terminal:
            status = replace(now.status, phase="Running", start_time=self.api.wall_time())
            self.api.update_pod(now, status=status)

    def _end(self, pod: Pod, life: Life) -> None:
        """Ends a pod as recorded: by itself, which may leave it there for a while, or by deletion."""
        now = self._now(pod)
        if now is None or now.is_terminal or now.metadata.uid in self._evicted:
            return
        last = self._runs.last(life) if self._is_ours(life) else life
        if now.metadata.uid not in self._lost and last.ending in (Ending.SUCCEEDED, Ending.FAILED):
            self.api.update_pod(now, status=replace(now.status, phase=last.ending.value))
            if last.gone_s is not None and last.ended_s is not None:
                self.timeline.after(max(last.gone_s - last.ended_s, 0.0), partial(self.api.delete_pod, now))
        else:
            self.api.delete_pod(now)

    def _gone(self, gone: Pod) -> None:
        uid = gone.metadata.uid
        life = self._life_of(uid)
        course = self.courses.get(life.uid)
        if course is not None:
            course.group = course.group or self.group_of(uid)
            course.gone_s = self.timeline.now_s
        if uid in self._evicted or uid in self._lost:
            self.n_evicted += uid in self._evicted
            if course is not None and self._is_controlled(life):
                course.n_evicted += 1
                again_s = AGAIN_S if self.day.again_s is None else self.day.again_s
                self.timeline.after(again_s, partial(self._make_anew, gone))
        key = (gone.metadata.namespace, gone.metadata.name)
        for come in self._name_is_free.pop(key, ()):
            self.timeline.after(0.0, come)
        if self._left_behind:
            self.timeline.after(0.0, self._clear_up)

    def _is_controlled(self, life: Life) -> bool:
        """Whether it is recreated: it has a controller, or it was recreated in the recording."""
        owners = life.pod.metadata.owner_references or ()
        return any(one.controller for one in owners) or self._runs.was_replaced(life)

    def _make_anew(self, gone: Pod) -> None:
        base = self._made_for.get(gone.metadata.uid, gone.metadata.uid)
        pod = reborn(gone, f"again{len(self._made_for)}", self.api.wall_s)
        owners = gone.metadata.owner_references  # some gangs are recognized only by them
        pod = replace(pod, metadata=replace(pod.metadata, owner_references=owners))
        self._made_for[pod.metadata.uid] = base
        self.api.create_pod(pod)
