"""A little HTTP proxy: CONNECT and nothing else, with a password where it is given one."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass
class ConnectProxy:
    """Leads every CONNECT to `upstream`, whatever name it is for; remembers whom it was for.

    `answer` is given instead of a tunnel, where there is one.
    """

    upstream: tuple[str, int] = ("127.0.0.1", 0)
    login: str = ""
    answer: bytes = b""
    targets: list[str] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> Self:
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def n_open(self) -> int:
        """Connections of clients."""
        return len(self._writers)

    def cut(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip().split("\r\n")
        method, target, _ = line.split(" ")
        assert method == "CONNECT"
        assert f"Host: {target}" in fields
        self.targets.append(target)
        wanted = f"Proxy-Authorization: Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.answer:
            writer.write(self.answer)
            await reader.read()
        elif self.login and wanted not in fields:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
        else:
            up_reader, up_writer = await asyncio.open_connection(*self.upstream)
            try:
                writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pass(reader, up_writer))
                    group.create_task(_pass(up_reader, writer))
            finally:
                up_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.transport.abort()
