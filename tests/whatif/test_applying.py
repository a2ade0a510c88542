"""What if: claims in a file, and files in which something is wrong somewhere."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from gangsched.errors import ConfigError
from tests.whatif.test_admission import job, limit_range, quota
from tests.whatif.test_whole_files import (
    BESIDE,
    asked,
    gangs,
    named,
    of_runtime,
    ray_cluster,
    replicas,
    template,
    train_job,
)

Json = dict[str, Any]
CLAIM = named("v1", "PersistentVolumeClaim", {"accessModes": ["ReadWriteMany"]}, name="data")


def storage_class(name: str, mode: str, *, default: bool = True, **more: Any) -> Json:
    found = named("storage.k8s.io/v1", "StorageClass", name=name, provisioner="d.example.com", **more)
    found["volumeBindingMode"] = mode
    found["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return found


def user(claim: str = "data") -> Json:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return named("v1", "Pod", template(1, volumes=volumes)["spec"], name="user")


def test_a_claim_gets_the_default_class_and_its_pod_starts() -> None:
    for mode, n_notes in (("WaitForFirstConsumer", 0), ("Immediate", 1)):
        found = asked(CLAIM, storage_class("usual", mode), user())
        assert gangs(found) == [("default/user", "now", 1)], mode
        assert len(found.notes) == n_notes
    assert found.notes == [
        "PersistentVolumeClaim data: taken as bound to a volume that every node reaches"
    ], "where its volume will be is not known"


def test_a_claim_that_nothing_provisions_keeps_its_pod_waiting() -> None:
    assert gangs(asked(CLAIM, user())) == [("default/user", "not", 1)]
    no_default = storage_class("other", "Immediate", default=False)
    assert gangs(asked(CLAIM, no_default, user())) == [("default/user", "not", 1)]
    by_hand = storage_class("usual", "Immediate") | {"provisioner": "kubernetes.io/no-provisioner"}
    assert gangs(asked(CLAIM, by_hand, user())) == [("default/user", "not", 1)]
    none = deepcopy(CLAIM)
    none["spec"]["storageClassName"] = ""
    assert gangs(asked(none, storage_class("usual", "Immediate"), user())) == [("default/user", "not", 1)]


ALL = [
    *BESIDE,
    job(2),
    quota({"pods": 3}),
    limit_range(default={"cpu": "2"}),
    user(),
    CLAIM,
    storage_class("usual", "Immediate"),
    named("ray.io/v1", "RayCluster", ray_cluster(enableInTreeAutoscaling=True)),
    named("ray.io/v1", "RayJob", {"rayClusterSpec": ray_cluster()}),
    named("ray.io/v1", "RayService", {"rayClusterConfig": ray_cluster()}),
    named("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=2)}),
    named(
        "kubeflow.org/v2beta1",
        "MPIJob",
        {"mpiReplicaSpecs": replicas(Worker=2), "runPolicy": {"schedulingPolicy": {"minAvailable": 1}}},
    ),
    of_runtime(podGroupPolicy={"coscheduling": {}}),
    train_job(
        trainer={"numNodes": 3, "resourcesPerNode": {"limits": {"cpu": 1}}},
        podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}],
    ),
    named("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": template()}}}, name="cron"),
    named("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "w", "template": template()}]}, name="v"),
    named("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": job(1)}]}, name="w"),
]
WRONG: list[Any] = [
    *(None, 0, -1, 10**30, 3.5, True, "", "x" * 5000, "\x1b[2J", "1e400", float("inf"), float("nan")),
    *([], {}, [1], [None], [[]], ["x"], {"a": 1}, {"name": None}, {"": ""}, {"limits": {"cpu": []}}),
]


def fields(found: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Every field below the top ones, with the object or list that it is in."""
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [
        one
        for key, value in items
        for one in (*([(found, key)] if depth or key == "spec" else []), *fields(value, depth + 1))
    ]


@pytest.mark.parametrize("seed", range(300))
def test_anything_wrong_anywhere_is_an_answer_or_an_error_with_its_place(seed: int) -> None:
    rng = Random(seed)
    documents = deepcopy(rng.sample(ALL, rng.randint(1, 4)))
    for _ in range(rng.randint(1, 3)):
        if there := fields(rng.choice(documents)):
            where, key = rng.choice(there)
            where[key] = deepcopy(rng.choice(WRONG))
    try:
        found = asked(*documents)
    except ConfigError as error:
        text = str(error)
        assert text.startswith(("job.yaml", "spec.schedulerName: pod ", "pod ")), f"seed {seed}: {text[:200]}"
        assert len(text) < 2500, f"seed {seed}: {len(text)} characters"
        assert "\x1b" not in text, f"seed {seed}"
    else:
        assert all(len(note) < 2500 and note.isprintable() for note in found.notes), f"seed {seed}"
