"""Volumes that a driver makes on a real kube-apiserver: a tiny one here binds claims, rightly or not."""

from __future__ import annotations

import pytest

from tests.real.cluster import MERGE, Cluster
from tests.real.picture import Json, node_of

pytestmark = pytest.mark.real

CLASSES, VOLUMES = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
DRIVER, ZONE = "d.example.com", "topology.kubernetes.io/zone"
MODES = ["ReadWriteMany"]
STORAGE = {"storage": "1Gi"}


class Driver:
    """A provisioner and the volume controller, for one claim of one class; all have one name."""

    def __init__(self, cluster: Cluster, name: str, *, makes: bool = True) -> None:
        """makes: whether it makes volumes at all, or all are there already."""
        self.name = name
        self._cluster = cluster
        self._request = cluster.plane.request
        provisioner = DRIVER if makes else "kubernetes.io/no-provisioner"
        spec = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        self._request("POST", CLASSES, {"metadata": {"name": name}, **spec})
        wants = {"accessModes": MODES, "resources": {"requests": STORAGE}, "storageClassName": name}
        claim = self._request("POST", CLAIMS, {"metadata": {"name": name}, "spec": wants})
        self._owner = {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]}

    def asked_node(self) -> str:
        """Waits until the claim names the node that its volume is to be made for."""
        key = "volume.kubernetes.io/selected-node"

        def chosen() -> str:
            found = self._request("GET", f"{CLAIMS}/{self.name}")["metadata"].get("annotations", {})
            return str(found.get(key, ""))

        self._cluster.eventually(chosen, "the claim has its node")
        return chosen()

    def asked_volume(self) -> None:
        """Waits until the volume names the claim."""

        def owner() -> object:
            return self._request("GET", f"{VOLUMES}/{self.name}")["spec"].get("claimRef", {}).get("uid")

        self._cluster.eventually(lambda: owner() == self._owner["uid"], "the volume has its claim")

    def make(self, *zones: str, is_given: bool = True) -> None:
        """A volume of these zones; is_given: for the claim."""
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}
        spec: Json = {
            "accessModes": MODES,
            "capacity": STORAGE,
            "storageClassName": self.name,
            "csi": {"driver": DRIVER, "volumeHandle": self.name},
            **({"claimRef": self._owner} if is_given else {}),
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        self._request("POST", VOLUMES, {"metadata": {"name": self.name}, "spec": spec})
        phase = {"status": {"phase": "Bound" if is_given else "Available"}}
        self._request("PATCH", f"{VOLUMES}/{self.name}/status", phase, content_type=MERGE)

    def bind(self) -> None:
        """The claim has the volume from now on."""
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        bound = {"metadata": {"annotations": done}, "spec": {"volumeName": self.name}}
        self._request("PATCH", f"{CLAIMS}/{self.name}", bound, content_type=MERGE)
        phase = {"status": {"phase": "Bound"}}
        self._request("PATCH", f"{CLAIMS}/{self.name}/status", phase, content_type=MERGE)


def two_zones(cluster: Cluster) -> dict[str, str]:
    """Two nodes, with the zone of each."""
    cluster.nodes(2)
    zones = {"n0": "a", "n1": "b"}
    for name, zone in zones.items():
        labelled = {"metadata": {"labels": {ZONE: zone}}}
        cluster.plane.request("PATCH", f"/api/v1/nodes/{name}", labelled, content_type=MERGE)
    return zones


def data_of(claim: str) -> Json:
    """A pod's volume of that claim."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


def a_gang_of_two(cluster: Cluster, claim: str) -> None:
    """The first one has the claim."""
    cluster.gang("a", pods=2, gpus=4, members=[0], volumes=[data_of(claim)])
    cluster.gang("a", pods=2, gpus=4, members=[1])


def test_a_gang_goes_where_its_volume_is_if_the_driver_made_it_elsewhere(cluster: Cluster) -> None:
    zones = two_zones(cluster)
    driver = Driver(cluster, "far")
    a_gang_of_two(cluster, "far")
    cluster.schedule()
    chosen = driver.asked_node()
    [other] = set(zones) - {chosen}
    driver.make(zones[other])
    driver.bind()
    cluster.whole("a")
    assert node_of(cluster.members("a")[0]) == other
    said = (
        "gang default/a was not bound: default/a-0: plugin VolumeBinding failed in PreBind: binding volumes: "
        f"node {chosen} does not reach far, the volume of PVC 'far': it is for nodes with {ZONE} In "
    )
    assert said + zones[other] in cluster.event("FailedScheduling", "a-0")["note"]


def test_a_claim_may_be_bound_before_its_volume_can_be_read(cluster: Cluster) -> None:
    zones = two_zones(cluster)
    driver = Driver(cluster, "late")
    a_gang_of_two(cluster, "late")
    cluster.schedule()
    chosen = driver.asked_node()
    driver.bind()
    cluster.unchanged("a")
    assert cluster.n_bound("a") == 0
    driver.make(zones[chosen])
    cluster.whole("a")
    assert node_of(cluster.members("a")[0]) == chosen
    assert not cluster.events("FailedScheduling", "a-0", "a-1")


def test_members_on_two_nodes_share_a_claim_that_is_made_for_them(cluster: Cluster) -> None:
    zones = two_zones(cluster)
    driver = Driver(cluster, "shared")
    cluster.gang("a", pods=2, gpus=8, volumes=[data_of("shared")])
    cluster.schedule()
    assert driver.asked_node() in zones
    driver.make(*zones.values())
    driver.bind()
    cluster.whole("a")
    assert {node_of(pod) for pod in cluster.members("a")} == set(zones)
    assert not cluster.events("FailedScheduling", "a-0", "a-1")


def test_members_on_two_nodes_share_a_claim_for_a_volume_that_is_there(cluster: Cluster) -> None:
    zones = two_zones(cluster)
    driver = Driver(cluster, "data", makes=False)
    driver.make(*zones.values(), is_given=False)
    cluster.gang("a", pods=2, gpus=8, volumes=[data_of("data")])
    cluster.schedule()
    driver.asked_volume()
    driver.bind()
    cluster.whole("a")
    assert {node_of(pod) for pod in cluster.members("a")} == set(zones)
    assert not cluster.events("FailedScheduling", "a-0", "a-1")
