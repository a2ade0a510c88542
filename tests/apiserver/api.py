"""An API server without a socket and with a clock of its own, as most tests here want it.

Lives here: requests by method and path, watches read at once. Not here: what they are asked (the tests).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import msgspec

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.handlers import Handlers, Watching
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.kinds import bootstrap, builtin_strategies
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.storage.store import Store
from gangsched.lab.apiserver.storage.watches import Watch

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


class Said(NamedTuple):
    """An answer: its code, its JSON, its headers."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def version(self) -> int:
        return int(self.body["metadata"]["resourceVersion"])


class Reader:
    """A watch's client: `read()` gives what has come since the last time, as (type, object)."""

    def __init__(self, watching: Watching) -> None:
        self.n_wakes = 0
        self.watch: Watch = watching.open(self._wake)

    def _wake(self) -> None:
        self.n_wakes += 1

    def read(self) -> list[tuple[str, Any]]:
        lines = b"".join(self.watch.take()).splitlines()
        events = [msgspec.json.decode(line) for line in lines]
        return [(event["type"], event["object"]) for event in events]

    def told(self) -> list[str]:
        """As `read`, in short: `ADDED a`."""
        return [f"{kind} {obj['metadata'].get('name', '')}".strip() for kind, obj in self.read()]


class Api:
    """One server; `clock` is its time."""

    def __init__(self, **store: int) -> None:
        self.clock = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.registry = Registry(
            now=lambda: self.clock, rng=Random(1), strategies=builtin_strategies(), store=Store(**store)
        )
        bootstrap(self.registry)
        self.handlers = Handlers(self.registry)

    def tick(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        accept: str = "",
        content_type: str = "application/json",
        user_agent: str = "",
    ) -> Said:
        sent = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, target, accept, content_type if sent else "", user_agent, sent)
        try:
            answer = self.handlers.handle(request)
        except StatusError as error:
            answer = responses.status(error)
        assert isinstance(answer, responses.Answer), f"{method} {target}: {answer}"
        return Said(answer.code, msgspec.json.decode(answer.body), answer.headers)

    def get(self, target: str, *, accept: str = "") -> Said:
        return self.ask("GET", target, accept=accept)

    def create(self, target: str, name: str, **rest: Any) -> Said:
        labels = rest.pop("labels", {})
        said = self.ask("POST", target, {"metadata": {"name": name, "labels": labels}, **rest})
        assert said.code == 201, said
        return said

    def merge(self, target: str, patch: Any) -> Said:
        return self.ask("PATCH", target, patch, content_type="application/merge-patch+json")

    def watch(self, target: str, *, accept: str = "") -> Reader:
        watching = self.handlers.handle(Request("GET", target, accept))
        assert isinstance(watching, Watching)
        return Reader(watching)
