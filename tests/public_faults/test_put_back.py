"""Each public fault has a test, which fails once the mistake behind the fault is made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.public_faults import test_devices, test_many_nodes, test_shared_claims, test_writes
from tests.public_faults.faults import ISSUES, SHOWN, Shown
from tests.support.breaking import broken_by

TESTS = Path(__file__).parents[1]
MODULES = (test_devices, test_many_nodes, test_shared_claims, test_writes)


@pytest.mark.parametrize(
    "shown", [pytest.param(one, id=f"{one.number}-{one.mistake.__name__}") for one in SHOWN]
)
def test_the_mistake_is_found_when_it_is_put_back(shown: Shown) -> None:
    with broken_by(shown.mistake), pytest.raises(AssertionError) as raised:
        shown.test()
    last = raised.traceback[-1]
    assert TESTS in Path(last.path).parents, f"not the scenario's own judge: {last}"


def test_every_fault_has_a_test() -> None:
    assert sorted({one.number for one in SHOWN}) == sorted(ISSUES)
    assert len(ISSUES) == 23


def test_every_test_says_where_its_fault_is_told() -> None:
    for one in SHOWN:
        assert ISSUES[one.number] in (one.test.__doc__ or ""), one.test.__name__
    tests = {test for module in MODULES for name, test in vars(module).items() if name.startswith("test_")}
    assert tests == {one.test for one in SHOWN}
