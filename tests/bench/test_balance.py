"""`bench --load-balance`: its model, who it says is the most even, its picture."""

from __future__ import annotations

import argparse
import io
import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from rich.console import Console

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.framework.interface import CycleState
from gangsched.errors import ConfigError
from gangsched.lab.bench import command
from gangsched.lab.bench.balance import embedded, report, simulated
from gangsched.lab.bench.balance.model import (
    ALGORITHMS,
    AS_PRINTED,
    BASELINE,
    KINDS,
    OURS,
    PLUGINS,
    WORKERS,
    arrivals,
    judge,
    utilisation,
)
from gangsched.lab.bench.balance.picture import picture
from gangsched.lab.bench.balance.real import RealOutcome
from gangsched.lab.bench.balance.report import BalanceReport, Outcome
from gangsched.model.stated.evenness import MODES, Evenness, Mode, load_and_strength, terms_of
from gangsched.model.stated.load import Utilisation
from gangsched.plugins.resources.node_resources_balanced_allocation import Args as BalancedArgs
from gangsched.plugins.resources.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from tests.plugins.build import Cluster as Rows
from tests.plugins.build import node as plain_node
from tests.plugins.build import pod as plain_pod

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def outcome(algorithm: str, spreads: list[float], served: float) -> Outcome:
    placed = {worker.name: {"cpu": 1, "disk": 0} for worker in WORKERS}
    return Outcome(
        algorithm,
        placed,
        dict.fromkeys(MODES, Evenness((0.5, 1.0, 1.5), spreads[0], 1.0)),
        dict.fromkeys(MODES, spreads),
        dict.fromkeys(MODES, Evenness((1.0,) * 3, served, 0.0)),
        1.0,
    )


def judged(ours: tuple[list[float], float], other: tuple[list[float], float]) -> BalanceReport:
    return report.assemble([outcome(BASELINE, *other), outcome(OURS, *ours)])


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


def test_it_names_the_most_even_whichever_it_is() -> None:
    better, worse = ([0.1, 0.2], 0.1), ([0.3, 0.4], 0.3)
    made = judged(better, worse)
    assert set(made.most_even.values()) == {OURS}
    assert made.verdict["paper"] == (
        "H paper: LoadAware is the most even by the median, the only one in 2 of 2 orders of arrival,"
        " and on the API server"
    )
    made = judged(worse, better)
    assert set(made.most_even.values()) == {BASELINE}
    assert made.verdict["literal"].startswith("H literal: Kubernetes 1.11 is the most even")
    made = judged(([0.1, 0.4], 0.5), ([0.3, 0.3], 0.3))
    assert "the only one in 1 of 2 orders of arrival, but not on the API server" in made.verdict["normalized"]


def test_the_baseline_scores_by_equations_1_and_2() -> None:
    """cpu 0.6 and memory 0.25 requested: (4 + 7.5) / 2, and 10 - |0.6 - 0.25| * 10, as scores to 100."""
    node = plain_node("n", allocatable={"cpu": "10", "memory": "8G"})
    rows = Rows(node)
    rows.run(plain_pod("other", requests={"cpu": "5"}), "n")
    asked = plain_pod("p", requests={"cpu": "1", "memory": "2G"})
    plugins = [factory() for factory in PLUGINS.factories.values()]
    given = {one.name: one.score_node(CycleState(), asked, NodeInfo(rows.view, 0, node)) for one in plugins}
    assert given == {"LeastRequested": pytest.approx((4 + 7.5) / 2 * 10)}
    args = BalancedArgs(**ALGORITHMS[0].score["NodeResourcesBalancedAllocation"])
    balanced = NodeResourcesBalancedAllocation(args)
    scores = balanced.score(rows.state, rows.template(asked), rows.view, rows.rows(["n"]))
    assert scores == pytest.approx([(10 - 3.5) * 10])


@pytest.mark.parametrize("mode", MODES)
def test_weighted_by_strength_h_has_the_mean_1_wherever_tasks_are(mode: Mode) -> None:
    """So a larger H on one worker is a smaller one on another, and the spread is what can be judged."""
    terms = np.array([terms_of(worker.performance) for worker in WORKERS]).T
    nothing = np.zeros((4, len(WORKERS)))
    _, strength = load_and_strength(nothing, terms, mode=mode, largest=terms.max(axis=1))
    for tasks in ([*arrivals(0)], [*arrivals(0)[:5]]):
        for cut in range(len(tasks)):
            first, *others = (worker.name for worker in WORKERS)
            found = judge({first: tasks[:cut], others[0]: tasks[cut:], others[1]: []}, mode)
            assert np.average(found.h, weights=strength) == pytest.approx(1.0)


def test_the_experiment_in_simulation_on_one_order_of_arrival() -> None:
    tasks = arrivals(0)
    spreads = {}
    for algorithm in ALGORITHMS:
        placed = simulated.place(algorithm, tasks)
        assert Counter(kind.name for some in placed.values() for kind in some) == Counter(
            kind.name for kind in tasks
        )
        assert placed == simulated.place(algorithm, tasks), "the same again"
        spreads[algorithm.name] = {mode: judge(placed, mode).spread for mode in MODES}
    for mode, name in zip(MODES, (AS_PRINTED, "LoadAware, paper", OURS), strict=True):
        others = [one[mode] for other, one in spreads.items() if other != name]
        assert spreads[name][mode] < min(others), "each mode is the most even by its own H"
    named = [spreads[name]["normalized"] for name in (OURS, "LoadAware without network", BASELINE)]
    assert named == sorted(named)


def test_the_experiment_on_the_embedded_api_server() -> None:
    """The baseline does not depend on when measurements come: the same places as in simulation."""
    tasks = arrivals(0)
    assert embedded.place(BY_NAME[BASELINE], tasks) == simulated.place(BY_NAME[BASELINE], tasks)
    assert judge(embedded.place(BY_NAME[OURS], tasks), "normalized").spread < 0.15


def test_the_picture_is_one_of_svg_with_all_figures() -> None:
    made = judged(([0.125, 0.25], 0.1), ([0.5, 0.75], 0.3))
    root = ElementTree.fromstring(picture(made))
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"worker-1", "worker-2", "worker-3", "LoadAware", "Kubernetes 1.11"} <= set(words)
    assert "The paper's chart: H literal" in words
    assert words.count("0.188") == 2, "by H literal and by H normalized"
    assert words.count("1.50") == 3, "the baseline in both charts, ours in one"
    assert "Most even by H normalized: LoadAware; by H literal: LoadAware" in words


def test_the_report_is_json_too_and_a_picture_that_cannot_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made = judged(([0.1], 0.1), ([0.3], 0.3))
    monkeypatch.setattr(report, "run", lambda progress, *, real_s, on_kubelets: made)
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


def test_the_report_prints_the_workers_and_tasks_that_it_assumes() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    report.print_report(judged(([0.1], 0.1), ([0.3], 0.3)), console)
    lines = [line.replace("│", " ").split() for line in console.export_text().splitlines()]
    assert ["worker-2", "8", "2.4", "16", "125", "200"] in lines
    assert ["network", "8", "250m", "256Mi", "0.3", "0.2", "40", "1"] in lines


def test_what_was_measured_stands_beside_the_simulation() -> None:
    made = judged(([0.1], 0.1), ([0.3], 0.3))
    used = {worker.name: Utilisation(0.5, 0.25, 0.125, 0.0) for worker in WORKERS}
    found = dict.fromkeys(MODES, Evenness((0.7, 1.0, 1.3), 0.245, 0.6))
    ended = ["worker-2: task 4: Killed"]
    made.real = [RealOutcome(OURS, {}, used, used, found, found, ended, 60.0, 3.5)]
    console = Console(width=240, record=True, file=io.StringIO())
    report.print_report(made, console)
    text = console.export_text()
    lines = [line.replace("│", " ").split() for line in text.splitlines()]
    assert lines.count(["measured", "0.70", "1.00", "1.30", "0.245"]) == len(MODES)
    assert lines.count(["LoadAware", "simulation", "0.50", "1.00", "1.50", "0.100"]) >= len(MODES)
    assert "60 s with all tasks; the machine's load average at the end was 3.5" in text
    assert "a task has ended early: worker-2: task 4: Killed" in text
    assert msgspec.json.decode(msgspec.json.encode(made), type=BalanceReport) == made


def test_a_time_that_is_too_long_is_refused() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(ConfigError, match="--real 3600 is not within 0 to 600 seconds"):
        command.run(parser.parse_args(["--load-balance", "--real", "3600"]))
