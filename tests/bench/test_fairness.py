"""`bench --queueing --fairness` on a small cluster: it meets its targets, and shows a core that does not."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.preemption.queue_rights import QueueRights
from gangsched.errors import ConfigError
from gangsched.lab.bench import command
from gangsched.lab.bench.queueing.fairness import (
    Fairness,
    ask_for_guarantees,
    first_hour,
    jain_of_a_day,
    print_fairness,
)

SMALL = (8, 4)
"""Nodes, and GPUs of each."""


def test_two_saturated_teams_share_two_to_one_over_a_day() -> None:
    for seed in range(2):
        jain = jain_of_a_day(seed, *SMALL)
        assert jain >= 0.97, f"seed {seed}: {jain:.4f}"


@pytest.mark.parametrize("mean_s", [180.0, 900.0])
def test_a_team_back_after_a_week_does_not_take_the_cluster(mean_s: float) -> None:
    share = first_hour(1, *SMALL, mean_s)
    assert 0.40 <= share <= 0.60, share


def test_what_is_guaranteed_is_held_within_the_victims_grace() -> None:
    """Borrowers are spread over all nodes."""
    asked, n_lost = ask_for_guarantees(0, *SMALL)
    assert {one.gpus for one in asked} == {1, 4}, "single devices and whole nodes"
    assert sum(one.n_evicted for one in asked) > 8
    assert max(one.late_s for one in asked) <= 5.0
    assert n_lost == 0


def test_a_core_that_does_not_look_at_shares_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(self: QueueBook, name: str, now_s: float) -> float:
        return 0.0

    monkeypatch.setattr(QueueBook, "score", same)
    assert jain_of_a_day(0, *SMALL) < 0.97


def test_a_core_that_forgets_what_others_are_guaranteed_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def loses_nothing(self: QueueRights, name: str, lost: Any) -> bool:
        return False

    monkeypatch.setattr(QueueRights, "_loses", loses_nothing)
    _, n_lost = ask_for_guarantees(0, *SMALL)
    assert n_lost > 0


def test_the_command_answers_programs_and_prints_targets(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--seeds", "1", "--nodes", "4", "--gpus", "1", "-o", "json")
    assert run("--queueing", "--fairness", *arguments) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Fairness)
    assert len(found.jain) == len(found.asked) == 1
    print_fairness(found, Console(width=200))
    printed = capsys.readouterr().out
    assert "Jain, 24 h at 2:1" in printed
    assert printed.count("met") == len(found.targets)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--seeds", "0"), "--seeds 0 is less than 1"),
        (("--nodes", "3"), "at least 4 nodes"),
        (("--speed",), "--speed and --fairness: one of the two"),
    ],
)
def test_a_wrong_option_is_refused(flags: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        run("--queueing", "--fairness", *flags)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))
