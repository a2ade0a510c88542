"""Hostile objects told to the core as a watch tells them: nothing is raised, every promise holds after each.

Without a guard, so that what is raised is seen. A good gang with nodes of its own starts all the same.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.core.turns.invariants import find_broken
from gangsched.lab.sim.objects import make_node
from gangsched.lab.sim.world.streams import API_VERSIONS
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, NodeSpec, Pod, Taint, Toleration
from gangsched.plugins import IN_TREE, build_profiles
from tests.hostile.objects import Hostile, Thing, as_group, as_node, as_pod
from tests.support.scenario import gang

GOOD = Taint(key="good", value="", effect="NoSchedule")
TOLERATES = Toleration(key="good", operator="Exists", effect="NoSchedule")


class Told:
    """A scheduler, and a server that stores what it is told and binds at once."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.hostile = Hostile(Random(f"{seed}-objects"), nodes=("poor0", "poor1"))
        profiles = build_profiles(default_config(IN_TREE))
        self.scheduler = Scheduler(profiles, default_config(IN_TREE).settings)
        self.version = 0
        self.now_s = 1.0
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.story: list[str] = []
        self.tell(*(ev.KindSynced(kind) for kind in self.scheduler.kinds))
        for name, spec in (("good0", NodeSpec(taints=[GOOD])), ("poor0", NodeSpec()), ("poor1", NodeSpec())):
            node = replace(make_node(name), spec=spec)
            labels = {"good": "yes" if name == "good0" else "no"}
            self.tell(
                ev.NodeAdded(self.stamped(replace(node, metadata=replace(node.metadata, labels=labels))))
            )

    def stamped(self, item: Any) -> Any:
        self.version += 1
        meta = item.metadata
        uid = meta.uid or f"uid-{meta.name}"
        return replace(item, metadata=replace(meta, uid=uid, resource_version=str(self.version)))

    def tell(self, *events: ev.Event) -> None:
        self.done(self.scheduler.handle(events, self.now_s))

    def done(self, effects: list[ef.Effect]) -> None:
        # Pods that were bound by hand say themselves what they have; nobody keeps them from lying.
        broken = [
            one for one in find_broken(self.scheduler.shared) if not one.startswith("one-holder: device")
        ]
        assert not broken, broken
        for effect in effects:
            if isinstance(effect, ef.BindPod) and effect.uid in self.pods:
                self.bind(effect)

    def bind(self, bind: ef.BindPod) -> None:
        pod = self.pods[bind.uid]
        notes = {**(pod.metadata.annotations or {}), **bind.annotations}
        self.put(
            replace(
                pod,
                metadata=replace(pod.metadata, annotations=notes),
                spec=replace(pod.spec, node_name=bind.node),
            )
        )
        self.tell(ev.BindSucceeded(bind.uid, bind.attempt))

    def put(self, pod: Pod) -> None:
        pod = self.stamped(pod)
        self.pods[pod.metadata.uid] = pod
        self.tell(ev.PodUpdated(pod))

    def run(self, seconds: float = 0.0) -> None:
        until_s = self.now_s + seconds
        for _ in range(300):
            effects = self.scheduler.schedule_next(self.now_s)
            if effects is not None:
                self.done(effects)
                continue
            due_s = self.scheduler.next_deadline_s()
            if due_s is None or due_s > until_s:
                break
            self.now_s = max(self.now_s, due_s)
            self.done(self.scheduler.advance(self.now_s))
        self.now_s = until_s

    def meet(self, thing: Thing) -> None:
        self.story.append(f"{thing.sort} {thing.name}")
        if thing.kind == "Pod" and (pod := as_pod(thing.body)) is not None:
            self.put(pod)
        elif thing.kind == "Node" and (node := as_node(thing.body)) is not None:
            self.nodes[node.metadata.name] = node
            self.hostile.nodes = (*self.hostile.nodes[-9:], node.metadata.name)
            self.tell(ev.NodeUpdated(self.stamped(node)))
        elif thing.kind.startswith("PodGroup") and (group := as_group(thing.body)) is not None:
            dialect = thing.kind.partition(".")[2]
            self.tell(ev.PodGroupUpdated(dialect, API_VERSIONS[dialect], self.stamped(group)))

    def change(self) -> None:
        """One of those that are there becomes another, or goes."""
        if self.nodes and self.rng.random() < 0.3:
            name = self.rng.choice(sorted(self.nodes))
            if self.rng.random() < 0.5:
                self.tell(ev.NodeDeleted(self.nodes.pop(name)))
            else:
                self.meet(self.hostile.node(name))
        elif self.pods:
            uid = self.rng.choice(sorted(self.pods))
            name = self.pods[uid].metadata.name
            if self.rng.random() < 0.4:
                self.tell(ev.PodDeleted(self.pods.pop(uid)))
            elif name.startswith("h"):
                other = as_pod(self.hostile.pod(name).body)
                if other is not None:
                    self.put(replace(other, spec=self.pods[uid].spec))  # which nobody can edit

    def a_good_gang_starts(self, name: str) -> None:
        members = gang(name, pods=4, gpus=2)
        for pod in members:
            spec = replace(pod.spec, tolerations=[TOLERATES], node_selector={"good": "yes"})
            self.put(replace(pod, spec=spec))
        self.run(2.0)
        mine = [pod for pod in self.pods.values() if pod.metadata.name.startswith(f"{name}-")]
        assert [pod.spec.node_name for pod in mine] == ["good0"] * 4
        for pod in mine:
            self.tell(ev.PodDeleted(self.pods.pop(pod.metadata.uid)))


def play(seed: int, n_batches: int) -> None:
    told = Told(seed)
    try:
        for batch in range(n_batches):
            for i in range(told.rng.randrange(1, 8)):
                told.meet(told.hostile.draw(f"h{batch}-{i}"))
            for _ in range(told.rng.randrange(4)):
                told.change()
            told.run(told.rng.choice((0.0, 1.0, 30.0)))
            told.a_good_gang_starts(f"good{batch}")
    except Exception as error:
        error.add_note(f"seed {seed}, the last of {len(told.story)}: {told.story[-8:]}")
        raise


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_anybody_writes_is_raised(seed: int) -> None:
    play(seed, n_batches=8)
