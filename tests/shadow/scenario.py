"""Two schedulers over one cluster in virtual time: ours in the shadow, the other one as the test says."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from gangsched.config import Settings, default_config
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import make_node
from gangsched.model import events as ev
from gangsched.model.effects import Effect
from gangsched.model.objects import Condition, Pod, PodStatus
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.shadow.follower import PATIENCE_S, Shadow
from gangsched.shadow.records import PodRecord

THEIRS = "default-scheduler"


class Story:
    """`story.create(pod)`, `story.they_bind("a", "n0")`, `story.turns()`, then `story.record("a")`."""

    def __init__(self, extenders: ExtenderVerdicts | None = None) -> None:
        config = default_config(IN_TREE, scheduler_name=THEIRS)
        profiles = build_profiles(config, extenders=extenders)
        self.scheduler = Scheduler(
            profiles,
            Settings(allow_eviction=False, tells_victims=True),
            node_capacity=4,
            extenders=extenders,
        )
        self.shadow = Shadow(self.scheduler, build_profiles(config))
        self.now_s = 1.0
        self.pods: dict[str, Pod] = {}
        self.left: list[Effect] = []
        """What would have left the process."""
        self._version = 0
        self.tell(*(ev.KindSynced(kind) for kind in self.scheduler.kinds))

    def tell(self, *events: ev.Event) -> Self:
        self.left += self.shadow.handle(events, self.now_s)
        self.scheduler.validate()
        return self

    def node(self, name: str, *, gpus: int = 8, cpu: int = 64) -> Self:
        return self.tell(ev.NodeAdded(make_node(name, gpus=gpus, cpu=cpu, listed=False)))

    def create(self, *pods: Pod) -> Self:
        return self.tell(*(ev.PodAdded(self._stored(pod)) for pod in pods))

    def they_bind(self, name: str, node: str) -> Self:
        return self.tell(self.bound(name, node))

    def bound(self, name: str, node: str) -> ev.Event:
        pod = self.pods[name]
        return ev.PodUpdated(self._stored(replace(pod, spec=replace(pod.spec, node_name=node))))

    def they_refuse(self, name: str, message: str) -> Self:
        no = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        pod = replace(self.pods[name], status=PodStatus(conditions=[no]))
        return self.tell(ev.PodUpdated(self._stored(pod)))

    def delete(self, name: str) -> Self:
        return self.tell(ev.PodDeleted(self.pods.pop(name)))

    def turns(self) -> Self:
        """Everybody in line has a turn."""
        while (group := self.shadow.pop()) is not None:
            self.left += self.shadow.schedule(group, self.now_s)
            self.scheduler.validate()
        return self

    def wait(self, seconds: float = PATIENCE_S) -> Self:
        """Deadlines on the way are met when they come."""
        until_s = self.now_s + seconds
        while (at_s := self.shadow.next_deadline_s()) is not None and at_s <= until_s:
            self.now_s = max(self.now_s, at_s)
            self.left += self.shadow.advance(self.now_s)
            self.scheduler.validate()
            self.turns()
        self.now_s = until_s
        return self

    def record(self, name: str) -> PodRecord:
        found = self.shadow.records.get(self.pods[name].metadata.uid)
        assert found is not None
        return found

    def free_gpus(self, node: str) -> int:
        cache = self.scheduler.shared.cache
        row, column = cache.nodes.row_of[node], cache.nodes.table.column("nvidia.com/gpu")
        return int(cache.view.free(column)[row])

    def _stored(self, pod: Pod) -> Pod:
        self._version += 1
        now = replace(pod, metadata=replace(pod.metadata, resource_version=str(self._version)))
        self.pods[pod.metadata.name] = now
        return now
