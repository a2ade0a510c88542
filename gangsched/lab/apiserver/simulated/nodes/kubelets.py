"""The pods' side of the simulated kubelets, all nodes in one object: from bound to gone.

    state      on                                   to         what is written
    ─────────  ───────────────────────────────────  ─────────  ─────────────────────────────────────────────
    (unknown)  bound to a machine that is alive     Creating   Pending, ContainerCreating
    (unknown)  refused                              Ended      Failed for good, with kubelet's reason
    Creating   start-seconds are over               Running    Running, Ready, a pod IP; Created, Started
    Creating   a ConfigMap or Secret is missing     Creating   FailedMount; tried again
    Creating   a claim of devices is not its own    Creating   FailedPrepareDynamicResources; tried again
    Running    run-seconds are over                 Ended      Succeeded or Failed
    Running    the same, and it is to restart       Backoff    at once the first time, then CrashLoopBackOff
    Backoff    the back-off is over                 Running    Running, one restart more
    Running    deleted with grace                   Stopping   Killing
    Stopping   stopped, or its grace is over        Ended      Succeeded or Failed, then gone
    any other  deleted                              Ended      gone
    any        its machine is killed                the same   nothing until it is back; then 137

Lives here: this table. Not here: admission of a pod (admission.py), the form of a status (pod_status.py),
nodes themselves (node_agent.py). lab.apiserver.simulated.cluster passes pods in. Nothing is polled: each pod
has at most one deadline in the timetable, and a pod that runs for ever has none.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import structlog

from gangsched.api_rules.status import StatusError
from gangsched.errors import ParseError
from gangsched.lab.apiserver.simulated.api import Api
from gangsched.lab.apiserver.simulated.nodes import pod_status, references, scripts
from gangsched.lab.apiserver.simulated.nodes.admission import UNEXPECTED, Refusal
from gangsched.lab.apiserver.simulated.nodes.machine import Machine
from gangsched.lab.apiserver.simulated.nodes.prepared_claims import PreparedClaims
from gangsched.lab.apiserver.simulated.nodes.scripts import Script
from gangsched.lab.apiserver.simulated.timetable import Timetable
from gangsched.lab.apiserver.simulated.view import PodView, View
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Object
from gangsched.model.objects import Pod

_log = structlog.get_logger(__name__)

# kubelet's delays between attempts to mount, and before the n-th restart of a container.
_MOUNT_RETRY_S, _MAX_MOUNT_RETRY_S = 0.5, 122.0
_RESTART_S, _MAX_RESTART_S = 10.0, 300.0
_DEFAULT_GRACE_S = 30.0

_decode_pod = msgspec.json.Decoder(Pod).decode
Complain = Callable[[Machine, PodView, str], None]
"""Called with the problem when a device was allocated wrongly."""


class State(enum.Enum):
    """The states of the table above."""

    CREATING = "Creating"
    RUNNING = "Running"
    BACKOFF = "Backoff"
    STOPPING = "Stopping"
    ENDED = "Ended"


class _Held:
    """A pod that a kubelet knows."""

    __slots__ = (
        "ip",
        "machine",
        "n_restarts",
        "n_tries",
        "pod",
        "restart_policy",
        "script",
        "state",
        "stop_by_s",
    )

    def __init__(self, pod: PodView, machine: Machine) -> None:
        self.pod = pod
        self.machine = machine
        self.state = State.ENDED
        self.script = Script(start_s=0, run_s=0, stop_s=0, exit_code=0)
        self.restart_policy = "Always"
        self.ip = ""
        self.n_restarts = 0
        self.n_tries = 0
        self.stop_by_s = float("inf")


class Kubelets:
    """Moves bound pods through the table; `complain` gets devices allocated wrongly."""

    def __init__(self, api: Api, view: View, timetable: Timetable, rng: Random, complain: Complain) -> None:
        self._api = api
        self._view = view
        self._timetable = timetable
        self._rng = rng
        self._complain = complain
        self._prepared = PreparedClaims(api)
        self._machines: dict[str, Machine] = {}
        self._held: dict[str, _Held] = {}

    # Changes from lab.apiserver.simulated.cluster and node_agent.py.

    def machine_up(self, machine: Machine, now_s: float) -> None:
        """A machine has come up (again): checks the pods bound to it, in the order of their binds."""
        self._machines[machine.name] = machine
        for pod in self._view.on_node(machine.name):
            held = self._held.get(pod.uid)
            if held is None:
                self.pod_changed(pod, now_s)
            else:
                self._back(held, now_s)

    def machine_down(self, name: str) -> None:
        """A machine was killed: nothing runs on it, and nothing is reported."""
        for pod in self._view.on_node(name):
            self._timetable.cancel(("pod", pod.uid))

    def machine_gone(self, name: str) -> None:
        """A machine's Node was deleted: no kubelet runs its pods (lab.apiserver.simulated.garbage collects
        them).
        """
        self._machines.pop(name, None)
        for uid in [uid for uid, held in self._held.items() if held.machine.name == name]:
            self._forget(uid)

    def pod_changed(self, pod: PodView, now_s: float) -> None:
        """A pod was created or has changed."""
        machine = self._machines.get(pod.node) if pod.node else None
        held = self._held.get(pod.uid)
        if held is not None:
            held.pod = pod
        if machine is None or not machine.alive:
            return
        if held is None:
            self._arrive(pod, machine, now_s)
        elif pod.is_deleted:
            self._stop(held, now_s)
        elif pod.is_terminal and held.state is not State.ENDED:
            self._let_go(held)  # another client has written its end

    def pod_gone(self, uid: str) -> None:
        """A pod is gone: deleted with grace 0, or after our confirmation."""
        self._forget(uid)

    # The table.

    def _arrive(self, pod: PodView, machine: Machine, now_s: float) -> None:
        if pod.is_deleted:
            self._confirm(pod)
            return
        held = self._held[pod.uid] = _Held(pod, machine)
        if pod.is_terminal:
            return
        item = self._api.find(self._api.pods, pod.namespace, pod.name, pod.uid)
        if item is None:
            self._forget(pod.uid)
            return
        try:
            refusal = self._admit(held, item)
        except ParseError as error:
            refusal = Refusal(UNEXPECTED, f"{error}, which is unexpected")
        if refusal is not None:
            self._refuse(held, refusal)
            return
        held.state = State.CREATING
        now = self._api.now()
        self._write(held, lambda obj: pod_status.create(obj, machine.ip, now))
        self._at(held, now_s + held.script.start_s, self._start)

    def _admit(self, held: _Held, item: Item) -> Refusal | None:
        """Raises: ParseError (an annotation or a quantity)."""
        pod = held.pod
        spec = item.decode()["spec"]
        held.restart_policy = spec.get("restartPolicy", "Always")
        held.script = scripts.script_of(
            pod.metadata.annotations or {},
            restart_policy=held.restart_policy,
            commands=([*each.get("command", ()), *each.get("args", ())] for each in spec["containers"]),
            rng=self._rng,
        )
        answer = held.machine.room.admit(pod.uid, held.machine.name, _decode_pod(item.raw))
        if isinstance(answer, Refusal):
            return answer
        held.ip = held.machine.ip if spec.get("hostNetwork") else held.machine.addresses.take()
        return None

    def _refuse(self, held: _Held, refusal: Refusal) -> None:
        now = self._api.now()
        self._event(held.pod, refusal.reason, refusal.message, held, warning=True)
        self._write(held, lambda obj: pod_status.refuse(obj, refusal.reason, refusal.message, now))
        if refusal.complaint:
            self._complain(held.machine, held.pod, refusal.complaint)

    def _start(self, held: _Held, now_s: float) -> None:
        pod = held.pod
        item = self._api.find(self._api.pods, pod.namespace, pod.name, pod.uid)
        if item is None:
            self._forget(pod.uid)
            return
        obj = item.decode()
        missing = references.missing(obj, self._api)
        if missing is None and (pod.claims or pod.extended_claim):
            missing = self._prepared.prepare(pod, held.machine.name)
        if missing is not None:
            if missing.mismatch and not held.n_tries:
                self._complain(held.machine, pod, missing.mismatch)
            self._event(pod, missing.reason, missing.message, held, warning=True, field=missing.field)
            if missing.waiting:
                self._write(held, lambda obj: pod_status.cannot_start(obj, missing.waiting, missing.message))
            self._at(held, now_s + min(_MOUNT_RETRY_S * 2**held.n_tries, _MAX_MOUNT_RETRY_S), self._start)
            held.n_tries = min(held.n_tries + 1, 20)
            return
        for container in pod_status.containers(obj):
            field = f"spec.containers{{{container['name']}}}"
            image = f'Container image "{container.get("image", "")}" already present on machine (simulated)'
            self._event(pod, "Pulled", image, held, field=field)
            self._event(pod, "Created", "Container created (simulated)", held, field=field)
            self._event(pod, "Started", "Container started (simulated: nothing runs)", held, field=field)
        held.state = State.RUNNING
        now = self._api.now()
        self._write(held, lambda obj: pod_status.run(obj, held.ip, now))
        self._at(held, now_s + held.script.run_s, self._run_out)

    def _run_out(self, held: _Held, now_s: float) -> None:
        self._exit(held, held.script.exit_code, now_s)

    def _exit(self, held: _Held, exit_code: int, now_s: float) -> None:
        restarts = held.restart_policy == "Always" or (held.restart_policy == "OnFailure" and exit_code != 0)
        if not restarts:
            self._end(held, exit_code)
            return
        held.state = State.BACKOFF
        now = self._api.now()
        self._write(held, lambda obj: pod_status.restart(obj, exit_code, now))
        # The first restart is immediate, after the time that a kubelet needs to notice.
        delay_s = min(_RESTART_S * 2 ** (held.n_restarts - 1), _MAX_RESTART_S) if held.n_restarts else 1.0
        if held.n_restarts:
            self._write(held, lambda obj: pod_status.back_off(obj, delay_s))
            self._say_back_off(held)
        held.n_restarts = min(held.n_restarts + 1, 20)
        self._at(held, now_s + delay_s, self._start)

    def _say_back_off(self, held: _Held) -> None:
        where = f"{held.pod.name}_{held.pod.namespace}({held.pod.uid})"
        item = self._api.find(self._api.pods, held.pod.namespace, held.pod.name, held.pod.uid)
        for container in item.decode()["spec"]["containers"] if item else ():
            message = f"Back-off restarting failed container {container['name']} in pod {where}"
            field = f"spec.containers{{{container['name']}}}"
            self._event(held.pod, "BackOff", message, held, warning=True, field=field)

    def _stop(self, held: _Held, now_s: float) -> None:
        """Stops a pod deleted with grace. A second, shorter deletion shortens the rest of it."""
        asked_s = held.pod.metadata.deletion_grace_period_seconds
        grace_s = _DEFAULT_GRACE_S if asked_s is None else float(asked_s)
        if held.state is State.RUNNING:
            held.state = State.STOPPING
            item = self._api.find(self._api.pods, held.pod.namespace, held.pod.name, held.pod.uid)
            for container in pod_status.containers(item.decode()) if item else ():
                field = f"spec.containers{{{container['name']}}}"
                message = f"Stopping container {container['name']} (simulated)"
                self._event(held.pod, "Killing", message, held, field=field)
            held.stop_by_s = now_s + held.script.stop_s
        elif held.state is not State.STOPPING:
            self._let_go(held)
            self._confirm(held.pod)
            return
        in_time = held.stop_by_s <= now_s + grace_s
        exit_code = pod_status.TERMINATED if in_time else pod_status.KILLED
        self._at(held, min(held.stop_by_s, now_s + grace_s), partial(self._stopped, exit_code=exit_code))

    def _stopped(self, held: _Held, now_s: float, *, exit_code: int) -> None:
        self._end(held, exit_code)
        self._confirm(held.pod)

    def _end(self, held: _Held, exit_code: int) -> None:
        now = self._api.now()
        self._let_go(held)
        self._write(held, lambda obj: pod_status.end(obj, exit_code, now))

    def _back(self, held: _Held, now_s: float) -> None:
        """Handles a pod whose machine was off and is on again."""
        if held.pod.is_deleted:
            self._let_go(held)
            self._confirm(held.pod)
        elif held.state is State.RUNNING:
            self._exit(held, pod_status.KILLED, now_s)
        elif held.state in (State.CREATING, State.BACKOFF):
            self._at(held, now_s + held.script.start_s, self._start)

    def _let_go(self, held: _Held) -> None:
        """Frees the resources, devices and address of a pod whose containers have ended."""
        held.state = State.ENDED
        self._timetable.cancel(("pod", held.pod.uid))
        held.machine.room.release(held.pod.uid)
        self._prepared.release(held.pod.uid)
        if held.ip and held.ip != held.machine.ip:
            held.machine.addresses.give_back(held.ip)
        held.ip = ""

    def _forget(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            self._let_go(held)

    def _confirm(self, pod: PodView) -> None:
        """Confirms that nothing of the pod is left on the node, so that the API server removes it."""
        try:
            self._api.delete(self._api.pods, pod.namespace, pod.name, uid=pod.uid, grace_s=0)
        except StatusError as error:
            _log.warning("a stopped pod could not be removed", pod=pod.key, err=str(error))

    def _at(self, held: _Held, when_s: float, action: Callable[[_Held, float], None]) -> None:
        self._timetable.at(when_s, ("pod", held.pod.uid), partial(action, held))

    def _write(self, held: _Held, change: Callable[[Object], None]) -> None:
        self._api.modify(self._api.pods, held.pod.namespace, held.pod.name, change, uid=held.pod.uid)

    def _event(
        self, pod: PodView, reason: str, message: str, held: _Held, *, warning: bool = False, field: str = ""
    ) -> None:
        self._api.event(
            "Pod",
            pod,
            reason,
            message,
            component="kubelet",
            host=held.machine.name,
            warning=warning,
            field_path=field,
        )
