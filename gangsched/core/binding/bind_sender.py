"""BindSender: members that may leave become BindPod effects, or go to Bind plugins.

Here is what a Binding carries: node, devices, gang, rank, attempt, start and queue; and what ends a group's
binds before they are sent. core.binding.pre_bind and core.binding.staggered_bind decide when members leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from gangsched.core.cache.cluster_view import ClusterView
from gangsched.core.cycle.ranks import beside_neighbours, in_order
from gangsched.core.state.pending_hooks import BIND
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_binds
from gangsched.core.types.group import LEAVING, Group, GroupState, MemberState, PodInfo
from gangsched.core.why import Why
from gangsched.model.devices.annotations import ALLOCATED_KEY, allocation_annotations, is_device_key
from gangsched.model.devices.labels import allocation_labels, allocation_text
from gangsched.model.effects import BindPod, CancelBinds
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY, START_KEY, STARTED_IN_KEY

# Pods in these states are replaced: their successors take their place in the gang.
_REPLACED = (MemberState.FAILED, LEAVING)


class BindSender:
    """Sends binds, and withdraws what has not been sent."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._is_fenced = shared.settings.fence
        self._in_labels = shared.settings.devices.in_labels

    def send(self, group: Group, members: Sequence[PodInfo]) -> None:
        """Binds members; core.binding.binder takes the answers."""
        key, book = str(group.key), self._shared.queue_book
        binds = [plugin.name for plugin in self._shared.profile_of(group).binds]
        in_labels = self._in_labels and not binds
        is_fenced, effects = self._is_fenced, self._shared.effects
        of_gang = _annotations_of(group, key)
        move_binds(members, BindCause.SENDS)
        template, n_resources = None, 0
        for info in members:
            info.bind_tries += 1
            if info.template is not template:
                template = info.template
                n_resources = len(template.device_resources)
            if len(info.ids) < n_resources:
                # From now on it may have some.
                self._shared.cache.ledger.note_unknown_holders(info.row, (info,))
            if is_fenced:
                info.sent_version = info.pod.metadata.resource_version
            if book is not None:
                info.sent_queue = book.started_in(info)
            binding = _binding(info, group, key, of_gang)
            info.allocated = binding.annotations.get(ALLOCATED_KEY)
            if in_labels and info.ids:
                binding = _labelled(binding, info)
                info.allocated = allocation_text(binding.annotations, binding.labels)
            if binds:
                self._shared.hooks.ask(BIND, binds, group, info, binding.annotations)
            else:
                effects.append(binding)
        self._shared.count("binds_sent", len(members))

    def binding(self, info: PodInfo, group: Group, key: str) -> BindPod:
        """Returns the bind of one member; `key` is its group's key as text."""
        book = self._shared.queue_book
        if self._is_fenced:
            info.sent_version = info.pod.metadata.resource_version
        info.sent_queue = "" if book is None else book.started_in(info)
        return _binding(info, group, key, _annotations_of(group, key))

    def give_back(self, group: Group, why: Why) -> None:
        """Releases the reservations of a group of which no bind was sent or will be; `settle` does the
        rest."""
        if group.state is GroupState.BINDING:
            self._shared.forget_all(group, why)
            group.failed_binds[""] = why
            self._shared.mark_group(group)

    def withdraw(self, group: Group, why: Why) -> None:
        """Withdraws unsent binds of a binding group that has lost a reservation."""
        if not group.failed_binds:
            group.failed_binds[""] = why
            self._shared.emit(CancelBinds(group.cause_id))
            self._shared.mark_group(group)


def assign_ranks(group: Group, members: list[PodInfo], view: ClusterView, topology_key: str) -> None:
    """Assigns the lowest free ranks along the fabric (core.cycle.ranks).

    A pod keeps its rank, unless another process has given it to a pod that it bound meanwhile. A replacement
    gets its predecessor's rank, even while the predecessor is still there, failed or being deleted. So a gang
    of n has the ranks 0 to n - 1, even when a process that died had bound it in part.
    """
    unranked = [info for info in members if info.rank < 0]
    if len(unranked) == len(group.members):
        for rank, info in enumerate(in_order(group, unranked, view, topology_key)):
            info.rank = rank
        return
    going = {info.uid for info in members}
    taken = {
        info.rank
        for info in group.members.values()
        if info.uid not in going
        and info.state not in _REPLACED
        and info.pod.metadata.deletion_timestamp is None
    }
    for info in (info for info in members if info.rank >= 0):
        if info.rank in taken:
            unranked.append(info)
        taken.add(info.rank)
    beside, left = beside_neighbours(group, unranked), []
    n_ranks = max(len(taken) + len(unranked), group.start_count)
    for info in in_order(group, unranked, view, topology_key):
        rank = beside.get(info.uid, -1)
        if 0 <= rank < n_ranks and rank not in taken:
            info.rank = rank
            taken.add(rank)
        else:
            left.append(info)
    free = (rank for rank in count() if rank not in taken)
    for info in left:
        info.rank = next(free)


def _annotations_of(group: Group, key: str) -> dict[str, str]:
    """The annotations that all binds of the gang have alike."""
    return {GANG_KEY: key, START_KEY: group.start_record} if group.start_record else {GANG_KEY: key}


def _binding(info: PodInfo, group: Group, key: str, of_gang: Mapping[str, str]) -> BindPod:
    """Builds the one write: the node, and the annotations written with it."""
    annotations = allocation_annotations(info.allocation, info.template.by_container)
    annotations |= of_gang
    annotations[RANK_KEY] = f"{info.rank}"
    annotations[ATTEMPT_KEY] = f"{info.attempt}"
    if info.sent_queue:
        annotations[STARTED_IN_KEY] = info.sent_queue
    meta = info.pod.metadata
    return BindPod(
        info.uid,
        meta.namespace,
        meta.name,
        info.node_name,
        annotations,
        key,
        info.attempt,
        group.cause_id,
        resource_version=info.sent_version,
    )


def _labelled(binding: BindPod, info: PodInfo) -> BindPod:
    """Returns the same bind with the devices as labels; plugins.resources.devices has ensured that they fit.

    If the pod was created with the annotation, that takes precedence, so it is overwritten instead.
    """
    if ALLOCATED_KEY in (info.pod.metadata.annotations or {}):
        return binding
    annotations = {key: text for key, text in binding.annotations.items() if not is_device_key(key)}
    return replace(binding, annotations=annotations, labels=allocation_labels(info.allocation))
