"""The bytes on the sockets are those of kubelet: messages of the published definition, read and made again.

`messages.jsonl` is what tests/node/messages prints, a Go program with k8s.io/kubelet's own types.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.message import Message

from gangsched.agent.kubelet_api import deviceplugin_pb2 as plugin
from gangsched.agent.kubelet_api import podresources_pb2 as resources
from gangsched.agent.kubelet_api import pods_pb2 as pods
from gangsched.agent.plugins.messages import pods_of_kubelet
from gangsched.agent.plugins.plan import PlannedPod

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "messages.jsonl").read_text().splitlines()]

_options = plugin.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
_devices = [
    resources.ContainerDevices(
        resource_name="example.com/gpu",
        device_ids=["a", "b"],
        topology=resources.TopologyInfo(nodes=[resources.NUMANode(ID=0), resources.NUMANode(ID=1)]),
    )
]
_listed = resources.PodResources(
    name="w-0",
    namespace="team",
    containers=[
        resources.ContainerResources(name="main", devices=_devices),
        resources.ContainerResources(name="side"),
    ],
)
SAID: list[Message] = [
    _options,
    plugin.RegisterRequest(
        version="v1beta1", endpoint="gangsched.sock", resource_name="example.com/gpu", options=_options
    ),
    plugin.ListAndWatchResponse(
        devices=[
            plugin.Device(
                ID="a", health="Healthy", topology=plugin.TopologyInfo(nodes=[plugin.NUMANode(ID=1)])
            ),
            plugin.Device(ID="b", health="Unhealthy"),
        ]
    ),
    plugin.PreferredAllocationRequest(
        container_requests=[
            plugin.ContainerPreferredAllocationRequest(
                available_deviceIDs=["a", "b", "c"], must_include_deviceIDs=["a"], allocation_size=2
            )
        ]
    ),
    plugin.PreferredAllocationResponse(
        container_responses=[plugin.ContainerPreferredAllocationResponse(deviceIDs=["a", "b"])]
    ),
    plugin.AllocateRequest(container_requests=[plugin.ContainerAllocateRequest(devices_ids=["a", "b"])]),
    plugin.AllocateResponse(
        container_responses=[
            plugin.ContainerAllocateResponse(
                envs={"IDS": "a,b"},
                mounts=[plugin.Mount(container_path="/lib/x", host_path="/opt/x", read_only=True)],
                devices=[
                    plugin.DeviceSpec(container_path="/dev/a", host_path="/dev/host-a", permissions="rwm")
                ],
                annotations={"k": "v"},
                cdi_devices=[plugin.CDIDevice(name="example.com/gpu=a")],
            )
        ]
    ),
    plugin.PreStartContainerRequest(devices_ids=["a", "b"]),
    plugin.PreStartContainerResponse(),
    resources.ListPodResourcesResponse(pod_resources=[_listed]),
    resources.AllocatableResourcesResponse(devices=_devices),
    resources.GetPodResourcesRequest(pod_name="w-0", pod_namespace="team"),
    resources.GetPodResourcesResponse(pod_resources=_listed),
    pods.WatchPodsEvent(type=pods.INITIAL_SYNC_COMPLETE),
    pods.WatchPodsEvent(type=pods.MODIFIED, pod=b"pod"),
    pods.ListPodsResponse(pods=[b"one", b"two"]),
    pods.GetPodRequest(podUID="u-1"),
    pods.GetPodResponse(pod=b"one"),
]


@pytest.mark.parametrize(
    ("said", "recorded"),
    list(zip(SAID, RECORDED[: len(SAID)], strict=True)),
    ids=lambda one: type(one).__name__,
)
def test_our_messages_have_kubelets_bytes_and_we_read_its_messages(
    said: Message, recorded: dict[str, str]
) -> None:
    assert said.DESCRIPTOR.full_name == recorded["message"]
    body = bytes.fromhex(recorded["hex"])
    assert said.SerializeToString(deterministic=True) == body
    assert type(said).FromString(body) == said


def test_a_pod_of_kubelets_is_read_and_what_we_leave_out_of_it_is_skipped() -> None:
    assert RECORDED[len(SAID)]["message"] == "gangsched.node.Pod"
    [pod] = pods_of_kubelet([bytes.fromhex(RECORDED[len(SAID)]["hex"])])
    assert pod == PlannedPod(
        uid="u-1",
        namespace="team",
        name="w-0",
        planned={"main": {"example.com/gpu": frozenset("a")}},
        has_started=True,
        is_going=True,
    )


def test_exclusive_cpus_and_memory_are_skipped() -> None:
    read = resources.ListPodResourcesResponse.FromString(bytes.fromhex(RECORDED[len(SAID) + 1]["hex"]))
    [pod] = read.pod_resources
    assert (pod.name, list(pod.containers[0].devices[0].device_ids)) == ("w-1", ["a", "b"])


def test_the_paths_of_the_calls_are_kubelets() -> None:
    from gangsched.agent.kubelet_api.deviceplugin_grpc import DevicePluginBase, RegistrationBase
    from gangsched.agent.kubelet_api.podresources_grpc import PodResourcesListerBase
    from gangsched.agent.kubelet_api.pods_grpc import PodsBase

    paths = {
        path
        for base in (RegistrationBase, DevicePluginBase, PodResourcesListerBase, PodsBase)
        for path in base.__mapping__(_Any())  # type: ignore[arg-type]
    }
    assert paths == {
        "/v1beta1.Registration/Register",
        "/v1beta1.DevicePlugin/GetDevicePluginOptions",
        "/v1beta1.DevicePlugin/ListAndWatch",
        "/v1beta1.DevicePlugin/GetPreferredAllocation",
        "/v1beta1.DevicePlugin/Allocate",
        "/v1beta1.DevicePlugin/PreStartContainer",
        "/v1.PodResourcesLister/List",
        "/v1.PodResourcesLister/GetAllocatableResources",
        "/v1.PodResourcesLister/Get",
        "/v1alpha1.Pods/WatchPods",
        "/v1alpha1.Pods/ListPods",
        "/v1alpha1.Pods/GetPod",
    }


class _Any:
    def __getattr__(self, name: str) -> object:
        return None
