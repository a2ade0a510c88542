"""Objects that make pods, read by a command with its user's rights: for gangs that have no pods, or too few.

Lives here: finding such objects by name, their sizes, and the newest refusal that their controllers got. Not
here: the sentences about a gang's numbers (core.explaining.owed). Called by web.commands.explain and
explain_snapshot. What may not be listed is left out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gangsched.core.explaining.owed import NO_MORE, too_few
from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.effects.refusals_lane import FRESH_S, FailedCreate
from gangsched.kube.transport.http1 import segment
from gangsched.model.owners import READ_KINDS, Owner, OwnerKind
from gangsched.model.pod_group import OBJECT_KINDS
from gangsched.model.text import bounded
from gangsched.model.text.printable import clean
from gangsched.model.text.server_refusals import missing_class
from gangsched.reading.strict import nearest
from gangsched.web.pages.explanations import Page
from gangsched.whatif.cluster import priority_classes

_REQUEST_S = 10.0
# One page of each list: a name that is not on it is looked for no further.
_LIMIT = "500"
_MAX_CHARS = 400


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Spec(msgspec.Struct):
    suspend: bool | None = None


class _Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Events(msgspec.Struct):
    items: list[FailedCreate] | None = None


class Maker(NamedTuple):
    """One object. is_meant: its name or the gang of its template is what was asked for. over: the condition
    that ended it, "" while it goes on."""

    kind: str
    name: str
    is_meant: bool
    is_suspended: bool
    over: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


_decode_list = bounded.lenient_decoder(_List)
_decode_events = bounded.lenient_decoder(_Events)
_OVER = ("Complete", "Completed", "Failed")


async def list_makers(client: ApiClient, namespace: str, name: str) -> list[Maker]:
    """Returns the objects of a namespace that make pods, the meant ones first."""
    found: list[Maker] = []
    for kind in READ_KINDS.values():
        for raw in await _items(client, kind, namespace):
            try:
                one = msgspec.json.decode(raw, type=_Object)
            except (msgspec.MsgspecError, RecursionError):
                continue
            # As the API server writes a label, whichever dialect's.
            names_gang = f'pod-group":"{name}"'.encode() in bytes(raw)
            over = next(
                (
                    f"{at.type}{f' ({at.message})' if at.message else ''}"
                    for at in one.status.conditions or ()
                    if at.status == "True" and at.type in _OVER
                ),
                "",
            )
            is_meant = one.metadata.name == name or names_gang
            found.append(Maker(kind.kind, one.metadata.name, is_meant, bool(one.spec.suspend), over))
    return sorted(found, key=lambda maker: not maker.is_meant)


async def _items(client: ApiClient, kind: OwnerKind, namespace: str) -> Sequence[msgspec.Raw]:
    for version in kind.versions:
        path = f"/apis/{kind.group}/{version}/namespaces/{segment(namespace)}/{kind.resource}"
        try:
            body = await client.get(path, {"limit": _LIMIT}, timeout_s=_REQUEST_S)
            return _decode_list(body).items or ()
        except (ApiError, msgspec.MsgspecError):
            continue
    return ()


async def without_pods(client: ApiClient, namespace: str, maker: Maker) -> str:
    """Explains why an object that makes pods has none."""
    if maker.over:
        why = f"it is over: {clean(maker.over)[:_MAX_CHARS].rstrip('. ')}"
    elif maker.is_suspended:
        why = "it is suspended (spec.suspend), and makes none until it is resumed"
    else:
        why = await _refusal(client, namespace, maker.name)
    return f"{maker.kind} {namespace}/{maker.name} has no pods: {why}"


async def _refusal(client: ApiClient, namespace: str, name: str) -> str:
    """Returns the newest FailedCreate of the object, or of those that it makes."""
    see = f"see its Events: kubectl -n {namespace} get events --field-selector reason=FailedCreate"
    path = f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"
    query = {"fieldSelector": "reason=FailedCreate", "limit": _LIMIT}
    try:
        events = _decode_events(await client.get(path, query, timeout_s=_REQUEST_S)).items or []
    except (ApiError, msgspec.MsgspecError) as error:
        return f"its Events cannot be read ({clean(str(error))}); {see}"
    own = [one for one in events if one.regarding.name == name or one.regarding.name.startswith(f"{name}-")]
    newest = max(own, key=lambda one: one.last, default=None)
    if newest is None or not newest.note or newest.last < time.time() - FRESH_S:
        return f"no Event says that creating them has failed; {see}"
    message = clean(newest.note)[:_MAX_CHARS].rstrip(". ")
    meant = await _meant(client, message)
    return f"creating them failed: {message}{meant}. The controller tries again by itself"


async def _meant(client: ApiClient, message: str) -> str:
    """Returns `; did you mean x?` for a misspelt PriorityClass."""
    if not (wanted := missing_class(message)):
        return ""
    try:
        return nearest(wanted, await priority_classes(client)).rstrip("?")
    except ApiError:
        return ""


async def named_object(client: ApiClient, namespace: str, name: str) -> str:
    """Returns which PodGroup has that name, as "PodGroup a/b (scheduling.x-k8s.io)"; "" if none is found."""
    for _, kind in OBJECT_KINDS.values():
        for version in kind.versions:
            path = (
                f"/apis/{kind.api_group}/{version}/namespaces/{segment(namespace)}/podgroups/{segment(name)}"
            )
            try:
                await client.get(path, timeout_s=_REQUEST_S)
            except ApiError:
                continue
            return f"PodGroup {namespace}/{name} ({kind.api_group})"
    return ""


async def with_makers(client: ApiClient, pages: Sequence[Page]) -> list[Page]:
    """Returns the pages, with what makes too few pods named instead of its Events."""
    return [await _with_makers(client, page) for page in pages]


async def _with_makers(client: ApiClient, page: Page) -> Page:
    explanation = page.explanation
    owed = explanation.owed
    if owed is None or not owed.makers:
        return page
    namespace = explanation.group.partition("/")[0]
    owners: list[Owner] = []
    for named in owed.makers:
        kind, _, name = named.partition("/")
        owner = await _read(client, READ_KINDS.get(kind), namespace, name)
        if owner is None:
            return page
        owners.append(owner)
    cure = too_few(owed.needed, owed.stated_by, owners)
    if not cure:
        return page
    cures = [clean(cure), *(one for one in explanation.cures if one != owed.cure)]
    answer = f"{explanation.answer} {NO_MORE}"
    return msgspec.structs.replace(
        page, explanation=msgspec.structs.replace(explanation, answer=answer, cures=tuple(cures))
    )


async def _read(client: ApiClient, kind: OwnerKind | None, namespace: str, name: str) -> Owner | None:
    """Returns the object as an owner; None: it cannot be read."""
    if kind is None:
        return None
    for version in kind.versions:
        path = f"/apis/{kind.group}/{version}/namespaces/{segment(namespace)}/{kind.resource}/{segment(name)}"
        try:
            item: Any = msgspec.json.decode(await client.get(path, timeout_s=_REQUEST_S), type=kind.wire)
            return kind.read(item)
        except (ApiError, msgspec.MsgspecError, RecursionError):
            continue
    return None
