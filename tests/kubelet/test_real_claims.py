"""Real kubelets, each with a DRA driver, end to end: each container has the devices of its claims' status.

Two nodes of this machine, each with its kubelet, containerd and driver; etcd, kube-apiserver, Kubernetes' own
resourceclaim controller and the scheduler as processes. A node has three GPUs, each whole or as two halves, a
NIC of which claims have shares, and reaches two channels of a fabric that no node owns. The driver refuses to
prepare what it could not: a device in two claims, a half of a GPU that is in use whole.
What a container has: what the driver has prepared, and what kubelet's PodResources say; its environment too
where the containerd on the PATH is 1.7 or newer, as older ones know no CDI.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from grpclib.client import Channel, UnaryUnaryMethod

from gangsched.lab.controlplane import node as real_node
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.node import Machine
from gangsched.lab.controlplane.processes import GANG_GATE, GROUP_CLAIMS_GATE, ControlPlane
from gangsched.model.resource_claims.objects import FINALIZER
from tests.kubelet import claims_pb2 as pb
from tests.kubelet.dra_driver import DRIVER, GROUP, SLICES, Driver, Held, held_by, slice_name
from tests.real.process import Scheduler, service_account, write_config
from tests.support.applying import apply
from tests.support.processes import answered, until
from tests.support.threads import in_a_thread

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.since(37), pytest.mark.timeout(300)]

DEPLOY = Path(__file__).parents[2] / "deploy"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
POD_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
NODES = ("n1", "n2")
GPUS = 3
FAILED = "FailedPrepareDynamicResources"
PATIENCE_S = 120.0
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}

Json = dict[str, Any]


def slices_of(node: str) -> list[Json]:
    """What the node's driver publishes: GPUs and their halves, a NIC of 10 G, the fabric of all nodes."""

    def consumes(gpu: int, slices: int) -> list[Json]:
        return [{"counterSet": f"gpu-{gpu}", "counters": {"slices": {"value": str(slices)}}}]

    def device(name: str, kind: str, **more: Any) -> Json:
        return {"name": name, "attributes": {"kind": {"string": kind}}, **more}

    gpus, halves = [], []
    for k in range(GPUS):
        gpus.append(device(f"gpu-{k}", "gpu", consumesCounters=consumes(k, 2)))
        for half in range(2):
            halves.append(device(f"gpu-{k}-half-{half}", "half", consumesCounters=consumes(k, 1)))
    counters = [{"name": f"gpu-{k}", "counters": {"slices": {"value": "2"}}} for k in range(GPUS)]
    bandwidth = {"value": "10G", "requestPolicy": {"default": "10G", "validRange": {"min": "1G"}}}
    nic = device("nic", "nic", allowMultipleAllocations=True, capacity={"bandwidth": bandwidth})
    channels = [device(f"channel-{k}", "channel") for k in range(2)]

    def spec(pool: str, *, of: int, **more: Any) -> Json:
        return {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": of},
            **more,
        }

    return [
        spec(node, of=2, nodeName=node, sharedCounters=counters),
        spec(node, of=2, nodeName=node, devices=[*gpus, *halves]),
        spec(f"{node}-nic", of=1, nodeName=node, devices=[nic]),
        spec("fabric", of=1, allNodes=True, devices=channels),
    ]


def wish(kind: str, **more: Any) -> Json:
    """The spec of a claim for one device of a class."""
    return {"devices": {"requests": [{"name": "it", "exactly": {"deviceClassName": kind, **more}}]}}


class Site:
    """The cluster and everything in it."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        gates = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
        self.machines = {name: Machine(plane, directory, name, gates=gates) for name in NODES}
        self.drivers: dict[str, Driver] = {}
        self.scheduler: Scheduler | None = None
        self._drivers_run = ExitStack()

    def start(self) -> None:
        apply(self.plane, DEPLOY / "rbac.yaml", DEPLOY / "resource-claims.yaml")
        names = ("resourceclaim-controller", "podgroup-protection-controller")
        self.plane.start_controllers(*names, flags=(GANG_GATE, GROUP_CLAIMS_GATE))
        for kind in ("gpu", "half", "nic", "channel"):
            expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == '{kind}'"
            body = {"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
            self.plane.request("POST", f"{GROUP}/deviceclasses", body)
            more = {"capacity": {"requests": {"bandwidth": "4G"}}} if kind == "nic" else {}
            template = {"metadata": {"name": kind}, "spec": {"spec": wish(kind, **more)}}
            self.plane.request("POST", TEMPLATES, template)
        for name, machine in self.machines.items():
            machine.start()
            cdi = machine.cdi if real_node.gives_cdi_devices() else None
            self.drivers[name] = Driver(self.plane, name, machine.root, slices_of(name), cdi=cdi)
            self._drivers_run.enter_context(in_a_thread(self.drivers[name]))
        config = write_config(self.directory / "scheduler.yaml")
        account = service_account(self.plane, self.directory / "scheduler.kubeconfig")
        self.scheduler = Scheduler(config, account, self.directory / "scheduler.log")
        self.until(self._is_published, "both nodes publish their devices")

    def _is_published(self) -> bool:
        wanted = {slice_name(spec, specs) for n in NODES for specs in [slices_of(n)] for spec in specs}
        return wanted <= {one["metadata"]["name"] for one in self.items(SLICES)}

    # -- pods and claims -------------------------------------------------------------------------------------

    def claim(self, name: str, spec: Json) -> None:
        self.plane.request("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def gang(self, name: str, pods: int, **claims: Json) -> None:
        """`claims`: the pods' entries of spec.resourceClaims, by name."""
        for k in range(pods):
            self.plane.request("POST", PODS, _pod(f"{name}-{k}", name, pods, claims))

    def pod_group(self, name: str, pods: int, shared: dict[str, Json], **own: Json) -> Json:
        """A gang whose members share the claims `shared` of their PodGroup, and have their `own` besides."""
        claims = [{"name": entry, **claim} for entry, claim in shared.items()]
        spec = {"schedulingPolicy": {"gang": {"minCount": pods}}, "resourceClaims": claims}
        made: Json = self.plane.request("POST", POD_GROUPS, {"metadata": {"name": name}, "spec": spec})
        for k in range(pods):
            body = _pod(f"{name}-{k}", name, pods, {**shared, **own})
            body["metadata"] = {"name": f"{name}-{k}"}
            body["spec"]["schedulingGroup"] = {"podGroupName": name}
            self.plane.request("POST", PODS, body)
        return made

    def items(self, path: str) -> list[Json]:
        found: list[Json] = self.plane.request("GET", path)["items"]
        return found

    def members(self, gang: str) -> list[Json]:
        return [pod for pod in self.items(PODS) if pod["metadata"]["name"].rpartition("-")[0] == gang]

    def running(self, gang: str, pods: int) -> list[Json]:
        """Its members, once all of them run."""

        def all_run() -> list[Json]:
            found = [pod for pod in self.members(gang) if pod["status"]["phase"] == "Running"]
            return found if len(found) == pods else []

        self.until(all_run, f"{pods} pods of {gang} run")
        return self.members(gang)

    def claims_of(self, pod: Json) -> dict[str, Json]:
        """Entry -> claim."""
        made = {
            one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())
        }
        entries = {one["name"]: one.get("resourceClaimName") for one in pod["spec"]["resourceClaims"]}
        return {
            name: self.plane.request("GET", f"{CLAIMS}/{known or made[name]}")
            for name, known in entries.items()
        }

    def ended(self, *gangs: str) -> None:
        """Deletes their pods and all PodGroups; waits until nothing is allocated any more."""
        self.gone(*gangs)
        self.plane.request("DELETE", POD_GROUPS, AT_ONCE)
        self.until(lambda: not any(map(_is_held, self.items(CLAIMS))), f"the claims of {gangs} are free")

    def gone(self, *gangs: str) -> None:
        """Deletes their pods; when those are gone nothing is prepared for anybody."""
        for pod in [pod for gang in gangs for pod in self.members(gang)]:
            self.plane.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 1})
        self.until(lambda: not self.items(PODS), f"the pods of {gangs} are gone")
        assert {name: driver.prepared for name, driver in self.drivers.items()} == {"n1": {}, "n2": {}}

    def slices(self, node: str) -> set[str]:
        """The UIDs of the slices of the node alone."""
        return {one["metadata"]["uid"] for one in self.items(SLICES) if one["spec"].get("nodeName") == node}

    def said_of(self, pod: str, reason: str) -> list[str]:
        """The notes of its events with that reason."""
        return [
            one["note"]
            for one in self.items(EVENTS)
            if one["reason"] == reason and one["regarding"].get("name") == pod
        ]

    # -- the rest --------------------------------------------------------------------------------------------

    def until(self, true: Callable[[], object], what: str) -> None:
        until(answered(true), what, timeout_s=PATIENCE_S, story=self._story)

    def _story(self) -> str:
        pods = [json.dumps({"name": one["metadata"]["name"], **one["status"]}) for one in self.items(PODS)]
        notes = [
            f"{one['regarding'].get('name')}: {one['reason']} {one['note']}" for one in self.items(EVENTS)
        ]
        drivers = [f"{name}: {one.calls[-20:]}" for name, one in self.drivers.items()]
        scheduler = self.scheduler.said[-3000:] if self.scheduler else ""
        kubelets = [one.said[-2000:] for one in self.machines.values()]
        return "\n".join([*pods, *notes, *drivers, scheduler, *kubelets])

    def close(self) -> None:
        if self.scheduler is not None:
            self.scheduler.kill()
        for machine in self.machines.values():
            machine.stop()
        self._drivers_run.close()


def _pod(name: str, gang: str, members: int, claims: dict[str, Json]) -> Json:
    """Its container main has all of the claims, its container none has none."""
    shared = {"image": real_node.IMAGE, "imagePullPolicy": "Never"}
    command = ["/bin/sh", "-c", "env | /bin/busybox grep ^DRA_; echo end; sleep 1000"]
    uses = {"resources": {"claims": [{"name": entry} for entry in claims]}}
    return {
        "metadata": {
            "name": name,
            "labels": {"gangsched.io/pod-group": gang},
            "annotations": {"gangsched.io/min-members": str(members)},
        },
        "spec": {
            "schedulerName": "gangsched",
            "restartPolicy": "Never",
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": entry, **claim} for entry, claim in claims.items()],
            "containers": [
                {"name": "main", "command": command, **shared, **uses},
                {"name": "none", "command": command, **shared},
            ],
            # No controller manager takes the taint of a node without a network plugin away.
            "tolerations": [{"operator": "Exists"}],
        },
    }


def _is_held(claim: Json) -> bool:
    status = claim.get("status", {})
    return "allocation" in status or bool(status.get("reservedFor"))


@pytest.fixture(scope="module")
def running_site(assets: Assets) -> Iterator[Site]:
    try:
        real_node.check_possible()
    except real_node.CannotRun as error:
        if error.is_cured_by_us and os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real kubelet: {error}")
    with (
        tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as folder,
        ControlPlane(assets=assets, apiserver_flags=[GROUP_CLAIMS_GATE], unsafe_no_fsync=True) as plane,
    ):
        made = Site(plane, Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture
def site(running_site: Site) -> Site:
    """Nothing is left in it of a test that has failed."""
    for driver in running_site.drivers.values():
        driver.fails, driver.delays_s, driver.forgets = "", 0.0, False
        driver.sick.clear()
    running_site.ended(*{one["metadata"]["name"].rpartition("-")[0] for one in running_site.items(PODS)})
    running_site.plane.request("DELETE", CLAIMS, AT_ONCE)
    return running_site


# -- what a pod has, by three accounts -----------------------------------------------------------------------


def allocated(claims: Sequence[Json]) -> list[Held]:
    """By the claims' status."""
    return sorted(
        one for claim in claims for one in held_by(claim["status"]["allocation"]["devices"]["results"])
    )


def in_pod_resources(machine: Machine, pod: Json) -> dict[str, list[Held]]:
    """Container -> what kubelet says that it has."""

    async def listed() -> pb.ListPodResourcesResponse:
        channel = Channel(path=str(machine.root / "pod-resources" / "kubelet.sock"))
        try:
            call = UnaryUnaryMethod(
                channel,
                "/v1.PodResourcesLister/List",
                pb.ListPodResourcesRequest,
                pb.ListPodResourcesResponse,
            )
            return await call(pb.ListPodResourcesRequest())
        finally:
            channel.close()

    [found] = [one for one in asyncio.run(listed()).pod_resources if one.name == pod["metadata"]["name"]]
    return {
        container.name: sorted(
            Held(one.pool_name, one.device_name, one.share_id)
            for claim in container.dynamic_resources
            for one in claim.claim_resources
        )
        for container in found.containers
    }


def printed(site: Site, pod: Json, container: str) -> list[Held]:
    """What the container sees of its devices, by the environment that the runtime gave it."""
    machine = site.machines[pod["spec"]["nodeName"]]
    site.until(lambda: "end" in machine.output(pod, container), f"{container} has printed its environment")
    lines = [line for line in machine.output(pod, container).splitlines() if line.startswith("DRA_")]
    return sorted(Held(*line.split("=", 1)[1].split("/")) for line in lines)


def check_devices(site: Site, pods: Sequence[Json]) -> dict[str, list[Held]]:
    """Each container has the devices of its claims' status. Returns them by pod."""
    found = {}
    for pod in pods:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        machine, driver = site.machines[node], site.drivers[node]
        claims = list(site.claims_of(pod).values())
        found[name] = allocated(claims)
        prepared = [one for claim in claims for one in driver.prepared[claim["metadata"]["uid"]]]
        assert sorted(prepared) == found[name], f"{name}: prepared {prepared}"
        assert in_pod_resources(machine, pod) == {"main": found[name], "none": []}
        if real_node.gives_cdi_devices():
            assert {one: printed(site, pod, one) for one in ("main", "none")} == {
                "main": found[name],
                "none": [],
            }
    used = {claim["metadata"]["uid"] for pod in pods for claim in site.claims_of(pod).values()}
    assert {uid for driver in site.drivers.values() for uid in driver.prepared} == used
    assert {pod["spec"]["nodeName"] for pod in pods} == {*NODES}, "both kubelets have a part of it"
    return found


def of_template(name: str) -> Json:
    return {"resourceClaimTemplateName": name}


def test_gangs_of_gpus_and_of_their_partitions(site: Site) -> None:
    """Four whole GPUs leave one a node, whose halves go to four other pods; then all whole ones are free."""
    site.gang("whole", 4, own=of_template("gpu"))
    whole = site.running("whole", 4)
    found = check_devices(site, whole)
    site.gang("parts", 4, own=of_template("half"))
    parts = site.running("parts", 4)
    found |= check_devices(site, [*whole, *parts])
    assert len({(one.pool, one.device) for each in found.values() for one in each}) == 8
    site.ended("whole", "parts")


def test_a_gang_on_two_nodes_shares_a_claim_and_devices(site: Site) -> None:
    """One channel of all; of each node's NIC two have 4 of 10 G, each as a share of its own."""
    site.claim("channel", wish("channel"))
    shared = {"resourceClaimName": "channel"}
    site.gang("ring", 4, gpu=of_template("gpu"), nic=of_template("nic"), channel=shared)
    pods = site.running("ring", 4)
    found = check_devices(site, pods)
    [channel] = {one for each in found.values() for one in each if one.pool == "fabric"}
    assert all(channel in each for each in found.values())
    shares = [one for each in found.values() for one in each if one.device == "nic"]
    assert len({one.share for one in shares}) == 4
    assert sorted(one.pool for one in shares) == ["n1-nic", "n1-nic", "n2-nic", "n2-nic"]
    [reserved] = [
        one["status"]["reservedFor"] for one in site.items(CLAIMS) if one["metadata"]["name"] == "channel"
    ]
    assert {one["uid"] for one in reserved} == {pod["metadata"]["uid"] for pod in pods}
    site.ended("ring")


def test_a_gang_on_two_nodes_has_the_claims_of_its_pod_group(site: Site) -> None:
    """One that was made for it and one by name; reserved for the PodGroup, they are its own until it goes."""
    site.claim("channel", wish("channel"))
    shared = {"made": of_template("channel"), "named": {"resourceClaimName": "channel"}}
    group = site.pod_group("job", 4, shared, gpu=of_template("gpu"))
    pods = site.running("job", 4)
    found = check_devices(site, pods)
    channels = {one for each in found.values() for one in each if one.pool == "fabric"}
    assert {one.device for one in channels} == {"channel-0", "channel-1"}
    assert all(channels < {*each} for each in found.values())
    for pod in pods:
        claims = site.claims_of(pod)
        for entry in ("made", "named"):
            [reserved] = claims[entry]["status"]["reservedFor"]
            assert (reserved["resource"], reserved["uid"]) == ("podgroups", group["metadata"]["uid"])
    site.gone("job")
    site.until(lambda: sum(map(_is_held, site.items(CLAIMS))) == 2, "the pods' own claims are free")
    site.ended("job")


def test_a_driver_that_fails_is_said_and_keeps_nobodys_devices(site: Site) -> None:
    """Bound, with their claims allocated, its pods wait in kubelet; deleted there, they leave nothing."""
    site.drivers["n1"].fails = "the GPU has fallen off the bus"
    site.drivers["n2"].forgets = True
    site.gang("stuck", 4, own=of_template("gpu"))
    says = {"n1": "the GPU has fallen off the bus", "n2": "NodePrepareResources skipped"}

    def is_told(pod: Json) -> bool:
        notes = site.said_of(pod["metadata"]["name"], FAILED)
        node = pod["spec"].get("nodeName")
        return node is not None and any(says[node] in note for note in notes)

    site.until(lambda: all(map(is_told, site.members("stuck"))), "Events say why each does not start")
    pods = site.members("stuck")
    assert {pod["status"]["phase"] for pod in pods} == {"Pending"}
    assert not any(driver.prepared for driver in site.drivers.values())
    for pod in pods:
        [claim] = site.claims_of(pod).values()
        assert allocated([claim])
        assert [one["uid"] for one in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    site.ended("stuck")
    site.drivers["n1"].fails, site.drivers["n2"].forgets = "", False
    site.drivers["n1"].delays_s = 1.0
    site.gang("late", 4, own=of_template("gpu"))
    check_devices(site, site.running("late", 4))
    site.drivers["n1"].delays_s = 0.0
    site.ended("late")


def test_a_device_that_its_driver_finds_sick_fails_under_its_pod(site: Site) -> None:
    """By way of kubelet, which writes into the pod's status what the driver tells it."""
    site.gang("sick", 4, own=of_template("gpu"))
    pods = site.running("sick", 4)
    name, node = pods[0]["metadata"]["name"], pods[0]["spec"]["nodeName"]
    [held] = check_devices(site, pods)[name]
    site.drivers[node].sick.add((held.pool, held.device))
    site.until(lambda: site.said_of(name, "DeviceFailed"), "the scheduler tells of the device")
    [note] = site.said_of(name, "DeviceFailed")
    device = f"{DRIVER}/{held.pool}/{held.device}"
    assert note.startswith(f"device {device} (Unhealthy, says its kubelet) of resource claim default/{name}-")
    site.drivers[node].sick.clear()
    site.until(lambda: site.said_of(name, "DeviceRecovered"), "it is told that the device is well")
    assert [one["status"]["phase"] for one in site.members("sick")] == ["Running"] * 4
    site.ended("sick")


def test_a_kubelet_that_starts_again_takes_its_slices_away_and_no_devices(site: Site) -> None:
    """What was prepared stays so; other gangs get other devices, once the driver has published them again."""
    site.gang("before", 4, own=of_template("gpu"))
    before = site.running("before", 4)
    slices = site.slices("n1")
    site.machines["n1"].kill_kubelet()
    site.machines["n1"].start_kubelet()
    site.until(lambda: len(site.slices("n1") - slices) == len(slices), "n1 has published anew")
    site.gang("after", 4, own=of_template("half"))
    after = site.running("after", 4)
    found = check_devices(site, [*before, *after])
    assert len({(one.pool, one.device) for each in found.values() for one in each}) == 8
    site.ended("before", "after")


def test_the_driver_refuses_what_another_claim_has(site: Site) -> None:
    """As allocated by somebody who did not look: it is not prepared, and the gang keeps its devices."""
    site.gang("first", 4, own=of_template("gpu"))
    pods = site.running("first", 4)
    found = check_devices(site, pods)
    [theirs] = found[pods[0]["metadata"]["name"]]
    node = pods[0]["spec"]["nodeName"]
    for what, device in (("whole", theirs.device), ("part", f"{theirs.device}-half-0")):
        _take(site, f"other-{what}", node, theirs._replace(device=device))
    told = {"whole": "is in 2 claims", "part": "partitions of more than there is"}
    for what, why in told.items():
        site.until(
            lambda what=what, why=why: any(why in one for one in site.said_of(f"other-{what}-0", FAILED)),  # type: ignore[misc]
            f"the {what} device is not prepared",
        )
    assert check_devices(site, pods) == found
    site.ended("first", *(f"other-{what}" for what in told))


def _take(site: Site, gang: str, node: str, held: Held) -> None:
    """Binds a pod to the node with a claim that is allocated a device, whoever has it."""
    site.claim(gang, wish("gpu"))
    body = _pod(f"{gang}-0", gang, 1, {"own": {"resourceClaimName": gang}})
    body["spec"]["schedulerName"] = "another"
    made = site.plane.request("POST", PODS, body)
    result = {"request": "it", "driver": DRIVER, "pool": held.pool, "device": held.device}
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    status = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [selector]}},
        "reservedFor": [{"resource": "pods", "name": f"{gang}-0", "uid": made["metadata"]["uid"]}],
    }
    meta = {"finalizers": [FINALIZER]}
    for path, patch in (
        (f"{CLAIMS}/{gang}", {"metadata": meta}),
        (f"{CLAIMS}/{gang}/status", {"status": status}),
    ):
        site.plane.request("PATCH", path, patch, content_type="application/merge-patch+json")
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"metadata": {"name": f"{gang}-0"}, "target": target}
    site.plane.request("POST", f"{PODS}/{gang}-0/binding", binding)
