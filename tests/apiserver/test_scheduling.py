"""Our scheduler against the embedded cluster: gangs that run, and end, over HTTP and TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from gangsched.certificates import self_signed, server_context
from gangsched.config import LeaderElectionSettings, default_config
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.effects.write_lanes import StatusLane
from gangsched.lab.apiserver.app import EmbeddedCluster, Simulation
from gangsched.lab.apiserver.storage.store import Item
from gangsched.model.effects import WritePodCondition
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp
from tests.support.bodies import Json, member
from tests.support.tasks import until

SIMULATED = "simulated.gangsched.io"


@asynccontextmanager
async def scheduler(
    cluster: EmbeddedCluster, kubeconfig: Path, *, grace_s: float = 5.0, **changes: Any
) -> AsyncIterator[SchedulerApp]:
    credentials = await load_credentials(kubeconfig=str(cluster.kubeconfig(kubeconfig)))
    app = SchedulerApp(replace(default_config(IN_TREE), **changes), credentials, seed=1)
    async with anyio.create_task_group() as running:

        async def run() -> None:
            await app.run(on_signals=False)

        running.start_soon(run)
        try:
            yield app
        finally:
            await app.stop(grace_s)
            running.cancel_scope.cancel()


def brief_member(k: int, *, needed: int) -> Json:
    """Of the gang a; it takes a whole node, and runs as soon as it is bound, for five seconds."""
    brief = {f"{SIMULATED}/start-seconds": "0", f"{SIMULATED}/run-seconds": "5"}
    limits = {"nvidia.com/gpu": 8}
    return member("a", k, needed=needed, limits=limits, annotations=brief, restartPolicy="Never")


def pods(cluster: EmbeddedCluster) -> list[Item]:
    return cluster.registry.list(cluster.registry.resource("pods"), "default")


def phases(cluster: EmbeddedCluster) -> set[str]:
    return {pod.decode()["status"]["phase"] for pod in pods(cluster)}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "tls"])
async def test_a_gang_is_bound_whole_runs_and_ends(tls: bool, tmp_path: Path) -> None:
    pair = self_signed("embedded", hosts=["127.0.0.1"]) if tls else None
    cluster = EmbeddedCluster(
        simulation=Simulation(nodes=4, gpus=8, racks=2, speed=20.0),
        tls=server_context(pair) if pair else None,
        ca=pair.certificate if pair else b"",
        seed=1,
    )
    async with cluster, scheduler(cluster, tmp_path / "kubeconfig"):
        for k in range(4):
            cluster.registry.create(
                cluster.registry.resource("pods"), brief_member(k, needed=4), namespace="default"
            )
        await until(lambda: phases(cluster) == {"Succeeded"}, "all members of the gang have run")
        bound = [pod.decode() for pod in pods(cluster)]
    assert len({pod["spec"]["nodeName"] for pod in bound}) == 4
    devices = [device for pod in bound for device in devices_of(pod)]
    assert len(set(devices)) == len(devices) == 32


async def test_a_gang_that_does_not_fit_is_not_bound_until_it_does(tmp_path: Path) -> None:
    async with (
        EmbeddedCluster(simulation=Simulation(nodes=2, gpus=8, speed=20.0), seed=1) as cluster,
        scheduler(cluster, tmp_path / "kubeconfig"),
    ):
        registry = cluster.registry
        created = registry.resource("pods")
        for k in range(3):
            registry.create(created, brief_member(k, needed=3), namespace="default")
        await until(lambda: any(says_why_not(pod) for pod in pods(cluster)), "the gang is refused")
        assert not any(pod.decode()["spec"].get("nodeName") for pod in pods(cluster))
        node = registry.get(registry.resource("nodes"), "", "node-0").decode()
        node["metadata"] = {
            "name": "node-2",
            "labels": node["metadata"]["labels"] | {"kubernetes.io/hostname": "node-2"},
            "annotations": {
                key: value.replace("node-0", "node-2")
                for key, value in node["metadata"]["annotations"].items()
            },
        }
        del node["spec"]["podCIDR"], node["spec"]["podCIDRs"]
        registry.create(registry.resource("nodes"), node)
        await until(lambda: phases(cluster) == {"Succeeded"}, "the gang runs on the node that came")


async def test_a_gang_goes_where_its_volume_is_if_the_driver_made_it_elsewhere(tmp_path: Path) -> None:
    key, data = "volume.kubernetes.io/selected-node", {"storage": "1Gi"}
    async with (
        EmbeddedCluster(simulation=Simulation(nodes=2, gpus=8, speed=20.0), seed=1) as cluster,
        scheduler(cluster, tmp_path / "kubeconfig"),
    ):
        registry = cluster.registry
        classes = registry.resource("storageclasses.storage.k8s.io")
        claims, volumes = (registry.resource(f"persistentvolume{one}") for one in ("claims", "s"))
        waits = {"provisioner": "d.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
        registry.create(classes, {"metadata": {"name": "made"}, **waits})
        spec: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "made"}
        wanted = {**spec, "resources": {"requests": data}}
        claim = registry.create(claims, {"metadata": {"name": "c"}, "spec": wanted}, namespace="default")
        mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        for k in range(2):
            one = brief_member(k, needed=2)
            one["spec"] |= {"volumes": mounted} if not k else {}
            registry.create(registry.resource("pods"), one, namespace="default")

        def asked_node() -> str:
            notes = registry.get(claims, "default", "c").decode()["metadata"].get("annotations", {})
            return str(notes.get(key, ""))

        await until(lambda: bool(asked_node()), "the claim has its node")
        [other] = {"node-0", "node-1"} - {asked_node()}
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [other]}
        spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}
        spec |= {"claimRef": {"namespace": "default", "name": "c", "uid": claim.decode()["metadata"]["uid"]}}
        spec |= {"capacity": data, "csi": {"driver": "d.example.com", "volumeHandle": "v"}}
        registry.create(volumes, {"metadata": {"name": "v"}, "spec": spec})

        def bind(claim: Json) -> None:
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
            claim["spec"]["volumeName"] = "v"

        registry.modify(claims, "default", "c", bind)
        await until(lambda: phases(cluster) == {"Succeeded"}, "the gang has run")
        assert registry.get(registry.resource("pods"), "default", "a-0").decode()["spec"]["nodeName"] == other


def devices_of(pod: dict[str, Any]) -> list[str]:
    allocated = msgspec.json.decode(pod["metadata"]["annotations"]["gangsched.io/allocated-devices"])
    return [device for of in allocated.values() for ids in of.values() for device in ids]


def says_why_not(pod: Item) -> bool:
    conditions = pod.decode()["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def test_a_condition_that_the_server_has_no_time_for_does_not_keep_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is throttled for longer than a stop may take; nothing in doubt is left."""
    election = LeaderElectionSettings(True, 15.0, 10.0, 2.0, resource_namespace="default")
    cluster = EmbeddedCluster(simulation=Simulation(nodes=1), seed=1)
    options: dict[str, Any] = {"grace_s": 0.1, "leader_election": election}
    async with cluster, scheduler(cluster, tmp_path / "kubeconfig", **options) as app:
        await until(app.leadership.may_act)
        monkeypatch.setattr(StatusLane, "_gives_way", lambda lane, now_s: True)
        app.dispatcher.submit(
            [WritePodCondition("u", "default", "p", "PodScheduled", "False", "No", "x", "")]
        )
        await app.stop(0.1)
        [lease] = cluster.registry.list(cluster.registry.resource("leases.coordination.k8s.io"), "default")
        assert lease.decode()["spec"]["holderIdentity"] == ""
