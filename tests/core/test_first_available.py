"""Claims with lists of requests, of which the first possible one is served: nodes that serve earlier ones."""

from __future__ import annotations

import pytest

from gangsched.lab.sim.objects import make_node, make_pod
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, with_claims


def first_of(*models: str) -> Json:
    """The spec of a claim for one device, of the first model that can be had."""
    subs = [
        {
            "name": model.lower(),
            "deviceClassName": "gpu",
            "count": 1,
            "allocationMode": "ExactCount",
            "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].model == '{model}'"}}],
        }
        for model in models
    ]
    return {"devices": {"requests": [{"name": "gpu", "firstAvailable": subs}]}}


def of_model(spec: Json, model: str) -> Json:
    for device in spec["devices"]:
        device["attributes"]["model"] = {"string": model}
    return spec


def cluster(**n_of: int) -> ClaimCluster:
    """A node of each model, with that many devices."""
    c = ClaimCluster()
    for model, n in n_of.items():
        c.node(make_node(f"n-{model}", gpus=0, listed=False))
        c.slice(f"slice-{model}", of_model(gpus(f"n-{model}", n), model))
    return c


def node_of(c: ClaimCluster, name: str) -> str | None:
    return c.pod(name).spec.node_name


@pytest.mark.parametrize("models", [("H", "A"), ("A", "H")])
def test_a_pod_goes_where_the_first_of_its_list_is(models: tuple[str, str]) -> None:
    c = cluster(A=4, H=4)
    c.submit(c.want("p", first_of(*models))).run()
    assert node_of(c, "p") == f"n-{models[0]}"


def test_pods_take_the_next_of_their_list_where_the_first_is_used_up() -> None:
    c = cluster(A=4, H=2)
    for i in range(4):
        c.submit(c.want(f"p-{i}", first_of("H", "A"))).run()
    assert [node_of(c, f"p-{i}") for i in range(4)] == ["n-H", "n-H", "n-A", "n-A"]
    c.slice("slice-H", of_model(gpus("n-H", 4), "H"))
    c.submit(c.want("p-4", first_of("H", "A"))).run()
    assert node_of(c, "p-4") == "n-H"


def test_a_gang_goes_where_its_wish_is_and_not_where_it_is_tightest() -> None:
    c = cluster(A=2, H=4)
    c.submit([c.want(f"g-{i}", first_of("H", "A"), group="g", min_members=2) for i in range(2)]).run()
    assert {node_of(c, f"g-{i}") for i in range(2)} == {"n-H"}


def test_pods_that_share_a_claim_go_where_the_first_of_its_list_is() -> None:
    c = cluster(A=4, H=4)
    c.make_claim("ours", first_of("H", "A"))
    c.submit(with_claims(make_pod("p", gpus=0), shared={"gpu": "ours"})).run()
    assert node_of(c, "p") == "n-H"
    c.submit(with_claims(make_pod("q", gpus=0), shared={"gpu": "ours"})).run()
    assert node_of(c, "q") == "n-H", "it is allocated there"


def test_devices_that_several_nodes_reach_are_scored_for_each_of_them() -> None:
    c = cluster(A=4, H=4)
    c.slice("slice-net", {**of_model(gpus("net", 1), "A"), "nodeName": None, "allNodes": True})
    c.submit(c.want("p", first_of("H", "A"))).run()
    assert node_of(c, "p") == "n-H"


def test_two_claims_of_a_pod_count_together() -> None:
    c = cluster(A=4, H=4)
    pod = with_claims(make_pod("p", gpus=0), own=("x", "y"))
    for entry, models in (("x", ("H", "B", "A")), ("y", ("A", "H"))):
        c.make_claim(f"p-{entry}", first_of(*models), owner=pod)
    c.submit(pod).run()
    assert node_of(c, "p") == "n-H", "8 and 7 there, 6 and 8 on the other"
