"""`bench --load-balance`: its model, who it says is the most even, its picture."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from gangsched.bench import command
from gangsched.bench.balance import embedded, report, simulated
from gangsched.bench.balance.model import ALGORITHMS, KINDS, OURS, WORKERS, arrivals, judge, utilisation
from gangsched.bench.balance.picture import picture
from gangsched.bench.balance.report import BalanceReport, Outcome
from gangsched.errors import ConfigError
from gangsched.model.evenness import Evenness

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def outcome(algorithm: str, spreads: list[float], served: float) -> Outcome:
    placed = {worker.name: {"cpu": 1, "disk": 0} for worker in WORKERS}
    return Outcome(
        algorithm,
        placed,
        Evenness((0.5, 1.0, 1.5), spreads[0], 1.0),
        spreads,
        Evenness((1.0,) * 3, served, 0.0),
        1.0,
    )


def judged(ours: tuple[list[float], float], other: tuple[list[float], float]) -> BalanceReport:
    return report.assemble([outcome("other", *other), outcome(OURS, *ours)])


def test_three_unequal_workers_and_35_tasks_of_four_kinds_the_same_for_all() -> None:
    assert len(WORKERS) == 3
    assert len({worker.performance for worker in WORKERS}) == 3
    first, second = arrivals(0), arrivals(1)
    assert len(first) == 35
    assert first != second
    assert Counter(kind.name for kind in first) == Counter(kind.name for kind in second)
    assert first == arrivals(0)
    assert len(KINDS) == 4


def test_what_tasks_use_adds_up_and_a_worker_is_never_more_than_full() -> None:
    network = KINDS[2]
    (small_link,) = (worker for worker in WORKERS if worker.performance.network_mbps == 125)
    assert utilisation(small_link, [network] * 2).network == pytest.approx(2 * 40 / 125)
    assert utilisation(small_link, [network] * 8).network == 1.0


def test_it_says_that_load_aware_is_the_most_even_only_if_it_is() -> None:
    better, worse = ([0.1, 0.2], 0.1), ([0.3, 0.4], 0.3)
    said = judged(better, worse)
    assert said.is_most_even
    assert said.verdict.startswith("LoadAware is the most even: in 2 of 2 orders")
    said = judged(worse, better)
    assert not said.is_most_even
    assert said.verdict.startswith("LoadAware is not the most even: in 0 of 2 orders")
    said = judged(([0.1, 0.2], 0.5), worse)
    assert not said.is_most_even
    assert said.verdict.startswith("LoadAware is the most even in simulation only")
    said = judged(([0.3, 0.5], 0.1), worse)
    assert said.verdict.startswith("LoadAware is the most even on the API server only")


def test_the_experiment_in_simulation_on_one_order_of_arrival() -> None:
    tasks = arrivals(0)
    spreads = {}
    for algorithm in ALGORITHMS:
        placed = simulated.place(algorithm, tasks)
        assert Counter(kind.name for some in placed.values() for kind in some) == Counter(
            kind.name for kind in tasks
        )
        assert placed == simulated.place(algorithm, tasks), "the same again"
        spreads[algorithm.name] = judge(placed).spread
    assert spreads[OURS] < spreads["load without network"] < spreads["LeastAllocated + BalancedAllocation"]


def test_the_experiment_on_the_embedded_api_server() -> None:
    """LeastAllocated does not depend on when measurements come: the same places as in simulation."""
    tasks = arrivals(0)
    algorithm = BY_NAME["LeastAllocated + BalancedAllocation"]
    assert embedded.place(algorithm, tasks) == simulated.place(algorithm, tasks)
    assert judge(embedded.place(BY_NAME[OURS], tasks)).spread < 0.15


def test_the_picture_is_one_of_svg_with_all_figures() -> None:
    made = judged(([0.125, 0.25], 0.1), ([0.5, 0.75], 0.3))
    root = ElementTree.fromstring(picture(made))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"worker-1", "worker-2", "worker-3", "LoadAware", "other", made.verdict} <= set(words)
    assert "spread 0.188" in words
    assert words.count("1.50") == 2


def test_the_report_is_json_too_and_a_picture_that_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = judged(([0.1], 0.1), ([0.3], 0.3))
    monkeypatch.setattr(report, "run", lambda progress: made)
    # Logs would go to this test's stderr for as long as the process lives.
    monkeypatch.setattr("gangsched.logs.set_up_logs", lambda style: None)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    file = tmp_path / "balance.svg"
    assert command.run(parser.parse_args(["--load-balance", "-o", "json", "--picture", str(file)])) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=BalanceReport) == made
    assert file.read_text().startswith("<svg")
    with pytest.raises(ConfigError, match="cannot be written"):
        command.run(parser.parse_args(["--load-balance", "--picture", str(tmp_path / "no" / "x.svg")]))
    assert json.loads(msgspec.json.encode(made))["verdict"] == made.verdict
