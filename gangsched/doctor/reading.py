"""Reads an installation from the API server, once: only lists, gets and reviews are sent.

Lives here: the requests, and their answers as values. Not here: judging them (doctor.checks). What may not be
read is left out, with the reason, which each check reports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, TypeVar

import aiohttp
import anyio
import msgspec

from gangsched.doctor.rights import OPTIONAL, Right
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import Pages
from gangsched.model.text.bounded import lenient_decoder

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_RESOURCE = "/apis/resource.k8s.io/v1"
_REQUEST_S = 30.0
_PAGE = 500
_MAX_ASKED_AT_ONCE = 8
T = TypeVar("T")
# As the API server writes it; without a time zone it is no moment, and can be compared with none.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Wire(msgspec.Struct, gc=False, rename="camel"):
    """JSON of the API server; other fields are not read."""


class Written(Wire):
    """time: when the API server took the last write of this writer, by its own clock."""

    time: Moment | None = None


class Meta(Wire):
    name: str = ""
    namespace: str = ""
    managed_fields: list[Written] | None = None


class LeaseSpec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Moment | None = None


class Lease(Wire):
    metadata: Meta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class MatchCondition(Wire):
    expression: str = ""


class PolicySpec(Wire):
    match_conditions: list[MatchCondition] | None = None


class Policy(Wire):
    metadata: Meta
    spec: PolicySpec = msgspec.field(default_factory=PolicySpec)


class PolicyBindingSpec(Wire):
    policy_name: str = ""
    validation_actions: list[str] | None = None


class PolicyBinding(Wire):
    metadata: Meta
    spec: PolicyBindingSpec = msgspec.field(default_factory=PolicyBindingSpec)


class Named(Wire):
    metadata: Meta


class Replicas(Wire):
    replicas: int = 0
    ready_replicas: int = 0


class DeploymentSpec(Wire):
    replicas: int | None = None


class Deployment(Wire):
    metadata: Meta
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: Replicas = msgspec.field(default_factory=Replicas)


class DeviceClassSpec(Wire):
    extended_resource_name: str | None = None


class DeviceClass(Wire):
    metadata: Meta
    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)


class SliceSpec(Wire):
    driver: str = ""
    node_name: str | None = None


class ResourceSlice(Wire):
    """Devices that a driver of Dynamic Resource Allocation offers; node_name: None for several nodes."""

    metadata: Meta
    spec: SliceSpec = msgspec.field(default_factory=SliceSpec)


class _ListMeta(Wire):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Wire):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Allowed(Wire):
    allowed: bool = False


class _Review(Wire):
    status: _Allowed = msgspec.field(default_factory=_Allowed)


class _Version(Wire):
    git_version: str = ""
    major: str = ""
    minor: str = ""


class Facts(msgspec.Struct):
    """An installation as the API server has it; None: could not be read, `unread` says why, by subject.

    now: by the API server's clock where that is known; ahead_s: how far this one is ahead, at least.
    rights: what the scheduler's account needs, and what grants it; optional: what it may use, and the setting
    that is required without. refused: what it lacks of both.
    """

    account: tuple[str, str]
    now: datetime
    ahead_s: float | None = None
    version: str = ""
    minor: tuple[int, int] | None = None
    rights: Mapping[Right, str] = {}
    optional: Mapping[Right, str] = msgspec.field(default_factory=lambda: OPTIONAL)
    refused: set[Right] | None = None
    policies: list[Policy] | None = None
    policy_bindings: list[PolicyBinding] | None = None
    flow_schemas: list[Named] | None = None
    leases: list[Lease] | None = None
    deployments: list[Deployment] | None = None
    device_classes: list[DeviceClass] | None = None
    slices: list[ResourceSlice] | None = None
    unread: dict[str, str] = {}

    @property
    def username(self) -> str:
        """The scheduler's account, as the API server names its user."""
        namespace, name = self.account
        return f"system:serviceaccount:{namespace}:{name}"


_decode_page = lenient_decoder(_Page)
_decode_review = lenient_decoder(_Review)
_decode_version = lenient_decoder(_Version)


async def read_facts(
    client: ApiClient, account: tuple[str, str], rights: Mapping[Right, str], optional: Mapping[Right, str]
) -> Facts:
    """Reads everything but nodes, pods and groups; `rights` and `optional` as of Facts.

    Raises: ApiError if the API server does not answer at all.
    """
    facts = Facts(account, datetime.now(UTC), rights=rights, optional=optional)
    await _read_version(client, facts)
    await _read_clock(client, facts)
    for name, path, kind in (
        ("policies", f"{_ADMISSION}/validatingadmissionpolicies", Policy),
        ("policy_bindings", f"{_ADMISSION}/validatingadmissionpolicybindings", PolicyBinding),
        ("flow_schemas", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", Named),
        ("leases", "/apis/coordination.k8s.io/v1/leases", Lease),
        ("deployments", f"/apis/apps/v1/namespaces/{account[0]}/deployments", Deployment),
        ("device_classes", f"{_RESOURCE}/deviceclasses", DeviceClass),
        ("slices", f"{_RESOURCE}/resourceslices", ResourceSlice),
    ):
        try:
            setattr(facts, name, await _all(client, path, kind))
        except ApiError as error:
            facts.unread[name] = str(error)
    try:
        facts.refused = await _refused(client, account, (*rights, *optional))
    except ApiError as error:
        facts.unread["refused"] = str(error)
    return facts


async def _read_version(client: ApiClient, facts: Facts) -> None:
    """Reads the server's version. Raises: ApiError."""
    try:
        version = _decode_version(await client.get("/version", timeout_s=_REQUEST_S))
        facts.version = version.git_version
        facts.minor = int(version.major), int(version.minor.rstrip("+"))
    except (msgspec.MsgspecError, ValueError):
        facts.unread["minor"] = "/version does not say which version it is"


async def _read_clock(client: ApiClient, facts: Facts) -> None:
    """Reads the API server's clock from an answer's Date, which our own client does not keep; in whole
    seconds."""
    credentials = client.credentials
    headers = await credentials.headers()
    timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
    try:
        began_s = time.time()
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(
                f"{credentials.server}/version",
                ssl=credentials.ssl_context or True,
                server_hostname=credentials.server_hostname,
                allow_redirects=False,
            ) as answer,
        ):
            ended_s = time.time()
            date = parsedate_to_datetime(answer.headers["Date"])
        # The server wrote its Date, whose seconds are cut off, at some moment between the two.
        date_s = date.timestamp()
        ahead_s = max(began_s - (date_s + 1.0), 0.0) + min(ended_s - date_s, 0.0)
        facts.now = datetime.now(UTC) - timedelta(seconds=ahead_s)
    except (aiohttp.ClientError, OSError, KeyError, ValueError, TypeError, OverflowError) as error:
        facts.unread["ahead_s"] = " ".join(str(error).split()) or type(error).__name__
        return
    facts.ahead_s = ahead_s


async def _all(client: ApiClient, path: str, kind: type[T]) -> list[T]:
    """All objects of a list; one that cannot be read is left out. Raises: ApiError."""
    found: list[T] = []
    query = {"limit": str(_PAGE)}
    pages = Pages(path)
    while True:
        body = await client.get(path, query, timeout_s=_REQUEST_S)
        try:
            page = _decode_page(body)
        except msgspec.MsgspecError as error:
            raise ApiError(f"{path} is not a list: {error}") from None
        for raw in page.items or ():
            try:
                found.append(msgspec.json.decode(raw, type=kind))
            except (msgspec.MsgspecError, RecursionError):
                continue
        query["continue"] = pages.after(
            page.metadata.continue_, n_items=len(page.items or ()), n_bytes=len(body)
        )
        if not query["continue"]:
            return found


async def _refused(client: ApiClient, account: tuple[str, str], rights: Iterable[Right]) -> set[Right]:
    """Returns the rights that the account lacks, by a review for each. Raises: ApiError."""
    refused: set[Right] = set()
    failed: list[ApiError] = []
    limit = anyio.Semaphore(_MAX_ASKED_AT_ONCE)

    async def ask(right: Right) -> None:
        async with limit:
            try:
                if not failed and not await _is_allowed(client, account, right):
                    refused.add(right)
            except ApiError as error:
                failed.append(error)

    async with anyio.create_task_group() as group:
        for right in rights:
            group.start_soon(ask, right)
    if failed:
        raise failed[0]
    return refused


async def _is_allowed(client: ApiClient, account: tuple[str, str], right: Right) -> bool:
    namespace, name = account
    resource, _, subresource = right.resource.partition("/")
    attributes: Mapping[str, str] = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    spec = {
        "user": f"system:serviceaccount:{namespace}:{name}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
        "resourceAttributes": {key: value for key, value in attributes.items() if value},
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    try:
        answer = await client.post(REVIEWS, msgspec.json.encode(body), timeout_s=_REQUEST_S)
        return _decode_review(answer).status.allowed
    except msgspec.MsgspecError as error:
        raise ApiError(f"a SubjectAccessReview is not readable: {error}") from None
