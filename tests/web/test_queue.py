"""The queue as people see it: what has not started, in order, with what each waits for."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.estimates import in_steps
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import OURS, at, make_pod
from gangsched.model.owners import ORDERED
from gangsched.model.pod_group import COSCHEDULING_LABEL, MIN_MEMBERS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.process import forecasting
from gangsched.web.commands.explain import print_page
from gangsched.web.commands.queue import duration, print_queue, print_starts
from gangsched.web.pages.answers import QueuePage, QueueRow
from gangsched.web.pages.explanations import Page
from gangsched.web.pages.queue import Queue
from tests import controllers as made
from tests.support.scenario import Cluster, cluster, gang, with_annotations
from tests.web.test_server import serving


def waiting() -> Cluster:
    """One runs; one is too large, one more important is too large too, one is not all there."""
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run().wait(5.0)
    c.submit(gang("important", pods=3, gpus=8, priority=10)).run()
    c.submit(gang("half", pods=1, gpus=1, min_members=2)).run().wait(30.0)
    return c


def listed(c: Cluster, namespace: str = "") -> dict[str, Any]:
    page: dict[str, Any] = json.loads(Queue(c.scheduler, clock_s=lambda: c.now_s).listed(namespace))
    return page


def test_what_waits_is_listed_in_the_order_of_queue_sort_with_its_reason() -> None:
    page = listed(waiting())
    rows = {row["group"]: row for row in page["rows"]}
    assert [row["group"] for row in page["rows"]] == ["d/important", "d/large", "d/half"]
    assert (page["nWaiting"], page["byState"]) == (3, {"unschedulable": 2, "gathering": 1})
    large, half = rows["d/large"], rows["d/half"]
    assert (large["position"], large["needed"], large["existing"], large["state"]) == (
        2,
        2,
        2,
        "unschedulable",
    )
    assert "Insufficient nvidia.com/gpu" in large["why"]
    assert large["ageS"] == pytest.approx(35.0, abs=1.0)
    assert half["why"] == "1 of 2 members exist"
    assert half["ageS"] is None


def test_ages_go_on_when_the_scheduler_restarts() -> None:
    c = waiting()
    now = at(c.now_s + 20.0).timestamp()
    c.restart().run()
    rows = Queue(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: now).page().rows
    ages = {row.group: row.age_s for row in rows}
    assert ages["d/large"] == pytest.approx(55.0, abs=1.0)
    assert ages["d/important"] == pytest.approx(50.0, abs=1.0)
    assert ages["d/half"] is None


def test_the_age_of_a_gang_that_runs_is_that_of_its_members_that_wait() -> None:
    c = cluster(nodes=1).submit(gang("a", pods=2, gpus=4)).run().wait(7 * 3600.0)
    c.submit(gang("a", pods=1, first=2, gpus=4, min_members=2)).run().wait(20.0).run()
    now = at(c.now_s).timestamp()
    [row] = Queue(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: now).page().rows
    assert (row.group, row.bound) == ("d/a", 2)
    assert row.age_s == pytest.approx(20.0, abs=1.0)


def test_another_namespace_has_nothing_and_positions_are_among_all() -> None:
    c = waiting()
    c.submit(gang("other", pods=2, gpus=8, namespace="e")).run()
    [row] = listed(c, "e")["rows"]
    assert (row["group"], row["position"]) == ("e/other", 3)
    assert listed(c, "none") == {"nWaiting": 0, "byState": {}, "rows": [], "leads": True, "leader": ""}


def test_a_long_queue_is_listed_to_a_limit_and_counted_whole() -> None:
    c = waiting()
    page = json.loads(Queue(c.scheduler, clock_s=lambda: c.now_s).listed(limit=2))
    assert (page["nWaiting"], [row["group"] for row in page["rows"]]) == (3, ["d/important", "d/large"])


def test_looking_changes_nothing() -> None:
    c = waiting()
    before = [(group.state, group.attempts) for group in c.groups()]
    listed(c)
    assert not c.scheduler.advance(c.now_s)
    assert [(group.state, group.attempts) for group in c.groups()] == before


def starving() -> Cluster:
    """A gang with a walltime is passed over three times; its bound is two."""
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings(2)))
    c.submit(make_pod("holds", gpus=4)).run()
    c.submit(with_annotations(gang("large", pods=2, gpus=8), {WALLTIME_KEY: "4h"})).run()
    return c.submit(*(make_pod(f"small-{k}", gpus=1) for k in range(3))).run().wait(5.0)


def test_groups_that_are_passed_over_are_listed_with_the_count_and_their_walltime() -> None:
    [row] = listed(starving())["rows"]
    assert (row["passes"], row["passesBound"], row["claimedS"]) == (3, 2, 5.0)
    assert (row["walltimeS"], row["walltimeSource"]) == (4 * 3600, "stated")
    assert row["walltimeField"] == "metadata.annotations: gangsched.io/walltime"
    [row, *_] = listed(waiting())["rows"]
    assert (row["passes"], row["walltimeSource"]) == (None, "")


def drawn(c: Cluster) -> str:
    console = Console(width=200, file=io.StringIO())
    print_queue(msgspec.json.decode(json.dumps(listed(c)), type=QueuePage), console, wide=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_columns_for_it_where_it_is_counted() -> None:
    _, heading, line = drawn(starving()).splitlines()
    assert heading.split()[-4:] == ["TRIED", "PASSED", "WALLTIME", "WHY"]
    assert "3/2!" in line
    assert "4h00m" in line
    assert "PASSED" not in drawn(waiting())


def test_a_gang_whose_number_cannot_be_read_does_not_say_how_many_it_needs() -> None:
    c = cluster(nodes=1)
    c.submit([make_pod(f"a-{k}", group="a", annotations={MIN_MEMBERS_KEY: "2x"}) for k in range(2)]).run()
    [row] = listed(c)["rows"]
    assert (row["existing"], row["needed"]) == (2, None)
    answer = explain(c.scheduler, c.group("a"), c.now_s)
    assert (answer.existing, answer.needed) == (2, None)
    assert "gangsched.io/min-members: '2x' is not a whole number from 1" in answer.answer
    assert "2/?" in drawn(c).splitlines()[-1]
    c.submit(make_pod("lone", annotations={"gangsched.io/topology": "?"})).run()
    assert explain(c.scheduler, c.group("lone"), c.now_s).needed == 1


def test_a_gang_whose_controller_was_not_seen_says_what_it_waits_for() -> None:
    c = cluster(nodes=1, settings=Settings(infer_gangs={OURS: ORDERED}))
    c.submit(made.decoded(made.job_set_pods("a", {"workers": (1, 2)}))).run()
    answer = explain(c.scheduler, c.group("a"), c.now_s)
    assert answer.answer == (
        "How many members it needs is not known: it waits for JobSet d/a, which has not been seen (yet)."
    )
    assert [row["why"] for row in listed(c)["rows"]] == ["2 of ? members exist"]


def test_a_gang_without_its_object_does_not_say_how_many_it_needs() -> None:
    c = cluster(nodes=1)
    c.submit(*(make_pod(f"a-{k}", labels={COSCHEDULING_LABEL: "a"}) for k in range(4))).run()
    [row] = listed(c)["rows"]
    assert (row["existing"], row["needed"]) == (4, None)
    assert drawn(c).splitlines()[-1].split()[3] == "4/?"
    answer = explain(c.scheduler, c.group("a"), c.now_s)
    assert answer.needed is None
    console = Console(width=200, file=io.StringIO())
    print_page(Page(leads=True, explanation=answer, moves=(), trace=""), console)
    assert isinstance(console.file, io.StringIO)
    assert "; 4 members exist, 0 bound" in console.file.getvalue()


async def test_the_command_draws_it_for_those_who_may_read_it(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    c = waiting()
    async with serving(pair, queue=Queue(c.scheduler, clock_s=lambda: c.now_s)) as client:
        assert (await client.ask("/queue"))[0] == 403
        at = f"--server=https://127.0.0.1:{client.port}"
        run = anyio.to_thread.run_sync
        assert await run(main, ["queue", at, "--token=good"]) == 0
        drawn = capsys.readouterr().out
        assert drawn.startswith("3 wait: 2 unschedulable, 1 gathering")
        [line] = [line for line in drawn.splitlines() if "d/half" in line]
        assert line.split()[:6] == ["3", "d/half", "0", "1/2", "gathering", "30s"]
        assert line.rstrip().endswith("1 of 2 members exist")
        assert await run(main, ["queue", at, "--token=good", "-n", "none"]) == 0
        told = "Nothing waits in namespace none; 3 elsewhere (-A).\n"
        assert capsys.readouterr().out == told
        assert await run(main, ["queue", at, "--token=good", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["nWaiting"] == 3
        assert await run(main, ["queue", at, "--token=stranger"]) == 1
        assert "401: https://127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0s"),
        (12.4, "12s"),
        (250, "4m10s"),
        (3 * 3600 + 300, "3h05m"),
        (2 * 86_400 + 4 * 3600, "2d04h"),
    ],
)
def test_durations_are_printed_as_people_write_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


async def test_a_page_that_comes_in_many_parts_is_read_whole(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    c = cluster(nodes=1, gpus=8)
    for k in range(600):
        c.submit(gang(f"half-{k}", pods=1, gpus=1, min_members=2))
    async with serving(pair, queue=Queue(c.scheduler, clock_s=lambda: c.now_s)) as client:
        at = ["queue", f"--server=https://127.0.0.1:{client.port}", "--token=good", "-o", "json"]
        assert await anyio.to_thread.run_sync(main, at) == 0
    told = capsys.readouterr().out
    assert len(told) > 200_000
    page = json.loads(told)
    assert (page["nWaiting"], len(page["rows"])) == (600, 500)


def test_starts_are_estimated_if_they_are_asked_for_and_never_called_promised() -> None:
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(with_annotations([make_pod("holds", gpus=8)], {WALLTIME_KEY: "600s"})).run()
    c.submit(with_annotations(gang("large", pods=2, gpus=8), {WALLTIME_KEY: "1h"})).run()
    c.submit(with_annotations([make_pod("before", gpus=8)], {WALLTIME_KEY: "10s"})).run()
    c.delete("before").run()
    c.submit(with_annotations([make_pod("next", gpus=8)], {WALLTIME_KEY: "2h"})).run()
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
    assert not any("estimateInS" in row and row["estimateInS"] for row in json.loads(queue.listed())["rows"])
    page = msgspec.json.decode(asyncio.run(queue.listed_with_estimates()), type=QueuePage)
    console = Console(width=200, file=io.StringIO())
    print_starts(page, console)
    assert isinstance(console.file, io.StringIO)
    heading, first, then = (line.split() for line in console.file.getvalue().splitlines())
    assert heading == ["GANG", "PRIO", "PASSED", "STARTS", "IN", "NODES"]
    assert first == ["d/large", "0", "1/1!", "10m00s", "promised", "2"]
    assert then[0] == "d/next"
    assert then[-2:] == ["estimated", "-"]
    assert then[-3].startswith("~1h1")


def test_a_range_is_shown_beside_what_is_estimated_once_enough_have_started() -> None:
    row = QueueRow(1, "d/a", True, "s", 0, "unschedulable", 1.0, 1.0, None, 1, 1, 0, 0, 0, 1, "", passes=0)
    first = replace(row, starts_in_s=60.0, is_promised=True, claimed_nodes=2)
    guessed = replace(row, group="d/b", estimate_in_s=1000.0, estimate_from_s=600.0, estimate_to_s=3700.0)
    soon = replace(row, group="d/c", estimate_in_s=5.0)
    late = replace(first, group="d/d", starts_in_s=-22.0)
    console = Console(width=200, file=io.StringIO())
    print_starts(QueuePage(4, {}, (first, guessed, soon, late)), console)
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0][3:] == ["STARTS", "IN", "4", "IN", "5", "IN", "NODES"]
    assert [line[3:] for line in lines[1:]] == [
        ["22s", "late", "-", "promised", "2"],
        ["1m00s", "-", "promised", "2"],
        ["~5.0s", "-", "estimated", "-"],
        ["~16m40s", "10m00s-1h01m", "estimated", "-"],
    ]


def test_the_page_has_the_range_of_the_last_starts() -> None:
    c = cluster(nodes=1, gpus=8, settings=Settings(queueing=QueueingSettings()))
    c.submit(with_annotations([make_pod("holds", gpus=8)], {WALLTIME_KEY: "600s"})).run()
    c.submit([make_pod("next", gpus=8)]).run()
    c.scheduler.attempts.forecasts._last.extend([0.5, *[1.0] * 18, 3.0, 4.0])
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
    [row] = json.loads(asyncio.run(queue.listed_with_estimates()))["rows"]
    assert row["estimateFromS"] == row["estimateInS"]
    assert row["estimateToS"] == pytest.approx(3 * row["estimateInS"], abs=0.01)


async def test_what_many_ask_for_at_once_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    c = waiting()
    n_estimated = n_listed = 0
    listed = Queue.listed

    def estimated(*args: Any) -> Any:
        nonlocal n_estimated
        n_estimated += 1
        return in_steps(*args)

    def counted(self: Queue, *args: Any) -> bytes:
        nonlocal n_listed
        n_listed += 1
        return listed(self, *args)

    monkeypatch.setattr(forecasting, "in_steps", estimated)
    monkeypatch.setattr(Queue, "listed", counted)
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: 2e9)
    pages = {await one for one in asyncio.as_completed([queue.listed_with_estimates() for _ in range(20)])}
    assert pages == {queue.as_json() for _ in range(20)}
    assert (n_estimated, n_listed) == (1, 1)
    c.wait(3600.0)
    await queue.listed_with_estimates()
    assert queue.as_json() not in pages
    assert (n_estimated, n_listed) == (2, 2)


async def test_the_command_asks_for_estimates_and_shows_only_groups_that_have_one(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    c = cluster(nodes=1, gpus=8, settings=Settings(queueing=QueueingSettings()))
    c.submit(with_annotations([make_pod("holds", gpus=8)], {WALLTIME_KEY: "600s"})).run()
    c.submit([make_pod("next", gpus=8)], [make_pod("too-large", gpus=9)]).run()
    async with serving(pair, queue=Queue(c.scheduler, clock_s=lambda: c.now_s)) as client:
        at = [f"--server=https://127.0.0.1:{client.port}", "--token=good", "-o", "json"]
        for more in ([], ["-n", "d"]):
            assert await anyio.to_thread.run_sync(main, ["queue", "--start", *more, *at]) == 0
            [row] = json.loads(capsys.readouterr().out)["rows"]
            assert row["group"] == "d/next"
            assert 600.0 <= row["estimateInS"] <= 615.0


@pytest.mark.parametrize(
    ("leader", "told"),
    [(None, (True, "")), ("", (False, "")), ("gangsched-0_ab", (False, "gangsched-0_ab"))],
)
def test_the_pages_themselves_say_who_leads(leader: str | None, told: tuple[bool, str]) -> None:
    """As programs read them, which look at no header and at no note."""
    c = cluster(nodes=1).submit(gang("a", pods=2, gpus=8)).run()
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s, leader=lambda: leader)
    for body in (queue.as_json(), queue.queues(), asyncio.run(queue.listed_with_estimates())):
        page = json.loads(body)
        assert (page["leads"], page["leader"]) == told
