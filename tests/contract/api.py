"""One HTTP client for both servers, as thin as can be: nothing of ours stands between a test and the wire.

Lives here: requests, watches, answers. Not here: which servers there are (conftest.py), bodies (objects.py).
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.support.processes import until

Json = dict[str, Any]

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
YAML = "application/yaml"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

CORE = "/api/v1"
PATIENCE_S = 20.0


class Answer(NamedTuple):
    """What came back; `body` is decoded where it is JSON, text else; names of headers are in lower case."""

    code: int
    body: Any
    headers: dict[str, str]

    def ok(self, code: int = 200) -> Json:
        """The body of an answer that must have this code."""
        assert self.code == code, f"{self.code} instead of {code}: {self.body}"
        assert isinstance(self.body, dict), self.body
        return self.body

    def no(self, code: int, reason: str, message: str) -> Json:
        """The Status of a refusal, which must be this one, in these words."""
        assert self.code == code, f"{self.code} instead of {code}: {self.body}"
        body: Json = self.body
        assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
        said = (body.get("reason", ""), body["message"], body["code"])
        assert said == (reason, message, code), f"said {said}, not {(reason, message, code)}"
        return body

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers."""
        found = self.headers.get("warning", "")
        parts = (part.rstrip(", ").removesuffix('"') for part in found.split('299 - "') if part)
        return [part.replace('\\"', '"') for part in parts]


class Api:
    """A server, and a namespace of it that nobody else uses."""

    def __init__(self, name: str, url: str, token: str = "", ca_file: str | None = None) -> None:
        self.name = name
        self.namespace = ""
        # What happened until now can no longer be watched.
        self.forget: Callable[[], None] = lambda: None
        self._url = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else None
        self._connection: http.client.HTTPConnection | None = None

    def at(self, plural: str, name: str = "", below: str = "", *, group: str = CORE) -> str:
        """The path of this namespace's collection, of an object, or of what is below it."""
        path = f"{group}/namespaces/{self.namespace}/{plural}"
        return "/".join(part for part in (path, name, below) if part)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        known: str = "",
        **query: Any,
    ) -> Answer:
        """One request; `body` is sent as it is if it is bytes, encoded else; `known` is an ETag that is had."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self._headers | {"Accept": accept} | ({"If-None-Match": known} if known else {})
        if raw is not None:
            headers["Content-Type"] = content_type
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        answer = self._once(method, target, raw, headers)
        data = answer.read()
        joined: dict[str, str] = {}
        for name, value in answer.getheaders():
            key = name.lower()
            joined[key] = f"{joined[key]}, {value}" if key in joined else value
        return Answer(answer.status, _decoded(data), joined)

    def get(self, path: str, **rest: Any) -> Answer:
        return self.send("GET", path, **rest)

    def post(self, path: str, body: Any, **rest: Any) -> Answer:
        return self.send("POST", path, body, **rest)

    def put(self, path: str, body: Any, **rest: Any) -> Answer:
        return self.send("PUT", path, body, **rest)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **rest: Any) -> Answer:
        return self.send("PATCH", path, body, content_type=content_type, **rest)

    def apply(self, path: str, body: Any, manager: str = "tester", **rest: Any) -> Answer:
        """Server-side apply."""
        return self.send("PATCH", path, body, content_type=APPLY, fieldManager=manager, **rest)

    def delete(self, path: str, body: Any = None, **rest: Any) -> Answer:
        return self.send("DELETE", path, body, **rest)

    def watch(self, path: str, *, accept: str = JSON, **query: Any) -> Watch:
        """An open watch on a connection of its own."""
        return Watch(self, path, accept, query)

    def eventually(self, answers: Callable[[], Answer], code: int = 200) -> Answer:
        """For what the real server does in the background (it serves a new resource): asks until it is so."""
        last: list[Answer] = []

        def asked() -> bool:
            last[:] = [answers()]
            return last[0].code == code

        until(asked, f"the answer is {code}", timeout_s=PATIENCE_S, story=lambda: last[0])
        return last[0]

    def connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=PATIENCE_S)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._headers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(
        self, method: str, target: str, raw: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """On the connection that is there; on a new one if the server has closed that meanwhile."""
        while True:
            is_new = self._connection is None
            if self._connection is None:
                self._connection = self.connect()
            try:
                self._connection.request(method, target, raw, headers)
                return self._connection.getresponse()
            except (http.client.HTTPException, OSError):
                self.close()
                if is_new:
                    raise


class Watch:
    """The events of one watch, as (type, object)."""

    def __init__(self, api: Api, path: str, accept: str, query: dict[str, Any]) -> None:
        self._connection = api.connect()
        target = f"{path}?{urlencode({'watch': 'true', **query}, doseq=True)}"
        self._connection.request("GET", target, headers=api.headers | {"Accept": accept})
        self._answer = self._connection.getresponse()
        self.code = self._answer.status

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def next(self) -> tuple[str, Json]:
        """The next event; fails if none comes."""
        line = self._answer.readline()
        assert line, "the watch has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    def take(self, n: int) -> list[tuple[str, str]]:
        """Type and name of the next events, bookmarks aside."""
        taken: list[tuple[str, str]] = []
        while len(taken) < n:
            type_, obj = self.next()
            if type_ != "BOOKMARK":
                taken.append((type_, obj["metadata"]["name"]))
        return taken

    def rest(self) -> Iterator[tuple[str, Json]]:
        """All that comes until the server ends the watch."""
        while line := self._answer.readline():
            event = json.loads(line)
            yield event["type"], event["object"]

    def refusal(self) -> Answer:
        """The answer of a watch that was not opened."""
        return Answer(self.code, _decoded(self._answer.read()), dict(self._answer.getheaders()))


def _decoded(data: bytes) -> Any:
    return json.loads(data) if data[:1] in (b"{", b"[") else data.decode()
