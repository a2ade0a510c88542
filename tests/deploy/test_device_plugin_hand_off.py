"""deploy/device-plugin-hand-off on a real kube-apiserver: what the one right to patch pods is for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import VISIBLE_KEY
from gangsched.model.devices.report import DEVICE_REPORT_KEY, PodDevices, report_annotation
from tests.conftest import wipe
from tests.deploy.conftest import DEPLOY
from tests.deploy.doors import MERGE, Json, Person
from tests.real.cluster import PODS, Cluster
from tests.real.picture import GPU, annotation, ids_of

pytestmark = pytest.mark.real

OVERLAY = DEPLOY / "device-plugin-hand-off"
HAND_OFF = {"handOff": {GPU: "device-plugin"}, "repairAnnotations": True}


@pytest.fixture
def cluster(guarded: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """Empty. While two pods are being swapped both claim the same: the usual check is not for this."""
    made = Cluster(guarded, tmp_path)
    try:
        made.set_up()
        yield made
    finally:
        made.close()
        guarded.kubectl("delete", "-k", str(OVERLAY), "--ignore-not-found")
        wipe(guarded)


def given(cluster: Cluster, **pods: list[str]) -> None:
    """What the agent of n0 would report."""
    held = []
    for name, ids in pods.items():
        [pod] = cluster.members(name.replace("_", "-"))
        meta = pod["metadata"]
        held.append(PodDevices(meta["uid"], meta["namespace"], meta["name"], {"main": {GPU: tuple(ids)}}))
    patch = {"metadata": {"annotations": {DEVICE_REPORT_KEY: report_annotation([GPU], held)}}}
    cluster.plane.request("PATCH", "/api/v1/nodes/n0", patch, content_type=MERGE)


def ids(cluster: Cluster, name: str) -> list[str]:
    [pod] = cluster.members(name)
    found: list[str] = sorted(ids_of(pod))
    return found


def swapped(cluster: Cluster) -> tuple[list[str], list[str]]:
    """A gang of two, bound, that kubelet has given each other's devices; (what a-0, what a-1 has now)."""
    cluster.nodes(1, gpus=4)
    cluster.schedule(devices=HAND_OFF)
    cluster.gang("a", pods=2, gpus=2)
    cluster.whole("a")
    one, other = ids(cluster, "a-0"), ids(cluster, "a-1")
    given(cluster, a_0=other, a_1=one)
    return other, one


def test_the_annotations_are_made_to_say_what_kubelet_did(cluster: Cluster) -> None:
    cluster.plane.kubectl("apply", "-k", str(OVERLAY), "--validate=strict")
    one, other = swapped(cluster)
    cluster.picture.until(
        lambda: (ids(cluster, "a-0"), ids(cluster, "a-1")) == (one, other), "both are swapped"
    )
    [pod] = cluster.members("a-0")
    assert sorted(annotation(pod, VISIBLE_KEY).split(",")) == one
    assert "kubelet gave it main" in cluster.event("DeviceMismatch", "a-0")["note"]
    assert cluster.event("DevicesConfirmed", "a-0")


def test_an_edit_that_got_in_is_undone(cluster: Cluster) -> None:
    """By somebody who acts as the scheduler: the API server refuses everybody else."""
    plane = cluster.plane
    plane.kubectl("apply", "-k", str(OVERLAY), "--validate=strict")
    cluster.nodes(1, gpus=4)
    cluster.schedule(devices=HAND_OFF)
    cluster.pod("p", gpus=1)
    cluster.whole("p")
    before = ids(cluster, "p")
    token = plane.kubectl("create", "token", "gangsched", "--namespace=gangsched-system").strip()
    forged: Json = {"metadata": {"annotations": {VISIBLE_KEY: "GPU-0-3"}}}
    answer = Person(plane, token).send("PATCH", f"{PODS}/p", forged, MERGE)
    assert answer.code == 200, answer.message

    def seen() -> bool:
        [pod] = cluster.members("p")
        return annotation(pod, VISIBLE_KEY) == ",".join(before)

    cluster.eventually(lambda: cluster.events("DevicesConfirmed", "p"), "it is put right")
    cluster.picture.until(seen, "the annotation is what was bound")
    assert "its annotations were edited" in cluster.event("DeviceMismatch", "p")["note"]


def test_without_the_right_the_missing_verb_is_named(cluster: Cluster) -> None:
    planned = swapped(cluster)
    cluster.eventually(
        lambda: any(
            "the verb is patch on pods" in e["note"] for e in cluster.events("DeviceMismatch", "a-0")
        ),
        "the missing verb is named",
    )
    assert (ids(cluster, "a-1"), ids(cluster, "a-0")) == planned, "and nothing was written"


def test_the_overlay_grants_that_and_nothing_else() -> None:
    [role, binding] = list(yaml.safe_load_all((OVERLAY / "rbac.yaml").read_text()))
    rules: list[dict[str, Any]] = role["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]
    assert json.dumps(binding["subjects"]).count("gangsched-system") == 1
