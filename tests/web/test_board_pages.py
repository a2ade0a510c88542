"""The dashboard over HTTP: what is open, what needs the right, the cookie, other sites, events."""

from __future__ import annotations

import argparse
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gangsched.certificates import Pair
from gangsched.process.flags import add_web_flags, web_settings
from gangsched.web.board.feed import Feed
from gangsched.web.board.history import History
from gangsched.web.board.pages import Board
from gangsched.web.board.whatif import WhatIf
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from gangsched.web.pages.stories import Stories
from gangsched.whatif.cluster import Classes
from tests.support.processes import PATIENCE_S
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import Client, serving


def board_of(
    c: Cluster,
    *,
    may_act: Callable[[], bool] = lambda: True,
    leader: Callable[[], str | None] = lambda: None,
) -> Board:
    queue = Queue(c.scheduler, clock_s=lambda: c.now_s, leader=leader)
    feed = Feed(c.scheduler, History(c.scheduler, n_attempts=lambda: 0), queue, may_act=may_act)
    stories = Stories(c.scheduler, clock_s=lambda: c.now_s)
    explanations = Explanations(c.scheduler, clock_s=lambda: c.now_s)
    whatif = WhatIf(c.scheduler, priorities=no_priorities, clock_s=lambda: c.now_s, limit_s=PATIENCE_S)
    return Board(c.scheduler, feed, stories=stories, explanations=explanations, whatif=whatif)


async def no_priorities() -> Classes:
    return {}


def reader() -> ApiServer:
    """Whose prometheus may read the dashboard."""
    api = ApiServer()
    api.may.add(("prometheus", "/dashboard"))
    return api


def busy() -> Cluster:
    return cluster(nodes=2, gpus=2).submit(gang("train", pods=1, gpus=2)).run()


@pytest.mark.parametrize(("method", "path"), [("GET", "/metrics"), ("POST", "/dashboard/session")])
async def test_a_flood_of_tokens_from_one_address_is_not_in_the_way_of_another(
    pair: Pair, method: str, path: str
) -> None:
    async with serving(pair, board=board_of(busy())) as client:
        codes = [(await client.ask(path, method=method, token=f"wrong-{k}"))[0] for k in range(60)]
        assert set(codes) == {401, 429}
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=elsewhere) as session:
            trust = ssl.create_default_context(cadata=pair.certificate.decode())
            other = Client(session, client.port, trust)
            assert (await other.ask(path, method=method, token="other"))[0] == 401


class Browser:
    """A browser with its cookies."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def ask(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.base + path, headers=given) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def browsing(
    pair: Pair, c: Cluster, api: ApiServer, *, allow: tuple[str, ...] = ()
) -> AsyncIterator[Browser]:
    trust = ssl.create_default_context(cadata=pair.certificate.decode())
    jar = aiohttp.CookieJar(unsafe=True)  # it is an address, not a name
    async with (
        serving(pair, board=board_of(c), api=api, always_allow=allow) as client,
        aiohttp.ClientSession(cookie_jar=jar, connector=aiohttp.TCPConnector(ssl=trust)) as session,
    ):
        yield Browser(session, f"https://127.0.0.1:{client.port}")


DATA = ("/dashboard/events", "/dashboard/gang/d/train", "/dashboard/node/n0")


async def test_the_page_is_open_and_holds_no_data_and_the_rest_needs_the_right(pair: Pair) -> None:
    async with browsing(pair, busy(), reader()) as browser:
        for name in (
            "",
            "/main.js",
            "/map.js",
            "/panels.js",
            "/text.js",
            "/whatif.js",
            "/style.css",
            "/icon.svg",
        ):
            code, text = await browser.ask(f"/dashboard{name}")
            assert code == 200, name
            assert "train" not in text
        for path in DATA:
            assert (await browser.ask(path))[0] == 403, path
            assert (await browser.ask(path, Authorization="Bearer made-up"))[0] == 401, path
        assert (await browser.ask("/dashboard/none"))[0] == 404
        code, text = await browser.ask("/dashboard/session")
        assert code == 200
        assert json.loads(text)["allowed"] is False


async def test_a_user_without_the_right_learns_the_path(pair: Pair) -> None:
    async with browsing(pair, busy(), ApiServer()) as browser:
        code, text = await browser.ask("/dashboard/session", method="POST", Authorization="Bearer good")
        assert (code, text) == (403, 'User "prometheus" cannot get path "/dashboard"\n')
        assert not list(browser.session.cookie_jar)


async def test_a_login_lasts_until_logout_and_only_for_the_dashboard(pair: Pair) -> None:
    async with browsing(pair, busy(), reader()) as browser:
        async with browser.session.post(
            f"{browser.base}/dashboard/session", headers={"Authorization": "Bearer good"}
        ) as answer:
            assert answer.status == 204
            cookie = answer.headers["Set-Cookie"]
        for said in ("HttpOnly", "Secure", "SameSite=Strict", "Path=/dashboard"):
            assert said in cookie
        assert "good" not in cookie
        code, text = await browser.ask("/dashboard/gang/d/train")
        assert code == 200
        gang_ = json.loads(text)
        assert gang_["members"][0]["name"] == "train-0"
        assert gang_["stories"][0]["state"] == "bound"
        assert gang_["explanations"][0]["explanation"]["group"] == "d/train"
        code, text = await browser.ask("/dashboard/node/n0")
        assert json.loads(text)["devices"]["nvidia.com/gpu"][0]["group"] in ("", "d/train")
        assert (await browser.ask("/dashboard/node/none"))[0] == 404
        assert (await browser.ask("/metrics"))[0] == 403  # the cookie speaks for nothing else
        assert (await browser.ask("/dashboard/session", method="DELETE"))[0] == 204
        assert (await browser.ask("/dashboard/gang/d/train"))[0] == 403


async def test_an_invented_session_is_refused(pair: Pair) -> None:
    async with browsing(pair, busy(), reader()) as browser:
        browser.session.cookie_jar.update_cookies({"gangsched-session": "made-up"})
        assert (await browser.ask("/dashboard/node/n0"))[0] == 401


async def test_another_site_gets_nothing_even_with_the_cookie(pair: Pair) -> None:
    async with browsing(pair, busy(), reader()) as browser:
        await browser.ask("/dashboard/session", method="POST", Authorization="Bearer good")
        for path in DATA:
            assert (await browser.ask(path, Sec_Fetch_Site="cross-site"))[0] == 403, path
        code, _ = await browser.ask("/dashboard/session", method="DELETE", Sec_Fetch_Site="cross-site")
        assert code == 403
        assert (await browser.ask("/dashboard/node/n0"))[0] == 200


async def test_an_open_dashboard_is_not_read_under_somebody_elses_name(pair: Pair) -> None:
    async with browsing(pair, busy(), ApiServer(), allow=("/dashboard",)) as browser:
        assert (await browser.ask("/dashboard/node/n0"))[0] == 200
        assert (await browser.ask("/dashboard/node/n0", Host="evil.example:1"))[0] == 403
        assert (await browser.ask("/dashboard/node/n0", Host="localhost:1"))[0] == 200


async def test_every_answer_forbids_whatever_the_page_does_not_use(pair: Pair) -> None:
    async with browsing(pair, busy(), ApiServer(), allow=("/dashboard",)) as browser:
        for path in ("/dashboard", "/dashboard/main.js", "/dashboard/events"):
            async with browser.session.get(browser.base + path) as answer:
                policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_events_begin_with_the_whole_map_and_the_queue(pair: Pair) -> None:
    c = busy().submit(gang("large", pods=3, gpus=2)).run()
    async with browsing(pair, c, ApiServer(), allow=("/dashboard",)) as browser:
        async with browser.session.get(f"{browser.base}/dashboard/events") as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            line = await answer.content.readuntil(b"\n\n")
        told = json.loads(line.removeprefix(b"data: "))
        assert told["whole"]
        assert told["queue"]["rows"][0]["group"] == "d/large"


def test_the_page_makes_text_and_never_markup() -> None:
    board = board_of(busy())
    script = b"".join(body for name, body in board.assets.items() if name.endswith(".js")).decode()
    markup = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    for word in markup:
        assert word not in script
    assert "http://" not in script
    assert "https://" not in script


async def test_where_it_is_turned_off_there_is_nothing(pair: Pair) -> None:
    async with serving(pair) as client:
        assert (await client.ask("/dashboard"))[0] == 404
    parser = argparse.ArgumentParser()
    add_web_flags(parser)
    on, off = (web_settings(parser.parse_args(given)) for given in ([], ["--no-dashboard"]))
    assert on is not None
    assert off is not None
    assert (on.dashboard, off.dashboard) == (True, False)
