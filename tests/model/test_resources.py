"""Requests of a pod as kube-scheduler sums them, and the columns they are counted in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.model.objects import PodSpec, ResourceRequirements
from gangsched.model.resources import (
    MAX_RESOURCES,
    ResourceTable,
    container_requests,
    parse_quantities,
    pod_requests,
)

GPU = "nvidia.com/gpu"


def container(cpu: int = 0, sidecar: bool = False, **requests: str) -> dict[str, Any]:
    """cpu in thousandths."""
    asked = {**({"cpu": f"{cpu}m"} if cpu else {}), **requests}
    made: dict[str, Any] = {"name": "c", "resources": {"requests": asked}}
    return {**made, "restartPolicy": "Always"} if sidecar else made


def spec(*containers: dict[str, Any], **more: Any) -> PodSpec:
    return msgspec.convert({"containers": list(containers), **more}, PodSpec)


def test_containers_add_up_and_every_pod_takes_a_pod() -> None:
    assert pod_requests(spec(container(500, memory="1Gi"), container(250))) == {
        "cpu": 750,
        "memory": 2**30,
        "pods": 1,
    }
    assert pod_requests(spec({"name": "c"})) == {"pods": 1}


def test_the_init_phase_counts_where_it_is_larger_resource_by_resource() -> None:
    init = [container(100, memory="4Gi"), container(2000)]
    found = pod_requests(spec(container(1000, memory="1Gi"), initContainers=init))
    assert found == {"cpu": 2000, "memory": 4 * 2**30, "pods": 1}


def test_sidecars_run_beside_later_init_containers_and_the_pod() -> None:
    early, side, late = container(900), container(300, sidecar=True), container(800)
    # Running: 500 + 300. Init phase: 900, then 300 + 800.
    assert pod_requests(spec(container(500), initContainers=[early, side, late]))["cpu"] == 1100
    assert pod_requests(spec(container(500), initContainers=[late, side]))["cpu"] == 800


class Hashed(str):
    """Counts how often it is looked up."""

    __slots__ = ()
    n = 0
    __eq__ = str.__eq__

    def __hash__(self) -> int:
        Hashed.n += 1
        return str.__hash__(self)


def test_twice_the_sidecars_with_resources_of_their_own_are_twice_the_work() -> None:
    """A pod may have thousands of them, each of another resource, and as many that end before the next."""
    n_looked_up = []
    for n in (50, 100):
        made = spec(container(), initContainers=[container(1, sidecar=i % 2 == 0) for i in range(n)])
        for i, one in enumerate(made.init_containers or ()):
            one.resources = ResourceRequirements({Hashed(f"example.com/r{i}"): 1})
        Hashed.n = 0
        assert len(pod_requests(made)) == n + len(["pods"])
        n_looked_up.append(Hashed.n)
    assert n_looked_up[1] == 2 * n_looked_up[0]


def test_pod_level_requests_replace_the_sum_and_overhead_is_added() -> None:
    level = {"requests": {"cpu": "2"}}
    found = pod_requests(spec(container(5000, memory="1Gi"), resources=level, overhead={"cpu": "100m"}))
    assert found == {"cpu": 2100, "memory": 2**30, "pods": 1}


def test_pod_level_requests_are_cpu_memory_and_huge_pages() -> None:
    """Source: component-helpers, IsSupportedPodLevelResource; others at pod level mean nothing."""
    gpu = {"name": "c", "resources": {"requests": {"cpu": "1", GPU: "1"}}}
    level = {"requests": {GPU: "8", "hugepages-2Mi": "4Mi"}}
    found = pod_requests(spec(gpu, resources=level))
    assert found == {"cpu": 1000, GPU: 1, "hugepages-2Mi": 4 * 2**20, "pods": 1}


def test_a_limit_stands_in_for_a_request() -> None:
    raw = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", GPU: "2"}}}
    assert container_requests(spec(raw).containers[0]) == {"cpu": 1000, GPU: 2}


def test_numbers_that_are_not_text_are_quantities_too() -> None:
    assert parse_quantities({"cpu": 2, "memory": 1.5, GPU: "1"}) == {"cpu": 2000, "memory": 2, GPU: 1}
    assert parse_quantities(None) == {}


@pytest.mark.parametrize(
    ("requests", "field"), [({"cpu": "many"}, "cpu"), ({GPU: "-1"}, GPU), ({"memory": "1e"}, "memory")]
)
def test_mistakes_name_the_resource(requests: dict[str, str], field: str) -> None:
    with pytest.raises(ParseError) as caught:
        pod_requests(spec({"name": "c", "resources": {"requests": requests}}))
    assert caught.value.field == field


def test_a_request_for_pods_is_not_believed() -> None:
    assert pod_requests(spec({"name": "c", "resources": {"requests": {"pods": "50"}}})) == {"pods": 1}


def test_columns_are_handed_out_once_and_bounded() -> None:
    table = ResourceTable()
    assert [table.column(name) for name in ("cpu", "memory", "ephemeral-storage", "pods")] == [0, 1, 2, 3]
    assert table.column(GPU) == table.column(GPU) == 4
    for i in range(MAX_RESOURCES - len(table)):
        table.column(f"r/{i}")
    with pytest.raises(ParseError, match="more than"):
        table.column("one/more")
    assert len(table) == MAX_RESOURCES
    assert table.rename(4, "one/more") == GPU
    assert table.column("one/more") == 4
    assert GPU not in table


_CPUS = st.lists(st.integers(0, 3000), max_size=4)
_INITS = st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_CPUS, _INITS, st.integers(0, 500))
def test_the_peak_over_the_pods_life(main: list[int], init: list[tuple[int, bool]], overhead: int) -> None:
    """Walks through the pod's life: each init step with the sidecars started so far, then everybody."""
    peak = started = 0
    for cpu, sidecar in init:
        peak = max(peak, started + cpu)
        started += cpu if sidecar else 0
    peak = max(peak, started + sum(main)) + overhead
    one = spec(
        *(container(cpu) for cpu in main),
        initContainers=[container(cpu, sidecar=sidecar) for cpu, sidecar in init],
        overhead={"cpu": f"{overhead}m"},
    )
    assert pod_requests(one).get("cpu", 0) == peak
