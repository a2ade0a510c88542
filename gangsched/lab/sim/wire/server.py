"""An API server at the end of a wire in memory: HTTP as bytes, the embedded server's rules.

Lives here: requests from bytes, the answers' bytes, watches, and the weather's effect on each. Not here: the
meaning of a request (gangsched.lab.apiserver, which contract tests hold to the real API server's answers and
which shares nothing with gangsched.kube), pieces and delays (lab.sim.wire.network).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import msgspec

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.documents.discovery import Discovery
from gangsched.lab.apiserver.documents.documents import Documents
from gangsched.lab.apiserver.documents.openapi import OpenApi
from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.handlers import Handlers, Watching
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.kinds import bootstrap, builtin_strategies
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.status import expired
from gangsched.lab.apiserver.storage.watches import Watch, error_line
from gangsched.lab.sim.wire.loop import VirtualLoop
from gangsched.lab.sim.wire.network import Link
from gangsched.lab.sim.wire.weather import Fate, WatchFate, Weather

_EPOCH_S = 1_767_225_600.0
_BREAKS = ("close", "reset", "silence")
_REQUEST_LINE = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/[!-~]*) HTTP/1\.1")
_LIMIT = re.compile(r"([?&]limit=)\d+")
_WORDS = {200: "OK", 201: "Created", 404: "Not Found", 409: "Conflict", 429: "Too Many Requests"}
BOOKMARK_S = 5.0
_PAGE = "<html><body><h1>{code}</h1><p>front-end: no healthy upstream</p></body></html>\n"
_PAGE_CODES = (200, 403, 404, 404, 409, 410, 502, 503, 504)


class Asked(msgspec.Struct):
    """A request on its way through the server."""

    request: Request
    fate: Fate
    is_decided: bool = False


class ApiServer:
    """The store and its rules, for any number of connections. `note` gets each request and its fate."""

    def __init__(
        self, loop: VirtualLoop, weather: Weather, *, seed: str, note: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.weather = weather
        self.note = note
        self.page_limit = weather.rng.choice((2, 3, 500))
        self.problems: list[str] = []
        self.n_requests = 0
        self.fates: dict[str, int] = {}
        self.watch_fates: dict[str, int] = {}
        self.registry = Registry(now=self.now, rng=Random(f"{seed}-uids"), strategies=builtin_strategies())
        bootstrap(self.registry)
        self._handlers = Handlers(self.registry)
        resources = self.registry.resources
        openapi = OpenApi(resources, lambda kind, version: self.registry.strategy(kind).schema(version))
        self._documents = Documents(Discovery(resources, "memory:80"), openapi)

    def now(self) -> datetime:
        """The server's own clock, which is never set."""
        return datetime.fromtimestamp(_EPOCH_S + self.loop.time(), UTC)

    def accept(self, link: Link) -> ServerEnd:
        return ServerEnd(link, self)

    def carry_out(self, request: Request) -> Answer | Watching:
        """Answers by the rules; a page may hold fewer items than its limit."""
        request.target = _LIMIT.sub(lambda found: f"{found[1]}{self.page_limit}", request.target)
        try:
            answer = self._handlers.handle(request)
            return self._documents.handle(request) if answer is None else answer
        except StatusError as error:
            return responses.status(error)


class ServerEnd:
    """One connection: requests are answered one after the other, a watch until it ends."""

    def __init__(self, link: Link, server: ApiServer) -> None:
        self._link = link
        self._server = server
        self._weather = server.weather
        self._data = b""
        self._asked: deque[Asked] = deque()
        self._is_busy = False
        self._fate: Fate | None = None
        self._stream: _WatchStream | None = None

    # -- asked -----------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._data += data
        while self._data and not self._link.is_over:
            if self._fate is None:
                self._fate = self._weather.fate()
                if self._fate is Fate.CUT_ASKING:
                    _count(self._server.fates, self._fate.value)
                    self._server.note(f"#{self._link.number} {self._fate.value}")
                    self._link.break_now(self._weather.rng.choice(_BREAKS))
                    return
            request = self._whole_request()
            if request is None:
                return
            self._asked.append(Asked(request, self._fate))
            self._fate = None
        self._begin()

    def lost(self) -> None:
        """Requests that arrived whole take effect now or never; a watch gets no more lines."""
        if self._stream is not None:
            self._stream.stop()
        for asked in self._asked:
            if not asked.is_decided:
                asked.is_decided = True
                done = self._weather.happens(0.5)
                self._say(asked, "done at the end" if done else "never done")
                if done:
                    self._server.carry_out(asked.request)
        self._asked.clear()

    def _whole_request(self) -> Request | None:
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        line = _REQUEST_LINE.fullmatch(first)
        fields = dict(one.lower().split(": ", 1) for one in lines if ": " in one)
        if line is None or len(fields) != len(lines) or not fields.get("host"):
            self._server.problems.append(f"http: a request that is none: {head[:300]!r}")
            self._link.break_now("close")
            return None
        n_bytes = int(fields.get("content-length", "0"))
        if len(rest) < n_bytes:
            return None
        self._data = rest[n_bytes:]
        kind = fields.get("content-type", "")
        return Request(line[1], line[2], fields.get("accept", ""), kind, "gangsched", rest[:n_bytes])

    def _begin(self) -> None:
        if self._asked and not self._is_busy:
            self._is_busy = True
            self._link.loop.call_later(self._weather.latency_s(), self._reach)

    # -- answered --------------------------------------------------------------------------------------

    def _reach(self) -> None:
        """Processes the first request, unless the connection has ended."""
        if self._link.is_over or not self._asked:
            return
        asked = self._asked[0]
        request, fate = asked.request, self._fair(asked)
        self._server.n_requests += 1
        _count(self._server.fates, fate.value)
        asked.is_decided = True
        if self._link.is_silent:
            asked.is_decided = False  # decided at the end of the connection
            return
        found = self._server.carry_out(request) if fate.is_done or _is_watch(request) else None
        if isinstance(found, Watching):
            self._open(asked, found)
            return
        self._say(asked, f"{found.code} " if found is not None else "")
        self._answer(asked, fate, found)

    def _fair(self, asked: Asked) -> Fate:
        """Returns its fate, but not TWICE if equal answers could be taken for those to two requests."""
        is_binding = asked.request.path.endswith("/binding")
        if asked.fate is Fate.TWICE and (is_binding or len(self._asked) > 1 or self._data):
            asked.fate = Fate.ANSWERED
        return asked.fate

    def _answer(self, asked: Asked, fate: Fate, found: Answer | None) -> None:
        rng, link = self._weather.rng, self._link
        if fate in (Fate.SILENT_BEFORE, Fate.SILENT_AFTER):
            asked.is_decided = fate is Fate.SILENT_AFTER
            link.break_now("silence")
            return
        self._asked.popleft()
        if fate in (Fate.CUT_BEFORE, Fate.CUT_AFTER):
            link.close_by_server(rng.choice(("close", "reset")))
            return
        if fate in (Fate.PAGE_BEFORE, Fate.PAGE_AFTER):
            found = _page(rng)
        elif fate in (Fate.OTHER_BEFORE, Fate.OTHER_AFTER):
            found = self._other(asked.request)
        elif fate in _REFUSALS:
            found = _refusal(fate, rng)
        assert found is not None, fate
        data = self._bytes_of(found)
        if fate is Fate.CUT_ANSWER:
            link.limit_to_client = rng.randint(1, max(1, len(data) - 1))
            link.breaks_by = rng.choice(_BREAKS)
        if fate is Fate.TWICE:
            link.to_client_whole(data + data)
        else:
            link.to_client(data)
        if b"\r\nConnection: close\r\n" in data:
            link.close_by_server("close")
        self._is_busy = False
        self._begin()

    def _other(self, request: Request) -> Answer:
        """Returns the server's answer about another pod."""
        registry = self._server.registry
        pods = registry.list(registry.resource("pods"))
        others = [pod for pod in pods if f"/{pod.name}" not in request.path]
        if others and "/pods/" in request.path and self._weather.happens(0.5):
            return Answer(200, self._weather.rng.choice(others).raw)
        code, reason = self._weather.rng.choice(((404, "NotFound"), (409, "Conflict"), (410, "Gone")))
        return responses.status(
            StatusError(code, reason, 'pods "another" is another', name="another", kind="pods")
        )

    def _bytes_of(self, answer: Answer) -> bytes:
        """Encodes an answer in the form of one server or another."""
        rng = self._weather.rng
        word = _WORDS.get(answer.code, "Whatever")
        lines = [f"HTTP/1.1 {answer.code} {word}", f"Content-Type: {answer.content_type}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if self._weather.happens(self._weather.rates.hangs_up):
            lines.append("Connection: close")
        body = answer.body
        if rng.random() < 0.2:
            lines.append("Transfer-Encoding: chunked")
            parts = list(self._weather.pieces(body)) if body else []
            body = b"".join(map(chunk, parts)) + b"0\r\n\r\n"
        else:
            lines.append(f"{rng.choice(('Content-Length', 'content-length'))}: {len(body)}")
        early = b"HTTP/1.1 100 Continue\r\n\r\n" if rng.random() < 0.02 else b""
        return early + "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _say(self, asked: Asked, what: str) -> None:
        request = asked.request
        fate = "" if asked.fate is Fate.ANSWERED else f"[{asked.fate.value}]"
        self._server.note(f"#{self._link.number} {request.method} {request.target} {what}{fate}")

    # -- watched ---------------------------------------------------------------------------------------

    def _open(self, asked: Asked, watching: Watching) -> None:
        weather = self._weather
        self._asked.popleft()
        if asked.fate in _REFUSALS:
            self._say(asked, "")
            self._link.to_client(self._bytes_of(_refusal(asked.fate, weather.rng)))
            self._is_busy = False
            return
        if asked.fate in (Fate.PAGE_BEFORE, Fate.PAGE_AFTER):
            self._say(asked, "")
            self._link.to_client(self._bytes_of(_page(weather.rng)))
            self._is_busy = False
            return
        if weather.happens(weather.rates.gone):
            self._say(asked, "410 at its opening")
            self._link.to_client(self._bytes_of(responses.status(expired("too old resource version"))))
            self._is_busy = False
            return
        try:
            self._stream = _WatchStream(self._link, self._server, watching)
        except StatusError as error:
            self._link.to_client(self._bytes_of(responses.status(error)))
            self._is_busy = False
            return
        self._say(asked, f"({self._stream.fate.value}) ")
        self._stream.start()


class _WatchStream:
    """One watch's lines as chunks, until its time is over or it breaks."""

    def __init__(self, link: Link, server: ApiServer, watching: Watching) -> None:
        self._link = link
        self._weather = server.weather
        self._watch: Watch | None = None
        self._is_flushing = False
        self._is_over = False
        self.fate = server.weather.watch_fate()
        _count(server.watch_fates, self.fate.value)
        self._bookmarks = watching.bookmarks and self.fate is not WatchFate.NO_BOOKMARKS
        self._lasts_s = float(watching.timeout_s or 1800)
        self._watch = watching.open(self._wake)

    def start(self) -> None:
        rng, link = self._weather.rng, self._link
        link.to_client(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        if self.fate is WatchFate.CUT:
            link.limit_to_client = rng.choice((rng.randint(1, 300), rng.randint(200, 20_000)))
            link.breaks_by = rng.choice(_BREAKS)
        elif self.fate in (WatchFate.SILENT, WatchFate.ENDS, WatchFate.GONE):
            link.loop.call_later(rng.uniform(0.1, 12.0), self._meet_fate)
        link.loop.call_later(self._lasts_s, self._end)
        self._mark()
        self._flush()

    def stop(self) -> None:
        self._is_over = True
        if self._watch is not None:
            self._watch.close()

    def _wake(self) -> None:
        """Called in the middle of a write: the lines are sent later."""
        if not self._is_flushing and not self._is_over:
            self._is_flushing = True
            self._link.loop.call_later(self._weather.rng.uniform(0.0, 0.01), self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_over or self._watch is None:
            return
        lines = self._watch.take()
        if lines:
            together = self._weather.rng.random() < 0.5
            parts = [b"".join(lines)] if together else lines
            self._link.to_client(b"".join(map(chunk, parts)))
        if self._watch.ended:
            self._end()

    def _mark(self) -> None:
        if self._is_over or self._watch is None or not self._bookmarks:
            return
        self._flush()
        if not self._is_over:
            self._watch.bookmark()
            self._link.loop.call_later(BOOKMARK_S, self._mark)

    def _meet_fate(self) -> None:
        if self._is_over:
            return
        if self.fate is WatchFate.SILENT:
            self._link.break_now("silence")
            return
        if self.fate is WatchFate.GONE:
            self._link.to_client(chunk(error_line(expired("too old resource version: 1 (2)"))))
        self._end()

    def _end(self) -> None:
        if not self._is_over:
            self.stop()
            self._link.to_client(b"0\r\n\r\n")
            self._link.close_by_server("close")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


def _is_watch(request: Request) -> bool:
    return request.method == "GET" and request.first("watch") == "1"


_REFUSALS = (Fate.THROTTLED, Fate.BUSY, Fate.UNAUTHORIZED)


def _refusal(fate: Fate, rng: Random) -> Answer:
    if fate is Fate.UNAUTHORIZED:
        return responses.status(StatusError(401, "Unauthorized", "Unauthorized"))
    code, reason = (429, "TooManyRequests") if fate is Fate.THROTTLED else (503, "ServiceUnavailable")
    headers = {"Retry-After": rng.choice(("0", "1", "2", "soon"))} if rng.random() < 0.6 else {}
    if rng.random() < 0.3:
        return Answer(code, b"Too many requests, please try again later.\n", "text/plain", headers)
    return responses.status(StatusError(code, reason, "try again later", headers=headers))


def _page(rng: Random) -> Answer:
    """The answer of a front end that knows nothing of the object, or nothing at all."""
    code = rng.choice(_PAGE_CODES)
    body = rng.choice((b"", b"404 page not found\n", _PAGE.format(code=code).encode()))
    return Answer(code, body, "text/html")
