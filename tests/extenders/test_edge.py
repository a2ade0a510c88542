"""Extenders over a real socket: what they are asked, and what becomes of every bad answer."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from gangsched.config import ExtenderConfig, parse_config
from gangsched.errors import ConfigError
from gangsched.extenders import asking, client
from gangsched.extenders.asking import Asking
from gangsched.extenders.client import Extender, ExtenderError
from gangsched.kube.client import ApiClient
from gangsched.model.effects import AskExtenders
from gangsched.model.events import Event, ExtendersAnswered
from gangsched.plugins import IN_TREE
from tests.extenders.server import ExtenderServer
from tests.proxy import self_signed

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
POD = {"metadata": {"name": "a", "namespace": "d", "uid": "u", "managedFields": [1]}, "kind": "Pod"}
NAMES = ("n0", "n1", "n2")


@pytest.fixture
def server() -> Iterator[ExtenderServer]:
    with ExtenderServer() as running:
        yield running


def configured(url: str, **fields: Any) -> ExtenderConfig:
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 2, "nodeCacheCapable": True}
    extender = {"urlPrefix": url, **verbs, **fields}
    text = msgspec.json.encode(HEAD | {"extenders": [extender]}).decode()
    [found] = parse_config(text, source="", plugins=IN_TREE).extenders
    return found


class Cluster:
    """The API server, as far as it is asked: one pod, three nodes."""

    async def get(self, path: str, params: Any = None) -> bytes:
        if path.endswith("/pods/a"):
            return msgspec.json.encode(POD)
        items = [{"metadata": {"name": name}, "spec": {}} for name in NAMES]
        return msgspec.json.encode({"items": items})


async def ask(*configs: ExtenderConfig, nodes: Sequence[str] = NAMES) -> ExtendersAnswered:
    """What comes of one question to all of them."""
    answers: list[Event] = []
    done = anyio.Event()

    async def put(events: Sequence[Event]) -> None:
        answers.extend(events)
        done.set()

    asker = Asking(configs, cast(ApiClient, Cluster()), put)
    effect = AskExtenders(7, "u", "d", "a", tuple(nodes), tuple(range(len(configs))), "c")
    async with anyio.create_task_group() as group:
        group.start_soon(asker.run)
        assert asker.taken([effect]) == []
        with anyio.fail_after(20):
            await done.wait()
        group.cancel_scope.cancel()
    [answer] = answers
    assert isinstance(answer, ExtendersAnswered)
    return answer


async def test_filter_and_scores(server: ExtenderServer) -> None:
    server.refuses, server.scores = {"n1": "no licence"}, {"n0": 3, "n2": 10}
    answer = await ask(configured(server.url))
    assert (answer.error, answer.nodes, answer.failed) == ("", ("n0", "n2"), {"n1": "no licence"})
    assert answer.scores == {"n0": 6, "n2": 20}
    [asked] = server.asked_for("filter")
    assert asked == {
        "Pod": {"metadata": {"name": "a", "namespace": "d", "uid": "u"}},
        "Nodes": None,
        "NodeNames": list(NAMES),
    }
    assert server.asked_for("prioritize")[0]["NodeNames"] == ["n0", "n2"]


async def test_whole_nodes_for_one_without_a_cache(server: ExtenderServer) -> None:
    server.refuses = {"n0": "", "n1": ""}
    answer = await ask(configured(server.url, nodeCacheCapable=False))
    assert answer.nodes == ("n2",)
    assert answer.failed == {"n0": "", "n1": ""}
    [asked] = server.asked_for("filter")
    assert asked["NodeNames"] is None
    assert asked["Nodes"]["items"][0] == {"metadata": {"name": "n0"}, "spec": {}}
    assert not server.asked_for("prioritize"), "one node needs no score"


async def test_one_after_the_other(server: ExtenderServer) -> None:
    with ExtenderServer() as second:
        server.refuses = {"n0": "first says no"}
        second.scores = {"n1": 1}
        answer = await ask(configured(server.url), configured(second.url, weight=5))
        assert second.asked_for("filter")[0]["NodeNames"] == ["n1", "n2"]
    assert answer.scores == {"n1": 5, "n2": 0}


async def test_one_that_is_down() -> None:
    with ExtenderServer() as server:
        url = server.url
    answer = await ask(configured(url))
    assert answer.error.startswith(f"extender {url} cannot be asked: ")
    answer = await ask(configured(url, ignorable=True))
    assert (answer.error, answer.nodes) == ("", NAMES)


async def test_requests_that_have_waited_too_long_are_answered_and_not_asked(
    server: ExtenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be answered too late, and each that is asked for nothing makes the next one late."""
    n, answers, done = 3 * asking.N_AT_ONCE, list[ExtendersAnswered](), anyio.Event()
    now_s = 0.0
    monkeypatch.setattr(asking, "monotonic", lambda: now_s)

    async def put(events: Sequence[Event]) -> None:
        nonlocal now_s
        now_s = asking.LONGEST_WAIT_S + 1.0  # the first of them have taken as long
        answers.extend(cast(Sequence[ExtendersAnswered], events))
        if len(answers) == n:
            done.set()

    busy = Asking([configured(server.url)], cast(ApiClient, Cluster()), put)
    assert not busy.taken([AskExtenders(ticket, "u", "d", "a", NAMES, (0,), "c") for ticket in range(n)])
    async with anyio.create_task_group() as group:
        group.start_soon(busy.run)
        with anyio.fail_after(20):
            await done.wait()
        group.cancel_scope.cancel()
    assert sorted(answer.ticket for answer in answers) == list(range(n))
    late = [answer for answer in answers if answer.error]
    assert {answer.error for answer in late} == {"extenders are too slow: not asked within 30 s"}
    assert len(late) == n - len(server.asked_for("filter")) >= n - 2 * asking.N_AT_ONCE


async def test_one_at_a_name_that_no_host_can_have() -> None:
    answer = await ask(configured("http://a..b"))
    assert answer.error.startswith("extender http://a..b cannot be asked: ")


async def test_one_that_hangs(server: ExtenderServer) -> None:
    server.stall.clear()
    answer = await ask(configured(server.url, httpTimeout="200ms"))
    assert answer.error == f"extender {server.url} has not answered filter in 0.2 s"


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"oops", 500, "answers filter with code 500"),
        (b"<html>", 200, "answers filter with something that is not JSON"),
        (b"[]", 200, "answers list, not an object"),
        (b'{"Error": "out of \\n order"}', 200, "says: out of order"),
        (b'{"NodeNames": ["n0", "else"]}', 200, "answers node else, which it was not asked about"),
        (b'{"NodeNames": [7]}', 200, "answers nodes without names"),
        (b'{"NodeNames": [""]}', 200, "answers nodes without names"),
        (b'{"NodeNames": ["\xff"]}', 200, "answers filter with something that is not JSON: not UTF-8 text"),
        (b"[" * 5_000, 200, "answers filter with JSON that cannot be read"),
    ],
)
async def test_nonsense(raw: bytes, code: int, says: str, server: ExtenderServer) -> None:
    server.raw, server.code = raw, code
    answer = await ask(configured(server.url))
    assert answer.error.startswith(f"extender {server.url} {says}")


async def test_a_reply_without_end_is_not_read_to_its_end(
    server: ExtenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_REPLY", 100_000)
    server.raw = b" " * 50_000_000 + b"{}"
    answer = await ask(configured(server.url))
    assert answer.error == f"extender {server.url} answers more than 100000 bytes"


async def test_a_reply_far_longer_than_its_question_is_not_read(server: ExtenderServer) -> None:
    server.raw = b'{"NodeNames": ["n0"], "FailedNodes": {"n1": "' + b"a" * 2_000_000 + b'"}}'
    answer = await ask(configured(server.url))
    assert answer.error.startswith(f"extender {server.url} answers more than 10")


@pytest.mark.parametrize("unit", [b"[],", b"{},", b"1,"])
async def test_a_reply_of_countless_values_is_not_parsed(unit: bytes, server: ExtenderServer) -> None:
    server.raw = b'{"NodeNames": ["n0"], "x": [' + unit * 20_000 + b"1]}"
    answer = await ask(configured(server.url))
    assert answer.error.startswith(f"extender {server.url} answers filter with more than 10")


async def test_what_an_extender_says_is_one_line_that_no_terminal_obeys(server: ExtenderServer) -> None:
    server.raw = b'{"NodeNames": ["n0"], "FailedNodes": {"n1": "a\\u001b[31m\\nb", "other": "x"}}'
    answer = await ask(configured(server.url))
    assert answer.failed == {"n1": "a\\x1b[31m b", "n2": ""}


async def test_scores_that_add_up_without_end_stay_numbers_of_json(server: ExtenderServer) -> None:
    score = b'{"Host": "n0", "Score": 1099511627776},'
    server.raw = b"[" + score * 1000 + b'{"Host": "n1", "Score": 1}]'
    answer = await ask(configured(server.url, filterVerb="", weight=10**6))
    assert answer.scores == {"n0": 2**53, "n1": 10**6}


async def test_cookies_are_not_kept(server: ExtenderServer) -> None:
    server.headers = {"Set-Cookie": "a=b"}
    one = Extender(configured(server.url.replace("127.0.0.1", "localhost")))
    for _ in range(2):
        await one.prioritize({}, NAMES, None)
    await one.close()
    assert [headers.get("Cookie") for headers in server.asked_with] == [None, None]


@pytest.mark.parametrize(
    "raw",
    [b"{}", b'[{"Host": "n0", "Score": -1}]', b'[{"Host": "n0", "Score": true}]', b'[{"Host": 1}]', b"x"],
)
async def test_invalid_scores_are_left_out(raw: bytes, server: ExtenderServer) -> None:
    server.raw = raw
    answer = await ask(configured(server.url, filterVerb=""))
    assert (answer.error, answer.nodes, answer.scores) == ("", NAMES, {})


async def test_names_in_any_case(server: ExtenderServer) -> None:
    server.raw = b'{"nodenames": ["n1"], "failednodes": {"n0": "no"}, "error": ""}'
    answer = await ask(configured(server.url, prioritizeVerb="", weight=0))
    assert (answer.nodes, answer.failed) == (("n1",), {"n0": "no", "n2": ""})


async def test_https(tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    with ExtenderServer(tls=context) as server:
        trusted = await ask(configured(server.url, tlsConfig={"caFile": str(certificate)}))
        assert trusted.nodes == NAMES
        unknown = await ask(configured(server.url))
        assert "cannot be asked" in unknown.error
        blind = await ask(configured(server.url, enableHTTPS=True))
        assert blind.nodes == NAMES, "without an authority kube-scheduler asks for none"


async def test_certificates_in_the_file_itself(tmp_path: Path) -> None:
    context, certificate = self_signed(tmp_path)
    files = {"cert": certificate, "key": certificate.with_suffix(".key")}
    text = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    with ExtenderServer(tls=context) as server:
        tls = {"caData": text["cert"], "certData": text["cert"], "keyData": text["key"]}
        assert (await ask(configured(server.url, tlsConfig=tls))).nodes == NAMES
        without = configured(server.url, tlsConfig={"caData": text["cert"]})
        assert "cannot be asked" in (await ask(without)).error


def test_invalid_certificates_are_refused() -> None:
    with pytest.raises(ConfigError, match="its certificates cannot be used"):
        Extender(configured("https://127.0.0.1:1", tlsConfig={"caFile": "/nowhere"}))


async def test_a_client_says_whose_fault_it_was(server: ExtenderServer) -> None:
    server.code = 404
    one = Extender(configured(server.url))
    with pytest.raises(ExtenderError, match="code 404"):
        await one.prioritize({}, NAMES, None)
    await one.close()
