"""What a client would like to be answered with: the Accept header, and the transformations it may name.

Lives here: parsing and choosing. Not here: making the Table or the document that is chosen (tables/,
discovery.py). Called by the HTTP face for every request that is answered with an object.
Source: k8s.io/apiserver pkg/endpoints/handlers/negotiation/negotiate.go; the sorting is goautoneg's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gangsched.apiserver.status import not_acceptable

JSON = "application/json"
MEDIA_TYPES = (JSON,)
"""All that this server speaks: the real one also has YAML and protobuf."""
METADATA_GROUP = "meta.k8s.io"


class Transformation(NamedTuple):
    """What an answer is to be turned into: `Table` of `meta.k8s.io/v1` and the like."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def of_objects(wanted: Transformation) -> bool:
    """The transformations that every object and every list can take."""
    return (
        wanted.group == METADATA_GROUP
        and wanted.version in ("v1", "v1beta1")
        and wanted.kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
    )


def of_discovery(wanted: Transformation) -> bool:
    """Aggregated discovery; v2beta1 is no longer served from 1.37 on, and clients know to fall back."""
    return wanted == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")


@lru_cache(maxsize=256)
def negotiate(accept: str, allows: Callable[[Transformation], bool] = of_objects) -> Transformation | None:
    """The transformation that a client prefers; None for the object as it is, in JSON.

    Raises: StatusError (406).
    """
    if not accept:
        return None
    for media_type, parameters in _by_preference(accept):
        if media_type not in (JSON, "application/*", "*/*"):
            continue
        if parameters.get("stream", "watch") != "watch" or parameters.get("sv"):
            continue
        if not parameters.keys() & {"as", "g", "v"}:
            return None
        wanted = Transformation(parameters.get("g", ""), parameters.get("v", ""), parameters.get("as", ""))
        if allows(wanted):
            return wanted
    raise not_acceptable(MEDIA_TYPES)


def _by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The clauses by their q, the more specific ones first; what cannot be read is left out."""
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
