"""The nodes' side of the simulated kubelets: registering, heartbeats, devices and requested faults.

Lives here: what a kubelet reports about its node, and the complaint when devices were allocated wrongly. Not
here: pods (kubelets.py), the conclusions from silence (lab.apiserver.simulated.node_lifecycle).
lab.apiserver.simulated.cluster passes nodes in.

Like a real kubelet it renews its Lease every 10 s, and writes its node's status every 5 minutes and when
something changes; nodes are spread over these periods. If that would exceed `_MAX_RENEWALS_PER_S` for the
whole cluster, the period grows, and the Lease's duration with it.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from random import Random

import structlog

from gangsched.api_rules.status import StatusError
from gangsched.errors import ParseError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.nodes import node_status, scripts
from gangsched.lab.apiserver.simulated.nodes.kubelets import Kubelets
from gangsched.lab.apiserver.simulated.nodes.machine import (
    Addresses,
    Inventory,
    Machine,
    cured,
    encoded,
    healthy,
)
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import NodeView, PodView, View, node_of
from gangsched.lab.apiserver.strategy import Object
from gangsched.model.devices.annotations import INVENTORY_KEY, parse_devices, parse_inventory
from gangsched.model.devices.labels import inventory_keys, inventory_labels, inventory_text
from gangsched.model.resources import parse_quantities

_log = structlog.get_logger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
RENEW_S = 10.0
STATUS_S = 300.0
_MAX_RENEWALS_PER_S = 500.0
"""Per second of wall-clock time: the rate of 5,000 real kubelets."""


class NodeAgents:
    """One kubelet for each Node without `kubelet: none`; `speed` is simulated over real seconds."""

    def __init__(
        self, api: Api, view: View, timetable: Timetable, rng: Random, *, speed: float = 1.0
    ) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._rng = rng
        self._speed = speed
        self._machines: dict[str, Machine] = {}
        self._n_blocks = 0
        self._n_addresses = 0
        self._conflicts: dict[str, dict[str, str]] = {}
        self.kubelets = Kubelets(api, view, timetable, rng, self.complain)

    @property
    def renew_s(self) -> float:
        """Simulated seconds between two renewals of one node's Lease."""
        return max(RENEW_S, len(self._machines) * self._speed / _MAX_RENEWALS_PER_S)

    def node_changed(self, node: NodeView, now_s: float) -> None:
        """A node was created or has changed."""
        if node.annotations.get(scripts.KUBELET_KEY) == scripts.NO_KUBELET:
            self.node_gone(node)
            return
        machine = self._machines.get(node.name)
        if machine is not None and machine.uid != node.uid:
            self.node_gone(node)
            machine = None
        is_new = machine is None
        if machine is None:
            machine = Machine(node.name, node.uid, Addresses(node.spec.pod_cidr, self._another_block))
            self._machines[node.name] = machine
        self._look(machine, node)
        killed = scripts.is_true(node.annotations, scripts.KILLED_KEY)
        if killed and (machine.alive or is_new):
            self._kill(machine)
        elif not killed and (is_new or not machine.alive):
            self._boot(machine, node, now_s)
        if machine.alive:
            self._apply_faults(machine, node)

    def node_gone(self, node: NodeView) -> None:
        """A node was deleted, or is no longer ours."""
        machine = self._machines.pop(node.name, None)
        if machine is not None:
            self._timetable.cancel(("lease", node.name))
            self._timetable.cancel(("status", node.name))
            self._conflicts.pop(node.name, None)
            self.kubelets.machine_gone(node.name)

    def kill(self, name: str, now_s: float = 0.0) -> None:
        """Writes the annotation that kills the node; no error if it is gone."""

        def change(obj: Object) -> None:
            obj["metadata"].setdefault("annotations", {})[scripts.KILLED_KEY] = "true"

        self._api.modify(self._api.nodes, "", name, change)

    def complain(self, machine: Machine, pod: PodView, what: str, reason: str = "DeviceMismatch") -> None:
        """Complains on the pod, on the node, in its conditions and in the log."""
        _log.warning("a pod and its devices do not agree", pod=pod.key, node=machine.name, problem=what)
        self._event(pod, "Pod", reason, what, machine)
        node = self._view.nodes.get(machine.name)
        if node is not None:
            self._event(node, "Node", reason, f"pod {pod.key}: {what}", machine)
        self._conflicts.setdefault(machine.name, {})[pod.uid] = f"pod {pod.key}: {what}"
        self._write_status(machine)

    def pod_gone(self, pod: PodView) -> None:
        """A complaint about a pod ends with the pod."""
        self.kubelets.pod_gone(pod.uid)
        machine = self._machines.get(pod.node)
        known = self._conflicts.get(pod.node, {})
        if machine is not None and pod.uid in known:
            del known[pod.uid]
            self._write_status(machine)

    # What is read from the node.

    def _look(self, machine: Machine, node: NodeView) -> None:
        machine.ip = node.ip or machine.ip or self._another_ip()
        room = machine.room
        room.labels = node.metadata.labels or {}
        room.taints = node.taints
        try:
            room.allocatable = parse_quantities(node.status.allocatable)
        except ParseError as error:
            self._event(node, "Node", "InvalidAllocatable", str(error), machine)
        text = inventory_text(node.annotations, node.metadata.labels) or ""
        if text != machine.written:
            try:
                parse_inventory(text or "{}")
            except ParseError as error:
                self._event(node, "Node", "InvalidDevices", str(error), machine)
                return
            machine.base = machine.written = text
            inventory = machine.inventory
            ill = scripts.listed(node.annotations, scripts.UNHEALTHY_KEY)
            if ill:  # we caused this fault: these devices are healthy once it is removed
                machine.base = encoded(cured(inventory, ill))
            room.devices = healthy(inventory)

    def _apply_faults(self, machine: Machine, node: NodeView) -> None:
        """Applies the requested device faults to the annotation and the counts."""
        unhealthy = scripts.listed(node.annotations, scripts.UNHEALTHY_KEY)
        vanished = scripts.listed(node.annotations, scripts.VANISHED_KEY)
        if not (unhealthy or vanished or machine.is_faulty):
            return
        machine.is_faulty = bool(unhealthy or vanished)
        known = {each["id"] for devices in machine.inventory.values() for each in devices}
        for device in dict.fromkeys((*unhealthy, *vanished)):
            if device not in known:
                message = f"a fault is asked for device {device}, which this node does not have"
                self._event(node, "Node", "UnknownDevice", message, machine)
        reported = machine.with_faults(unhealthy, vanished)
        devices = healthy(reported)
        if reported and devices != machine.room.devices:
            machine.room.devices = devices
            machine.written = encoded(reported)
            self._api.modify(
                self._api.nodes, "", machine.name, partial(_report_devices, reported), uid=machine.uid
            )
        self._look_at_held(machine)

    def _look_at_held(self, machine: Machine) -> None:
        """Complains about devices that fail while pods hold them; kubelet lets the pods run."""
        known = self._conflicts.get(machine.name, {})
        sick: dict[str, list[str]] = {}
        for uid, resource, device in machine.room.sick():
            there = device in machine.room.devices.get(resource, {})
            sick.setdefault(uid, []).append(f"{resource} {device} is {'unhealthy' if there else 'gone'}")
        for uid, devices in sick.items():
            pod = self._view.pods.get(uid)
            what = ", ".join(devices) + ", and held by a live pod"
            if pod is not None and known.get(uid) != f"pod {pod.key}: {what}":
                self.complain(machine, pod, what, "DeviceUnhealthy")
        cured = [
            uid for uid, what in known.items() if what.endswith("held by a live pod") and uid not in sick
        ]
        for uid in cured:
            del known[uid]
        if cured:
            self._write_status(machine)

    # What is written.

    def _boot(self, machine: Machine, node: NodeView, now_s: float) -> None:
        machine.n_boots += 1
        machine.alive = True
        if machine.n_boots > 1:
            message = f"Node {node.name} has been rebooted (simulated)"
            self._event(node, "Node", "Rebooted", message, machine)
        self._write_status(machine)
        item = self._api.find(self._api.nodes, "", machine.name, machine.uid)
        if item is None:
            return  # deleted meanwhile; its event is on the way
        self._look(machine, node_of(item))
        self._renew(machine, now_s, first=True)
        self._timetable.at(
            now_s + self._rng.uniform(0, STATUS_S),
            ("status", machine.name),
            partial(self._status_due, machine),
        )
        self.kubelets.machine_up(machine, now_s)

    def _kill(self, machine: Machine) -> None:
        machine.alive = False
        self._timetable.cancel(("lease", machine.name))
        self._timetable.cancel(("status", machine.name))
        self.kubelets.machine_down(machine.name)
        _log.info("a simulated node was killed", node=machine.name)

    def _status_due(self, machine: Machine, now_s: float) -> None:
        self._timetable.at(now_s + STATUS_S, ("status", machine.name), partial(self._status_due, machine))
        self._write_status(machine)

    def _write_status(self, machine: Machine) -> None:
        if not machine.alive:
            return
        now = self._api.now()
        became_ready = False

        def change(obj: Object) -> None:
            nonlocal became_ready
            status = obj.setdefault("status", {})
            size = node_status.Size(
                devices={resource: len(devices) for resource, devices in machine.inventory.items()}
            )
            node_status.complete(status, machine.name, machine.ip, size, boot=machine.n_boots)
            became_ready = node_status.report_healthy(status, now)
            self._report_conflicts(status, machine, now)

        self._api.modify(self._api.nodes, "", machine.name, change, uid=machine.uid)
        node = self._view.nodes.get(machine.name)
        if became_ready and node is not None:
            message = f"Node {machine.name} status is now: NodeReady"
            self._event(node, "Node", "NodeReady", message, machine, warning=False)

    def _report_conflicts(self, status: node_status.Status, machine: Machine, now: datetime) -> None:
        conflicts = self._conflicts.get(machine.name)
        if conflicts:
            message = "; ".join(conflicts.values())[:1024]
            node_status.set_condition(
                status, node_status.DEVICE_CONDITION, "True", "DeviceMismatch", message, now
            )
        elif node_status.condition(status, node_status.DEVICE_CONDITION) is not None:
            message = "every device is healthy and held by at most one live pod"
            node_status.set_condition(
                status, node_status.DEVICE_CONDITION, "False", "DevicesInOrder", message, now
            )

    def _renew(self, machine: Machine, now_s: float, *, first: bool = False) -> None:
        period_s = self.renew_s
        # First at a random point of the period, so that nodes created together are spread out.
        next_s = now_s + (self._rng.uniform(0, period_s) if first else period_s)
        self._timetable.at(next_s, ("lease", machine.name), partial(self._renew, machine))
        moment = self._api.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

        def change(obj: Object) -> None:
            obj["spec"]["renewTime"] = moment
            obj["spec"]["leaseDurationSeconds"] = int(4 * period_s)

        leases = self._api.leases
        try:
            if not self._api.modify(leases, LEASE_NAMESPACE, machine.name, change):
                lease = _lease(machine, moment, int(4 * period_s))
                self._api.registry.create(leases, lease, namespace=LEASE_NAMESPACE)
        except StatusError as error:
            _log.warning("a node's lease could not be renewed", node=machine.name, err=str(error))

    def _event(
        self,
        about: NodeView | PodView,
        kind: str,
        reason: str,
        message: str,
        machine: Machine,
        *,
        warning: bool = True,
    ) -> None:
        self._api.event(kind, about, reason, message, component="kubelet", host=machine.name, warning=warning)

    def _another_ip(self) -> str:
        """Returns an address for a node without one, from the upper end, away from those of built nodes."""
        self._n_addresses += 1
        return f"172.31.{255 - (self._n_addresses >> 8) % 256}.{255 - self._n_addresses % 256}"

    def _another_block(self) -> str:
        """Returns a /24 for a node without one, or with a full one, from the upper end, where no other is."""
        self._n_blocks += 1
        return f"10.{255 - (self._n_blocks >> 8) % 256}.{255 - self._n_blocks % 256}.0"


def _report_devices(reported: Inventory, obj: Object) -> None:
    """Writes the devices where the node lists them: in labels if it has these and no annotation."""
    metadata = obj["metadata"]
    in_labels = inventory_keys(metadata.get("labels") or {})
    if in_labels and INVENTORY_KEY not in (metadata.get("annotations") or {}):
        for key in in_labels:
            del metadata["labels"][key]
        metadata["labels"] |= inventory_labels(parse_devices(encoded(reported)))
    else:
        metadata.setdefault("annotations", {})[INVENTORY_KEY] = encoded(reported)
    status = obj.setdefault("status", {})
    for resource, devices in reported.items():
        fit = sum(each.get("health", "Healthy") == "Healthy" for each in devices)
        status.setdefault("capacity", {})[resource] = str(len(devices))
        status.setdefault("allocatable", {})[resource] = str(fit)


def _lease(machine: Machine, moment: str, duration_s: int) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": machine.name, "uid": machine.uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": machine.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": machine.name, "leaseDurationSeconds": duration_s, "renewTime": moment},
    }
