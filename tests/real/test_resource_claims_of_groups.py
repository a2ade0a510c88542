"""Gangs that share a PodGroup's claim, on a real API server with Kubernetes' own resourceclaim controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.real.claimed import CLAIMS, ClaimCluster, claim_control_plane, request, wish
from tests.real.cluster import CORE_GROUPS, MERGE
from tests.real.picture import Json, node_of

pytestmark = [pytest.mark.real, pytest.mark.since(37)]

TEMPLATE = {"name": "all", "resourceClaimTemplateName": "one"}
BY_NAME = {"name": "all", "resourceClaimName": "both"}


@pytest.fixture(scope="module")
def claim_plane(assets: Assets) -> Iterator[ControlPlane]:
    """With the feature gate of claims of PodGroups on both sides."""
    with claim_control_plane(assets, of_groups=True) as running:
        yield running


def sharing(c: ClaimCluster, name: str, entry: Json, *, pods: int, **options: Any) -> None:
    """A gang of the core API whose PodGroup lists the claim that all of its pods use."""
    spec = {"resourceClaims": [entry]}
    c.gang(name, pods=pods, gpus=0, dialect="core", group_spec=spec, resourceClaims=[entry], **options)


def consumers(claim: Json) -> list[tuple[str, str]]:
    return [(one["resource"], one["name"]) for one in claim["status"].get("reservedFor", ())]


def test_the_claim_made_for_a_pod_group_is_reserved_for_it_until_it_is_deleted(
    claim_cluster: ClaimCluster,
) -> None:
    c = claim_cluster
    c.offer(2, devices=2)
    c.device_class()
    c.template("one", wish(request(count=2)))
    c.schedule()
    sharing(c, "a", TEMPLATE, pods=4)
    c.whole("a")
    [claim] = c.claims_of_gang("a")
    assert consumers(claim) == [("podgroups", "a")]
    assert len({node_of(pod) for pod in c.members("a")}) == 1
    name = claim["metadata"]["name"]
    c.delete("a")
    assert c.claims.pods[name]["status"]["allocation"], "its PodGroup is still there"
    c.plane.request("DELETE", f"{CORE_GROUPS}/a")
    c.eventually(lambda: name not in c.claims.pods, "the claim is gone with its PodGroup")
    sharing(c, "b", TEMPLATE, pods=4)
    sharing(c, "d", TEMPLATE, pods=4)
    c.whole("b", "d")


def test_more_pods_than_a_claim_can_list_share_the_claim_of_their_pod_group(
    claim_cluster: ClaimCluster,
) -> None:
    c = claim_cluster
    c.offer(1)
    room = {"status": {"allocatable": {"pods": "400"}, "capacity": {"pods": "400"}}}
    c.plane.request("PATCH", "/api/v1/nodes/n0/status", room, content_type=MERGE)
    c.device_class()
    c.claim("both", wish())
    c.schedule()
    sharing(c, "a", BY_NAME, pods=258, cpu="10m")
    c.whole("a")
    assert consumers(c.plane.request("GET", f"{CLAIMS}/both")) == [("podgroups", "a")]
