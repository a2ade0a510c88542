"""NamespaceUsage: what each namespace's pods hold on nodes; QueueView: what the queue's plugins see of it.

A usage tracker (core.cache.nodes.usage_trackers) that exists only if a PreEnqueue or QueueSort plugin reads
it. Not here: which plugin does, and what follows from a change (core.state.line.lanes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from copy import copy
from types import MappingProxyType
from typing import Protocol

from gangsched.core.cache.nodes.table import NodeTable
from gangsched.core.cache.nodes.usage_trackers import NOTHING_NEW, UsageNews
from gangsched.core.cache.queues.book import QueueBook
from gangsched.core.cache.queues.tree import Place
from gangsched.core.types.group import NEVER_S, Group, PodInfo
from gangsched.core.types.needed import needed_members, requests_of
from gangsched.core.types.placement import Nominated
from gangsched.errors import ParseError
from gangsched.model.objects import Node
from gangsched.model.stated.load import LOAD_KEY, TERMS, ReportedUsage, Term, parse_load
from gangsched.model.walltime import Walltime

_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_Held = tuple[tuple[str, ...], Mapping[str, int]]

TOTALS = ""
"""The key, beside the namespaces, for what the nodes offer."""
LOADS = " loads"
"""The key for what agents have measured; no namespace begins with a space."""
# A node's report counts for this long: three and a half of the periods in which agents report at least once.
_FRESH_S = 90.0


class NamespaceUsage:
    """Resources held by pods of every scheduler, reserved or bound, by namespace and by the values of some
    labels ("label=value")."""

    def __init__(self, labels: tuple[str, ...] = ()) -> None:
        self.labels = labels
        self.used: dict[str, dict[str, int]] = {}
        self.changed: set[str] = set()
        """Namespaces whose use has changed since a reader cleared this; TOTALS if what the nodes offer
        has."""
        self.n_node_changes = 0
        self.reports: dict[int, tuple[str, float]] = {}
        """By row: the agent's report of the node's load, as written, and when it came."""
        self._on_row: dict[int, dict[str, _Held]] = {}
        self._offered: dict[int, Mapping[str, object] | None] = {}

    def put_node(self, row: int, node: Node, now_s: float) -> UsageNews:
        offered = node.status.allocatable
        if row not in self._offered or self._offered[row] != offered:  # most updates are heartbeats
            self._offered[row] = offered
            self._nodes_changed()
        report = (node.metadata.annotations or _NO_LABELS).get(LOAD_KEY)
        if report is None:
            if self.reports.pop(row, None) is not None:
                self.changed.add(LOADS)
        elif row not in self.reports or self.reports[row][0] != report:
            self.reports[row] = (report, now_s)
            self.changed.add(LOADS)
        return NOTHING_NEW

    def put_usage(self, row: int, usage: ReportedUsage, now_s: float) -> UsageNews:
        return NOTHING_NEW

    def remove_node(self, row: int) -> None:
        self._offered.pop(row, None)
        if self.reports.pop(row, None) is not None:
            self.changed.add(LOADS)
        self._nodes_changed()
        for held in self._on_row.pop(row, {}).values():
            self._add(held, -1)

    def enter(self, infos: Iterable[PodInfo], row: int, now_s: float) -> None:
        on_row = self._on_row.setdefault(row, {})
        for info in infos:
            # As counted now: the pod may be another version when it leaves.
            held = on_row[info.uid] = (self._names(info), info.template.requests)
            self._add(held, 1)

    def leave(self, info: PodInfo, row: int, now_s: float) -> None:
        held = self._on_row.get(row, {}).pop(info.uid, None)
        if held is not None:
            self._add(held, -1)

    def advance(self, now_s: float) -> Iterable[int]:
        return ()

    def _nodes_changed(self) -> None:
        self.n_node_changes += 1
        self.changed.add(TOTALS)

    def _names(self, info: PodInfo) -> tuple[str, ...]:
        meta = info.pod.metadata
        if not self.labels:
            return (meta.namespace,)
        own = meta.labels or _NO_LABELS
        return (meta.namespace, *(f"{label}={own[label]}" for label in self.labels if label in own))

    def _add(self, held: _Held, sign: int) -> None:
        names, requests = held
        for whose in names:
            self.changed.add(whose)
            used = self.used.setdefault(whose, {})
            for name, amount in requests.items():
                left = used.get(name, 0) + sign * amount
                if left:
                    used[name] = left
                else:
                    used.pop(name, None)
            if not used:
                del self.used[whose]


class RunTimes(Protocol):
    """How long groups run; core.queueing.walltimes has the one implementation."""

    def walltime(self, group: Group) -> Walltime:
        """Returns the group's walltime as of now."""
        ...


class Limits(Protocol):
    """What limits keep for groups; core.kept.limits has the one implementation."""

    def kept_ahead_of(self, group: Group) -> Mapping[str, Mapping[str, int]]:
        """Returns what is kept within limits from this group, by queue with a limit."""
        ...


class KeepsInLimits(Protocol):
    """Where it is found what limits keep; core.state.state has the one implementation."""

    limits: Limits | None


class QueueView:
    """The cluster as PreEnqueue and QueueSort see it.

    Amounts are by resource name: cpu in thousandths, everything else in whole units. All of it holds for this
    turn only and may not be kept: a plugin asks again.
    """

    def __init__(
        self,
        nodes: NodeTable,
        usage: NamespaceUsage,
        book: QueueBook | None,
        walltimes: RunTimes | None,
        nominated: Mapping[str, Nominated],
        going: Collection[str],
        keeps: KeepsInLimits,
        before: QueueView | None = None,
    ) -> None:
        """book: what each queue holds; None: no queues are configured. walltimes: where the configuration has
        `queueing`. nominated: by UID, pods whose room is kept until their victims have gone; going: the UIDs
        of those victims. keeps: has what limits keep for groups, if they do; before: the view, under another
        configuration, that this one replaces."""
        self._nodes = nodes
        self._usage = usage
        self._book = book
        self._walltimes = walltimes
        self._nominated = nominated
        self._left_out: Collection[Group] = ()
        self.going = going
        self._keeps = keeps
        self._totals: Mapping[str, int] = _NOTHING
        self._largest: Mapping[str, int] = _NOTHING
        self._totals_of = -1
        self._shares: dict[int, tuple[str, tuple[float, ...] | None]] = {}
        self.began_s: float | None = None if before is None else before.began_s
        """When this process had its first turn."""
        self.now_s: float = 0.0 if before is None else before.now_s
        """The scheduler's own clock, which begins anywhere and never goes back."""
        self.reads: set[str] = set()
        """Namespaces (and TOTALS) read since `forget_reads`."""
        self.reads_time = False

    def forget_reads(self) -> None:
        """Begins to record what is read."""
        self.reads.clear()
        self.reads_time = False

    def set_time(self, now_s: float) -> None:
        """Begins a turn at this time."""
        self.now_s = now_s
        if self.began_s is None:
            self.began_s = now_s
        if self._book is not None:  # shares of the cluster count from when its nodes are known
            self._book.take_totals(self.totals(), now_s)

    def totals(self) -> Mapping[str, int]:
        """What all nodes offer together (status.allocatable)."""
        self._add_up()
        return self._totals

    def largest(self) -> Mapping[str, int]:
        """The most that any one node offers, each resource by itself."""
        self._add_up()
        return self._largest

    def measured_load(self, term: Term) -> float | None:
        """Returns the mean over nodes of what their agents measured, 0 to 1: of cpu, memory, network or disk.

        Counts nodes whose agent (gangsched.io/load) was received within 90 s; None if there is none.
        """
        self.reads.add(LOADS)
        self.reads_time = True
        known, self._shares = self._shares, {}
        for row, (report, reported_s) in self._usage.reports.items():
            if self.now_s - reported_s <= _FRESH_S:
                parsed = known.get(row, ("", None))
                self._shares[row] = parsed if parsed[0] == report else (report, _shares(report))
        at = TERMS.index(term)
        found = [shares[at] for _, shares in self._shares.values() if shares is not None]
        return sum(found) / len(found) if found else None

    def used(self, namespace: str) -> Mapping[str, int]:
        """What the namespace's pods hold on nodes, reserved or bound, `pods` counted too."""
        self.reads.add(namespace)
        used = self._usage.used.get(namespace)
        return _NOTHING if used is None else MappingProxyType(used)

    def used_by_label(self, label: str, value: str) -> Mapping[str, int]:
        """As `used`, for pods of all namespaces with this label. QueueSort's plugin lists its labels in
        `usage_labels`."""
        return self.used(f"{label}={value}")

    @property
    def queues(self) -> QueueBook | None:
        """What each queue holds and has held lately; None: no queues are configured.

        Reads of a lane key through this are not recorded: a lane's key is computed again only when what
        `place_of_queue` or `used_by_queue` has read changes.
        """
        if self._book is not None:
            self._book.take_totals(self.totals(), self.now_s)
        return self._book

    def queue_of(self, group: Group) -> str:
        """Returns the queue of the group's first member; the group's namespace if no queues are configured.

        A group whose namespace no queue lists is in `/other`.
        """
        first = group.first()
        if self._book is None or first is None:
            return group.key.namespace
        return self._book.tree.choice(first.pod).queue

    def request_of(self, group: Group) -> Mapping[str, int]:
        """Returns what the group's next attempt has to find room for, at least."""
        return requests_of(needed_members(group))

    def used_by_queue(self, queue: str) -> Mapping[str, int]:
        """As `used`, for a queue and all queues below it."""
        if self._book is None:
            return self.used(queue)
        self.reads.add(f"/{queue}")
        return self._book.used(queue)

    def promised_to_queue(self, queue: str) -> Mapping[str, int]:
        """Returns what pods of the queue, and of all below it, will get once their victims have gone."""
        book = self._book
        if book is None:
            return _NOTHING
        paths = book.tree.paths
        promised = [one.info for one in self._nominated.values() if one.info.group not in self._left_out]
        own = [i for i in promised if queue in paths.get(book.tree.choice(i.pod).queue, ())]
        return requests_of(own)

    def place_of_queue(self, queue: str, request: Mapping[str, int]) -> Place:
        """Returns the queue's place among all if its first group requests this (QueueBook.place); for a queue
        not in the tree (), which comes first."""
        book = self.queues
        if book is None or queue not in book.tree.paths:
            return Place()
        self.reads.update(f"/{name}" for name in book.tree.paths[queue])
        self.reads_time = True
        return book.place(queue, request, self.now_s)

    def walltime_s(self, group: Group) -> float:
        """Returns how long the group runs, as far as known; infinity if it never ends, or without
        `queueing`."""
        return NEVER_S if self._walltimes is None else self._walltimes.walltime(group).seconds

    def kept_in_limits(self, group: Group) -> Mapping[str, Mapping[str, int]]:
        """Returns what limits keep from a group for other groups of its queue, by queue with a limit."""
        limits = self._keeps.limits
        return {} if limits is None else limits.kept_ahead_of(group)

    def without(self, unit: Collection[Group], going: Collection[str]) -> QueueView:
        """Returns the view without what is promised to the unit. going: the victims of all others."""
        before = copy(self)
        before._left_out, before.going = unit, going
        return before

    def dominant_share(self, namespace: str, *resources: str) -> float:
        """Returns the namespace's largest share of any of these resources, 0 to 1; without names, of all
        resources."""
        totals, used = self.totals(), self.used(namespace)
        named = resources or tuple(used)
        shares = [used.get(name, 0) / totals[name] for name in named if totals.get(name)]
        return max(shares, default=0.0)

    def waited_s(self, group: Group) -> float:
        """Returns how long the group has been complete; for a group found at start-up, the time since
        then."""
        self.reads_time = True
        if group.first_complete_s == NEVER_S:
            return 0.0
        began_s = self.began_s if self.began_s is not None else self.now_s
        return max(0.0, self.now_s - max(group.first_complete_s, began_s))

    def _add_up(self) -> None:
        self.reads.add(TOTALS)
        if self._totals_of == self._usage.n_node_changes:
            return
        self._totals_of = self._usage.n_node_changes
        nodes = self._nodes
        live = nodes.live.nonzero()[0]
        totals, largest = {}, {}
        for name, row in zip(nodes.table.names, nodes.allocatable, strict=False):
            offered: list[int] = row[live].tolist()
            if total := sum(offered):  # exact: one quantity alone may fill an int64
                totals[name], largest[name] = total, max(offered)
        self._totals, self._largest = MappingProxyType(totals), MappingProxyType(largest)


def _shares(report: str) -> tuple[float, ...] | None:
    """Returns what is in use of each term; None if the report cannot be read: the cache has logged it."""
    with suppress(ParseError):
        return parse_load(report).utilisation.terms
    return None
