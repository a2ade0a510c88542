"""Just enough HTTP/1.1 to talk to an API server: requests as bytes, answers from bytes cut anywhere.

Not a general parser: it serves kube.line, kube.pool and kube.stream, which trust their peer to be a
kube-apiserver or the proxy before it. What it does not understand is an error, and an error means that the
connection is given up and the outcome is unknown. Bytes behind an answer are left in `rest`: they belong to
the next request that was sent on this connection, or are an error where there is none.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

USER_AGENT = "gangsched"

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

# Statuses are small; whoever sends more is not an API server.
MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 4 * 2**20
MAX_CHUNK_LINE_BYTES = 1024

# In lower case, as they are looked for; regular expressions took 5 us an answer.
_LENGTH = b"\r\ncontent-length:"
_CODING = b"\r\ntransfer-encoding:"
_CONNECTION = b"\r\nconnection:"
_RETRY_AFTER = b"\r\nretry-after:"
_MAX_DIGITS = 12
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]*")
_UNUSUAL = re.compile(rb"\r\n(?:connection|transfer-encoding):")
_SUCCESS = re.compile(rb"HTTP/1\.1 (2\d\d)[ \r]")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})[ \r]")


class ProtocolError(Exception):
    """The peer does not speak as expected."""


def segment(name: str) -> str:
    """A name as one segment of a path, whatever characters it has."""
    return name if _UNRESERVED.fullmatch(name) else quote(name, safe="")


class Verb(NamedTuple):
    """What is done, and with which kind of body; "" for none."""

    method: str
    content_type: str = ""


class Frame:
    """A request but for its path and body: the same bytes for all of one verb and one Authorization."""

    __slots__ = ("_after", "_before", "_has_body", "authorization", "method")

    def __init__(self, verb: Verb, server: str, *, authorization: str) -> None:
        self.method = verb.method
        self.authorization = authorization
        self._has_body = bool(verb.content_type)
        parts = urlsplit(server)
        lines = [
            " HTTP/1.1",
            f"Host: {parts.netloc}",
            f"User-Agent: {USER_AGENT}",
            "Accept: application/json",
        ]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        self._before = f"{verb.method} {parts.path}".encode("latin-1")
        if self._has_body:
            lines.append(f"Content-Type: {verb.content_type}\r\nContent-Length: ")
        else:
            lines.append("\r\n")
        self._after = "\r\n".join(lines).encode("latin-1")

    def request(self, target: str, body: bytes = b"") -> bytes:
        """All of it; `target` is a path, quoted as it must be, with its query."""
        path = target.encode("latin-1")
        if self._has_body:
            return b"%b%b%b%d\r\n\r\n%b" % (self._before, path, self._after, len(body), body)
        return b"%b%b%b" % (self._before, path, self._after)


def _field(fields: bytes, name: bytes) -> bytes:
    """The first value of that name in a head in lower case; b"" where there is none."""
    at = fields.find(name)
    if at < 0:
        return b""
    at += len(name)
    return fields[at : fields.index(b"\r\n", at)].strip(b" \t")


def _is_number(value: bytes) -> bool:
    return value.isdigit() and len(value) <= _MAX_DIGITS


def whole_success(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Status, body and what is behind it, if `data` opens with a success, whole, that keeps the connection.

    What most answers are, at a third of what an Answer costs; None means no more than that it is not.
    """
    line = _SUCCESS.match(data)
    head, end, body = data.partition(b"\r\n\r\n")
    if line is None or not end:
        return None
    fields = head.lower()
    length = fields.partition(_LENGTH)[2].partition(b"\r\n")[0].strip()
    if not _is_number(length) or _UNUSUAL.search(fields):
        return None
    n_bytes = int(length)
    if n_bytes == len(body):
        return int(line[1]), body, b""
    return (int(line[1]), body[:n_bytes], body[n_bytes:]) if n_bytes < len(body) else None


class Chunks:
    """The chunked transfer coding taken off, as far as bytes have come; `whole` after the last chunk.

    `rest`: what has come behind it.
    """

    __slots__ = ("_ending", "_left", "_line", "rest", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.rest = b""
        self._ending = False
        self._left = 0  # of this chunk, with the line end after it
        self._line = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; the parts of the body that are in them. Raises: ProtocolError."""
        if self._line:
            data, self._line = self._line + data, b""
        at, n_bytes = 0, len(data)
        parts: list[bytes] = []
        left = self._left
        while at < n_bytes and not self.whole:
            if not left:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._line = data[at:]
                    if len(self._line) > MAX_CHUNK_LINE_BYTES:
                        raise ProtocolError("a chunk's head does not end")
                    break
                left = self._size(data[at:end])
                at = end + 2
                continue
            if left > 2:
                parts.append(data[at : at + left - 2])
            n_taken = min(left, n_bytes - at)
            left -= n_taken
            at += n_taken
        self._left = left
        if self.whole:
            self.rest = data[at:]
        return parts

    def _size(self, line: bytes) -> int:
        """Of the chunk that this line is the head of, with the line end after it; 0: nothing follows."""
        if self._ending:
            self.whole = not line  # else a trailer
            return 0
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            raise ProtocolError("a chunk without a size")
        self._ending = not size
        return size + 2 if size else 0


class Answer:
    """One response; `whole` once all of it is there. `feed` may be given bytes until then, `rest` is what
    came behind it.

    With `stream` the body of a success may be of any length: once `status` is known, `take()` gives what
    has come of it.
    """

    __slots__ = (
        "_chunks",
        "_data",
        "_max_body_bytes",
        "_n_bytes",
        "_needed",
        "_parts",
        "_stream",
        "body",
        "keep_alive",
        "rest",
        "retry_after",
        "status",
        "whole",
    )

    def __init__(self, *, stream: bool = False, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.status = 0
        self.body = b""
        self.retry_after: str | None = None
        self.keep_alive = True
        self.whole = False
        self.rest = b""
        self._stream = stream
        self._max_body_bytes = max_body_bytes
        self._data = b""
        self._parts: list[bytes] = []
        self._n_bytes = 0
        self._needed = -1
        self._chunks: Chunks | None = None

    def feed(self, data: bytes) -> None:
        """Take in bytes. Raises: ProtocolError."""
        self._data = self._data + data if self._data else data
        while not self.status:
            if not self._head():
                return
        if self._stream and self.status < 300:
            self._flow()
        else:
            self._gather()

    @property
    def is_untouched(self) -> bool:
        """Not a byte has come."""
        return not self.status and not self._data

    def take(self) -> bytes:
        """What has come of a stream's body since the last time."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > MAX_HEAD_BYTES:
                raise ProtocolError("the head of the answer does not end")
            return False
        head = self._data[: end + 2]
        self._data = self._data[end + 4 :]
        line = _STATUS_LINE.match(head)
        if line is None:
            raise ProtocolError("no status line")
        status = int(line[2])
        if status < 200:
            return True  # 100 Continue and the like: the answer follows
        self.status = status
        fields = head.lower()
        self.keep_alive = line[1] == b"1" and _field(fields, _CONNECTION) != b"close"
        retry = _field(fields, _RETRY_AFTER)
        self.retry_after = retry.decode() if _is_number(retry) else None
        length = _field(fields, _LENGTH)
        if _field(fields, _CODING) == b"chunked":
            self._chunks = Chunks()
        elif _is_number(length):
            self._needed = int(length)
            if self._needed > self._max_body_bytes:
                raise ProtocolError("the answer is too long")
        elif status == 204:
            self._needed = 0
        elif not self._stream:
            raise ProtocolError("an answer of unknown length")
        return True

    def _gather(self) -> None:
        """Keep what has come until it is the whole body; a page of a list comes in hundreds of pieces."""
        data, self._data = self._data, b""
        if self._chunks is not None:
            self._n_bytes += len(data)
            self._parts += self._chunks.feed(data)
            self.whole, self.rest = self._chunks.whole, self._chunks.rest
            if self._n_bytes - len(self.rest) > self._max_body_bytes:
                raise ProtocolError("the answer is too long")
        else:
            part = data[: self._needed - self._n_bytes]
            self._n_bytes += len(part)
            self._parts.append(part)
            self.whole, self.rest = self._n_bytes == self._needed, data[len(part) :]
        if self.whole:
            self.body = self.take()

    def _flow(self) -> None:
        """Pass on what has come: chunks, as much as was announced, or all until the end."""
        data, self._data = self._data, b""
        if self._chunks is not None:
            self._parts += self._chunks.feed(data)
            self.whole, self.rest = self._chunks.whole, self._chunks.rest
            return
        if self._needed >= 0:
            data, self.rest = data[: self._needed], data[self._needed :]
            self._needed -= len(data)
            self.whole = not self._needed
        if data:
            self._parts.append(data)
