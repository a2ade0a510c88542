"""DriftAudit: compares the devices of pods in our records, in their annotations, and by kubelet.

Three sources. Our records (the pod's allocation, counted in core.cache.devices.ledger) are what we sent with
its Binding. The pod's annotations should agree; later edits are overwritten with what was bound. The report
on the Node (model.devices.report) is what kubelet really gave, for resources that its device plugin hands
out. It takes precedence: our records follow it at once, for all pods of the node in one step (two that
kubelet swapped are swapped here too), and then the annotations are corrected.

Drift is counted while it lasts, reported once in an event on its pod, and repaired if the settings let us
patch pods. A device set that kubelet's choice made unusable for its pod (violating its constraints, or given
to another pod) cannot be repaired here: it is reported, and by policy only that pod is evicted. Called by
core.groups.members.membership and core.turns.event_handlers with events of pods and nodes; acts at the end
of a turn.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import msgspec

from gangsched.core.cycle.device_allocation import annotations_of
from gangsched.core.device_audit.reported_devices import (
    Allocation,
    as_reported,
    correct,
    devices_text,
    in_order,
    learn,
    listing_patch,
)
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.timers import DeadlineKind, Deadlines
from gangsched.core.types.group import NEVER_S, ON_ITS_WAY, MemberState, PodInfo
from gangsched.core.types.states import ENDED
from gangsched.core.why import Why
from gangsched.core.why.devices import (
    AgainstConstraint,
    Exchanged,
    GivenOthers,
    ListedOtherwise,
    WentToAnother,
)
from gangsched.core.why.released import DeviceGivenAway
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import ALLOCATED_KEY, is_device_key
from gangsched.model.devices.labels import allocated_labels, allocation_labels, allocation_of, allocation_text
from gangsched.model.devices.report import DEVICE_REPORT_KEY, DeviceReport, parse_report
from gangsched.model.devices.sets import sets_of
from gangsched.model.events import PodPatched, PodPatchFailed
from gangsched.model.objects import Node, Pod

ACTION = "Audit"
REASON = "DeviceMismatch"
EDITED = "edited"
"""The annotations differ from what was bound."""
SWAPPED = "kubelet"
"""kubelet gave other devices than planned, and the annotations do not show it yet."""
UNUSABLE = "unusable"
"""The pod's devices do not satisfy its constraints, or went to another pod."""
_FIRST_RETRY_S = 0.2
_LONGEST_RETRY_S = 30.0
# Without the right to patch pods frequent retries are useless; the right may be granted later.
_FORBIDDEN_RETRY_S = 300.0
_EVICT_AGAIN_S = 30.0
_ENDED_RETRY_S = 1.0


class Drift(msgspec.Struct):
    """What is wrong with one pod's annotations: EDITED or SWAPPED."""

    kind: str
    why: Why
    n_tries: int = 0
    is_sent: bool = False


class DriftAudit:
    """Compares, reports, repairs."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._reports: dict[str, tuple[str, DeviceReport]] = {}
        self._listed: dict[str, frozenset[str]] = {}
        """By node: pods that some report has listed, so that their devices are certain."""
        self._unread: dict[str, str] = {}
        self._nodes: dict[str, None] = {}
        self.drifts: dict[str, Drift] = {}
        self.due: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.ANNOTATION)
        """By UID: when to correct the annotations next; NEVER_S: only after another event."""
        self.unusable: dict[str, Why] = {}
        """By UID: why a pod cannot use its devices, which corrected annotations do not change."""
        self._evict_s: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.UNUSABLE_DEVICES)
        """By UID: when such a pod is evicted next."""
        self._ended_pods = EndedPods(shared)

    # -- events ----------------------------------------------------------------------------------------

    def node_put(self, node: Node) -> None:
        """Takes in a node's current state; its report is parsed if it changed."""
        name = node.metadata.name
        text = (node.metadata.annotations or {}).get(DEVICE_REPORT_KEY)
        if text is None:
            self.node_gone(name)
        elif text not in (self._reports.get(name, _NO_REPORT)[0], self._unread.get(name)):
            self._read(node, text)
        if (row := (cache := self._shared.cache).nodes.row_of.get(name)) is not None:
            cache.ledger.set_by_plan(row, self._reports.get(name, _NO_REPORT)[1].resources)

    def _read(self, node: Node, text: str) -> None:
        name = node.metadata.name
        try:
            report = parse_report(text)
        except ParseError as error:  # the previous report stays in use
            self._unread[name] = text
            return self._reporter.node_problem(node, str(error), reason="InvalidDeviceReport")
        self._reports[name] = (text, report)
        self._shared.reported_pods[name] = frozenset(pod.uid for pod in report.pods)
        self._unread.pop(name, None)
        self._nodes[name] = None

    def node_gone(self, name: str) -> None:
        self._reports.pop(name, None)
        self._shared.reported_pods.pop(name, None)
        self._listed.pop(name, None)
        self._unread.pop(name, None)
        self._nodes.pop(name, None)
        self._ended_pods.node_gone(name)

    def pod_bound(self, info: PodInfo) -> None:
        """Has the node's report compared again: the API has shown a pod's node."""
        if info.node_name in self._reports:
            self._nodes[info.node_name] = None

    def pod_edited(self, info: PodInfo, pod: Pod) -> bool:
        """Takes in a change of a bound pod's device annotation; False: our records follow it.

        A follower's records follow everything: it may be its leader's repair.
        """
        if not self._shared.decides:
            return False
        if info.group is None:
            return bool(info.identity)  # ours when it was bound, and what it was given is known
        if self._is_right(info, pod):
            info.allocated = allocation_text(pod.metadata.annotations, pod.metadata.labels)
            if info.uid in self.drifts:
                self._mended(info)
            return True
        allocation, problem = allocation_of(pod)
        says = f"its annotations were edited: {devices_text(allocation)}"
        if problem:
            says = f"its annotation {problem}"
        elif self._shared.settings.devices.in_labels:
            says = _labels_text(allocation)
        self._drifted(info, EDITED, ListedOtherwise(says, devices_text(info.allocation)))
        return True

    def is_ours_again(self, info: PodInfo) -> None:
        """Checks a pod whose profile is back: nothing was corrected meanwhile."""
        if in_order(allocation_of(info.pod)[0]) != in_order(info.allocation):
            self.pod_edited(info, info.pod)

    def pod_gone(self, uid: str) -> None:
        self.drifts.pop(uid, None)
        self.due.drop(uid)
        self._usable_again(uid)

    def patched(self, event: PodPatched) -> None:
        """Stops sending until the watch shows the result of a patch."""
        drift = self.drifts.get(event.uid)
        if self._ended_pods.answered(event.uid, again_s=_FIRST_RETRY_S):
            self._shared.count("device_repairs")
        elif drift is not None and drift.is_sent:
            drift.is_sent = False
            self.due.set(event.uid, self._shared.now_s + _LONGEST_RETRY_S)
            self._shared.count("device_repairs")

    def patch_failed(self, event: PodPatchFailed) -> None:
        again_s = _FORBIDDEN_RETRY_S if event.code == 403 else _FIRST_RETRY_S
        if self._ended_pods.answered(event.uid, again_s=again_s):
            self._shared.count("device_repairs_forbidden", event.code == 403)
            return
        drift, info = self.drifts.get(event.uid), self._shared.cache.pods.get(event.uid)
        if drift is None or info is None or not drift.is_sent:
            return
        drift.is_sent = False
        if event.code == 404:
            self.due.set(info.uid, NEVER_S)
        elif event.code == 403:
            self.due.set(info.uid, self._shared.now_s + _FORBIDDEN_RETRY_S)
            self._shared.count("device_repairs_forbidden")
            self._tell(
                info, f"its annotations cannot be corrected: {event.message}; the verb is patch on pods"
            )
        else:
            self.due.set(info.uid, self._shared.now_s + self._pause_s(drift))

    # -- at the end of a turn --------------------------------------------------------------------------

    def compare_changed(self) -> None:
        """Compares what has changed since the last turn."""
        while self._nodes:
            name, _ = self._nodes.popitem()
            self._compare(name, self._reports[name][1])

    def compare_all(self) -> None:
        """Compares everything received as a follower: this process decides from now on."""
        self._nodes.update(dict.fromkeys(sorted(self._reports)))

    def advance(self) -> None:
        """Does the repairs and evictions that are due."""
        for info in self._bound_of(self.due):
            self._repair(info)
        for info in self._bound_of(self._evict_s):
            self._evict(info)
        for ended in self._ended_pods.advance():
            self._confirm(ended, allocation_of(ended.pod)[0])

    def _bound_of(self, deadlines: Deadlines[str]) -> Iterator[PodInfo]:
        """Yields the bound pods that are due; forgets pods that no longer hold anything."""
        now_s = self._shared.now_s
        for uid in deadlines.due(now_s):
            info = self._shared.cache.pods.get(uid)
            if info is None or info.state not in (MemberState.BOUND, MemberState.ASSUMED):
                self.pod_gone(uid)
            elif info.state is MemberState.ASSUMED:
                deadlines.set(uid, now_s + _FIRST_RETRY_S)  # its bind is in flight
            else:
                deadlines.set(uid, now_s + _EVICT_AGAIN_S)  # should what is done now fail
                yield info

    def statistics(self) -> dict[str, int]:
        """Counts drifting pods that have not ended, by kind; each counts once."""
        found = dict.fromkeys((EDITED, SWAPPED, UNUSABLE), 0)
        kinds = {uid: drift.kind for uid, drift in self.drifts.items()}
        kinds |= dict.fromkeys(self.unusable, UNUSABLE)
        for uid, kind in kinds.items():
            info = self._shared.cache.pods.get(uid)
            found[kind] += info is not None and info.state not in ENDED
        return found

    # -- the comparison --------------------------------------------------------------------------------

    def _compare(self, name: str, report: DeviceReport) -> None:
        for ended, message in self._ended_pods.compare(name, report):
            self._shared.count(f"device_drift_{SWAPPED}")
            self._tell(ended, message)
        cache = self._shared.cache
        on_node = cache.by_node.get(name, {})
        had_theirs = self._listed.get(name, _NOBODY) & on_node.keys()
        self._listed[name] = had_theirs | self._shared.reported_pods[name]
        changed: list[tuple[PodInfo, Allocation]] = []
        learn(cache, on_node, report)
        for one in report.pods:
            info = on_node.get(one.uid)  # else it is gone, or checked when the answer to its bind is here
            if info is None or info.state is not MemberState.BOUND:
                continue
            truth = as_reported(info.pod, info.allocation, one.containers, report.resources)
            if in_order(truth) != in_order(info.allocation):
                changed.append((info, truth))
            elif self.drifts.get(info.uid, _NONE).kind == SWAPPED and self._is_right(info, info.pod):
                self._mended(info)
        planned = {info.uid: info.allocation for info, _ in changed}
        corrected = correct(cache, changed, had_theirs)
        for info in (*corrected.exchanged, *(info for info, _ in changed)):
            self._usable_again(info.uid)  # it has other devices now
        for info, device_id in corrected.lost:
            self._lost_to_another(info, device_id)
        for info in corrected.exchanged:
            if info.group is not None and (info.state is MemberState.BOUND or info.bind in ON_ITS_WAY):
                now = devices_text(info.allocation)
                self._drifted(info, SWAPPED, Exchanged(now))
                if why := self._is_useless(info):
                    self._unusable(info, why)
        for info, truth in changed:
            if info.group is None:
                continue  # another scheduler's pod: now its devices are known
            was = devices_text(planned[info.uid])
            self._drifted(info, SWAPPED, GivenOthers(devices_text(truth), was))
            if why := self._is_useless(info):
                self._unusable(info, why)

    def _lost_to_another(self, info: PodInfo, device_id: str) -> None:
        """kubelet gave another pod a device planned for this one, which it has not admitted yet."""
        if info.group is None:
            return
        if info.state is MemberState.BOUND or info.bind in ON_ITS_WAY:
            self._unusable(info, WentToAnother(device_id))
        else:
            self._shared.broken_reservations[info.group.key] = (
                info.group,
                DeviceGivenAway(device_id, info.node_name),
            )

    def _is_useless(self, info: PodInfo) -> Why:
        for resource, constraint in info.template.constraints.items():
            inventory = self._shared.cache.ledger.listed(info.row, resource)
            ids = info.ids.get(resource, ())
            if inventory is None or any(device_id not in inventory.index for device_id in ids):
                continue
            mask = sum(1 << inventory.index[device_id] for device_id in ids)
            if ids and sets_of(inventory.topology, constraint).most(mask, len(ids)).n == 0:
                return AgainstConstraint(tuple(ids), resource, constraint.described)
        return ""

    # -- outcomes --------------------------------------------------------------------------------------

    def _drifted(self, info: PodInfo, kind: str, why: Why) -> None:
        known = self.drifts.get(info.uid, _NONE)
        if (known.kind, known.why) == (kind, why):
            return
        self._shared.count(f"device_drift_{kind}")
        can_repair = self._shared.settings.devices.repair
        self.drifts[info.uid] = Drift(kind, why)
        self.due.set(info.uid, self._shared.now_s if can_repair else NEVER_S)
        self._tell(
            info, str(why) if can_repair else f"{why}; repairAnnotations is off, so it is left as it is"
        )

    def _unusable(self, info: PodInfo, found: Why) -> None:
        if self.unusable.get(info.uid) == found:
            return
        settings = self._shared.settings
        evicts = settings.devices.on_mismatch == "evict"
        self._shared.count(f"device_drift_{UNUSABLE}")
        self.unusable[info.uid] = found
        self._evict_s.set(info.uid, self._shared.now_s if evicts else NEVER_S)
        why = "" if settings.allow_eviction else "allowEviction is off"
        why = why if evicts else "onMismatch is none"
        self._tell(info, f"{found}; {why}, so it is left alone" if why else f"{found}; it is evicted")

    def _usable_again(self, uid: str) -> None:
        self.unusable.pop(uid, None)
        self._evict_s.drop(uid)

    def _mended(self, info: PodInfo) -> None:
        self.drifts.pop(info.uid, None)
        self.due.drop(info.uid)
        self._confirm(info, info.allocation)

    def _confirm(self, info: PodInfo, allocation: Allocation) -> None:
        message = f"its annotations say what it has: {devices_text(allocation)}"
        self._reporter.pod_event(info.pod, "Normal", "DevicesConfirmed", ACTION, message)

    def _repair(self, info: PodInfo) -> None:
        drift = self.drifts[info.uid]
        if self._is_right(info, info.pod):
            self._mended(info)
            return
        self.due.set(info.uid, NEVER_S)
        if drift.is_sent:
            return
        drift.is_sent = True
        drift.n_tries += 1
        in_labels = self._shared.settings.devices.in_labels
        self._shared.emit(listing_patch(info, info.allocation, in_labels=in_labels))

    def _evict(self, info: PodInfo) -> None:
        shared = self._shared
        if info.pod.metadata.deletion_timestamp is None and shared.settings.allow_eviction:
            shared.evictions.ask(info, shared.now_s, info.group.cause_id if info.group else "")
        self._evict_s.set(info.uid, shared.evictions.again_s((info,), shared.now_s, _EVICT_AGAIN_S))

    def evict_soon(self, uid: str) -> None:
        """Repeats the pod's eviction now: what refused it has changed."""
        if self._evict_s.due_s(uid) != NEVER_S:
            self._evict_s.set(uid, self._shared.now_s)

    def _is_right(self, info: PodInfo, pod: Pod) -> bool:
        """Whether the pod's annotations, or its labels, agree with our records in content."""
        written = {k: v for k, v in (pod.metadata.annotations or {}).items() if is_device_key(k)}
        labels = allocated_labels(pod.metadata.labels)
        wanted = annotations_of(info)
        if written == wanted and not labels:
            return True
        allocation, problem = allocation_of(pod)
        if labels:
            return (
                not written
                and set(labels) == set(allocation_labels(info.allocation))
                and in_order(allocation) == in_order(info.allocation)
            )
        return (
            not problem
            and set(written) == set(wanted)
            and in_order(allocation) == in_order(info.allocation)
            and all(
                sorted(written[k].split(",")) == sorted(v.split(","))
                for k, v in wanted.items()
                if k != ALLOCATED_KEY
            )
        )

    def _pause_s(self, drift: Drift) -> float:
        return min(_FIRST_RETRY_S * 2.0 ** min(drift.n_tries, 30), _LONGEST_RETRY_S)

    def _tell(self, info: PodInfo, message: str) -> None:
        self._reporter.pod_event(
            info.pod, "Warning", REASON, ACTION, f"{info.pod.spec.node_name or info.node_name}: {message}"
        )


def _labels_text(allocation: Allocation) -> str:
    if allocation:
        return f"its labels were edited: {devices_text(allocation)}"
    return (
        "its device labels are missing: somebody removed them, or the API server drops the labels of a"
        " Binding (its feature PodTopologyLabelsAdmission is off)"
    )


class EndedPod(msgspec.Struct):
    """What is known about one of EndedPods."""

    node_name: str
    had: Allocation
    resources: tuple[str, ...]
    n_tries: int = 0
    is_sent: bool = False


class EndedPods:
    """Pods that got other devices than planned, and ended before their annotations were corrected; by UID.

    These pods no longer hold anything, so our records stay; only their annotations are corrected, from the
    report of the node's agent (model.devices.report, `ended`), which lists them until that is done.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self.pods: dict[str, EndedPod] = {}
        self._due: Deadlines[str] = Deadlines(shared.timers, DeadlineKind.ENDED_POD)
        """When to check each next; NEVER_S: only after another event."""

    def compare(self, name: str, report: DeviceReport) -> list[tuple[PodInfo, str]]:
        """Compares with a node's report; returns new findings: pods, and the message about each."""
        there = {one.uid: one for one in report.ended}
        self._drop_of(name, there)
        found = []
        for uid, one in there.items():
            info = self._shared.cache.pods.get(uid)
            if uid in self.pods or info is None or info.group is None or info.pod.spec.node_name != name:
                continue
            planned, had = self._planned_and_actual(info, one.containers, report.resources)
            if in_order(planned) != in_order(had):
                self.pods[uid] = EndedPod(name, one.containers, report.resources)
                self._due.set(uid, self._shared.now_s)
                instead = f"{devices_text(had)} instead of the planned {devices_text(planned)}"
                found.append((info, f"kubelet gave it {instead}, and it has ended"))
        return found

    def node_gone(self, name: str) -> None:
        """Drops the node's pods: no report will tell any more what they had."""
        self._drop_of(name, ())

    def advance(self) -> list[PodInfo]:
        """Writes the corrections that are due; returns pods whose annotations are correct now."""
        now_s, right = self._shared.now_s, []
        devices = self._shared.settings.devices
        for uid in self._due.due(now_s):
            ended_pod, info = self.pods[uid], self._shared.cache.pods.get(uid)
            if info is None:
                self._drop(uid)
                continue
            self._due.set(uid, now_s + _ENDED_RETRY_S)
            planned, had = self._planned_and_actual(info, ended_pod.had, ended_pod.resources)
            if in_order(planned) == in_order(had):
                self._drop(uid)
                right.append(info)
            elif info.state not in ENDED:
                pass  # the node's report came before the API server's event
            elif not devices.repair or ended_pod.is_sent:
                self._due.set(uid, NEVER_S)
            else:
                ended_pod.is_sent = True
                self._due.set(uid, NEVER_S)
                ended_pod.n_tries += 1
                self._shared.emit(listing_patch(info, had, in_labels=devices.in_labels))
        return right

    def _drop_of(self, name: str, there: Container[str]) -> None:
        """Drops this node's pods, except those in `there`."""
        for uid in [uid for uid, one in self.pods.items() if one.node_name == name and uid not in there]:
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        del self.pods[uid]
        self._due.drop(uid)

    def answered(self, uid: str, *, again_s: float) -> bool:
        """Takes in a patch's answer: checks again after `again_s`. False: the patch was not for an ended
        pod."""
        ended_pod = self.pods.get(uid)
        if ended_pod is None or not ended_pod.is_sent:
            return False
        ended_pod.is_sent = False
        pause_s = min(_ENDED_RETRY_S * 2.0 ** min(ended_pod.n_tries, 10), _LONGEST_RETRY_S)
        self._due.set(uid, self._shared.now_s + max(again_s, pause_s))
        return True

    def _planned_and_actual(
        self, info: PodInfo, containers: Allocation, resources: tuple[str, ...]
    ) -> tuple[Allocation, Allocation]:
        planned, _ = allocation_of(info.pod)
        return planned, as_reported(info.pod, planned, containers, resources)


_NONE = Drift("", "")
_NO_REPORT: tuple[str, DeviceReport] = ("", DeviceReport())
_NOBODY: frozenset[str] = frozenset()
