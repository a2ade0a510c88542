"""The recordings are what a real kube-apiserver says: played again on one of their own."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.lab.controlplane.processes import ControlPlane
from tests.apiserver.kinds.recording import files, load, play_all, recorded
from tests.apiserver.kinds.test_recorded import comparable

pytestmark = pytest.mark.real


@pytest.mark.parametrize("file", files())
def test_a_real_server_still_reports_that(plane: ControlPlane, file: str) -> None:
    said = play_all(load(file), plane, "again")
    truth = recorded(file)
    assert _all(said) == _all(truth)


def _all(answers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [comparable(each) for each in said] for name, said in answers.items()}
