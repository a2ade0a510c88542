"""What if, for jobs whose pods have resource claims."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from msgspec import convert

from gangsched.command.snapshot import Snapshot
from gangsched.errors import ApiError
from gangsched.model.resource_claims.objects import ResourceClaimSpec
from gangsched.whatif.answer import Answer
from gangsched.whatif.cluster import Cluster, claim_template
from gangsched.whatif.files import Document
from gangsched.whatif.manifests import claim_templates_named, kinds_of, read_manifests
from gangsched.whatif.question import Question, examine
from tests.core.claims import DRIVER, ClaimCluster, wish

NOTHING = Cluster()
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    metadata:
      labels: {gangsched.io/pod-group: train}
      annotations: {gangsched.io/min-members: "2"}
    spec:
      schedulerName: gangsched
      restartPolicy: Never
      resourceClaims: [{name: gpu, resourceClaimTemplateName: four}]
      containers: [{name: main, image: busybox}]
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: four}
spec:
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 4}}]}}
"""


def asked(c: ClaimCluster, *texts: str, known: Cluster = NOTHING, **flags: Any) -> Answer:
    """On a copy of the cluster's core, as far as a list shows it."""
    snapshot = Snapshot(c.restart().scheduler, tuple(c.nodes.values()), tuple(c.pods.values()), (), ())
    documents = [Document("f", f"f:{i}", yaml.safe_load(text)) for i, text in enumerate(texts)]
    read = read_manifests(documents, kinds_of(snapshot.scheduler), known)
    return examine(Question(**flags), snapshot, read, c.now_s, NOW)


@pytest.mark.parametrize(("gpus", "starts"), [(8, "now"), (7, "not")])
def test_a_job_starts_where_its_claims_find_devices(gpus: int, starts: str) -> None:
    found = asked(ClaimCluster().offer("n", gpus_each=gpus), TEMPLATE, JOB)
    assert [(one.name, one.starts) for one in found.gangs] == [("default/train", starts)]
    assert not found.notes
    given = [device for one in found.gangs[0].members for device in one.devices[DRIVER]]
    assert sorted(given) == [f"gpu-{i}" for i in range(8)][: len(given)]
    assert len(given) == (8 if starts == "now" else 0)
    if starts == "not":
        assert found.gangs[0].why is not None
        assert "request gpu (class gpu, 4 devices)" in found.gangs[0].why.answer


def test_devices_of_what_is_removed_are_free() -> None:
    c = ClaimCluster().offer("n", gpus_each=8)
    c.submit(c.want("old", wish(4))).run()
    assert not asked(c, TEMPLATE, JOB).starts_now
    assert asked(c, TEMPLATE, JOB, without=["d/old"]).starts_now


def test_a_template_that_is_not_given_is_named() -> None:
    found = asked(ClaimCluster().offer("n"), JOB)
    assert found.gangs[0].starts == "not"
    said = "named by pods, and not found: without it their claims are not made; give it too"
    assert found.notes == [f"ResourceClaimTemplate four: {said}"]


def test_a_template_of_the_cluster_counts_and_one_in_the_files_comes_first() -> None:
    there = {("default", "four"): convert({"devices": {"requests": [one_gpu()]}}, ResourceClaimSpec)}
    for texts, n_each in (((JOB,), 1), ((TEMPLATE, JOB), 4)):
        found = asked(ClaimCluster().offer("n"), *texts, known=Cluster(claim_templates=there))
        assert [len(one.devices[DRIVER]) for one in found.gangs[0].members] == [n_each] * 2
        assert not found.notes


def one_gpu() -> dict[str, Any]:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}


def test_the_templates_that_pods_name_anywhere_and_the_files_lack_are_asked_for() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "one"}
    group = {"podTemplate": {"spec": {"resourceClaims": [entry, {**entry, "resourceClaimTemplateName": 7}]}}}
    ray = {"kind": "RayCluster", "metadata": {"namespace": "ml"}, "spec": {"workers": [group, group]}}
    documents = [
        Document("f", f"f:{i}", body)
        for i, body in enumerate((ray, yaml.safe_load(JOB), yaml.safe_load(TEMPLATE), {"metadata": 7}))
    ]
    assert claim_templates_named(documents, "default") == [("ml", "one")]
    assert claim_templates_named(documents[:2], "team") == [("ml", "one"), ("team", "four")]


class _Server:
    def __init__(self, answer: bytes | ApiError) -> None:
        self._answer, self.asked = answer, ""

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        self.asked = path
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


async def test_a_template_is_asked_for_by_its_path() -> None:
    client: Any = _Server(json.dumps(yaml.safe_load(TEMPLATE)).encode())
    found = await claim_template(client, "ml", "a/b")
    assert client.asked == "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates/a%2Fb"
    assert found is not None
    assert found.devices.requests is not None
    absent: Any = _Server(ApiError("no", code=404))
    assert await claim_template(absent, "ml", "one") is None
    for answer in (ApiError("no", code=403), b"[", b'{"spec":{"spec":7}}'):
        wrong: Any = _Server(answer)
        with pytest.raises(ApiError):
            await claim_template(wrong, "ml", "one")
