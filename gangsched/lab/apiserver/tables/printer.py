"""Turns objects into the Table that kubectl prints.

Lives here: the printer of each kind, the table around the rows, a row's part of its object. Not here: the
cells (beside this file). Called by the HTTP face for lists, single objects and watches. Source:
k8s.io/apiserver pkg/endpoints/handlers/response.go (asTable).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from gangsched.api_rules.status import bad_request, quoted
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.storage.codec import encode
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Cluster
from gangsched.lab.apiserver.tables import cluster, custom, devices, pods, policies, workloads
from gangsched.lab.apiserver.tables.columns import Kind, Object

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"

_KINDS: dict[str, Kind] = {
    "/pods": pods.POD,
    **workloads.KINDS,
    **cluster.KINDS,
    **policies.KINDS,
    **devices.KINDS,
}

Show = Callable[[Item], bytes]


def check_include(include: str) -> str:
    """Returns the query's `includeObject`, `Metadata` if empty. Raises: StatusError (400)."""
    if include not in ("", "Metadata", "Object", "None"):
        raise bad_request(
            f"Unable to convert to Table as requested: includeObject: Invalid value: {quoted(include)}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return include or "Metadata"


class Tables:
    """The printers, made on request; those of custom resources follow their definition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._custom: dict[tuple[str, str], tuple[int, Printer]] = {}

    def printer(self, resource: Resource, version: str) -> Printer:
        """Returns the printer of a resource, in the requested version."""
        if not resource.custom:
            return Printer(_KINDS.get(resource.storage_key, policies.ANY))
        name = f"{resource.plural}.{resource.group}"
        definition = self._cluster.find(self._cluster.resource(DEFINITIONS), "", name)
        revision = 0 if definition is None else definition.revision
        known = self._custom.get((name, version))
        if known is None or known[0] != revision:
            columns = None if definition is None else _columns(definition.decode(), version)
            known = self._custom[name, version] = revision, Printer(custom.kind_of(columns))
        return known[1]


class Printer:
    """Makes tables of one kind."""

    def __init__(self, kind: Kind) -> None:
        self.columns = kind.columns
        self._kind = kind
        self._columns = [each.as_json() for each in kind.columns]

    def table(
        self,
        items: Iterable[Item],
        metadata: Object,
        now: datetime,
        *,
        show: Show,
        version: str = "v1",
        include: str = "Metadata",
        headers: bool = True,
    ) -> bytes:
        """Returns the Table of these objects.

        `metadata`: the list's, or the resourceVersion of a single object; `version`: the requested one of
        meta.k8s.io; `show`: returns an object as it would be sent without a table, for `include` "Object". In
        a watch only the first table has `headers`.
        """
        objects = [(item, item.decode()) for item in items]
        if self._kind.order is not None:
            order = self._kind.order
            objects.sort(key=lambda pair: order(pair[1]))
        rows = b",".join(
            self._row(obj, now, version, include, b"" if include != "Object" else show(item))
            for item, obj in objects
        )
        opening = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": metadata,
            "columnDefinitions": self._columns if headers else None,
        }
        return encode(opening)[:-1] + b',"rows":[' + rows + b"]}"

    def bookmark(self, metadata: Object, now: datetime, version: str = "v1") -> bytes:
        """Returns the Table for a watch's bookmark: one row of an empty object."""
        empty: Object = {"metadata": metadata}
        opening = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "columnDefinitions": None,
        }
        return encode(opening)[:-1] + b',"rows":[' + self._row(empty, now, version, "Metadata", b"") + b"]}"

    def _row(self, obj: Object, now: datetime, version: str, include: str, shown: bytes) -> bytes:
        row: dict[str, Any] = {"cells": self._kind.cells(obj, now)}
        if self._kind.conditions is not None and (conditions := self._kind.conditions(obj)):
            row["conditions"] = conditions
        if include == "Object":
            body = shown
        elif include == "None":
            body = b"null"
        else:
            body = partial(obj, version)
        return encode(row)[:-1] + b',"object":' + body + b"}"


def partial(obj: Object, version: str = "v1") -> bytes:
    """Returns only an object's metadata, as PartialObjectMetadata."""
    return encode(
        {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{version}",
            "metadata": obj["metadata"],
        }
    )


def _columns(definition: Object, version: str) -> list[Object] | None:
    for each in definition["spec"]["versions"]:
        if each["name"] == version:
            columns: list[Object] | None = each.get("additionalPrinterColumns")
            return columns
    return None
