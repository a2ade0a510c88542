"""Just enough HTTP/1.1 to read the answers of an API server, one at a time, from bytes cut anywhere.

Not a general parser: it serves kube.binding_lane, which sends one request at a time on a connection and
trusts its peer to be a kube-apiserver or the proxy before it. What it does not understand is an error, and
an error there means that the connection is given up and the bind's outcome is unknown.
"""

from __future__ import annotations

import re

# Statuses are small; whoever sends more is not an API server.
MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 4 * 2**20

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})[ \r]")


class ProtocolError(Exception):
    """The peer does not speak as expected."""


class Answer:
    """One response; `whole` once all of it is there. `feed` may be given bytes until then."""

    __slots__ = ("_chunked", "_data", "_needed", "body", "keep_alive", "retry_after", "status", "whole")

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.retry_after: str | None = None
        self.keep_alive = True
        self.whole = False
        self._data = b""
        self._needed = -1
        self._chunked = False

    def feed(self, data: bytes) -> None:
        """Take in bytes. Raises: ProtocolError."""
        self._data = self._data + data if self._data else data
        while not self.status:
            if not self._head():
                return
        if self._chunked:
            self._unchunk()
        elif len(self._data) >= self._needed:
            if len(self._data) > self._needed:
                raise ProtocolError("more bytes than one answer has")
            self.body = self._data
            self.whole = True

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
        self.keep_alive = line[1] == b"1" and _CLOSE.search(head) is None
        retry = _RETRY_AFTER.search(head)
        self.retry_after = None if retry is None else retry[1].decode()
        length = _LENGTH.search(head)
        if _CHUNKED.search(head):
            self._chunked = True
        elif length is not None:
            self._needed = int(length[1])
            if self._needed > MAX_BODY_BYTES:
                raise ProtocolError("the answer is too long")
        elif status == 204:
            self._needed = 0
        else:
            raise ProtocolError("an answer of unknown length")
        return True

    def _unchunk(self) -> None:
        """Look from the start whether all chunks are there: the few answers that have them are short."""
        data, at = self._data, 0
        parts: list[bytes] = []
        if len(data) > MAX_BODY_BYTES:
            raise ProtocolError("the answer is too long")
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                return
            try:
                size = int(data[at:end].split(b";", 1)[0], 16)
            except ValueError:
                raise ProtocolError("a chunk without a size") from None
            at = end + 2
            if size == 0:
                if data.find(b"\r\n", at) < 0:
                    return
                self.body = b"".join(parts)
                self.whole = True
                return
            parts.append(data[at : at + size])
            at += size + 2
            if at > len(data):
                return
