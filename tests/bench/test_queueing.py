"""`bench --queueing`: workloads, the published policies, the real core in virtual time, and their judge."""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.lab.bench import command
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.queueing import judge, live, policies, report, speed
from gangsched.lab.bench.queueing.policies import EASY, FIRST_FIT, POLICIES, Starts
from gangsched.lab.bench.queueing.traces.jobs import Job, Workload, at_load, in_order, shaken, with_limits
from gangsched.lab.bench.queueing.traces.lublin import lublin
from gangsched.lab.bench.queueing.traces.traces import read_trace

BY_NAME = {policy.name: policy for policy in POLICIES}


def jobs(*rows: tuple[float, float, int, float]) -> Workload:
    """(arrival, run time, devices, limit) on four devices."""
    return Workload("four devices", [Job(i, *row) for i, row in enumerate(rows)], 4)


# 3 of 4 devices are busy until 100; then come one for all, a long one, a short one.
QUEUE = jobs((0.0, 100.0, 3, 100.0), (1.0, 50.0, 4, 50.0), (2.0, 500.0, 1, 500.0), (3.0, 60.0, 1, 60.0))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("first fit", [0.0, 502.0, 2.0, 100.0]),
        ("strict FCFS", [0.0, 100.0, 150.0, 150.0]),
        # The short one ends before the wide one may start; the long one would be in its way.
        ("EASY", [0.0, 100.0, 150.0, 3.0]),
        ("conservative", [0.0, 100.0, 150.0, 3.0]),
        ("shortest first", [0.0, 502.0, 2.0, 100.0]),
    ],
)
def test_each_policy_starts_the_jobs_it_is_known_for(policy: str, starts: list[float]) -> None:
    found = policies.replay(QUEUE, BY_NAME[policy])
    assert found.at_s == starts
    assert judge.problems(QUEUE, found) == []


def test_easy_lets_the_second_be_put_off_and_conservative_does_not() -> None:
    """Job 2 waits behind job 1, the head. Job 3 ends after job 2 could start, but not in the head's way."""
    queue = jobs(
        (0.0, 100.0, 2, 100.0),
        (0.0, 60.0, 2, 60.0),
        (1.0, 10.0, 3, 10.0),
        (2.0, 10.0, 4, 10.0),
        (61.0, 59.0, 1, 59.0),
    )
    easy = policies.replay(queue, EASY).at_s
    conservative = policies.replay(queue, BY_NAME["conservative"]).at_s
    assert (easy[2], easy[3], easy[4]) == (100.0, 120.0, 61.0)
    assert (conservative[2], conservative[3], conservative[4]) == (100.0, 110.0, 120.0)


def test_a_job_that_runs_longer_than_stated_is_waited_for() -> None:
    queue = jobs((0.0, 1000.0, 4, 10.0), (1.0, 10.0, 4, 10.0))
    for policy in POLICIES:
        assert policies.replay(queue, policy).at_s == [0.0, 1000.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_real_core_starts_jobs_as_first_fit_does(seed: int) -> None:
    workload = with_limits(at_load(lublin(60, 32, seed), 0.9), seed)
    ours = live.replay(workload, n_nodes=4, gpus=8, config=report.CONTENDERS[report.OURS])
    assert judge.problems(workload, ours) == []
    assert [len(devices) for devices in ours.devices] == [job.n_devices for job in workload.jobs]
    found = judge.figures(workload, ours)
    expected = judge.figures(workload, policies.replay(workload, FIRST_FIT))
    # Of two that come free in one moment the core may take the other; nothing else differs.
    assert found.mean_slowdown == pytest.approx(expected.mean_slowdown, rel=0.1)
    assert found.utilisation == pytest.approx(expected.utilisation, abs=0.02)


@pytest.mark.parametrize(
    ("starts", "problem"),
    [
        (Starts([0.0, 100.0, math.nan, 3.0]), "job 2 of 1 never started"),
        (Starts([0.0, 100.0, 150.0, 2.0]), "job 3 started 1.0 s before it arrived"),
        (Starts([0.0, 100.0, 150.0]), "4 jobs, 3 starts"),
        (Starts([0.0, 99.0, 150.0, 3.0]), "of 4 devices are held at 99.0 s"),
        (Starts([0.0, 100.0, 150.0, 3.0], ["abc", "abcd", "a", "a"]), "a is held by jobs 0 and 3 at 3.0 s"),
        (Starts([0.0, 100.0, 150.0, 3.0], ["ab", "abcd", "a", "d"]), "job 0 asked for 3 devices and has 2"),
    ],
)
def test_the_judge_finds_what_is_impossible(starts: Starts, problem: str) -> None:
    assert any(problem in found for found in judge.problems(QUEUE, starts))


def test_the_judge_counts_waits_and_who_was_passed() -> None:
    found = judge.figures(QUEUE, policies.replay(QUEUE, FIRST_FIT))
    assert found.most_passed == 2
    assert found.longest_wait_s == 501.0
    slowdowns = [1.0, (501 + 50) / 50, 1.0, (97 + 60) / 60]
    assert found.mean_slowdown == pytest.approx(sum(slowdowns) / 4)


def test_the_model_has_the_published_shape() -> None:
    """Lublin and Feitelson: 24% of one device, 58% powers of two, run times of minutes to days, by day."""
    workload = lublin(20_000, 128, 7)
    sizes = np.array([job.n_devices for job in workload.jobs])
    assert (sizes == 1).mean() == pytest.approx(0.244, abs=0.02)
    is_power = (sizes & (sizes - 1) == 0) & (sizes > 1)
    assert is_power.mean() == pytest.approx(0.576, abs=0.08)  # some of the rest happen to be one
    assert sizes.max() <= 128
    runs_s = np.array([job.run_s for job in workload.jobs])
    small, large = runs_s[sizes <= 4], runs_s[sizes >= 64]
    assert np.median(small) < np.median(large)
    assert runs_s.max() <= math.exp(12)
    hours = np.array([job.arrival_s for job in workload.jobs]) // 3600 % 24
    by_hour = np.bincount(hours.astype(int), minlength=24)
    assert by_hour[10:17].mean() > 2 * by_hour[1:6].mean()
    assert [job.number for job in workload.jobs] == list(range(20_000))


def test_a_seed_is_the_same_workload_again_and_another_seed_another() -> None:
    assert lublin(50, 64, 1) == lublin(50, 64, 1)
    assert lublin(50, 64, 1) != lublin(50, 64, 2)


def test_a_shaken_session_keeps_its_jobs_together() -> None:
    day = [(0.0, "a"), (60.0, "a"), (90.0, "b"), (9000.0, "a")]
    workload = Workload("day", [Job(i, at_s, 10.0, 1, 0.0, user) for i, (at_s, user) in enumerate(day)], 8)
    for seed in range(20):
        found = shaken(workload, seed).jobs
        ours = sorted(job.arrival_s for job in found if job.user == "a")
        assert ours[1] - ours[0] == pytest.approx(60.0), f"seed {seed}"
        assert [job.number for job in found] == [0, 1, 2, 3]
    assert len({tuple(job.arrival_s for job in shaken(workload, seed).jobs) for seed in range(20)}) == 20


def test_a_load_is_met_and_limits_are_at_least_the_run_time() -> None:
    workload = with_limits(at_load(lublin(200, 64, 3), 0.6), 3)
    assert workload.load == pytest.approx(0.6)
    assert all(job.stated_s >= job.run_s for job in workload.jobs)
    stated = in_order([replace(job, stated_s=5.0) for job in workload.jobs])
    assert with_limits(replace(workload, jobs=stated), 3).jobs == stated


SWF = """; Version: 2.2
 1 0   5 100 4 -1 -1 8 200 -1 1 7 1 1 1 1 -1 -1
 2 30 -1  50 -1 -1 -1 2 -1 -1 1 8 1 1 1 1 -1 -1
 3 40 -1  50 64 -1 -1 2 -1 -1 1 8 1 1 1 1 -1 -1
 4 50 -1  -1 1 -1 -1 2 -1 -1 5 8 1 1 1 1 -1 -1
 5 60 -1  10 1 -1 -1 1 15 -1 1 8 1 1 1 1 -1 -1
"""


def test_a_file_of_the_archive_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.swf"
    file.write_text(SWF)
    trace = read_trace(str(file), 100, 32)
    assert trace.n_left_out == 2  # one of 64 devices, one that never ran
    assert trace.workload.jobs == [
        Job(0, 0.0, 100.0, 4, 200.0, "7"),
        Job(1, 30.0, 50.0, 2, 0.0, "8"),
        Job(2, 60.0, 10.0, 1, 15.0, "8"),
    ]


def test_tables_with_devices_are_read(tmp_path: Path) -> None:
    ours = tmp_path / "ours.csv"
    ours.write_text("user,devices,arrival_s,run_s,stated_s\na,2,10,60,\nb,1,5,30,100\n")
    found = read_trace(str(ours), 10, 8).workload.jobs
    assert [(job.user, job.arrival_s, job.stated_s) for job in found] == [("b", 0.0, 100.0), ("a", 5.0, 0.0)]
    openb = tmp_path / "openb.csv"
    openb.write_text(
        "name,num_gpu,creation_time,deletion_time,scheduled_time\n"
        "p1,2,100,400,150\np2,0,110,400,150\np3,1,120,,130\np4,8,130,500,200\n"
    )
    trace = read_trace(str(openb), 10, 8)
    assert [(job.arrival_s, job.run_s, job.n_devices) for job in trace.workload.jobs] == [
        (0.0, 250.0, 2),
        (30.0, 300.0, 8),
    ]
    assert trace.n_left_out == 2


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.txt", "", "is neither a .swf nor a .csv file"),
        ("a.swf", "1 2 3\n", "line 1 has 3 fields"),
        ("a.swf", "1\n", "line 1 has 1 field, a job"),
        ("a.swf", SWF.replace("100 4", "1oo 4"), "line 2: field 4: '1oo' is not a number"),
        ("a.swf", SWF.replace("100 4", "inf 4"), "field 4: 'inf' is not a number"),
        ("a.swf", SWF.splitlines()[1], "at least two"),
        ("a.swf", "x" * 20_000, "line 1 is longer than 10000 characters"),
        ("a.csv", "a,b\n1,2\n", "has the columns a, b: arrival_s, run_s and devices are needed"),
        ("a.csv", "", "of no header"),
        ("a.csv", "arrival_s,run_s,devices\n1,2,x\n", "line 2: field devices: 'x' is not a number"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path: Path, name: str, text: str, error: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigError, match="^" + str(file)) as raised:
        read_trace(str(file), 100, 32)
    assert error in str(raised.value)


def test_a_missing_trace_is_reported_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.swf", "a.txt", "journal"):
        with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
            read_trace(str(tmp_path / name), 100, 32)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(["--queueing", *arguments]))


SMALL = ("--jobs", "40", "--seeds", "2", "--nodes", "4")


def test_the_command_prints_a_table_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, drawn = tmp_path / "a.swf", tmp_path / "a.svg"
    trace.write_text(SWF)
    assert run(*SMALL, "--workload", "lublin", "--workload", str(trace), "--picture", str(drawn)) == 0
    printed = capsys.readouterr().out
    for policy in (*BY_NAME, "gangsched"):
        assert printed.count(f"│ {policy}") >= 2
    assert "3 jobs, 2 left out that cannot run here" in printed
    svg = ElementTree.parse(drawn).getroot()
    words = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "40 jobs on 32 devices" in words
    assert "EASY" in words


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "run", lambda *_: pytest.fail("measured"))
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        run("--picture", str(tmp_path / "none" / "a.svg"))


def test_a_disk_that_fills_up_meanwhile_costs_the_picture_and_not_the_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigError, match="/dev/full: cannot be written: No space left on device"):
        run(*SMALL, "-o", "json", "--picture", "/dev/full")
    assert json.loads(capsys.readouterr().out)["workloads"]


def test_a_trace_whose_name_is_no_utf_8_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As each name beyond ASCII is under LC_ALL=C."""
    trace, drawn = tmp_path / os.fsdecode(b"gr\xff.swf"), tmp_path / "a.svg"
    trace.write_text(SWF)
    assert run(*SMALL, "--workload", str(trace), "--picture", str(drawn), "-o", "json") == 0
    (runs,) = json.loads(capsys.readouterr().out)["workloads"]
    assert runs["name"] == f"{tmp_path}/gr\ufffd.swf"
    assert "gr\ufffd.swf" in drawn.read_text(encoding="utf-8")


def test_turns_and_plans_are_timed_while_claims_stand() -> None:
    found = speed.measure(Progress(), n_nodes=40, n_pending=10, n_claims=2, n_ends=20)
    assert found.n_claims == 2
    assert len(found.plans_ms) >= 2
    assert len(found.turns_ms) > len(found.plans_ms)
    assert [target.met is not None for target in found.targets] == [True] * 5


def test_the_command_answers_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SMALL, "-o", "json") == 0
    (runs,) = json.loads(capsys.readouterr().out)["workloads"]
    assert len(runs["figures"]["gangsched"]) == 2
    assert runs["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--jobs", "1"), "--jobs 1"),
        (("--seeds", "0"), "--seeds 0 is less than 1"),
        (("--load", "nan"), "--load nan is not within"),
        (("--nodes", "1", "--gpus", "4"), "make 4 devices: at least 8"),
        (("--workload", "/nowhere.swf"), "/nowhere.swf: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_option_is_refused(arguments: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        run(*arguments)
