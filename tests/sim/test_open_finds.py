"""What the storms have found and nobody has mended yet: each fails as found, and is told when it does not.

A seed leaves this file together with its mend, whose test says what was wrong.
"""

from __future__ import annotations

import pytest

from gangsched.sim.driver import Broken
from gangsched.sim.storms import STORMS, case


@pytest.mark.xfail(
    strict=True,
    raises=Broken,
    reason="of gangs that start together one rests unschedulable, though a fresh process places them all",
)
def test_a_set_of_three_is_placed_when_there_is_room_again() -> None:
    case(STORMS["calm"], 795131400029).run()
