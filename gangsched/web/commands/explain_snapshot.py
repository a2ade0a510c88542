"""An explanation without a running scheduler, from a core fed with the API server's lists.

Lives here: finding the gang in a snapshot, and pods that belong to another scheduler. Not here: the snapshot
(gangsched.command.snapshot), the explanation itself (core.explaining.explain). Called by web.commands.explain
if no scheduler answers, or the scheduler has not seen the gang. Reads only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gangsched.command.snapshot import Snapshot, as_seen, configured, take_snapshot
from gangsched.core.explaining.explain import explain, finding
from gangsched.core.explaining.room import FITS
from gangsched.core.types.group import Group
from gangsched.errors import ApiError, ConfigError, ParseError
from gangsched.kube.access.flags import credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.kube.transport.http1 import segment
from gangsched.kube.watch.decode import pods
from gangsched.model.objects import Pod
from gangsched.model.owners import owners_of
from gangsched.model.pod_group import group_key
from gangsched.model.text.printable import clean
from gangsched.reading.strict import nearest, nearest_name
from gangsched.web.commands.makers import list_makers, named_object, with_makers, without_pods
from gangsched.web.pages.explanations import Page

_MAX_GROUPS = 5
_MAX_NAMED = 3


async def explain_snapshot(
    args: argparse.Namespace, name: str, why: str, *, runs: bool = False, other: str = ""
) -> list[Page]:
    """Makes pages from the API server's lists: of the gang of that name, or of the one to which the pod, or
    the pods of the controller, of that name belong. `why`: why no scheduler made them; `runs`: although one
    runs; other: another name that may be meant, and is tried first.

    Raises: ConfigError, ApiError (unreadable, or nothing has that name).
    """
    config, plugins = configured(args)
    credentials = await credentials_of(args)
    now_s = time.monotonic()
    async with ApiClient(credentials, max_body_bytes=MAX_PAGE_BYTES) as client:
        namespace = name.partition("/")[0]
        snapshot = await take_snapshot(client, config, plugins, now_s=now_s, namespace=namespace)
        served = [profile.scheduler_name for profile in config.profiles]
        for one in filter(None, (other, name)):
            if groups := _named(snapshot, one, served):
                pages = [_page(snapshot, group, now_s, why, runs=runs) for group in groups[:_MAX_GROUPS]]
                return await with_makers(client, pages)
        if problem := _not_ours(snapshot.pods, name, served):
            raise ApiError(problem, code=404)
        raise ApiError(await _nothing(client, snapshot, name, why), code=404)


async def gang_of(args: argparse.Namespace, name: str) -> str:
    """Returns the gang that a pod's labels and annotations name; "" where there is no such pod to read."""
    namespace, _, last = name.partition("/")
    try:
        async with ApiClient(await credentials_of(args)) as client:
            body = await client.get(f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(last)}")
        return _gang_of(pods().decode_object(body))
    except (ApiError, ConfigError, ParseError, msgspec.MsgspecError, RecursionError):
        return ""


def _named(snapshot: Snapshot, name: str, served: Sequence[str]) -> list[Group]:
    """Returns the groups that a name means: gangs, else those of a pod, else of a controller."""
    shared = snapshot.scheduler.shared
    if groups := [group for key, group in shared.groups.items() if str(key) == name]:
        return groups
    pods = [pod for pod in snapshot.pods if pod.spec.scheduler_name in served]
    found = [pod for pod in pods if pod.key == name] or [pod for pod in pods if name in _makers(pod)]
    infos = (shared.cache.pods.get(pod.metadata.uid) for pod in found)
    return list(dict.fromkeys(info.group for info in infos if info is not None and info.group is not None))


def _makers(pod: Pod) -> set[str]:
    """Returns the full names of the objects that have made it."""
    meta = pod.metadata
    named = {one.name for one in meta.owner_references or () if one.controller}
    named.update(one.name for one in owners_of(pod))
    return {f"{meta.namespace}/{one}" for one in named}


async def _nothing(client: ApiClient, snapshot: Snapshot, name: str, why: str) -> str:
    """Explains that nothing has that name: what would make its pods and cannot, or what may be meant."""
    namespace, _, last = name.partition("/")
    makers = await list_makers(client, namespace, last)
    meant = [one for one in makers if one.is_meant]
    if meant:
        return await without_pods(client, namespace, meant[0])
    if found := await named_object(client, namespace, last):
        return f"{found} exists, and no pod names it: correct the name that its pods give, or create them"
    gangs = {str(key): group for key, group in snapshot.scheduler.shared.groups.items()}
    own = [one.partition("/")[2] for one in gangs if one.startswith(f"{namespace}/")]
    meant_name = nearest_name(last, [*own, *(maker.name for maker in makers)])
    near = f"; did you mean {namespace}/{meant_name}?" if meant_name else ""
    there = [one.partition("/")[0] for one in gangs if one.partition("/")[2] == last]
    if not near and there:
        shown = ", ".join(sorted(there)[:_MAX_NAMED])
        near = f"; there is one in namespace {shown}: gangsched explain -n {sorted(there)[0]} {last}"
    return f"there is no gang, no pod and no controller {name}{near} ({why})"


def _page(snapshot: Snapshot, group: Group, now_s: float, why: str, *, runs: bool) -> Page:
    found = finding(snapshot.scheduler, group, now_s)
    explanation = explain(snapshot.scheduler, group, now_s, found=found)
    if not explanation.told:
        explanation = replace(explanation, told=clean(condition_of(group)))
    if explanation.position and found.waits_for_turn:
        explanation = replace(explanation, answer=f"{FITS}, and no scheduler has placed it.")
    explanation = as_seen(snapshot, group, explanation)
    if explanation.position:
        explanation = replace(explanation, then="")
    if explanation.position and not runs:
        served_by = repr(explanation.scheduler)
        start = f"Start a scheduler that serves {served_by}, or see why none answers: gangsched doctor."
        explanation = replace(explanation, cures=(start, *explanation.cures))
    return Page(leads=True, explanation=explanation, moves=(), trace="", instead=clean(why))


def condition_of(group: Group) -> str:
    """Returns the last message that a scheduler wrote on a pod of the gang, however old."""
    for info in group.members.values():
        for condition in info.pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.message
    return ""


def _not_ours(pods: Sequence[Pod], name: str, served: Sequence[str]) -> str:
    """Explains which scheduler the pods of that name belong to; "" if there are none."""
    found = [pod for pod in pods if name in (pod.key, _gang_of(pod)) or name in _makers(pod)]
    if not found:
        return ""
    named = sorted({pod.spec.scheduler_name for pod in found})
    meant = next(filter(None, (nearest(one, served) for one in named)), "")
    names = ", ".join(map(repr, named))
    return (
        f"the pods of {name} name the scheduler {names}{meant or '.'} This configuration serves"
        f" {', '.join(served)}: correct spec.schedulerName where the pods are made, or give the configuration"
        " that serves it (--config)"
    )


def _gang_of(pod: Pod) -> str:
    try:
        return str(group_key(pod))
    except ParseError:
        return pod.key


def can_stand_in(error: ApiError) -> bool:
    """Whether a snapshot may answer instead: no answer came, none from a scheduler, or none for this user.

    The snapshot uses what the API server lets the user list, so it reveals nothing that the user may not see.
    """
    return error.code in (0, 401, 403, 502, 503, 504)
