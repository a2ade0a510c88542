"""Gangs with resource claims on a real API server, beside Kubernetes' own resourceclaim controller."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.answers import printed
from tests.real.claimed import CLAIMS, DRIVER, ClaimCluster, device, request, wish
from tests.real.cluster import MERGE, PODS
from tests.real.picture import Json, is_live, node_of

pytestmark = pytest.mark.real

LATE_S = 0.5
USES_OWN = {"claims": [{"name": "own"}]}


def test_a_gang_of_claims_is_bound_whole(claim_cluster: ClaimCluster) -> None:
    """Each claim is on its pod's node, reserved and kept; none is bound before the last is reserved: checks
    of the whole history."""
    c = claim_cluster
    c.offer(2, devices=4)
    c.device_class()
    c.template("one", wish())
    c.schedule()
    c.claiming("a", pods=8)
    c.whole("a")
    assert len({*c.devices_of("a")}) == 8
    assert {node_of(pod) for pod in c.members("a")} == {"n0", "n1"}


def test_a_gang_that_shares_a_claim_goes_where_it_is(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    c.offer(3, devices=2)
    c.device_class()
    c.claim("both", wish(request(count=2)))
    c.schedule()
    c.claiming("a", pods=3, own="", shared="both")
    c.whole("a")
    [claim] = c.claims_of_gang("a")
    assert sorted(one["name"] for one in claim["status"]["reservedFor"]) == ["a-0", "a-1", "a-2"]
    assert len({node_of(pod) for pod in c.members("a")}) == 1


def test_a_gang_has_claims_of_its_own_beside_one_that_it_shares(claim_cluster: ClaimCluster) -> None:
    """The shared one holds the gang to a node that has devices for all of the others as well."""
    c = claim_cluster
    c.offer(1, devices=2)
    c.offer(1, devices=3, first=1)
    c.device_class()
    c.claim("both", wish())
    c.template("one", wish())
    c.schedule()
    c.claiming("a", pods=2, shared="both")
    c.whole("a")
    assert {node_of(pod) for pod in c.members("a")} == {"n1"}
    assert len(c.devices_of("a")) == len({*c.devices_of("a")}) == 3


def test_the_requests_of_a_claim_agree_in_an_attribute(claim_cluster: ClaimCluster) -> None:
    """The first two devices would do for each alone; the NUMA node of both has them only further back."""
    c = claim_cluster
    c.nodes(1, gpus=0)
    one = [device(0, model="H200", numa=0), device(1, model="A10", numa=1)]
    c.slice("n0", [*one, device(2, model="A10", numa=2), device(3, model="H200", numa=2)])
    c.device_class()
    models = [
        request(name, expression=f"device.attributes['{DRIVER}'].model == '{name.upper()}'")
        for name in ("h200", "a10")
    ]
    constraint = {"requests": ["h200", "a10"], "matchAttribute": f"{DRIVER}/numa"}
    c.template("one", wish(*models, constraints=[constraint]))
    c.schedule()
    c.claiming("a", pods=1)
    c.whole("a")
    [claim] = c.claims_of_gang("a")
    results = claim["status"]["allocation"]["devices"]["results"]
    assert {one["request"]: one["device"] for one in results} == {"h200": "gpu-3", "a10": "gpu-2"}
    c.claiming("b", pods=1)
    c.held("b", says="cannot allocate all claims")


def test_parameters_reach_the_allocation_as_they_were_written(claim_cluster: ClaimCluster) -> None:
    """Those of the class and then the claim's, for the requests they are for; applied as users do."""
    c = claim_cluster
    c.offer(1)
    # A number that a reader into doubles would change, keys out of order, nulls, and what JSON may escape.
    of_class = {"z": 1.5, "a": [2**53 + 1, {"metadata": None, "é": "\u2028<&>"}], "kind": "Of", "none": None}
    of_claim = {"sharing": {"strategy": "TimeSlicing", "interval": "<long>"}, "kind": "GpuConfig"}

    def opaque(parameters: object, **more: object) -> dict[str, object]:
        return {"opaque": {"driver": DRIVER, "parameters": parameters}, **more}

    c.device_class(config=[opaque(of_class)])
    spec = wish(request("left"), request("right"), config=[opaque(of_claim, requests=["right"])])
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    document = {**template, "metadata": {"name": "one"}, "spec": {"spec": spec}}
    c.plane.kubectl("apply", "-f", "-", input=json.dumps(document))
    c.schedule()
    c.claiming("a", pods=2)
    c.whole("a")
    for claim in c.claims_of_gang("a"):
        config = claim["status"]["allocation"]["devices"]["config"]
        assert [(one["source"], one.get("requests")) for one in config] == [
            ("FromClass", None),
            ("FromClaim", ["right"]),
        ]
        assert [one["opaque"]["parameters"] for one in config] == [of_class, of_claim]


def test_a_gang_that_does_not_fit_writes_nothing(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    c.offer(2, devices=3)
    c.device_class()
    c.template("one", wish())
    c.claiming("a", pods=8)
    c.resolved("a")
    before = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in c.claims_of_gang("a")}
    c.schedule()
    c.held("a", says="6 of 8 fit")
    c.held("a", says="cannot allocate all claims")
    now = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in c.claims_of_gang("a")}
    assert now == before
    c.offer(1, devices=2, first=2)
    c.whole("a")


def test_devices_of_a_gang_that_has_ended_are_used_again(claim_cluster: ClaimCluster) -> None:
    """The controller deallocates, and lets deleted claims go; nothing of ours stands in its way."""
    c = claim_cluster
    c.offer(1, devices=4)
    c.device_class()
    c.template("one", wish())
    c.schedule()
    c.claiming("a", pods=4)
    c.whole("a")
    c.claiming("b", pods=4)
    c.held("b", says="whose devices for request gpu (class gpu) are in use")
    left = [claim["metadata"]["name"] for claim in c.claims_of_gang("a")]
    c.delete("a")
    c.whole("b")
    for name in left:
        c.plane.request("DELETE", f"{CLAIMS}/{name}")
    c.eventually(lambda: not {*left} & {*c.claims.pods}, "the claims are gone")


@pytest.mark.since(36)
def test_a_device_that_kubelet_finds_sick_takes_the_gang_with_it(claim_cluster: ClaimCluster) -> None:
    """What kubelets write into the pods' status, as API servers have taken it by default since 1.36."""
    c = claim_cluster
    c.offer(1, devices=4)
    c.device_class()
    c.template("one", wish())
    c.schedule(devices={"onDeviceFailure": "evictGang", "failureGraceSeconds": 1})
    c.claiming("a", pods=2, containers=[{"name": "main", "image": "i", "resources": USES_OWN}])
    c.whole("a")
    sick = "/".join(c.devices_of("a-1")[0])

    def says(health: str) -> None:
        devices = [{"resourceID": sick, "health": health, "message": "fell off the bus"}]
        told = [{"name": "claim:own", "resources": devices}]
        started = {"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
        statuses = [{**started, "state": {"running": {}}, "allocatedResourcesStatus": told}]
        body = {"status": {"phase": "Running", "containerStatuses": statuses}}
        c.plane.request("PATCH", f"{PODS}/a-1/status", body, content_type=MERGE)

    says("Unknown")
    says("Unhealthy")
    note = c.event("DeviceFailed", "a-1")["note"]
    assert note.startswith(f"device {sick} (Unhealthy, says its kubelet) of resource claim default/a-1-own-")
    c.eventually(
        lambda: not any(is_live(pod) for pod in c.members("a")), "both are evicted, as the gang is one"
    )


def test_what_if_reads_the_templates_that_pods_name(claim_cluster: ClaimCluster, tmp_path: Path) -> None:
    c = claim_cluster
    c.offer(1, devices=4)
    c.device_class()
    c.template("one", wish(request(count=2)))
    job: Any = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "template": {
                "metadata": {
                    "labels": {"gangsched.io/pod-group": "train"},
                    "annotations": {"gangsched.io/min-members": "2"},
                },
                "spec": {
                    "schedulerName": "gangsched",
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "i"}],
                    "resourceClaims": [{"name": "own", "resourceClaimTemplateName": "one"}],
                },
            },
        },
    }

    def asked(template: str) -> tuple[int, Json]:
        entry = job["spec"]["template"]["spec"]["resourceClaims"][0]
        entry["resourceClaimTemplateName"] = template
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(job))
        out, code = printed(["whatif", "-f", str(file), "-o", "json", f"--kubeconfig={c.plane.kubeconfig}"])
        return code, json.loads(out)

    code, found = asked("one")
    assert code == 0, found
    given = [name for one in found["gangs"][0]["members"] for name in one["devices"][DRIVER]]
    assert sorted(given) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    code, found = asked("two")
    assert code == 3
    assert [note.partition(":")[0] for note in found["notes"]] == ["ResourceClaimTemplate two"]


def test_a_history_is_judged_when_the_watch_of_claims_has_shown_it(
    claim_cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is slower than that of pods, no pod is taken for one that is bound without its claim."""
    c, see = claim_cluster, claim_cluster.claims._see
    goes_on = threading.Event()

    def late(event: Json) -> None:
        goes_on.wait()
        see(event)

    monkeypatch.setattr(c.claims, "_see", late)
    c.offer(1)
    c.device_class()
    c.template("one", wish())
    c.schedule()
    c.claiming("a", pods=2)
    c.whole("a")
    assert not c.claims.pods
    assert len({*c.devices_of("a")}) == 2
    threading.Timer(LATE_S, goes_on.set).start()
    c.check_claims()
    assert c.claims.pods.keys() >= {one["metadata"]["name"] for one in c.claims_of_gang("a")}
