"""A Cluster whose nodes offer devices by Dynamic Resource Allocation: slices, classes, claims and templates,
with Kubernetes' own resourceclaim controller; and what must hold for every history of claims and pods.

Lives here: a second independent watch, of claims, and the checks over both, put in one order by their
versions. Not here: what goes wrong (test_resource_claims.py, test_resource_claims_kill.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gangsched.errors import ApiError, ConfigError
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.processes import GANG_GATE, GROUP_CLAIMS_GATE, ControlPlane
from gangsched.model.pod_group import GANG_KEY
from gangsched.model.resource_claims.objects import CLAIMED_FOR_KEY, FINALIZER
from tests.conftest import wipe
from tests.real.cluster import MERGE, PODS, REPO, Cluster, checking, is_member
from tests.real.picture import OURS, Json, Picture, Sight, is_live, node_of
from tests.real.process import Scheduler, service_account, write_config
from tests.support.applying import apply

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
SLICES, CLASSES = f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"
CLAIM_RIGHTS = REPO / "deploy" / "resource-claims.yaml"
DRIVER = "gpu.example.com"
CLASS = "gpu"
EXTENDED = "example.com/gpu"
UNPACED = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""By its default of 20 requests a second the controller would make a test wait for its claims."""
AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}

Device = tuple[str, str, str]
"""(driver, pool, name)."""


class ClaimCluster(Cluster):
    """A cluster with devices for claims, and the rights of deploy/resource-claims.yaml.

    beside: whether another scheduler allocates devices too, so that two claims may have one.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        super().__init__(plane, directory)
        self.claims = Picture(plane, alive=self._alive, path=CLAIMS)
        self.beside = False

    # -- devices and claims --------------------------------------------------------------------------

    def offer(self, n: int, *, devices: int = 4, first: int = 0) -> None:
        """`n` nodes n0, n1, … with a slice of so many devices each, half of them on each NUMA node."""
        for i in range(first, first + n):
            self.nodes(1, gpus=0, first=i)
            self.slice(f"n{i}", [device(k, numa=2 * k // devices) for k in range(devices)])

    def slice(self, node: str, devices: Sequence[Json]) -> None:
        """What the driver on the node would publish."""
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": list(devices)}
        self.plane.request("POST", SLICES, {"metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec})

    def device_class(self, name: str = CLASS, **spec: Any) -> None:
        selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
        body = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
        self.plane.request("POST", CLASSES, body)

    def template(self, name: str, spec: Json) -> None:
        """Claims of each pod's own are made from it."""
        self.plane.request("POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": spec}})

    def claim(self, name: str, spec: Json, **meta: Any) -> Json:
        """A claim of the user's own, for several pods."""
        body = {"metadata": {"name": name, **meta}, "spec": spec}
        made: Json = self.plane.request("POST", CLAIMS, body)
        return made

    def claiming(self, name: str, *, pods: int, own: str = "one", shared: str = "", **options: Any) -> None:
        """A gang whose pods have a claim each of the template `own`, and use the claim `shared`."""
        entries = [{"name": "own", "resourceClaimTemplateName": own}] if own else []
        entries += [{"name": "shared", "resourceClaimName": shared}] if shared else []
        self.gang(name, pods=pods, gpus=0, resourceClaims=entries, **options)

    def asking(self, name: str, *, pods: int, amount: int = 1, **options: Any) -> None:
        """A gang whose pods ask for so much of EXTENDED, which a class may serve."""
        asked = {EXTENDED: str(amount), "cpu": "10m"}
        container = {"name": "main", "image": "busybox", "resources": {"requests": asked, "limits": asked}}
        self.gang(name, pods=pods, gpus=0, containers=[container], **options)

    # -- what became of them, as the API server has it: the watches of pods and of claims keep no step ---

    def claims_of(self, *pods: Json) -> list[Json]:
        """The pods' claims that there are now, each once."""
        there = {one["metadata"]["name"]: one for one in self.plane.request("GET", CLAIMS)["items"]}
        names = dict.fromkeys(name for pod in pods for name in names_of(pod))
        return [there[name] for name in names if name in there]

    def claims_of_gang(self, name: str) -> list[Json]:
        """Each once."""
        return self.claims_of(*self._members_now(name))

    def devices_of(self, name: str) -> list[Device]:
        """Of all claims of a gang, or of a lone pod."""
        return [one for claim in self.claims_of_gang(name) for one in devices_of(claim)]

    def _members_now(self, name: str) -> list[Json]:
        pods = {pod["metadata"]["name"]: pod for pod in self.plane.request("GET", PODS)["items"]}
        return [pods[one] for one in sorted(pods) if is_member(one, name)]

    def resolved(self, name: str) -> None:
        """Waits until every member's claims exist."""

        def all_exist() -> bool:
            pods = self._members_now(name)
            return len(pods) >= self.gangs.get(name, 1) and all(
                len(self.claims_of(pod)) == len(pod["spec"].get("resourceClaims", ())) for pod in pods
            )

        self.eventually(all_exist, f"the claims of {name} exist")

    def freed(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Waits until no claim of the gang is allocated."""
        self.eventually(
            lambda: not self.devices_of(name), f"no claim of {name} is allocated", timeout_s=timeout_s
        )

    # -- the scheduler -------------------------------------------------------------------------------

    def schedule(
        self,
        *,
        kubeconfig: Path | None = None,
        election: Json | None = None,
        port: int = 0,
        **settings: Any,
    ) -> Scheduler:
        """As Cluster's; `election`: its leaderElection; `port`: of its pages, 0 for none."""
        number = len(list(self.directory.glob("config-*.yaml")))
        config = write_config(self.directory / f"config-{number}.yaml", **settings)
        documents = list(yaml.safe_load_all(config.read_text()))
        if election is not None:
            documents[0]["leaderElection"] = election
        config.write_text(yaml.safe_dump_all(documents))
        account = kubeconfig or service_account(self.plane, self.directory / f"account-{number}.yaml")
        scheduler = Scheduler(config, account, self.directory / f"scheduler-{number}.log", port=port)
        self.schedulers.append(scheduler)
        return scheduler

    # -- the fixture ---------------------------------------------------------------------------------

    def set_up(self) -> None:
        apply(self.plane, CLAIM_RIGHTS)
        super().set_up()
        self.claims.start()

    def check(self) -> None:
        super().check()
        self.check_claims()
        self.claims.stop()
        pods = self.plane.request("GET", PODS)["items"]
        bound = {pod["metadata"]["name"] for pod in pods if is_live(pod) and node_of(pod)}
        for name in self.gangs:
            if not any(is_member(one, name) for one in bound):
                assert not self.devices_of(name), f"{name} is not bound, and has {self.devices_of(name)}"

    def check_claims(self) -> list[Lost]:
        """What must hold for the history so far. Returns what was lost to others, beside whom that may
        happen."""
        pods = [*self.picture.sights]
        self._see_all_claims()
        return check_claims(pods, self.claims.sights, self.gangs, beside=self.beside)

    def _see_all_claims(self) -> None:
        """Returns when the watch of claims shows one that is made now, and so all that was written earlier.

        The watch of pods may have shown a Binding long before: each is a connection of its own, and opened
        anew time and again.
        """
        mark = self.plane.request("POST", CLAIMS, {"metadata": {"generateName": "mark-"}, "spec": wish()})
        name = mark["metadata"]["name"]
        self.eventually(lambda: name in self.claims.pods, "the watch of claims shows the latest")
        self.plane.request("DELETE", f"{CLAIMS}/{name}", AT_ONCE)

    def _check_alive(self) -> None:
        super()._check_alive()
        assert not self.claims.trouble, self.claims.trouble

    def close(self) -> None:
        super().close()
        self.claims.stop()


class Lost(NamedTuple):
    """A pod of ours, and a device that it is bound with and that another scheduler's claim has, too."""

    pod: str
    device: Device
    claim: str
    was_first: bool
    """Whether the other claim was allocated before ours."""


class History:
    """Claims and pods, event by event in the order of their versions."""

    def __init__(self, gangs: dict[str, int], *, beside: bool) -> None:
        self._gangs = gangs
        self._beside = beside
        self._claims: dict[str, Json] = {}
        self._having: dict[Device, set[str]] = {}
        """The claims that have a device."""
        self._since: dict[str, int] = {}
        self._bound: dict[str, Json] = {}
        self._has_bound: dict[str, int] = {}
        self._stated: dict[str, set[str]] = {}
        """By gang: pods whose status states a claim for their extended resources."""
        self.lost: list[Lost] = []

    def see_claim(self, type_: str, claim: Json) -> None:
        """The next event, of a claim."""
        name = claim["metadata"]["name"]
        before = devices_of(self._claims.pop(name, {}))
        for device in before:
            self._having[device].discard(name)
        if type_ == "DELETED":
            return
        self._claims[name] = claim
        if not (now := devices_of(claim)):
            self._since.pop(name, None)
            return
        assert before in ([], now), f"the allocation of {name} has changed"
        for device in now:
            self._having.setdefault(device, set()).add(name)
        if name not in self._since:
            self._since[name] = version_of(claim)
            assert FINALIZER in claim["metadata"].get("finalizers", ()), f"{name} is allocated without it"
            self._check_doubles(name)

    def _check_doubles(self, name: str) -> None:
        """When a claim is allocated, no other one of ours has any of its devices."""
        for device, other in self._doubles(name):
            of_ours = [one for one in (name, other) if is_marked(self._claims[one])]
            may_be = self._beside and len(of_ours) < 2
            assert may_be, f"device {device} is in the claims {name} and {other}"
            for pod in self._bound.values():
                for one in {name, other}.intersection(names_of(pod)):
                    self._lose(pod, device, one, other if one == name else name)

    def _doubles(self, name: str) -> Iterator[tuple[Device, str]]:
        for device in devices_of(self._claims[name]):
            yield from ((device, other) for other in sorted(self._having[device]) if other != name)

    def _lose(self, pod: Json, device: Device, claim: str, other: str) -> None:
        was_first = self._since[other] < self._since[claim]
        self.lost.append(Lost(pod["metadata"]["name"], device, other, was_first))

    def see_pod(self, type_: str, pod: Json) -> None:
        """The next event, of a pod."""
        uid = pod["metadata"]["uid"]
        if "extendedResourceClaimStatus" in pod["status"]:
            self._stated.setdefault(pod["metadata"]["name"].rpartition("-")[0], set()).add(uid)
        if type_ == "DELETED" or not is_live(pod):
            self._bound.pop(uid, None)
        elif node_of(pod) and uid not in self._bound and pod["spec"]["schedulerName"] == OURS:
            self._bound[uid] = pod
            self._check_bound(pod)

    def _check_bound(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        for one in names_of(pod):
            claim = self._claims.get(one)
            assert claim is not None, f"{name} is bound, its claim {one} is not there"
            assert devices_of(claim), f"{name} is bound, its claim {one} is not allocated"
            entries = claim["status"].get("reservedFor", ())
            is_reserved = any(entry["uid"] == uid or is_of_group(entry, pod) for entry in entries)
            assert is_reserved, f"{name} is bound, its claim {one} is not reserved for it"
            assert FINALIZER in claim["metadata"].get("finalizers", ()), f"{one} has no finalizer"
            pools = {pool for _, pool, _ in devices_of(claim)}
            assert pools == {node_of(pod)}, f"{name} is on {node_of(pod)}, its devices on {pools}"
            for device, other in self._doubles(one):
                self._lose(pod, device, one, other)
        gang = pod["metadata"].get("annotations", {}).get(GANG_KEY, "").rpartition("/")[2]
        if gang in self._gangs and self._has_bound.setdefault(gang, 0) == 0:
            self._check_whole(gang, pod)
        self._has_bound[gang] = self._has_bound.get(gang, 0) + 1

    def _check_whole(self, gang: str, first: Json) -> None:
        """When a gang's first pod is bound, so many of its pods have all they need."""
        entries = [
            entry
            for claim in self._claims.values()
            if devices_of(claim)
            for entry in claim["status"].get("reservedFor", ())
        ]
        if any(is_of_group(entry, first) for entry in entries):
            return  # that is one entry for all of them
        reserved = {one["uid"] for one in entries if one["name"].rpartition("-")[0] == gang}
        # Where a plugin offers what its pods ask for, some of them need no claim.
        wanted = self._gangs[gang] if first["spec"].get("resourceClaims") else len(self._stated.get(gang, ()))
        n, name = len(reserved), first["metadata"]["name"]
        assert n >= wanted, f"{name} is bound while claims are reserved for {n} of {wanted} of its gang"


def check_claims(
    pods: Sequence[Sight], claims: Sequence[Sight], gangs: dict[str, int], *, beside: bool = False
) -> list[Lost]:
    """The whole history at once. Returns what was lost to others, beside whom that may happen."""
    history = History(gangs, beside=beside)
    order = [(version_of(one.pod), one, True) for one in claims]
    order += [(version_of(one.pod), one, False) for one in pods]
    for _, sight, is_claim in sorted(order, key=lambda one: one[0]):
        (history.see_claim if is_claim else history.see_pod)(sight.type, sight.pod)
    return history.lost


def is_of_group(entry: Json, pod: Json) -> bool:
    """Whether a reservation is that of the pod's PodGroup."""
    group = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    return group is not None and (entry["resource"], entry["name"]) == ("podgroups", group)


def is_marked(claim: Json) -> bool:
    """Whether it says that gangsched has allocated it."""
    return CLAIMED_FOR_KEY in claim["metadata"].get("annotations", {})


def version_of(one: Json) -> int:
    """All kinds have one sequence of versions."""
    return int(one["metadata"]["resourceVersion"])


def names_of(pod: Json) -> list[str]:
    """The names of the claims that the pod uses, those that are known."""
    made = pod["status"].get("resourceClaimStatuses", ())
    names = {one["name"]: one.get("resourceClaimName", "") for one in made}
    entries = pod["spec"].get("resourceClaims", ())
    found = [name for one in entries if (name := one.get("resourceClaimName") or names.get(one["name"], ""))]
    stated = pod["status"].get("extendedResourceClaimStatus")
    return [*found, stated["resourceClaimName"]] if stated else found


def devices_of(claim: Json) -> list[Device]:
    """What the claim is allocated."""
    allocation = claim.get("status", {}).get("allocation", {})
    results = allocation.get("devices", {}).get("results", ())
    return [(one["driver"], one["pool"], one["device"]) for one in results]


def device(k: int, **attributes: Any) -> Json:
    """One of a slice; attributes are integers or texts."""
    kinds = {int: "int", str: "string"}
    values = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    return {"name": f"gpu-{k}", "attributes": values}


def request(name: str = "gpu", *, of: str = CLASS, count: int = 1, expression: str = "") -> Json:
    """For exactly so many devices of a class."""
    exactly: Json = {"deviceClassName": of, "count": count}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def wish(*requests: Json, **more: Any) -> Json:
    """The spec of a claim; without requests one for a device."""
    return {"devices": {"requests": list(requests) or [request()], **more}}


@contextmanager
def claim_control_plane(assets: Assets, *, of_groups: bool = False) -> Iterator[ControlPlane]:
    """A control plane with Kubernetes' own resourceclaim controller; of_groups: with claims of PodGroups.

    Skips the test where KUBEBUILDER_ASSETS names a folder without a controller manager.
    """
    try:
        assets.path("kube-controller-manager")
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real resourceclaim controller: {error}")
    gates, names, flags = [], ["resourceclaim-controller"], list(UNPACED)
    if of_groups:
        gates, flags = [GROUP_CLAIMS_GATE], [*UNPACED, GANG_GATE, GROUP_CLAIMS_GATE]
        names += ["garbage-collector-controller", "podgroup-protection-controller"]
    with ControlPlane(assets=assets, apiserver_flags=gates, unsafe_no_fsync=True) as plane:
        plane.start_controllers(*names, flags=flags)
        yield plane


@contextmanager
def checked_claims(plane: ControlPlane, directory: Path) -> Iterator[ClaimCluster]:
    """An empty cluster on it; what must always hold is checked when the test has passed."""
    try:
        with checking(ClaimCluster(plane, directory)) as made:
            yield made
    finally:
        for scheduler in plane.schedulers:
            scheduler.kill()
        plane.schedulers.clear()
        wipe(plane)
        wipe_claims(plane)
        for collection in (TEMPLATES, SLICES, CLASSES):
            plane.request("DELETE", collection, AT_ONCE)
        with suppress(ApiError):  # older than 1.37
            plane.request("DELETE", f"{GROUP}/devicetaintrules", AT_ONCE)


def wipe_claims(plane: ControlPlane) -> None:
    """Deletes all claims; their pods are gone."""
    while items := plane.request("GET", CLAIMS)["items"]:
        plane.request("DELETE", f"{CLAIMS}?limit=500", AT_ONCE)
        for item in items:
            path = f"{CLAIMS}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                with suppress(ApiError):  # the controller was quicker
                    plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
