"""Lists that never end: whoever reads one to its end says what is wrong, and keeps no more than it may."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from gangsched.command.cli import main
from gangsched.errors import ApiError
from gangsched.extension.handle import Handle
from gangsched.kube.pages import MAX_EMPTY_PAGES, Pages
from gangsched.kube.watch.catch_up import BOUND, ask_pages
from gangsched.kube.watch.decode import pods


def same(_: int) -> str:
    return "again"


def another(n: int) -> str:
    return f"token-{n}"


def items(number: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"n{number}", "uid": f"u{number}"}}]


class Endless:
    """Each page says that another follows; it stops answering after so many that nobody should ask for."""

    def __init__(self, token: Callable[[int], str], *, empty: bool) -> None:
        self.token = token
        self.empty = empty
        self.n_asked = 0

    def page(self, kind: str = "PodList") -> bytes:
        self.n_asked += 1
        assert self.n_asked < 1000, "no end"
        page = {
            "kind": kind,
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "5", "continue": self.token(self.n_asked)},
            "items": [] if self.empty else items(self.n_asked),
        }
        return json.dumps(page).encode()

    async def get(self, path: str, params: Any = None, **_: Any) -> bytes:
        return self.page()


@contextmanager
def served(endless: Endless) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path)
            is_list = "limit" in parse_qs(path.query)
            kind = "NodeList" if path.path.endswith("/nodes") else "PodList"
            body = endless.page(kind) if is_list else b'{"kind": "Status", "code": 404, "reason": "NotFound"}'
            if path.path == "/version":
                body, is_list = b'{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}', True
            self.send_response(200 if is_list else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("endless", "why"),
    [
        (Endless(same, empty=False), "two pages in a row end with the same continue token"),
        (Endless(another, empty=True), f"{MAX_EMPTY_PAGES} pages in a row are empty"),
    ],
    ids=["the same token", "empty pages"],
)
@pytest.mark.parametrize("command", ["load", "devices", "gangs"])
def test_a_command_ends_where_the_servers_list_does_not(
    endless: Endless, why: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    endless.n_asked = 0
    with served(endless) as master:
        assert main([command, "--master", master]) != 0
    said = capsys.readouterr().err
    assert why in said
    assert "does not end" in said
    assert "Traceback" not in said


async def test_a_plugins_list_and_the_list_of_bound_pods_end_too() -> None:
    endless: Any = Endless(same, empty=False)
    handle = Handle("p", endless, emit_nowait=lambda _: None, waiting=lambda _: None)
    with pytest.raises(ApiError, match="same continue token"):
        await handle.list("/api/v1/pods")
    with pytest.raises(ApiError, match="same continue token"):
        async for _ in ask_pages(endless, pods(), BOUND):
            pass


@pytest.mark.parametrize("page", ['"metadata": 1', '"items": {"a": 1}', '"metadata": {"continue": 5}'])
async def test_an_unreadable_list_is_an_api_error_to_a_plugin(page: str) -> None:
    class Client:
        async def get(self, *_: Any, **__: Any) -> bytes:
            return b'{"kind": "PodList", %s}' % page.encode()

    client: Any = Client()
    handle = Handle("p", client, emit_nowait=lambda _: None, waiting=lambda _: None)
    with pytest.raises(ApiError, match="not a list that can be read"), anyio.fail_after(5.0):
        await handle.list("/api/v1/pods")


def read(pages: Pages, *, n_bytes: int) -> None:
    for n in range(100):
        pages.after(another(n), n_items=1, n_bytes=n_bytes)


def test_pages_and_bytes_without_end_are_stopped() -> None:
    with pytest.raises(ApiError, match="after 50 pages it still says that more follows"):
        read(Pages("/x", max_pages=50), n_bytes=1)
    with pytest.raises(ApiError, match="longer than 3 MiB"):
        read(Pages("/x", max_bytes=3 * 2**20), n_bytes=2**20)


def test_a_list_that_ends_is_read_as_its_server_splits_it() -> None:
    pages = Pages("/x", max_pages=3, max_empty=2)
    assert [pages.after(token, n_items=n, n_bytes=10) for token, n in (("a", 0), ("b", 5), ("", 0))] == [
        "a",
        "b",
        "",
    ]
