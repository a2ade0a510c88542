"""python -m gangsched.lab.sim: which seeds, what it prints of what it finds, and how it ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.errors import ConfigError
from gangsched.lab.sim import command
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.runs.driver import Broken
from gangsched.lab.sim.runs.storms import STORMS, Case, Make, Shrunk, Storm, case, shrink
from gangsched.model import effects as ef
from gangsched.model import events as ev


def which_forgets(settings: Settings) -> Scheduler:
    """A scheduler that takes a bind whose outcome is unknown for failed: devices are given twice."""
    scheduler = make_scheduler(settings)
    handle = scheduler.handle

    def no(events: Sequence[ev.Event], now_s: float) -> list[ef.Effect]:
        return handle([_as_no(event) for event in events], now_s)

    scheduler.handle = no  # type: ignore[method-assign]
    return scheduler


def _as_no(event: ev.Event) -> ev.Event:
    if isinstance(event, ev.BindUnknown):
        return ev.BindFailed(event.uid, event.attempt, 404, "NotFound", event.message)
    return event


FORGETFUL = replace(STORMS["unfenced"], make=which_forgets)


def soonest_to_fail() -> Case:
    """Of a few seeds; what fails late may need nearly all that came before, and cannot be cut down."""
    failures = []
    for one in (case(FORGETFUL, seed) for seed in range(25)):
        failure = one.failure()
        if failure is not None:
            failures.append((seconds(failure), one.seed, one))
    return min(failures)[2]


def seconds(failure: Broken) -> float:
    """When it was found: "seed 5, 37.714 s: …"."""
    _, expected = failure.problem.split(", ", 1)
    return float(expected.split(" s: ")[0])


def test_seeds_are_a_number_a_range_or_of_the_commit() -> None:
    assert list(command.seeds_of("17")) == [17]
    assert list(command.seeds_of("3..5")) == [3, 4, 5]
    assert list(islice(command.seeds_of("8.."), 2)) == [8, 9]
    one, two = islice(command.seeds_of("commit"), 2)
    assert two == one + 1
    assert one == next(iter(command.seeds_of("commit")))


@pytest.mark.parametrize("text", ["", "a..b", "5..3", "..5", "-1", "1..2..3", "1.5"])
def test_what_are_no_seeds_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--seeds: .*(examples|did you mean)"):
        command.seeds_of(text)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (["--storm", "sturm"], "there are storm, calm"),
        (["--jobs", "0"], "at least 1"),
        (["--seeds", "9.."], "--minutes"),
        (["--minutes", "-1"], "more than 0"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    wrong: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(wrong) == 2
    output = capsys.readouterr().err
    assert expected in output
    assert output.count("\n") == 1


def test_seeds_in_which_nothing_is_found_end_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "histories"
    assert command.main(["--storm", "calm", "--seeds", "1..3", "--jobs", "2", "--histories", str(file)]) == 0
    expected = capsys.readouterr().out
    assert "done: 3 runs" in expected
    assert re.search(r"^\w+ +3 seeds, +[0-9.]+ a second of CPU, nothing found$", expected, re.MULTILINE)
    assert re.search(r"^commit ([0-9a-f]{40}|unknown)", expected, re.MULTILINE)
    lines = [line.split() for line in file.read_text().splitlines()]
    assert [(name, seed) for name, seed, *_ in lines] == [("calm", "1"), ("calm", "2"), ("calm", "3")]


def test_what_is_found_is_reported_cut_down_with_the_command_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = soonest_to_fail().seed
    monkeypatch.setitem(STORMS, "storm", FORGETFUL)
    assert command.main(["--seeds", str(seed)]) == 1
    output = capsys.readouterr().out
    assert f"storm: seed {seed}, " in output
    assert "cut down in" in output
    assert f"again: python -m gangsched.lab.sim --storm storm --seeds {seed}" in output
    assert "receives BindUnknown" in output
    assert "1 found" in output


def which_miscounts(make: Make, settings: Settings) -> Scheduler:
    """A scheduler that counts a pod too much at its third attempt to place something."""
    scheduler, n_done = make(settings), 0
    schedule = scheduler.schedule

    def wrongly(group: Group, now_s: float) -> list[ef.Effect]:
        nonlocal n_done
        n_done += 1
        if n_done == 3:
            scheduler.shared.cache.priorities[7] = 1
        return schedule(group, now_s)

    scheduler.schedule = wrongly  # type: ignore[method-assign]
    return scheduler


def miscounting(name: str) -> Storm:
    return replace(STORMS[name], make=partial(which_miscounts, STORMS[name].make))


def test_the_step_that_counted_wrong_is_named_though_few_steps_are_recounted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storm = miscounting("one-process")
    at_once = [case(storm, seed).failure() for seed in range(4)]
    later = [replace(case(storm, seed), recount_every=4).failure() for seed in range(4)]
    assert [str(one) for one in at_once] != [str(one) for one in later]
    monkeypatch.setitem(STORMS, "storm", storm)
    assert command.main(["--seeds", "0..3"]) == 1
    output = capsys.readouterr().out
    for one, sampled in zip(at_once, later, strict=True):
        assert one is not None
        assert sampled is not None
        assert "pods by priority are" in sampled.problem
        assert f"storm: {one.problem}\n" in output


@pytest.mark.parametrize("name", ["storm", "duel"])
def test_no_process_dies_and_no_storm_ends_without_a_recount(name: str) -> None:
    storm = miscounting(name)
    found = [replace(case(storm, seed), recount_every=10**9).failure() for seed in range(4)]
    assert all(one is not None and "pods by priority are" in one.problem for one in found)
    assert min(seconds(one) for one in found if one is not None) < storm.storm_s


def test_what_is_cut_down_still_fails_and_is_smaller() -> None:
    whole = soonest_to_fail()
    found = whole.failure()
    assert found is not None
    shrunk = shrink(whole, found)
    assert shrunk.case.failure() is not None
    assert len(shrunk.case.workload.everything) < shrunk.size_before
    # A bind whose outcome is unknown is all that it takes.
    assert {"lost_before", "lost_after", "conflict"} & set(shrunk.faults)
    everything = Shrunk(whole, found, 0, 0).faults
    assert len(shrunk.faults) < 0.7 * len(everything)
