"""Where an answer ends and what becomes of its connection, by RFC 9112; what is refused and not guessed."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import pairwise
from random import Random

import pytest

from gangsched.errors import ApiError
from gangsched.kube.transport.http1 import (
    MAX_CHUNK_LINE_BYTES,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_INFLATED_BYTES,
    MAX_INTERIM,
    MAX_TRAILER_BYTES,
    Answer,
    ProtocolError,
    whole_success,
)
from gangsched.kube.transport.pool import RequestPool
from gangsched.kube.transport.stream import open_stream
from tests.kube.scripted import Last, ScriptedServer, credentials, within

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def answer_of(data: bytes, *, step: int, stream: bool = False) -> Answer:
    """What is made of these bytes, cut into pieces."""
    answer = Answer(stream=stream)
    for at in range(0, len(data), step):
        answer.feed(data[at : at + step])
    return answer


def lengths(*stated: str) -> bytes:
    return OK + b"".join(b"Content-Length: %b\r\n" % one.encode() for one in stated) + b"\r\nabcde"


REFUSED = {
    "differing lengths": lengths("5", "4"),
    "differing lengths in a list": lengths("5, 4"),
    "the longer length first": lengths("7", "5"),
    "a length with a sign": lengths("+5"),
    "a length with an underscore": lengths("0_5"),
    "a negative length": lengths("-5"),
    "an empty length": lengths(""),
    "a length in hexadecimal": lengths("0x5"),
    "a length of many digits": lengths("5".zfill(40)),
    "a length and chunks": OK
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "a coding nobody asked for": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "chunks twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "a chunk with a sign": CHUNKED + b"+5\r\nabcde\r\n0\r\n\r\n",
    "a chunk with an underscore": CHUNKED + b"0_5\r\nabcde\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x5\r\nabcde\r\n0\r\n\r\n",
    "a chunk with spaces": CHUNKED + b" 5 \r\nabcde\r\n0\r\n\r\n",
    "a chunk of many digits": CHUNKED + b"%064x\r\nabcde\r\n0\r\n\r\n" % 5,
    "a chunk that is longer than it says": CHUNKED + b"5\r\nabcdef\r\n0\r\n\r\n",
    "a chunk that ends in a bare LF": CHUNKED + b"5\r\nabcde\n0\r\n\r\n00",
    "a chunk extension without end": CHUNKED
    + b"5;"
    + b"x" * MAX_CHUNK_LINE_BYTES
    + b"\r\nabcde\r\n0\r\n\r\n",
    "a trailer that is no field": CHUNKED + b"0\r\nnonsense\r\n\r\n",
    "trailers without end": CHUNKED + b"0\r\n" + b"X-Sum: 7\r\n" * (MAX_TRAILER_BYTES // 8 + 1),
    "a space before the colon": OK + b"Content-Length : 5\r\n\r\nabcde",
    "a line after a bare LF": OK + b"A: b\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nabcde",
    "a length after a bare LF": OK + b"A: b\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "a status of no kind": b"HTTP/1.1 042 Odd\r\nContent-Length: 5\r\n\r\nabcde",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: tls\r\n\r\n",
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MAX_INTERIM + 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_read_in_two_ways_is_refused(name: str) -> None:
    data = REFUSED[name]
    assert whole_success(data) is None
    for step in (1, 3, 1000, len(data)):
        with pytest.raises(ProtocolError):
            answer_of(data, step=step)
        with pytest.raises(ProtocolError):
            answer_of(data, step=step, stream=True)


MALFORMED = {
    "a line without a name": OK + b"nonsense\r\nContent-Length: 5\r\n\r\nabcde",
    "a NUL in a field": OK + b"A: b\0c\r\nContent-Length: 5\r\n\r\nabcde",
    "a bare CR in a field": OK + b"A: b\rc\r\nContent-Length: 5\r\n\r\nabcde",
    "too many fields": OK + b"A: b\r\n" * MAX_FIELDS + b"Content-Length: 5\r\n\r\nabcde",
    "too long a field": OK + b"A: " + b"b" * MAX_HEAD_BYTES + b"\r\nContent-Length: 5\r\n\r\nabcde",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_head_that_is_malformed_is_refused(name: str) -> None:
    for step in (1, 3, 1000, len(MALFORMED[name])):
        with pytest.raises(ProtocolError):
            answer_of(MALFORMED[name], step=step)


ACCEPTED = {
    "one length, twice": lengths("5", "5"),
    "one length, in a list": lengths("5, 5"),
    "a folded field": OK + b"A: b\r\n  Content-Length: 3\r\n\tc\r\nContent-Length: 5\r\n\r\nabcde",
    "a folded length": OK + b"Content-Length:\r\n 5\r\n\r\nabcde",
    "interim answers": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * MAX_INTERIM + lengths("5"),
    "capitals": OK + b"TRANSFER-ENCODING: Chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "chunk extensions": CHUNKED + b'2 ; a="b"\r\nab\r\n003;x\r\ncde\r\n0;last\r\n\r\n',
    "trailers": CHUNKED + b"5\r\nabcde\r\n0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n",
    "no reason phrase": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nabcde",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_rfc_allows_is_read(name: str) -> None:
    data = ACCEPTED[name]
    for step in (1, 3, 1000):
        answer = answer_of(data, step=step)
        assert (answer.whole, answer.status, answer.body, answer.rest) == (True, 200, b"abcde", b"")
        assert answer.keep_alive


@pytest.mark.parametrize("code", [b"204 No Content", b"304 Not Modified"])
def test_what_has_no_body_ends_with_its_head(code: bytes) -> None:
    data = b"HTTP/1.1 " + code + b"\r\nContent-Length: 5\r\n\r\n"
    assert whole_success(data) is None
    answer = answer_of(data + b"HTTP/", step=1000)
    assert (answer.whole, answer.body, answer.rest) == (True, b"", b"HTTP/")


@pytest.mark.parametrize(
    ("version", "fields", "keeps"),
    [
        ("1.1", ["keep-alive, close"], False),
        ("1.1", ["keep-alive", "Close"], False),
        ("1.1", ["keep-alive"], True),
        ("1.1", ["closed"], True),
        ("1.1", [], True),
        ("1.0", [], False),
        ("1.0", ["Keep-Alive"], True),
        ("1.0", ["keep-alive, close"], False),
    ],
)
def test_a_connection_is_kept_as_its_options_say(version: str, fields: list[str], keeps: bool) -> None:
    options = "".join(f"Connection: {value}\r\n" for value in fields)
    data = f"HTTP/{version} 200 OK\r\n{options}Content-Length: 0\r\n\r\n".encode()
    assert answer_of(data, step=1000).keep_alive is keeps
    if fields:
        assert whole_success(data) is None


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_a_length_ends_with_its_connection(stream: bool) -> None:
    answer = answer_of(b"HTTP/1.1 503 Busy\r\n\r\nabcde", step=1000, stream=stream)
    assert not answer.whole
    assert answer.end()
    assert (answer.body, answer.keep_alive) == (b"abcde", False)


@pytest.mark.parametrize("data", [b"HTTP/1.1 503 Bu", lengths("6"), CHUNKED + b"5\r\nabcde\r\n"])
def test_an_answer_that_states_its_length_does_not_end_with_its_connection(data: bytes) -> None:
    assert not answer_of(data, step=1000).end()


def test_an_answer_without_a_length_does_not_fill_the_memory() -> None:
    answer = Answer(max_body_bytes=100)
    answer.feed(OK + b"\r\n" + b"x" * 100)
    with pytest.raises(ProtocolError, match="too long"):
        answer.feed(b"x")


# Nobody asks for a content coding; a proxy that compresses all that goes through it uses one all the same.
TEXT = b'{"kind":"PodList","items":[]}\n' * 50


def compressed(body: bytes, *, coding: bytes = b"gzip", as_chunks: bool = False) -> bytes:
    head = OK + b"Content-Encoding: %b\r\n" % coding
    if as_chunks:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_chunks", [False, True])
def test_a_body_that_was_compressed_unasked_is_read(step: int, stream: bool, as_chunks: bool) -> None:
    data = compressed(gzip.compress(TEXT), as_chunks=as_chunks)
    answer = answer_of(data, step=step, stream=stream)
    assert answer.whole
    assert (answer.take() if stream else answer.body) == TEXT
    assert whole_success(data) is None, "the shortcut does not take what it cannot read"


def test_a_compressed_body_may_end_with_its_connection() -> None:
    answer = answer_of(OK + b"Content-Encoding: x-gzip\r\n\r\n" + gzip.compress(TEXT), step=100)
    assert answer.end()
    assert answer.body == TEXT


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            compressed(TEXT, coding=b"br"),
            "content coding 'br', which was not asked for; switch compression off",
        ),
        (compressed(TEXT, coding=b"gzip, gzip"), "content coding 'gzip, gzip'"),
        (compressed(TEXT), "not gzip, as its Content-Encoding states"),
        (compressed(gzip.compress(TEXT) + b"more"), "bytes after the end of a gzip body"),
    ],
)
def test_another_coding_or_a_wrong_one_is_refused_by_name(data: bytes, why: str, stream: bool) -> None:
    with pytest.raises(ProtocolError, match=why):
        answer_of(data, step=100_000, stream=stream)


def test_a_compressed_body_that_is_cut_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="cut"):
        answer_of(compressed(gzip.compress(TEXT)[:-9]), step=100_000)


@pytest.mark.parametrize("stream", [False, True])
def test_a_small_body_does_not_become_one_that_fills_the_memory(stream: bool) -> None:
    """200 KB that are 200 MB: refused at the limit, before they are there."""
    bomb = compressed(gzip.compress(bytes(200 * 2**20), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="too long"):
        answer_of(bomb, step=2**20, stream=stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * MAX_INFLATED_BYTES


async def test_requests_ask_for_no_content_coding_and_name_one_that_comes_all_the_same() -> None:
    brotli = Last(compressed(b"x", coding=b"br"))
    async with ScriptedServer(default=brotli) as server, RequestPool(credentials(server.port)) as pool:
        with pytest.raises(ApiError, match="content coding 'br', which was not asked for"):
            await pool.request("GET", "/x")
        assert server.requests[0].headers["accept-encoding"] == "identity"


# As a load balancer of another age says that it is busy.
BUSY = Last(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 3\r\n\r\n<html>busy</html>")


async def test_a_request_refused_without_a_length_is_a_refusal() -> None:
    async with ScriptedServer(default=BUSY) as server, RequestPool(credentials(server.port)) as pool:
        with pytest.raises(ApiError, match="busy") as caught:
            await pool.request("POST", "/x")
        assert (caught.value.code, caught.value.retry_after_s) == (503, 3.0)
        assert server.n_connections == 1


async def test_a_watch_refused_without_a_length_is_a_refusal() -> None:
    async with ScriptedServer(default=BUSY) as server:
        with within(), pytest.raises(ApiError, match="busy") as caught:
            async with open_stream(credentials(server.port), "/x", {}, timeout_s=20):
                pass
        assert (caught.value.code, caught.value.retry_after_s) == (503, 3.0)


async def test_a_watch_without_a_length_ends_with_its_connection() -> None:
    async with ScriptedServer(default=Last(OK + b"\r\nabcde")) as server:
        with within():
            async with open_stream(credentials(server.port), "/x", {}, timeout_s=20) as stream:
                assert await stream.read() == b"abcde"
                assert await stream.read() == b""


def outcome(data: bytes, cuts: list[int], *, stream: bool) -> tuple[object, ...]:
    """What is made of the bytes, cut there: where it ends and with what, or that it is refused."""
    answer, body = Answer(stream=stream), b""
    rest = b""
    for begin, end in pairwise([0, *cuts, len(data)]):
        if answer.whole:
            rest = data[begin:]
            break
        try:
            answer.feed(data[begin:end])
        except ProtocolError:
            return ("refused",)
        if stream and 0 < answer.status < 300:
            body += answer.take()
    is_whole = answer.whole
    ends = answer.end()  # gives the body of what ends with the connection
    return is_whole, answer.status, answer.keep_alive, body or answer.body, answer.rest + rest, ends


ODD = [
    b"\n",
    b"\r",
    b"\r\n",
    b"0",
    b"1",
    b"+",
    b"_",
    b" ",
    b":",
    b";",
    b",",
    b"\0",
    b"x",
    b"chunked",
    b"close",
]


def damaged(data: bytes, rng: Random) -> bytes:
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice(ODD) + data[at + rng.randrange(3) :]
    return data


@pytest.mark.parametrize("seed", range(100))
def test_what_is_read_does_not_depend_on_where_it_is_cut(seed: int) -> None:
    rng = Random(seed)
    for good in ACCEPTED.values():
        data = damaged(good, rng) + rng.choice([b"", b"HTTP/1.1 "])
        cuts = sorted(rng.sample(range(1, len(data)), k=rng.randrange(1, 20)))
        for stream in (False, True):
            assert outcome(data, [], stream=stream) == outcome(data, cuts, stream=stream), (seed, data, cuts)
        found, read = whole_success(data), outcome(data, [], stream=False)
        if found is not None and read != ("refused",):
            assert found == (read[1], read[3], read[4]), (seed, data)
