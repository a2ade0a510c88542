"""An explanation without a running scheduler, from a core fed with the API server's lists.

Lives here: finding the gang in a snapshot, and pods that belong to another scheduler. Not here: the snapshot
(gangsched.snapshot), the explanation itself (core.explain). Called by explain_command if no scheduler
answers, or the scheduler has not seen the gang. Reads only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from msgspec.structs import replace

from gangsched.config.strict import nearest
from gangsched.core.explain import explain
from gangsched.core.explain_room import FITS
from gangsched.core.state.reporter import clean
from gangsched.core.types.group import Group
from gangsched.errors import ApiError, ParseError
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.source import ConfigSource
from gangsched.kube.client import ApiClient
from gangsched.kube.credentials import load_credentials
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.model.objects import Pod
from gangsched.model.pod_group import group_key
from gangsched.snapshot import Snapshot, take_snapshot
from gangsched.web.explanations import Page

_MAX_GROUPS = 5


def add_flags(parser: argparse.ArgumentParser, used: str = "used where no scheduler answers") -> None:
    """Adds flags for the configuration applied to the snapshot. used: when, or for what."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        default="",
        help=f"the scheduler's configuration, {used}; default: the defaults",
    )
    parser.add_argument(
        "--plugin", metavar="FILE", action="append", default=[], help="a plugin that the configuration names"
    )


async def explain_snapshot(
    args: argparse.Namespace, name: str, why: str, *, runs: bool = False
) -> list[Page]:
    """Makes pages from the API server's lists. `why`: why no scheduler made them; `runs`: although one runs.

    Raises: ConfigError, ApiError (unreadable, or neither a gang nor a pod of that name).
    """
    plugins = KnownPlugins(args.plugin)
    config = ConfigSource(args.config, plugins).read()
    credentials = await load_credentials(kubeconfig=args.kubeconfig, context=args.context)
    now_s = time.monotonic()
    async with ApiClient(credentials, max_body_bytes=MAX_PAGE_BYTES) as client:
        snapshot = await take_snapshot(client, config, plugins, now_s=now_s)
    groups = [g for key, g in snapshot.scheduler.shared.groups.items() if str(key) == name][:_MAX_GROUPS]
    if not groups:
        served = [profile.scheduler_name for profile in config.profiles]
        raise ApiError(_not_ours(snapshot.pods, name, served, why), code=404)
    return [_page(snapshot, group, now_s, why, runs=runs) for group in groups]


def _page(snapshot: Snapshot, group: Group, now_s: float, why: str, *, runs: bool) -> Page:
    told = explain(snapshot.scheduler, group, now_s)
    if not told.told:
        told = replace(told, told=clean(condition_of(group)))
    if told.position:
        told = replace(told, then="")
        if told.answer.startswith(FITS):
            told = replace(told, answer=f"{FITS}, and no scheduler has placed it.")
    if told.position and not runs:
        start = (
            f"Start a scheduler that serves {told.scheduler!r}, or see why none answers: gangsched doctor."
        )
        told = replace(told, cures=(start, *told.cures))
    return Page(leads=True, explanation=told, moves=(), trace="", instead=clean(why))


def condition_of(group: Group) -> str:
    """Returns the last message that a scheduler wrote on a pod of the gang, however old."""
    for info in group.members.values():
        for condition in info.pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.message
    return ""


def _not_ours(pods: Sequence[Pod], name: str, served: Sequence[str], why: str) -> str:
    """Explains which scheduler the pods of that name belong to."""
    found = [(pod, gang) for pod in pods if name in (pod.key, gang := _gang_of(pod))]
    if not found:
        return f"there is no gang and no pod {name} ({why})"
    own = [gang for pod, gang in found if pod.spec.scheduler_name in served]
    if own:
        return f"{name} is a member of the gang {own[0]}: gangsched explain {own[0]}"
    named = sorted({pod.spec.scheduler_name for pod, _ in found})
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
