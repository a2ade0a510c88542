"""An extender as people write them: a little HTTP server that filters and scores by node names.

Lives here: the server in a thread of its own, what it was asked, and its bad moods. Its JSON is kube's.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]


class ExtenderServer:
    """`refuses`: node -> why; `scores`: node -> 0..10; `asked`: (path, arguments), oldest first.

    `raw`: what it answers instead, byte for byte; `code`: with which status; `headers`: and with these;
    `stall`: when; `binds`: called with a bind's arguments, answers with an error or "". `asked_with`: the
    headers of what it was asked.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.refuses: Mapping[str, str] = {}
        self.scores: Mapping[str, int] = {}
        self.raw: bytes | None = None
        self.code = 200
        self.headers: Mapping[str, str] = {}
        self.stall = threading.Event()
        self.stall.set()
        self.binds: Any = None
        self.asked: list[tuple[str, Json]] = []
        self.asked_with: list[Mapping[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="extender", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stall.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def asked_for(self, verb: str, prefix: str = "") -> list[Json]:
        return [arguments for path, arguments in self.asked if path == f"{prefix}/{verb}"]

    def answer(self, path: str, arguments: Json) -> Any:
        """As a well-behaved one would."""
        verb = path.rsplit("/", 1)[1]
        if verb == "bind":
            return {"Error": self.binds(arguments) if self.binds is not None else ""}
        names = arguments["NodeNames"]
        nodes = (arguments["Nodes"] or {}).get("items", [])
        asked = names if names is not None else [node["metadata"]["name"] for node in nodes]
        if verb == "prioritize":
            return [{"Host": name, "Score": self.scores.get(name, 0)} for name in asked]
        left = [name for name in asked if name not in self.refuses]
        failed = {name: self.refuses[name] for name in asked if name in self.refuses}
        if names is not None:
            return {"NodeNames": left, "FailedNodes": failed}
        kept = [node for node in nodes if node["metadata"]["name"] in left]
        return {"Nodes": {"items": kept}, "FailedNodes": failed}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        extender = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                extender.asked.append((self.path, arguments))
                extender.asked_with.append(dict(self.headers))
                extender.stall.wait(30)
                body = extender.raw
                if body is None:
                    body = json.dumps(extender.answer(self.path, arguments)).encode()
                self.send_response(extender.code)
                self.send_header("Content-Type", "application/json")
                for name, value in extender.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # whoever asked has had enough
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Tests have enough to say."""

        return Handler
