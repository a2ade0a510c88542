"""What the Node should state of its devices, and when to write it: pure, takes events and the time.

| the Node is | on | then it is | effect |
|---|---|---|---|
| unknown | next turn, after any backoff | being read | ReadNode |
| being read | the Node | known | |
| being read | not found, or a failure | unknown, backing off | |
| known | the heartbeat is due | being read | ReadNode |
| known | all sources have reported or timed out; the list differs | being written | WriteNode |
| being written | the Node, as it is written | known | |
| being written | 409, 422: it was changed or recreated since it was read | unknown | |
| being written | another failure | unknown, backing off | |

One request is in flight at a time. A heartbeat reads, and writes only differences: the annotation contains no
time. A foreign change that it finds is reported and overwritten. Not here: sources, requests, logs (`app`),
which sources have reported (`agent.report.source_reports`), which devices are listed
(`agent.report.inventory`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from random import Random
from typing import Literal, NamedTuple

from gangsched.agent.node import MAX_ANNOTATION_BYTES, SeenNode, annotation_bytes
from gangsched.agent.report.fitting import fits, most, with_health
from gangsched.agent.report.holders import Holders
from gangsched.agent.report.inventory import (
    Listed,
    as_labels_can,
    by_id,
    merge,
    with_the_vanished,
)
from gangsched.agent.report.inventory import (
    changes as differences,
)
from gangsched.agent.report.notices import Notice, Notices
from gangsched.agent.report.reports import Report, Silence
from gangsched.agent.report.source_reports import SourceReports
from gangsched.agent.sources.device_file import check_id
from gangsched.errors import ApiError, ParseError
from gangsched.kube.reach import is_logged
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.devices.annotations import (
    INVENTORY_KEY,
    MAX_DEVICES,
    inventory_annotation,
    parse_devices,
)
from gangsched.model.devices.labels import (
    inventory_keys,
    inventory_labels,
    inventory_text,
    where_listed,
)
from gangsched.model.events import Event
from gangsched.model.text.server_refusals import says_right_is_missing

# A flickering device causes no more than one write in this time.
WRITE_APART_S = 1.0
# Frequent writers of the Node (kubelet writes every few seconds) may cause at most this many conflicts in a
# row before a pause.
MAX_CONFLICTS = 5
MAX_BACKOFF_S = 30.0
# Devices of one resource that reappear under ever new IDs must not accumulate.
_MAX_KNOWN = 4 * MAX_DEVICES
# At most this many changes are written out in a log line.
_MAX_SAID = 8


class ReadNode(NamedTuple):
    """GET the Node."""


class WriteNode(NamedTuple):
    """PATCH the Node's annotations and labels, as `node.node_patch` writes them; None: remove."""

    uid: str
    resource_version: str
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = {}


class InventoryReporter:
    """One node's reporter. `sources`: names in order of precedence, and what their silence means."""

    def __init__(
        self,
        node: str,
        sources: Mapping[str, Silence],
        *,
        heartbeat_s: float,
        rng: Random,
        in_labels: bool = False,
    ) -> None:
        """in_labels: labels carry the list, and the annotation is removed; else the reverse."""
        self.node = node
        self._in_labels = in_labels
        self.holders = Holders()
        self.notices = Notices(node)
        self.is_in_step = False
        self.n_writes = 0
        self._source_reports = SourceReports(sources, self.notices)
        self._heartbeat_s = heartbeat_s
        self._rng = rng
        self._backoff = Backoff(rng, max_s=MAX_BACKOFF_S)
        self._seen: SeenNode | None = None
        self._busy = False
        self._n_conflicts = 0
        self._is_outrun = False
        self._not_before_s = -math.inf
        self._read_due_s = -math.inf
        self._write_from_s = -math.inf
        self._again_s = math.inf
        self._is_seeded = False
        self._known: Listed = {}
        self._last: Listed = {}
        self._on_node: Listed = {}
        self._carried: Listed = {}
        self._labels: Mapping[str, str] = {}
        self._value: str | None = None
        self._stale = True
        self._notes: dict[str, str] = {}
        self._agreed: tuple[str, str | None] | None = None
        self._sent = ""
        self._written = WriteNode("", "", {})

    # -- events ----------------------------------------------------------------------------------------------

    def source_reported(self, report: Report, now_s: float) -> None:
        self._stale = self._source_reports.take(report, now_s) or self._stale

    def pods_changed(self, events: Iterable[Event]) -> None:
        """Events of the pods bound to this node."""
        self.holders.apply(events)
        self._stale = self._stale or self.holders.changed
        self.holders.changed = False

    def note(self, key: str, value: str) -> None:
        """Set an annotation that another room of the agent reports on the Node."""
        self._notes[key] = value

    def node_read(self, seen: SeenNode, now_s: float) -> None:
        self._busy = False
        self._found(seen, now_s)
        if not self._is_seeded:
            self._seed(seen)
        elif self._is_anothers(seen):
            self._agreed = None
            who = seen.writer or "a writer that the API server does not name"
            self.notices.tell(
                "warning",
                f"{where_listed(seen.annotations)} was changed by {who}, and is written anew:"
                " one agent, and nobody else, may write it for a node",
            )

    def written(self, seen: SeenNode, now_s: float) -> None:
        """The Node as the API server stored it after our write."""
        self._busy = False
        self.n_writes += 1
        self._n_conflicts = 0
        self._is_outrun = False
        self._found(seen, now_s)
        self._write_from_s = now_s + WRITE_APART_S
        sent = self._written
        altered = [key for key, text in sent.annotations.items() if seen.annotations.get(key) != text]
        altered += [key for key, text in sent.labels.items() if seen.labels.get(key) != text]
        if altered:
            # Most likely an admission policy; an immediate retry would repeat for ever.
            self._write_from_s = now_s + self._heartbeat_s
            self.notices.say(
                "altered", "error", f"the API server stored another {altered[0]} than was written"
            )
            return
        self.notices.cleared("altered", "the API server stores what is written")
        if sent.labels or INVENTORY_KEY in sent.annotations:
            self._agreed = (seen.uid, self._sent)
            self._tell_changes()

    def failed(self, doing: Literal["read", "write"], error: ApiError, now_s: float) -> None:
        """The decided request failed; code 0: the outcome is unknown."""
        self._busy = False
        self._seen = None
        conflict = doing == "write" and error.code in (409, 422)
        if conflict and self._n_conflicts < MAX_CONFLICTS:
            self._n_conflicts += 1
            return
        self._n_conflicts = 0
        self._is_outrun = conflict
        self._not_before_s = now_s + self._backoff.next_s(error.retry_after_s)
        self.is_in_step = False
        if not is_logged(error):
            self.notices.say("api", "warning", explained(error, doing, self.node))

    # -- decisions -------------------------------------------------------------------------------------------

    def decide(self, now_s: float) -> ReadNode | WriteNode | None:
        """The next request; call again after each answer and at `next_deadline_s`."""
        self._stale = self._source_reports.note_silence(now_s) or self._stale
        self._again_s = math.inf
        if self._busy:
            return None
        if self._seen is None or now_s >= self._read_due_s:
            if now_s < self._not_before_s:
                self._again_s = self._not_before_s
                return None
            self._busy = True
            return ReadNode()
        self._again_s = self._read_due_s
        if not self._source_reports.is_complete:
            return None
        if self._stale:
            self._compute()
        value = self._value
        if value is None or value == self._seen.value:
            self._agreed = (self._seen.uid, self._seen.value)
        change = self._unwritten(self._seen)
        self.is_in_step = not (change.annotations or change.labels)
        change = self._fitting(change, self._seen)
        if not (change.annotations or change.labels):
            return None
        if now_s < self._write_from_s:
            self._again_s = min(self._write_from_s, self._read_due_s)
            return None
        self._busy = True
        self._sent = change.annotations.get(INVENTORY_KEY) or (self._sent if value is None else value)
        self._written = change
        return change

    def next_deadline_s(self) -> float:
        """When to call `decide` again without an event."""
        return min(self._again_s, self._source_reports.next_deadline_s())

    def take_notices(self) -> list[Notice]:
        return self.notices.take()

    @property
    def listed(self) -> Listed | None:
        """The devices that the Node should list; None before all sources have reported or timed out.

        Also while the API server is away: kubelet learns of a sick device nevertheless.
        """
        if self._stale and self._is_seeded and self._source_reports.is_complete:
            self._compute()
        return None if self._stale else self._last

    def value(self) -> str | None:
        """The annotation that the Node should have; None: nothing was ever found."""
        self._compute()
        return self._value

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that carry the list, if labels do."""
        return self._labels

    # -- the Node --------------------------------------------------------------------------------------------

    def _found(self, seen: SeenNode, now_s: float) -> None:
        self._seen = seen
        self._read_due_s = now_s + self._heartbeat_s * self._rng.uniform(0.8, 1.2)
        if not self._is_outrun:  # after conflicts only a successful write means that all is well
            self._backoff.reset()
            self.notices.cleared("api", "the node is read again")
        self._stale = True

    def _seed(self, seen: SeenNode) -> None:
        """Take over our predecessor's list: a device no longer found may still be held."""
        self._is_seeded = True
        if seen.value is None:
            return
        try:
            listed = parse_devices(seen.value)
        except ParseError as error:
            self.notices.tell(
                "warning", f"what the node said until now is not readable and replaced: {error}"
            )
            return
        # Anybody who may patch Nodes may have written it. No source lists an ID with a problem.
        sound = {of: [one for one in devices if not check_id(one.id)] for of, devices in listed.items()}
        self._known = by_id(sound)
        self._last = {resource: dict(devices) for resource, devices in self._known.items()}
        self._on_node = self._last

    def _is_anothers(self, seen: SeenNode) -> bool:
        """Whether the value is neither our last confirmed one nor an unconfirmed write of ours."""
        if self._agreed is None or self._agreed[0] != seen.uid:
            return False
        return seen.value not in (self._agreed[1], self._sent)

    def _unwritten(self, seen: SeenNode) -> WriteNode:
        """The missing changes, including removal from whichever of the two forms is unused."""
        annotations: dict[str, str | None] = {}
        labels: dict[str, str | None] = {}
        if self._value is not None:
            annotations[INVENTORY_KEY] = None if self._in_labels else self._value
            labels = dict.fromkeys(inventory_keys(seen.labels))
            labels |= self._labels
        annotations |= self._notes
        return WriteNode(
            seen.uid,
            seen.resource_version,
            {key: text for key, text in annotations.items() if seen.annotations.get(key) != text},
            {key: text for key, text in labels.items() if seen.labels.get(key) != text},
        )

    def _fitting(self, change: WriteNode, seen: SeenNode) -> WriteNode:
        changed, on_node = change.annotations, seen.annotations
        if fits(changed, on_node):
            self.notices.cleared("size", "the inventory fits the Node again")
            return change
        n_bytes = annotation_bytes({**on_node, **changed})
        self.notices.say(
            "size",
            "error",
            f"the inventory does not fit the Node: its annotations would have {n_bytes} bytes"
            f" ({n_bytes - annotation_bytes(changed)} are others'), the API server takes"
            f" {MAX_ANNOTATION_BYTES} in all;"
            " list fewer devices on this node, or leave out `links` and `model` in the files",
        )
        known = with_health(self._on_node, self._last)
        some = most(changed, on_node, known)
        if (some.get(INVENTORY_KEY) or self._value) != self._value:
            self._carried = known
        return change._replace(annotations=some)

    # -- the devices -----------------------------------------------------------------------------------------

    def _compute(self) -> None:
        self._stale = False
        reports = self._source_reports.reports()
        merged = merge(reports)
        self._last = with_the_vanished(
            merged.listed,
            self._known,
            last=self._last,
            is_held=self._is_held,
            whole=all(report.whole for report in reports),
            sick=self._source_reports.is_blind,
        )
        for resource, devices in self._last.items():
            known = self._known.setdefault(resource, {})
            known.update(devices)
            if len(known) > _MAX_KNOWN:
                self._known[resource] = dict(devices)
        unsaid = self._carry()
        if not self._last:
            looked = "; ".join(report.looked for report in reports if report.looked) or "nowhere"
            self.notices.say("empty", "info", f"no devices found; looked at: {looked}")
            self._value = None if self._seen is None or self._seen.value is None else self._value
        problems = [problem for report in reports for problem in report.problems]
        self.notices.problems((*problems, *merged.problems, *self.holders.problems()))
        self.notices.report_unlabelled(unsaid)

    def _carry(self) -> tuple[str, ...]:
        """Build the form that is written; returns what labels cannot express."""
        self._carried = self._last
        if not self._in_labels:
            self._value = inventory_annotation({of: there.values() for of, there in self._last.items()})
            return ()
        carried = as_labels_can(self._last, self._on_node)
        if carried.listed is None:
            self._value, self._labels = None, {}
            return carried.problems
        self._carried = carried.listed
        self._labels = inventory_labels({of: there.values() for of, there in carried.listed.items()})
        self._value = inventory_text(None, self._labels) or inventory_annotation({})
        return carried.problems

    def _is_held(self, resource: str, device_id: str) -> bool:
        if not self.holders.is_known:
            return device_id in self._last.get(resource, {})
        return self.holders.holds(resource, device_id)

    # -- messages --------------------------------------------------------------------------------------------

    def changes(self) -> str:
        """How the list to be written differs from the Node's, for people."""
        different = differences(self._on_node, self._carried)
        more = f" and {len(different) - _MAX_SAID} more" if len(different) > _MAX_SAID else ""
        return "; ".join(different[:_MAX_SAID]) + more or "none"

    def _tell_changes(self) -> None:
        different = self.changes()
        self._on_node = self._carried
        devices = [device for there in self._carried.values() for device in there.values()]
        self.notices.tell(
            "info",
            "inventory written",
            devices=len(devices),
            healthy=sum(device.health == "Healthy" for device in devices),
            changes=different,
        )


def explained(error: ApiError, doing: Literal["read", "write"], node: str) -> str:
    """A failure in one line, with the cure if it is known."""
    verb = "get" if doing == "read" else "patch"
    if error.code == 403 and says_right_is_missing(error.message, verb):
        cure = f"the verb is {verb} on nodes, as deploy/agent/rbac.yaml grants it"
        return f"no right to {doing} the node; {cure}: {error}"
    if error.code == 404:
        return f"there is no node {node!r} now: waiting for it"
    return f"the node cannot be {'read' if doing == 'read' else 'written'}: {error}"
