"""Every YAML block of the pages works: it is applied and scheduled, or read as what it configures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gangsched.agent.settings import AgentFlags, parse_settings
from gangsched.config import parse_config
from gangsched.config.documents import KUBE_KIND, OUR_KIND
from gangsched.extension.loading import KnownPlugins
from gangsched.lab.apiserver.strategy import Object
from gangsched.plugins import build_profiles
from tests.apiserver.simulated.test_samples import Live, live
from tests.deploy.generate_chart import CHART
from tests.deploy.helm import RELEASE, found_helm
from tests.docs.pages import ROOT, Block, blocks, blocks_everywhere
from tests.support.bodies import pod_group_definition

_HEAD = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: {KUBE_KIND}\n---\n"
_SCHEDULER, _AGENT, _KUSTOMIZATION = (KUBE_KIND, OUR_KIND), ("AgentConfiguration",), ("Kustomization",)
_CONFIGURES = _SCHEDULER + _AGENT + _KUSTOMIZATION
# Their controllers' part is done in tests.docs.test_controllers.
_MADE_BY_OTHERS = ("JobSet", "LeaderWorkerSet", "RayCluster")
_PLURALS = {
    "Job": "jobs",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}
# Whose PodGroups the embedded server does not know.
_OTHERS = ("scheduling.volcano.sh/", "scheduling.run.ai/")
# A page shows this one to be refused.
_TOO_BIG = "too-big"
_TOLD = re.compile("of 20 fit|waits as a whole")
# What the parts of a pod that a page shows are parts of.
_POD = """
apiVersion: v1
kind: Pod
metadata: {name: shown}
spec:
  schedulerName: gangsched
  restartPolicy: Never
  containers:
  - name: main
    image: busybox
    command: [sleep, "60"]
    resources: {limits: {nvidia.com/gpu: 2}}
"""


def _documents(block: Block) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(block.text) if each]


def _merged(into: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(into)
    for key, value in more.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _objects(block: Block) -> list[Object]:
    """What is applied: its objects, or a pod with the part that it shows."""
    documents = _documents(block)
    if len(documents) == 1 and documents[0].keys() <= {"metadata", "spec"}:
        return [_merged(yaml.safe_load(_POD), documents[0])]
    others = (*_CONFIGURES, *_MADE_BY_OTHERS)
    return [one for one in documents if one.get("kind") not in others and not _is_values(one)]


def _is_values(document: dict[str, Any]) -> bool:
    """Whether these are values of the Helm chart, by their first names."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    return "kind" not in document and document.keys() <= known.keys()


def _of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if any(one.get("kind") in kinds for one in _documents(block))]


BLOCKS = blocks_everywhere("yaml")
APPLIED = [block for block in BLOCKS if _objects(block)]


def test_every_block_is_of_a_sort_that_is_tried() -> None:
    strange = [
        str(block)
        for block in BLOCKS
        for one in _documents(block)
        if "kind" in one and one["kind"] not in (*_CONFIGURES, *_PLURALS, *_MADE_BY_OTHERS)
    ]
    assert not strange
    assert len(APPLIED) >= 4
    for kinds in (_SCHEDULER, _KUSTOMIZATION):
        assert _of_kind(*kinds)


def _pods_of(objects: list[Object]) -> Iterator[tuple[str, int]]:
    for one in objects:
        if one["kind"] == "Job":
            yield one["metadata"]["name"], one["spec"]["completions"]
        elif one["kind"] == "Pod":
            yield one["metadata"]["name"], 1


async def _apply(here: Live, objects: list[Object]) -> None:
    for one in objects:
        if one["kind"] == "PodGroup" and one["apiVersion"].startswith(_OTHERS):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            group, _, version = one["apiVersion"].partition("/")
            await here.client.post(path, msgspec.json.encode(pod_group_definition(group, version)))
        group = one["apiVersion"]
        path = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        if not one["kind"].startswith("Cluster"):
            path += "/namespaces/default"
        await here.client.post(f"{path}/{_PLURALS[one['kind']]}", msgspec.json.encode(one))


async def _measure(here: Live) -> None:
    """Every node reports its bandwidth, as an agent would."""
    report = {
        "egressMBps": 900,
        "ingressMBps": 850,
        "totalMBps": 1500,
        "observedAt": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = msgspec.json.encode(report).decode()
    change = {"metadata": {"annotations": {"gangsched.io/remaining-bandwidth": text}}}
    for node in here.all("nodes"):
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        await here.client.patch(path, msgspec.json.encode(change))


def _message(pod: Object) -> str:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((one["message"] for one in conditions if one["status"] == "False" and "message" in one), "")


@pytest.mark.parametrize("block", APPLIED, ids=str)
async def test_what_is_applied_is_scheduled(block: Block, tmp_path: Path) -> None:
    objects = _objects(block)
    async with live(tmp_path, nodes=16) as here:
        await _measure(here)
        await _apply(here, objects)
        n_pods = sum(n for _, n in _pods_of(objects))

        def settled() -> bool:
            pods = here.all("pods")
            return len(pods) == n_pods and all(
                one["spec"].get("nodeName") or _TOLD.search(_message(one)) for one in pods
            )

        await here.until(settled)
        is_refused = any(name == _TOO_BIG for name, _ in _pods_of(objects))
        for pod in here.all("pods"):
            assert bool(pod["spec"].get("nodeName")) is not is_refused
            if not is_refused:
                assert "gangsched.io/allocated-devices" in pod["metadata"]["annotations"]


async def test_the_gang_that_is_too_big_is_told_as_the_page_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "getting-started.md"
    [block] = [one for one in blocks(page, "yaml") if _TOO_BIG in one.text]
    [said] = [one.text.strip() for one in blocks(page, "text") if _TOO_BIG in one.text]
    async with live(tmp_path, nodes=16) as here:
        await _apply(here, _objects(block))
        await here.until(lambda: any("of 20 fit" in _message(one) for one in here.all("pods")))
        message = next(text for one in here.all("pods") if "of 20 fit" in (text := _message(one)))
    before, _, after = said.partition("member ")
    assert message.startswith(before)
    assert message.endswith(after[after.index(":") :])


def _plugins_shown(directory: Path) -> KnownPlugins:
    """The plugins of the tutorial's last version of each."""
    shown = [block.text for block in blocks(ROOT / "docs" / "writing-plugins.md", "python")]
    paths = []
    for i, text in enumerate(shown[1:]):
        path = directory / f"shown_{i}.py"
        path.write_text(text)
        paths.append(str(path))
    return KnownPlugins(paths)


@pytest.mark.parametrize("block", _of_kind(*_SCHEDULER), ids=str)
def test_a_configuration_is_right(block: Block, tmp_path: Path) -> None:
    known = _plugins_shown(tmp_path) if "writing-plugins" in str(block) else KnownPlugins([])
    text = block.text if KUBE_KIND in block.text else _HEAD + block.text
    config = parse_config(text, source=str(block), plugins=known)
    assert build_profiles(config, known.factories)


@pytest.mark.parametrize("block", _of_kind(*_KUSTOMIZATION), ids=str)
def test_a_kustomization_names_what_is_there(block: Block) -> None:
    [document] = _documents(block)
    for kind, folders in (("Kustomization", "resources"), ("Component", "components")):
        for folder in document.get(folders, ()):
            found = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())
            assert found["kind"] == kind


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if any(map(_is_values, _documents(block)))], ids=str
)
def test_values_of_the_chart_make_a_configuration_that_is_right(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(block.text)
    text = found_helm(tmp_path)("template", RELEASE, str(CHART), f"--values={path}")
    [made] = [one["data"] for one in yaml.safe_load_all(text) if one and one["kind"] == "ConfigMap"]
    config = parse_config(made["scheduler.yaml"], source=str(block), plugins=KnownPlugins([]))
    assert build_profiles(config, KnownPlugins([]).factories)


@pytest.mark.parametrize("block", _of_kind(*_AGENT), ids=str)
def test_an_agents_file_is_right(block: Block) -> None:
    parse_settings(block.text, source=str(block), flags=AgentFlags(node_name="n1"), environ={})
