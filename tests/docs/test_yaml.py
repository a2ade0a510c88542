"""Every YAML block of the pages is read as what it configures, or applied (test_shown.py)."""

from __future__ import annotations

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
from tests.apiserver.simulated.test_samples import Live
from tests.deploy.generate_chart import CHART
from tests.deploy.helm import RELEASE, found_helm
from tests.docs.pages import ROOT, Block, blocks, blocks_everywhere
from tests.support.bodies import pod_group_definition

_HEAD = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: {KUBE_KIND}\n---\n"
_SCHEDULER, _AGENT, _KUSTOMIZATION = (KUBE_KIND, OUR_KIND), ("AgentConfiguration",), ("Kustomization",)
_CONFIGURES = _SCHEDULER + _AGENT + _KUSTOMIZATION
# Their controllers' part is done in tests.docs.test_controllers and tests.docs.claims_shown.
_MADE_BY_OTHERS = ("JobSet", "LeaderWorkerSet", "RayCluster", "ComputeDomain")
_PLURALS = {
    "Job": "jobs",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
}
_OF_THE_CLUSTER = ("ClusterRole", "ClusterRoleBinding", "DeviceClass", "DeviceTaintRule", "ResourceSlice")
# Whose PodGroups the embedded server does not know.
_OTHERS = ("scheduling.volcano.sh/", "scheduling.run.ai/")
# What the parts of a pod that a page shows are parts of.
POD = """
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


def read(text: str) -> Object:
    """One document."""
    found: Object = yaml.safe_load(text)
    return found


def merged(into: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    found = dict(into)
    for key, value in more.items():
        known = found.get(key)
        found[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return found


def objects_of(block: Block) -> list[Object]:
    """What is applied: its objects, or a pod with the part that it shows."""
    documents = _documents(block)
    if len(documents) == 1 and documents[0].keys() <= {"metadata", "spec"}:
        return [merged(read(POD), documents[0])]
    others = (*_CONFIGURES, *_MADE_BY_OTHERS)
    return [one for one in documents if one.get("kind") not in others and not _is_values(one)]


def _is_values(document: dict[str, Any]) -> bool:
    """Whether these are values of the Helm chart, by their first names."""
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    return "kind" not in document and document.keys() <= known.keys()


def _of_kind(*kinds: str) -> list[Block]:
    return [block for block in BLOCKS if any(one.get("kind") in kinds for one in _documents(block))]


BLOCKS = blocks_everywhere("yaml")
APPLIED = [block for block in BLOCKS if objects_of(block)]


def test_every_block_is_of_a_sort_that_is_tried() -> None:
    strange = [str(block) for block in BLOCKS for one in objects_of(block) if one.get("kind") not in _PLURALS]
    assert not strange, "neither a document of a known kind, nor a part of a pod, nor values of the chart"
    assert len(APPLIED) >= 4
    for kinds in (_SCHEDULER, _KUSTOMIZATION):
        assert _of_kind(*kinds)


async def apply(here: Live, objects: list[Object]) -> None:
    """Creates them, with the definitions that they need."""
    for one in objects:
        if one["kind"] == "PodGroup" and one["apiVersion"].startswith(_OTHERS):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            group, _, version = one["apiVersion"].partition("/")
            await here.client.post(path, msgspec.json.encode(pod_group_definition(group, version)))
        group = one["apiVersion"]
        path = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        if one["kind"] not in _OF_THE_CLUSTER:
            path += "/namespaces/default"
        await here.client.post(f"{path}/{_PLURALS[one['kind']]}", msgspec.json.encode(one))


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
