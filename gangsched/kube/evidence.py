"""What an answer proves: whether it comes from the API server, and is about the requested object.

Lives here: judging one answer. Not here: reading it (kube.status), and the reaction to it (the lanes, the
elector, the reflector). A status code alone proves nothing: load balancers, proxies and login pages answer
404, 403 and even 200, whether or not they forwarded the request. Only the reason in a Status that names the
object decides. The API server names it by its resource (NotFound, Forbidden, Conflict), its subresource (a
Binding's Conflict: pods/binding) or its kind (Invalid, a precondition's Conflict).

| the answer | proves |
|---|---|
| a Status that names the object | what its reason states |
| a Status that names nothing (a webhook's denial, BadRequest, Unauthorized) | only that the server refused |
| a Status that names another object; no Status; a success without the expected body | nothing |
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gangsched.errors import ApiError
from gangsched.model.text import bounded

# Reasons that depend on the moment, not the request: the next answer may differ.
_MAY_PASS = frozenset({"", "Conflict", "ServerTimeout", "Timeout", "TooManyRequests", "Unauthorized"})


class Target(NamedTuple):
    """The object that a request is about."""

    resource: str
    kind: str
    name: str
    namespace: str = ""
    group: str = ""


def pod(namespace: str, name: str) -> Target:
    """A pod as a target."""
    return Target("pods", "Pod", name, namespace)


def names(error: ApiError, target: Target) -> bool:
    """Whether the error comes from the API server itself and is about `target`."""
    subject = error.subject
    if subject is None or subject.name != target.name or subject.group != target.group:
        return False
    return subject.kind.partition("/")[0] in (target.resource, target.kind)


def names_nothing(error: ApiError) -> bool:
    """Whether the error comes from the API server itself and names no object."""
    return error.subject is not None and not error.subject.name


def is_gone(error: ApiError, target: Target) -> bool:
    """Whether the API server itself reports that the object does not exist."""
    return error.reason == "NotFound" and names(error, target)


def is_refusal(error: ApiError, target: Target) -> bool:
    """Whether the API server itself reports that it did not and will not do this to `target`."""
    return error.code < 500 and error.reason not in _MAY_PASS and names(error, target)


def is_doubtful(error: ApiError, target: Target) -> bool:
    """Whether the answer proves nothing about `target` and cannot be explained by server trouble either.

    A 429 or 5xx without a Status may come from kube-apiserver itself, or from a proxy waiting for it.
    """
    if not error.code or error.code == 429 or error.code >= 500:
        return False
    return not (names(error, target) or names_nothing(error))


class Identity(msgspec.Struct, gc=False):
    """An object's name, in its metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class Outline(msgspec.Struct, gc=False):
    """The kind and name that an object states."""

    kind: str = ""
    metadata: Identity = msgspec.field(default_factory=Identity)


_decode_outline = bounded.lenient_decoder(Outline)


def outline_of(body: bytes, target: Target) -> Outline | None:
    """The object in `body` if it has `target`'s kind and name, else None."""
    try:
        found = _decode_outline(body)
    except ValueError:
        return None
    meta = found.metadata
    is_it = (found.kind, meta.name, meta.namespace) == (target.kind, target.name, target.namespace)
    return found if is_it and meta.uid else None
