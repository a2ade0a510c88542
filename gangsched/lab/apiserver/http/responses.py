"""Answers as bytes: an object, a list, a Status, in the form that the client requested.

Lives here: bodies of responses and their content types. Not here: tables' rows (tables), sockets (server.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.http.negotiation import JSON, YAML, Shape
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.storage import codec
from gangsched.lab.apiserver.storage.lists import Page
from gangsched.lab.apiserver.storage.store import Item


class Answer(msgspec.Struct):
    """A whole response."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = msgspec.field(default_factory=dict)


def plain_text(code: int, text: str) -> Answer:
    return Answer(code, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})


NOT_FOUND = plain_text(404, "404 page not found\n")


def status(error: StatusError) -> Answer:
    return Answer(error.code, codec.encode(error.as_status()) + b"\n", headers=error.headers)


def document(obj: Any, *, code: int = 200) -> Answer:
    """Any JSON value."""
    return Answer(code, codec.encode(obj))


def as_yaml(answer: Answer) -> Answer:
    """The same answer for a client that prefers YAML."""
    import yaml

    if answer.content_type != JSON:
        return answer
    dumped = yaml.safe_dump(msgspec.json.decode(answer.body), sort_keys=False, allow_unicode=True)
    return Answer(answer.code, dumped.encode(), YAML, answer.headers)


def list_metadata(page: Page) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_:
        meta["continue"] = page.continue_
    if page.n_remaining is not None:
        meta["remainingItemCount"] = page.n_remaining
    return meta


def list_body(resource: Resource, version: str, page: Page, items: Sequence[bytes]) -> bytes:
    """A list of `items`, each in the form of list items, with the page's metadata."""
    opening = {
        "kind": resource.list_kind or f"{resource.kind}List",
        "apiVersion": resource.api_version(version),
        "metadata": list_metadata(page),
    }
    return codec.encode(opening)[:-1] + b',"items":[' + b",".join(items) + b"]}"


def partial(metadata: dict[str, Any], wanted: Shape) -> bytes:
    """An object reduced to its metadata."""
    reduced = {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{wanted.group}/{wanted.version}",
        "metadata": metadata,
    }
    return codec.encode(reduced)


def partial_list(page: Page, items: Sequence[Item], wanted: Shape) -> bytes:
    as_resource = Resource(
        group=wanted.group,
        versions=(wanted.version,),
        plural="",
        singular="",
        kind="PartialObjectMetadata",
        namespaced=False,
    )
    return list_body(
        as_resource, wanted.version, page, [partial(item.decode()["metadata"], wanted) for item in items]
    )
