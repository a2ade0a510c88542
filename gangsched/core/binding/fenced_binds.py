"""FencedBinds: binds that were given up; their room is freed once they cannot land any more.

With a fence (settings.fence) every bind carries the pod's version that was known at the decision. A bind of
unknown outcome is not given up before the pod has another version (BumpPod): then it cannot land any more,
and its room is free. A bind that was refused because the pod had changed is sent again at once with the
version that was read, as planning it again would need a bump first. Without a fence a given-up bind's room is
free at once. Called by core.binding.binder; core.binding.bind_sender writes the version.
"""

from __future__ import annotations

from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.binds import BindCause, move_bind
from gangsched.core.types.group import ASSUMED, LEAVING, BindState, MemberState, PodInfo
from gangsched.core.why import Why
from gangsched.model.effects import BumpPod, CancelBinds
from gangsched.model.events import PodBumped
from gangsched.model.objects import Pod

# A pod that the server reported gone is looked for until the watch confirms it: answers have been wrong.
_READ_FIRST_S = 10.0


class FencedBinds:
    """What the fence requires of binds."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._is_fenced = shared.settings.fence

    def note_unknown(self, info: PodInfo) -> None:
        """Records that the outcome of the member's bind is unknown."""
        info.bind_may_land = self._is_fenced

    def is_overtaken(self, info: PodInfo, pod: Pod) -> bool:
        """Whether the pod has changed since its bind was sent, which then cannot land."""
        return self._is_fenced and pod.metadata.resource_version != info.sent_version

    def lost(self, info: PodInfo, why: Why, state: MemberState) -> None:
        """Gives up a bind: its room is freed once it cannot land; the rest of the gang is not sent."""
        group = info.group
        assert group is not None
        if info.bind_may_land and state is MemberState.PENDING:
            move_bind(info, BindCause.IN_DOUBT)
            meta = info.pod.metadata
            self._shared.count("binds_bumped")
            self._shared.emit(BumpPod(info.uid, meta.namespace, meta.name, group.cause_id))
        else:
            self._free(info, state)
        if not group.failed_binds:
            self._shared.emit(CancelBinds(group.cause_id))
        group.failed_binds[info.uid] = why
        self._shared.mark_group(group)

    def bumped(self, event: PodBumped) -> PodInfo | None:
        """Takes a bump's answer: earlier binds cannot land, or one has; the caller applies the pod as
        seen."""
        info = self._shared.cache.pods.get(event.uid)
        if info is None or info.state is not ASSUMED or info.bind is not BindState.BUMPING:
            return None
        info.bind_may_land = False
        pod = event.pod
        info.reported_gone = pod is None
        if pod is not None and pod.spec.node_name:
            return info
        is_leaving = pod is None or pod.metadata.deletion_timestamp is not None or pod.is_terminal
        self._free(info, MemberState.LEAVING if is_leaving else MemberState.PENDING)
        return info

    def _free(self, info: PodInfo, state: MemberState) -> None:
        if info.pod.metadata.deletion_timestamp is not None:
            state = LEAVING  # a finalizer may keep it for long, and no bind of it lands any more
        move_bind(info, BindCause.FREED)
        info.bind_may_land = False
        self._shared.forget(info, state)
        if state is LEAVING:
            self._shared.read_gone_at(self._shared.now_s + _READ_FIRST_S, info)
        if info.group is not None:
            self._shared.mark_group(info.group)
