"""Shadow: wraps the core for the loop and lets none of its writes out.

Our binds are answered by the other scheduler's actions: when the watch shows the pod bound, its node replaces
ours; when the other scheduler reports that the pod does not fit, or does nothing for PATIENCE_S, our bind
fails and the room is released. If both decide at the same time, news of its bind is held back until we have
decided too; else the faster one would never be compared. All other writes of the core are dropped.

Lives here: this wrapper; it is synchronous like the core. Not here: the results (records.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, GroupState, MemberState
from gangsched.errors import GangschedError
from gangsched.model import events as ev
from gangsched.model.effects import AskExtenders, BindPod, Effect
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean
from gangsched.shadow.judge import Judgement, judge, with_extenders
from gangsched.shadow.records import PodRecord, Records

PATIENCE_S = 30.0
"""How long a decision holds its room while the other scheduler does nothing."""
_TURN_IS_NEAR = (GroupState.ACTIVE, GroupState.ASKING)
_REFUSED = (GroupState.UNSCHEDULABLE, GroupState.BACKOFF)


class Shadow:
    """Stands in for the Scheduler; `records` has the results."""

    def __init__(
        self, scheduler: Scheduler, judges: Mapping[str, Profile], *, patience_s: float = PATIENCE_S
    ) -> None:
        """`judges`: separate profiles by schedulerName, to explain why another node was not chosen."""
        self._scheduler = scheduler
        self._judges = judges
        self._patience_s = patience_s
        self.records = Records()
        shared = scheduler.shared
        everybody = (*shared.profiles.values(), *judges.values())
        shared.cache.keep_usage_trackers(one for profile in everybody for one in profile.usage_trackers)
        self._unplaced: set[str] = set()
        """Pods that the other scheduler has not placed, as far as the core knows."""
        self._held: dict[str, ev.PodAdded | ev.PodUpdated] = {}
        self._open: dict[str, tuple[float, int]] = {}
        """Our binds without an answer: UID -> (when patience ends, attempt), oldest first."""
        self._answers: list[ev.Event] = []
        self._questions: list[Effect] = []
        self._asked_about: dict[int, str] = {}
        """UIDs by ticket of the extenders' requests."""
        self._extender_answers: dict[str, ev.ExtendersAnswered] = {}

    # -- the scheduler's interface ----------------------------------------------------------------------

    def handle(self, events: Sequence[ev.Event], now_s: float) -> list[Effect]:
        passed = [event for event in events if self._passes(event, now_s)]
        self._take(self._scheduler.handle(passed, now_s), now_s, {})
        return self._settle(now_s)

    def advance(self, now_s: float) -> list[Effect]:
        for uid, (deadline_s, attempt) in list(self._open.items()):
            if deadline_s > now_s:
                break
            self._fail(uid, attempt, f"the other scheduler has not placed it after {self._patience_s:g} s")
        self._take(self._scheduler.advance(now_s), now_s, {})
        return self._settle(now_s)

    def pop(self) -> Group | None:
        return self._scheduler.pop()

    def schedule(self, group: Group, now_s: float) -> list[Effect]:
        judged = self._judge(group)
        self._take(self._scheduler.schedule(group, now_s), now_s, judged)
        for each in (group, *self._scheduler.shared.siblings(group).values()):
            self._note(each, now_s)
        return self._settle(now_s)

    def next_deadline_s(self) -> float | None:
        times = [deadline_s for deadline_s, _ in list(self._open.values())[:1]]
        own = self._scheduler.next_deadline_s()
        return min([*times, own] if own is not None else times, default=None)

    # -- the other scheduler's actions -----------------------------------------------------------------

    def _passes(self, event: ev.Event, now_s: float) -> bool:
        """Whether the core may get it now."""
        if isinstance(event, ev.PodDeleted):
            self._forget(event.pod.metadata.uid)
            return True
        if isinstance(event, ev.ExtendersAnswered):
            self._extender_answers[self._asked_about.pop(event.ticket, "")] = event
        if not isinstance(event, ev.PodAdded | ev.PodUpdated):
            return True
        pod, uid = event.pod, event.pod.metadata.uid
        if pod.spec.scheduler_name not in self._judges:
            return True
        if not pod.spec.node_name:
            if uid not in self._unplaced and pod.metadata.deletion_timestamp is None:
                self._unplaced.add(uid)
                self.records.seen(uid, PodRecord(pod.key, pod.key, False, now_s))
            self._heard_refusal(pod)
            return True
        if uid not in self._unplaced:
            return True
        self.records.they_bound(uid, pod.spec.node_name, now_s)
        self._held[uid] = event
        return False

    def _heard_refusal(self, pod: Pod) -> None:
        """Records that the other scheduler's condition on the pod reports that it does not fit."""
        uid = pod.metadata.uid
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
                record = self.records.get(uid)
                is_new = record is not None and record.theirs_said != condition.message
                self.records.they_refused(uid, condition.message)
                if is_new and uid in self._open:
                    self._fail(uid, self._open[uid][1], "the other scheduler says that it does not fit")

    def _fail(self, uid: str, attempt: int, why: str) -> None:
        del self._open[uid]
        self._answers.append(ev.BindFailed(uid, attempt, 409, "Conflict", why))

    def _forget(self, uid: str) -> None:
        self.records.gone(uid)
        self._unplaced.discard(uid)
        self._held.pop(uid, None)
        self._open.pop(uid, None)
        self._extender_answers.pop(uid, None)

    def _settle(self, now_s: float) -> list[Effect]:
        """Gives the core the events it may get now, until none are left. Only extenders' requests get out."""
        while True:
            events = self._answers + self._released(now_s)
            self._answers = []
            if not events:
                questions, self._questions = self._questions, []
                return questions
            self._take(self._scheduler.handle(events, now_s), now_s, {})

    def _released(self, now_s: float) -> list[ev.Event]:
        """Returns the other scheduler's binds of pods that we have decided about, or whose turn is not
        near."""
        cache = self._scheduler.shared.cache
        released: list[ev.Event] = []
        for uid, event in list(self._held.items()):
            info = cache.pods.get(uid)
            group = info.group if info is not None else None
            if group is not None and group.state in _TURN_IS_NEAR and self._scheduler.is_synced:
                continue
            if group is not None:
                self._say_why_not(uid, group, now_s)
            self.records.close(uid, cache.nodes.row_of.get(event.pod.spec.node_name))
            del self._held[uid]
            self._unplaced.discard(uid)
            self._open.pop(uid, None)
            released.append(event)
        return released

    # -- our decisions ---------------------------------------------------------------------------------

    def _judge(self, group: Group) -> dict[str, Judgement]:
        """Returns a lone pod's node scores before it is placed; gangs are packed, which scores do not
        explain."""
        members = group.in_state(MemberState.PENDING)
        answers = [
            answer for info in members if (answer := self._extender_answers.pop(info.uid, None)) is not None
        ]
        if group.is_gang or len(members) != 1:
            return {}
        profile = self._judges.get(group.scheduler_name)
        if profile is None:
            return {}
        uid, view = members[0].uid, self._scheduler.shared.cache.view
        try:
            judged = judge(profile, members[0].template, view)
        except GangschedError:
            return {}  # a plugin's fault, which the attempt itself reports
        return {uid: with_extenders(judged, answers[0], view) if answers else judged}

    def _take(self, effects: Sequence[Effect], now_s: float, judged: Mapping[str, Judgement]) -> None:
        """Records the core's binds, which wait for their answer; drops everything else."""
        for effect in effects:
            if isinstance(effect, AskExtenders):
                self._questions.append(effect)
                self._asked_about[effect.ticket] = effect.uid
            if not isinstance(effect, BindPod):
                continue
            self._open[effect.uid] = (now_s + self._patience_s, effect.attempt)
            self._name_group(effect.uid)
            row = self._scheduler.shared.cache.nodes.row_of.get(effect.node)
            judgement = judged.get(effect.uid)
            found = (judgement, row) if judgement is not None and row is not None else None
            self.records.chose(effect.uid, effect.node, now_s, judged=found)

    def _note(self, group: Group, now_s: float) -> None:
        """Records the attempt's result for members that are not being bound."""
        if group.state in _REFUSED:
            for info in group.in_state(MemberState.PENDING):
                self._name_group(info.uid)
                self.records.refused(info.uid, clean(group.message), now_s)
        elif group.state is GroupState.WAITING:
            for info in group.in_state(MemberState.ASSUMED):
                self._name_group(info.uid)
                self.records.chose(info.uid, info.node_name, now_s, waits=clean(group.message))

    def _say_why_not(self, uid: str, group: Group, now_s: float) -> None:
        """Records why we had not decided about a pod that they have placed."""
        record = self.records.get(uid)
        self._name_group(uid)
        if record is None or record.ours or record.ours_said:
            return
        n, needed = group.n_existing, group.min_count
        reason = clean(str(group.problem) or group.message) or f"{n} of {needed} members exist"
        self.records.refused(uid, reason, now_s)

    def _name_group(self, uid: str) -> None:
        record, info = self.records.get(uid), self._scheduler.shared.cache.pods.get(uid)
        if record is not None and info is not None and info.group is not None:
            record.group, record.is_gang = str(info.group.key), info.group.is_gang
