"""Our side: the same objects told to our core and decided in memory; the answer in kube-scheduler's terms.

Scores and feasible nodes come from one scheduler that follows the whole story, so that what it remembers
between pods is tried too; the decision itself is that of a fresh one with the same cluster.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np

from gangsched.config import SchedulerConfig
from gangsched.core.framework.interface import CycleState
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.kube.watch.decode import Kind, nodes, objects, pods
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.plugins import build_profiles
from tests.differential.draw import Json
from tests.differential.kube import Outcome
from tests.differential.kube_claims import CLAIMS
from tests.differential.profiles import ours as configuration

_CONFIG = configuration()
_NODES, _PODS = nodes(), pods()


class Decision:
    """feasible, totals: by node; scores: plugin -> node -> weighted, without plugins that say nothing.
    n_nodes: feasible or not."""

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        self.node = ""
        self.message = ""
        self.feasible: set[str] = set()
        self.scores: dict[str, dict[str, float]] = {}
        self.totals: dict[str, float] = {}


class Ours:
    """Our scheduler, told of a cluster."""

    def __init__(self, outcome: Outcome) -> None:
        self._events: list[ev.Event] = []
        self._in_the_end = outcome.in_the_end
        self._n_nodes = len(outcome.nodes)
        for name, items in outcome.objects.items():
            self._events += [_put(name, item) for item in items]
        self._events += [ev.NodeAdded(_decoded(_NODES, node)) for node in outcome.nodes]
        self._events += [ev.PodAdded(_decoded(_PODS, pod)) for pod in outcome.settled]
        self._profiles = build_profiles(_CONFIG)
        self._follower = _scheduler(self._profiles, self._events)

    def decide(self, pod: Json) -> Decision:
        decision = Decision(self._n_nodes)
        self._judge(_decoded(_PODS, pod), decision)
        # Its own profiles: nothing that the other one remembers helps it.
        fresh = _scheduler(build_profiles(_only(pod["spec"]["schedulerName"])), self._events)
        effects = list(fresh.handle([ev.PodAdded(_decoded(_PODS, pod))], 1.0))
        effects += fresh.schedule_next(2.0) or []
        # That claims are missing is said a second after the pod came.
        effects += fresh.advance(4.0)
        for effect in effects:
            if isinstance(effect, ef.BindPod):
                decision.node = effect.node
            elif isinstance(effect, ef.RunHook):  # its claims are bound first
                decision.node = effect.node_name
            elif isinstance(effect, ef.PatchClaim):  # its resource claims are written first
                decision.node = _node_of(fresh, pod["metadata"]["uid"])
            elif isinstance(effect, ef.WritePodCondition):
                decision.message = effect.message
        return decision

    def see(self, claims: list[Json]) -> None:
        """Resource claims are like this by now."""
        events = [_put(CLAIMS, claim) for claim in claims]
        self._events += events
        self._follower.handle(events, 1.0)

    def place(self, pod: Json, node: str) -> None:
        """The pod is where kube-scheduler bound it, and its claims are what they became."""
        bound = pod | {"spec": pod["spec"] | {"nodeName": node}}
        events: list[ev.Event] = [ev.PodAdded(_decoded(_PODS, bound))]
        names = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["spec"].get("volumes", ())
            if "persistentVolumeClaim" in volume
        }
        volumes = set()
        for claim in self._in_the_end.get("persistentvolumeclaims", ()):
            if claim["metadata"]["name"] in names:
                volumes.add(claim["spec"].get("volumeName"))
                events.append(_put("persistentvolumeclaims", claim))
        for volume in self._in_the_end.get("persistentvolumes", ()):
            if volume["metadata"]["name"] in volumes:
                events.append(_put("persistentvolumes", volume))
        self._events += events
        self._follower.handle(events, 1.0)
        self._follower.validate()

    def _judge(self, pod: Pod, decision: Decision) -> None:
        cache = self._follower.shared.cache
        profile: Profile = self._profiles[pod.spec.scheduler_name]
        state, template, view = CycleState(), cache.template_of(pod), cache.view
        cache.settle(0.0)
        template = cache.template_of(pod)
        if not profile.run_pre_filter(state, template, view).is_success:
            return
        rows = np.flatnonzero(profile.capacity(state, template, view) > 0)
        names = [view.name(int(row)) for row in rows]
        decision.feasible = set(names)
        if not names:
            return
        for plugin, weight in profile.scoring.scores:
            scores = plugin.score(state, template, view, rows)
            if scores is not None:
                decision.scores[plugin.name] = dict(zip(names, (scores * weight).tolist(), strict=True))
        total = profile.score(state, template, view, rows)
        decision.totals = dict(
            zip(names, [0.0] * len(names) if total is None else total.tolist(), strict=True)
        )


def _only(profile: str) -> SchedulerConfig:
    """The configuration without the other profiles."""
    [one] = [one for one in _CONFIG.profiles if one.scheduler_name == profile]
    return msgspec.structs.replace(_CONFIG, profiles=(one,))


def _node_of(scheduler: Scheduler, uid: str) -> str:
    members = (group.members.get(uid) for group in scheduler.shared.groups.values())
    [info] = [one for one in members if one is not None]
    return info.node_name


def _scheduler(profiles: dict[str, Profile], events: list[ev.Event]) -> Scheduler:
    scheduler = Scheduler(profiles, _CONFIG.settings)
    scheduler.handle(events, 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    # Of claims it asks for more than their classes once there is one.
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.newly_watched()], 0.0)
    return scheduler


def _put(kind: str, item: Json) -> ev.ObjectPut:
    return ev.ObjectPut(kind, _decoded(objects(kind), item))


def _decoded(kind: Kind, item: Json) -> Any:
    return kind.decode_object(json.dumps(item).encode())
