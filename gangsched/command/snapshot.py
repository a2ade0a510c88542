"""A snapshot: the scheduler's own core, fed once with the API server's lists. Sends and decides nothing.

Lives here: listing every kind that the core follows, page by page. Not here: watching (kube.watch), and the
commands that use it because they need no running scheduler. The core's effects are dropped.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import msgspec

from gangsched.command.lists import pages_of
from gangsched.config import SchedulerConfig
from gangsched.core.explaining.explain import Explanation
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState
from gangsched.errors import ApiError
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.source import ConfigSource
from gangsched.kube.client import ApiClient
from gangsched.kube.transport.http1 import segment
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.model.events import Event, KindMissing, KindSynced, NodeAdded, ObjectRefused, PodAdded
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import DEVICE_CLASSES
from gangsched.plugins import build_profiles

_ALWAYS = ("pods", "nodes")
# Why groups in these states wait does not depend on nodes.
_WITHOUT_ROOM = (GroupState.GATED, GroupState.GATHERING)


def add_flags(parser: argparse.ArgumentParser, used: str = "", default: str = "the defaults") -> None:
    """Adds flags for the configuration applied to a snapshot. used: when, or for what."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        default="",
        help=f"the scheduler's configuration{used and ', '}{used}; default: {default}",
    )
    parser.add_argument(
        "--plugin", metavar="FILE", action="append", default=[], help="a plugin that the configuration names"
    )


def configured(args: argparse.Namespace) -> tuple[SchedulerConfig, KnownPlugins]:
    """Reads the configuration that the flags name. Raises: ConfigError."""
    plugins = KnownPlugins(args.plugin)
    return ConfigSource(args.config, plugins).read(), plugins


class Snapshot(NamedTuple):
    """unread: kinds that could not be listed, and why; the core treats them as not served. hidden: those of
    `pods` and `nodes` that are not all there, for want of rights: where there is room is not known then.
    refused: unreadable objects.
    """

    scheduler: Scheduler
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    refused: tuple[ObjectRefused, ...]
    unread: tuple[str, ...]
    hidden: tuple[str, ...] = ()


async def take_snapshot(
    client: ApiClient,
    config: SchedulerConfig,
    plugins: KnownPlugins,
    *,
    now_s: float,
    namespace: str = "",
    is_enough: bool = False,
) -> Snapshot:
    """Returns the core with the current state.

    namespace: what cannot be listed in the whole cluster, for want of rights, is listed there, and nodes may
    be left out; with is_enough it is asked for there alone. Raises: ApiError, if pods cannot be listed, or
    nodes without a namespace.
    """
    profiles = build_profiles(config, plugins.factories, with_hooks=False)
    scheduler = Scheduler(profiles, config.settings)
    lists = _Lists(client, namespace, is_enough)
    nodes: list[Node] = []
    pods: list[Pod] = []
    refused: list[ObjectRefused] = []
    kinds = all_kinds((*scheduler.watches, DEVICE_CLASSES))
    while kinds:
        for kind in kinds:
            events = await lists.read(kind)
            nodes += [event.node for event in events if isinstance(event, NodeAdded)]
            pods += [event.pod for event in events if isinstance(event, PodAdded)]
            refused += [event for event in events if isinstance(event, ObjectRefused)]
            scheduler.handle(events, now_s)
        kinds = tuple(followed(name) for name in scheduler.newly_watched())
    hidden = tuple(name for name in _ALWAYS if name in lists.hidden)
    return Snapshot(scheduler, tuple(nodes), tuple(pods), tuple(refused), tuple(lists.unread), hidden)


def as_seen(
    snapshot: Snapshot, group: Group, explanation: Explanation, *, on_trial: bool = False
) -> Explanation:
    """Returns the explanation without what follows from rooms that this user may not see.

    on_trial: a start that is found follows from them, too.
    """
    waits = bool(explanation.position) and not group.problem and group.state not in _WITHOUT_ROOM
    if not snapshot.hidden or not (waits or (on_trial and not explanation.position)):
        return explanation
    hidden = " and ".join(snapshot.hidden)
    answer = (
        f"It is complete and waits. Whether there is room for it is not known: {hidden} of the whole cluster"
        " may not be listed with these rights."
    )
    return msgspec.structs.replace(
        explanation, answer=answer, cures=snapshot.unread, reasons=(), near=(), waits_for_ends=False
    )


class _Lists:
    """Reads kinds of a client that may not be allowed all of them."""

    def __init__(self, client: ApiClient, namespace: str, is_enough: bool) -> None:
        self._client = client
        self._namespace = namespace
        self._is_enough = is_enough
        self.unread: list[str] = []
        self.hidden: set[str] = set()

    async def read(self, kind: Kind) -> list[Event]:
        """Returns its objects as events. Raises: ApiError."""
        forbidden: ApiError | None = None
        for version in kind.versions or ("v1",):
            for is_whole, path in self._paths(kind.path(version)):
                try:
                    events = await _events(self._client, kind, version, path)
                except ApiError as error:
                    if error.code not in (403, 404):
                        raise
                    if error.code == 403:
                        forbidden = forbidden or error
                else:
                    if not is_whole:
                        self._only_here(kind, forbidden)
                    return [*events, KindSynced(kind.name)]
            if forbidden is not None:
                break
        if forbidden is None:
            return [KindMissing(kind.name)]
        return self._left_out(kind, forbidden)

    def _paths(self, path: str) -> list[tuple[bool, str]]:
        """Returns where to ask, and whether that is the whole cluster. A kind without namespaces is in none:
        404 there."""
        whole = [(True, path)]
        if not self._namespace:
            return whole
        before, _, resource = path.rpartition("/")
        own = [(False, f"{before}/namespaces/{segment(self._namespace)}/{resource}")]
        return own + whole if self._is_enough else whole + own

    def _only_here(self, kind: Kind, forbidden: ApiError | None) -> None:
        self.hidden.add(kind.name)
        if forbidden is not None and kind.name in _ALWAYS:
            self.unread.append(f"{kind.name} of other namespaces: {forbidden}")

    def _left_out(self, kind: Kind, error: ApiError) -> list[Event]:
        if kind.name == "pods" or (kind.name == "nodes" and not self._namespace):
            raise ApiError(f"{error.message}; {self._cure(kind)}", code=error.code, reason=error.reason)
        if kind.name not in _ALWAYS:
            self.unread.append(f"{kind.name}: {error}")
            return [KindMissing(kind.name)]
        self.hidden.add(kind.name)
        if not self._is_enough:
            self.unread.append(f"{kind.name}: {error}; {self._cure(kind)}")
        return [KindSynced(kind.name)]

    def _cure(self, kind: Kind) -> str:
        if kind.name == "nodes":
            made = "kubectl create clusterrole node-reader --verb=list --resource=nodes"
            return (
                f"no role of Kubernetes' own for teams has that right: {made}, and a ClusterRoleBinding to it"
            )
        where = self._namespace or "NAMESPACE"
        bound = f"kubectl -n {where} create rolebinding viewers --clusterrole=view --user=USER"
        alone = "" if self._namespace else "; who has it there alone asks with -n NAMESPACE"
        return f"the ClusterRole view has that right, for a namespace: {bound}{alone}"


async def _events(client: ApiClient, kind: Kind, version: str, path: str) -> list[Event]:
    events: list[Event] = []
    async for items, refused in pages_of(client, kind, version=version, path=path):
        events += [kind.added(item, kind.api_version(version)) for item in items]
        events += refused
    return events
