"""Real kubelets and containerd, end to end: what each container got is what its pod's annotation says.

Two nodes of this machine, each with its kubelet, containerd and agent; etcd, kube-apiserver and the scheduler
as processes with the rights of deploy/. On n1 the agent reads kubelet's Pods API, on n2 it does not and the
plan comes from the API server. Gangs of mixed sizes come in waves, each container prints its environment and
its device files; between the waves kubelets and agents are restarted while pods come and go. kubelet refuses,
for good, pods that it meets while it knows no plugin, and others die with it: they are made again, as by
their controller.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from gangsched.agent.plugins.settings import KubeletDocument
from gangsched.agent.sources.pod_resources import PodResourcesSource
from gangsched.lab.controlplane import node as real_node
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.node import Machine
from gangsched.lab.controlplane.processes import ControlPlane
from tests.agent.process import ACCOUNT, NAMESPACE, Agent, kubeconfig_of
from tests.kubelet.device_files import make_device_files, remove_device_files
from tests.real.process import Scheduler, service_account, write_config
from tests.support.processes import answered, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DEPLOY = Path(__file__).parents[2] / "deploy"
PODS = "/api/v1/namespaces/default/pods"
FPGA, GPU = "example.com/fpga", "nvidia.com/gpu"
N_DEVICES = 8
N_PODS = 200
N_WAVES = 8
PATIENCE_S = 240.0
FILE = "gs-{node}-{i}"
BY_THE_AGENT = "no planned set among what kubelet offered"
NO_PLUGIN = ("no healthy devices present", "cannot allocate unregistered device", "has been stopped")
SCRIPT = (
    'echo "fpga=$FPGAS"; echo "gpu=$NVIDIA_VISIBLE_DEVICES"; echo "files="$(ls /dev | /bin/busybox grep ^gs-)'
)

Json = dict[str, Any]


class Site:
    """The cluster and everything in it."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.machines = {name: Machine(plane, directory, name) for name in ("n1", "n2")}
        self.agents: dict[str, Agent] = {}
        self.scheduler: Scheduler | None = None
        self.bodies: dict[str, Json] = {}
        self._n_logs = 0

    def start(self) -> None:
        self._apply()
        for name, node in self.machines.items():
            make_device_files(FILE.format(node=name, i=i) for i in range(N_DEVICES))
            node.start()
        token = self.plane.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
        self._account = kubeconfig_of(self.plane, token, self.directory / "agent.kubeconfig")
        for name in self.machines:
            self.start_agent(name)
        config = write_config(
            self.directory / "scheduler.yaml",
            devices={"handOff": {FPGA: "device-plugin", GPU: "env"}, "repairAnnotations": True},
        )
        account = service_account(self.plane, self.directory / "scheduler.kubeconfig")
        self.scheduler = Scheduler(config, account, self.directory / "scheduler.log")
        for name in self.machines:
            self.until(lambda name=name: self._offers(name), f"{name} offers its devices")  # type: ignore[misc]

    def _apply(self) -> None:
        kubectl = self.plane.kubectl
        kubectl("apply", "-f", str(DEPLOY / "agent" / "rbac.yaml"))
        kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))
        kubectl("apply", "-f", str(DEPLOY / "device-plugin-hand-off" / "rbac.yaml"))
        kubectl("apply", "-k", str(DEPLOY / "env-hand-off"))
        self.until(self._injects, "the hand-off's policy is in force")

    def _injects(self) -> bool:
        body = _pod("probe", "", 0, {GPU: 1}, sleep_s=0.0)
        made = self.plane.request("POST", f"{PODS}?dryRun=All", body)
        [container] = made["spec"]["containers"]
        return any(one["name"] == "NVIDIA_VISIBLE_DEVICES" for one in container.get("env", []))

    def start_agent(self, node: str) -> None:
        there = self.machines[node]
        devices = self.directory / f"{node}-devices"
        devices.mkdir(exist_ok=True)
        names = [FILE.format(node=node, i=i) for i in range(N_DEVICES)]
        listed = {FPGA: [{"id": name, "numa": i // 4} for i, name in enumerate(names)]}
        listed[GPU] = [{"id": f"GPU-{node}-{i}", "numa": i // 4} for i in range(N_DEVICES)]
        (devices / "all.json").write_text(json.dumps(listed))
        config = self.directory / f"{node}-agent.yaml"
        document = {
            "apiVersion": "gangsched.io/v1",
            "kind": "AgentConfiguration",
            "devices": [str(devices)],
            "kubelet": {
                "devicePlugins": str(there.plugins),
                "podResources": str(there.root / "pod-resources" / "kubelet.sock"),
                "podsApi": str(there.root / "pods-api" / "pods-api.sock") if node == "n1" else "",
            },
            "plugins": [
                {
                    "resource": FPGA,
                    "handOff": "device-plugin",
                    "env": {"FPGAS": "{ids}"},
                    "each": {"deviceFiles": [{"host": "/dev/{id}"}]},
                },
                {"resource": GPU, "handOff": "env"},
            ],
        }
        config.write_text(yaml.safe_dump(document))
        self._n_logs += 1
        log = self.directory / f"agent-{node}-{self._n_logs}.log"
        self.agents[node] = Agent(node, self._account, log, f"--config={config}")

    def _offers(self, node: str) -> bool:
        found = self.plane.request("GET", f"/api/v1/nodes/{node}")
        room = found["status"].get("allocatable", {})
        has_list = "gangsched.io/devices" in found["metadata"].get("annotations", {})
        return has_list and all(room.get(name) == str(N_DEVICES) for name in (FPGA, GPU))

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.plane.request("GET", PODS)["items"]}

    def failed(self) -> list[Json]:
        return [pod for pod in self.pods().values() if pod["status"]["phase"] == "Failed"]

    def made_again(self) -> dict[str, str]:
        """As their StatefulSet would: under the same names, in the same gang. Name -> why it had failed."""
        found = self.failed()
        for pod in found:
            self.plane.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
            self.plane.request("POST", PODS, self.bodies[pod["metadata"]["name"]])
        return {pod["metadata"]["name"]: _kind_of_failure(pod) for pod in found}

    def submit(self, body: Json) -> None:
        self.bodies[body["metadata"]["name"]] = body
        self.plane.request("POST", PODS, body)

    def until(self, true: Callable[[], object], what: str) -> None:
        until(answered(true), what, timeout_s=PATIENCE_S, story=self._story)

    def _story(self) -> str:
        pods = [f"{name} {pod['status']['phase']} {_why(pod)}" for name, pod in self.pods().items()]
        logs = [agent.said[-3000:] for agent in self.agents.values()]
        scheduler = self.scheduler.said[-3000:] if self.scheduler else ""
        kubelets = [one.said[-2000:] for one in self.machines.values()]
        unfinished = [line for line in pods if "Succeeded" not in line]
        return "\n".join([*unfinished, *logs, scheduler, *kubelets])

    def close(self) -> None:
        for agent in self.agents.values():
            agent.kill()
        if self.scheduler is not None:
            self.scheduler.kill()
        for node in self.machines.values():
            node.stop()
        remove_device_files(r"gs-n\d-\d+")


def _why(pod: Json) -> str:
    conditions = pod["status"].get("conditions", [])
    return " ".join([pod["status"].get("message", ""), *(one.get("message", "") for one in conditions)])


def _kind_of_failure(pod: Json) -> str:
    why = _why(pod)
    if "gangsched:" in why:
        # A kubelet that has just started still counts the devices of pods that ended before.
        return BY_THE_AGENT
    return "no plugin registered yet" if any(one in why for one in NO_PLUGIN) else "died with its kubelet"


def _pod(name: str, gang: str, members: int, wants: dict[str, int], *, sleep_s: float) -> Json:
    metadata: Json = {"name": name}
    if gang:
        metadata["labels"] = {"gangsched.io/pod-group": gang}
        metadata["annotations"] = {"gangsched.io/min-members": str(members)}
    limits = {resource: str(n) for resource, n in wants.items()}
    container = {
        "name": "main",
        "image": real_node.IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"{SCRIPT}; sleep {sleep_s:.1f}"],
        "resources": {"limits": limits},
    }
    spec = {
        "schedulerName": "gangsched",
        "restartPolicy": "Never",
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        # No controller manager takes the taint of a node without a network plugin away.
        "tolerations": [{"operator": "Exists"}],
    }
    return {"metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def site(assets: Assets) -> Iterator[Site]:
    try:
        real_node.check_possible()
    except real_node.CannotRun as error:
        if error.is_cured_by_us and os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real kubelet: {error}")
    with (
        tempfile.TemporaryDirectory(prefix="gs-", ignore_cleanup_errors=True) as folder,
        ControlPlane(assets=assets, unsafe_no_fsync=True) as plane,
    ):
        made = Site(plane, Path(folder))
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_pod_without_a_plan_gets_no_device_but_an_event(site: Site, node: str) -> None:
    """Another scheduler's pod that asks for what the scheduler hands out."""
    name = f"stranger-{node}"
    body = _pod(name, "", 0, {FPGA: 1}, sleep_s=0.0)
    body["spec"] |= {"nodeName": node, "schedulerName": "another"}
    site.plane.request("POST", PODS, body)
    site.until(lambda: _is_over(site.pods()[name]), "it is refused")
    assert "gangsched: no container for which 1 of example.com/fpga are planned" in _why(site.pods()[name])

    def told() -> bool:
        events = site.plane.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return any(
            event["reason"] == "DeviceMismatch" and event["regarding"]["name"] == node for event in events
        )

    site.until(told, "the Event is there")
    site.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_a_real_kubelet_lists_the_devices_of_its_plugins(site: Site) -> None:
    socket = site.machines["n1"].root / "pod-resources" / "kubelet.sock"
    source = PodResourcesSource(KubeletDocument(pod_resources=str(socket), resources=(FPGA,)))
    report = source.read()
    assert report.problems == ()
    assert [device.id for device in report.places[0].listed[FPGA]] == [
        FILE.format(node="n1", i=i) for i in range(N_DEVICES)
    ]


def wave(rng: Random, number: int, n_pods: int) -> list[Json]:
    """Gangs of one to four pods that ask for FPGAs (device plugin), for GPUs (environment), or for both."""
    made: list[Json] = []
    while len(made) < n_pods:
        gang = f"w{number}-{len(made)}"
        members = min(rng.randint(1, 4), n_pods - len(made))
        kind = rng.random()
        if kind < 0.6:
            wants = {FPGA: rng.choice((1, 1, 2, 4))}
        elif kind < 0.8:
            wants = {GPU: rng.choice((1, 2))}
        else:
            wants = {FPGA: rng.choice((1, 2)), GPU: 1}
        sleep_s = rng.uniform(2.0, 4.0)
        made += [_pod(f"{gang}-{k}", gang, members, wants, sleep_s=sleep_s) for k in range(members)]
    return made


def test_each_container_has_the_devices_in_its_pods_annotation(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    rng = Random(3)
    started_s = time.monotonic()
    names: list[str] = []
    for number in range(N_WAVES):
        bodies = wave(rng, number, N_PODS // N_WAVES)
        for body in bodies:
            site.submit(body)
            names.append(body["metadata"]["name"])
        if number == 2:
            site.machines["n1"].stop_kubelet()
            site.machines["n1"].start_kubelet()
        if number == 4:
            site.agents["n2"].kill()
            site.start_agent("n2")
        if number == 6:
            site.machines["n2"].kill_kubelet()
            site.machines["n2"].start_kubelet()
            site.agents["n1"].kill()
            site.start_agent("n1")
    failures: Counter[str] = Counter()
    remade: set[str] = set()
    while not all(pod["status"]["phase"] == "Succeeded" for pod in site.pods().values()):
        made = site.made_again()
        failures.update(made.values())
        remade |= made.keys()
        site.until(lambda: site.failed() or all(map(_is_over, site.pods().values())), "all pods end")
    took_s = time.monotonic() - started_s
    pods = site.pods()
    assert len(pods) == len(names) == N_PODS
    assert failures[BY_THE_AGENT] <= N_PODS // 20, failures
    wrong = {name: said for name, pod in pods.items() if (said := differs(site, pod))}
    # By the API server's word members of a gang may get one another's sets, and one that ends at once may
    # keep its annotation. n1 goes by it only while its kubelet starts.
    late = [name for name in wrong if is_exchanged(site, pods, name, remade)]
    wrong = {name: said for name, said in wrong.items() if name not in late}
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())
    assert len(late) <= N_PODS // 20, late
    by_node = {name: sum(pod["spec"]["nodeName"] == name for pod in pods.values()) for name in site.machines}
    assert all(by_node.values()), by_node
    record_property(
        "figure",
        f"real kubelets: {len(pods)} pods in gangs of 1 to 4 on two nodes ({by_node}), {took_s:.0f} s with"
        " kubelets and agents restarted; every container's variables and device files are its pod's"
        f" annotation ({len(late)} ended with a sibling's); made again because of the restarts:"
        f" {dict(failures) or 'none'}",
    )


def _is_over(pod: Json) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def is_exchanged(site: Site, pods: dict[str, Json], name: str, remade: set[str]) -> bool:
    """Has another member of its gang what this one's annotation says, or had one that was made again?"""
    held = json.loads(pods[name]["metadata"]["annotations"]["gangsched.io/allocated-devices"])["main"]
    gang = name.rpartition("-")[0]
    siblings = [pods[other] for other in pods if other != name and other.rpartition("-")[0] == gang]
    if any(other["metadata"]["name"] in remade for other in siblings):
        return len(printed(site, pods[name])["fpga"]) == len(held.get(FPGA, []))
    return any(printed(site, other)["fpga"] == sorted(held.get(FPGA, ["-"])) for other in siblings)


def printed(site: Site, pod: Json) -> dict[str, list[str]]:
    """What its container saw of its devices."""
    output = site.machines[pod["spec"]["nodeName"]].output(pod, "main")
    lines = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return {
        "fpga": sorted(lines.get("fpga", "").split(",")) if FPGA in limits else [],
        "files": sorted(lines.get("files", "").split()),
        "gpu": sorted(lines.get("gpu", "").split(",")) if GPU in limits else [],
    }


def differs(site: Site, pod: Json) -> str:
    """How what the container printed differs from what its pod says; "" if it does not."""
    held = json.loads(pod["metadata"]["annotations"]["gangsched.io/allocated-devices"])["main"]
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    got = printed(site, pod)
    fpgas, gpus = sorted(held.get(FPGA, [])), sorted(held.get(GPU, []))
    wanted = {"fpga": fpgas, "files": fpgas, "gpu": gpus}
    counts = {resource: len(held.get(resource, [])) for resource in limits}
    if got == wanted and counts == {resource: int(n) for resource, n in limits.items()}:
        return ""
    output = site.machines[pod["spec"]["nodeName"]].output(pod, "main")
    return f"said {wanted}, got {got}, asked for {limits}; printed {output!r}"
