"""Checks the API server's version: an older one silently drops a Binding's labels. Called by app, at start.

A Binding's labels are merged into the pod from 1.35 on (feature PodTopologyLabelsAdmission, on by default).
An older server answers 201 and drops them, and a pod would be bound without its device IDs.
"""

from __future__ import annotations

import re

import anyio
import msgspec
import structlog

from gangsched.errors import ApiError, ConfigError
from gangsched.kube.client import ApiClient
from gangsched.kube.reach import is_logged
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.text import bounded

_log = structlog.get_logger(__name__)

BINDING_LABELS_SINCE = (1, 35)
_REQUEST_S = 10.0


class _Version(msgspec.Struct, rename="camel"):
    """The emulated version, if any, decides which features are on (`kube-apiserver --emulated-version`)."""

    major: str
    minor: str
    git_version: str = ""
    emulation_major: str = ""
    emulation_minor: str = ""


_decode = bounded.lenient_decoder(_Version)


async def require_binding_labels(client: ApiClient, backoff: Backoff, *, source: str = "") -> None:
    """Returns once the server is known to merge a Binding's labels; waits for one that does not answer.

    Raises: ConfigError (it is too old, or does not state its version).
    """
    found, name = await _ask(client, backoff)
    if found < BINDING_LABELS_SINCE:
        raise ConfigError(
            f"labels needs an API server of Kubernetes {_dotted(BINDING_LABELS_SINCE)} or later: this one is"
            f" {name} and drops the labels of a Binding, so pods would be bound without their device IDs;"
            " annotations works with every version",
            path="devices.allocationIn",
            source=source,
        )


async def _ask(client: ApiClient, backoff: Backoff) -> tuple[tuple[int, int], str]:
    text = ""
    while True:
        try:
            return version_of(await client.get("/version", timeout_s=_REQUEST_S))
        except ApiError as error:
            if error.code and error.code not in (401, 429, 500, 503, 504):
                raise ConfigError(
                    f"labels: the API server does not say which version it is: {error}",
                    path="devices.allocationIn",
                ) from None
            if str(error) != text and not is_logged(error):
                text = str(error)
                _log.warning("waiting for the API server to say which version it is", err=text)
            await anyio.sleep(backoff.next_s(error.retry_after_s))


def version_of(body: bytes) -> tuple[tuple[int, int], str]:
    """((major, minor), the full version string). Raises: ApiError."""
    try:
        version = _decode(body)
    except msgspec.MsgspecError as error:
        raise ApiError(f"/version is not readable: {error}", code=400) from None
    # Some providers add a plus to the minor version.
    numbers = [
        int(match[0]) if (match := re.match(r"\d{1,6}", text)) else 0
        for text in (version.emulation_major or version.major, version.emulation_minor or version.minor)
    ]
    name = version.git_version or f"{version.major}.{version.minor}"
    if version.emulation_minor and version.emulation_minor != version.minor:
        name += f", emulating {version.emulation_major}.{version.emulation_minor}"
    return (numbers[0], numbers[1]), name


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
