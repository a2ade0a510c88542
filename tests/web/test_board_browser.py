"""The dashboard in a real browser, without a display: what it shows, and what it must never do."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright

from gangsched.certificates import self_signed
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from gangsched.lab.sim.objects import make_node
from tests.core.claims import ClaimCluster, gpus, wish
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_board_claims import crowded
from tests.web.test_board_pages import board_of
from tests.web.test_board_whatif import job
from tests.web.test_server import serving

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# A limit, not a time that is measured: a loaded machine takes long to start a browser.
_LONG_MS = 60_000
_HOSTILE = '<img src=x onerror="document.title=1">\x1b[31m\u202e'


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        why = "there is no Chromium; as root: apt-get install chromium"
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but {why}", pytrace=False)
        pytest.skip(why)
    return found


@asynccontextmanager
async def opened(
    chromium: str,
    c: Cluster,
    *,
    width: int = 1400,
    dark: bool = False,
    may_act: Callable[[], bool] = lambda: True,
    leader: Callable[[], str | None] = lambda: None,
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page while it follows, and what it wrote to its console."""
    pair, board = self_signed("gangsched", hosts=["127.0.0.1"]), board_of(c, may_act=may_act, leader=leader)
    complaints: list[str] = []
    async with (
        serving(pair, board=board, api=ApiServer(), always_allow=("/dashboard",)) as client,
        async_playwright() as driver,
        anyio.create_task_group() as group,
    ):
        browser = await driver.chromium.launch(executable_path=chromium, args=_FLAGS, timeout=_LONG_MS)
        try:
            page = await browser.new_page(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                ignore_https_errors=True,
            )
            page.set_default_timeout(_LONG_MS)
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            group.start_soon(board.feed.run)
            await page.goto(f"https://127.0.0.1:{client.port}/dashboard")
            await page.wait_for_selector("#state.live")
            yield page, complaints
        finally:
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await browser.close()


async def tile(page: Page, name: str, value: str) -> None:
    """Waits until the tile shows the value."""
    rows = "[...document.querySelectorAll('#tiles div')]"
    said = "r.querySelector('dt').textContent === name && r.querySelector('dd').textContent.startsWith(value)"
    await page.wait_for_function(f"([name, value]) => {rows}.some((r) => {said})", arg=[name, value])


async def test_a_bind_comes_to_the_map_and_a_gang_is_opened_from_the_queue(chromium: str) -> None:
    c = cluster(nodes=4, gpus=4, racks=2)
    async with opened(chromium, c) as (page, complaints):
        await tile(page, "Free", "16")
        c.submit(gang("train", pods=2, gpus=4)).submit(gang("large", pods=9, gpus=4)).run()
        await tile(page, "Free", "8")
        await page.click("text=d/large")
        await page.wait_for_selector("#detail .answer")
        assert "Gang d/large" in await page.inner_text("#detail-title")
        assert "large-8" in await page.inner_text("#detail-body")
        assert complaints == []


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)], ids=["desk-light", "phone-dark"])
async def test_nothing_serious_bars_anybody_and_it_fits_the_width(
    chromium: str, width: int, dark: bool
) -> None:
    c = cluster(nodes=4, gpus=4, racks=2).submit(gang("large", pods=9, gpus=4)).run()
    async with opened(chromium, c, width=width, dark=dark) as (page, complaints):
        await page.wait_for_selector("text=d/large")
        found = (await Axe().run(page)).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert complaints == []


async def test_where_nothing_waits_a_job_is_shown_that_would_run_as_a_gang(chromium: str) -> None:
    """Its text is a manifest: pasted into What if it starts. It can be copied."""
    c = cluster(nodes=2, gpus=4)
    async with opened(chromium, c) as (page, complaints):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.wait_for_selector("pre.sample")
        await page.click("#queue-rows button")
        await page.wait_for_selector("text=Copied")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == await page.locator("pre.sample").text_content()
        await page.fill("#whatif-yaml", copied)
        await page.click("#whatif-ask")
        await page.wait_for_selector("#whatif-answer .good")
        assert "4 of 4 pods on" in await page.inner_text("#whatif-answer")
        found = (await Axe().run(page)).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        c.submit(gang("large", pods=9, gpus=4)).run()
        await page.wait_for_selector("text=d/large")
        assert await page.locator("pre.sample").count() == 0
        assert complaints == []


async def test_hostile_text_stays_text(chromium: str) -> None:
    c = cluster(nodes=1, gpus=1).submit(gang("large", pods=2, gpus=1)).run()
    (group,) = c.groups()
    group.problem = _HOSTILE
    async with opened(chromium, c) as (page, complaints):
        await page.wait_for_selector("td.why")
        told = await page.inner_text("td.why")
        assert told == '<img src=x onerror="document.title=1">\\x1b[31m\\x202e'
        assert await page.title() == "gangsched"
        assert await page.locator("td.why img").count() == 0
        assert complaints == []


async def test_a_pasted_job_is_answered_and_framed_on_the_map(chromium: str) -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("runs", pods=1, gpus=8)).run()
    (free,) = {"n0", "n1"} - {c.pod("runs-0").spec.node_name}
    async with opened(chromium, c) as (page, complaints):
        await page.fill("#whatif-yaml", job(1))
        await page.press("#whatif-yaml", "Control+Enter")
        await page.wait_for_selector("#whatif-answer .good")
        told = await page.inner_text("#whatif-answer")
        assert "default/new would start now" in told
        assert free in told
        await page.fill("#whatif-yaml", job(2))
        await page.click("#whatif-ask")
        await page.wait_for_selector("#whatif-answer .answer.wrong")
        assert "1 of 2 members fit" in await page.inner_text("#whatif-answer")
        await page.click("text=With changes to the cluster")
        await page.fill("#whatif-add", "1")
        await page.fill("#whatif-like", "n0")
        await page.click("#whatif-ask")
        await page.wait_for_selector("#whatif-answer .good")
        assert "With 1 more like n0:" in await page.inner_text("#whatif-answer")
        found = (await Axe().run(page)).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert complaints == []


async def test_a_text_that_is_no_job_is_refused_as_text(chromium: str) -> None:
    async with opened(chromium, cluster(nodes=1)) as (page, complaints):
        await page.fill("#whatif-yaml", "kind: <img src=x onerror='document.title=1'>\napiVersion: v1")
        await page.click("#whatif-ask")
        await page.wait_for_selector("#whatif-answer .wrong")
        assert await page.inner_text("#whatif-answer") == "the text: metadata.name: is missing"
        await page.fill("#whatif-yaml", "kind: <img>\napiVersion: v1\nmetadata: {name: a}")
        await page.click("#whatif-ask")
        answer = "document.querySelector('#whatif-answer')"
        await page.wait_for_function(f"() => {answer}.innerText.includes('<img>')")
        assert await page.locator("#whatif-answer img").count() == 0
        assert await page.title() == "gangsched"
        # The browser itself notes an answer that is no success.
        assert all("status of 400" in one for one in complaints)


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)], ids=["desk-light", "phone-dark"])
async def test_devices_by_claims_are_on_the_map_and_lead_to_their_gang(
    chromium: str, width: int, dark: bool
) -> None:
    async with opened(chromium, crowded(), width=width, dark=dark) as (page, complaints):
        await tile(page, "Nodes", "4")
        await tile(page, "Free", "15")
        assert "tainted" in await page.inner_text("#legend")
        await page.click("#racks summary")
        assert "pools of several nodes" in await page.inner_text("#rack-table")
        for address, told in (
            ("#gang/d/train", "Each asks for gpu: 3 of class gpu that pass"),
            ("#gang/d/large", "waits for devices"),
            ("#node/n2", "blocked: no gpu-0/slices left"),
            ("#node/n3", "free, tainted (example.com/burn-in)"),
            ("#pool/fabric.example.com/leaf%2Fa", "shared by 3 claims"),
        ):
            await page.evaluate("(address) => { location.hash = address; }", address)
            arrived = "(told) => document.querySelector('#detail-body').innerText.includes(told)"
            await page.wait_for_function(arrived, arg=told)
            found = (await Axe().run(page)).response["violations"]
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.evaluate("location.hash = '#node/n2'")
        await page.click("#detail a >> text=fabric.example.com/leaf/a")
        await page.wait_for_selector("text=Pool fabric.example.com/leaf/a")
        await page.evaluate("location.hash = '#node/n2'")
        await page.click("#detail a >> text=d/halves")
        await page.wait_for_selector("text=Gang d/halves")
        assert complaints == []


async def test_hostile_names_of_pools_and_requests_stay_text(chromium: str) -> None:
    c = ClaimCluster().offer("n0")
    pool = {"name": _HOSTILE, "generation": 1, "resourceSliceCount": 1}
    c.slice("bad", gpus("n0", 2) | {"pool": pool, "driver": _HOSTILE})
    spec = wish(expression=f'device.driver != "{chr(0x202E)}<img src=x onerror=alert(1)>"')
    c.submit(c.want("train-0", spec, group="train", min_members=1)).run()
    async with opened(chromium, c) as (page, complaints):
        for address in ("#node/n0", "#gang/d/train"):
            await page.evaluate("(address) => { location.hash = address; }", address)
            await page.wait_for_function(
                "() => document.querySelector('#detail-body').innerText.includes('<img src=x')"
            )
            assert await page.locator("#detail img").count() == 0
        assert await page.title() == "gangsched"
        assert complaints == []


async def test_a_replica_that_does_not_lead_says_so_and_escape_closes_a_gang(chromium: str) -> None:
    c = cluster(nodes=1, gpus=1).submit(gang("large", pods=2, gpus=1)).run()
    leads, leader = True, None
    async with opened(chromium, c, may_act=lambda: leads, leader=lambda: leader) as (page, complaints):
        assert await page.inner_text("#state") == "live"
        leads, leader = False, "gangsched-7d9c-x2k4q_1f"
        c.submit(gang("small", pods=1, gpus=1)).run()
        await page.wait_for_function(
            "() => document.querySelector('#state').textContent.includes('does not lead: it decides"
            " nothing; gangsched-7d9c-x2k4q_1f leads')"
        )
        await page.click("text=d/large")
        await page.wait_for_selector("#detail .answer")
        await page.press("#detail", "Escape")
        await page.wait_for_selector("text=Nothing selected")
        assert complaints == []


async def test_a_long_name_leaves_the_other_columns_in_view(chromium: str) -> None:
    c = cluster(nodes=1).node(make_node("n9", gpus=1, rack="r" + "y" * 62))
    c.submit(gang("z" * 250, pods=9, gpus=9), gang("large", pods=9, gpus=9)).run()
    async with opened(chromium, c) as (page, complaints):
        await page.wait_for_selector("text=d/large")
        await page.click("#racks summary")
        for last in ("#queue td.why", "#rack-table td:last-child"):
            box = await page.locator(last).first.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 1400
        assert complaints == []


@pytest.mark.parametrize(
    "address", ["#gang/%", "#gang/d/%E0%A4%A", "#node/%", "#gang/../session", "#gang//x"]
)
async def test_an_address_that_names_nothing_is_no_gang_and_stops_nothing(
    chromium: str, address: str
) -> None:
    c = cluster(nodes=2, gpus=4)
    async with opened(chromium, c) as (page, complaints):
        await page.evaluate("(address) => { location.hash = address; }", address)
        await page.wait_for_function(
            "() => document.querySelector('#detail-body').innerText === 'It does not exist any more.'"
        )
        c.submit(gang("train", pods=1, gpus=4)).run()
        await tile(page, "Free", "4")
        # The browser itself notes an answer that is no success.
        assert all("status of 404" in one for one in complaints)
