"""Gangs with resource claims beside a real kube-scheduler on the same devices: the API server lets both give
out one device. Where the other one's write came first, ours is taken back; every other collision is told.

GANGSCHED_BESIDE_PODS says how many pods each of the two gets; 1,000 take some minutes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

import pytest

from gangsched.lab.controlplane.daemon import free_ports
from gangsched.model.pod_group import GANG_KEY
from tests.real.claimed import ClaimCluster, Lost, devices_of, is_marked, wish
from tests.real.cluster import EVENTS, MERGE
from tests.real.picture import PATIENCE_S, node_of, reason_of
from tests.real.test_metrics_page import scraped
from tests.web.measured import samples

N_PODS = int(os.environ.get("GANGSCHED_BESIDE_PODS", "40"))
SIZE = 4
N_GANGS = N_PODS // SIZE
N_DEVICES = 16
N_NODES = -(-2 * N_PODS * 6 // (5 * N_DEVICES))
"""With a fifth more devices than pods."""
ENOUGH_S = PATIENCE_S + 0.3 * N_PODS

pytestmark = [pytest.mark.real, pytest.mark.timeout(120 + 2 * N_PODS)]


def cordon(cluster: ClaimCluster, *, is_on: bool) -> None:
    for i in range(N_NODES):
        patch = {"spec": {"unschedulable": is_on}}
        cluster.plane.request("PATCH", f"/api/v1/nodes/n{i}", patch, content_type=MERGE)


def told(cluster: ClaimCluster) -> set[tuple[str, str]]:
    """(device, pod) of each collision that an event names."""
    items = cluster.plane.request("GET", EVENTS)["items"]
    notes = [(one["note"], one["regarding"]["name"]) for one in items if one["reason"] == "DeviceMismatch"]
    assert all(" of resource claim default/" in note for note, _ in notes)
    return {(note.split()[1], pod) for note, pod in notes}


def of_pods(lost: Collection[Lost]) -> set[tuple[str, str]]:
    return {("/".join(one.device), one.pod) for one in lost}


def n_taken_back(cluster: ClaimCluster) -> int:
    """How many of our claims have been allocated, and given back again."""
    shown = [sight.pod for sight in cluster.claims.sights if is_marked(sight.pod)]
    before: dict[str, bool] = {}
    n = 0
    for claim in shown:
        name, has_devices = claim["metadata"]["name"], bool(devices_of(claim))
        n += before.get(name, False) and not has_devices
        before[name] = has_devices
    return n


def test_what_both_give_out_is_taken_back_or_told(claim_cluster: ClaimCluster) -> None:
    """All at one moment, when the nodes are uncordoned. Judged by the API server's own history."""
    c = claim_cluster
    c.beside = True
    c.offer(N_NODES, devices=N_DEVICES)
    c.device_class()
    c.template("one", wish())
    cordon(c, is_on=True)
    [port] = free_ports(1)
    c.schedule(port=port)
    c.plane.start_kube_scheduler(config={"clientConnection": {"qps": 5000, "burst": 5000}})
    for i in range(N_PODS):
        own = [{"name": "own", "resourceClaimTemplateName": "one"}]
        c.pod(f"p{i}", scheduler="default-scheduler", resourceClaims=own)
    for i in range(N_GANGS):
        c.claiming(f"g{i}", pods=SIZE)
    pods, n = c.picture.pods, N_PODS + N_GANGS * SIZE
    c.picture.until(
        lambda: len(pods) == n and all("unschedulable" in reason_of(pod) for pod in pods.values()),
        "all wait",
        timeout_s=ENOUGH_S,
    )
    began_s = time.monotonic()
    cordon(c, is_on=False)
    c.picture.until(lambda: all(map(node_of, pods.values())), "all are bound", timeout_s=ENOUGH_S)
    took_s = time.monotonic() - began_s
    lost = c.check_claims()
    assert not [one for one in lost if one.was_first], "the other's claim was there before ours"
    c.eventually(lambda: told(c) >= of_pods(lost), "each collision is told", timeout_s=PATIENCE_S)
    assert told(c) == of_pods(lost)
    assert all(GANG_KEY in pods[name]["metadata"]["annotations"] for _, name in told(c))
    *_, page = scraped(port, c.plane.token, "text/plain")
    counted = samples(page)
    assert counted["gangsched_invariant_violations_total{invariant=one_owner}"] == len(lost)
    n_yielded = int(counted["gangsched_resource_claims_conflicts_total"])
    print(
        f"{n} pods bound in {took_s:.1f} s: the other came first to {n_yielded} of our claims,"
        f" {n_taken_back(c)} were taken back; {len(lost)} collisions, {len(told(c))} told"
    )
