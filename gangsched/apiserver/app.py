"""The embedded cluster put together: store, rules, HTTP face, one async context manager around them.

Lives here: assembly, and the kubeconfig that leads to it. Not here: any behaviour. Used by the CLI, the demo
and by tests.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from gangsched.apiserver.discovery import Discovery
from gangsched.apiserver.documents import Documents
from gangsched.apiserver.handlers import Handlers, Watching
from gangsched.apiserver.registry import Registry, utc_now
from gangsched.apiserver.requests import Request
from gangsched.apiserver.responses import Answer
from gangsched.apiserver.server import HttpServer
from gangsched.apiserver.strategy import Strategy
from gangsched.errors import ConfigError

# As kube-controller-manager and kube-apiserver make them in every cluster.
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# How long a watch lasts that says nothing: at random in here, as the real server's --min-request-timeout.
WATCH_S = (1800.0, 3600.0)


class EmbeddedCluster:
    """An API server in this process: in memory, without authentication, on 127.0.0.1 unless told otherwise.

    `port` 0 takes a free one. With `tls` (a context for servers) it speaks https; `ca` is the PEM its
    kubeconfig trusts then.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        ca: bytes = b"",
        seed: int = 0,
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        self._host = host
        self._asked_port = port
        self._tls = tls
        self._ca = ca
        self._rng = Random(seed or None)
        self.registry = Registry(now=utc_now, rng=self._rng, strategies=strategies)
        self.url = ""
        self._http: HttpServer | None = None
        self._handlers = Handlers(self.registry)
        self._documents = Documents(Discovery(self.registry.resources, ""))

    async def __aenter__(self) -> Self:
        for name in NAMESPACES:
            self.registry.create(self.registry.resource("namespaces"), {"metadata": {"name": name}})
        http = HttpServer(self._respond, rng_s=lambda: self._rng.uniform(*WATCH_S))
        await http.listen(self._host, self._asked_port, self._tls)
        self._http = http
        shown = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{shown}:{http.port}"
        self.url = f"{'https' if self._tls else 'http'}://{address}"
        self._documents = Documents(Discovery(self.registry.resources, address))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _respond(self, request: Request) -> Answer | Watching:
        answer = self._handlers.handle(request)
        return self._documents.handle(request) if answer is None else answer

    def kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig for this cluster, readable by its owner alone. Raises: ConfigError."""
        return write_kubeconfig(Path(path), self.url, ca=self._ca)


def write_kubeconfig(path: Path, url: str, *, ca: bytes = b"", name: str = "gangsched") -> Path:
    """Raises: ConfigError, where the file cannot be written."""
    cluster = {"server": url}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    try:
        path.touch(mode=0o600)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", source=str(path)) from None
    return path
