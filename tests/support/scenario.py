"""cluster(nodes=4, gpus=8).submit(gang("a", pods=4, gpus=8)).run(): a scenario's language.

A Cluster is one Scheduler and a server that answers at once and as told; every step ends with validate()
and with the book-keeping checks of gangsched.lab.sim. Virtual time passes only by `tick` and `wait`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.core.framework.interface import Status
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.judges.places.binds import bind_is_sound
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.lab.sim.reading.documents import ids_of
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.world.streams import API_VERSIONS
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Condition, CustomObject, Node, Pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.inside import Inside

E = TypeVar("E")


class Cluster(Inside):
    """The world of one scenario."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        synced: bool = True,
        make: Callable[[Settings], Scheduler] = make_scheduler,
    ) -> None:
        self.settings = settings or Settings()
        super().__init__(make(self.settings))
        self.make = make
        self.now_s = 1.0
        self._version = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.objects: dict[tuple[str, str], CustomObject] = {}
        self.effects: list[ef.Effect] = []
        self.answer: Callable[[ef.BindPod], str] = lambda bind: "ok"
        self.evictions = "ok"
        self.patches = "ok"
        self.held_binds: list[ef.BindPod] = []
        self.hook: Callable[[ef.RunHook], Status | None] = lambda hook: Status()
        self.held_hooks: list[ef.RunHook] = []
        self.received = Received()
        if synced:
            self.tell(*(ev.KindSynced(kind) for kind in self.scheduler.kinds))

    # -- what happens ----------------------------------------------------------------------------------

    def tell(self, *events: ev.Event) -> Self:
        """The scheduler hears events, all in one batch."""
        self.received.apply(events)
        self._done(self.scheduler.handle(list(events), self.now_s))
        return self

    def node(self, node: Node) -> Self:
        node = replace(node, metadata=replace(node.metadata, resource_version=self._next()))
        self.nodes[node.metadata.name] = node
        return self.tell(ev.NodeUpdated(node))

    def drop_node(self, name: str) -> Self:
        return self.tell(ev.NodeDeleted(self.nodes.pop(name)))

    def submit(self, *pods: Pod | list[Pod]) -> Self:
        """Creates pods, told one by one."""
        for one in pods:
            for pod in one if isinstance(one, list) else [one]:
                stamped = replace(pod.metadata, creation_timestamp=at(self.now_s))
                self.update(replace(pod, metadata=stamped))
        return self

    def update(self, pod: Pod, **changes: Any) -> Self:
        """A pod's new version, from its latest with `changes`, as the watch tells it."""
        return self.tell(ev.PodUpdated(self.store(pod, **changes)))

    def store(self, pod: Pod, **changes: Any) -> Pod:
        """A pod's new version that the watch has not told yet."""
        now = replace(pod, **changes)
        now = replace(now, metadata=replace(now.metadata, resource_version=self._next()))
        self.pods[now.metadata.uid] = now
        return now

    def delete(self, *names: str) -> Self:
        for name in names:
            self.tell(ev.PodDeleted(self.pods.pop(self.pod(name).metadata.uid)))
        return self

    def leave(self, name: str) -> Self:
        """deletionTimestamp is set; the pod is still there."""
        pod = self.pod(name)
        return self.update(pod, metadata=replace(pod.metadata, deletion_timestamp=at(self.now_s)))

    def start(self, *names: str) -> Self:
        """kubelet starts pods that are bound to its node."""
        for name in names:
            pod = self.pod(name)
            self.update(pod, status=replace(pod.status, phase="Running", start_time=at(self.now_s)))
        return self

    def phase(self, name: str, phase: str) -> Self:
        pod = self.pod(name)
        return self.update(pod, status=replace(pod.status, phase=phase))

    def object(self, dialect: str, item: CustomObject) -> Self:
        item = replace(item, metadata=replace(item.metadata, resource_version=self._next()))
        self.objects[dialect, item.metadata.name] = item
        return self.tell(ev.PodGroupUpdated(dialect, API_VERSIONS[dialect], item))

    def drop_object(self, dialect: str, name: str) -> Self:
        return self.tell(
            ev.PodGroupDeleted(dialect, API_VERSIONS[dialect], self.objects.pop((dialect, name)))
        )

    def run(self) -> Self:
        """Lets every group have its turn until nobody is in line."""
        for _ in range(200):
            effects = self.scheduler.schedule_next(self.now_s)
            if effects is None:
                return self
            self._done(effects)
        raise AssertionError("groups stay in line for ever")

    def wait(self, seconds: float) -> Self:
        """Time passes, deadline by deadline, with everybody's turns."""
        until_s = self.now_s + seconds
        while (due_s := self.scheduler.next_deadline_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            self._done(self.scheduler.advance(self.now_s))
            self.run()
        self.now_s = until_s
        return self.run()

    def settled(self) -> Self:
        """All have had their turns, and again after the longest backoff."""
        return self.run().wait(35.0)

    def restart(self) -> Self:
        """Another process, from a plain list."""
        self.scheduler, self.received = self.make(self.settings), Received()
        self.held_binds.clear()
        events: list[ev.Event] = [ev.PodAdded(pod) for pod in self.pods.values()]
        events += [ev.NodeAdded(node) for node in self.nodes.values()]
        events += [ev.PodGroupAdded(d, API_VERSIONS[d], item) for (d, _), item in self.objects.items()]
        return self.tell(*events, *(ev.KindSynced(kind) for kind in self.scheduler.kinds))

    def reconfigure(self, settings: Settings, profiles: Mapping[str, Profile] | None = None) -> Self:
        """Another configuration is in effect; further kinds that it watches are reported missing."""
        self.settings = settings
        effects, more = self.scheduler.reconfigure(profiles or self.profiles(), settings, self.now_s)
        self._done(effects)
        return self.tell(*(ev.KindMissing(kind) for kind in more)) if more else self

    def commit(self, bind: ef.BindPod) -> Pod:
        """The server binds; the watch has not told it yet."""
        pod = self.pods[bind.uid]
        merged = {**(pod.metadata.annotations or {}), **bind.annotations}
        labels = {**(pod.metadata.labels or {}), **bind.labels}
        scheduled = Condition("PodScheduled", "True", last_transition_time=at(self.now_s))
        others = [one for one in pod.status.conditions or () if one.type != scheduled.type]
        return self.store(
            pod,
            metadata=replace(pod.metadata, annotations=merged, labels=labels),
            spec=replace(pod.spec, node_name=bind.node),
            status=replace(pod.status, conditions=[*others, scheduled]),
        )

    # -- the server's answers --------------------------------------------------------------------------

    def _done(self, effects: list[ef.Effect]) -> None:
        self.scheduler.validate()
        self.effects += effects
        for effect in effects:
            if isinstance(effect, ef.BindPod):
                broken = list(bind_is_sound(effect, self.received))
                assert not broken, broken
                self.received.promise(effect)
                self._bind(effect)
            elif isinstance(effect, ef.GetPod):
                self.received.note_sent(effect, None)
            elif isinstance(effect, ef.RunHook):
                status = self.hook(effect)
                if status is None:
                    self.held_hooks.append(effect)
                else:
                    self.say(effect, status)
            elif isinstance(effect, ef.CancelHooks):
                self.held_hooks = [hook for hook in self.held_hooks if hook.ticket not in effect.tickets]
            elif isinstance(effect, ef.PatchPod):
                self._patch(effect)
            elif isinstance(effect, ef.EvictPod | ef.DeletePod):
                self._evict(effect)
            elif isinstance(effect, ef.WritePodCondition) and effect.type != "PodScheduled":
                self._note(effect)

    def _note(self, effect: ef.WritePodCondition) -> None:
        """The server stores a condition, as a restarted process will read it."""
        if (pod := self.pods.get(effect.uid)) is not None:
            now = Condition(effect.type, effect.status, effect.reason, effect.message, at(self.now_s))
            others = [one for one in pod.status.conditions or () if one.type != now.type]
            self.update(pod, status=replace(pod.status, conditions=[*others, now]))

    def _evict(self, effect: ef.EvictPod | ef.DeletePod) -> None:
        """`evictions` says ok (gone at once), slow (on its way), silent, or a code; no code stops DELETE."""
        uid = effect.uid
        if uid not in self.pods:
            self.tell(ev.EvictionFailed(uid, 404, "not found"))
        elif self.evictions == "slow":
            self.tell(ev.EvictionSucceeded(uid)).leave(effect.name)
        elif self.evictions == "ok" or (isinstance(effect, ef.DeletePod) and self.evictions != "silent"):
            self.tell(ev.EvictionSucceeded(uid), ev.PodDeleted(self.pods.pop(uid)))
        elif self.evictions != "silent":
            self.tell(ev.EvictionFailed(uid, int(self.evictions), "refused"))

    def say(self, hook: ef.RunHook, status: Status) -> Self:
        """A hook's answer comes; the hook is no longer held."""
        self.held_hooks = [other for other in self.held_hooks if other is not hook]
        return self.tell(ev.HookAnswered(hook.ticket, status.code.value, status.reason, status.timeout_s))

    def read(self, name: str) -> Self:
        """The API server's answer to GetPod: the pod as it is in the store."""
        pod = self.pod(name)
        return self.tell(ev.PodRead(pod.metadata.uid, pod))

    def _bind(self, bind: ef.BindPod) -> None:
        """`answer` says ok, hold (no answer yet), unknown, denied (by nobody knows what), or a code."""
        said = self.answer(bind)
        if said == "ok":
            pod = self.commit(bind)
            self.tell(ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(pod))
        elif said == "hold":
            self.held_binds.append(bind)
        elif said == "denied":
            self.tell(ev.BindUnknown(bind.uid, bind.attempt, "400: denied by a webhook", refused=True))
        elif said == "unknown":
            self.held_binds.append(bind)
            self.tell(ev.BindUnknown(bind.uid, bind.attempt, "timed out"))
        else:
            self.tell(ev.BindFailed(bind.uid, bind.attempt, int(said), "Refused", "no"))

    def _patch(self, patch: ef.PatchPod) -> None:
        """`patches` says ok, or a code; an old version is a conflict in any case."""
        pod = self.pods[patch.uid]
        if self.patches != "ok":
            self.tell(ev.PodPatchFailed(patch.uid, int(self.patches), "cannot patch pods"))
        elif patch.resource_version != pod.metadata.resource_version:
            self.tell(ev.PodPatchFailed(patch.uid, 409, "the object has been modified"))
        else:
            merged = {**(pod.metadata.annotations or {}), **patch.annotations}
            own = {key: value for key, value in merged.items() if value is not None}
            both = {**(pod.metadata.labels or {}), **patch.labels}
            labels = {key: value for key, value in both.items() if value is not None}
            now = self.store(pod, metadata=replace(pod.metadata, annotations=own, labels=labels))
            self.tell(ev.PodPatched(patch.uid), ev.PodUpdated(now))

    # -- what can be seen ------------------------------------------------------------------------------

    def pod(self, name: str) -> Pod:
        return next(pod for pod in self.pods.values() if pod.metadata.name == name)

    def state(self, name: str) -> str:
        return self.group(name).state.value

    def placed(self, group: str, *, on: int | None = None) -> bool:
        """Every pod whose name starts with the group's is bound; to so many nodes."""
        pods = [pod for pod in self.pods.values() if pod.metadata.name.startswith(f"{group}-")]
        nodes = {pod.spec.node_name for pod in pods}
        return bool(pods) and "" not in nodes and (on is None or len(nodes) == on)

    def untouched(self, group: str) -> bool:
        return not any(
            pod.spec.node_name for pod in self.pods.values() if pod.metadata.name.startswith(f"{group}-")
        )

    def nodes_of(self, group: str) -> list[str]:
        """The nodes of the group's pods, all of which must be bound, sorted."""
        pods = (pod for pod in self.pods.values() if pod.metadata.name.startswith(f"{group}-"))
        nodes = sorted(pod.spec.node_name for pod in pods)
        assert all(nodes), nodes
        return nodes

    def bound(self) -> list[str]:
        """Pods that are on a node, oldest first."""
        return [pod.metadata.name for pod in self.pods.values() if pod.spec.node_name]

    def n_bound(self) -> int:
        return len(self.bound())

    def are_bound(self, *names: str) -> list[bool]:
        """Whether each of the pods is on a node."""
        return [bool(self.pod(name).spec.node_name) for name in names]

    def ids(self, name: str) -> set[str]:
        """All device IDs of a bound pod."""
        found = ids_of(self.pod(name))
        return {device_id for some in found.values() for device_id in some}

    def numbers(self, name: str) -> list[int]:
        """The devices of a bound pod by their place on the node, sorted."""
        return sorted(int(device_id.rpartition("-")[2]) for device_id in self.ids(name))

    def all(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def clear(self) -> Self:
        """Forgets the effects so far."""
        self.effects.clear()
        return self

    def reasons(self) -> list[str]:
        return [event.reason for event in self.all(ef.RecordEvent)]

    def told(self, reason: str = "") -> list[str]:
        """The messages of events, of this reason or of all."""
        return [event.message for event in self.all(ef.RecordEvent) if reason in ("", event.reason)]

    def said(self, pod: str) -> str:
        """The last condition written on a pod."""
        return [c.message for c in self.all(ef.WritePodCondition) if c.name == pod][-1]

    def why(self, group: str) -> str:
        """Why the group waits, as administrators read it."""
        return self.group(group).message

    def cures(self, group: str) -> tuple[str, ...]:
        """What `explain` says would help the group."""
        return explain(self.scheduler, self.group(group), self.now_s).cures

    def binds(self) -> list[str]:
        """Pods in the order in which they were bound."""
        return [bind.name for bind in self.all(ef.BindPod)]

    def evicted(self) -> list[str]:
        """Pods in the order in which their evictions were asked for."""
        return [one.name for one in self.all(ef.EvictPod)]

    def taken(self) -> list[str]:
        """Pods that were to go, in either way, sorted."""
        return sorted({one.name for one in self.effects if isinstance(one, ef.EvictPod | ef.DeletePod)})

    def bind_order(self) -> list[str]:
        """Groups in the order in which they started."""
        return list(dict.fromkeys(bind.group.partition("/")[2] for bind in self.all(ef.BindPod)))

    def five_more_turns_change_nothing(self) -> Self:
        seen = [len(self.all(kind)) for kind in (ef.BindPod, ef.EvictPod, ef.GetPod)]
        for _ in range(5):
            self.tell()
            self.wait(0.1).run()
        assert seen == [len(self.all(kind)) for kind in (ef.BindPod, ef.EvictPod, ef.GetPod)]
        return self

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def cluster(
    *, nodes: int = 4, gpus: int = 8, racks: int = 0, listed: bool = True, settings: Settings | None = None
) -> Cluster:
    """n0, n1, … of `gpus` devices each; with racks, n0 in r0, n1 in r1 and round again."""
    made = Cluster(settings)
    for i in range(nodes):
        made.node(make_node(f"n{i}", gpus=gpus, rack=f"r{i % racks}" if racks else "", listed=listed))
    return made


def gang(
    name: str, *, pods: int, gpus: int = 1, min_members: int | None = None, first: int = 0, **more: Any
) -> list[Pod]:
    """Members name-0, name-1, …; all of them are needed unless min_members says otherwise."""
    wanted = pods if min_members is None else min_members
    return [
        make_pod(f"{name}-{k}", group=name, min_members=wanted, gpus=gpus, **more)
        for k in range(first, first + pods)
    ]


def lone(name: str, gpus: int, walltime: str = "", **more: Any) -> list[Pod]:
    """A pod of no gang that states its walltime; "": it states none."""
    pod = make_pod(name, gpus=gpus, **more)
    return with_annotations([pod], {WALLTIME_KEY: walltime}) if walltime else [pod]


def on_node(pod: Pod, node: str = "n0") -> Pod:
    """The pod, bound to the node."""
    return replace(pod, spec=replace(pod.spec, node_name=node))


def with_annotations(pods: list[Pod], annotations: Mapping[str, str]) -> list[Pod]:
    return [
        replace(
            p, metadata=replace(p.metadata, annotations={**(p.metadata.annotations or {}), **annotations})
        )
        for p in pods
    ]
