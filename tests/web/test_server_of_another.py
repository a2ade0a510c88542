"""The commands before a server that is not ours: whatever its texts are, a terminal gets plain ones."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from rich.console import Console

from gangsched.command.cli import main
from gangsched.web.commands.explain import print_page
from gangsched.web.commands.queue import print_queue, print_starts
from gangsched.web.commands.queues import print_queues
from gangsched.web.commands.story import print_story
from gangsched.web.pages.answers import QueuePage, QueuesPage, TopPage
from gangsched.web.pages.explanations import Page
from gangsched.web.pages.stories import Story
from gangsched.whatif.answer import Answer
from gangsched.whatif.command import print_answer

pytestmark = pytest.mark.usefixtures("without_kubeconfig")
EVIL = "\x1b[31m[/red] [link=http://evil.example]\x9b\u202e"


def filled(kind: Any, number: int) -> Any:
    """JSON of this type: every text is EVIL, every list and mapping has one entry."""
    match kind:
        case inspect.StructType():
            return {field.encode_name: filled(field.type, number) for field in kind.fields}
        case inspect.VarTupleType() | inspect.ListType():
            return [filled(kind.item_type, number)]
        case inspect.DictType():
            return {EVIL: filled(kind.value_type, number)}
        case inspect.UnionType():
            return filled(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), number)
        case inspect.DateTimeType():
            return "2026-01-02T03:04:05Z"
        case inspect.LiteralType():
            return kind.values[number % len(kind.values)]
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return number
    return EVIL


PRINTS: list[tuple[Any, Callable[[Any, Console], None]]] = [
    (QueuePage, lambda page, console: print_queue(page, console, wide=True)),
    (QueuePage, print_starts),
    (QueuesPage, print_queues),
    (Page, print_page),
    (Story, print_story),
    (Answer, print_answer),
]


@pytest.mark.parametrize("number", [1, 2, 3, -(10**18), 10**18])
@pytest.mark.parametrize(("form", "draw"), PRINTS)
def test_no_text_of_a_server_is_markup_or_a_control_sequence(
    form: Any, draw: Callable[[Any, Console], None], number: int
) -> None:
    page = msgspec.json.decode(msgspec.json.encode(filled(inspect.type_info(form), number)), type=form)
    console = Console(width=200, file=io.StringIO(), highlight=False)
    draw(page, console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert [one for one in said if not one.isprintable() and one != "\n"] == []
    assert "[/red]" in said.replace("\n", "")
    assert len(said) < 100_000


@contextmanager
def answering(*bodies: bytes, code: int = 200) -> Iterator[str]:
    """A server's address; it answers with these, one after the other, and then with the last."""
    left = list(bodies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def page_with(form: Any, **fields: Any) -> bytes:
    return msgspec.json.encode(filled(inspect.type_info(form), 1) | fields)


@pytest.mark.parametrize(
    "looks",
    [
        (b'"clockS":-1e308', b'"clockS":1e308'),
        (b'"counts":[1' + b"0" * 400 + b"]",),
        (b'"attempts":-1' + b"0" * 400,),
    ],
)
def test_numbers_beyond_all_bounds_are_another_programs(
    capsys: pytest.CaptureFixture[str], looks: tuple[bytes, ...]
) -> None:
    """Of 1e308 less -1e308 no duration can be told, and an integer of 400 digits has no float."""
    bodies = []
    for said in looks:
        name = said.partition(b":")[0]
        page = page_with(TopPage)
        bodies.append(re.sub(name + rb":(\[1\]|1)", said, page))
        assert bodies[-1] != page
    with answering(*bodies) as server:
        assert main(["top", "--once", "-d=0.5", f"--server={server}"]) == 1
    said_at_last = capsys.readouterr()
    assert "does not answer as a gangsched scheduler does: a number of it is beyond 1e+30" in said_at_last.err
    assert said_at_last.out == ""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (302, "302: {}/queue: it redirects, as a proxy that wants a login does;"),
        (400, "400: {}/queue: Bad Request"),
        (503, "503: {}/queue: Service Unavailable"),
        (799, "799: {}/queue: no reason is given"),
    ],
)
def test_an_empty_answer_is_reported_by_its_code(
    capsys: pytest.CaptureFixture[str], code: int, said: str
) -> None:
    with answering(b"", code=code) as server:
        assert main(["queue", f"--server={server}"]) == 1
    assert f"gangsched: {said.format(server)}" in capsys.readouterr().err
