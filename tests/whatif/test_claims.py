"""What if, for jobs whose pods have resource claims."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from gangsched.command.snapshot import Snapshot
from gangsched.whatif.answer import Answer
from gangsched.whatif.cluster import Cluster
from gangsched.whatif.files import Document
from gangsched.whatif.manifests import kinds_of, read_manifests
from gangsched.whatif.question import Question, examine
from tests.core.claims import DRIVER, ClaimCluster, wish

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


def asked(c: ClaimCluster, *texts: str, **flags: Any) -> Answer:
    """On a copy of the cluster's core, as far as a list shows it."""
    snapshot = Snapshot(c.restart().scheduler, tuple(c.nodes.values()), tuple(c.pods.values()), (), ())
    documents = [Document("f", f"f:{i}", yaml.safe_load(text)) for i, text in enumerate(texts)]
    read = read_manifests(documents, kinds_of(snapshot.scheduler), Cluster())
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
    said = "named by pods and not in the files: without it their claims are not made; give it too"
    assert found.notes == [f"ResourceClaimTemplate four: {said}"]
