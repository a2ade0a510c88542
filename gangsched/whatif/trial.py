"""The trial: the snapshot's core gets a job and changes, with an API server that does all at once.

Binds succeed, evicted pods are gone, hooks and extenders agree, and virtual time passes only to the stated
ends of pods. All other waiting groups are decided too, in order, as the running scheduler would. The trial
changes the snapshot's core.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from gangsched.command.snapshot import Snapshot
from gangsched.core.framework.interface import Code
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.errors import ConfigError, ParseError
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.devices.annotations import ALLOCATED_KEY, Allocation, parse_allocation
from gangsched.model.objects import Node, Pod
from gangsched.model.pod_group import group_key
from gangsched.model.resource_claims.objects import CLAIMS
from gangsched.model.walltime import LATEST_S, pod_walltime
from gangsched.reading.strict import nearest
from gangsched.whatif.applying import applied
from gangsched.whatif.claims import dropped, given_back, made, patched

HOSTNAME = "kubernetes.io/hostname"
_MAX_ADDED = 10_000
# Limit on ends to wait for; later ones are too uncertain.
_MAX_ENDS = 500


class Trial:
    """bound: (node, devices by container) of each pod bound in it; evicted: pods evicted since the job was
    submitted; assumed: what is, about other objects of the job.
    """

    def __init__(self, snapshot: Snapshot, now_s: float) -> None:
        self.core: Scheduler = snapshot.scheduler
        self.now_s = now_s
        self.bound: dict[str, tuple[str, Allocation]] = {}
        self.evicted: list[Pod] = []
        self.assumed: list[str] = []
        self._nodes: dict[str, Node] = {node.metadata.name: node for node in snapshot.nodes}
        self._pods: dict[str, Pod] = {pod.metadata.uid: pod for pod in snapshot.pods}

    # -- the question ----------------------------------------------------------------------------------

    def add_nodes(self, n: int, like: str) -> list[str]:
        """Adds empty copies of a node; returns their names. Raises: ConfigError."""
        if not 1 <= n <= _MAX_ADDED:
            raise ConfigError(f"--add-nodes {n} is not within 1 to {_MAX_ADDED}")
        model = self._node(like, "--like")
        added = []
        for k in range(n):
            name = f"{like}-added-{k + 1}"
            labels = {**(model.metadata.labels or {}), HOSTNAME: name}
            metadata = replace(model.metadata, name=name, uid=f"whatif-{name}", labels=labels)
            self._nodes[name] = replace(model, metadata=metadata)
            added.append(name)
        self._tell([ev.NodeAdded(self._nodes[name]) for name in added])
        return added

    def drain(self, name: str) -> int:
        """Cordons the node and removes its pods, as a drain does; returns how many were running."""
        node = self._node(name, "--drain")
        there = [pod for pod in self._pods.values() if pod.spec.node_name == name and not _is_of_node(pod)]
        self._tell([ev.NodeUpdated(replace(node, spec=replace(node.spec, unschedulable=True)))])
        self._remove(there)
        return sum(not pod.is_terminal for pod in there)

    def without(self, name: str) -> int:
        """Removes a gang or a pod; returns how many pods it had. Raises: ConfigError."""
        name = name if "/" in name else f"default/{name}"
        found = [pod for pod in self._pods.values() if name in (pod.key, _gang_of(pod))]
        if not found:
            known = {_gang_of(pod) for pod in self._pods.values()}
            raise ConfigError(
                f"--without {name}: there is no such gang and no such pod{nearest(name, known)}"
            )
        self._remove(found)
        return len(found)

    def submit(self, pods: Sequence[Pod], others: Sequence[ev.Event]) -> None:
        """Submits the job."""
        self.evicted.clear()  # pods evicted for other waiting groups
        self._pods |= {pod.metadata.uid: pod for pod in pods}
        events, self.assumed = applied(others, self.core.shared.cache.objects.objects)
        self._tell([*events, *(ev.PodAdded(pod) for pod in pods)])

    # -- the result ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Runs until nothing more can be decided now."""
        deadline_s = self.core.next_deadline_s()
        if deadline_s is not None and deadline_s <= self.now_s:
            self._carry_out(self.core.advance(self.now_s))
        while (effects := self.core.schedule_next(self.now_s)) is not None:
            self._carry_out(effects)

    def group_of(self, pod: Pod) -> Group | None:
        """Returns the pod's group; None: the core could not read the pod."""
        info = self.core.shared.cache.pods.get(pod.metadata.uid)
        return None if info is None else info.group

    def wait_for(self, gangs: Sequence[Sequence[Pod]], now: datetime) -> list[tuple[float | None, list[str]]]:
        """Returns for each gang (seconds until one of its pods starts, the gangs that end before); None: no
        known end helps.
        """
        found: list[tuple[float | None, list[str]]] = [(None, [])] * len(gangs)
        ends = self._known_ends(now)
        begin_s, ended = self.now_s, dict[str, None]()
        for _ in range(_MAX_ENDS):
            waiting = [at for at, (in_s, _) in enumerate(found) if in_s is None]
            if not ends or not waiting:
                break
            in_s = ends[0][0]
            gone = []
            while ends and ends[0][0] <= in_s:
                # A pod preempted meanwhile is already gone.
                if (pod := self._pods.get(heapq.heappop(ends)[1])) is not None:
                    gone.append(pod)
            ended |= dict.fromkeys(_gang_of(pod) for pod in gone)
            self.now_s = max(begin_s + in_s, self.now_s)
            self._remove(gone)
            self._pass_deadlines()
            for at in waiting:
                if any(pod.metadata.uid in self.bound for pod in gangs[at]):
                    found[at] = in_s, list(ended)
        return found

    def endless(self) -> int:
        """Counts running pods without a stated end, except those that each node has."""
        return sum(
            1
            for pod in self._pods.values()
            if pod.spec.node_name
            and pod.metadata.uid not in self.bound
            and not (pod.is_terminal or _is_of_node(pod) or _ends(pod))
        )

    def _known_ends(self, now: datetime) -> list[tuple[float, str]]:
        found = []
        for uid, pod in self._pods.items():
            started = pod.status.start_time
            if started is None or pod.is_terminal or uid in self.bound:
                continue
            if pod.spec.node_name and _ends(pod):
                in_s = pod_walltime(pod).seconds - (now - started).total_seconds()
                found.append((max(in_s, 0.0), uid))
        heapq.heapify(found)
        return found

    def _pass_deadlines(self) -> None:
        """Lets backoffs of woken groups pass, which take seconds."""
        self.settle()
        for _ in range(50):
            deadline_s = self.core.next_deadline_s()
            if deadline_s is None or deadline_s > self.now_s + 30.0:
                break
            self.now_s = max(deadline_s, self.now_s)
            self.settle()

    def _node(self, name: str, flag: str) -> Node:
        if name not in self._nodes:
            raise ConfigError(f"{flag} {name}: there is no such node{nearest(name, self._nodes)}")
        return self._nodes[name]

    def _remove(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            given_back = self._given_back(pod)
            self._tell([ev.PodDeleted(self._pods.pop(pod.metadata.uid)), *given_back])

    def _tell(self, events: Sequence[ev.Event]) -> None:
        if events:
            self._carry_out(self.core.handle(events, self.now_s))

    def _carry_out(self, effects: Iterable[ef.Effect]) -> None:
        queue = list(effects)
        while queue:
            events: list[ev.Event] = []
            for effect in queue:
                if isinstance(effect, ef.BindPod):
                    events += self._bind(effect)
                elif isinstance(effect, ef.PatchClaim):
                    events += self._patch_claim(effect)
                elif isinstance(effect, ef.MakeClaim):
                    events += made(effect)
                elif isinstance(effect, ef.DropClaim):
                    events += dropped(effect)
                elif isinstance(effect, ef.NoteClaim) and effect.uid in self._pods:
                    events += self._note_claim(effect)
                elif isinstance(effect, ef.EvictPod | ef.DeletePod) and effect.uid in self._pods:
                    pod = self._pods.pop(effect.uid)
                    self.bound.pop(effect.uid, None)
                    self.evicted.append(pod)
                    events += [ev.EvictionSucceeded(effect.uid), ev.PodDeleted(pod), *self._given_back(pod)]
                elif isinstance(effect, ef.RunHook):
                    events += self._hook(effect)
                elif isinstance(effect, ef.AskExtenders):
                    events.append(ev.ExtendersAnswered(effect.ticket, nodes=effect.nodes))
            queue = self.core.handle(events, self.now_s) if events else []

    def _patch_claim(self, patch: ef.PatchClaim) -> list[ev.Event]:
        claim = self.core.shared.cache.claims.claims.get(patch.uid)
        if claim is None:
            return [ev.ClaimRefused(patch.uid, patch.ticket, 404, "NotFound", "it is gone")]
        claim = patched(claim, patch)
        return [ev.ClaimPatched(patch.uid, patch.ticket, claim), ev.ObjectPut(CLAIMS, claim)]

    def _note_claim(self, effect: ef.NoteClaim) -> list[ev.Event]:
        pod = self._pods[effect.uid]
        status = replace(pod.status, extended_resource_claim_status=effect.claim)
        self._pods[effect.uid] = pod = replace(pod, status=status)
        return [ev.ClaimNoted(effect.uid, effect.ticket), ev.PodUpdated(pod)]

    def _given_back(self, pod: Pod) -> list[ev.Event]:
        """What becomes of the resource claims of a pod that goes."""
        events: list[ev.Event] = []
        for claim in self.core.claims_of(pod):
            meta, left = claim.metadata, given_back(claim, [pod.metadata.uid])
            events.append(
                ev.ObjectGone(CLAIMS, meta.namespace, meta.name, meta.uid)
                if left is None
                else ev.ObjectPut(CLAIMS, left)
            )
        return events

    def _hook(self, hook: ef.RunHook) -> list[ev.Event]:
        """Answers that every hook agrees, and that a Bind plugin has bound the pod."""
        events: list[ev.Event] = [ev.HookAnswered(hook.ticket, Code.SUCCESS.value)]
        if hook.point == "Bind" and hook.pod is not None and hook.pod.metadata.uid in self._pods:
            pod = self._pods[hook.pod.metadata.uid]
            bound = replace(pod, spec=replace(pod.spec, node_name=hook.node_name))
            self._pods[pod.metadata.uid] = bound
            self.bound[pod.metadata.uid] = (hook.node_name, {})
            events.append(ev.PodUpdated(bound))
        return events

    def _bind(self, bind: ef.BindPod) -> list[ev.Event]:
        pod = self._pods[bind.uid]
        annotations: Mapping[str, str] = {**(pod.metadata.annotations or {}), **bind.annotations}
        metadata = replace(pod.metadata, annotations=dict(annotations))
        bound = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))
        self._pods[bind.uid] = bound
        text = bind.annotations.get(ALLOCATED_KEY, "")
        self.bound[bind.uid] = (bind.node, parse_allocation(text) if text else {})
        return [ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound)]


def _gang_of(pod: Pod) -> str:
    try:
        return str(group_key(pod))
    except ParseError:
        return pod.key


def _ends(pod: Pod) -> bool:
    """Whether it ends within the range of dates."""
    return pod_walltime(pod).seconds < LATEST_S


def _is_of_node(pod: Pod) -> bool:
    """Whether it is a DaemonSet's or kubelet's own, which a drain leaves."""
    return any(one.kind in ("DaemonSet", "Node") for one in pod.metadata.owner_references or ())
