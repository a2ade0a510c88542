"""A front end of the API server that answers some requests itself, as load balancers and proxies do.

Lives here: what it says instead of the truth, and how often. Not here: the proxy that it is made of
(tests/proxy.py), what must hold all the same (test_front_end.py).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from gangsched.lab.controlplane.processes import ControlPlane
from tests.proxy import Lie, Proxy, http_answer
from tests.real.process import service_account
from tests.support.threads import in_a_thread

BINDS = re.compile(r"POST \S+/binding$")
EVICTIONS = re.compile(r"POST \S+/eviction$")
READS = re.compile(r"GET /api/v1/namespaces/[^/]+/pods/[^/?]+$")
STATUSES = re.compile(r"PATCH \S+/status$")
EVENTS = re.compile(r"POST \S+/events$")
LISTS = re.compile(r"GET \S+\?(?!.*watch=1)")
WATCHES = re.compile(r"GET \S+\?.*watch=1")
DISCOVERY = re.compile(r"GET /apis?(/[^?]*)?$")
LEASES = re.compile(r"\S+ \S+/leases")

HTML = b"<html><body><h1>It works!</h1></body></html>"


def _status(code: int, reason: str, name: str, kind: str) -> bytes:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{kind} "{name}" {reason}',
        "reason": reason,
        "details": {"name": name, "kind": kind},
        "code": code,
    }
    return json.dumps(status).encode()


def _another_pod() -> bytes:
    meta = {"name": "somebody-else", "namespace": "default", "uid": "0-0-0", "resourceVersion": "1"}
    return json.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {}}).encode()


LIES: Mapping[str, bytes] = {
    "404 as text": http_answer("404 Not Found", b"404 page not found\n"),
    "404 as a page": http_answer("404 Not Found", HTML),
    "404 of nothing": http_answer("404 Not Found"),
    "404 of another pod": http_answer("404 Not Found", _status(404, "NotFound", "somebody-else", "pods")),
    "404 of a node": http_answer("404 Not Found", _status(404, "NotFound", "n0", "nodes")),
    "403 as a page": http_answer("403 Forbidden", HTML),
    "409 as a page": http_answer("409 Conflict", HTML),
    "409 of another pod": http_answer("409 Conflict", _status(409, "Conflict", "somebody-else", "pods")),
    "410 as a page": http_answer("410 Gone", HTML),
    "422 of another pod": http_answer("422 Invalid", _status(422, "Invalid", "somebody-else", "Pod")),
    "302 to a login": http_answer("302 Found", b"", "Location: https://login.example.com/"),
    "502 as a page": http_answer("502 Bad Gateway", HTML),
    "200 as a page": http_answer("200 OK", HTML),
    "200 of nothing": http_answer("200 OK"),
    "200 with an empty object": http_answer("200 OK", b"{}"),
    "200 with another pod": http_answer("200 OK", _another_pod()),
    "half an answer": http_answer("404 Not Found", b"404 page not found\n" * 9)[:-40] + b"",
}


class FrontEnd:
    """Lies to one in `every` of the requests that match one of `about`, until it is `honest`."""

    def __init__(self, *about: re.Pattern[str], every: int, seed: int = 1) -> None:
        self._about = about
        self._every = every
        self._rng = Random(seed)
        self.honest = False
        self.told: Counter[str] = Counter()
        self.n_passed_on = 0
        self.requests: Counter[str] = Counter()

    def lie(self, request: str) -> Lie | None:
        """What the proxy says instead, if anything."""
        for kind in (BINDS, EVICTIONS, READS):
            self.requests[kind.pattern] += bool(kind.match(request))
        is_due = any(kind.match(request) for kind in self._about) and self._rng.randrange(self._every) == 0
        if self.honest or not is_due:
            return None
        name = self._rng.choice([name for name in LIES if name != "half an answer"])
        # An open watch has no end that could be waited for.
        passed_on = WATCHES.match(request) is None and self._rng.random() < 0.5
        self.told[name] += 1
        self.n_passed_on += passed_on
        return Lie(LIES[name], passed_on)

    def n(self, kind: re.Pattern[str]) -> int:
        """How many requests of this kind have come."""
        return self.requests[kind.pattern]


@contextmanager
def standing_before(plane: ControlPlane, directory: Path, front: FrontEnd) -> Iterator[Path]:
    """A kubeconfig that leads through the front end."""
    proxy, certificate = Proxy.before(plane, directory)
    proxy.lie = front.lie
    with in_a_thread(proxy):
        yield service_account(plane, directory / "front.yaml", server=proxy.url, ca_file=certificate)


def summary(front: FrontEnd) -> dict[str, Any]:
    """For a test that fails."""
    return {"told": dict(front.told), "passed on": front.n_passed_on, "requests": dict(front.requests)}
