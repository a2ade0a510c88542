"""SimApi: the API server as the scheduler sees it. It carries out effects and returns their outcomes as
events.

Every check that kube-apiserver makes on a Binding is made here, in its order; the network's behaviour is
lab.sim.world.weather', the watch's is lab.sim.world.streams'. All other actors change lab.sim.world.store
directly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.fence import FenceObject
from gangsched.lab.sim.world.hooks import SimHooks
from gangsched.lab.sim.world.resource_claims.server import ClaimServer
from gangsched.lab.sim.world.store import SimStore
from gangsched.lab.sim.world.streams import API_VERSIONS
from gangsched.lab.sim.world.weather import BindFate, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev

GRACE_KEY = "sim/grace-s"
"""How long an evicted pod takes to go, if it differs from the default."""
# The most binds that kube.effects.binding_lane has in flight.
PARALLEL_BINDS = 16
# Shorter than in kube.effects.bumps, so that late binds arrive after the bumps as well as before them.
_BUMP_TIMEOUT_S = 0.5


class SimApi(SimStore):
    """The store, and the scheduler's requests in flight."""

    def __init__(
        self,
        timeline: Timeline,
        weather: Weather,
        answer: Callable[[ev.Event], None],
        peer: SimApi | None = None,
    ) -> None:
        super().__init__(timeline, weather, answer, peer)
        self.recorded: list[ef.RecordEvent] = []
        self.eviction_grace_s = 1.0
        self.longest_grace_s = 1.0
        """The longest grace of any pod evicted so far."""
        self.checks_bind_uid = True
        """False: the server ignores the UID precondition, as if the binding had none."""
        self.checks_bind_version = True
        self.fence: FenceObject = FenceObject() if peer is None else peer.fence
        self.is_fenced = False
        """True: binds outlive their process, and a refusal of one proves nothing about earlier ones."""
        self._on_the_way: dict[int, ef.BindPod] = {}
        self._n_sent = 0
        self._session = 0
        self._n_binding = 0
        self._n_asked = 0
        self._rests_until_s: dict[str, float] = {}
        """By kind of request: when the next may be sent, after a 429."""
        self._last_s: dict[str, float] = {}
        """By UID of a PodGroup: when its last status arrives; a lane sends those of one object in order."""
        self._binds: deque[ef.BindPod] = deque()
        self.hooks = SimHooks(timeline, weather, answer, self._commit)
        others = None if peer is None else peer.claims
        self.claims: ClaimServer = ClaimServer(self, timeline, weather, answer, self._there_s, others)

    @property
    def is_quiet(self) -> bool:
        """Whether no request, answer or watch event is in flight."""
        if self._n_binding or self._n_asked or self._binds or self.hooks.n_open or self.claims.n_open:
            return False
        for stream in self.streams.values():  # noqa: SIM110 (asked every turn; a generator is twice as slow)
            if stream.n_on_the_way:
                return False
        return True

    # -- the scheduler's process -----------------------------------------------------------------------

    def hang_up(self) -> None:
        """Ends the process: it gets no more answers, and its queues are lost.

        Without a fence each of its binds in flight is committed now or never: one committed after another
        process has listed its pod as unbound would do harm.
        """
        if not self.is_fenced:
            for bind in self._on_the_way.values():
                if self._weather.coin():
                    self._commit(bind)
            self._on_the_way.clear()
        self._session += 1
        self._n_binding = self._n_asked = 0
        self._binds.clear()
        self.hooks.forget()
        self.claims.hang_up()
        for stream in self.streams.values():
            stream.hang_up()

    def connect(self, *, down_s: Callable[[], float]) -> None:
        """Starts a new process, which lists everything."""
        for stream in self.streams.values():
            unread_s = self._weather.unread_s() if stream.is_optional else 0.0
            stream.reconnect(down_s(), unread_s=unread_s)

    @property
    def unread_dialects(self) -> frozenset[str]:
        """Those whose PodGroups the process has not listed yet."""
        return frozenset(
            s.kind.partition(".")[2] for s in self.streams.values() if s.is_optional and not s.is_read
        )

    def binds_under_way(self) -> list[ef.BindPod]:
        """Returns binds that have left the process and not reached the server."""
        return list(self._on_the_way.values())

    def carry_out(self, effect: ef.Effect) -> None:
        """Takes one effect; its outcome comes back as an event, in any order."""
        # The most frequent kinds come first.
        if isinstance(effect, ef.WritePodCondition):
            self._timeline.after(self._there_s("statuses"), partial(self._patch_condition, effect))
        elif isinstance(effect, ef.RecordEvent):
            self.recorded.append(effect)
        elif isinstance(effect, ef.BindPod):
            self._binds.append(effect)
            self._pump()
        elif isinstance(effect, ef.WritePodGroupStatus):
            there_s = self._timeline.now_s + self._there_s("statuses")
            self._last_s[effect.uid] = max(there_s, self._last_s.get(effect.uid, 0.0))
            self._timeline.at(self._last_s[effect.uid], partial(self._patch_group, effect))
        elif isinstance(effect, ef.CancelBinds):
            taken = [bind for bind in self._binds if bind.cause_id == effect.cause_id]
            self._binds = deque(bind for bind in self._binds if bind.cause_id != effect.cause_id)
            for bind in taken:
                self._later(ev.BindCancelled(bind.uid, bind.attempt), 0.0)
            self.claims.cancel(effect.cause_id)
        elif isinstance(effect, ef.GetPod):
            self._n_asked += 1
            self._timeline.after(self._there_s("reads"), partial(self._get, effect, self._session))
        elif isinstance(effect, ef.BumpPod):
            self._n_asked += 1
            self.bump(effect, partial(self._bumped, effect, self._session))
        elif isinstance(effect, (ef.EvictPod, ef.DeletePod)):
            self._n_asked += 1
            self._timeline.after(self._there_s("evictions"), partial(self._evict, effect, self._session))
        elif isinstance(effect, ef.PatchPod):
            self._n_asked += 1
            self._timeline.after(self._there_s("patches"), partial(self._patch, effect, self._session))
        elif isinstance(effect, ef.NominateNode):
            self._timeline.after(self._there_s("statuses"), partial(self._nominate, effect))
        elif isinstance(
            effect, (ef.PatchClaim, ef.MakeClaim, ef.DropClaim, ef.NoteClaim, ef.GetClaim, ef.BumpClaim)
        ):
            self.claims.carry_out(effect)
        elif isinstance(effect, ef.RunHook):
            self.hooks.run(effect)
        elif isinstance(effect, ef.CancelHooks):
            self.hooks.cancel(effect.tickets)

    def _later(
        self, event: ev.Event, delay_s: float, *, ends_bind: bool = False, asked: bool = False
    ) -> None:
        session = self._session

        def arrive() -> None:
            if session != self._session:
                return
            self._answer(event)
            if asked:
                self._n_asked -= 1
            if ends_bind:
                self._n_binding -= 1
                self._pump()

        self._timeline.after(delay_s, arrive)

    def _pump(self) -> None:
        while self._binds and self._n_binding < PARALLEL_BINDS:
            rest_s = self._rest_s("binds")
            if rest_s:
                self._timeline.after(rest_s, self._pump)
                return
            self._n_binding += 1
            self._send(self._binds.popleft())

    def _rest_s(self, lane: str) -> float:
        """Returns how long a lane pauses, after a 429 with a Retry-After."""
        now_s = self._timeline.now_s
        asked_s = self._weather.rest_s()
        if asked_s:
            self._rests_until_s[lane] = max(self._rests_until_s.get(lane, 0.0), now_s + asked_s)
        return max(self._rests_until_s.get(lane, 0.0) - now_s, 0.0)

    def _there_s(self, lane: str) -> float:
        """Returns the delay until a request of this kind reaches the server."""
        return self._rest_s(lane) + self._weather.latency_s()

    def _send(self, bind: ef.BindPod) -> None:
        """Sends one POST: draws when it is committed, and which answer the client gets."""
        fate, there_s = self._weather.bind_fate(), self._weather.latency_s()
        self._n_sent += 1
        ticket, session = self._n_sent, self._session
        if fate in (BindFate.LOST_BEFORE, BindFate.LOST_AFTER, BindFate.LATE):
            timeout_s = self._weather.timeout_s()
            if fate is not BindFate.LOST_BEFORE:
                self._on_the_way[ticket] = bind
                delay_s = min(there_s, timeout_s) if fate is BindFate.LOST_AFTER else timeout_s + there_s
                self._timeline.after(delay_s, partial(self._reach, ticket))
            self._later(ev.BindUnknown(bind.uid, bind.attempt, fate.value), timeout_s, ends_bind=True)
            return
        self._on_the_way[ticket] = bind
        if fate is BindFate.PROXIED:
            if self._weather.coin():
                self._timeline.after(there_s, partial(self._reach, ticket))
            else:
                del self._on_the_way[ticket]
            self._later(ev.BindUnknown(bind.uid, bind.attempt, fate.value), there_s, ends_bind=True)
            return

        def arrive() -> None:
            refusal = _REFUSALS.get(fate)
            if refusal is not None and not self.is_fenced:
                # Earlier binds of this pod must not land late: the refusal proves nothing about them. Later
                # ones may be another process's, as this one's was killed.
                on_the_way = self._on_the_way.items()
                self._on_the_way = {t: b for t, b in on_the_way if b.uid != bind.uid or t > ticket}
            code, message = refusal or self._reach(ticket)
            if session != self._session:
                return
            answer: ev.Event = ev.BindSucceeded(bind.uid, bind.attempt)
            if code == 409:
                answer = ev.BindUnknown(bind.uid, bind.attempt, message)
            elif code:
                answer = ev.BindFailed(bind.uid, bind.attempt, code, "Refused", message)
            self._later(answer, self._weather.latency_s(), ends_bind=True)

        self._timeline.after(there_s, arrive)

    def _reach(self, ticket: int) -> tuple[int, str]:
        """Processes a request at the server, unless its process died first."""
        bind = self._on_the_way.pop(ticket, None)
        return self._commit(bind) if bind is not None else (0, "")

    def _commit(self, bind: ef.BindPod) -> tuple[int, str]:
        """kube-apiserver's BindingREST: (0, "") when bound, else the code it answers with."""
        key = (bind.namespace, bind.name)
        pod = self.pods.get(key)
        if pod is None:
            return 404, f'pods "{bind.name}" not found'
        if self.checks_bind_uid and pod.metadata.uid != bind.uid:
            return 409, f"uid in precondition: {bind.uid}, UID in object meta: {pod.metadata.uid}"
        version = pod.metadata.resource_version
        if self.checks_bind_version and bind.resource_version not in ("", version):
            return 409, f"version in precondition: {bind.resource_version}, in object meta: {version}"
        if pod.metadata.deletion_timestamp is not None:
            return 409, f"pod {bind.name} is being deleted, cannot be assigned to a host"
        if pod.spec.node_name:
            return 409, f'pod {bind.name} is already assigned to node "{pod.spec.node_name}"'
        if pod.spec.scheduling_gates:
            return 409, f"pod {bind.name} has non-empty .spec.schedulingGates"
        self._bind(key, pod, bind.node, bind.annotations, bind.labels)
        return 0, ""

    def _get(self, effect: ef.GetPod, session: int) -> None:
        if session != self._session:
            return
        if self._weather.is_proxied():  # proves nothing: it is asked again
            self._later(ev.PodUnread(effect.uid, BindFate.PROXIED.value), self._weather.latency_s())
            self._timeline.after(self._there_s("reads"), partial(self._get, effect, session))
            return
        pod = self.pods.get((effect.namespace, effect.name))
        found = pod if pod is not None and pod.metadata.uid == effect.uid else None
        self._later(ev.PodRead(effect.uid, found), self._weather.latency_s(), asked=True)

    def bump(self, effect: ef.BumpPod | ef.BumpClaim, done: Callable[[], None]) -> None:
        """Changes the object's version, and retries until an answer arrives."""
        if isinstance(effect, ef.BumpClaim):
            self.claims.bump(effect, done)
            return
        fate, there_s = self._weather.bind_fate(), self._there_s("bumps")
        if fate is not BindFate.LOST_BEFORE:
            self._timeline.after(there_s, partial(self._bump, effect))
        if fate is BindFate.ARRIVES:
            self._timeline.after(there_s + self._weather.latency_s(), done)
        else:
            again_s = min(self._weather.timeout_s(), _BUMP_TIMEOUT_S)
            self._timeline.after(again_s, partial(self.bump, effect, done))

    def _bump(self, effect: ef.BumpPod) -> None:
        pod = self.pods.get((effect.namespace, effect.name))
        if pod is not None and pod.metadata.uid == effect.uid:
            self.update_pod(pod)

    def _bumped(self, effect: ef.BumpPod, session: int) -> None:
        if session == self._session:
            pod = self.pods.get((effect.namespace, effect.name))
            found = pod if pod is not None and pod.metadata.uid == effect.uid else None
            self._n_asked -= 1
            self._answer(ev.PodBumped(effect.uid, found))

    def _evict(self, effect: ef.EvictPod | ef.DeletePod, session: int) -> None:
        pod = self.pods.get((effect.namespace, effect.name))
        answer: ev.Event = ev.EvictionSucceeded(effect.uid)
        if pod is None or pod.metadata.uid != effect.uid:
            answer = ev.EvictionFailed(effect.uid, 404, "not found")
        elif isinstance(effect, ef.EvictPod) and self._weather.eviction_refused():
            answer = ev.EvictionFailed(effect.uid, 429, "would violate the pod's disruption budget")
        elif self._weather.is_proxied():  # and not passed on
            answer = ev.EvictionFailed(effect.uid, 502, BindFate.PROXIED.value)
        else:
            own_s = (pod.metadata.annotations or {}).get(GRACE_KEY)
            grace_s = self.eviction_grace_s if own_s is None else float(own_s)
            self.longest_grace_s = max(self.longest_grace_s, grace_s)
            self.delete_pod(pod, grace_s=grace_s)
        if session == self._session:
            self._later(answer, self._weather.latency_s(), asked=True)

    def _patch(self, effect: ef.PatchPod, session: int) -> None:
        pod = self.pods.get((effect.namespace, effect.name))
        fate = self._weather.bind_fate()
        code, message = _REFUSALS.get(fate, (0, ""))
        if pod is None:
            code, message = 404, "not found"
        elif pod.metadata.uid != effect.uid or pod.metadata.resource_version != effect.resource_version:
            code, message = 409, "the object has been modified"
        elif not code and fate not in (BindFate.LOST_BEFORE, BindFate.PROXIED):
            merged = {**(pod.metadata.annotations or {}), **effect.annotations}
            left = {key: value for key, value in merged.items() if value is not None}
            both = {**(pod.metadata.labels or {}), **effect.labels}
            labels = {key: value for key, value in both.items() if value is not None}
            self.update_pod(pod, metadata=replace(pod.metadata, annotations=left, labels=labels))
        answer: ev.Event = ev.PodPatched(effect.uid)
        if code or fate in _UNANSWERED:
            answer = ev.PodPatchFailed(effect.uid, code, message or fate.value)
        if session == self._session:
            self._later(answer, self._weather.latency_s(), asked=True)

    def _nominate(self, effect: ef.NominateNode) -> None:
        """kube-apiserver refuses a nomination of a bound pod, and removes it when it binds one."""
        pod = self.pods.get((effect.namespace, effect.name))
        if pod is not None and pod.metadata.uid == effect.uid and not pod.spec.node_name:
            self.update_pod(pod, status=replace(pod.status, nominated_node_name=effect.node))

    def _patch_condition(self, effect: ef.WritePodCondition) -> None:
        pod = self.pods.get((effect.namespace, effect.name))
        if pod is not None and pod.metadata.uid == effect.uid:
            self.set_condition(pod, effect.type, effect.status, effect.reason, effect.message)

    def _patch_group(self, effect: ef.WritePodGroupStatus) -> None:
        for key, item in list(self.groups.items()):
            if item.metadata.uid == effect.uid and API_VERSIONS[key[0]] == effect.api_version:
                self.put_group(key[0], replace(item, status=_patched(item.status or {}, effect.status)))


def _patched(before: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The status after a write; conditions of other programs stay as they are by then."""
    after = {**before, **written}
    for field in ("conditions", "schedulingConditions"):
        if field in written:
            others = [one for one in before.get(field) or () if not ef.is_our_condition(one)]
            after[field] = [*others, *(one for one in written[field] if ef.is_our_condition(one))]
    return after


_UNANSWERED = (BindFate.LOST_BEFORE, BindFate.LOST_AFTER, BindFate.LATE, BindFate.PROXIED)
_REFUSALS = {
    BindFate.CONFLICT: (409, "the object has been modified"),
    BindFate.FORBIDDEN: (403, "cannot create resource pods/binding"),
    BindFate.INVALID: (422, "Invalid value"),
}


def encoded(effects: Iterable[ef.Effect]) -> bytes:
    """Effects as bytes, type and all, for comparing histories."""
    return msgspec.json.encode([(type(effect).__name__, effect) for effect in effects])
