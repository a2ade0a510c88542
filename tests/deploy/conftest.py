"""Control planes, one with an audit log and one with every policy in force; the base as kubectl reads it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.errors import ConfigError
from gangsched.lab.controlplane.assets import Assets, find
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.controlplane.processes import ControlPlane
from tests.deploy import doors
from tests.deploy.rights import AUDIT_POLICY
from tests.support.processes import until

DEPLOY = Path(__file__).parents[2] / "deploy"
ENV_HAND_OFF = DEPLOY / "env-hand-off"
HAND_OFF_SINCE = 36
"""MutatingAdmissionPolicy is v1 since Kubernetes 1.36."""
SCHEDULER = "system:serviceaccount:gangsched-system:gangsched"


class Audited(ControlPlane):
    """Writes each request, with its user, verb and object, to `audit_log`."""

    def __init__(self, directory: Path, **more: Any) -> None:
        policy = directory / "audit-policy.yaml"
        policy.write_text(AUDIT_POLICY)
        self.audit_log = directory / "audit.log"
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
        super().__init__(apiserver_flags=[*flags, "--audit-log-mode=blocking"], **more)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """A fresh one: nobody has applied anything to it."""
    try:
        assets = find()
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real control plane: {error}")
    directory = tmp_path_factory.mktemp("audited")
    with Audited(directory, assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.fixture(scope="module")
def base() -> list[dict[str, Any]]:
    """What `kubectl apply -k deploy/` would send."""
    try:
        kubectl = find().path("kubectl")
    except ConfigError as error:
        pytest.skip(f"no kubectl: {error}")
    done = subprocess.run(
        [str(kubectl), "kustomize", str(DEPLOY)], capture_output=True, text=True, timeout=60, check=True
    )
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="session")
def guarded(assets: Assets) -> Iterator[ControlPlane]:
    """All of deploy/, and deploy/env-hand-off/ where it can be, validated; alice may do all with pods."""
    with ControlPlane(assets=assets, users={"alice": []}, unsafe_no_fsync=True) as plane:
        plane.kubectl("create", "namespace", doors.NAMESPACE)
        parts = ["pods", *(f"pods/{of}" for of in ("status", "binding", "ephemeralcontainers", "resize"))]
        rights = f"--resource={','.join([*parts, 'bindings'])}"
        plane.kubectl("create", "clusterrole", "pods", "--verb=*", rights)
        plane.kubectl("create", "clusterrolebinding", "pods", "--clusterrole=pods", "--user=alice")
        plane.kubectl("apply", "-k", str(DEPLOY), "--validate=strict")
        if plane.minor_version >= HAND_OFF_SINCE:
            plane.kubectl("apply", "-k", str(ENV_HAND_OFF), "--validate=strict")
        in_force(plane)
        yield plane


def in_force(plane: ControlPlane) -> None:
    """Waits until each policy is seen to act; nothing is written meanwhile."""
    admin, dry, keys = doors.Person(plane, plane.token), "?dryRun=All", {"gangsched.io/rank": "0"}
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "busybox", "resources": gpu}
    pod = doors.new_pod("probe", schedulerName="gangsched", containers=[container])
    target = {"apiVersion": "v1", "kind": "Node", "name": doors.NODE}
    binding = {"metadata": {"name": "probe", "annotations": keys}, "target": target}

    def seen() -> bool:
        forged = admin.send("POST", doors.PODS + dry, doors.new_pod("probe", keys))
        bound = admin.send("POST", f"{doors.PODS}/probe/binding{dry}", binding)
        made = admin.send("POST", doors.PODS + dry, pod)
        assert made.code == 201, made.message
        above = admin.send("POST", doors.PODS + dry, doors.new_pod("probe", priorityClassName="gangsched"))
        handed_off = "env" in made.body["spec"]["containers"][0] or plane.minor_version < HAND_OFF_SINCE
        return forged.code == bound.code == above.code == 403 and handed_off

    # The API server follows policies by a watch: they are in force a moment after they are written.
    until(seen, "the policies are in force")
