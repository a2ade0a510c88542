"""The control plane's handling of nodes: silence, taints, and pods that must be evicted.

Lives here: kube-controller-manager's node lifecycle and taint eviction controllers, as far as users see them.
Not here: the kubelet's side (lab.apiserver.simulated.nodes.node_agent), pods of deleted nodes (garbage.py).
cluster.py passes changes in. Source: kubernetes pkg/controller/nodelifecycle, pkg/controller/tainteviction,
read in v1.37. Not simulated: the rate limit on tainting many nodes at once, and sparing a zone when most of
its nodes are down.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.nodes import node_status, pod_status
from gangsched.lab.apiserver.simulated.nodes.admission import tolerates
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import NodeView, PodView, View
from gangsched.lab.apiserver.strategy import Object, timestamp
from gangsched.model.objects import Taint

# After this long without a sign of life a node counts as unreachable; a new node gets longer.
GRACE_S, STARTUP_GRACE_S = 50.0, 60.0
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_PRESSURE = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS = {UNREACHABLE, NOT_READY, UNSCHEDULABLE, *_PRESSURE.values()}
_COMPONENT = "node-controller"
Tainted = tuple[str, str]
"""A taint's key and effect."""


class NodeLifecycle:
    """One for the cluster. `renew_s`: returns the current interval of kubelets' renewals, against which
    silence is measured.

    With `watch_silence` off, for a cluster in which no kubelet reports, taints still follow conditions and
    `spec.unschedulable`, but silence has no effect.
    """

    def __init__(
        self,
        api: Api,
        view: View,
        timetable: Timetable,
        renew_s: Callable[[], float],
        *,
        watch_silence: bool = True,
    ) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._renew_s = renew_s
        self._watch_silence = watch_silence
        self._heard_s: dict[str, float] = {}

    def node_changed(self, node: NodeView, before: NodeView | None, now_s: float) -> None:
        """A node was created or has changed."""
        if before is None or before.uid != node.uid:
            message = f"Node {node.name} event: Registered Node {node.name} in Controller"
            if self._watch_silence:
                self._heard_s[node.name] = now_s
                self._timetable.at(
                    now_s + STARTUP_GRACE_S, ("silence", node.name), partial(self._listen, node.name)
                )
                self._event(node, "RegisteredNode", message)
        elif self._heartbeat_of(node) != self._heartbeat_of(before):
            self._heard_s[node.name] = now_s
        self._taint(node)
        if before is None or _no_execute(node) != _no_execute(before):
            for pod in self._view.on_node(node.name):
                self.pod_changed(pod, None, now_s)

    def node_gone(self, name: str) -> None:
        self._heard_s.pop(name, None)
        self._timetable.cancel(("silence", name))

    def lease_renewed(self, node: str, now_s: float) -> None:
        """Takes in a sign of life."""
        if node in self._heard_s:
            self._heard_s[node] = now_s

    def pod_changed(self, pod: PodView, before: PodView | None, now_s: float) -> None:
        """Evict it from a node with NoExecute taints that it does not tolerate for ever."""
        if before is not None and before.node == pod.node and before.is_active == pod.is_active:
            return
        node = self._view.nodes.get(pod.node) if pod.node else None
        taints = [taint for taint in node.taints if taint.effect == "NoExecute"] if node else []
        if not taints or not pod.is_active:
            self._timetable.cancel(("evict", pod.uid))
            return
        limits_s: list[float] = []
        for taint in taints:
            matching = [each for each in pod.spec.tolerations or () if tolerates(each, taint)]
            if not matching:
                limits_s.append(0)
            limits_s += [
                max(each.toleration_seconds, 0) for each in matching if each.toleration_seconds is not None
            ]
        if limits_s:
            key = ("evict", pod.uid)
            self._timetable.at(now_s + min(limits_s), key, partial(self._evict, pod.uid))
        else:
            self._timetable.cancel(("evict", pod.uid))

    def pod_gone(self, uid: str) -> None:
        self._timetable.cancel(("evict", uid))

    def _heartbeat_of(self, node: NodeView) -> tuple[str, ...]:
        return tuple(node.condition(type_) for type_ in node_status.CONDITIONS)

    def _listen(self, name: str, now_s: float) -> None:
        """Check the node's last sign of life; the next check is due when it would be silent for too long."""
        node = self._view.nodes.get(name)
        if node is None:
            return
        grace_s = max(GRACE_S, 5 * self._renew_s())
        silent_s = now_s - self._heard_s.get(name, now_s)
        self._timetable.at(
            now_s + (grace_s if silent_s >= grace_s else grace_s - silent_s),
            ("silence", name),
            partial(self._listen, name),
        )
        if silent_s >= grace_s and node.condition("Ready") != "Unknown":
            self._missed(node)

    def _missed(self, node: NodeView) -> None:
        now = self._api.now()
        changed = False

        def change(obj: Object) -> None:
            nonlocal changed
            changed = node_status.report_silent(obj.setdefault("status", {}), now)

        self._api.modify(self._api.nodes, "", node.name, change, uid=node.uid)
        if not changed:
            return
        self._event(node, "NodeNotReady", f"Node {node.name} status is now: NodeNotReady")
        for pod in self._view.on_node(node.name):
            if pod.is_ready:
                self._api.modify(
                    self._api.pods,
                    pod.namespace,
                    pod.name,
                    lambda obj: pod_status.mark_not_ready(obj, now),
                    uid=pod.uid,
                )
                self._api.event(
                    "Pod", pod, "NodeNotReady", "Node is not ready", component=_COMPONENT, warning=True
                )

    def _taint(self, node: NodeView) -> None:
        """Sets the taints that follow from conditions and from `kubectl cordon`; other taints stay."""
        wanted = _wanted(node)
        held = {(taint.key, taint.effect) for taint in node.taints if taint.key in _OURS}
        if wanted == held:
            return
        now = self._api.now()
        self._api.modify(
            self._api.nodes, "", node.name, lambda obj: _set_taints(obj, wanted, now), uid=node.uid
        )

    def _evict(self, uid: str, now_s: float) -> None:
        pod = self._view.pods.get(uid)
        if pod is None or not pod.is_active:
            return
        now = self._api.now()
        self._api.event(
            "Pod",
            pod,
            "TaintManagerEviction",
            f"Marking for deletion Pod {pod.key}",
            component="taint-eviction-controller",
        )
        message = "Taint manager: deleting due to NoExecute taint"
        self._api.modify(
            self._api.pods,
            pod.namespace,
            pod.name,
            lambda obj: pod_status.disrupt(obj, "DeletionByTaintManager", message, now),
            uid=uid,
        )
        self._api.delete(self._api.pods, pod.namespace, pod.name, uid=uid)

    def _event(self, node: NodeView, reason: str, message: str) -> None:
        self._api.event("Node", node, reason, message, component=_COMPONENT)


def _no_execute(node: NodeView) -> set[tuple[str, str]]:
    return {(taint.key, taint.value) for taint in node.taints if taint.effect == "NoExecute"}


def _wanted(node: NodeView) -> set[Tainted]:
    wanted: set[Tainted] = set()
    ready = node.condition("Ready")
    if ready == "False":
        wanted |= {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    elif ready == "Unknown":
        wanted |= {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}
    elif not ready and _has(node.taints, NOT_READY):
        wanted.add((NOT_READY, "NoSchedule"))  # set by admission, removed once the node is ready
    wanted |= {(key, "NoSchedule") for type_, key in _PRESSURE.items() if node.condition(type_) == "True"}
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE, "NoSchedule"))
    return wanted


def _has(taints: list[Taint], key: str) -> bool:
    return any(taint.key == key for taint in taints)


def _set_taints(obj: Object, wanted: set[Tainted], now: datetime) -> None:
    spec = obj.setdefault("spec", {})
    held = spec.get("taints") or []
    kept = [each for each in held if each["key"] not in _OURS or (each["key"], each["effect"]) in wanted]
    there = {(each["key"], each["effect"]) for each in kept}
    for key, effect in sorted(wanted - there):
        kept.append({"key": key, "effect": effect, "timeAdded": timestamp(now)})
    if kept:
        spec["taints"] = kept
    else:
        spec.pop("taints", None)
