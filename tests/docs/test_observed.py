"""What a scheduler really says, in storms of faults, is what docs/troubleshooting.md explains.

test_messages.py goes by the source; this goes by what people see, put together from several sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gangsched.config import Settings
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.workloads.arrivals import Workload, preempting_workload, random_workload
from gangsched.lab.sim.world.weather import STORM
from gangsched.model import effects as ef
from tests.docs.messages import VARIES
from tests.docs.pages import DOCS, code_spans

# Shorter ones would explain anything.
_FEWEST_LETTERS = 12
_SPANS = [span for span in code_spans(DOCS / "troubleshooting.md") if VARIES in span or " " in span]
EXPLAINED = [
    re.compile(".*".join(re.escape(piece) for piece in span.split(VARIES)), re.DOTALL)
    for span in _SPANS
    if len(re.findall("[A-Za-z]", span)) >= _FEWEST_LETTERS
]


class Listening(Simulation):
    """Remembers what is said to people, and by which reason."""

    said: dict[str, str]

    def __init__(self, seed: int, workload: Workload) -> None:
        self.said = {}
        super().__init__(seed, workload, rates=STORM, settings=Settings())

    def _send(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.RecordEvent | ef.WritePodCondition):
            self.said.setdefault(effect.message, effect.reason)
        super()._send(effect)


@pytest.mark.parametrize("seed", range(9000, 9006))
@pytest.mark.parametrize("make", [random_workload, preempting_workload], ids=lambda make: make.__name__)
def test_whatever_is_said_is_explained(seed: int, make: Callable[[int], Workload]) -> None:
    sim = Listening(seed, make(seed))
    sim.run_for(40.0)
    strange = [f"{reason}: {text}" for text, reason in sim.said.items() if text and not _is_explained(text)]
    assert sim.said
    assert not strange, f"seed {seed}, not in docs/troubleshooting.md:\n" + "\n".join(strange)


def _is_explained(text: str) -> bool:
    return any(pattern.search(text) for pattern in EXPLAINED)


def test_a_message_without_an_explanation_is_found() -> None:
    assert not _is_explained("the moon is in the wrong quarter")
    assert _is_explained("gang d/a waits for members: 3 of 4 exist, 1 more are gated")
