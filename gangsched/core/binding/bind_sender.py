"""BindSender: members that may leave become BindPod effects, or are given to Bind plugins.

Here is what a Binding carries: node, devices, gang, rank, attempt and queue; and what ends a group's binds
before they are sent. When a member may leave is core.binding.pre_bind's and core.binding.staggered_bind's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from msgspec.structs import replace

from gangsched.core.state.pending_hooks import BIND
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import LEAVING, SENT, Group, GroupState, MemberState, PodInfo
from gangsched.model.device_labels import allocation_labels, allocation_text
from gangsched.model.devices import ALLOCATED_KEY, allocation_annotations, is_device_key
from gangsched.model.effects import BindPod, CancelBinds
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY, STARTED_IN_KEY

# Their successors are of the gang in their place.
_REPLACED = (MemberState.FAILED, LEAVING)


class BindSender:
    """Sends binds, and withdraws what has not been sent."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._is_fenced = shared.settings.fence
        self._in_labels = shared.settings.devices.in_labels

    def send(self, group: Group, members: Sequence[PodInfo]) -> None:
        """Binds members; their answers are core.binding.binder's."""
        key = str(group.key)
        binds = [plugin.name for plugin in self._shared.profile_of(group).binds]
        in_labels = self._in_labels and not binds
        effects = self._shared.effects
        for info in members:
            info.bind = SENT
            info.bind_tries += 1
            binding = self.binding(info, group, key)
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
        """The bind of one member; `key` is its group's key as text."""
        if self._is_fenced:
            info.sent_version = info.pod.metadata.resource_version
        book = self._shared.queue_book
        return _binding(info, group, key, "" if book is None else book.started_in(info))

    def give_back(self, group: Group, why: str) -> None:
        """No bind was sent, and none will be: releases the reservations; `settle` does the rest."""
        if group.state is GroupState.BINDING:
            self._shared.forget_all(group, why)
            group.failed_binds[""] = why
            self._shared.touch(group)

    def withdraw(self, group: Group, why: str) -> None:
        """A reservation of a group that is binding is lost: what has not been sent is not sent."""
        if not group.failed_binds:
            group.failed_binds[""] = why
            self._shared.emit(CancelBinds(group.cause_id))
            self._shared.touch(group)


def assign_ranks(group: Group, members: list[PodInfo]) -> None:
    """The lowest free ranks, in the natural order of names ("w-2" before "w-10").

    A pod keeps its rank, unless another process has given that to one that it bound meanwhile; a replacement
    gets its predecessor's, also while that is there, failed or being deleted: so a gang of n has the ranks 0
    to n - 1, even when it was bound in part by a process that died.
    """
    unranked = [info for info in members if info.rank < 0]
    if len(unranked) == len(group.members):
        for rank, info in enumerate(sorted(unranked, key=_natural_name)):
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
    unranked.sort(key=_natural_name)
    free = (rank for rank in count() if rank not in taken)
    for info in unranked:
        info.rank = next(free)


def _binding(info: PodInfo, group: Group, key: str, queue: str) -> BindPod:
    """The one write: the node, and the annotations written with it."""
    annotations = allocation_annotations(info.allocation, info.template.by_container)
    annotations[GANG_KEY] = key
    annotations[RANK_KEY] = str(info.rank)
    annotations[ATTEMPT_KEY] = str(info.attempt)
    if queue:
        annotations[STARTED_IN_KEY] = queue
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
    """The same with the devices as labels; plugins.devices has ensured that they fit.

    If the pod was created with the annotation, the annotation takes precedence, so overwrite it.
    """
    if ALLOCATED_KEY in (info.pod.metadata.annotations or {}):
        return binding
    annotations = {key: text for key, text in binding.annotations.items() if not is_device_key(key)}
    return replace(binding, annotations=annotations, labels=allocation_labels(info.allocation))


def _natural_name(info: PodInfo) -> tuple[int, str]:
    name = info.pod.metadata.name
    return len(name), name
