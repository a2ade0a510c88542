"""A kubelet says in a running pod's status that a device is not well: who is told, what is done."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.devices import DeviceSettings, OnFailure
from gangsched.core.explaining.explain import Explanation, explain
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.devices.unwell import MAX_DEVICES, MAX_ID
from gangsched.model.objects import ContainerStatus, ResourceHealth, ResourceStatus
from tests.core.claims import ClaimCluster, wish, with_claims
from tests.core.test_health import claiming, fail, taint, told, watched
from tests.support.scenario import Cluster, gang

GPU = "nvidia.com/gpu"
OF_CLAIM = "gpu.example.com/n/gpu-0 (Unhealthy, says its kubelet) of resource claim d/a-0-gpu on node n"


def says(c: Cluster, pod: str, resource: str, health: Mapping[str, str], *, init: bool = False) -> None:
    """kubelet writes a status in which these devices of the resource have this health, and no others."""
    one = c.pod(pod)
    listed = ResourceStatus(resource, [ResourceHealth(device, each) for device, each in health.items()])
    statuses = [ContainerStatus(), ContainerStatus(allocated_resources_status=[listed])]
    more = {"init_container_statuses": statuses} if init else {"container_statuses": statuses}
    c.update(one, status=replace(one.status, phase="Running", **more))


def explained(c: Cluster, group: str) -> Explanation:
    return explain(c.scheduler, c.group(group), c.now_s)


def counted(c: Cluster) -> dict[str, int]:
    counters = c.scheduler.shared.counters
    return {by: n for by in ("list", "taint", "kubelet") if (n := counters[f"device_failures_{by}"])}


# -- devices of claims ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("claim:gpu", "gpu.example.com/n/gpu-0"),
        ("claim:gpu/gpu", "gpu.example.com/n/gpu-0"),
        ("claim:gpu", "k8s.gpu.example.com/claim=uid-a-0-gpu-gpu-0"),
    ],
    ids=["by its name", "of a request", "by its name for the runtime"],
)
def test_an_unhealthy_device_of_a_claim_takes_the_gang_with_it(resource: str, device: str) -> None:
    c = claiming("evictGang")
    says(c, "a-0", resource, {device: "Unhealthy"})
    [event] = told(c, "DeviceFailed")
    assert event.message == f"device {OF_CLAIM} has failed under pod d/a-0"
    assert counted(c) == {"kubelet": 1}
    found = explained(c, "a")
    assert (
        found.answer == f"It has started: 2 of 2 members are bound. Device {OF_CLAIM} has failed under d/a-0."
    )
    assert found.then == "Its gang is evicted in 30 s unless it is well by then."
    assert c.evicted() == []
    c.wait(31.0)
    assert {*c.evicted()} == {"a-0", "a-1"}


def test_a_device_that_its_kubelet_finds_well_in_time_costs_nothing() -> None:
    c = claiming("evictGang")
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    c.wait(20.0)
    says(c, "a-0", "claim:gpu", {})
    assert [one.name for one in told(c, "DeviceRecovered")] == ["a-0"]
    c.wait(600.0)
    assert c.evicted() == []


def test_what_its_kubelet_does_not_know_begins_nothing_and_is_shown() -> None:
    c = claiming("evictGang")
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unknown"})
    assert not told(c, "DeviceFailed")
    unknown = "gpu.example.com/n/gpu-0 of resource claim d/a-0-gpu under pod d/a-0"
    assert explained(c, "a").answer.endswith(
        f"Whether these are well is Unknown to their kubelets: {unknown}."
    )
    c.wait(600.0)
    assert c.evicted() == []


def test_what_its_kubelet_does_not_know_any_more_ends_nothing() -> None:
    """As when the driver that has found the device sick is gone too."""
    c = claiming("evictGang")
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    c.wait(20.0)
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unknown"})
    assert not told(c, "DeviceRecovered")
    c.wait(11.0)
    assert {*c.evicted()} == {"a-0", "a-1"}


def test_another_process_reads_it_in_the_pods_status() -> None:
    c = claiming("evictMember")
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    c.restart().clear()
    c.wait(31.0)
    assert c.evicted() == ["a-0"]


def test_with_the_pod_its_kubelets_word_is_forgotten() -> None:
    c = claiming("evictMember")
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    c.wait(31.0)
    c.lose("a-0-gpu")
    c.submit(c.want("b", wish(expression="true"))).wait(31.0)
    assert c.are_bound("b") == [True]
    assert c.devices("b-gpu") == ["n/gpu-0"]
    c.wait(700.0)
    assert c.evicted() == ["a-0"]


def test_a_taint_and_kubelet_that_say_the_same_are_one_failure_by_two() -> None:
    c = claiming("evictGang")
    taint(c, "n", 0)
    c.wait(20.0)
    says(c, "a-0", "claim:gpu", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    assert len(told(c, "DeviceFailed")) == 1
    words = "(taint gpu.example.com/xid; Unhealthy, says its kubelet)"
    assert words in explained(c, "a").answer
    c.wait(11.0)
    assert {*c.evicted()} == {"a-0", "a-1"}, "the grace began with the first word"


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("claim:gpu", "gpu.example.com/n/gpu-7"),
        ("claim:gpu/other", "gpu.example.com/n/gpu-0"),
        ("claim:other", "gpu.example.com/n/gpu-0"),
        ("claim:", "gpu.example.com/n/gpu-0"),
        ("claim:gpu", ""),
        ("claim:gpu", "=" * (MAX_ID + 1)),
    ],
    ids=["of another claim", "no such request", "no such claim", "no claim", "no name", "too long"],
)
def test_what_the_pod_does_not_have_does_not_concern_it(resource: str, device: str) -> None:
    c = claiming("evictGang")
    says(c, "a-0", resource, {device: "Unhealthy"})
    c.wait(600.0)
    assert not told(c, "DeviceFailed")
    assert c.evicted() == []


def test_a_device_for_administration_is_not_the_pods() -> None:
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(on_failure="evictMember"))).offer("n")
    c.submit(c.want("a", wish(adminAccess=True))).run()
    assert c.n_bound() == 1
    says(c, "a", "claim:gpu", {f"n/{k}": "Unhealthy" for k in c.devices("a-gpu")})
    says(c, "a", "claim:gpu", {f"k8s.gpu.example.com/claim={k}": "Unhealthy" for k in c.devices("a-gpu")})
    c.wait(600.0)
    assert not told(c, "DeviceFailed")


def test_which_of_several_devices_a_name_for_the_runtime_means_is_left_open() -> None:
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(on_failure="evictMember"))).offer("n")
    c.submit(c.want("a", wish(2))).run()
    says(c, "a", "claim:gpu", {"k8s.gpu.example.com/claim=x-gpu-1": "Unhealthy"})
    [event] = told(c, "DeviceFailed")
    assert (
        "device k8s.gpu.example.com/claim=x-gpu-1 (Unhealthy, says its kubelet) of resource claim d/a-gpu"
        in (event.message)
    )
    c.wait(31.0)
    assert c.evicted() == ["a"]


def test_a_shared_claims_device_fails_under_each_of_its_pods() -> None:
    c = ClaimCluster(settings=Settings(devices=DeviceSettings(on_failure="evictMember"))).offer("n")
    c.make_claim("shared", wish())
    c.submit([with_claims(make_pod(name, gpus=0), shared={"own": "shared"}) for name in ("a", "b")]).run()
    for name in ("a", "b"):
        says(c, name, "claim:own", {"gpu.example.com/n/gpu-0": "Unhealthy"})
    c.wait(31.0)
    assert {*c.evicted()} == {"a", "b"}


# -- devices of device plugins ---------------------------------------------------------------------------


def test_an_unhealthy_device_that_the_pod_was_given() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    says(c, "x", GPU, {"GPU-n0-1": "Unhealthy"})
    [event] = told(c, "DeviceFailed")
    word = "(Unhealthy, says its kubelet)"
    assert event.message == f"device GPU-n0-1 {word} of {GPU} on node n0 has failed under pod d/x"
    c.wait(31.0)
    assert c.evicted() == ["x"]


def test_the_word_of_a_nodes_list_that_is_gone_stays_beside_kubelets() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    fail(c, 1)
    says(c, "x", GPU, {"GPU-n0-1": "Unhealthy"})
    c.node(replace(c.nodes["n0"], metadata=replace(c.nodes["n0"].metadata, annotations={})))
    says(c, "x", GPU, {})
    assert not told(c, "DeviceRecovered"), "nothing says that it is well"
    c.wait(31.0)
    assert c.evicted() == ["x"]


def test_where_kubelet_counts_by_ids_of_its_own_it_says_nothing_about_the_pod() -> None:
    """The hand-off by environment: what kubelet gave it is not what it has."""
    c = watched("evictMember").submit(make_pod("x", gpus=2)).run()
    assert c.numbers("x") == [0, 1]
    says(c, "x", GPU, {"GPU-n0-5": "Unhealthy"})
    c.wait(600.0)
    assert not told(c, "DeviceFailed")
    assert c.evicted() == []


@pytest.mark.parametrize("init", [False, True], ids=["a container", "an init container"])
def test_of_devices_by_number_kubelet_alone_knows_which(init: bool) -> None:
    c = Cluster(Settings(devices=DeviceSettings(on_failure="evictGang")))
    c.node(make_node("n0", listed=False)).submit(gang("a", pods=2, gpus=1)).run()
    says(c, "a-1", GPU, {"GPU-9f": "Unhealthy"}, init=init)
    [event] = told(c, "DeviceFailed")
    assert event.message.startswith(f"device GPU-9f (Unhealthy, says its kubelet) of {GPU} on node n0")
    c.wait(31.0)
    assert {*c.evicted()} == {"a-0", "a-1"}


def test_no_device_is_processors() -> None:
    c = watched("evictMember").submit(make_pod("x", gpus=1)).run()
    says(c, "x", "cpu", {"0": "Unhealthy"})
    c.wait(600.0)
    assert c.evicted() == []


def test_another_schedulers_pod_is_not_ours_to_evict() -> None:
    c = watched("evictMember")
    theirs = make_pod("x", gpus=1, scheduler="default-scheduler")
    c.submit(replace(theirs, spec=replace(theirs.spec, node_name="n0")))
    says(c, "x", GPU, {"GPU-n0-1": "Unhealthy"})
    c.wait(600.0)
    assert not told(c, "DeviceFailed")
    assert c.evicted() == []


@pytest.mark.parametrize("policy", ["none", "evictMember"])
def test_more_devices_than_any_pod_has_are_counted_and_not_all_named(policy: OnFailure) -> None:
    c = Cluster(Settings(devices=DeviceSettings(on_failure=policy)))
    c.node(make_node("n0", listed=False)).submit(make_pod("x", gpus=1)).run()
    says(c, "x", GPU, {f"GPU-{k}": "Unhealthy" for k in range(MAX_DEVICES + 500)})
    [event] = told(c, "DeviceFailed")
    assert f" and {MAX_DEVICES - 8} more on node n0" in event.message
    assert len(event.message) < 1000
    then = explained(c, "x").then
    assert then == (
        "Nothing is evicted for that (onDeviceFailure: none)."
        if policy == "none"
        else "The pod is evicted in 30 s unless it is well by then."
    )
