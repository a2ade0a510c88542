"""What if: manifests become the pods that their controllers would make, or a clear error."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.command.cli import main
from gangsched.config import Settings
from gangsched.errors import ConfigError
from gangsched.lab.sim.making import make_scheduler
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.text.quantity import to_int
from gangsched.whatif.cluster import Cluster, read_class
from gangsched.whatif.files import read_documents, text_of, texts_of
from gangsched.whatif.manifests import Manifests, kinds_of, read_manifests
from tests.support.yaml_bombs import BOMBS, refused

KINDS = kinds_of(make_scheduler(Settings()))
GPU = "nvidia.com/gpu"
SPEC: dict[str, Any] = {
    "schedulerName": "gangsched",
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: 2}}}],
}
TEMPLATE = {"metadata": {"labels": {"app": "train"}}, "spec": SPEC}


def read(tmp_path: Path, *documents: Any, priorities: dict[str, int] | None = None) -> Manifests:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return read_file(str(file), priorities)


def read_file(path: str, priorities: dict[str, int] | None = None) -> Manifests:
    classes = {
        name: read_class({"metadata": {"name": name}, "value": value})
        for name, value in (priorities or {}).items()
    }
    return read_manifests(read_documents([text_of(path)]), KINDS, Cluster(classes))


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"template": TEMPLATE, **spec},
    }


def keys(pods: list[Pod]) -> list[str]:
    return [pod.key for pod in pods]


def test_a_pod_is_itself_and_limits_are_requests(tmp_path: Path) -> None:
    (pod,) = read(tmp_path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC}).pods
    assert pod.key == "default/p"
    assert pod.spec.containers[0].resources is not None
    requests = pod.spec.containers[0].resources.requests
    assert requests is not None
    assert to_int(str(requests[GPU])) == 2


def test_a_job_has_as_many_pods_as_run_at_once(tmp_path: Path) -> None:
    found = read(tmp_path, job(parallelism=3, completions=10, completionMode="Indexed"))
    assert keys(list(found.pods)) == ["ml/train-0", "ml/train-1", "ml/train-2"]
    assert [pod.metadata.owner_references[0].kind for pod in found.pods if pod.metadata.owner_references] == [
        "Job"
    ] * 3
    assert [
        (pod.metadata.annotations or {})["batch.kubernetes.io/job-completion-index"] for pod in found.pods
    ] == [
        "0",
        "1",
        "2",
    ]
    assert len(read(tmp_path, job(parallelism=5, completions=2)).pods) == 2
    assert len(read(tmp_path, job()).pods) == 1


def test_a_job_set_has_the_pods_of_all_its_jobs(tmp_path: Path) -> None:
    job_template = {
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": TEMPLATE}
    }
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {
            "replicatedJobs": [
                {"name": "driver", "replicas": 1, "template": job_template},
                {"name": "worker", "replicas": 2, "template": job_template},
            ]
        },
    }
    found = read(tmp_path, document)
    assert keys(list(found.pods))[:3] == [
        "default/js-driver-0-0",
        "default/js-driver-0-1",
        "default/js-worker-0-0",
    ]
    assert len(found.pods) == 6
    assert {(pod.metadata.labels or {})["jobset.sigs.k8s.io/jobset-name"] for pod in found.pods} == {"js"}
    assert len(found.others) == 1, "the core reads the JobSet itself too"


def test_a_leader_worker_set_has_a_leader_and_workers_a_replica(tmp_path: Path) -> None:
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    }
    found = read(tmp_path, document)
    assert keys(list(found.pods)) == ["default/llm-0", "default/llm-0-1", "default/llm-1", "default/llm-1-1"]


def test_replicas_and_lists_and_groups(tmp_path: Path) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {**TEMPLATE, "spec": {**SPEC, "restartPolicy": "Always"}}},
    }
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2},
    }
    found = read(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [deployment, group]})
    assert keys(list(found.pods)) == ["default/web-0", "default/web-1"]
    made, told = found.others
    assert isinstance(made, ev.OwnerPut)
    assert (made.owner.at_once, str(made.owner.named)) == (2, "Deployment default/web")
    assert isinstance(told, ev.PodGroupAdded)
    assert told.item.metadata.name == "g"


def test_a_class_gives_its_priority(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {**SPEC, "priorityClassName": "high"}
    assert read(tmp_path, pod, priorities={"high": 7}).pods[0].spec.priority == 7
    with pytest.raises(ConfigError, match="no PriorityClass 'high'; did you mean higher"):
        read(tmp_path, pod, priorities={"higher": 7})


@pytest.mark.parametrize("named", [["high"], {"high": 1}, 7])
def test_a_class_that_is_no_text_is_refused_with_its_place(tmp_path: Path, named: object) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod["spec"] = {**SPEC, "priorityClassName": named}
    with pytest.raises(ConfigError, match=r"spec\.priorityClassName: there is no PriorityClass"):
        read(tmp_path, pod, priorities={"high": 7})


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(job())))
    assert len(read_file("-").pods) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "line 1: is not YAML"),
        ("just text", "is not an object with apiVersion and kind"),
        ("", "there is no pod in it"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", "metadata.name: is missing"),
        ("kind: Pod\n", "apiVersion: is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", "spec: is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 3}\n", "pod p: "),
        (
            "apiVersion: batch/v1\nkind: Jobb\nmetadata: {name: p}\n",
            "'Jobb' cannot be made into pods here; did you mean Job?",
        ),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n", "spec: is missing"),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
            "spec: {parallelism: many, template: {spec: {}}}\n",
            "is no Job: Expected `int | null`, got `str` - at `$.spec.parallelism`",
        ),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
            "spec: {parallelism: 99999, completions: 99999, template: {spec: {containers: []}}}\n",
            "spec.parallelism: makes 99999 pods; at most",
        ),
        ("[" * 5000, "is nested more than 100 levels deep"),
        ("\x00", "is not YAML that can be read"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_file(str(file))
    assert str(raised.value).startswith(str(file))
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


TEMPLATES: list[tuple[Any, str]] = [
    ({"spec": {}}, "spec.containers: is missing, or is not a list of objects"),
    ({"spec": {"containers": "main"}}, "spec.containers: is missing, or is not a list of objects"),
    ({"spec": {"containers": [None]}}, "spec.containers: is missing, or is not a list of objects"),
    (
        {"spec": SPEC | {"initContainers": [3]}},
        "spec.initContainers: is missing, or is not a list of objects",
    ),
    (TEMPLATE | {"metadata": [1]}, "metadata: is missing, or is not an object"),
    (TEMPLATE | {"metadata": {"labels": "app"}}, "metadata.labels: is missing, or is not an object"),
    (TEMPLATE | {"metadata": {"annotations": 3}}, "metadata.annotations: is missing, or is not an object"),
]


@pytest.mark.parametrize(("template", "error"), TEMPLATES)
def test_what_is_wrong_in_a_template_is_named_with_its_place(
    tmp_path: Path, template: Any, error: str
) -> None:
    of_jobs: dict[str, Any] = {"spec": {"completionMode": "Indexed", "template": template}}
    of_sets = {"replicatedJobs": [{"template": of_jobs}]}
    of_groups = {"workerTemplate": TEMPLATE, "leaderTemplate": template}
    for version, kind, field, spec in (
        ("apps/v1", "Deployment", f"spec.template.{error}", {"template": template}),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            f".leaderTemplate.{error}",
            {"leaderWorkerTemplate": of_groups},
        ),
        # The core reads these too, in its own words.
        ("batch/v1", "Job", "spec.template", of_jobs["spec"]),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "template", of_sets),
    ):
        with pytest.raises(ConfigError) as raised:
            read(tmp_path, {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec})
        assert field in str(raised.value)


def test_lists_of_a_template_that_scheduling_does_not_read_may_be_anything(tmp_path: Path) -> None:
    containers = [container | {"env": "no list"} for container in SPEC["containers"]]
    template = {"metadata": {"finalizers": 3}, "spec": SPEC | {"containers": containers}}
    made = read(tmp_path, job(template=template, completionMode="Indexed", parallelism=2, completions=2))
    assert keys(list(made.pods)) == ["ml/train-0", "ml/train-1"]


def test_of_a_file_without_an_end_only_the_begin_is_read(tmp_path: Path) -> None:
    """A device, or what a pipe brings."""
    file = tmp_path / "long.yaml"
    file.write_text("# \n" * 2_000_000)
    assert len(text_of(str(file))[1]) == 4_000_001
    with pytest.raises(ConfigError, match="has more than 4,000,000 characters"):
        read_file(str(file))


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_short_text_that_stands_for_a_long_one_is_refused(bomb: str) -> None:
    refused(bomb, lambda text: read_documents([("f.yaml", text)]), ConfigError)


def test_a_mistake_in_a_file_is_reported_before_a_cluster_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("a: [")
    assert main(["whatif", "-f", str(file), "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "wrong.yaml: line 1: is not YAML" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--drain", "--without", "--namespace", "--like"])
def test_bytes_that_are_no_text_are_no_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """As a terminal in another encoding sends them."""
    file = tmp_path / "pod.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": SPEC})
    )
    more = ["--add-nodes=1"] if flag == "--like" else []
    arguments = ["-f", str(file), "--server=http://127.0.0.1:9", *more, flag, os.fsdecode(b"n\xff")]
    assert main(["whatif", *arguments]) == 2
    assert "is not UTF-8 text, as names are" in capsys.readouterr().err


def test_a_directory_is_its_manifests_in_order(tmp_path: Path) -> None:
    for name, text in (
        ("b.yaml", "kind: B"),
        ("a.json", '{"kind": "A"}'),
        ("c.yml", "kind: C"),
        ("d.txt", "no"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "deeper").mkdir()
    assert [text for _, text in texts_of(str(tmp_path))] == ['{"kind": "A"}', "kind: B", "kind: C"]
    with pytest.raises(ConfigError, match="is a directory with no file that ends in"):
        texts_of(str(tmp_path / "deeper"))
