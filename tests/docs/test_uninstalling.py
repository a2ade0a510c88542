"""What the page on operating has one delete is all that deploy/ can have applied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import Assets
from tests.deploy.generate_chart import DEPLOY, kustomize, objects
from tests.docs.pages import DOCS, ROOT, blocks, commands

_APPLIED = sorted(
    path.parent for path in DEPLOY.rglob("kustomization.yaml") if path.parent.name != "component"
)
# A component: it is nothing by itself, and in deploy/all.
_PARTS = (DEPLOY / "tracing",)
# The page says why: other schedulers' groups would go with it.
_STAYS = ("CustomResourceDefinition", "", "podgroups.scheduling.x-k8s.io")

Name = tuple[str, str, str]


def _names(text: str) -> Iterator[Name]:
    for one in objects(text):
        yield one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


@pytest.fixture(scope="module")
def deleted(assets: Assets) -> set[Name]:
    """By the commands of the page, a namespace for all that is in it."""
    found: set[Name] = set()
    lines = [line for block in blocks(DOCS / "operating.md", "sh") for line in commands(block)]
    for line in lines:
        words = shlex.split(line)
        if words[:2] != ["kubectl", "delete"]:
            continue
        for option, path in pairwise(words):
            if option == "-k":
                found |= set(_names(kustomize(ROOT / path)))
            elif option == "-f":
                found |= set(_names((ROOT / path).read_text()))
    return found


@pytest.mark.parametrize(
    "folder",
    [each for each in _APPLIED if each not in _PARTS],
    ids=lambda each: str(each.relative_to(DEPLOY)),
)
def test_nothing_of_it_stays(folder: Path, deleted: set[Name]) -> None:
    namespaces = {name for kind, _, name in deleted if kind == "Namespace"}
    rest = {one for one in _names(kustomize(folder)) if one[1] not in namespaces} - deleted
    assert rest <= {_STAYS}
