"""The day's cluster: six racks of eight nodes, jobs that run and end, and what fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from msgspec.structs import replace

from gangsched.kube.watch import unparsed
from gangsched.lab.sim.faults.mischief import Mischief
from gangsched.lab.sim.objects import RACK, make_node
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY, reborn
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.streams import Stream
from gangsched.lab.sim.world.weather import Rates, Weather
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.model.owners import OWNER_KINDS, OwnerName
from gangsched.model.pod_group import GANG_KEY
from tests.journal.day.shapes import BLOCK, Coming

# A node, a device, a pod or a stranger, once in so many seconds; all is mended four times a day.
_FAULT_S = 420.0
_MENDED_S = 6 * 3600.0
RATES = Rates(
    lost_before=0.003,
    lost_after=0.003,
    conflict=0.01,
    forbidden=0.002,
    invalid=0.002,
    eviction_refused=0.1,
    mischief_per_s=1.0 / _FAULT_S,
    without=frozenset(("crash",)),
    crashes=False,
)
JOB_SETS = OWNER_KINDS["JobSet"].followed_as


def nodes_of(n_racks: int, per_rack: int) -> list[Node]:
    """8 GPUs each; one in twelve without a list of its devices."""
    made = []
    for i in range(n_racks * per_rack):
        rack = i // per_rack
        node = make_node(f"n{i}", gpus=8, listed=i % 12 != 11)
        labels = {RACK: f"r{rack}", BLOCK: f"b{rack // 2}"}
        made.append(replace(node, metadata=replace(node.metadata, labels=labels)))
    return made


class _Milliseconds(Timeline):
    """Times of few digits: most of a journal's bytes would be theirs."""

    def at(self, when_s: float, call: Callable[[], object]) -> None:
        super().at(round(when_s, 3), call)


class DayCluster:
    """An API server with nodes, to which gangs come. `hear` takes the events for the scheduler."""

    def __init__(
        self,
        seed: int,
        nodes: list[Node],
        coming: list[Coming],
        rates: Rates,
        hear: Callable[[ev.Event], None],
    ) -> None:
        self.timeline = _Milliseconds()
        self._hear = hear
        self._rng = Random(f"{seed}-cluster")
        self._weather = Weather(Random(f"{seed}-weather"), rates)
        self.api = SimApi(self.timeline, self._weather, hear)
        for dialect in ("volcano", "kai"):
            self._follow(f"podgroups.{dialect}")
        self.api.on_bound.append(self._started)
        self.api.on_gone.append(self._gone)
        self._done: set[str] = set()
        self._n_reborn = 0
        self._owners: dict[OwnerName, Coming] = {}
        self._left: dict[str, tuple[set[str], Coming]] = {}
        """Pods that still exist, or will come again, of each gang with an object beside them."""
        for node in nodes:
            self.api.put_node(node)
        for one in coming:
            self.timeline.at(one.at_s, partial(self._comes, one))
        self._mischief = Mischief(
            self.api,
            self.timeline,
            self._weather,
            Random(f"{seed}-mischief"),
            first_nodes={node.metadata.name: node for node in nodes},
            die_after=lambda _: None,
        )
        self._mischief.start()
        self.timeline.after(_MENDED_S, self._mend)

    def _follow(self, kind: str) -> None:
        api = self.api
        api.streams[kind] = Stream(
            kind,
            self.timeline,
            delay_s=self._weather.watch_delay_s,
            sink=self._hear,
            store=lambda: [(key, one) for key, one in api.groups.items() if kind == f"podgroups.{key[0]}"],
        )

    def connect(self) -> None:
        """A process starts: everything is listed for it."""
        self.api.hang_up()
        for one in self._owners.values():
            assert one.owner is not None
            self._hear(ev.OwnerPut(one.owner))
        self._hear(ev.KindSynced(JOB_SETS))
        self.api.connect(down_s=lambda: self._rng.uniform(0.0, 0.2))

    def missing(self, kinds: tuple[str, ...]) -> Iterator[ev.Event]:
        """Of these kinds there are none here."""
        for kind in kinds:
            if kind not in self.api.streams and kind != JOB_SETS:
                yield ev.KindMissing(kind)

    def carry_out(self, effect: ef.Effect) -> None:
        """What the scheduler wants done; its extender is asked here too.

        What it says in statuses comes to nothing: its echo would be half of the journal and decides nothing.
        """
        if isinstance(effect, ef.AskExtenders):
            self.timeline.after(self._rng.uniform(0.005, 0.05), partial(self._hear, _verdict(effect)))
        elif not isinstance(effect, ef.WritePodCondition | ef.WritePodGroupStatus):
            self.api.carry_out(effect)

    # -- what happens ------------------------------------------------------------------------------------

    def _comes(self, one: Coming) -> None:
        if one.owner is not None:
            self._owners[one.owner.named] = one
            self._hear(ev.OwnerPut(one.owner))
        if one.group is not None:
            self.api.put_group(one.dialect, one.group)
        if one.owner is not None or one.group is not None:
            left = ({pod.metadata.name for pod in one.pods}, one)
            self._left.update(dict.fromkeys(left[0], left))
        for k, pod in enumerate(one.pods):
            self.timeline.after(k * one.gap_s, partial(self._create, pod))
            if pod.spec.scheduling_gates:
                self.timeline.after(k * one.gap_s + one.ungate_s, partial(self._ungate, pod))

    def _create(self, pod: Pod) -> None:
        stamped = replace(pod.metadata, creation_timestamp=self.api.wall_time())
        self.api.create_pod(replace(pod, metadata=stamped))

    def _ungate(self, pod: Pod) -> None:
        now = self.api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is not None and now.spec.scheduling_gates:
            self.api.update_pod(now, spec=replace(now.spec, scheduling_gates=None))

    def _started(self, pod: Pod) -> None:
        run_s = (pod.metadata.annotations or {}).get(RUN_KEY)
        if run_s is not None:
            if not hash_of(pod.metadata.name) % 4:
                self.timeline.after(self._rng.uniform(0.5, 3.0), partial(self._runs, pod))
            self.timeline.after(float(run_s) + 3.0, partial(self._ends, pod))

    def _runs(self, pod: Pod) -> None:
        started = replace(pod.status, phase="Running", start_time=self.api.wall_time())
        self.api.update_pod(pod, status=started)

    def _ends(self, pod: Pod) -> None:
        """A job's members end together; who stays for its log, stays a while."""
        self._done.add(pod.metadata.uid)
        if hash_of((pod.metadata.annotations or {}).get(GANG_KEY, pod.metadata.name)) % 4:
            self.api.delete_pod(pod)
            return
        now = self.api.pods.get((pod.metadata.namespace, pod.metadata.name))
        if now is not None:
            self.api.update_pod(pod, status=replace(now.status, phase="Succeeded"))
            self.timeline.after(120.0, partial(self.api.delete_pod, pod))

    def _gone(self, pod: Pod) -> None:
        meta = pod.metadata
        if CONTROLLED_KEY in (meta.annotations or {}) and meta.uid not in self._done:
            self._n_reborn += 1
            again = reborn(pod, f"r{self._n_reborn}", self.api.wall_s)
            self.timeline.after(self._rng.uniform(0.1, 2.0), partial(self._create, again))
            return
        self._done.discard(meta.uid)
        left, one = self._left.pop(meta.name, (set(), None))
        left.discard(meta.name)
        if one is not None and not left:
            if one.group is not None:
                found = one.group.metadata
                self.api.delete_group(one.dialect, found.namespace, found.name)
            if one.owner is not None:
                del self._owners[one.owner.named]
                self._hear(ev.OwnerGone(one.owner.named, one.owner.uid))

    def _mend(self) -> None:
        self._mischief.repair()
        broken = b'{"metadata":{"name":"odd","namespace":"d","uid":"odd"},"spec":{"priority":"high"}}'
        self.api.refuse(unparsed.refused("pods", broken, ValueError("spec.priority is no number")))
        self.timeline.after(_MENDED_S, self._mend)


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum(text.encode())


def _verdict(effect: ef.AskExtenders) -> ev.ExtendersAnswered:
    """Licences are for nodes with even numbers, and better used on the last of them."""
    good = [name for name in effect.nodes if int(name[1:]) % 2 == 0]
    bad = {name: "has no licence" for name in effect.nodes if name not in good}
    scores = {name: min(int(name[1:]) // 6, 10) for name in good}
    return ev.ExtendersAnswered(effect.ticket, "", tuple(good), bad, scores)
