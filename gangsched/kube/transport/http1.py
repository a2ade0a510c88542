"""Just enough HTTP/1.1 to talk to an API server: requests as bytes, answers from bytes cut anywhere.

Not a general parser: its callers (kube.transport.answered, and lanes by a shortcut) talk to a kube-apiserver
or the proxy in front of it. Whatever RFC 9112 forbids, or this parser does not understand, is an error: the
connection is given up and the outcome is unknown, because where one answer ends decides which bind the next
one is about. Bytes after an answer are left in `rest`: they belong to the next request sent on this
connection, or are an error if there is none.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple
from urllib.parse import quote, urlsplit

USER_AGENT = "gangsched"

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# Statuses are small; a peer that sends more is not an API server.
MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 128
MAX_INTERIM = 8
MAX_BODY_BYTES = 4 * 2**20
MAX_CHUNK_LINE_BYTES = 1024
MAX_TRAILER_BYTES = 8 * 1024
# A compressed stream may grow to this much at a time: deflate knows ratios of 1,000, of which lists need 20.
MAX_INFLATED_BYTES = 64 * 2**20

_MAX_DIGITS = 12
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]*")
_FIELD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t -~\x80-\xff]*+"
_HEAD = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [\t -~\x80-\xff]*+)?+((?:\r\n%b)*+)\r\n" % _FIELD)
_FOLD = re.compile(rb"\r\n[ \t]+")
_TRAILER = re.compile(_FIELD)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})(?:[ \t]*;[\t -~\x80-\xff]*)?")
# Matched in lower-cased heads.
_FRAMING = re.compile(
    rb"\n(content-length|transfer-encoding|content-encoding|connection|retry-after):([^\r]*)"
)
_SUCCESS = re.compile(rb"HTTP/1\.1 (20[0-35-9]|2[1-9]\d)[ \r]")  # 204 has no body, whatever it states
_LENGTH = b"\ncontent-length:"
_UNUSUAL = re.compile(rb"\n(?:connection|transfer-encoding|content-encoding|content-length[ \t]|[ \t])")
# Two names of one coding (RFC 9110, 8.4.1.3).
_GZIP = (b"gzip", b"x-gzip")
_GZIP_WINDOW = zlib.MAX_WBITS | 16


class ProtocolError(Exception):
    """The peer does not speak as expected."""


def segment(name: str) -> str:
    """A name quoted as one segment of a path, whatever its characters."""
    return name if _UNRESERVED.fullmatch(name) else quote(name, safe="")


class Verb(NamedTuple):
    """Method and content type; "" for no body."""

    method: str
    content_type: str = ""


class Frame:
    """A request without its path and body: the same bytes for all of one verb and one Authorization."""

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
            "Accept-Encoding: identity",
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
        """The whole request; `target` is a quoted path with its query."""
        path = target.encode("latin-1")
        if self._has_body:
            return b"%b%b%b%d\r\n\r\n%b" % (self._before, path, self._after, len(body), body)
        return b"%b%b%b" % (self._before, path, self._after)


def _decimal(value: bytes) -> int:
    """A number as in RFC 9110, digits only; -1 for anything else and for absurd values."""
    return int(value) if value.isdigit() and len(value) <= _MAX_DIGITS else -1


def _length(value: bytes, before: int) -> int:
    """The Content-Length, given the one of an earlier header; repeated ones must agree (RFC 9112, 6.3)."""
    for stated in value.split(b","):
        length = _decimal(stated.strip())
        if length < 0:
            raise ProtocolError("a Content-Length that is no number")
        if before not in (-1, length):
            raise ProtocolError("two Content-Lengths that differ")
        before = length
    return before


def whole_success(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Status, body and the bytes after it, if `data` opens with a complete success that keeps the connection.

    Handles most answers at a third of an Answer's cost; None means only that this shortcut does not apply. It
    looks only at what decides where the answer ends, as strictly as an Answer does.
    """
    line = _SUCCESS.match(data)
    head, end, body = data.partition(b"\r\n\r\n")
    if line is None or not end:
        return None
    fields = head.lower()
    length, _, others = fields.partition(_LENGTH)[2].partition(b"\r\n")
    length = length.strip(b" \t")
    if not length.isdigit() or len(length) > _MAX_DIGITS or _UNUSUAL.search(fields):
        return None
    n_bytes = int(length)
    if n_bytes > len(body) or (others and b"content-length" in others):
        return None
    if n_bytes == len(body):
        return int(line[1]), body, b""
    return int(line[1]), body[:n_bytes], body[n_bytes:]


class Chunks:
    """Removes the chunked transfer coding from the bytes so far; `whole` after the last chunk.

    `rest`: the bytes after it.
    """

    __slots__ = ("_ending", "_left", "_line", "_n_trailer_bytes", "rest", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.rest = b""
        self._ending = False
        self._left = 0  # of this chunk, including its line end
        self._line = b""
        self._n_trailer_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; returns the body parts in them. Raises: ProtocolError."""
        if self._line:
            data, self._line = self._line + data, b""
        at, n_bytes = 0, len(data)
        parts: list[bytes] = []
        left = self._left
        while at < n_bytes and not self.whole:
            if left:
                part = data[at : at + left - 2] if left > 2 else data[at : at + left]
                if left > 2:
                    parts.append(part)
                elif not b"\r\n"[2 - left :].startswith(part):
                    raise ProtocolError("a chunk that does not end where it should")
                left -= len(part)
                at += len(part)
                continue
            end = data.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES + 2)
            if end < 0:
                self._line = data[at:]
                if len(self._line) > MAX_CHUNK_LINE_BYTES:
                    raise ProtocolError("a chunk's head does not end")
                break
            size = self._size(data[at:end])
            at = end + 2
            end = at + size
            if data[end : end + 2] == b"\r\n" and size:
                parts.append(data[at:end])  # the whole chunk is here
                at = end + 2
            elif size:
                left = size + 2
        self._left = left
        if self.whole:
            self.rest = data[at:]
        return parts

    def _size(self, line: bytes) -> int:
        """The size in this chunk header; 0: the last chunk."""
        if self._ending:
            self._trailer(line)
            return 0
        head = _CHUNK.fullmatch(line)
        if head is None:
            raise ProtocolError("a chunk without a size")
        size = int(head[1], 16)
        self._ending = not size
        return size

    def _trailer(self, line: bytes) -> None:
        """One field after the last chunk, ignored, or the empty line that ends the answer."""
        self.whole = not line
        self._n_trailer_bytes += len(line)
        if self._n_trailer_bytes > MAX_TRAILER_BYTES:
            raise ProtocolError("the trailers do not end")
        if line and not _TRAILER.fullmatch(line):
            raise ProtocolError("a trailer that is no field")


class _Gzip:
    """Undoes gzip, which a proxy may apply although it was not asked for."""

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_WINDOW)

    def inflate(self, data: bytes, most: int) -> bytes:
        """Returns what `data` holds, at most so many bytes. Raises: ProtocolError."""
        try:
            found = self._stream.decompress(data, most)
        except zlib.error:
            raise ProtocolError("a body that is not gzip, as its Content-Encoding states") from None
        if self._stream.unconsumed_tail:
            raise ProtocolError("the answer is too long")
        if self._stream.unused_data:
            raise ProtocolError("bytes after the end of a gzip body")
        return found

    def check_whole(self) -> None:
        """Raises: ProtocolError, if the body ends before its gzip does."""
        if not self._stream.eof:
            raise ProtocolError("a gzip body that is cut")


class Answer:
    """One response; `whole` once it is complete. Feed it until then; `rest` is what came after it.

    With `stream` the body of a success may have any length: once `status` is known, `take()` returns what has
    arrived. An answer without a length ends with the connection: see `end`.
    """

    __slots__ = (
        "_chunks",
        "_data",
        "_gzip",
        "_max_body_bytes",
        "_n_bytes",
        "_n_interim",
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
        self._n_interim = 0
        self._needed = -1  # -1: everything until the server closes the connection
        self._chunks: Chunks | None = None
        self._gzip: _Gzip | None = None

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
        """Nothing has arrived yet."""
        return not self.status and not self._data

    def take(self) -> bytes:
        """Returns the part of a stream's body that has arrived since the last call."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _body(self) -> bytes:
        """Returns the whole body, without its content coding. Raises: ProtocolError."""
        body = self.take()
        if self._gzip is not None and body:
            body = self._gzip.inflate(body, self._max_body_bytes)
            self._gzip.check_whole()
        return body

    def end(self) -> bool:
        """The server closed the connection properly; returns whether that completes the answer."""
        if self.status and self._needed < 0 and self._chunks is None and not self.whole:
            self.whole = True
            if not (self._stream and self.status < 300):
                self.body = self._body()
        return self.whole

    def _head(self) -> bool:
        data = self._data
        end = data.find(b"\r\n\r\n")
        if (end if end >= 0 else len(data)) > MAX_HEAD_BYTES:
            raise ProtocolError("the head of the answer does not end")
        if end < 0:
            return False
        head = data[: end + 2]
        # Folded header lines are obsolete, but a client must accept them (RFC 9112, 5.2).
        found = _HEAD.fullmatch(head) or _HEAD.fullmatch(_FOLD.sub(b" ", head[:-2]) + b"\r\n")
        if found is None:
            raise ProtocolError("a head that is not HTTP/1.1")
        if found[3].count(b"\n") > MAX_FIELDS:
            raise ProtocolError(f"more than {MAX_FIELDS} header fields")
        self._data = data[end + 4 :]
        status = int(found[2])
        if status < 200:
            self._n_interim += 1
            if status == 101 or self._n_interim > MAX_INTERIM:
                raise ProtocolError(f"{status} instead of an answer")
            return True  # 100 Continue and the like: the answer follows
        self.status = status
        self._frame(found[3].lower(), is_http_1_0=found[1] == b"0")
        return True

    def _frame(self, fields: bytes, *, is_http_1_0: bool) -> None:
        """Determine where the body ends (RFC 9112, 6.3), and whether the connection is kept."""
        length = -1
        codings: list[bytes] = []
        encodings: list[bytes] = []
        options: list[bytes] = []
        for name, value in _FRAMING.findall(fields):
            if name == b"content-length":
                length = _length(value, length)
            elif name == b"retry-after":
                self.retry_after = value.strip().decode() if _decimal(value.strip()) >= 0 else None
            else:
                listed = {b"connection": options, b"transfer-encoding": codings}.get(name, encodings)
                listed.extend(token.strip() for token in value.split(b","))
        self._decode(encodings)
        if codings and (codings != [b"chunked"] or is_http_1_0):
            raise ProtocolError("a transfer coding that was not asked for")
        if codings and length >= 0:
            raise ProtocolError("both a Content-Length and a transfer coding")
        if self.status in (204, 304):
            self._needed = 0
        elif codings:
            self._chunks = Chunks()
        else:
            self._needed = length
            is_bounded = not self._stream or self.status >= 300
            if is_bounded and length > self._max_body_bytes:
                raise ProtocolError("the answer is too long")
        self.keep_alive = (
            b"close" not in options
            and (not is_http_1_0 or b"keep-alive" in options)
            and (self._chunks is not None or self._needed >= 0)
        )

    def _decode(self, encodings: list[bytes]) -> None:
        """Determine what was done to the body: nothing is asked for, and gzip is understood all the same."""
        encodings = [one for one in encodings if one not in (b"", b"identity")]
        if len(encodings) == 1 and encodings[0] in _GZIP:
            self._gzip = _Gzip()
        elif encodings:
            shown = b", ".join(encodings)[:40].decode("latin-1")
            raise ProtocolError(
                f"a body in the content coding {shown!r}, which was not asked for; switch compression off in"
                " the proxy before the API server"
            )

    def _gather(self) -> None:
        """Collect the body until it is complete; a page of a list comes in hundreds of pieces."""
        data, self._data = self._data, b""
        if self._chunks is not None:
            self._n_bytes += len(data)
            self._parts += self._chunks.feed(data)
            self.whole, self.rest = self._chunks.whole, self._chunks.rest
            if self._n_bytes - len(self.rest) > self._max_body_bytes:
                raise ProtocolError("the answer is too long")
        else:
            part = data if self._needed < 0 else data[: self._needed - self._n_bytes]
            self._n_bytes += len(part)
            self._parts.append(part)
            self.whole, self.rest = self._n_bytes == self._needed, data[len(part) :]
            if self._n_bytes > self._max_body_bytes:
                raise ProtocolError("the answer is too long")
        if self.whole:
            self.body = self._body()

    def _flow(self) -> None:
        """Pass on what has arrived: chunks, up to the announced length, or all until the end."""
        data, self._data = self._data, b""
        if self._chunks is not None:
            found = self._chunks.feed(data)
            self.whole, self.rest = self._chunks.whole, self._chunks.rest
        else:
            if self._needed >= 0:
                data, self.rest = data[: self._needed], data[self._needed :]
                self._needed -= len(data)
                self.whole = not self._needed
            found = [data] if data else []
        if self._gzip is not None:
            inflated = (self._gzip.inflate(part, MAX_INFLATED_BYTES) for part in found)
            found = [part for part in inflated if part]
        self._parts += found
