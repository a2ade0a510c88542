"""A snapshot: the scheduler's own core, fed once with the API server's lists. Sends and decides nothing.

Lives here: listing every kind that the core follows, page by page. Not here: watching (kube.watch), and the
commands that use it because they need no running scheduler. The core's effects are dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from gangsched.config import SchedulerConfig
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ApiError
from gangsched.extension.loading import KnownPlugins
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import Pages
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.model.events import Event, KindMissing, KindSynced, NodeAdded, ObjectRefused, PodAdded
from gangsched.model.objects import Node, Pod
from gangsched.plugins import build_profiles

_REQUEST_S = 30.0
_ALWAYS = ("pods", "nodes")


class Snapshot(NamedTuple):
    """unread: kinds that could not be listed, and why; the core treats them as not served. refused:
    unreadable objects.
    """

    scheduler: Scheduler
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    refused: tuple[ObjectRefused, ...]
    unread: tuple[str, ...]


async def take_snapshot(
    client: ApiClient, config: SchedulerConfig, plugins: KnownPlugins, *, now_s: float
) -> Snapshot:
    """Returns the core with the current state. Raises: ApiError, if pods or nodes cannot be listed."""
    profiles = build_profiles(config, plugins.factories, with_hooks=False)
    scheduler = Scheduler(profiles, config.settings)
    unread: list[str] = []
    nodes: list[Node] = []
    pods: list[Pod] = []
    refused: list[ObjectRefused] = []
    kinds = all_kinds(scheduler.watches)
    while kinds:
        for kind in kinds:
            events = await _listed(client, kind, unread)
            nodes += [event.node for event in events if isinstance(event, NodeAdded)]
            pods += [event.pod for event in events if isinstance(event, PodAdded)]
            refused += [event for event in events if isinstance(event, ObjectRefused)]
            scheduler.handle(events, now_s)
        kinds = tuple(followed(name) for name in scheduler.newly_watched())
    return Snapshot(scheduler, tuple(nodes), tuple(pods), tuple(refused), tuple(unread))


async def _listed(client: ApiClient, kind: Kind, unread: list[str]) -> list[Event]:
    for version in kind.versions or ("v1",):
        try:
            return [*await _pages(client, kind, version), KindSynced(kind.name)]
        except ApiError as error:
            if error.code != 404 and (error.code != 403 or kind.name in _ALWAYS):
                raise
            if error.code == 403:
                unread.append(f"{kind.name}: {error}")
                break
    return [KindMissing(kind.name)]


async def _pages(client: ApiClient, kind: Kind, version: str) -> list[Event]:
    events: list[Event] = []
    query = {**kind.selector, "limit": str(kind.page_limit)}
    pages = Pages(kind.path(version))
    while True:
        body = await client.get(kind.path(version), query, timeout_s=_REQUEST_S)
        items, refused, meta = kind.read_page(body, version)
        events += [kind.added(item, kind.api_version(version)) for item in items]
        events += refused
        query["continue"] = pages.after(meta.continue_, n_items=len(items) + len(refused), n_bytes=len(body))
        if not query["continue"]:
            return events
