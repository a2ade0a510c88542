"""top as a picture: what the page says, what two looks amount to, and the lines that they make."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from rich.cells import cell_len

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.core.types.group import Group
from gangsched.web.metrics.measures import Measures
from gangsched.web.pages.answers import DeviceCounts, QueuePage, QueueRow, Times, TopPage
from gangsched.web.pages.queue import Queue
from gangsched.web.top.page import Top
from gangsched.web.top.rates import KINDS, Looks, percentiles
from gangsched.web.top.screen import MIN_HEIGHT, MIN_WIDTH, SORTS, View, ansi, draw, ordered, text
from gangsched.web.top.terminal import keys_of
from tests.core.claims import DRIVER, ClaimCluster, gpus, wish
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import serving

_HOSTILE = "\x1b[2J\x1b]0;owned\x07evil\u202e\r\n"


def top_of(c: Cluster, measures: Measures | None = None) -> Top:
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s)
    return Top(c.scheduler, queue, measures or Measures(), clock_s=lambda: c.now_s, wall_s=lambda: 3_600.0)


async def page_of(c: Cluster) -> TopPage:
    return msgspec.json.decode(await top_of(c).as_json(), type=TopPage)


def waiting() -> Cluster:
    """One runs on one of two nodes; two are too large."""
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    c.submit(gang("large", pods=2, gpus=8)).run().wait(5.0)
    return c.submit(gang("larger", pods=3, gpus=8)).run().wait(60.0)


def lines(page: TopPage, view: View | None = None, *, width: int = 100, height: int = 30) -> list[str]:
    looks = Looks()
    looks.add(page)
    return [text(line) for line in draw(page, looks.pace(), view or View(), width=width, height=height)]


# -- the page -----------------------------------------------------------------------------------------------


async def test_devices_are_counted_by_what_becomes_of_them() -> None:
    c = waiting()
    page = await page_of(c)
    assert (page.nodes, page.nodes_open, page.pods, page.leads) == (2, 2, 6, True)
    assert page.devices == {"nvidia.com/gpu": DeviceCounts(total=16, free=8, bound=8)}
    assert [row.group for row in page.queue.rows] == ["d/large", "d/larger"]


async def test_devices_of_slices_are_counted_by_driver() -> None:
    """A gang of two is bound, the claim of one more is being written; another scheduler has one."""
    c = ClaimCluster().offer("n0", "n1", gpus_each=4)
    c.submit([c.want(f"a-{i}", wish(), group="a", min_members=2) for i in range(2)]).run()
    c.claim_answer = lambda patch: "hold"
    c.submit(c.want("b-0", wish(2), group="b", min_members=1)).run()
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-3"}
    c.make_claim("theirs", wish(), allocation={"devices": {"results": [result]}})
    page = await page_of(c)
    assert page.devices == {DRIVER: DeviceCounts(total=8, free=3, reserved=2, bound=3)}
    c.slice("slice-n1", gpus("n1", 6))
    assert (await page_of(c)).devices[DRIVER].total == 10, "as its slices are now"


async def test_what_is_reserved_is_neither_free_nor_bound() -> None:
    c = cluster(nodes=2, gpus=8)
    c.answer = lambda bind: "hold"
    c.submit(gang("a", pods=1, gpus=6)).run()
    assert c.group("a").n_assumed == 1
    counts = (await page_of(c)).devices["nvidia.com/gpu"]
    assert (counts.free, counts.reserved, counts.bound, counts.total) == (10, 6, 0, 16)


async def test_requests_within_a_second_get_one_answer_and_namespaces_have_their_own() -> None:
    c = waiting()
    top = top_of(c)
    first = await top.as_json()
    c.submit(gang("more", pods=3, gpus=8)).run()
    assert await top.as_json() == first
    assert json.loads(await top.as_json("none"))["queue"]["rows"] == []
    c.wait(1.5)
    assert json.loads(await top.as_json())["queue"]["nWaiting"] == 3


# -- rates --------------------------------------------------------------------------------------------------


def look(at_s: float, *, attempts: int = 0, binds: int = 0, fast: int = 0, slow: int = 0) -> TopPage:
    """A page with `fast` values up to 1 s and `slow` ones up to 2 s."""
    times = Times((1.0, 2.0), (fast, slow, 0))
    queue = QueuePage(0, {}, ())
    return TopPage(0, at_s, "1", True, 1, 1, 0, {}, attempts, binds, times, times, times, times, queue)


def test_rates_are_between_the_looks_of_the_last_minute() -> None:
    looks = Looks()
    for k in range(100):
        looks.add(look(k * 2.0, attempts=k * 20, binds=k * 80, fast=100 if k else 0, slow=k))
    pace = looks.pace()
    assert (pace.over_s, pace.decisions, pace.binds) == (60.0, 10.0, 40.0)
    recent, ever = pace.recent["decision"], pace.since_start["decision"]
    assert (recent.n, recent.p50) == (30, 1.5)
    assert (ever.n, ever.p50) == (199, 0.995)
    assert ever.p99 == pytest.approx(1.98, abs=0.001)


def test_one_look_has_no_rates_and_a_new_scheduler_starts_over() -> None:
    looks = Looks()
    looks.add(look(50.0, attempts=9, fast=4))
    assert (looks.pace().decisions, looks.pace().over_s) == (None, 0.0)
    assert looks.pace().since_start["decision"].n == 4
    looks.add(look(1.0, attempts=1))
    assert looks.pace().decisions is None
    looks.add(look(3.0, attempts=5))
    assert looks.pace().decisions == 2.0


def test_percentiles_of_nothing_and_above_all_buckets() -> None:
    assert percentiles(Times((1.0, 2.0), (0, 0, 0))).n == 0
    assert percentiles(Times((1.0, 2.0), (0, 0, 7))).p50 == 2.0
    assert percentiles(Times()).p99 is None


# -- the picture --------------------------------------------------------------------------------------------


async def test_a_picture_shows_what_is_free_what_waits_and_why() -> None:
    page = await page_of(waiting())
    drawn = lines(page)
    assert len(drawn) == 30
    assert drawn[0].startswith("gangsched ")
    assert "01:00:00 UTC" in drawn[0]
    assert drawn[1] == "Nodes 2  Pods 6  Waiting 2: 2 unschedulable"
    assert drawn[2].startswith("nvidia.com/gpu [|||||")
    assert drawn[2].endswith("....] 8 bound  0 reserved  0 unhealthy  8 free")
    [row] = [line for line in drawn if "d/larger" in line]
    assert row.split()[:5] == ["2", "d/larger", "3/3", "unschedulable", "1m00s"]
    assert "gang d/larger:" in row
    assert drawn[-1].startswith("q quit")


async def test_the_whole_reason_of_the_one_that_is_chosen_is_below_the_queue() -> None:
    page = await page_of(waiting())
    why = page.queue.rows[1].why
    drawn = lines(page, View(chosen="d/larger"), width=60)
    assert why not in "\n".join(drawn)
    at = next(i for i, line in enumerate(drawn) if line.startswith("d/larger: "))
    assert why in " ".join(drawn[at:-1])


async def test_every_size_is_filled_and_not_exceeded() -> None:
    page = await page_of(waiting())
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(300):
        width, height = rng.randrange(10, 220), rng.randrange(2, 70)
        view = View(rng.choice(SORTS), rng.random() < 0.5, rng.random() < 0.5, rng.choice(["", "d/large"]))
        view.problem = rng.choice(["", "no scheduler answers"])
        looks = Looks()
        looks.add(page)
        drawn = draw(page, looks.pace(), view, width=width, height=height)
        assert len(drawn) <= height
        assert all(sum(cell_len(span.text) for span in line) <= width for line in drawn), (width, height)
        shown = "\n".join(map(text, drawn))
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            assert shown.startswith(f"{MIN_WIDTH} x {MIN_HEIGHT}"[: width - 1])
        else:
            assert len(drawn) == height
            assert "d/large" in shown
            assert "q quit" in shown


def row(i: int, **changes: Any) -> QueueRow:
    plain = QueueRow(
        position=i,
        group=f"d/g{i:03}",
        is_gang=True,
        scheduler="gangsched",
        priority=0,
        state="unschedulable",
        state_s=1.0,
        age_s=float(i % 7),
        next_s=None,
        needed=i % 5 + 1,
        existing=1,
        gated=0,
        reserved=0,
        bound=0,
        attempts=i % 3,
        why="",
    )
    return msgspec.structs.replace(plain, **changes)


def long_queue(n: int) -> TopPage:
    rows = tuple(row(i) for i in range(1, n + 1))
    return msgspec.structs.replace(look(1.0), queue=QueuePage(n + 40, {"unschedulable": n + 40}, rows))


def test_the_one_that_is_chosen_is_in_view_wherever_it_is() -> None:
    page = long_queue(100)
    for i in (1, 2, 50, 99, 100):
        drawn = lines(page, View(chosen=f"d/g{i:03}"), height=24)
        assert any(line.split()[:2] == [str(i), f"d/g{i:03}"] for line in drawn), i
    assert "and 40 more behind them" in lines(page, height=24)[-2]


def test_it_is_sorted_by_what_people_ask_for() -> None:
    rows = long_queue(30).queue.rows
    oldest = ordered(rows, View(sort="age"))
    assert [one.age_s for one in oldest] == sorted((one.age_s or 0.0 for one in rows), reverse=True)
    largest = ordered(rows, View(sort="size"))
    assert largest[0].needed == 5
    assert ordered(rows, View(sort="size", is_reversed=True)) == largest[::-1]


async def test_a_servers_text_is_cleaned_before_it_reaches_a_terminal() -> None:
    page = await page_of(waiting())
    hostile = row(1, group=_HOSTILE, state=_HOSTILE, why=_HOSTILE)
    page = msgspec.structs.replace(
        page,
        version=_HOSTILE,
        devices={_HOSTILE: DeviceCounts(total=1, free=1)},
        queue=QueuePage(1, {_HOSTILE: 1}, (hostile,)),
    )
    looks = Looks()
    looks.add(page)
    for view in (View(chosen=_HOSTILE, problem=_HOSTILE), View()):
        drawn = draw(page, looks.pace(), view, width=160, height=40)
        told = "".join(text(line) for line in drawn)
        assert "evil" in told
        assert told.isprintable()
        written = "\n".join(ansi(line) for line in drawn)
        assert "\x1b[2J" not in written
        assert "\x1b]" not in written
        assert "\x1b" not in "".join(ansi(line, colour=False) for line in drawn).replace(
            "\x1b[0m", ""
        ).replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[7m", "").replace("\x1b[1;7m", "")


def test_a_time_that_no_calendar_has_is_not_shown() -> None:
    for at_s in (1e300, -1e18):
        page = msgspec.structs.replace(look(0.0), at=at_s)
        assert lines(page)[0].split() == ["gangsched", "1", "-", "every", "2", "s"]


def test_a_standby_reports_that_it_decides_nothing() -> None:
    page = msgspec.structs.replace(look(1.0), leads=False)
    assert "this replica does not lead: it decides nothing" in lines(page)[0]
    queue = msgspec.structs.replace(page.queue, leads=False, leader="gangsched-0_ab")
    page = msgspec.structs.replace(page, queue=queue)
    assert "gangsched-0_ab leads, this replica decides nothing" in lines(page)[0]


@pytest.mark.parametrize(
    ("pressed", "told"),
    [
        (b"q", ["quit"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"sr \x1bOAp", ["sort", "reverse", "pause", "up", "pause"]),
        (b"\x1b[1;5qx", []),  # a sequence that is not known, and a letter that is no key
        (b"\x1b", []),
        (b"\xff\xfe\x00", []),
        (b"\x1b[6~\x1b[H", ["page down", "home"]),
    ],
)
def test_what_is_pressed(pressed: bytes, told: list[str]) -> None:
    assert list(keys_of(pressed)) == told


# -- the command --------------------------------------------------------------------------------------------


async def test_once_and_json_are_for_scripts_and_for_those_who_may(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    run = anyio.to_thread.run_sync
    api = ApiServer()
    api.may.add(("prometheus", "/top"))
    async with serving(pair, top=top_of(waiting()), api=api) as client:
        assert (await client.ask("/top"))[0] == 403
        at = f"--server=https://127.0.0.1:{client.port}"
        assert await run(main, ["top", at, "--token=good", "--once", "-d", "0.5"]) == 0
        drawn = capsys.readouterr().out
        assert "8 bound  0 reserved  0 unhealthy  8 free" in drawn
        assert "d/larger" in drawn
        assert "\x1b" not in drawn
        assert await run(main, ["top", at, "--token=good", "--once", "-o", "json", "-d=0.5"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["page"]["queue"]["nWaiting"] == 2
        assert set(told["pace"]["recent"]) == set(KINDS)
        assert await run(main, ["top", at, "--token=made-up", "--once"]) == 1
        assert "Unauthorized" in capsys.readouterr().err
        assert await run(main, ["top", at, "--once"]) == 1
        assert 'User "system:anonymous" cannot get path "/top"' in capsys.readouterr().err
        assert await run(main, ["top", at, "--token=good"]) == 2
        assert "gangsched: top: needs a terminal" in capsys.readouterr().err
    assert await run(main, ["top", at, "--token=good", "--once"]) == 1
    assert "no scheduler answers at" in capsys.readouterr().err


@pytest.mark.parametrize("delay", ["0", "0.1", "nan", "inf", "soon", "-1", "1e9"])
def test_an_invalid_delay_is_refused(delay: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", f"--delay={delay}"]) == 2
    assert "seconds from 0.5 to 3600" in capsys.readouterr().err


def test_looking_changes_nothing() -> None:
    c = waiting()

    def stand(groups: list[Group]) -> list[tuple[str, int]]:
        return [(group.state.value, group.attempts) for group in groups]

    before = stand(c.groups())
    anyio.run(page_of, c)
    assert not c.scheduler.advance(c.now_s)
    assert stand(c.groups()) == before


@pytest.mark.parametrize(("each", "free"), [(1, -2), (10**12, 1 - 2 * 10**12)])
def test_devices_that_are_fewer_than_none_draw_no_bar(each: int, free: int) -> None:
    """What a server says adds up to 0, or to 1 of which 10**12 are bound: no bar is as long."""
    counts = DeviceCounts(total=1, bound=each, reserved=each, free=free)
    drawn = lines(msgspec.structs.replace(look(1.0), devices={"gpu": counts}), width=140)
    assert any(f"{each} bound  {each} reserved" in line for line in drawn)
    assert max(map(len, drawn)) <= 140
