"""`gangsched explain --start`: when a gang starts, in each state that it can be in."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import explain
from gangsched.core.types.group import GroupState
from gangsched.lab.sim.objects import make_pod
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.web.commands.gang_start import start_of
from gangsched.web.pages.answers import QueuePage
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from tests.support.scenario import Cluster, cluster, gang, with_annotations
from tests.web.test_server import serving

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


def in_line(asked: str) -> Cluster:
    """A gang that room is kept for, a pod behind it, one that never fits; the one asked about is train."""

    def name(one: str) -> str:
        return "train" if one == asked else one

    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(with_annotations([make_pod(name("holds"), gpus=8)], {WALLTIME_KEY: "600s"})).run()
    c.submit(with_annotations(gang(name("large"), pods=2, gpus=8), {WALLTIME_KEY: "1h"})).run()
    c.submit(with_annotations([make_pod("before", gpus=8)], {WALLTIME_KEY: "10s"})).run()
    c.delete("before").run()
    return c.submit([make_pod(name("next"), gpus=8)], [make_pod(name("too-large"), gpus=9)]).run()


async def told(pair: Pair, c: Cluster, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
    about = Explanations(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: 1_800_000_000.0 + c.now_s)
    async with serving(pair, explanations=about, queue=queue) as client:
        at = [f"--server=https://127.0.0.1:{client.port}", "--token=good"]
        await anyio.to_thread.run_sync(main, ["explain", "d/train", "--start", *at, *more])
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(autouse=True)
def no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("asked", "start"),
    [
        ("large", "Start: promised, at the latest in 10m00s ("),
        ("next", "Start: estimated, in about 1h1"),
        ("too-large", "Start: unknown: it is not among the first in line, needs one domain"),
        ("holds", "Start: it has started"),
    ],
)
async def test_each_is_told_when_it_starts(
    pair: Pair, capsys: pytest.CaptureFixture[str], asked: str, start: str
) -> None:
    assert start in await told(pair, in_line(asked), capsys)


async def test_programs_get_the_seconds(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    [page] = json.loads(await told(pair, in_line("large"), capsys, "-o", "json"))
    assert (page["start"]["kind"], page["start"]["inS"], page["start"]["nodes"]) == ("promised", 600.0, 2)


async def test_without_queueing_nothing_is_estimated_and_that_is_the_reason(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    c = cluster(nodes=1).submit(gang("train", pods=2, gpus=8)).run()
    start = "Start: unknown: the scheduler's configuration has no queueing"
    assert start in await told(pair, c, capsys)


def test_where_no_queue_can_be_asked_for_the_reason_is_reported() -> None:
    c = in_line("next")
    group = c.group("train")
    found = start_of(explain(c.scheduler, group, c.now_s), None, NOW, problem="no leading scheduler answers")
    assert (found.kind, found.text) == ("unknown", "unknown: no leading scheduler answers")


@pytest.mark.parametrize("state", GroupState)
def test_no_state_is_without_an_answer(state: GroupState) -> None:
    c = cluster(nodes=1).submit(gang("a", pods=2, gpus=8)).run()
    group = c.group("a")
    page = msgspec.structs.replace(explain(c.scheduler, group, c.now_s), state=state.value)
    found = start_of(page, None, NOW)
    waits = state in (GroupState.ACTIVE, GroupState.ASKING, GroupState.BACKOFF, GroupState.UNSCHEDULABLE)
    assert found.text.startswith("unknown: ") == waits
    assert (found.kind == "started") == (state in (GroupState.BOUND, GroupState.DELETED))


def test_a_start_in_thousands_of_years_has_no_date() -> None:
    c = cluster(nodes=1, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(with_annotations([make_pod("holds", gpus=8)], {WALLTIME_KEY: "99999999h"})).run()
    c.submit(with_annotations(gang("train", pods=1, gpus=8), {WALLTIME_KEY: "1h"})).run()
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
    page = msgspec.json.decode(asyncio.run(queue.listed_with_estimates()), type=QueuePage)
    [row] = page.rows
    group = c.group("train")
    found = start_of(explain(c.scheduler, group, c.now_s), row, NOW)
    assert found.text.startswith("estimated, in about 41")
    assert "UTC" not in found.text


def test_a_state_of_a_later_version_has_no_known_start() -> None:
    c = in_line("next")
    found = explain(c.scheduler, c.group("train"), c.now_s)
    start = start_of(msgspec.structs.replace(found, state="Dreaming"), None, NOW)
    assert start.kind == "unknown"
    assert start.text.startswith("unknown: this version does not know the state 'Dreaming'")


@pytest.mark.parametrize(
    ("in_s", "is_promised", "text"),
    [
        (
            60.0,
            True,
            "promised, at the latest in 1m00s (2026-11-26 12:01 UTC): room is kept for it on 2 nodes",
        ),
        (
            -22.0,
            True,
            "promised, 22s (2026-11-26 11:59 UTC) ago, but what holds its room has not ended yet: room",
        ),
        (
            -22.0,
            False,
            "estimated, 22s (2026-11-26 11:59 UTC) ago, but what holds its room has not ended yet:",
        ),
        (-0.5, True, "promised, at the latest in 0.5s ("),
    ],
)
def test_a_start_that_is_past_is_said_to_be_late(in_s: float, is_promised: bool, text: str) -> None:
    c = in_line("large")
    found = explain(c.scheduler, c.group("train"), c.now_s)
    [row, *_] = Queue(c.scheduler, clock_s=lambda: c.now_s).page().rows
    late = msgspec.structs.replace(row, starts_in_s=in_s, is_promised=is_promised, claimed_nodes=2)
    assert start_of(found, late, NOW).text.startswith(text)


@pytest.mark.parametrize("in_s", [-1e30, 1e30])
def test_a_start_beyond_any_calendar_has_no_date(in_s: float) -> None:
    c = in_line("next")
    found = explain(c.scheduler, c.group("train"), c.now_s)
    [row, *_] = Queue(c.scheduler, clock_s=lambda: c.now_s).page().rows
    start = start_of(found, msgspec.structs.replace(row, starts_in_s=in_s, is_promised=True), NOW)
    assert start.kind == "promised"
    assert "UTC" not in start.text
