"""`bench --dashboard` on a small cluster: viewers do follow, and its report is made of what it measures."""

from __future__ import annotations

import io

from rich.console import Console

from gangsched.lab.bench.speed import dashboard_speed as bench
from gangsched.lab.bench.speed.dashboard_load import N_WAITING, SIZE, Load, filled
from tests.support.inside import Inside


async def test_each_mode_is_measured_and_nothing_is_left_over() -> None:
    cost = await bench.measure(64, 400, 20, 2, 2, 1)
    assert set(cost.phases) == set(bench.MODES)
    assert all(len(phases) == 1 and phases[0].gangs > 0 for phases in cost.phases.values())
    assert all(phases[0].rest > 0 for phases in cost.phases.values())
    asked = cost.questions
    n = len(asked.copied)
    assert n == len(asked.late) == len(asked.quiet) == len(asked.answered) > 0
    assert min(asked.copied) > 0
    assert min(asked.computed) > 0
    assert min(asked.answered) > min(asked.copied)


def test_the_cluster_is_half_full_and_a_gang_that_comes_lets_an_old_one_go() -> None:
    scheduler = filled(16, 200)
    inside = Inside(scheduler)
    assert len(inside.pod_infos()) == 200 + N_WAITING * (SIZE - 1)
    load = Load(scheduler, 10, 4)
    for gang in load.gangs(6):
        load.turn(gang)
    assert (load.n_attempts, round(load.now_s, 6)) == (6, 0.6)
    assert sum(uid.startswith("load-") for uid in inside.pod_infos()) == 4 * SIZE


def test_the_report_takes_off_from_on_round_by_round() -> None:
    def phases(*rest: float) -> list[bench.Phase]:
        return [bench.Phase(gangs=0.1, rest=one) for one in rest]

    modes = {
        bench.OFF: phases(0.001, 0.002, 0.003),
        bench.NOBODY: phases(0.002, 0.003, 0.004),
        bench.WATCHED: phases(0.011, 0.032, 0.013),
    }
    questions = bench.Questions([5.0, 6.0, 7.0], [200.0], [8.0], [1.0], [300.0])
    report = bench.assemble(bench.DashboardCost(modes, questions, 400.0), 3)
    watched = report.costs[bench.WATCHED]
    assert [round(x, 6) for x in (watched.median, watched.low, watched.high)] == [1.0, 1.0, 3.0]
    assert report.targets[1].measured == 6.0
    out = io.StringIO()
    bench.print_report(report, Console(file=out, width=150))
    assert "on, with viewers" in out.getvalue()
    assert "6.00 (5.00..7.00) ms of the loop's time" in out.getvalue()
