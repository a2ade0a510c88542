"""The slices that a driver of devices publishes, on every simulated node the same.

Lives here: `Driver`, its class and its slices. Not here: preparing claims (prepared_claims.py). A slice goes
with its node, as its owner; one that is deleted is published again. Source of the form: the resourceslice
controller of k8s.io/dynamic-resource-allocation v0.37, and dra-example-driver.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gangsched.api_rules.names import name_problems
from gangsched.errors import ConfigError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.nodes import scripts
from gangsched.lab.apiserver.simulated.view import NodeView, View
from gangsched.lab.apiserver.storage.store import Change

EXAMPLE = "gpu.example.com"
MAX_PER_SLICE = 128
MAX_DEVICES = 1024
MAX_NAME = 63
_GROUP = "resource.k8s.io"


class Driver(NamedTuple):
    """A driver with so many devices on each node, and a class of its name; no devices: no driver."""

    devices: int = 0
    name: str = EXAMPLE


def check_driver(driver: Driver) -> Driver:
    """Returns the driver. Raises: ConfigError, which names the invalid option."""
    if not 0 <= driver.devices <= MAX_DEVICES:
        raise ConfigError(f"--dra-devices {driver.devices}: expected 0 to {MAX_DEVICES}")
    if len(driver.name) > MAX_NAME or name_problems(driver.name, "subdomain"):
        raise ConfigError(f"--dra-driver {driver.name!r}: expected a domain name, as {EXAMPLE}")
    return driver


def device_class(driver: str) -> dict[str, Any]:
    """The class of all devices of a driver, with its name."""
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    return {"metadata": {"name": driver}, "spec": {"selectors": [selector]}}


def build_slices(node: str, uid: str, driver: Driver) -> list[dict[str, Any]]:
    """A node's pool; half of the devices are on NUMA node 0, as with its GPUs."""
    devices = [_device(node, k, driver.devices) for k in range(driver.devices)]
    parts = [devices[at : at + MAX_PER_SLICE] for at in range(0, len(devices), MAX_PER_SLICE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    return [
        {
            "metadata": {"generateName": f"{node}-{driver.name}-", "ownerReferences": [dict(owner)]},
            "spec": {"driver": driver.name, "nodeName": node, "pool": dict(pool), "devices": part},
        }
        for part in parts
    ]


def _device(node: str, k: int, n: int) -> dict[str, Any]:
    attributes = {
        "index": {"int": k},
        "uuid": {"string": f"gpu-{node}-{k}"[-64:]},
        "model": {"string": "H100"},
        "numa": {"int": 2 * k // n},
        "driverVersion": {"version": "1.0.0"},
    }
    return {"name": f"gpu-{k}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


class Slices:
    """Publishes them for all nodes."""

    def __init__(self, api: Api, view: View, driver: Driver) -> None:
        self._api = api
        self._view = view
        self._driver = driver
        self._slices = api.resources.get(f"resourceslices.{_GROUP}")
        self._classes = api.resources.get(f"deviceclasses.{_GROUP}")
        self.storage_key = self._slices.storage_key
        self._published: dict[str, str] = {}

    def start(self) -> None:
        """Creates the class, unless there is one of its name. Raises: StatusError (the driver's name)."""
        if self._driver.devices:
            self._api.ensure(self._classes, device_class(self._driver.name))

    def node_changed(self, node: NodeView) -> None:
        """A node was created or has changed; its pool is published once."""
        if not self._driver.devices or self._published.get(node.name) == node.uid:
            return
        if node.annotations.get(scripts.KUBELET_KEY) == scripts.NO_KUBELET:
            return
        self._published[node.name] = node.uid
        for each in build_slices(node.name, node.uid, self._driver):
            self._api.registry.create(self._slices, each)

    def node_gone(self, name: str) -> None:
        self._published.pop(name, None)

    def heard(self, change: Change) -> None:
        """A slice was created, changed or deleted."""
        if change.type != "DELETED" or change.item.fields.get("spec.driver") != self._driver.name:
            return
        spec = change.item.decode()["spec"]
        node = self._view.nodes.get(spec.get("nodeName") or "")
        if node is None or self._published.get(node.name) != node.uid:
            return
        first = spec["devices"][0]["name"] if spec.get("devices") else ""
        for each in build_slices(node.name, node.uid, self._driver):
            if each["spec"]["devices"][0]["name"] == first:
                self._api.registry.create(self._slices, each)
