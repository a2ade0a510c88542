"""A real Jaeger on loopback, all in one process: spans go in by OTLP, traces come out as JSON.

What does not live here: building it (build.py), one process's life (daemon.py). Called by the fixtures of
tests that look at traces; plain blocking calls, as in processes.py.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.daemon import Daemon, StartFailed, free_ports

READY_S = 60.0
START_TRIES = 3
# All that it listens on: every one is moved, or two Jaegers on one machine get in each other's way.
_LISTENS = (
    "collector.otlp.http.host-port",
    "query.http-server.host-port",
    "admin.http.host-port",
    "collector.otlp.grpc.host-port",
    "collector.grpc-server.host-port",
    "collector.http-server.host-port",
    "query.grpc-server.host-port",
    "http-server.host-port",
    "processor.jaeger-binary.server-host-port",
    "processor.jaeger-compact.server-host-port",
    "processor.zipkin-compact.server-host-port",
)


class Jaeger:
    """One Jaeger, in memory unless `env` says otherwise; its traces go with it when it stops.

    Raises: MissingAssets, StartFailed.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {"SPAN_STORAGE_TYPE": "memory", **(env or {})}
        self._binary = assets.find(module=assets.JAEGER).path("jaeger")
        self._directory = Path(tempfile.mkdtemp(prefix="gangsched-jaeger-"))
        self._otlp_port = self._query_port = 0
        self.daemon: Daemon | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """The address for OTLP over HTTP, without a path."""
        return f"http://127.0.0.1:{self._otlp_port}"

    @property
    def query_url(self) -> str:
        """The address of its query API."""
        return f"http://127.0.0.1:{self._query_port}"

    def start(self) -> None:
        """Starts it, and waits until it accepts spans."""
        for attempt in range(START_TRIES):
            try:
                self._start(free_ports(len(_LISTENS)))
                return
            except StartFailed as error:
                if self.daemon is not None:
                    self.daemon.kill()
                if "address already in use" not in str(error) or attempt == START_TRIES - 1:
                    raise

    def stop(self) -> None:
        """Ends it; may be called twice."""
        if self.daemon is not None:
            self.daemon.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def traces(self, **query: str) -> list[dict[str, Any]]:
        """Returns what /api/traces answers. query: `service` and, optionally, `tags` (JSON), `limit`,
        `lookback`."""
        answer = self._get(f"/api/traces?{urllib.parse.urlencode(query)}")
        found: list[dict[str, Any]] = answer["data"]
        return found

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """Returns one trace; None if there is none of that id (yet)."""
        try:
            found: dict[str, Any] = self._get(f"/api/traces/{trace_id}")["data"][0]
        except OSError:  # the query answered 404
            return None
        return found

    def _start(self, ports: list[int]) -> None:
        self._otlp_port, self._query_port, admin = ports[:3]
        flags = [f"--{name}=127.0.0.1:{port}" for name, port in zip(_LISTENS, ports, strict=True)]
        env = {**os.environ, **self._env}
        log = self._directory / "jaeger.log"
        self.daemon = Daemon("jaeger", [str(self._binary), *flags, "--log-level=warn"], log=log, env=env)
        self.daemon.wait_ready(lambda: self._is_ready(admin), timeout_s=READY_S)

    def _is_ready(self, admin: int) -> bool:
        try:
            with _OPENER.open(f"http://127.0.0.1:{admin}/", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        with _OPENER.open(self.query_url + path, timeout=30) as answer:
            return json.load(answer)


# No proxies: an environment's http_proxy must not see loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
