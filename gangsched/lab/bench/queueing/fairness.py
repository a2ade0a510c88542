"""`bench --queueing --fairness`: what teams get of a cluster over days, and how soon their guarantees.

The real core in virtual time. Three questions, each with new pods for each seed. What do two teams with
shares 2:1 get in 24 hours in which both always have pods in line? What does a team that comes back after a
week get in its first hour, beside an equal one that has used everything? And how long does a team that asks
for its guarantee wait, in whole nodes and in single devices, while another has borrowed the cluster? Pods
lost within a guarantee are counted from the pods alone.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError, GangschedError
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.queueing.live import config_of
from gangsched.lab.bench.rounds.workload import RESOURCE, node
from gangsched.lab.bench.tables import print_targets
from gangsched.lab.bench.targets import Target, at_least, at_most
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import build_profiles

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S
_SHORT_S = (180.0, 900.0)
"""The mean run times of pods in the first hour after a rest."""
_N_WAITING = 6
_N_ASKED = 8
_GRACES_S = (10, 30, 60)
_LIMIT_S = 5.0
_SHARES = """
fairness: {{halfLife: 24h, compare: [nvidia.com/gpu]}}
queues:
- {{name: a, share: {a}, namespaces: [a]}}
- {{name: b, share: 1, namespaces: [b]}}
"""
_GUARANTEES = """
queues:
- {{name: a, guaranteed: {{nvidia.com/gpu: {a}}}, namespaces: [a]}}
- {{name: b, guaranteed: {{nvidia.com/gpu: {b}}}, namespaces: [b]}}
- {{name: c, guaranteed: {{nvidia.com/gpu: {c}}}, namespaces: [c]}}
"""


class Asked(msgspec.Struct, frozen=True):
    """A guarantee that was asked for. grace_s: the victims' longest grace; after_s: the time until it was
    held."""

    n_pods: int
    gpus: int
    n_evicted: int
    grace_s: float
    after_s: float

    @property
    def late_s(self) -> float:
        return self.after_s - self.grace_s


class Fairness(msgspec.Struct):
    """Results by seed. first_hour: by the pods' mean run time, the team's share of both teams' devices."""

    n_nodes: int
    gpus: int
    jain: list[float]
    first_hour: dict[str, list[float]]
    asked: list[list[Asked]]
    n_lost_within: int
    """Pods lost by queues that then held less than is guaranteed to them."""

    @property
    def targets(self) -> list[Target]:
        asked = [one for some in self.asked for one in some]
        hours = [share for some in self.first_hour.values() for share in some]
        return [
            at_least("shares 2:1 over 24 h, Jain's index, least of all seeds", 0.97, min(self.jain)),
            at_most("first hour after a week's rest at 1:1, most", 0.60, max(hours)),
            at_most("a guarantee held, after the victims' grace, most", _LIMIT_S, _most_late(asked), "s"),
            at_most("pods lost within a guarantee", 0, float(self.n_lost_within)),
        ]


def _most_late(asked: Sequence[Asked]) -> float:
    return max(one.late_s for one in asked)


def measure(progress: Progress, *, n_nodes: int = 16, gpus: int = 8, n_seeds: int = 5) -> Fairness:
    """Measures all seeds. Raises: ConfigError, GangschedError (a guarantee is never held)."""
    if n_seeds < 1:
        raise ConfigError(f"--seeds {n_seeds} is less than 1")
    if n_nodes < 4 or gpus < 1:
        raise ConfigError(f"--nodes {n_nodes} --gpus {gpus}: at least 4 nodes with a device are needed")
    found = Fairness(n_nodes, gpus, [], {f"{mean_s:g} s": [] for mean_s in _SHORT_S}, [], 0)
    for seed in range(n_seeds):
        progress.say(f"seed {seed}: a day at 2:1")
        found.jain.append(jain_of_a_day(seed, n_nodes, gpus))
        for mean_s in _SHORT_S:
            progress.say(f"seed {seed}: an hour after a week, pods of {mean_s:g} s")
            found.first_hour[f"{mean_s:g} s"].append(first_hour(seed, n_nodes, gpus, mean_s))
        progress.say(f"seed {seed}: guarantees are asked for")
        asked, n_lost = ask_for_guarantees(seed, n_nodes, gpus)
        found.asked.append(asked)
        found.n_lost_within += n_lost
    return found


def print_fairness(found: Fairness, console: Console) -> None:
    """Prints the figures of each seed, and the targets."""
    table = Table(title=f"Two teams on {found.n_nodes} nodes of {found.gpus} GPUs, in virtual time")
    table.add_column("seed", justify="right")
    for name in ("Jain, 24 h at 2:1", *(f"first hour, pods of {mean}" for mean in found.first_hour)):
        table.add_column(name, justify="right")
    table.add_column("guarantees: asked, evicted", justify="right")
    table.add_column("most after the grace, s", justify="right")
    for seed, (jain, asked) in enumerate(zip(found.jain, found.asked, strict=True)):
        hours = [f"{shares[seed]:.2f}" for shares in found.first_hour.values()]
        n_evicted = sum(one.n_evicted for one in asked)
        table.add_row(
            str(seed), f"{jain:.4f}", *hours, f"{len(asked)}, {n_evicted}", f"{_most_late(asked):.1f}"
        )
    console.print(table)
    print_targets(found.targets, console)


# -- what is asked ------------------------------------------------------------------------------------------


def jain_of_a_day(seed: int, n_nodes: int, gpus: int) -> float:
    """Returns Jain's index of what two teams with shares 2:1 had, divided by their shares."""
    cluster = _Cluster(_SHARES.format(a=2), seed, n_nodes, gpus)
    had = cluster.work(_DAY_S, "a", "b", mean_s=2 * _HOUR_S)
    x = [had["a"] / 2, had["b"]]
    return sum(x) ** 2 / (len(x) * sum(one * one for one in x))


def first_hour(seed: int, n_nodes: int, gpus: int, mean_s: float) -> float:
    """Returns the share of both teams' devices that the team that comes back had.

    All pods of the week end as it comes, so it could have everything at once.
    """
    cluster = _Cluster(_SHARES.format(a=1), seed, n_nodes, gpus)
    cluster.work(7 * _DAY_S, "a", mean_s=_DAY_S)
    cluster.end_all()
    had = cluster.work(cluster.now_s + _HOUR_S, "a", "b", mean_s=mean_s)
    return had["b"] / (had["a"] + had["b"])


def ask_for_guarantees(seed: int, n_nodes: int, gpus: int) -> tuple[list[Asked], int]:
    """Asks for a's guarantee; returns also how many pods were lost within a guarantee.

    Guaranteed are half of the nodes to a, an eighth to b, and a quarter to c. c holds its guarantee; b
    borrows. Raises: GangschedError (it is never held).
    """
    half, rest, quarter = n_nodes // 2, max(n_nodes // 8, 1) * gpus, n_nodes // 4
    tree = _GUARANTEES.format(a=half * gpus, b=rest, c=quarter * gpus)
    cluster = _Cluster(tree, seed, n_nodes, gpus)
    cluster.gang("c", quarter, gpus, run_s=30 * _DAY_S)
    found = []
    for k in range(_N_ASKED):
        cluster.work(cluster.now_s + _HOUR_S, "b", mean_s=_DAY_S)
        n_whole = cluster.random.randint(1, half)
        n_pods, each = (n_whole, gpus) if k % 2 == 0 else (n_whole * gpus, 1)
        found.append(cluster.ask("a", n_pods, each))
    return found, cluster.n_lost_within


class _Running(msgspec.Struct):
    pod: Pod
    gpus: int
    is_going: bool = False


class _Cluster:
    """Queues whose pods come, run and go, and the core. An eviction ends a pod after its grace."""

    def __init__(self, ours: str, seed: int, n_nodes: int, gpus: int) -> None:
        self.random = Random(f"{seed}-fairness")
        self.now_s = 0.0
        self.n_lost_within = 0
        config = config_of(ours)
        queues = config.settings.queues
        assert queues is not None
        self._guaranteed = {one.name: one.guaranteed.get(RESOURCE, 0) for one in queues.queues}
        self._core = Scheduler(build_profiles(config), config.settings)
        self._core.handle([ev.NodeAdded(node(i, gpus)) for i in range(n_nodes)], 0.0)
        self._core.handle([ev.KindSynced(kind) for kind in self._core.kinds], 0.0)
        self._gpus = gpus
        self._n_made = 0
        self._mean_s = 0.0
        self._waiting: dict[str, tuple[Pod, int, float | None]] = {}
        """By UID: the pod, its devices and its run time; None: about `_mean_s`, as it is at its start."""
        self._n_waiting: Counter[str] = Counter()
        self._running: dict[str, _Running] = {}
        self._ends: list[tuple[float, str]] = []
        self._used_s: dict[str, float] = defaultdict(float)
        self._evicted: list[Pod] = []

    def work(self, until_s: float, *queues: str, mean_s: float) -> dict[str, float]:
        """Keeps pods of these queues in line until then; returns the device-seconds that each has had
        meanwhile."""
        before, self._mean_s = dict(self._used_s), mean_s
        while True:
            self._turns()
            while any(self._n_waiting[queue] < _N_WAITING for queue in queues):
                for queue in queues:
                    self._fill(queue)
                self._turns()
            self._advance_to(min(until_s, self._next_s()))
            if self.now_s >= until_s:
                return {queue: self._used_s[queue] - before.get(queue, 0.0) for queue in queues}
            self._pass()

    def gang(self, queue: str, n_pods: int, gpus: int, run_s: float) -> list[str]:
        """Submits a gang, and runs all turns; returns its UIDs."""
        uids = self._submit(queue, n_pods, gpus, run_s)
        self._turns()
        return uids

    def ask(self, queue: str, n_pods: int, gpus: int) -> Asked:
        """Submits a gang of that queue and waits until all of it runs. Raises: GangschedError."""
        began_s, self._evicted = self.now_s, []
        uids = self.gang(queue, n_pods, gpus, run_s=_HOUR_S / 2)
        while not all(uid in self._running for uid in uids):
            if self.now_s > began_s + _HOUR_S:
                raise GangschedError(f"{n_pods} pods of {gpus} devices wait for an hour for a guarantee")
            self._advance_to(self._next_s())
            self._pass()
            self._turns()
        graces_s = [float(pod.spec.termination_grace_period_seconds or 0) for pod in self._evicted]
        return Asked(n_pods, gpus, len(graces_s), max(graces_s, default=0.0), self.now_s - began_s)

    def end_all(self) -> None:
        """Ends all running pods now."""
        self._tell([ev.PodDeleted(one.pod) for one in self._running.values()])
        self._running, self._ends = {}, []

    def _fill(self, queue: str) -> None:
        while self._n_waiting[queue] < _N_WAITING:
            self._submit(queue, 1, min(self.random.choice((1, 1, 2, 4)), self._gpus))

    def _submit(self, queue: str, n_pods: int, gpus: int, run_s: float | None = None) -> list[str]:
        self._n_made += 1
        grace_s = self.random.choice(_GRACES_S)
        pods = [_pod(queue, f"{queue}{self._n_made}", k, n_pods, gpus, grace_s) for k in range(n_pods)]
        for pod in pods:
            self._waiting[pod.metadata.uid] = (pod, gpus, run_s)
        self._n_waiting[queue] += n_pods
        self._tell([ev.PodAdded(pod) for pod in pods])
        return [pod.metadata.uid for pod in pods]

    def _next_s(self) -> float:
        times = [self._ends[0][0]] if self._ends else []
        deadline_s = self._core.next_deadline_s()
        times += [deadline_s] if deadline_s is not None else []
        return max(min(times), self.now_s) if times else self.now_s + _HOUR_S

    def _advance_to(self, then_s: float) -> None:
        for one in self._running.values():
            self._used_s[one.pod.metadata.namespace] += one.gpus * (then_s - self.now_s)
        self.now_s = then_s

    def _pass(self) -> None:
        """Carries out what is due now."""
        over = []
        while self._ends and self._ends[0][0] <= self.now_s:
            one = self._running.pop(heapq.heappop(self._ends)[1], None)
            over += [one.pod] if one is not None else []
        self._tell([ev.PodDeleted(pod) for pod in over])
        deadline_s = self._core.next_deadline_s()
        if deadline_s is not None and deadline_s <= self.now_s:
            self._carry_out(self._core.advance(self.now_s))

    def _turns(self) -> None:
        while (effects := self._core.schedule_next(self.now_s)) is not None:
            self._carry_out(effects)

    def _tell(self, events: Sequence[ev.Event]) -> None:
        if events:
            self._carry_out(self._core.handle(list(events), self.now_s))

    def _carry_out(self, effects: Iterable[ef.Effect]) -> None:
        """Carries out binds and evictions; ignores other effects."""
        queue = list(effects)
        while queue:
            victims = [one.uid for one in queue if isinstance(one, ef.EvictPod | ef.DeletePod)]
            self._judge(victims)
            events = [event for uid in victims for event in self._evict(uid)]
            events += [event for one in queue if isinstance(one, ef.BindPod) for event in self._bind(one)]
            queue = self._core.handle(events, self.now_s) if events else []

    def _bind(self, bind: ef.BindPod) -> Iterable[ev.Event]:
        pod, gpus, run_s = self._waiting.pop(bind.uid)
        self._n_waiting[pod.metadata.namespace] -= 1
        metadata = replace(
            pod.metadata,
            annotations={**(pod.metadata.annotations or {}), **bind.annotations},
            resource_version="2",
        )
        bound = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=bind.node))
        self._running[bind.uid] = _Running(bound, gpus)
        if run_s is None:
            run_s = self.random.uniform(0.5, 1.5) * self._mean_s
        heapq.heappush(self._ends, (self.now_s + run_s, bind.uid))
        return (ev.BindSucceeded(bind.uid, bind.attempt), ev.PodUpdated(bound))

    def _evict(self, uid: str) -> Iterable[ev.Event]:
        one = self._running[uid]
        grace_s = one.pod.spec.termination_grace_period_seconds or 0
        gone_at = datetime.fromtimestamp(self.now_s + grace_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = replace(one.pod.metadata, deletion_timestamp=gone_at, resource_version="3")
        one.pod, one.is_going = replace(one.pod, metadata=metadata), True
        self._evicted.append(one.pod)
        heapq.heappush(self._ends, (self.now_s + grace_s, uid))
        return (ev.EvictionSucceeded(uid), ev.PodUpdated(one.pod))

    def _judge(self, victims: Sequence[str]) -> None:
        """Counts victims without which their queue holds less than is guaranteed to it."""
        held: Counter[str] = Counter()
        for one in self._running.values():
            held[one.pod.metadata.namespace] += 0 if one.is_going else one.gpus
        for uid in victims:
            queue = self._running[uid].pod.metadata.namespace
            held[queue] -= self._running[uid].gpus
            self.n_lost_within += held[queue] < self._guaranteed[queue]


def _pod(queue: str, name: str, rank: int, n_pods: int, gpus: int, grace_s: int) -> Pod:
    uid = f"{name}-{rank}"
    metadata: dict[str, Any] = {"name": uid, "namespace": queue, "uid": uid, "resourceVersion": "1"}
    if n_pods > 1:
        metadata["labels"] = {GROUP_LABEL: name}
        metadata["annotations"] = {MIN_MEMBERS_KEY: str(n_pods)}
    amounts = {"cpu": "100m", "memory": "128Mi", RESOURCE: str(gpus)}
    spec: dict[str, Any] = {
        "schedulerName": "gangsched",
        "terminationGracePeriodSeconds": grace_s,
        "containers": [{"name": "main", "image": "task", "resources": {"requests": amounts}}],
    }
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)
