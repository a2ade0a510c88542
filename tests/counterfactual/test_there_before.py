"""What a recorded day would have been for pods that ran already when the recording began."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsched.counterfactual.gangs import Gang, shaken
from gangsched.counterfactual.reading import read_day
from gangsched.journal.segments import segments_in
from gangsched.sim.workloads import Arrival
from tests.counterfactual.days import cluster, gang, record
from tests.counterfactual.test_counterfactual import asked, of


def from_the_middle(directory: Path, arrivals: list[Arrival], *, began_s: float, for_s: float) -> None:
    """The journal of a second process alone, on two nodes of 8 GPUs."""
    record(directory, cluster(2), arrivals, for_s=for_s, crash_s=began_s)
    segments_in(directory)[0].path.unlink()


def test_what_ran_before_the_recording_ends_on_shaken_days_when_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken to be bound when the recording began, and so ended by so much later."""
    arrivals = [
        gang(10.0, "first", pods=2, gpus=8, run_s=400.0),
        gang(250.0, "second", pods=2, gpus=8, run_s=50.0),
    ]
    from_the_middle(tmp_path, arrivals, began_s=200.0, for_s=700.0)
    day = read_day(segments_in(tmp_path))
    first = [life for life in day.lives.values() if life.was_bound]
    second = [uid for uid, life in day.lives.items() if not life.was_bound]
    assert (len(first), len(second)) == (2, 2)
    shaken_day = shaken(day, [Gang("d/second", tuple(second), 50.0)], 1)
    assert [shaken_day.lives[life.uid] for life in first] == first
    found = asked(capsys, tmp_path, "--nodes", "+2", "--like", "n0", seeds=3)
    by_s = of(found, "second").by_s
    # second waits for the end of first, may come 5 s earlier or later, and is in backoff for 10 s at most
    assert abs(by_s.low - by_s.value) < 16.0
    assert abs(by_s.high - by_s.value) < 16.0
