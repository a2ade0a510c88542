"""PreEnqueue: which pods are kept out of the queue, why, and when their plugins are asked again.

Here: the answers of plugins that are called at the edge, and when to ask again. Not here: the pods that
plugins keep out (core.state.plugin_waits), the pods' states (core.groups.members.membership, which calls
`lets_in`), the calls at the edge (extension.runner). A profile whose only such plugin is SchedulingGates
skips all of this: that plugin reads the pod alone, and the API server marks its pods itself.

    plugin         answers                is asked again
    ─────────────  ─────────────────────  ──────────────────────────────────────────────────────────────
    any            success                when the pod is edited, or the configuration is read again
    any            wait, with a timeout   after that time; and as after "no"
    any            "no"                   when the pod is edited; on the changes that it names (`cures`)
    any            an error, or nothing   after a backoff that doubles; the pod stays out until then

A pod whose resource claims are not there yet is kept out too, until they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gangsched.core.framework.interface import (
    SUCCESS,
    Code,
    CuringPlugin,
    PreEnqueuePlugin,
    Status,
)
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.framework.supports import serves
from gangsched.core.groups.members.pod_versions import is_edited
from gangsched.core.state.pending_hooks import PRE_ENQUEUE, HookCall
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.state.tables.groups import Cause
from gangsched.core.types.group import NEVER_S, PodInfo
from gangsched.model.events import HookAnswered
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean

CLAIMS_WITHIN_S = 1.0
"""How long a pod's claims are waited for without a word: their controller makes them after the pod, mostly
within milliseconds."""
MAX_ASKED = 32
"""Limit on a plugin's concurrent calls at the edge; its other pods wait for these."""
MAX_A_TURN = 256
"""Limit on pods asked about again in one turn: a change may cure ten thousand."""
_SHORTEST_S, _LONGEST_S = 0.1, 3600.0


class _Asked:
    """One pod's answers from the edge, by plugin, each with its expiry. `pod`: the version asked about."""

    __slots__ = ("answers", "n_failures", "open", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.answers: dict[str, tuple[Status, float]] = {}
        self.open: dict[str, HookCall] = {}
        self.n_failures = 0


class PreEnqueue:
    """Asks PreEnqueue's plugins about pods."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._asked: dict[str, _Asked] = {}
        self._to_ask: dict[str, dict[str, None]] = {}
        """Plugin -> UIDs of the pods to ask it about, in order."""
        self._n_open: dict[str, int] = {}
        self._without_claims: dict[str, float] = {}
        """By UID: since when a pod waits for its claims."""
        self._waits = shared.enqueue_waits

    # -- one pod ---------------------------------------------------------------------------------------

    def lets_in(self, info: PodInfo, pod: Pod) -> bool:
        """Whether every plugin lets the pod in; reports the first refusal's reason on the pod."""
        profile = self._shared.profiles[pod.spec.scheduler_name]
        if pod.spec.resource_claims and profile.allocates_claims:
            if problem := self._shared.cache.claims.problem(pod):
                if not self._awaits_claims(info, pod):
                    self._say_kept_out(info, pod, f"DynamicResources: {problem}")
                return False
            self._without_claims.pop(info.uid, None)
        if profile.only_gates:  # nearly every pod passes here, without a call
            return not pod.spec.scheduling_gates or not profile.pre_enqueue
        raised = 0
        for plugin in profile.pre_enqueue:
            try:
                if plugin.name in profile.async_pre_enqueues:
                    status = self._answer_of(info, pod, plugin.name)
                else:
                    status = profile.ask_pre_enqueue(plugin, pod, self._shared.queue_view)
            except PluginError as error:
                self._shared.hooks.blame(error, info.group, pod)
                self._keep_out(info, pod, plugin, Status(Code.ERROR, error.problem))
                self._ask_late(info)
                return False
            if not status.is_success:
                self._keep_out(info, pod, plugin, status)
                if status.code is Code.WAIT and plugin.name not in profile.async_pre_enqueues:
                    self._shared.ask_pre_enqueue_at(self._shared.now_s + _wait_s(status), info)
                return False
            raised += status.raise_by
        self._let_in(info, raised)
        return True

    def forget(self, info: PodInfo) -> None:
        """Forgets a pod that is gone, or has a node."""
        self._without_claims.pop(info.uid, None)
        if not self._asked and not self._waits.by_plugin:
            return
        for kept_out in self._waits.by_plugin.values():
            kept_out.pop(info.uid, None)
        asked = self._asked.pop(info.uid, None)
        if asked is not None:
            for uids in self._to_ask.values():
                uids.pop(info.uid, None)
            self._cancel(asked)

    def forget_all(self) -> None:
        """Forgets every answer, as the configuration was read again."""
        for asked in self._asked.values():
            self._cancel(asked)
        self._asked, self._to_ask = {}, {}
        self._waits.clear()

    def _cancel(self, asked: _Asked) -> None:
        for plugin in asked.open:
            self._n_open[plugin] -= 1
        self._shared.hooks.cancel(asked.open.values())

    def _let_in(self, info: PodInfo, raised: int) -> None:
        for kept_out in self._waits.by_plugin.values():
            kept_out.pop(info.uid, None)
        if info.raised == raised:
            return
        group = info.group
        if group is None:
            info.raised = raised
            return
        group.raise_member(info, raised)
        if group.active_token:
            self._shared.queue.activate(group, Cause.PLACE_CHANGED)

    def _keep_out(self, info: PodInfo, pod: Pod, plugin: PreEnqueuePlugin, status: Status) -> None:
        name = plugin.name
        for other, kept_out in self._waits.by_plugin.items():
            if other != name:
                kept_out.pop(info.uid, None)
        if serves(plugin, CuringPlugin):
            self._waits.by_plugin.setdefault(name, {})[info.uid] = None
        self._say_kept_out(info, pod, f"{name}: {status.reason}" if status.reason else "")

    def _say_kept_out(self, info: PodInfo, pod: Pod, why: str) -> None:
        if not self._shared.decides:
            self._waits.again[info.uid] = None  # not all nodes are known, and nothing may be written yet
        elif why and not pod.spec.scheduling_gates:
            self._reporter.kept_out(info, why)

    def _awaits_claims(self, info: PodInfo, pod: Pod) -> bool:
        """Whether the pod's claims are about to come, so that nothing need be said of it yet."""
        shared = self._shared
        if not shared.cache.claims.awaits(pod):
            return False
        until_s = self._without_claims.setdefault(info.uid, shared.now_s) + CLAIMS_WITHIN_S
        if shared.now_s >= until_s:
            return False
        shared.ask_pre_enqueue_at(until_s, info)
        return True

    def _ask_late(self, info: PodInfo) -> None:
        """Asks again after the longest backoff: the plugin has failed."""
        shared = self._shared
        shared.ask_pre_enqueue_at(shared.now_s + shared.settings.pod_max_backoff_s, info)

    # -- at the edge -----------------------------------------------------------------------------------

    def _answer_of(self, info: PodInfo, pod: Pod, plugin: str) -> Status:
        """The plugin's last answer about the pod, or a wait if there is none. Asks again when that is due."""
        asked = self._asked.get(info.uid)
        if asked is not None and (is_edited(asked.pod, pod) or asked.pod.spec != pod.spec):
            self.forget(info)
            asked = None
        if asked is None:
            asked = self._asked[info.uid] = _Asked(pod)
        status, until_s = asked.answers.get(plugin, (Status(Code.WAIT), -NEVER_S))
        if until_s <= self._shared.now_s and plugin not in asked.open:
            self._to_ask.setdefault(plugin, {})[info.uid] = None
        return status

    def answered(self, call: HookCall, event: HookAnswered) -> bool:
        """Takes an answer from the edge about one pod; returns whether the pod is to be asked about again."""
        info = call.info
        asked = self._asked.get(info.uid) if info is not None else None
        if info is None or asked is None or asked.open.get(call.plugin) is not call:
            return False
        del asked.open[call.plugin]
        self._n_open[call.plugin] -= 1
        shared = self._shared
        status = Status(Code(event.code), clean(event.reason), call.plugin, event.timeout_s, event.raise_by)
        until_s = NEVER_S
        if status.code is Code.ERROR:
            asked.n_failures += 1
            until_s = shared.now_s + shared.queue.backoff_s(asked.n_failures)
            before, _ = asked.answers.get(call.plugin, (SUCCESS, 0.0))
            if before.reason != status.reason:  # reported once, not at every try
                shared.hooks.blame(PluginError(call.plugin, PRE_ENQUEUE, status.reason), pod=info.pod)
        else:
            asked.n_failures = 0
            if status.code is Code.WAIT:
                until_s = shared.now_s + _wait_s(status)
        asked.answers[call.plugin] = (status, until_s)
        if until_s < NEVER_S:
            shared.ask_pre_enqueue_at(until_s, info)
        return True

    # -- once a turn -----------------------------------------------------------------------------------

    def take_cured(self) -> Iterator[str]:
        """Takes out and yields the UIDs of pods that a change may have cured."""
        again = self._waits.again
        for uid in tuple(islice(again, MAX_A_TURN)):
            del again[uid]
            asked = self._asked.get(uid)
            if asked is not None:
                asked.answers = {
                    name: (status, until_s if status.is_success else self._shared.now_s)
                    for name, (status, until_s) in asked.answers.items()
                }
            yield uid

    def call_plugins(self) -> None:
        """Sends the calls to the edge."""
        for plugin, uids in self._to_ask.items():
            while uids and self._n_open.get(plugin, 0) < MAX_ASKED:
                uid = next(iter(uids))
                del uids[uid]
                self._ask(plugin, uid)

    def asks_again_s(self) -> float:
        """When pods are to be asked about again: now, or never."""
        return self._shared.now_s if self._waits.again else NEVER_S

    def _ask(self, plugin: str, uid: str) -> None:
        asked, info = self._asked.get(uid), self._shared.cache.pods.get(uid)
        if asked is None or info is None or info.group is None or plugin in asked.open:
            return
        asked.pod = info.pod
        asked.open[plugin] = self._shared.hooks.ask(PRE_ENQUEUE, (plugin,), info.group, info)
        self._n_open[plugin] = self._n_open.get(plugin, 0) + 1


def _wait_s(status: Status) -> float:
    """How long a "wait" lasts, clamped to a sensible range, since it is another program's answer."""
    wait_s = status.timeout_s
    if wait_s is None or not wait_s > 0.0:
        return 10.0
    return min(max(wait_s, _SHORTEST_S), _LONGEST_S)
