"""Recount: rebuilds the counts of one pod, or of one node, after a step that failed halfway.

Nothing is subtracted, since it is unknown what the step added before it failed. A pod is removed from every
list, and its rows are summed up again from the remaining pods. Called by core.turns.containment and
core.turns.refused_pods, after a fault of ours; ordinary releases go through core.cache.cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gangsched.core.cache.cache import Cache
from gangsched.core.types.group import NO_ROW, NOTHING, Group, MemberState, PodInfo


def take_out(cache: Cache, info: PodInfo, *nodes: str) -> None:
    """Takes the pod off every node: the one it names, and any of `nodes`, where it may be counted in part."""
    places = dict.fromkeys((info.node_name, *nodes))
    rows = {info.row, *(cache.nodes.row_of.get(name, NO_ROW) for name in places)} - {NO_ROW}
    for name in places:
        on_node = cache.by_node.get(name, {})
        on_node.pop(info.uid, None)
        if not on_node:
            cache.by_node.pop(name, None)
    info.node_name, info.row = "", NO_ROW
    info.allocation, info.ids = NOTHING, NOTHING
    info.pod_class = None
    recount_rows(cache, rows)


def recount_rows(cache: Cache, rows: Iterable[int]) -> None:
    """Recomputes all counts of these rows from the pods there."""
    for row in sorted(rows):
        there = cache.by_node.get(cache.nodes.names[row], {}) if cache.nodes.live[row] else {}
        _recount_room(cache, row, there.values())
        cache.ledger.recount(row, there.values())
        _recount_usage(cache, row, there.values())
    cache.index.forget_counts(cache.pods)
    if sum(cache.priorities.values()) != sum(map(len, cache.by_node.values())):
        cache.priorities.clear()
        on_nodes = (info for infos in cache.by_node.values() for info in infos.values())
        cache.priorities.update(Counter(info.pod.spec.priority or 0 for info in on_nodes))


def _recount_room(cache: Cache, row: int, there: Iterable[PodInfo]) -> None:
    nodes = cache.nodes
    nodes.clear_used(row)
    for info in there:
        template = info.template
        nodes.use(row, template.columns, template.amounts, 1)
        if template.padding is not None:
            nodes.pad(row, template.padding, 1)
        if template.host_ports:
            nodes.use_ports(row, template.host_ports, 1)


def _recount_usage(cache: Cache, row: int, there: Iterable[PodInfo]) -> None:
    node = cache.nodes.nodes[row]
    if cache.usage_trackers and node is not None:
        cache.usage_trackers.remove_node(row)
        cache.usage_trackers.put_node(row, node)
        cache.usage_trackers.enter(there, row)


def recount_group(group: Group) -> None:
    """Recomputes the group's counts from its members."""
    group.counts = dict.fromkeys(MemberState, 0)
    group.stated = {}
    for info in group.members.values():
        group.counts[info.state] += 1
        group.stated[info.stated] = group.stated.get(info.stated, 0) + 1
