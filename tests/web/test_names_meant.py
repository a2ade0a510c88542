"""Names as people type them: a misspelt gang, a Job, a pod, another namespace, Jobs that cannot make pods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster, write_kubeconfig
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.stories import Stories
from tests.support.scenario import cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import serving

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name: str, gang_name: str = "", members: int = 2, **pod: Any) -> dict[str, Any]:
    metadata = {
        "labels": {"gangsched.io/pod-group": gang_name or name},
        "annotations": {"gangsched.io/min-members": str(members)},
    }
    spec = {"schedulerName": "gangsched", "restartPolicy": "Never", **pod}
    spec["containers"] = [{"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": 2, "completions": 2, "template": {"metadata": metadata, "spec": spec}},
    }


async def create(client: ApiClient, document: dict[str, Any]) -> None:
    await client.post(JOBS, json.dumps(document).encode())


async def pods_of(client: ApiClient, name: str) -> list[str]:
    """Waits until the Job has its two pods."""
    while True:
        found = msgspec.json.decode(await client.get("/api/v1/namespaces/default/pods"))["items"]
        names = [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(name)]
        if len(names) == 2:
            return names
        await anyio.sleep(0.05)


async def test_each_name_is_answered_by_what_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with EmbeddedCluster(nodes=4) as api:
        config = write_kubeconfig(tmp_path / "config", api.url)
        flags = ["--kubeconfig", str(config), "--server", "https://127.0.0.1:1"]

        async def said(command: str, name: str, *more: str) -> str:
            await anyio.to_thread.run_sync(main, [command, name, *flags, *more])
            out = capsys.readouterr()
            return " ".join((out.err + out.out).split())

        async with ApiClient(await load_credentials(kubeconfig=str(config))) as client:
            await create(client, job("train"))
            await create(client, job("minbig", members=8))
            await create(client, job("launch", "training", priorityClassName="hihg"))
            klass = {"metadata": {"name": "high"}, "value": 5}
            await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", json.dumps(klass).encode())
            await create(client, {**job("asleep"), "spec": {**job("asleep")["spec"], "suspend": True}})
            pod = (await pods_of(client, "train"))[0]
            await pods_of(client, "minbig")
            while b"no PriorityClass" not in await client.get(
                "/apis/events.k8s.io/v1/namespaces/default/events"
            ):
                await anyio.sleep(0.05)

        for name in ("launch", "training", "job/launch"):
            told = await said("explain", name)
            assert "Job default/launch has no pods: creating them failed: " in told, told
            assert "no PriorityClass with name hihg was found; did you mean high" in told
        assert "Job default/asleep has no pods: it is suspended (spec.suspend)" in await said(
            "explain", "asleep"
        )
        assert "default/trian; did you mean default/train?" in await said("explain", "trian")
        told = await said("explain", "other/train")
        assert "; there is one in namespace default: gangsched explain -n default train" in told
        assert "did you mean" not in await said("explain", "default/nothing-like-it")
        for name in ("job/train", "jobs.batch/train", "pods/" + pod, pod):
            told = await said("explain", name)
            assert "default/train: " in told, told
            assert "2 of 2 members exist" in told
        assert f"note: default/{pod} is of the gang default/train" in told
        told = await said("explain", "minbig")
        assert "gangsched.io/min-members is 8 and Job minbig makes 2 at once (parallelism" in told
        await anyio.to_thread.run_sync(main, ["gangs", "-n", "nosuch", "--kubeconfig", str(config)])
        assert capsys.readouterr().out == (
            "There is no gang in namespace nosuch; there is no such namespace; 2 elsewhere (-A).\n"
        )


async def test_the_running_scheduler_is_asked_about_the_gang_that_is_meant(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = cluster(nodes=1)
    c.submit(gang("train", pods=2, gpus=8)).run()
    async with EmbeddedCluster(nodes=1) as api:
        config = write_kubeconfig(tmp_path / "config", api.url)
        async with ApiClient(await load_credentials(kubeconfig=str(config))) as client:
            space = {"metadata": {"name": "d"}}
            await client.post("/api/v1/namespaces", json.dumps(space).encode())
            labels = {"gangsched.io/pod-group": "train"}
            meta = {"name": "p0", "labels": labels, "annotations": {"gangsched.io/min-members": "2"}}
            body = {"metadata": meta, "spec": job("x")["spec"]["template"]["spec"]}
            await client.post("/api/v1/namespaces/d/pods", json.dumps(body).encode())
        pages = Explanations(c.scheduler, clock_s=lambda: c.now_s)
        stories = Stories(c.scheduler, clock_s=lambda: c.now_s)
        queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
        server = ApiServer()
        server.may |= {("prometheus", f"/{page}/d/p0") for page in ("explain", "story")}
        async with serving(pair, explanations=pages, stories=stories, queue=queue, api=server) as client_:
            flags = [
                f"--server=https://127.0.0.1:{client_.port}",
                "--token=good",
                "--kubeconfig",
                str(config),
            ]
            for command in ("explain", "story"):
                await anyio.to_thread.run_sync(main, [command, "d/p0", *flags])
                out = capsys.readouterr().out
                assert out.startswith("d/train"), out
                assert "unschedulable" in out
                assert "No scheduler explains it" not in out
            await anyio.to_thread.run_sync(main, ["queue", "-n", "d2", *flags])
            assert capsys.readouterr().out.startswith(
                "Nothing waits in namespace d2; there is no such namespace"
            )
