"""config/samples/controllers/ is what docs/controllers.md shows, which test_controllers.py starts whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.docs.test_controllers import JOBS, OBJECTS

SAMPLES = sorted((DOCS.parent / "config" / "samples" / "controllers").glob("*.yaml"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_the_object_that_the_page_shows(sample: Path) -> None:
    [item] = yaml.safe_load_all(sample.read_text())
    shown = JOBS if item["kind"] == "Job" else OBJECTS
    assert item == shown["admitted" if item["kind"] == "Job" else item["kind"]]


def test_each_object_of_the_page_has_a_sample() -> None:
    kinds = {next(yaml.safe_load_all(sample.read_text()))["kind"] for sample in SAMPLES}
    assert kinds == {*OBJECTS, "Job"}
