"""The whole simulation around the API server, as one object that gets changes and the time.

Lives here: noting writes, passing them on in order, and turns. Not here: reacting to them (the other files of
this package), waiting (driver.py).

The registry calls us in the middle of a write, so then a change is only noted. `step` takes in noted changes,
one after the other. Once all are in, the controllers that compare actual and desired state act; then actions
due in the timetable run. So a controller never acts on a state older than its own last write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

import structlog

from gangsched.lab.apiserver.simulated.api import Api, Registry
from gangsched.lab.apiserver.simulated.budgets import Budgets
from gangsched.lab.apiserver.simulated.claims.controller import Claims
from gangsched.lab.apiserver.simulated.garbage import Garbage
from gangsched.lab.apiserver.simulated.jobs.controller import Jobs
from gangsched.lab.apiserver.simulated.namespaces import Namespaces
from gangsched.lab.apiserver.simulated.node_lifecycle import NodeLifecycle
from gangsched.lab.apiserver.simulated.nodes.node_agent import LEASE_NAMESPACE, NodeAgents
from gangsched.lab.apiserver.simulated.nodes.nodes import Kill
from gangsched.lab.apiserver.simulated.nodes.slices import Driver, Slices
from gangsched.lab.apiserver.simulated.pod_groups import PodGroups
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import View, node_of, pod_of
from gangsched.lab.apiserver.storage.store import Change, Item

_log = structlog.get_logger(__name__)

# How long events are kept, as kube-apiserver's --event-ttl does by default; wall-clock seconds.
EVENT_TTL_S = 3600.0
_BUDGETS = "policy/poddisruptionbudgets"
NAMESPACES = ("default", "kube-system", "kube-public", LEASE_NAMESPACE)


class SimulatedCluster:
    """Kubelets and controllers around one registry. `speed` is simulated over real seconds.

    Without `kubelets` pods stay unchanged once bound and nodes never go silent; the controllers still work.
    `driver`: each node publishes its devices.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        speed: float = 1.0,
        seed: int = 0,
        kubelets: bool = True,
        driver: Driver | None = None,
    ) -> None:
        self.speed = speed
        self._api = Api(registry)
        self._changes: deque[Change] = deque()
        self._timetable = Timetable()
        self._view = View()
        rng = Random(seed)
        self._agents = NodeAgents(self._api, self._view, self._timetable, rng, speed=speed)
        self._kubelets = kubelets
        self._lifecycle = NodeLifecycle(
            self._api, self._view, self._timetable, lambda: self._agents.renew_s, watch_silence=kubelets
        )
        self._jobs = Jobs(self._api, self._view, self._timetable)
        self._garbage = Garbage(self._api, self._view, self._timetable)
        self._namespaces = Namespaces(self._api)
        self._budgets = Budgets(self._api, self._view, self._timetable)
        self._pod_groups = PodGroups(self._api, self._view)
        self._claims = Claims(self._api, self._view, self._timetable)
        self._slices = Slices(self._api, self._view, driver or Driver())
        self._event_times: deque[tuple[float, str, str]] = deque()
        self._leave: Callable[[], None] = lambda: None
        self._wake: Callable[[], None] = lambda: None
        self._leases = self._api.leases.storage_key
        self._events = self._api.events.storage_key
        self._pods = self._api.pods.storage_key
        self._nodes = self._api.nodes.storage_key
        self._job_key = self._api.jobs.storage_key
        self._namespace_key = self._api.namespaces.storage_key

    def start(self, wake: Callable[[], None] = lambda: None) -> None:
        """Follow all changes from now on, and existing objects. `wake` is called when there is work.

        Creates the namespaces that every cluster has, if missing.
        """
        self._wake = wake
        self._leave = self._api.registry.store.subscribe(self._hear)
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._api.ensure(self._api.namespaces, namespace)
        self._slices.start()
        noted = {id(change.item) for change in self._changes}
        store = self._api.registry.store
        order = (self._namespace_key, self._nodes, self._pods)
        rest = [key for key in store.collections() if key not in order]
        for collection in (*order, *rest):
            for item in store.items(collection):
                if id(item) not in noted:
                    self._changes.append(Change("ADDED", collection, item.revision, item, None))
        wake()

    def stop(self) -> None:
        """Stop following; drops changes that are noted but not processed."""
        self._leave()
        self._changes.clear()

    def kill_later(self, kill: Kill, now_s: float = 0.0) -> None:
        """Kill a node at its time."""
        action = partial(self._agents.kill, kill.node)
        self._timetable.at(now_s + kill.after_s, ("kill", kill.node), lambda now_s: action())

    def next_deadline_s(self) -> float | None:
        """Returns when there is work even without another write; simulated seconds."""
        return self._timetable.next_s()

    def step(self, now_s: float, *, budget: int = 1_000_000) -> bool:
        """Do about `budget` pieces of work; returns whether more is due now."""
        while budget > 0:
            if self._changes:
                self._take_in(self._changes.popleft(), now_s)
                budget -= 1
                continue
            done = self._jobs.act(now_s) + self._claims.act(now_s)
            done += self._namespaces.act() + self._garbage.act(max(budget, 1))
            if not done:
                action = self._timetable.pop_due(now_s)
                if action is None:
                    return bool(self._changes)
                self._guarded(partial(action, now_s))
                done = 1
            budget -= done
        return True

    def _hear(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) == 1:
            self._wake()

    def _take_in(self, change: Change, now_s: float) -> None:
        self._guarded(partial(self._pass_on, change, now_s))

    def _guarded(self, work: Callable[[], object]) -> None:
        """Does the work so that one object that cannot be processed does not stop the rest."""
        try:
            work()
        except Exception:
            _log.exception("the simulated cluster could not deal with something, and goes on")

    def _pass_on(self, change: Change, now_s: float) -> None:
        collection, item = change.collection, change.item
        if collection == self._events:
            self._note_event(change)
            return
        if collection == self._leases and item.namespace == LEASE_NAMESPACE:
            self._lifecycle.lease_renewed(item.name, now_s)
            if change.type == "MODIFIED":
                return  # nothing else in it changes, and there are hundreds a second
        self._garbage.heard(change)
        self._namespaces.heard(change)
        if collection == self._pods:
            self._pod(change, item, now_s)
        elif collection == self._nodes:
            self._node(change, item, now_s)
        elif collection == self._job_key:
            self._jobs.heard(change)
        elif collection == _BUDGETS:
            self._budgets.heard(change, now_s)
        elif collection == self._pod_groups.storage_key:
            self._pod_groups.heard(change)
            self._claims.group_heard(change)
        elif collection == self._claims.storage_key:
            self._claims.heard(change)
        elif collection == self._claims.template_key:
            self._claims.template_heard(change)
        elif collection == self._slices.storage_key:
            self._slices.heard(change)

    def _pod(self, change: Change, item: Item, now_s: float) -> None:
        if change.type == "DELETED":
            last = pod_of(item)
            self._view.drop_pod(item.uid)
            self._lifecycle.pod_gone(item.uid)
            if self._kubelets:
                self._agents.pod_gone(last)
            self._jobs.pod_changed(last)
            self._budgets.pod_changed(last, now_s)
            self._pod_groups.pod_changed(last)
            self._claims.pod_gone(last)
            return
        pod = pod_of(item)
        before = self._view.put_pod(pod)
        if self._kubelets:
            self._agents.kubelets.pod_changed(pod, now_s)
        self._lifecycle.pod_changed(pod, before, now_s)
        self._jobs.pod_changed(pod)
        self._budgets.pod_changed(pod, now_s)
        self._pod_groups.pod_changed(pod)
        self._claims.pod_changed(pod)
        if pod.node and (before is None or not before.node) and pod.node not in self._view.nodes:
            self._garbage.without_node(pod, now_s)

    def _node(self, change: Change, item: Item, now_s: float) -> None:
        if change.type == "DELETED":
            node = self._view.nodes.pop(item.name, None) or node_of(item)
            self._agents.node_gone(node)
            self._lifecycle.node_gone(item.name)
            self._garbage.node_gone(item.name, now_s)
            self._slices.node_gone(item.name)
            return
        # Use its current state: a Node and its status come in two writes, and after the first it has no room
        # yet.
        item = self._api.find(self._api.nodes, "", item.name, item.uid) or item
        node = node_of(item)
        before = self._view.nodes.get(item.name)
        self._view.nodes[item.name] = node
        self._lifecycle.node_changed(node, before, now_s)
        if self._kubelets:
            self._agents.node_changed(node, now_s)
        self._garbage.node_changed(node)
        self._slices.node_changed(node)

    def _note_event(self, change: Change) -> None:
        """Notes an event, to delete it after its time; they come in order, so a queue is enough."""
        if change.type == "ADDED":
            now_s = self._api.now().timestamp()
            self._event_times.append((now_s + EVENT_TTL_S, change.item.namespace, change.item.name))
            while self._event_times and self._event_times[0][0] <= now_s:
                _, namespace, name = self._event_times.popleft()
                self._api.delete(self._api.events, namespace, name)
