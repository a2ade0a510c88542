"""What if refuses what the API server refuses, and points at what it takes and nobody means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from gangsched.command.cli import main
from gangsched.lab.apiserver.app import EmbeddedCluster, write_kubeconfig
from tests.whatif.test_manifests import GPU, SPEC, TEMPLATE, job, read

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
REFUSED = "the API server would refuse it: "


def spec(limits: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    container = {**SPEC["containers"][0], "resources": {"limits": limits or {GPU: 2}}}
    return {**SPEC, "containers": [container], **more}


def documents(pod: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """(the same pod by each kind of manifest, where its spec is)."""
    template = {**TEMPLATE, "spec": pod}
    always = {**TEMPLATE, "spec": {**pod, "restartPolicy": "Always"}}
    jobs = [{"name": "w", "template": {"spec": {"template": template}}}]
    workers = {"size": 2, "workerTemplate": always}
    return [
        ({**POD, "spec": pod}, "spec"),
        (job(template=template), "spec.template.spec"),
        (
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": "js"},
                "spec": {"replicatedJobs": jobs},
            },
            "spec.replicatedJobs[0].template.spec.template.spec",
        ),
        (
            {
                "apiVersion": "leaderworkerset.x-k8s.io/v1",
                "kind": "LeaderWorkerSet",
                "metadata": {"name": "llm"},
                "spec": {"leaderWorkerTemplate": workers},
            },
            "spec.leaderWorkerTemplate.workerTemplate.spec",
        ),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "s"},
                "spec": {"template": always},
            },
            "spec.template.spec",
        ),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    ("pod", "field", "says"),
    [
        (
            spec({GPU: 0.5}),
            f".containers[0].resources.limits[{GPU}]",
            'Invalid value: "500m": must be an',
        ),
        (spec({"gpu": 1}), ".containers[0].resources.limits[gpu]", "must be a standard resource type or"),
        (spec({"cpu": "-1"}), ".containers[0].resources.limits[cpu]", "must be greater than or equal to 0"),
        (spec(nodeSelector={"a b": "c"}), ".nodeSelector", "name part must consist of alphanumeric"),
        (spec(tolerations=[{"operator": "Exist"}]), ".tolerations[0].operator", "Exist"),
    ],
)
def test_what_the_api_server_refuses_is_refused_with_its_field(
    tmp_path: Path, pod: dict[str, Any], field: str, says: str, number: int
) -> None:
    document, where = documents(pod)[number]
    with pytest.raises(Exception, match=REFUSED) as caught:
        read(tmp_path, document)
    said = str(caught.value)
    assert f"{where}{field}: {REFUSED}" in said
    assert says in said


@pytest.mark.parametrize("number", range(5))
def test_accepted_values_that_are_surely_mistakes_are_reported(tmp_path: Path, number: int) -> None:
    for amount, told in (
        ("512m", "512m is 0.512 bytes; did you mean 512Mi?"),
        (64, "64 is 64 bytes; did you mean 64Mi?"),
    ):
        document, where = documents(spec({GPU: 2, "memory": amount}))[number]
        found = read(tmp_path, document)
        assert f"{where}.containers[0].resources.limits.memory: {told}" in found.warnings[0]
        assert len(found.warnings) == 1
    document, where = documents(spec({GPU: 2, "memory": "512Mi"}, prioritiClassName="x"))[number]
    [told] = read(tmp_path, document).warnings
    assert told.endswith(f"{where}.prioritiClassName: unknown field, which kubectl refuses")


def test_a_job_says_how_its_pods_are_restarted(tmp_path: Path) -> None:
    for policy, says in ((None, "Required value"), ("Always", "Required value"), ("Nver", "Nver")):
        pod = {name: value for name, value in {**SPEC, "restartPolicy": policy}.items() if value is not None}
        with pytest.raises(Exception, match=f"spec.template.spec.restartPolicy: {REFUSED}{says}|{says}"):
            read(tmp_path, job(template={**TEMPLATE, "spec": pod}))


async def test_each_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with EmbeddedCluster(nodes=4) as api:
        config = tmp_path / "config"
        write_kubeconfig(config, api.url)
        file = tmp_path / "job.yaml"

        async def asked(document: dict[str, Any]) -> tuple[int, str]:
            file.write_text(yaml.safe_dump(json.loads(json.dumps(document))))
            code = await anyio.to_thread.run_sync(
                main, ["whatif", "-f", str(file), "--kubeconfig", str(config)]
            )
            out = capsys.readouterr()
            return code, " ".join((out.out + out.err).split())

        code, text = await asked(job(template={**TEMPLATE, "spec": spec({GPU: 0.5})}))
        assert (code, "would start now" in text) == (2, False)
        assert f'resources.limits[{GPU}]: {REFUSED}Invalid value: "500m": must be an integer' in text
        code, text = await asked(job(template={**TEMPLATE, "spec": spec({GPU: 1, "memory": "512m"})}))
        assert code == 0
        assert text.count("512m is 0.512 bytes; did you mean 512Mi?") == 1
        misspelt = {
            "labels": {"gangsched.io/pod-group": "g"},
            "annotations": {"gangsched.io/min-member": "2"},
        }
        code, text = await asked(job(template={"metadata": misspelt, "spec": spec()}))
        assert code == 3
        assert "It cannot be scheduled as it is written: " in text
        assert text.count("did you mean gangsched.io/min-members?") == 1
        assert "When it would start" not in text
