"""What if on the dashboard's port: the answer, who may ask, what is refused, and that nothing is changed."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import psutil
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.lab.sim.making import make_scheduler
from gangsched.web.board.in_copy import CopyFailed, in_copy
from gangsched.web.board.whatif import MAX_BYTES, NotNow, WhatIf
from gangsched.whatif.cluster import Classes, read_class
from tests.support.inside import Inside
from tests.support.processes import PATIENCE_S
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_board_pages import Browser, browsing, reader

_PATH = "/dashboard/whatif"


def job(n: int, *, gpus: int = 8, name: str = "new", **spec: Any) -> str:
    """YAML of a Job of `n` pods that start together."""
    template = {
        "metadata": {
            "labels": {"gangsched.io/pod-group": name},
            "annotations": {"gangsched.io/min-members": str(n)},
        },
        "spec": {
            "schedulerName": "gangsched",
            "restartPolicy": "Never",
            "containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
            **spec,
        },
    }
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"parallelism": n, "completions": n, "template": template},
        }
    )


def follower(settings: Settings) -> Scheduler:
    """As a replica that does not lead."""
    return Scheduler(Inside(make_scheduler(settings)).profiles(), settings, leading=False)


def whatif_of(c: Cluster, **more: Any) -> WhatIf:
    async def priorities() -> Classes:
        return {"high": read_class({"metadata": {"name": "high"}, "value": 1000})}

    given = {"limit_s": PATIENCE_S} | more
    return WhatIf(c.scheduler, priorities=priorities, clock_s=lambda: c.now_s, **given)


async def asked(c: Cluster, yaml: str, **more: Any) -> dict[str, Any]:
    found = await whatif_of(c).answer(msgspec.json.encode({"yaml": yaml, **more}))
    answer: dict[str, Any] = json.loads(found.body)
    return answer


@asynccontextmanager
async def logged_in(pair: Pair, c: Cluster) -> AsyncIterator[Browser]:
    async with browsing(pair, c, reader()) as browser:
        assert (await browser.ask("/dashboard/session", method="POST", Authorization="Bearer good"))[0] == 204
        yield browser


async def post(browser: Browser, body: bytes | str, **headers: str) -> tuple[int, str]:
    given = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    async with browser.session.post(browser.base + _PATH, data=body, headers=given) as answer:
        return answer.status, await answer.text()


# -- the answer ---------------------------------------------------------------------------------------------


async def test_where_it_would_go_and_nothing_is_changed() -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    n_effects, pods = len(c.effects), c.pod_infos()
    (one,) = (await asked(c, job(1)))["gangs"]
    (free,) = {"n0", "n1"} - {c.pod("runs-0").spec.node_name}
    assert (one["name"], one["starts"]) == ("default/new", "now")
    [member] = one["members"]
    assert member["node"] == free
    assert len(member["devices"]["nvidia.com/gpu"]) == 8
    assert (len(c.effects), c.pod_infos()) == (n_effects, pods)
    c.five_more_turns_change_nothing()
    assert c.scheduler.shared.settings.allow_eviction


async def test_why_it_would_not_and_what_would_help_and_changes_that_are_asked_about() -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    (one,) = (await asked(c, job(2)))["gangs"]
    assert one["starts"] == "not"
    assert "1 of 2 members fit" in one["why"]["answer"]
    assert one["why"]["cures"]
    for more in ({"addNodes": 1, "like": "n0"}, {"without": ["d/runs"]}):
        assert (await asked(c, job(2), **more))["gangs"][0]["starts"] == "now", more
    assert (await asked(c, job(1), drain=["n0", "n1"]))["gangs"][0]["starts"] == "not"


async def test_what_is_reserved_and_not_bound_is_not_free() -> None:
    c = cluster(nodes=1, gpus=8)
    c.answer = lambda bind: "hold"
    c.submit(gang("on-its-way", pods=1, gpus=8)).run()
    assert c.group("on-its-way").n_assumed == 1
    assert (await asked(c, job(1)))["gangs"][0]["starts"] == "not"


async def test_a_class_gives_its_number_and_preempts_only_where_that_is_asked() -> None:
    c = cluster(nodes=1, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    important = job(1, priorityClassName="high")
    assert (await asked(c, important))["gangs"][0]["starts"] == "not"
    found = await asked(c, important, preempt=True)
    assert (found["gangs"][0]["starts"], found["evicted"]) == ("now", ["d/runs-0"])
    assert c.pod("runs-0").metadata.deletion_timestamp is None


async def test_a_standby_answers_as_a_leader_would() -> None:
    c = Cluster(make=lambda settings: follower(settings))
    for node in cluster(nodes=1, gpus=8).nodes.values():
        c.node(node)
    assert not c.scheduler.is_synced
    assert (await asked(c, job(1)))["gangs"][0]["starts"] == "now"
    assert not c.scheduler.is_synced


@pytest.mark.parametrize(
    ("yaml", "why"),
    [
        (" \n", "the text: is empty"),
        ("kind: [", "the text: line 1: is not YAML"),
        ("a: 1", "apiVersion: is missing"),
        ("- 1\n- 2", "is not an object with apiVersion and kind"),
        (job(1, schedulerName="gangshed"), "names the scheduler 'gangshed'; did you mean"),
        (job(1, priorityClassName="hihg"), "there is no PriorityClass 'hihg'"),
        ("[" * 800, "is nested more than 100 levels deep"),
        ("---\nkind: a\n" * 1100, "at most 1000 are read"),
        (job(20_000), "makes 20000 pods; at most 10000"),
    ],
)
async def test_an_invalid_question_is_refused_with_its_place(yaml: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await asked(cluster(nodes=1), yaml)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "more", [{"addNodes": -1}, {"addNodes": 1e9}, {"like": "x" * 1000}, {"drain": ["n"] * 51}, {"other": 1}]
)
async def test_a_question_beyond_its_bounds_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        await asked(cluster(nodes=1), job(1), **more)


async def test_a_text_that_grows_without_end_ends_by_its_limits() -> None:
    """An alias of aliases: a few lines that stand for 10^9 elements."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    bomb = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  " + "\n  ".join(lines)
    c = cluster(nodes=1)
    with pytest.raises((NotNow, ConfigError)):
        await whatif_of(c, limit_s=10.0).answer(msgspec.json.encode({"yaml": bomb}))
    assert (await asked(c, job(1)))["gangs"][0]["starts"] == "now"


async def test_one_at_a_time_and_the_next_is_told_to_wait() -> None:
    c = cluster(nodes=1)
    whatif, told = whatif_of(c), list[int]()
    body = msgspec.json.encode({"yaml": job(1)})

    async def ask() -> None:
        try:
            await whatif.answer(body)
            told.append(200)
        except NotNow as error:
            told.append(error.code)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
    assert sorted(told) == [200, 429, 429]
    await whatif.answer(body)


# -- the copy -----------------------------------------------------------------------------------------------


def forever() -> bytes:
    time.sleep(60)
    return b""


def pids() -> set[int]:
    """Processes that are ours."""
    return {one.pid for one in psutil.Process().children()}


async def test_a_copy_that_takes_too_long_is_ended_and_leaves_nothing() -> None:
    before, n_files = pids(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(CopyFailed, match=r"took longer than 0\.2 s"):
        await in_copy(forever, limit_s=0.2)
    assert (pids(), len(os.listdir("/proc/self/fd"))) == (before, n_files)


async def test_a_copy_that_is_given_up_is_ended() -> None:
    before = pids()
    with anyio.move_on_after(0.1):
        await in_copy(forever, limit_s=30.0)
    assert pids() == before


async def test_what_a_copy_does_is_not_done_here() -> None:
    kept: list[int] = []

    def change() -> bytes:
        kept.append(1)
        return str(len(kept)).encode()

    assert (await in_copy(change, limit_s=10.0)).body == b"1"
    assert kept == []


async def test_a_copy_has_no_file_but_its_answer_and_bounded_memory() -> None:
    def files() -> bytes:
        return " ".join(sorted(os.listdir("/proc/self/fd"))).encode()

    assert (await in_copy(files, limit_s=10.0)).body.split() == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(CopyFailed, match="more memory"):
        await in_copy(lambda: bytes(4 * 2**30), limit_s=10.0)


async def test_a_fault_in_a_copy_is_reported() -> None:
    with pytest.raises(CopyFailed, match="ZeroDivisionError"):
        await in_copy(lambda: b"%d" % (1 // 0), limit_s=10.0)
    with pytest.raises(CopyFailed, match="without an answer"):
        await in_copy(lambda: os.abort(), limit_s=10.0)
    with pytest.raises(CopyFailed, match="longer than 16 MiB"):
        await in_copy(lambda: bytes(20 * 2**20), limit_s=10.0)


# -- the port -----------------------------------------------------------------------------------------------


async def test_a_login_may_ask_and_others_may_not(pair: Pair) -> None:
    c = cluster(nodes=1, gpus=8)
    body = json.dumps({"yaml": job(1)})
    async with logged_in(pair, c) as browser:
        code, text = await post(browser, body)
        assert code == 200
        assert json.loads(text)["gangs"][0]["starts"] == "now"
        assert (await post(browser, body, Sec_Fetch_Site="cross-site"))[0] == 403
        assert (await post(browser, body, Origin="https://evil.example"))[0] == 403
        assert (await post(browser, body, Origin="null"))[0] == 403
        assert (await post(browser, body, Origin="http://["))[0] == 403
        assert (await post(browser, body, Origin=browser.base))[0] == 200
        assert (await post(browser, body, Content_Type="text/plain"))[0] == 415
        assert (await browser.ask(_PATH))[0] == 405
    async with browsing(pair, c, reader()) as browser:
        assert (await post(browser, body))[0] == 403
        assert (await post(browser, body, Authorization="Bearer made-up"))[0] == 401
        assert (await post(browser, body, Authorization="Bearer good"))[0] == 200
    async with browsing(pair, c, ApiServer()) as browser:
        assert (await post(browser, body, Authorization="Bearer good"))[0] == 403


async def test_the_cookie_of_before_still_makes_no_login(pair: Pair) -> None:
    async with logged_in(pair, cluster(nodes=1)) as browser:
        assert (await browser.ask("/dashboard/session", method="POST"))[0] == 403


async def test_a_body_beyond_its_bounds_is_refused_whatever_it_says_of_its_length(pair: Pair) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MAX_BYTES // 1024 + 2):
            yield b" " * 1024

    async with logged_in(pair, cluster(nodes=1)) as browser:
        assert (await post(browser, b" " * (MAX_BYTES + 1)))[0] == 413
        given = {"Content-Type": "application/json"}
        async with browser.session.post(browser.base + _PATH, data=parts(), headers=given) as answer:
            assert answer.status == 413
        for body in (b"", b"{", b"\xff\xfe", b"[" * 10_000, b"[1]", b'{"yaml": 1}'):
            code, text = await post(browser, body)
            assert code == 400, body
            assert "cannot be read" in text
        code, text = await post(browser, json.dumps({"yaml": "kind: \x1b[31m\n"}))
        assert code == 400
        assert text.strip().isprintable()


async def test_a_body_is_not_unpacked(pair: Pair) -> None:
    async with logged_in(pair, cluster(nodes=1)) as browser:
        for body in (gzip.compress(b"{}"), b"no gzip at all"):
            code, said = await post(browser, body, Content_Encoding="gzip")
            assert (code, said.isprintable() or said.endswith("\n")) == (400, True)


async def test_more_questions_than_one_are_refused_with_when_to_come_again(pair: Pair) -> None:
    async with logged_in(pair, cluster(nodes=40, gpus=8)) as browser:
        codes: list[tuple[int, str]] = []

        async def ask(session: aiohttp.ClientSession) -> None:
            given = {"Content-Type": "application/json"}
            data = json.dumps({"yaml": job(30)})
            async with session.post(browser.base + _PATH, data=data, headers=given) as answer:
                codes.append((answer.status, answer.headers.get("Retry-After", "")))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask, browser.session)
        assert (200, "") in codes
        assert set(codes) == {(200, ""), (429, "2")}


def test_without_evictions_none_is_tried() -> None:
    c = cluster(nodes=1, settings=Settings(allow_eviction=False))
    c.scheduler.shared.become_copy(allow_eviction=True)
    assert not c.scheduler.shared.settings.allow_eviction


# -- the command --------------------------------------------------------------------------------------------


async def test_the_command_asks_the_running_scheduler(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    (tmp_path / "one.yaml").write_text(job(1))
    (tmp_path / "more.yaml").write_text(job(1, name="more"))
    (tmp_path / "bad.yaml").write_text("kind: [")
    one, more, bad = (f"-f{tmp_path / name}.yaml" for name in ("one", "more", "bad"))
    async with browsing(pair, c, reader()) as browser:

        async def run(*arguments: str, token: str = "good") -> tuple[int, str, str]:
            at = (f"--server={browser.base}", f"--token={token}")
            code = await anyio.to_thread.run_sync(main, ["whatif", *arguments, *at])
            said = capsys.readouterr()
            return code, said.out, said.err

        code, out, _ = await run(one)
        assert code == 0
        assert "default/new would start now: 1 of 1 pod on 1 node" in out
        assert "GPU-" in out
        code, out, _ = await run(one, more, "-ojson")
        assert code == 3
        assert sorted(gang["starts"] for gang in json.loads(out)["gangs"]) == ["not", "now"]
        assert (await run(one, more, "--without=d/runs"))[0] == 0
        code, _, err = await run(bad)
        assert (code, f"gangsched: {bad[2:]}: line 1: is not YAML" in err) == (2, True)
        (tmp_path / "bad.yaml").write_text("apiVersion: v1\nkind: Podd\nmetadata: {name: p}\n")
        code, _, err = await run(bad)
        assert (code, err[:38]) == (2, "gangsched: the text: kind: 'Podd' cann")
        code, _, err = await run(one, "--config=x.yaml")
        assert (code, "--config: is for the API server's lists, and not for --server" in err) == (2, True)
        code, _, err = await run(one, token="made-up")
        assert (code, "401" in err) == (1, True)
