"""`gangsched devices`: the map itself, and the command on an embedded API server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from gangsched.certificates import self_signed
from gangsched.command import printing
from gangsched.command.cli import main
from gangsched.devices.command import print_map
from gangsched.devices.report import Refused, make_map
from gangsched.devices.reserved import with_reserved
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.writes import event_body, events_path
from gangsched.lab.apiserver.app import EmbeddedCluster, write_kubeconfig
from gangsched.lab.sim.objects import GPU, inventory, make_node, make_pod
from gangsched.model.devices.annotations import ALLOCATED_KEY, INVENTORY_KEY, Device
from gangsched.model.devices.labels import allocation_labels, inventory_labels
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from gangsched.model.effects import POD_REFUSED, RecordEvent
from gangsched.model.objects import (
    Condition,
    ContainerStatus,
    Node,
    Pod,
    PodStatus,
    ResourceHealth,
    ResourceStatus,
)
from gangsched.model.pod_group import GANG_KEY
from gangsched.web.pages.answers import Reservation
from gangsched.web.pages.reservations import Reservations
from tests.support.scenario import Cluster, cluster, gang, with_annotations
from tests.web.test_server import serving

NOBODY = "--server=https://127.0.0.1:1"
BOUND = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)


def holding(name: str, *numbers: int, node: str = "n0", gang: str = "") -> Pod:
    ids = [f"GPU-{node}-{k}" for k in numbers]
    own = {ALLOCATED_KEY: json.dumps({"main": {GPU: ids}})}
    if gang:
        own[GANG_KEY] = gang
    pod = make_pod(name, gpus=len(numbers), annotations=own)
    condition = Condition("PodScheduled", "True", last_transition_time=BOUND)
    status = PodStatus(phase="Running", conditions=[condition])
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def reported(node: Node, **pods: list[int]) -> Node:
    name = node.metadata.name
    held = [
        PodDevices(f"uid-d-{pod}", "d", pod, {"main": {GPU: tuple(f"GPU-{name}-{k}" for k in numbers)}})
        for pod, numbers in pods.items()
    ]
    own = {**(node.metadata.annotations or {}), DEVICE_REPORT_KEY: report_annotation([GPU], held)}
    return replace(node, metadata=replace(node.metadata, annotations=own))


def states(nodes: list[Node], pods: list[Pod]) -> dict[str, str]:
    return {row.id: row.state for one in make_map(nodes, pods) for row in one.devices}


# -- the map -------------------------------------------------------------------------------------------


def test_who_holds_what_since_when() -> None:
    [one] = make_map([make_node("n0", gpus=3)], [holding("x", 0, 2, gang="d/a")])
    assert [(row.id, row.state) for row in one.devices] == [
        ("GPU-n0-0", "planned"),
        ("GPU-n0-1", "free"),
        ("GPU-n0-2", "planned"),
    ]
    [holder] = one.devices[0].holders
    assert (holder.pod, holder.container, holder.gang, holder.since) == ("d/x", "main", "d/a", BOUND)


def test_kubelet_confirms_or_contradicts() -> None:
    node = reported(make_node("n0", gpus=4), x=[0], y=[2])
    assert states([node], [holding("x", 0), holding("y", 1), holding("z", 3)]) == {
        "GPU-n0-0": "confirmed",
        "GPU-n0-1": "mismatch",
        "GPU-n0-2": "mismatch",
        "GPU-n0-3": "planned",
    }


def test_two_annotations_that_name_one_device_are_seen() -> None:
    assert states([make_node("n0", gpus=1)], [holding("x", 0), holding("y", 0)]) == {
        "GPU-n0-0": "claimed twice"
    }


def test_what_is_held_and_not_listed_any_more_is_still_shown() -> None:
    [one] = make_map([make_node("n0", gpus=1)], [holding("x", 7)])
    assert [(row.id, row.health, row.state) for row in one.devices] == [
        ("GPU-n0-0", "Healthy", "free"),
        ("GPU-n0-7", "not listed", "planned"),
    ]


def test_pods_that_ended_hold_nothing_and_pods_without_ids_are_named() -> None:
    ended = replace(holding("x", 0), status=PodStatus(phase="Succeeded"))
    stranger = make_pod("s", gpus=1, scheduler="default-scheduler")
    stranger = replace(stranger, spec=replace(stranger.spec, node_name="n0"))
    [one] = make_map([make_node("n0", gpus=1)], [ended, stranger])
    assert one.devices[0].state == "free"
    assert (one.without_ids, one.no_ids) == (("d/s",), (GPU,))
    given = PodDevices("uid-d-s", "d", "s", {"main": {GPU: ("GPU-n0-0",)}})
    reported = report_annotation((), (), (), [given])
    [one] = make_map([make_node("n0", gpus=1, annotations={DEVICE_REPORT_KEY: reported})], [stranger])
    assert (one.devices[0].state, one.devices[0].kubelet) == ("confirmed", "d/s")
    assert (one.without_ids, one.no_ids) == ((), ())


def test_where_no_ids_are_given_the_resource_is_named() -> None:
    ids = {"nvidia.com/gpu": "a", "nvidia.com/other": "a", "example.com/x": "b"}
    shared = {resource: [{"id": one}] for resource, one in ids.items()}
    [one] = make_map([make_node("n0", annotations={INVENTORY_KEY: json.dumps(shared)})], [])
    assert one.no_ids == ("nvidia.com/gpu", "nvidia.com/other")
    assert "a is listed under nvidia.com/gpu and nvidia.com/other" in one.problems
    held = holding("x", 0)
    [one] = make_map([make_node("n0", annotations={INVENTORY_KEY: inventory("renamed", 2)})], [held])
    assert one.no_ids == (GPU,), "what it has is not listed"


def test_labels_are_read_where_there_are_no_annotations() -> None:
    node = make_node("n0", listed=False)
    listed = inventory_labels({GPU: [Device("g0"), Device("g1", "Unhealthy")]})
    node = replace(node, metadata=replace(node.metadata, labels=listed))
    pod = make_pod("x", labels=allocation_labels({"main": {GPU: ("g0",)}}))
    pod = replace(pod, spec=replace(pod.spec, node_name="n0"))
    [one] = make_map([node], [pod])
    assert [(row.id, row.health, row.state) for row in one.devices] == [
        ("g0", "Healthy", "planned"),
        ("g1", "Unhealthy", "free"),
    ]
    assert [holder.container for holder in one.devices[0].holders] == ["main"]
    assert one.without_ids == ()
    spoilt = {"nvidia.com.devices.gangsched.io/gpu": "g0.g0"}
    [one] = make_map([replace(node, metadata=replace(node.metadata, labels=spoilt))], [])
    assert one.problems == (
        "label ….devices.gangsched.io/…: nvidia.com/gpu lists the ID 'g0' twice; each device needs its own",
    )


def test_what_cannot_be_read_is_reported() -> None:
    node = make_node("n0", annotations={INVENTORY_KEY: "{"})
    [one] = make_map([node], [])
    assert "gangsched.io/devices" in one.problems[0]


def test_what_kubelets_say_of_devices_is_shown_as_their_word() -> None:
    def saying(pod: Pod, **health: str) -> Pod:
        devices = [ResourceHealth(f"GPU-n0-{k.removeprefix('_')}", one) for k, one in health.items()]
        said = [ContainerStatus(allocated_resources_status=[ResourceStatus(GPU, devices)])]
        return replace(pod, status=replace(pod.status, container_statuses=said))

    pods = [
        saying(holding("x", 0, 1), _0="Unhealthy", _1="Unknown", _3="Unhealthy"),
        saying(replace(holding("y"), spec=holding("y", 2).spec), _9="Unhealthy"),
    ]
    [one] = make_map([make_node("n0", gpus=4)], pods)
    assert [row.health for row in one.devices] == [
        "Unhealthy (kubelet)",
        "Unknown (kubelet)",
        *["Healthy"] * 2,
    ]
    assert one.problems == (f"pod d/y: GPU-n0-9 of {GPU} is Unhealthy, says its kubelet",)


def test_what_the_scheduler_has_refused_is_reported_at_its_node() -> None:
    refused = [
        Refused("Pod", "d/x", "u", "n0", "a fault"),
        Refused("Node", "", "u", "n1", "a fault"),
        Refused("Pod", "d/y", "u", "gone", "no pod"),
    ]
    maps = make_map([make_node("n0", gpus=1), make_node("n1", gpus=1)], [], refused)
    assert [(one.name, one.problems) for one in maps] == [
        ("n0", ("pod d/x is left out: a fault",)),
        ("n1", ("the node is left out: a fault",)),
        ("gone", ("pod d/y is left out: no pod",)),
    ]


# -- the command ---------------------------------------------------------------------------------------


@contextmanager
def served(nodes: list[Node], pods: list[Pod], tmp_path: Path) -> Iterator[str]:
    """An API server in memory; the path of its kubeconfig."""
    ready, stop = threading.Event(), threading.Event()
    path = tmp_path / "kubeconfig"

    async def serve() -> None:
        async with EmbeddedCluster() as cluster:
            write_kubeconfig(path, cluster.url)
            client = ApiClient(await load_credentials(kubeconfig=str(path)))
            await fill(client, nodes, pods)
            ready.set()
            while not stop.is_set():
                await anyio.sleep(0.02)
            client.close()

    thread = threading.Thread(target=anyio.run, args=(serve,), daemon=True)
    thread.start()
    assert ready.wait(30.0)
    try:
        yield str(path)
    finally:
        stop.set()
        thread.join(30.0)


async def fill(client: ApiClient, nodes: list[Node], pods: list[Pod]) -> None:
    for node in nodes:
        meta = {"name": node.metadata.name, "annotations": node.metadata.annotations}
        await client.post("/api/v1/nodes", json.dumps({"metadata": meta}).encode())
    for pod in pods:
        meta = {"name": pod.metadata.name, "annotations": pod.metadata.annotations}
        container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: "1"}}}
        spec = {"containers": [container], "nodeName": pod.spec.node_name, "schedulerName": "gangsched"}
        body = json.dumps({"metadata": meta, "spec": spec}).encode()
        await client.post("/api/v1/namespaces/default/pods", body)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    sick = make_node("n1", annotations={INVENTORY_KEY: inventory("n1", 2, unhealthy=[1])})
    nodes = [make_node("n0", gpus=2), sick]
    with served(nodes, [holding("x", 0)], tmp_path_factory.mktemp("devices")) as path:
        yield path


def test_a_summary_by_node_and_by_gang_comes_first(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "--kubeconfig", kubeconfig, NOBODY]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert lines[:6] == [
        ["NODE", "RESOURCE", "FREE", "RESERVED", "HELD", "SICK", "BY"],
        ["n0", GPU, "1", "of", "2", "-", "1", "-", "default/x", "1"],
        ["n1", GPU, "1", "of", "2", "-", "-", "1", "-"],
        [],
        ["GANG", "OR", "POD", "RESOURCE", "HELD", "RESERVED", "UNTIL", "NODES"],
        ["default/x", GPU, "1", "-", "-", "n0"],
    ]
    assert "4 devices on 2 nodes: 2 free, 0 reserved, 1 held, 1 not healthy, 0 not as they should be" in out
    said = "What is reserved and not yet bound is not shown: no scheduler answers at https://127.0.0.1:1:"
    assert said in out


def test_all_has_a_row_for_each_device(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--all", "--kubeconfig", kubeconfig, NOBODY]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["NODE", "RESOURCE", "DEVICE", "HEALTH", "STATE", "POD", "CONTAINER", "SINCE"]
    assert lines[1][:7] == ["n0", GPU, "GPU-n0-0", "Healthy", "planned", "default/x", "main"]
    assert lines[4][:5] == ["n1", GPU, "GPU-n1-1", "Unhealthy", "free"]


def reserving() -> Cluster:
    """d/evaluate has reserved n0 and waits in Permit; d/high waits for the pod on n1 to go."""
    c = cluster(nodes=2, gpus=2)
    c.evictions = "slow"
    c.submit(gang("low", pods=1, gpus=2)).run()
    c.submit(
        with_annotations(gang("evaluate", pods=1, gpus=1, priority=20), {"gangsched.io/total-members": "9"})
    ).run()
    return c.submit(gang("high", pods=1, gpus=2, priority=10)).run()


async def test_what_is_reserved_is_shown_with_the_gang_and_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = reserving()
    waits = c.group("evaluate")
    [node] = {info.node_name for info in waits.members.values()}
    began = datetime.now(UTC)
    pages = Reservations(c.scheduler, clock_s=lambda: c.now_s)
    nodes = [make_node(name, gpus=2) for name in ("n0", "n1")]
    with served(nodes, [], tmp_path) as path:
        async with serving(self_signed("gangsched", hosts=["127.0.0.1"]), reservations=pages) as client:
            assert (await client.ask("/reservations"))[0] == 403
            ask = ["devices", "--kubeconfig", path, f"--server=https://127.0.0.1:{client.port}"]
            run = anyio.to_thread.run_sync
            assert await run(main, [*ask, "--token=good"]) == 0
            out = capsys.readouterr().out
            assert await run(main, [*ask, "--token=good", "-o", "json"]) == 0
            maps = json.loads(capsys.readouterr().out)
            assert await run(main, [*ask, "--token=stranger"]) == 0
            assert "What is reserved and not yet bound is not shown: https://" in capsys.readouterr().out
    [reserved] = [row for one in maps for row in one["devices"] if row["state"] == "reserved"]
    until = datetime.fromisoformat(reserved["reservedUntil"])
    assert reserved["reservedBy"] == "d/evaluate"
    left = timedelta(seconds=waits.deadline_s - c.now_s)
    assert began + left - timedelta(seconds=1) <= until <= datetime.now(UTC) + left
    [line] = [line for line in out.splitlines() if line.startswith(node)]
    assert line.split()[2:6] == ["1", "of", "2", "1"]
    assert re.search(r"d/evaluate 1 reserved until 20..-..-..T..:..:..Z", line)
    assert "d/high 2 promised when others have gone" in out
    assert re.search(rf"d/evaluate +{GPU} +- +1 +20..-.*{node} *$", out, re.MULTILINE), out


def test_one_node_as_json(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "n0", "-o", "json", "--kubeconfig", kubeconfig, NOBODY]) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert one["name"] == "n0"
    assert one["devices"][0]["holders"][0]["pod"] == "default/x"


def test_wide_says_more(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "n0", "-o", "wide", "--kubeconfig", kubeconfig, NOBODY]) == 0
    assert "NUMA" in capsys.readouterr().out


def test_what_the_scheduler_fails_on_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served([make_node("n0", gpus=2)], [holding("x", 0)], tmp_path) as path:

        async def tell() -> None:
            client = ApiClient(await load_credentials(kubeconfig=path))
            pod = json.loads(await client.get("/api/v1/namespaces/default/pods/x"))
            meta = pod["metadata"]
            said = RecordEvent(
                "Pod",
                "v1",
                "default",
                "x",
                meta["uid"],
                "Warning",
                POD_REFUSED,
                "Scheduling",
                "a fault of ours",
                "",
            )
            body = event_body(said, controller="gangsched", instance="here", wall_s=time.time(), serial=1)
            await client.post(events_path(said), body)
            client.close()

        anyio.run(tell)
        assert main(["devices", "--kubeconfig", path, NOBODY]) == 1
    assert "n0: pod default/x is left out: a fault of ours" in capsys.readouterr().out


def test_a_wrong_name_is_a_clear_error(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "n00", "--kubeconfig", kubeconfig, NOBODY]) != 0
    said = capsys.readouterr().err
    assert "NODE: there is no node 'n00'" in said
    assert "Traceback" not in said


def test_no_server_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kubeconfig(tmp_path / "nobody", "http://127.0.0.1:9")
    assert main(["devices", "--kubeconfig", str(tmp_path / "nobody")]) != 0
    said = capsys.readouterr().err
    assert "cannot reach http://127.0.0.1:9: connection refused" in said
    assert "Traceback" not in said


def test_the_id_of_a_device_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """0000:ab:00.0 is a PCI address, and :ab: is an emoji for rich."""
    node = make_node("n0", gpus=1)
    listed = str((node.metadata.annotations or {})[INVENTORY_KEY]).replace("GPU-n0-0", "0000:ab:00.0")
    own = {**(node.metadata.annotations or {}), INVENTORY_KEY: listed}
    found = make_map([replace(node, metadata=replace(node.metadata, annotations=own))], [])
    print_map(found, printing.console(220), wide=True, each=True)
    assert "0000:ab:00.0" in capsys.readouterr().out


@pytest.mark.parametrize("left_s", [-1e30, 1e30])
def test_a_reservation_until_beyond_any_calendar_has_no_end(left_s: float) -> None:
    row = Reservation("d/a", "n0", GPU, 1, ("GPU-n0-0",), left_s=left_s)
    [found] = with_reserved(make_map([make_node("n0", gpus=1)], []), [row], BOUND)
    assert [(one.state, one.reserved_until) for one in found.devices] == [("reserved", None)]
