"""Requests to the embedded API server's handlers, without a socket.

Lives here: what answers in the place of a real server when a case is played. Called by the tests of the
kinds. A PATCH is what the handlers make of it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random
from typing import Any

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.http.handlers import Handlers
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.kinds import bootstrap, builtin_strategies
from gangsched.lab.apiserver.registry import Registry
from tests.apiserver.kinds.recording import Answer as Said


class Embedded:
    """One cluster of its own; `now` stands still."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.registry = Registry(now=lambda: self.now, rng=Random(7), strategies=builtin_strategies())
        self._handlers = Handlers(self.registry)
        # Of the last answer.
        self.warning = ""
        bootstrap(self.registry)

    def namespace(self, name: str) -> None:
        self.registry.create(self.registry.resource("namespaces"), {"metadata": {"name": name}})

    def send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Said:
        raw = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, "application/json", content_type, "test", raw)
        try:
            answer = self._handlers.handle(request)
        except StatusError as error:
            return error.code, error.as_status()
        if answer is None:
            return 404, "404 page not found\n"
        assert isinstance(answer, Answer), f"{method} {path} is a watch"
        self.warning = answer.headers.get("Warning", "")
        assert not answer.code // 100 > 2, answer
        return 200, json.loads(answer.body)
