"""What follows from the code is as the code says: references, tables, pictures."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from gangsched.agent.settings import AgentDocument
from gangsched.config.documents.kube import KubeDocument
from gangsched.config.documents.ours import OurDocument
from gangsched.plugins import IN_TREE
from tests.docs import claim_scene, meanings, queues_scene, walk
from tests.docs.generate import fields, keys, pages
from tests.docs.pages import ROOT

DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "KubeSchedulerConfiguration": KubeDocument,
    "GangschedConfiguration": OurDocument,
    "AgentConfiguration": AgentDocument,
    **{name: info.args_type for name, info in IN_TREE.items() if info.args_type is not None},
}


class _Inner(msgspec.Struct):
    described: Annotated[int, msgspec.Meta(description="A number.")] = 0
    silent: int = 0


class _Outer(msgspec.Struct):
    opened: tuple[_Inner, ...] = ()
    closed: Annotated[_Inner | None, msgspec.Meta(description="As above.")] = None


def test_generated_pages_are_fresh() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run `make docs-reference` and commit: {', '.join(stale)}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_says_what_it_means(name: str) -> None:
    silent = [field.path for field in fields(DOCUMENTS[name]) if not field.meaning]
    assert not silent, 'give them Annotated[..., Meta(description="...")]'


def test_a_field_without_a_meaning_is_found_and_one_with_it_is_a_row() -> None:
    found = {field.path: field.meaning for field in fields(_Outer)}
    assert found == {"opened[].described": "A number.", "opened[].silent": "", "closed": "As above."}


def test_every_key_has_a_meaning_and_every_meaning_a_key() -> None:
    assert meanings.KEYS.keys() | meanings.FOREIGN_KEYS.keys() == keys().keys(), "see tests/docs/meanings.py"


@pytest.mark.parametrize("step", [*walk.IN, *walk.CORE, *walk.OUT], ids=lambda step: step.name)
def test_each_step_of_the_walk_is_there(step: walk.Step) -> None:
    """The picture names what exists where it says so, in words that fit its boxes."""
    assert len(step.does) <= walk.MAX_WORDS
    assert len(f"{step.file}  {step.name}") <= walk.MAX_CODE
    path: Path = ROOT / "gangsched" / step.file
    assert path.exists(), "see tests/docs/walk.py"
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in step.name.split("."):
        found = [one for one in body if getattr(one, "name", "") == part]
        assert found, f"{step.file} has no {step.name}; see tests/docs/walk.py"
        body = getattr(found[0], "body", [])


def test_the_picture_of_a_claim_shows_a_promise_that_is_kept_and_only_harmless_fill() -> None:
    of = claim_scene.scene()
    [start] = {one.begin for one in of.ran if one.name == claim_scene.GANG}
    assert of.promised <= start <= of.promised + 0.1
    after = [one for one in of.ran if one.begin >= of.claimed and one.name != claim_scene.GANG]
    assert {one.name for one in after} == {"1 h 30", "2 h", "55 min", "says 3 h"}
    assert all(one.end <= start or one.begin > start for one in after)


def test_the_picture_of_queues_shows_a_guarantee_got_back_at_once_and_then_shares() -> None:
    of = {round(one.hour * 12): one for one in queues_scene.scene()}
    asked, rested = (round(at_s / 300) for at_s in (queues_scene.ASKED_S, queues_scene.RESTED_S))
    assert (of[asked - 1].research, of[asked - 1].rest) == (0, queues_scene.N_GPUS)
    assert of[asked].research == queues_scene.GUARANTEED
    shared = [of[k].research / queues_scene.N_GPUS for k in range(asked + 12, rested)]
    assert abs(sum(shared) / len(shared) - queues_scene.SHARE) < 0.05
    assert (of[119].research, of[119].rest) == (0, queues_scene.N_GPUS)
