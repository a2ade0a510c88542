"""Content negotiation: the Accept header, and the transformations that it may name.

Lives here: parsing and choosing. Not here: making the chosen Table or document (tables/,
lab.apiserver.documents.discovery). Called by the HTTP face for every request that is answered with an object.
Source: k8s.io/apiserver pkg/endpoints/handlers/negotiation/negotiate.go; the sorting is goautoneg's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gangsched.lab.apiserver.status import not_acceptable

JSON = "application/json"
YAML = "application/yaml"
MEDIA_TYPES = (JSON, YAML)
"""The media types of this server; the real one has protobuf too."""


class Shape(NamedTuple):
    """The form of an answer, such as `Table` of `meta.k8s.io` in `v1`."""

    group: str
    version: str
    kind: str


class Media(NamedTuple):
    """How to write an answer; without a shape, the object or document as it is."""

    type: str = JSON
    shape: Shape | None = None


def of_objects(wanted: Shape) -> bool:
    """Whether every object and list can take this shape."""
    return (
        wanted.group == "meta.k8s.io"
        and wanted.version in ("v1", "v1beta1")
        and wanted.kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
    )


def of_discovery(wanted: Shape) -> bool:
    """Whether it is aggregated discovery; from 1.37 on v2beta1 is not served, and clients fall back."""
    return wanted == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")


@lru_cache(maxsize=256)
def negotiate(accept: str, allows: Callable[[Shape], bool] = of_objects) -> Media:
    """Returns the client's choice among the available ones. Raises: StatusError (406)."""
    if not accept:
        return Media()
    for media_type, parameters in _by_preference(accept):
        of_type = JSON if media_type in ("application/*", "*/*") else media_type
        if of_type not in MEDIA_TYPES:
            continue
        if parameters.get("stream", "watch") != "watch" or parameters.get("sv"):
            continue
        if not parameters.keys() & {"as", "g", "v"}:
            return Media(of_type)
        wanted = Shape(parameters.get("g", ""), parameters.get("v", ""), parameters.get("as", ""))
        if allows(wanted):
            return Media(of_type, wanted)
    raise not_acceptable(MEDIA_TYPES)


def _by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the clauses by q, more specific ones first, without unparsable ones."""
    clauses = []
    for part in accept.split(","):
        media_type, *rest = (each.strip(" ") for each in part.split(";"))
        media_type = "*/*" if media_type == "*" else media_type
        if media_type.count("/") != 1:
            continue
        pairs = (each.split("=") for each in rest)
        parameters = {pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]}
        quality = _quality(parameters.pop("q", "1"))
        clauses.append((-quality, media_type.count("*"), media_type, parameters))
    clauses.sort(key=lambda clause: clause[:2])
    return [(media_type, parameters) for _, _, media_type, parameters in clauses]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
