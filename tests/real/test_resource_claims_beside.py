"""Gangs with resource claims beside a real kube-scheduler on the same devices: the API server lets both give
out one device. Where the other one's write came first, ours is taken back; every other collision is told."""

from __future__ import annotations

from itertools import combinations

import pytest

from gangsched.model.pod_group import GANG_KEY
from tests.real.claimed import CLAIMS, ClaimCluster, Device, devices_of, wish
from tests.real.cluster import MERGE
from tests.real.picture import PATIENCE_S, reason_of

pytestmark = pytest.mark.real

N_NODES = 6
N_GANGS, SIZE = 10, 4


def cordon(cluster: ClaimCluster, *, is_on: bool) -> None:
    for i in range(N_NODES):
        patch = {"spec": {"unschedulable": is_on}}
        cluster.plane.request("PATCH", f"/api/v1/nodes/n{i}", patch, content_type=MERGE)


def collisions(cluster: ClaimCluster) -> set[tuple[Device, str]]:
    """(device, the pod of ours) wherever a device is in two claims now."""
    users = {
        entry["name"]: claim
        for claim in cluster.plane.request("GET", CLAIMS)["items"]
        for entry in claim.get("status", {}).get("reservedFor", ())
    }
    found = set()
    for (one, claim), (other, second) in combinations(users.items(), 2):
        for device in {*devices_of(claim)} & {*devices_of(second)}:
            found |= {(device, name) for name in (one, other) if name.startswith("g")}
    return found


def told(cluster: ClaimCluster) -> set[tuple[Device, str]]:
    found = set()
    for name in cluster.picture.pods:
        for event in cluster.events("DeviceMismatch", name):
            driver, pool, device = event["note"].split()[1].split("/")
            assert " of resource claim default/" in event["note"]
            found.add(((driver, pool, device), name))
    return found


def test_what_both_give_out_is_taken_back_or_told(claim_cluster: ClaimCluster) -> None:
    """All at one moment, when the nodes are uncordoned."""
    c = claim_cluster
    c.beside = True
    c.offer(N_NODES, devices=16)
    c.device_class()
    c.template("one", wish())
    cordon(c, is_on=True)
    c.schedule()
    c.plane.start_kube_scheduler()
    gangs, others = [f"g{i}" for i in range(N_GANGS)], [f"p{i}" for i in range(N_GANGS * SIZE)]
    own = [{"name": "own", "resourceClaimTemplateName": "one"}]
    for name in others:
        c.pod(name, scheduler="default-scheduler", resourceClaims=own)
    for gang in gangs:
        c.claiming(gang, pods=SIZE)
        c.held(gang, says="unschedulable")
    pods = c.picture.pods
    c.picture.until(lambda: all("unschedulable" in reason_of(pods[name]) for name in others), "all wait")
    cordon(c, is_on=False)
    c.whole(*gangs, *others)
    assert not [one for one in c.check_claims() if one.was_first], "the other's claim was there before ours"
    c.eventually(lambda: told(c) >= collisions(c), "each collision is told", timeout_s=PATIENCE_S)
    assert all(GANG_KEY in pods[name]["metadata"]["annotations"] for _, name in told(c))
    c.delete(*gangs)
