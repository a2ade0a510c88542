"""The recordings are what a real kube-apiserver says: played again on one of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.controlplane.assets import find
from gangsched.controlplane.build import REQUIRE_VARIABLE
from gangsched.controlplane.processes import ControlPlane
from gangsched.errors import ConfigError
from tests.apiserver.kinds.recording import files, load, play_all, recorded
from tests.apiserver.kinds.test_recorded import comparable

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Not the session's: the cases leave nodes, priority classes and definitions behind."""
    try:
        assets = find()
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no real control plane: {error}")
    with ControlPlane(assets=assets, unsafe_no_fsync=True) as running:
        yield running


@pytest.mark.parametrize("file", files())
def test_a_real_server_still_says_so(plane: ControlPlane, file: str) -> None:
    said = play_all(load(file), plane, "again")
    truth = recorded(file)
    assert _all(said) == _all(truth)


def _all(answers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [comparable(each) for each in said] for name, said in answers.items()}
