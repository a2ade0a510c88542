"""Extenders: asks extenders about a group's nodes for one attempt, while the group waits.

Extenders are other programs: a request to them is an effect, their answer is an event, and in between the
group waits (state Asking). They are asked once for each template of the members of the group and its
siblings, about the nodes that would take one pod now. The answers hold for the next attempt only. In profiles
they act as a plugin: a Filter, and a Score on kube-scheduler's scale. Source: kube-scheduler
`schedule_one.go` (findNodesThatPassExtenders, prioritizeNodes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BindPlugin,
    BoolArray,
    CycleState,
    FloatArray,
    IntArray,
    Status,
)
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.profile import Profile
from gangsched.core.groups.attempts.commits import Commits
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import NEVER_S, Group, GroupState, MemberState, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why
from gangsched.core.why.not_tried import ExtendersSilent
from gangsched.model.effects import AskExtenders
from gangsched.model.events import ExtendersAnswered
from gangsched.model.objects import PodSpec
from gangsched.model.pod_group import GroupKey

# Extenders score 0 to 10, nodes 0 to 100.
EXTENDER_SCALE = 10
# A plugin's scores end at 100, an extender's sum is unbounded. A power of two keeps whole numbers exact.
_UNIT = 2.0**40
# The edge answers within the extenders' own timeouts; this guards against a failing edge.
_SLACK_S = 30.0
_NOBODY = ExtendersAnswered(0)
_RESTING = (GroupState.ASKING, GroupState.WAITING)
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)


class Interest(msgspec.Struct, frozen=True):
    """One extender as the core knows it. managed: its resources; empty: every pod concerns it.

    is_asked: whether it is asked about nodes; False for one that only binds.
    """

    name: str
    managed: Collection[str] = ()
    timeout_s: float = 5.0
    is_asked: bool = True

    def wants(self, spec: PodSpec) -> bool:
        """Whether to ask it about nodes for such a pod."""
        return self.is_asked and self.manages(spec)

    def manages(self, spec: PodSpec) -> bool:
        """Whether a container names one of its resources, in requests or in limits."""
        if not self.managed:
            return True
        for container in (*spec.containers, *(spec.init_containers or ())):
            resources = container.resources
            for listed in (resources.requests, resources.limits) if resources is not None else ():
                if any(name in self.managed for name in listed or ()):
                    return True
        return False


class ExtenderVerdicts:
    """The plugin: answers for the current attempt, by template."""

    name = "Extenders"
    weight = _UNIT

    def __init__(self, interests: Sequence[Interest], binder: BindPlugin | None = None) -> None:
        """`binder`: the binding extender's plugin, if any; it comes before all others."""
        self.interests = interests
        self.binder = binder
        self.current: Mapping[int, ExtendersAnswered] = {}

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        return SUCCESS if template.serial in self.current else SKIP

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        """Nodes not asked about fail; on a Trial with pods removed, all but refused ones pass."""
        answer = self.current.get(template.serial)
        if answer is None:
            return None
        trials = isinstance(view, Trial) and view.lacks_pods
        mask = np.full(view.n_rows, trials, dtype=np.bool_)
        if trials:
            mask[_rows(answer.failed, view)] = False
        else:
            mask[_rows(answer.nodes, view)] = True
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: RowQueries
    ) -> Sequence[tuple[str, BoolArray]]:
        answer = self.current.get(template.serial, _NOBODY)
        by_reason: dict[str, list[str]] = {}
        for node, why in answer.failed.items():
            by_reason.setdefault(why or "node(s) were refused by an extender", []).append(node)
        found = []
        for why, nodes in by_reason.items():
            mask = np.zeros(view.n_rows, dtype=np.bool_)
            mask[_rows(nodes, view)] = True
            found.append((why, mask))
        return found

    def score(
        self, state: CycleState, template: PodTemplate, view: RowQueries, rows: IntArray
    ) -> FloatArray | None:
        """Times `weight` it is kube-scheduler's value: the sum of 10 * score * the extender's weight."""
        answer = self.current.get(template.serial)
        if answer is None or not answer.scores:
            return None
        total: FloatArray = np.zeros(view.n_rows, dtype=np.float64)
        for node, score in answer.scores.items():
            row = view.row_of(node)
            if row is not None:
                total[row] = score * EXTENDER_SCALE / _UNIT
        return total[rows]


class _Asked:
    """One group's open requests. open: ticket -> template; answers: by template."""

    __slots__ = ("answers", "group", "open")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.open: dict[int, int] = {}
        self.answers: dict[int, ExtendersAnswered] = {}


class Extenders:
    """Sends requests for groups, keeps the answers, and lets the groups wait in between."""

    def __init__(
        self,
        verdicts: ExtenderVerdicts,
        shared: SharedState,
        reporter: Reporter,
        commits: Commits,
    ) -> None:
        self._interests = verdicts.interests
        self._verdicts = verdicts
        self._shared = shared
        self._reporter = reporter
        self._commits = commits
        self._asked: dict[GroupKey, _Asked] = {}
        self._whose: dict[int, GroupKey] = {}
        self._last_ticket = 0

    def must_wait(self, group: Group) -> bool:
        """Whether the group must wait for extenders; if not, their answers hold until `spent`."""
        asked = self._asked.get(group.key)
        if asked is None or asked.group is not group:
            asked = self._asked[group.key] = _Asked(group)
        if not asked.open:
            for profile, info in self._to_ask(group):
                serial = info.template.serial
                if serial not in asked.answers and not self._ask(asked, profile, info):
                    asked.answers[serial] = _NOBODY
        if asked.open:
            self._rest(group)
            return True
        answers = asked.answers.items()
        self._verdicts.current = {serial: answer for serial, answer in answers if answer is not _NOBODY}
        return False

    def forget(self, group: Group) -> None:
        """Forgets the answers after the attempt."""
        self._verdicts.current = {}
        self._asked.pop(group.key, None)

    def answered(self, event: ExtendersAnswered) -> None:
        """Takes answers; the group is back in line when all its templates are answered."""
        key = self._whose.pop(event.ticket, None)
        asked = self._asked.get(key) if key is not None else None
        if asked is None or event.ticket not in asked.open:
            return
        group, serial = asked.group, asked.open.pop(event.ticket)
        if self._shared.groups.get(group.key) is not group or group.state not in _RESTING:
            del self._asked[group.key]  # gone, or decided with others that it starts together with
        elif event.error:
            self._fail(group, event.error)
        else:
            asked.answers[serial] = event
            if not asked.open:
                self._shared.queue.activate(group, Cause.EXTENDERS_ANSWERED)

    def expire(self, group: Group) -> None:
        """Fails the attempt, as no answer arrived in time."""
        self._fail(group, ExtendersSilent())

    def _fail(self, group: Group, why: Why) -> None:
        """Ends the attempt before it has begun; a retry may succeed."""
        shared = self._shared
        self._asked.pop(group.key, None)
        shared.count("extender_errors")
        if group.state is GroupState.WAITING:
            self._commits.give_back(group, why)
        else:
            shared.queue.back_off(group, Cause.EXTENDERS_FAILED, shared.now_s)
            self._reporter.rejected(group, why)

    def _rest(self, group: Group) -> None:
        """Lets the group wait; one with reservations keeps its own deadline."""
        if group.state is GroupState.WAITING:
            return
        if group.state is not GroupState.ASKING or group.deadline_s == NEVER_S:
            patience_s = 2 * sum(one.timeout_s for one in self._interests) + _SLACK_S
            self._shared.queue.park(group, Cause.ASKED_EXTENDERS, self._shared.now_s + patience_s)

    def _to_ask(self, group: Group) -> Iterator[tuple[Profile, PodInfo]]:
        """One member of each template of the group and its siblings."""
        seen: set[int] = set()
        for each in (group, *(one for _, one in sorted(self._shared.siblings(group).items()))):
            for info in each.in_state(MemberState.PENDING):
                if info.template.serial not in seen:
                    seen.add(info.template.serial)
                    yield self._shared.profile_of(each), info

    def _ask(self, asked: _Asked, profile: Profile, info: PodInfo) -> bool:
        """Sends a request; returns whether there was an extender to ask and a node to ask about."""
        template, view = info.template, self._shared.cache.view
        wanting = tuple(i for i, one in enumerate(self._interests) if one.wants(template.spec))
        if not wanting or template.problem:
            return False
        state = CycleState()
        try:
            fits = profile.run_pre_filter(state, template, view).is_success
            rows = np.flatnonzero(profile.capacity(state, template, view) > 0) if fits else _NO_ROWS
        except PluginError:
            return False  # the attempt meets the same problem and reports it
        if not len(rows):
            return False
        self._last_ticket += 1
        asked.open[self._last_ticket] = template.serial
        self._whose[self._last_ticket] = asked.group.key
        meta = info.pod.metadata
        nodes = tuple(view.name(int(row)) for row in rows)
        self._shared.emit(
            AskExtenders(
                self._last_ticket,
                info.uid,
                meta.namespace,
                meta.name,
                nodes,
                wanting,
                asked.group.cause_id,
            )
        )
        return True


def _rows(nodes: Collection[str], view: RowQueries) -> IntArray:
    """int64[k]: the nodes' rows; nodes that are gone are left out."""
    rows = [row for row in map(view.row_of, nodes) if row is not None and row < view.n_rows]
    return np.array(rows, dtype=np.int64)
