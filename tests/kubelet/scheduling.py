"""The scheduler of a round, as far as it matters on one node: plan, spacing, repair.

The real ones are core.cycle.device_allocation, core.binding.admission_conflicts and core.device_audit.
"""

from __future__ import annotations

from collections.abc import Container
from random import Random

from gangsched.core.binding.admission_conflicts import are_interchangeable
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.devices.report import DeviceReport
from gangsched.model.objects import ObjectMeta, Pod, PodStatus
from gangsched.model.resources import ResourceTable
from tests.kubelet.round_api import RoundApi
from tests.kubelet.shapes import (
    GPU,
    NIC,
    Allocation,
    Shape,
    allocation_of,
    is_near,
    member,
    sets_of,
    shape_of,
    whole_of,
)


class RoundScheduler:
    """shows_pods: kubelet has the Pods API, so no spacing is needed. by_gang: see `_is_spaced`.

    `report`: what the Node says, the agent's last report.
    """

    def __init__(
        self,
        rng: Random,
        api: RoundApi,
        inventory: dict[str, dict[str, int]],
        *,
        shows_pods: bool,
        by_gang: bool,
    ) -> None:
        self._rng = rng
        self._api = api
        self._inventory = inventory
        self._shows_pods = shows_pods
        self._by_gang = by_gang
        self.report = DeviceReport()
        self.plans: dict[str, set[frozenset[str]]] = {}
        self.wholes: set[frozenset[str]] = set()
        self.waiting: list[tuple[str, Shape, bool]] = []
        self.n_swaps = self.n_bound = self.n_gangs = self.n_near = self.n_late = 0
        self._gang_of: dict[str, str] = {}
        self._table = ResourceTable()
        self._templates: dict[int, tuple[Pod, PodTemplate]] = {}

    def submit(self) -> None:
        """A gang's members that land here: their shape, and as many of them as there may be."""
        self.n_gangs += 1
        n = self._rng.choice((1, 1, 2, 2, 4 if len(self._inventory[GPU]) > 4 else 3))
        kind = self._rng.random()
        if kind < 0.6:
            shape: Shape = (("main", GPU, n, True),)
        elif kind < 0.75:
            shape = (("main", GPU, n, True), ("main", NIC, 1, True))
        elif kind < 0.9:
            shape = (("one", GPU, 1, True), ("two", GPU, n, True))
        else:
            shape = (("setup", GPU, self._rng.randint(1, n), False), ("main", GPU, n, True))
        n_running = sum(count for _, resource, count, runs in shape if runs and resource == GPU)
        n_per_node = sum(not where for where in self._inventory[GPU].values())
        is_mixed = 1 < n_running <= n_per_node and self._rng.random() < 0.5
        for _ in range(self._rng.randint(1, 4)):
            near = is_mixed and self._rng.random() < 0.5
            self.waiting.append((f"gang-{self.n_gangs}", shape, near))

    def bind(self) -> bool:
        """Binds the first of those that wait, if devices are free and nobody like it is due."""
        if not self.waiting:
            return False
        gang, shape, near = self.waiting[0]
        like = member(shape, near)
        if not self._is_spaced(gang, shape, like):
            return False
        allocation = self._planned(shape, near=near)
        if allocation is None:
            return False
        self.waiting.pop(0)
        self.n_bound += 1
        self.n_near += near
        uid = f"u-{self.n_bound}"
        meta = ObjectMeta(
            name=f"{gang}-{self.n_bound}",
            namespace="default",
            uid=uid,
            annotations=like.metadata.annotations,
        )
        meta = self._api.carrying(meta, allocation)
        self._gang_of[uid] = gang
        self.plans[uid] = set()
        self._api.put(Pod(meta, like.spec, PodStatus(phase="Pending")))
        self._remember_plan(uid)
        self.wholes.add(whole_of(allocation))
        return True

    def _remember_plan(self, uid: str) -> None:
        self.plans[uid] |= {ids for _, _, ids in sets_of(self._api.pods[uid])}

    def _is_spaced(self, gang: str, shape: Shape, like: Pod) -> bool:
        """As core.binding.admission_conflicts has it; `by_gang`: as if all members of a gang were
        interchangeable."""
        if self._shows_pods:
            return True
        counts = {(resource, n) for _, resource, n, _ in shape}
        reported = {one.uid for one in self.report.pods}
        for uid, pod in self._api.pods.items():
            if pod.is_terminal or pod.status.start_time is not None or uid in reported:
                continue
            for resource, _ in counts & {(resource, len(ids)) for _, resource, ids in sets_of(pod)}:
                if self._gang_of[uid] != gang or not (self._by_gang or self._are_alike(like, pod, resource)):
                    return False
        return True

    def _are_alike(self, one: Pod, other: Pod, resource: str) -> bool:
        return are_interchangeable(self._template(one), self._template(other), resource)

    def _template(self, pod: Pod) -> PodTemplate:
        known = self._templates.get(id(pod))
        if known is None or known[0] is not pod:
            known = self._templates[id(pod)] = pod, PodTemplate(pod, self._table, len(self._templates))
        return known[1]

    def _planned(self, shape: Shape, *, near: bool) -> Allocation | None:
        free = {resource: set(devices) for resource, devices in self._inventory.items()}
        for pod in self._api.pods.values():
            if not pod.is_terminal:
                for _, resource, ids in sets_of(pod):
                    free[resource] -= ids
        for one in self.report.pods:  # what is held in truth, whatever an annotation still says
            for sets in one.containers.values():
                for resource, held in sets.items():
                    free[resource] -= set(held)
        if near:
            n_running = sum(count for _, resource, count, runs in shape if runs and resource == GPU)
            homes = [home for where in (0, 1) if len(home := self._of_numa(free[GPU], where)) >= n_running]
            if not homes:
                return None
            free[GPU] = self._rng.choice(homes)
        allocation: Allocation = {}
        for name, resource, n, runs in sorted(shape, key=lambda one: not one[3]):
            if runs:
                if len(free[resource]) < n:
                    return None
                numa = self._inventory[resource]
                pool = sorted(free[resource])
                self._rng.shuffle(pool)
                if self._rng.random() < 0.5:
                    pool.sort(key=lambda one: numa[one])
                chosen = pool[:n]
                free[resource] -= set(chosen)
            else:  # an init container's are its pod's
                whole = [one for sets in allocation.values() for one in sets.get(resource, ())]
                chosen = self._rng.sample(sorted(whole), n)
            allocation.setdefault(name, {})[resource] = chosen
        order = list(dict.fromkeys(name for name, *_ in shape))
        return {name: allocation[name] for name in order}

    def _of_numa(self, devices: set[str], where: int) -> set[str]:
        return {device for device in devices if self._inventory[GPU][device] == where}

    def make_again(self, pod: Pod) -> None:
        """As the controller of its gang does with a pod that has failed."""
        self.waiting.append((self._gang_of[pod.metadata.uid], shape_of(pod), is_near(pod)))

    def repair(self, ended: Container[str]) -> None:
        """Makes the annotations true, by exchange among the pods of the node; `ended`: those that have."""
        for one in self.report.pods:
            pod = self._api.pods.get(one.uid)
            if pod is None or pod.is_terminal:
                continue
            for container, sets in one.containers.items():
                for resource, held in sets.items():
                    self._make_true(one.uid, container, resource, frozenset(held))
        for one in self.report.ended:
            if one.uid in ended:
                self.n_late += 1
                mine = allocation_of(self._api.pods[one.uid])
                for container, sets in one.containers.items():
                    mine[container] |= {resource: list(held) for resource, held in sets.items()}
                self._api.annotate(one.uid, self._with_inits(one.uid, mine))

    def _make_true(self, uid: str, container: str, resource: str, held: frozenset[str]) -> None:
        mine = allocation_of(self._api.pods[uid])
        planned = frozenset(mine.get(container, {}).get(resource, ()))
        if planned == held:
            return
        others = [
            (other, name)
            for other, pod in self._api.pods.items()
            if not pod.is_terminal
            for name, of, ids in sets_of(pod)
            if of == resource and ids == held and (other, name) != (uid, container)
        ]
        mine[container][resource] = sorted(held)
        self._api.annotate(uid, self._with_inits(uid, mine))
        for other, name in others:
            theirs = allocation_of(self._api.pods[other])
            theirs[name][resource] = sorted(planned)
            self._api.annotate(other, self._with_inits(other, theirs))
            self._remember_plan(other)
            self.n_swaps += 1

    def _with_inits(self, uid: str, allocation: Allocation) -> Allocation:
        """Plain init containers have what is their pod's."""
        inits = {one.name for one in self._api.pods[uid].spec.init_containers or ()}
        for name in inits:
            for resource, ids in allocation.get(name, {}).items():
                rest = [sets.get(resource, []) for other, sets in allocation.items() if other not in inits]
                whole = sorted({one for part in rest for one in part})
                if not set(ids) <= set(whole):
                    allocation[name][resource] = whole[: len(ids)]
        return allocation
