"""The numbers of a cluster's PriorityClasses, for manifests that name one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.model import bounded
from gangsched.model.workloads import PriorityClass

_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
_REQUEST_S = 5.0


class _PriorityClasses(msgspec.Struct):
    items: list[PriorityClass] = []


_decode = bounded.lenient_decoder(_PriorityClasses)


async def priority_classes(client: ApiClient) -> Mapping[str, int]:
    """Returns the numbers of PriorityClasses, by name. Raises: ApiError."""
    body = await client.get(_PATH, timeout_s=_REQUEST_S)
    try:
        return {one.metadata.name: one.value for one in _decode(body).items}
    except msgspec.MsgspecError as error:
        raise ApiError(f"{_PATH}: {error}") from None
