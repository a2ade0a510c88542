"""deploy/metrics-server: the one right that LoadAware needs where no agent measures, and only with it."""

from __future__ import annotations

import pytest

from gangsched.errors import GangschedError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.deploy.conftest import DEPLOY, SCHEDULER
from tests.support.processes import until

pytestmark = pytest.mark.real


def may_list(plane: ControlPlane) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": SCHEDULER,
            "resourceAttributes": {"verb": "list", "group": "metrics.k8s.io", "resource": "nodes"},
        },
    }
    answer = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


def test_the_right_comes_and_goes_with_it(control_plane: ControlPlane) -> None:
    assert not may_list(control_plane)
    overlay = str(DEPLOY / "metrics-server")
    try:
        control_plane.kubectl("apply", "-k", overlay, "--validate=strict")
        until(lambda: may_list(control_plane), "the authorizer has heard of it, by a watch")
    finally:
        control_plane.kubectl("delete", "-k", overlay)
    with pytest.raises(GangschedError):
        control_plane.kubectl("get", "clusterrole", "gangsched-metrics-server")
