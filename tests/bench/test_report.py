"""What is computed from rounds: summaries, ratios and verdicts, and how they look."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gangsched.command.cli import main
from gangsched.lab.bench import tables, targets
from gangsched.lab.bench.command import chosen
from gangsched.lab.bench.rounds import contenders, main_job
from gangsched.lab.bench.rounds.rounds import Round
from gangsched.lab.bench.rounds.workload import Shape
from gangsched.lab.bench.targets import verdict

SHAPE = Shape(n_nodes=1000, n_gangs=875, gang_size=8, gpus=8)


def a_round(scheduler: str, number: int, pods_per_s: float, **changed: Any) -> Round:
    fields: dict[str, Any] = {
        "number": number,
        "scheduler": scheduler,
        "warm_up": False,
        "at": "2026-01-01T00:00:00+0000",
        "n_pods": 7000,
        "n_bound": 7000,
        "first_bind_s": 1.0,
        "last_bind_s": 5.0,
        "pods_per_s": pods_per_s,
        "pods_per_s_from_start": pods_per_s / 2,
        "cpu_us_per_pod": {"scheduler": 200.0, "apiserver": 800.0, "etcd": 400.0},
        "writes_per_pod": 1.25,
        "writes": {"POST pods/binding": 7000},
        "lease_writes": {},
        "peak_memory_mib": 100.0,
        "others_cores": 0.0,
        "disturbed": False,
        "rested": True,
        "gangs": None,
        "problems": [],
    }
    return Round(**(fields | changed))


def assembled(*rounds: Round) -> Any:
    names = list(dict.fromkeys(r.scheduler for r in rounds))
    return main_job.assemble(list(rounds), names, SHAPE, {"cores": 2})


def verdicts(report: Any) -> dict[str, str]:
    return {target.text: verdict(target) for target in report.targets}


def test_warm_ups_are_not_counted_and_disturbed_rounds_are_distinguished() -> None:
    report = assembled(
        a_round(contenders.NULL, 0, 9.0, warm_up=True),
        a_round(contenders.NULL, 1, 1000.0),
        a_round(contenders.GANGSCHED, 1, 900.0),
        a_round(contenders.NULL, 2, 1000.0),
        a_round(contenders.GANGSCHED, 2, 500.0, disturbed=True, others_cores=0.5),
    )
    ours = report.summaries[contenders.GANGSCHED]
    assert (ours.n_rounds, ours.n_disturbed) == (2, 1)
    assert ours.all_rounds[main_job.SPEED].median == 700.0
    assert ours.undisturbed[main_job.SPEED].median == 900.0
    assert report.summaries[contenders.NULL].all_rounds[main_job.SPEED].low == 1000.0
    assert report.ratios[contenders.NULL][main_job.SPEED].median == pytest.approx(0.7)
    assert report.ratios_undisturbed[contenders.NULL][main_job.SPEED].n == 1


def test_targets_follow_the_figures() -> None:
    good = verdicts(assembled(a_round(contenders.GANGSCHED, 1, 800.0), a_round(contenders.NULL, 1, 1000.0)))
    assert good["speed / null binder, first to last bind"] == "met"
    assert good["speed / kube-scheduler, start to last bind"] == "not measured"
    slow = a_round(
        contenders.GANGSCHED, 1, 600.0, first_bind_s=1.6, writes_per_pod=1.26, problems=["something"]
    )
    bad = verdicts(assembled(slow, a_round(contenders.NULL, 1, 1000.0)))
    assert {text for text, said in bad.items() if said == "not met"} == {
        "every check of every gangsched round",
        "API writes a pod",
        "speed / null binder, start to last bind",
        "speed / null binder, first to last bind",
        "first bind after the process starts",
    }


def test_cpu_is_judged_by_that_of_kube_scheduler_in_the_same_round() -> None:
    def said(own_us: float) -> str:
        ours = a_round(contenders.GANGSCHED, 1, 900.0, cpu_us_per_pod={"scheduler": own_us})
        theirs = a_round(contenders.KUBE, 1, 200.0, cpu_us_per_pod={"scheduler": 5000.0})
        return verdicts(assembled(ours, theirs))["scheduler CPU a pod / kube-scheduler's"]

    assert said(450.0) == "met"
    assert said(550.0) == "not met"


def test_a_limit_that_is_reached_is_met() -> None:
    assert verdict(targets.at_most("x", 1.25, 1.25)) == "met"
    assert verdict(targets.at_least("x", 0.7, 0.7)) == "met"
    assert verdict(targets.at_least("x", 0.7, None)) == "not measured"


def test_the_report_prints_with_and_without_disturbed_rounds() -> None:
    ours = [a_round(contenders.GANGSCHED, 1, 900.0), a_round(contenders.GANGSCHED, 2, 500.0, disturbed=True)]
    null = [a_round(contenders.NULL, n, 1000.0) for n in (1, 2)]
    out = io.StringIO()
    tables.print_report(assembled(*ours, *null), Console(file=out, width=150))
    assert "700 (500..900)" in out.getvalue()
    assert "without disturbed rounds" in out.getvalue()
    assert "not measured" in out.getvalue()


def test_a_round_with_problems_says_them() -> None:
    done = a_round(contenders.GANGSCHED, 1, 900.0, problems=["2 pods are not bound"], log_tail="the end")
    said = main_job.describe(done)
    assert "  PROBLEM: 2 pods are not bound" in said
    assert "  | the end" in said
    assert main_job.exit_code(assembled(done)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "1"], "7000 pods of one GPU do not fit on 1 nodes of 8 GPUs"),
        (["--gangs", "0"], "--gangs 0 is less than 1"),
        (["--gpus", "100"], "--gpus 100: a pod needs a CPU too"),
        (["--rounds", "0"], "--rounds 0 is less than 1"),
        (["--schedulers", "volcano"], "'volcano' is not one of null, gangsched"),
        (["--latency", "--schedulers", "null"], "'null' is not one of gangsched"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_missing_binaries_are_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["bench"]) == 2
    assert "`make controlplane` builds them" in capsys.readouterr().err


def test_schedulers_are_taken_once_and_in_the_order_asked_for() -> None:
    import argparse

    args = argparse.Namespace(schedulers="kube-scheduler, null,null", fence=False, record=False)
    assert chosen(args, contenders.ALL) == ["kube-scheduler", "null"]
