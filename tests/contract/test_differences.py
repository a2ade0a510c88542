"""Every listed difference is one: both servers are asked, and each must answer as its row says."""

from __future__ import annotations

import pytest

from tests.contract.api import Api
from tests.contract.differences import DIFFERENCES, Difference


@pytest.mark.parametrize("difference", DIFFERENCES, ids=[each.name for each in DIFFERENCES])
def test_a_difference_is_as_listed(api: Api, difference: Difference) -> None:
    assert difference.real != difference.embedded
    assert difference.reason
    expected = difference.real if api.name == "real" else difference.embedded
    assert difference.ask(api) == expected, (
        f"{difference.name} differs no longer, or otherwise: {difference.reason}"
    )
