"""Extended resources that a DeviceClass serves, on a real API server beside its resourceclaim controller:
the claims that the scheduler makes, what it writes into pods' statuses, and what becomes of both."""

from __future__ import annotations

import threading
from contextlib import suppress
from random import Random

import pytest

from gangsched.errors import ApiError
from gangsched.model.resource_claims.objects import CLAIMED_FOR_KEY, EXTENDED_CLAIM_ANNOTATION, FINALIZER
from tests.real.claimed import CLAIMS, EXTENDED, ClaimCluster, wish
from tests.real.cluster import MERGE, PODS
from tests.real.picture import OURS, Json, node_of

pytestmark = pytest.mark.real
N_SHAPES = 16


def serving(c: ClaimCluster, n: int, devices: int) -> None:
    """So many nodes with so many devices each, of a class that serves EXTENDED; no plugin offers it."""
    c.offer(n, devices=devices)
    c.device_class(extendedResourceName=EXTENDED)


def test_a_gang_gets_claims_for_what_it_asks_for(claim_cluster: ClaimCluster) -> None:
    """All of them are allocated, and stated in the pods' statuses, before the first is bound: checks of the
    whole history."""
    c = claim_cluster
    serving(c, 2, devices=4)
    c.schedule()
    c.asking("a", pods=4, amount=2)
    c.whole("a")
    assert len({*c.devices_of("a")}) == 8
    for pod in c.members("a"):
        stated = pod["status"]["extendedResourceClaimStatus"]
        [mapping] = stated["requestMappings"]
        assert (mapping["containerName"], mapping["resourceName"]) == ("main", EXTENDED)
        claim = c.plane.request("GET", f"{CLAIMS}/{stated['resourceClaimName']}")
        [owner] = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)


def test_devices_are_free_again_when_the_pods_are_gone(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    serving(c, 1, devices=4)
    c.schedule()
    c.asking("a", pods=2, amount=2)
    c.whole("a")
    c.asking("b", pods=2, amount=2)
    c.held("b", says="in use")
    c.delete("a")
    c.whole("b")
    assert len({*c.devices_of("b")}) == 4


def test_a_plugin_serves_where_it_offers_the_resource(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    serving(c, 1, devices=2)
    c.nodes(1, gpus=0, first=1)
    offered = {"status": {"allocatable": {EXTENDED: "2"}, "capacity": {EXTENDED: "2"}}}
    c.plane.request("PATCH", "/api/v1/nodes/n1/status", offered, content_type=MERGE)
    c.schedule()
    c.asking("a", pods=2, amount=2)
    c.whole("a")
    by_node = {node_of(pod): pod for pod in c.members("a")}
    assert set(by_node) == {"n0", "n1"}
    assert "extendedResourceClaimStatus" in by_node["n0"]["status"]
    assert "extendedResourceClaimStatus" not in by_node["n1"]["status"]
    [claim] = c.plane.request("GET", CLAIMS)["items"]
    assert claim["metadata"]["ownerReferences"][0]["name"] == by_node["n0"]["metadata"]["name"]


def test_pods_that_change_all_the_time_are_told_of_their_claims(claim_cluster: ClaimCluster) -> None:
    """Each change is a conflict for whoever writes by the version before."""
    c = claim_cluster
    serving(c, 2, devices=4)
    c.schedule()
    is_over = threading.Event()

    def edits() -> None:
        n = 0
        while not is_over.wait(0.02):
            n += 1
            for k in range(4):
                with suppress(ApiError):
                    body = {"metadata": {"annotations": {"n": str(n)}}}
                    c.plane.request("PATCH", f"{PODS}/a-{k}", body, content_type=MERGE)

    c.asking("a", pods=4)
    editing = threading.Thread(target=edits)
    editing.start()
    try:
        c.whole("a")
    finally:
        is_over.set()
        editing.join()


def test_a_claim_that_somebody_deletes_is_made_again(claim_cluster: ClaimCluster) -> None:
    """Its finalizer keeps it while the pod runs; before, the pod is placed anew."""
    c = claim_cluster
    serving(c, 1, devices=2)
    c.claim("other", wish())
    c.schedule()
    c.asking("a", pods=2)
    c.whole("a")
    [first, _] = c.claims_of_gang("a")
    path = f"{CLAIMS}/{first['metadata']['name']}"
    c.plane.request("DELETE", path)
    kept: Json = c.plane.request("GET", path)
    assert "deletionTimestamp" in kept["metadata"]
    assert kept["status"]["allocation"]


def test_a_missing_right_is_named(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    serving(c, 1, devices=2)
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-resource-claims"
    before = c.plane.request("GET", role)
    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} for rule in before["rules"]
    ]
    c.plane.request("PATCH", role, {"rules": rules}, content_type=MERGE)
    c.schedule()
    c.asking("a", pods=2)
    c.held("a", says='cannot create resource "resourceclaims"')
    c.plane.request("PATCH", role, {"rules": before["rules"]}, content_type=MERGE)
    c.whole("a")


def test_what_an_attempt_has_left_is_deleted(claim_cluster: ClaimCluster) -> None:
    """As a process that has ended may leave it: made for a pod that still waits, and not allocated."""
    c = claim_cluster
    serving(c, 1, devices=2)
    c.schedule(settleSeconds=1)
    c.asking("a", pods=2, members=[0])
    uid = c.plane.request("GET", f"{PODS}/a-0")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": uid, "controller": True}
    marks = {EXTENDED_CLAIM_ANNOTATION: "true", CLAIMED_FOR_KEY: "default/a"}
    c.claim("left", wish(), ownerReferences=[owner], annotations=marks, finalizers=[FINALIZER])

    def names() -> list[str]:
        return [one["metadata"]["name"] for one in c.plane.request("GET", CLAIMS)["items"]]

    c.eventually(lambda: "left" not in names(), "what was left is deleted")
    c.asking("a", pods=2, members=[1])
    c.whole("a")


def test_claims_are_those_that_kube_scheduler_makes(claim_cluster: ClaimCluster) -> None:
    """Pods of random containers, each once for either scheduler: the same requests for each container."""
    seed = Random().randrange(10_000)
    rng = Random(seed)
    c = claim_cluster
    serving(c, 4, devices=120)
    c.device_class("other", extendedResourceName="example.com/other")
    c.plane.start_kube_scheduler(config={"clientConnection": {"qps": 500, "burst": 500}})
    c.schedule()
    shapes = [containers_at_random(rng) for _ in range(N_SHAPES)]
    for k, shape in enumerate(shapes):
        for name, scheduler in (("ours", OURS), ("theirs", "default-scheduler")):
            c.pod(f"{name}-{k}", scheduler=scheduler, **shape)

    def claims() -> dict[str, tuple[Json, Json]]:
        found, pods = {}, c.plane.request("GET", PODS)["items"]
        made = {one["metadata"]["name"]: one for one in c.plane.request("GET", CLAIMS)["items"]}
        for pod in pods:
            stated = pod["status"].get("extendedResourceClaimStatus")
            if stated is not None and node_of(pod):
                requests = made[stated["resourceClaimName"]]["spec"]["devices"]["requests"]
                found[pod["metadata"]["name"]] = requests, stated["requestMappings"]
        return found

    c.eventually(lambda: len(claims()) == 2 * N_SHAPES, f"all are bound, seed {seed}", timeout_s=60.0)
    made = claims()
    for k, shape in enumerate(shapes):
        assert made[f"ours-{k}"] == made[f"theirs-{k}"], f"seed {seed}: {shape}"


def containers_at_random(rng: Random) -> Json:
    """Some containers, and some that run before them, that ask for two resources or one."""

    def container(name: str, *, asks: bool) -> Json:
        names = [EXTENDED, "example.com/other", "cpu", "memory"]
        amounts = {one: "1" if one == "cpu" else "1Mi" for one in names[2:] if rng.random() < 0.5}
        for one in names[:2]:
            if asks or rng.random() < 0.6:
                amounts[one] = str(rng.randint(0 if not asks else 1, 3))
        resources = {"requests": amounts, "limits": {one: n for one, n in amounts.items() if "/" in one}}
        return {"name": name, "image": "busybox", "resources": resources}

    first = [container(f"first-{k}", asks=False) for k in range(rng.randint(0, 3))]
    for one in first:
        if rng.random() < 0.4:
            one["restartPolicy"] = "Always"
    running = [container(f"run-{k}", asks=not k) for k in range(rng.randint(1, 3))]
    return {"containers": running, "initContainers": first}
