"""Parses requests: the resource that the path names, and the options of the query.

Lives here: paths and query options. Not here: bodies (bodies.py), the Accept header (negotiation.py), acting
on it (handlers.py). Source: k8s.io/apiserver pkg/endpoints/request/requestinfo.go, k8s.io/apimachinery
pkg/apis/meta/v1/types.go (the options) and pkg/runtime/converter (how booleans and numbers are read from a
query).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import FieldProblem, bad_request, invalid_value, not_supported
from gangsched.lab.apiserver.deletion import DeleteOptions, checked_options, dry_run_problems
from gangsched.lab.apiserver.resources import Resource, Resources
from gangsched.lab.apiserver.status import invalid
from gangsched.lab.apiserver.storage.lists import ListOptions
from gangsched.lab.apiserver.storage.selectors import FieldSelector, label_selector
from gangsched.lab.apiserver.strategy import Strategy

FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")
_META = "meta.k8s.io"
# Both in the core group's Namespace; elsewhere the third segment names a resource.
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_EVERYTHING = LabelSelector()
_ANY_FIELD = FieldSelector()


class Request(msgspec.Struct):
    """One request with its body read; `target`: the path and query as sent."""

    method: str
    target: str
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    body: bytes = b""
    if_none_match: str = ""
    _query: dict[str, list[str]] | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            self._query = parse_query(self.target.partition("?")[2])
        return self._query

    def first(self, name: str) -> str:
        """The first value of a query parameter, or ""."""
        values = self.query.get(name)
        return values[0] if values else ""


def parse_query(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if text:
        for name, value in parse_qsl(text, keep_blank_values=True):
            found.setdefault(name, []).append(value)
    return found


class Target(NamedTuple):
    """The collection, object or subresource that a path names."""

    resource: Resource
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def find_target(resources: Resources, path: str) -> Target | None:
    """None for paths without a resource."""
    parts = [unquote(part) for part in path.split("/") if part] if "%" in path else path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    in_namespace = rest[0] == "namespaces" and len(rest) > 2
    if in_namespace and not (not group and len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    resource = resources.find(group, version, rest[0])
    if resource is None or (namespace and not resource.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and resource.namespaced and not namespace:
        return None
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and resource.subresource(subresource) is None:
        return None
    return Target(resource, version, namespace, name, subresource)


def boolean(values: Sequence[str] | None) -> bool:
    """Reads a boolean from a query like the real server: present and neither false nor 0."""
    return bool(values) and values[0].lower() not in ("false", "0")  # type: ignore[index]


def integer(text: str) -> int:
    """Raises: StatusError (400)."""
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return value


def list_options(request: Request, target: Target, strategy: Strategy) -> ListOptions:
    """Raises: StatusError (400)."""
    query = request.query
    if not query:
        return ListOptions(_EVERYTHING, _ANY_FIELD)
    first = request.first
    labels, fields = _EVERYTHING, _ANY_FIELD
    if text := first("labelSelector"):
        labels = label_selector(text)
    if text := first("fieldSelector"):
        known = ("metadata.name", *strategy.field_names())
        # Every built-in kind, whatever its scope, supports both.
        if target.resource.namespaced or not target.resource.custom:
            known = (*known, "metadata.namespace")
        fields = FieldSelector.parse(text, known)
    return ListOptions(
        labels=labels,
        fields=fields,
        limit=integer(text) if (text := first("limit")) else 0,
        continue_=first("continue"),
        resource_version=first("resourceVersion"),
        match=first("resourceVersionMatch"),
        timeout_s=integer(text) if (text := first("timeoutSeconds")) else None,
        watch=boolean(query.get("watch")),
        bookmarks=boolean(query.get("allowWatchBookmarks")),
        send_initial_events=boolean(query["sendInitialEvents"]) if "sendInitialEvents" in query else None,
    )


class WriteOptions(NamedTuple):
    """CreateOptions, UpdateOptions and PatchOptions; `force` and a required manager are for apply."""

    dry_run: bool = False
    field_validation: str = "Warn"
    field_manager: str = ""
    force: bool = False


_PLAIN_WRITE = WriteOptions()


def write_options(request: Request, kind: str) -> WriteOptions:
    """`kind`, for errors: CreateOptions, UpdateOptions or PatchOptions. Raises: StatusError (422)."""
    if not request.query:
        return _PLAIN_WRITE
    problems = dry_run_problems(request.query.get("dryRun", ()))
    manager = request.first("fieldManager")
    if len(manager) > 128:
        problems.append(
            FieldProblem("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes")
        )
    if not manager.isprintable():
        problems.append(invalid_value("fieldManager", manager, "should only contain printable characters"))
    validation = request.first("fieldValidation")
    if validation and validation not in FIELD_VALIDATIONS:
        problems.append(not_supported("fieldValidation", validation, ["", *FIELD_VALIDATIONS]))
    if problems:
        raise invalid(kind, "", problems, group=_META)
    return WriteOptions(
        dry_run=bool(request.query.get("dryRun")),
        field_validation=validation or "Warn",
        field_manager=manager,
        force=boolean(request.query.get("force")),
    )


def delete_options(request: Request, body: Mapping[str, object] | None) -> tuple[DeleteOptions, bool]:
    """Reads the body, else the query; also returns whether it is a dry run. Raises: StatusError."""
    if body is not None:
        return checked_options(body)
    given: dict[str, object] = {
        name: request.first(name)
        for name in ("propagationPolicy", "orphanDependents", "gracePeriodSeconds")
        if request.first(name)
    }
    if "gracePeriodSeconds" in given:
        given["gracePeriodSeconds"] = integer(str(given["gracePeriodSeconds"]))
    if "orphanDependents" in given:
        given["orphanDependents"] = boolean([str(given["orphanDependents"])])
    if "dryRun" in request.query:
        given["dryRun"] = request.query["dryRun"]
    return checked_options(given)


def check_name(obj: Mapping[str, Any], target: Target) -> None:
    """Reject a body that names another object than its path. Raises: StatusError (400)."""
    meta = obj.get("metadata") or {}
    name, namespace = meta.get("name") or "", meta.get("namespace") or ""
    if not name:
        raise bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )
    if target.namespace and namespace and namespace != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
