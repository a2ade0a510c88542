"""The objects on docs/controllers.md are applied, their controllers' pods made as these would, and all bound.

From the templates on the page, so that what it leaves out would be missed; one pod short and none starts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from gangsched.config import SchedulerConfig, default_config
from gangsched.model.owners import ORDERED, OWNER_KINDS
from gangsched.plugins import IN_TREE
from tests import controllers as made
from tests.apiserver.simulated.test_samples import Live, live
from tests.controllers import Json
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "controllers.md"
OBJECTS = {
    one["kind"]: one
    for block in blocks(PAGE, "yaml")
    for one in yaml.safe_load_all(block.text)
    if one["kind"] in OWNER_KINDS and one["kind"] != "Job"
}
JOBS = {
    one["metadata"]["name"]: one
    for block in blocks(PAGE, "yaml")
    for one in yaml.safe_load_all(block.text)
    if one["kind"] == "Job"
}


def everything() -> SchedulerConfig:
    config = default_config(IN_TREE)
    inferred = dict.fromkeys(config.settings.infer_gangs, ORDERED)
    return replace(config, settings=replace(config.settings, infer_gangs=inferred))


def with_spec(pods: list[Json], template: Json) -> list[Json]:
    return [{**pod, "spec": template["spec"]} for pod in pods]


def pods_of(item: Json) -> list[list[Json]]:
    """Its pods, gang by gang."""
    name, spec = item["metadata"]["name"], item["spec"]
    if item["kind"] == "JobSet":
        jobs = {one["name"]: one for one in spec["replicatedJobs"]}
        roles = {
            role: (one["replicas"], one["template"]["spec"]["parallelism"]) for role, one in jobs.items()
        }
        pods = made.job_set_pods(name, roles)
        role_of = "jobset.sigs.k8s.io/replicatedjob-name"
        return [
            [
                {**p, "spec": jobs[p["metadata"]["labels"][role_of]]["template"]["spec"]["template"]["spec"]}
                for p in pods
            ]
        ]
    if item["kind"] == "LeaderWorkerSet":
        size, template = spec["leaderWorkerTemplate"]["size"], spec["leaderWorkerTemplate"]["workerTemplate"]
        return [
            with_spec(made.leader_worker_pods(name, size=size, replica=k), template)
            for k in range(spec["replicas"])
        ]
    [group] = spec["workerGroupSpecs"]
    head, *workers = made.ray_pods(name, workers=group["replicas"])
    return [with_spec([head], spec["headGroupSpec"]["template"]) + with_spec(workers, group["template"])]


async def post(here: Live, path: str, item: Json) -> None:
    await here.client.post(path, msgspec.json.encode(item))


async def create(here: Live, pod: Json) -> None:
    """Without its owner, which is not here: the garbage collector is."""
    metadata = {key: value for key, value in pod["metadata"].items() if key != "ownerReferences"}
    await post(here, "/api/v1/namespaces/default/pods", {**pod, "metadata": metadata})


def bound(here: Live) -> set[str]:
    return {one["metadata"]["name"] for one in here.all("pods") if one["spec"].get("nodeName")}


def said(here: Live) -> str:
    return " ".join(
        condition.get("message", "")
        for one in here.all("pods")
        for condition in one.get("status", {}).get("conditions", ())
    )


def test_the_page_has_an_object_of_each_kind() -> None:
    assert set(OBJECTS) == {"JobSet", "LeaderWorkerSet", "RayCluster"}
    assert set(JOBS) == {"admitted", "indexed"}


async def starts_whole(here: Live, gang: list[Json]) -> None:
    before, n = bound(here), len(gang)
    for pod in gang[:-1]:
        await create(here, pod)
    await here.until(lambda: f"waits for members: {n - 1} of {n} exist" in said(here))
    assert bound(here) == before
    await create(here, gang[-1])
    names = {pod["metadata"]["name"] for pod in gang}
    await here.until(lambda: names <= bound(here))


@pytest.mark.parametrize("kind", OBJECTS)
async def test_an_object_of_the_page_starts_whole(kind: str, tmp_path: Path) -> None:
    item, one = OBJECTS[kind], OWNER_KINDS[kind]
    async with live(tmp_path, nodes=16, config=everything()) as here:
        await post(here, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made.crd(kind))
        version = item["apiVersion"].rpartition("/")[2]
        path = f"/apis/{one.group}/{version}/namespaces/default/{one.resource}"
        await post(here, path, item)
        for gang in pods_of(item):
            await starts_whole(here, gang)


async def test_a_job_of_the_page_is_one_gang_where_jobs_are_inferred(tmp_path: Path) -> None:
    async with live(tmp_path, nodes=3, config=everything()) as here:
        await post(here, "/apis/batch/v1/namespaces/default/jobs", JOBS["indexed"])
        await here.until(lambda: "Insufficient nvidia.com/gpu" in said(here))
        await asyncio.sleep(0)
        assert not bound(here), "four pods of a whole node each, and three nodes"


async def test_a_job_that_kueue_admitted_is_one_gang(tmp_path: Path) -> None:
    """Kueue's part is done here: the Workload, and the marks in the template that it starts the Job with."""
    job: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(JOBS["admitted"]))
    template = job["spec"]["template"]
    template["metadata"] = {
        "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"kueue.x-k8s.io/workload": "job-admitted"},
    }
    one = OWNER_KINDS["Workload"]
    async with live(tmp_path, nodes=1) as here:
        await post(here, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made.crd("Workload"))
        path = f"/apis/{one.group}/{one.versions[0]}/namespaces/default/{one.resource}"
        await post(here, path, made.workload("job-admitted", asked=4, admitted=4))
        await post(here, "/apis/batch/v1/namespaces/default/jobs", job)
        await here.until(lambda: "Insufficient nvidia.com/gpu" in said(here))
        assert not bound(here), "four pods of half a node each, and one node"
