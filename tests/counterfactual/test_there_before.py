"""What a recorded day would have been for pods that ran already when the recording began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gangsched.journal.segments import segments_in
from gangsched.lab.counterfactual.gangs import Gang, shaken
from gangsched.lab.counterfactual.reading import read_day
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.workloads.arrivals import Arrival
from gangsched.lab.sim.world.api import GRACE_KEY
from tests.counterfactual.days import cluster, gang, preempted, record
from tests.counterfactual.test_counterfactual import asked, of


def from_the_middle(
    directory: Path,
    arrivals: list[Arrival],
    *,
    began_s: float,
    for_s: float,
    also: Callable[[Simulation], None] = lambda simulation: None,
) -> None:
    """The journal of a second process alone, on two nodes of 8 GPUs."""
    record(directory, cluster(2), arrivals, for_s=for_s, crash_s=began_s, also=also)
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


def test_what_ran_before_and_was_evicted_starts_over_or_runs_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if it had come later: in the model it was on its way out, ended then, and was not made again."""
    arrivals = preempted()
    from_the_middle(tmp_path, arrivals, began_s=50.0, for_s=800.0)
    found = asked(capsys, tmp_path, "--nodes", "+2", "--like", "n0")
    assert (found.recorded.n_evicted, found.model.n_evicted, found.changed.n_evicted) == (2, 2, 0)
    assert found.error.within_1s == 1.0
    late = of(found, "late")
    # low has all of its 301 s before it again when high ends
    assert late.model.wait_s == pytest.approx(late.recorded.wait_s, abs=1.0)
    assert late.recorded.wait_s > 440.0
    # with room for two gangs at a time, high ends about 200 s after it came, and low before or after that
    assert late.changed.wait_s < 170.0


def test_what_was_on_its_way_out_when_the_recording_began_is_recreated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrivals = preempted()
    for one in arrivals[0].pods:
        (one.metadata.annotations or {})[GRACE_KEY] = "60"

    def marked(simulation: Simulation) -> None:
        def now() -> None:
            for pod in list(simulation.api.pods.values()):
                if pod.metadata.deletion_timestamp is not None:
                    simulation.api.set_condition(pod, "DisruptionTarget", "True", "PreemptionByScheduler")

        simulation.timeline.at(105.0, now)

    from_the_middle(tmp_path, arrivals, began_s=110.0, for_s=900.0, also=marked)
    found = asked(capsys, tmp_path, "--nodes", "+2", "--like", "n0")
    late = of(found, "late")
    assert late.recorded.wait_s > 440.0
    assert late.model.wait_s == pytest.approx(late.recorded.wait_s, abs=12.0)
