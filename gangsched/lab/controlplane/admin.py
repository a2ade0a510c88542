"""Requests of a control plane's admin: plain blocking calls over one warm connection for each thread.

A connection for each request would cost a TLS handshake, which costs more than the rest of the request; tests
and benches make hundreds of them in a row. Called by lab.controlplane.processes.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
from pathlib import Path
from typing import Any

from gangsched.errors import ApiError

TIMEOUT_S = 30.0


class Admin:
    """Asks the API server on this loopback port, which has made its certificate in `ca_file`."""

    def __init__(self, port: int, ca_file: Path, token: str) -> None:
        self._port = port
        self._ca_file = ca_file
        self._token = token
        self._here = threading.local()

    def ask(self, method: str, path: str, body: Any, content_type: str) -> Any:
        """Returns the JSON of the answer, or its text.

        Raises: ApiError (code 0 if nothing was received), SSLError (the certificate is being written).
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        connection = self._warm() or self._opened()
        # Kept again only when its answer was read to the end.
        self._here.connection = None
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(f"{method} {path}: {error}") from None
        self._here.connection = connection
        if answer.status >= 300:
            text = raw.decode(errors="replace")
            raise ApiError(f"{method} {path}: {text}", code=answer.status, reason=answer.reason)
        return json.loads(raw) if raw[:1] in (b"{", b"[") else raw.decode()

    def _warm(self) -> http.client.HTTPSConnection | None:
        """This thread's connection, if the server has not closed it."""
        connection: http.client.HTTPSConnection | None = getattr(self._here, "connection", None)
        if connection is None or connection.sock is None:
            return None
        look = select.poll()
        look.register(connection.sock, select.POLLIN)
        if look.poll(0):  # its end: nothing else can come now
            connection.close()
            return None
        return connection

    def _opened(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self._ca_file))
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=TIMEOUT_S, context=context)
