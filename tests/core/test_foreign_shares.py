"""Pods that ask another system for a share of a device are refused with what to write instead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import STRANGER, make_node, make_pod
from gangsched.model.objects import Container, Pod, ResourceRequirements
from tests.support.scenario import Cluster, gang, with_annotations

# As the documents of each system have it, with only the scheduler's name changed.
ANNOTATED = (
    {"gpu-fraction": "0.5"},
    {"gpu-memory": "2000"},
    {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-init"},
    {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "mps": "true"},
)
REQUESTED = (
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50},
    {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000},
    {"volcano.sh/vgpu-cores": 50},
    {"volcano.sh/gpu-memory": 1024},
    {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50},
    {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory": "8Gi"},
    {"koordinator.sh/gpu": 50},
    {"aliyun.com/gpu-mem": 3},
    {"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 30},
)


def asking(requests: dict[str, int | str]) -> Pod:
    pod = make_pod("p", gpus=0)
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": "1", **requests}))
    return replace(pod, spec=replace(pod.spec, containers=[container]))


@pytest.mark.parametrize("own", ANNOTATED, ids=lambda own: " ".join(own))
def test_kais_words_are_refused_with_what_to_write(own: dict[str, str]) -> None:
    c = Cluster().node(make_node("n")).submit(with_annotations(gang("a", pods=2, gpus=0), own)).run()
    assert c.untouched("a")
    word = next(iter(own))
    assert f"{word} asks KAI (and Run:ai) for a share" in c.said("a-0")
    assert "ask for whole devices" in c.said("a-0")
    assert "schedulerName: kai-scheduler" in c.said("a-0")


@pytest.mark.parametrize("requests", REQUESTED, ids=lambda asked: " ".join(asked))
def test_a_resource_that_only_its_own_scheduler_makes_true_is_refused_though_offered(
    requests: dict[str, int | str],
) -> None:
    node = make_node("n")
    room = {**(node.status.allocatable or {}), **dict.fromkeys(requests, "100Gi")}
    c = Cluster().node(replace(node, status=replace(node.status, allocatable=room)))
    c.submit(asking(requests)).run()
    assert not c.pod("p").spec.node_name
    assert "for a share of a device, which gangsched cannot give" in c.said("p")


@pytest.mark.parametrize("name", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "example.com/gpumem"])
def test_what_a_device_plugin_divides_itself_is_counted(name: str) -> None:
    node = make_node("n")
    room = {**(node.status.allocatable or {}), name: 4}
    c = Cluster().node(replace(node, status=replace(node.status, allocatable=room)))
    c.submit(asking({name: 1})).run()
    assert c.pod("p").spec.node_name == "n"


def test_an_init_containers_words_count_and_none_is_no_share() -> None:
    first = Container(name="first", resources=ResourceRequirements(limits={"nvidia.com/gpumem": 1}))
    pod = make_pod("p")
    c = Cluster().node(make_node("n"))
    c.submit(replace(pod, spec=replace(pod.spec, init_containers=[first])))
    none = asking({"nvidia.com/gpumem": 0})
    c.submit(replace(none, metadata=replace(none.metadata, name="q", uid="q"))).run()
    assert "nvidia.com/gpumem asks HAMi" in c.said("p")
    assert c.pod("q").spec.node_name == "n"


def test_a_pod_whose_words_are_taken_out_is_placed() -> None:
    c = Cluster().node(make_node("n")).submit(make_pod("p", annotations={"gpu-fraction": "0.5"})).run()
    assert not c.pod("p").spec.node_name
    c.update(c.pod("p"), metadata=replace(c.pod("p").metadata, annotations={})).run().wait(12.0)
    assert c.pod("p").spec.node_name == "n"


def test_pods_of_the_system_itself_keep_their_place_here() -> None:
    pod = make_pod("s", gpus=2, scheduler=STRANGER, annotations={"gpu-fraction": "0.5"})
    pod = replace(pod, spec=replace(pod.spec, node_name="n"))
    c = Cluster().node(make_node("n", gpus=2)).submit(pod).submit(make_pod("p")).run()
    assert "Insufficient" in c.said("p")


def test_explain_does_not_tell_to_correct_what_is_right() -> None:
    c = Cluster().node(make_node("n")).submit(make_pod("p", annotations={"gpu-fraction": "0.5"})).run()
    told = explain(c.scheduler, c.group("p"), c.now_s)
    assert "as it is written" not in told.answer
    assert not any("Correct" in cure for cure in told.cures)
    assert any("change it as the answer says" in cure for cure in told.cures)
