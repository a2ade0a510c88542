"""What manifests name and the cluster has: classes, runtimes of TrainJobs, templates of claims, limits.

Lives here: reading them from the API server. What the files themselves hold of these is added by manifests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.client import ApiClient
from gangsched.kube.transport.http1 import segment
from gangsched.model import workloads
from gangsched.model.resource_claims.objects import ResourceClaimSpec
from gangsched.model.text import bounded
from gangsched.whatif.admission import NO_LIMITS, QUOTA, RANGE, Limits
from gangsched.whatif.claims import Templates, template_of
from gangsched.whatif.makers import trainer
from gangsched.whatif.makers.templates import Json

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_RUNTIMES = f"/apis/{trainer.GROUP}/v1alpha1"
_CLAIM_TEMPLATES = "/apis/resource.k8s.io/v1"
_REQUEST_S = 5.0


class PriorityClass(workloads.PriorityClass):
    """With all that the API server copies to a pod."""

    preemption_policy: str | None = None


Classes = Mapping[str, PriorityClass]
"""By name."""


class Cluster(NamedTuple):
    """Of the cluster, as far as it may be read."""

    classes: Classes = MappingProxyType({})
    runtimes: trainer.Runtimes = MappingProxyType({})
    limits: Limits = NO_LIMITS
    claim_templates: Templates = MappingProxyType({})


class UnknownClasses(dict[str, PriorityClass]):
    """Classes that may not be listed: every name may be one of them, with priority 0."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> PriorityClass:
        return read_class({"metadata": {"name": name}})


class _PriorityClasses(msgspec.Struct):
    items: list[PriorityClass] = []


class _Objects(msgspec.Struct):
    items: list[dict[str, Any]] = []


_decode_list = msgspec.json.Decoder(_Objects).decode
_decode = bounded.lenient_decoder(_PriorityClasses)


def read_class(document: object) -> PriorityClass:
    """Raises: msgspec.MsgspecError."""
    return msgspec.convert(document, PriorityClass)


async def priority_classes(client: ApiClient) -> Classes:
    """Raises: ApiError."""
    body = await client.get(_CLASSES, timeout_s=_REQUEST_S)
    try:
        return {one.metadata.name: one for one in _decode(body).items}
    except msgspec.MsgspecError as error:
        raise ApiError(f"{_CLASSES}: {error}") from None


async def runtime(client: ApiClient, key: tuple[str, str, str]) -> Json | None:
    """Returns the runtime of this kind, namespace and name; None if there is none. Raises: ApiError."""
    kind, namespace, name = key
    where = f"/namespaces/{segment(namespace)}" if namespace else ""
    return await _object(client, f"{_RUNTIMES}{where}/{kind.lower()}s/{segment(name)}")


async def claim_template(client: ApiClient, namespace: str, name: str) -> ResourceClaimSpec | None:
    """Returns what claims of the template ask for; None if there is none. Raises: ApiError."""
    path = f"{_CLAIM_TEMPLATES}/namespaces/{segment(namespace)}/resourceclaimtemplates/{segment(name)}"
    found = await _object(client, path)
    try:
        return None if found is None else template_of(found)
    except ConfigError as error:
        raise ApiError(f"{path}: {error}") from None


async def _object(client: ApiClient, path: str) -> Json | None:
    """Returns the object; None if there is none. Raises: ApiError."""
    try:
        body = await client.get(path, timeout_s=_REQUEST_S)
        found = msgspec.json.decode(body)
    except ApiError as error:
        if error.code == 404:
            return None
        raise
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ApiError(f"{path}: {str(error)[:200]}") from None
    return found if isinstance(found, dict) else None


async def limits_of(client: ApiClient, namespace: str) -> Limits:
    """Returns the LimitRanges and ResourceQuotas of a namespace. Raises: ApiError."""
    found: dict[str, dict[tuple[str, str], Json]] = {RANGE: {}, QUOTA: {}}
    for kind, of_kind in found.items():
        path = f"/api/v1/namespaces/{segment(namespace)}/{kind.lower()}s"
        body = await client.get(path, timeout_s=_REQUEST_S)
        try:
            items = _decode_list(body).items
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ApiError(f"{path}: {str(error)[:200]}") from None
        of_kind |= {(namespace, str((one.get("metadata") or {}).get("name"))): one for one in items}
    return Limits(found[RANGE], found[QUOTA])
