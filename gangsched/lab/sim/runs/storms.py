"""Storms: named ways to run a seed; the command and the tests share them.

Lives here: which workload, weather and settings belong together, running one seed, and minimizing a failing
one. Not here: faults (faults, mischief), checks (checkers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from gangsched.config import Settings, parse_config
from gangsched.config.devices import DeviceSettings
from gangsched.config.documents import KUBE_API_VERSION, KUBE_KIND
from gangsched.config.queueing import QueueingSettings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.faults import mischief, misuse, sick_devices
from gangsched.lab.sim.faults.fickle_plugins import KINDS
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.runs.claim_run import (
    ClaimDuel,
    ClaimSimulation,
)
from gangsched.lab.sim.runs.driver import Broken, Simulation
from gangsched.lab.sim.runs.duel import Duel, make_follower
from gangsched.lab.sim.runs.fickle_run import FickleSimulation, fickle_workload
from gangsched.lab.sim.runs.reload_mix import reloads_workload, start_reloads
from gangsched.lab.sim.runs.volume_run import VolumeSimulation
from gangsched.lab.sim.workloads.arrivals import (
    Workload,
    hostile_workload,
    policies_workload,
    preempting_workload,
    random_workload,
)
from gangsched.lab.sim.workloads.dialects import dialects_workload
from gangsched.lab.sim.workloads.large import large_gang_workload, linked_groups_workload
from gangsched.lab.sim.workloads.late_gangs import late_workload
from gangsched.lab.sim.workloads.links import bandwidth_workload
from gangsched.lab.sim.workloads.pod_constraints import constrained_workload
from gangsched.lab.sim.workloads.queues import limited as limited_queues
from gangsched.lab.sim.workloads.queues.guaranteed import (
    SETTINGS,
    lending_workload,
    make_with_queues,
    queue_guarantees_workload,
)
from gangsched.lab.sim.workloads.queues.tenants import SETTINGS as TENANTS
from gangsched.lab.sim.workloads.queues.tenants import make_with_tenants, storing_workload, tenants_workload
from gangsched.lab.sim.workloads.racks import topology_workload
from gangsched.lab.sim.workloads.resource_claims import mixed_claims_workload
from gangsched.lab.sim.workloads.volumes import volumes_workload
from gangsched.lab.sim.workloads.walltimes import overtime_workload, walltimes_workload
from gangsched.lab.sim.world.resource_claims import trouble
from gangsched.lab.sim.world.weather import CALM, STORM, Rates
from gangsched.plugins import IN_TREE

FENCED = Settings(fence=True)
# Without a fence there must be no late binds: one does harm if it lands after a GET found the pod unbound and
# its room was released, or after another process listed its pod.
ROUGH = replace(STORM, late=0.0)
HOSTILE = replace(STORM, proxied=0.06, throttled=0.03, unread=0.1, misuse_per_s=1.0)
FICKLE = replace(STORM, bad_spells=0.4)
# STORM would lose one in eight of thousands of binds, and each loss occupies a place among those in flight.
LARGE = replace(ROUGH, lost_before=0.01, lost_after=0.01, slow=0.01, longest_timeout_s=2.0)
_STORM_S = 40.0
_PACES = ("mischief_per_s", "misuse_per_s", "tampering_per_s", "sick_per_s", "bad_spells")
_MEASURES = frozenset(("watch_delay_s", "longest_timeout_s", "without", "crashes", *_PACES))
Make = Callable[[Settings], Scheduler]


class Storm(msgspec.Struct, frozen=True):
    """A way to run seeds.

    `title`: for people. `is_slow`: a seed takes seconds; one in four is run beside other storms. `is_duel`:
    two schedulers. `foresees`: they list pods in the fence before they place them. `simulation`: what runs a
    seed. `mixes`: a seed is one of these instead.
    """

    title: str
    workload: Callable[[int], Workload] = random_workload
    rates: Rates = STORM
    settings: Settings = FENCED
    storm_s: float = _STORM_S
    make: Make = make_scheduler
    is_slow: bool = False
    is_duel: bool = False
    foresees: bool = False
    simulation: Callable[..., Simulation | Duel] = Simulation
    mixes: tuple[Storm, ...] = ()


STORMS: dict[str, Storm] = {
    "storm": Storm("everything goes wrong for 40 s, then nothing more; binds outlive their processes"),
    "calm": Storm("good weather", rates=CALM),
    "unwind": Storm(
        "as storm; gangs bound in part are unwound at once, unless they state otherwise",
        policies_workload,
        settings=replace(FENCED, on_partial_bind="unwind"),
    ),
    "sick": Storm(
        "as storm; a pod with a failed device is evicted, with all of its gang, unless it states otherwise",
        policies_workload,
        settings=replace(
            FENCED,
            devices=DeviceSettings(on_failure="evictGang", failure_grace_s=2.0),
            on_partial_bind="unwind",
        ),
    ),
    "unwell": Storm(
        "as sick, and kubelets find devices under pods sick, and well again, or know no longer",
        policies_workload,
        rates=replace(STORM, sick_per_s=1.0),
        settings=replace(
            FENCED,
            successor_timeout_s=5.0,
            devices=DeviceSettings(on_failure="evictGang", failure_grace_s=2.0),
            on_partial_bind="unwind",
        ),
    ),
    "refused": Storm(
        "as storm, and kubelets do not admit one bound pod in eight; places of lost members are kept",
        policies_workload,
        rates=replace(STORM, refused=0.12),
        settings=replace(FENCED, successor_timeout_s=10.0),
    ),
    "one-process": Storm("as storm, and the process never dies", rates=replace(STORM, crashes=False)),
    "labels": Storm(
        "as storm, with device IDs in labels",
        settings=replace(FENCED, devices=DeviceSettings(allocation_in="labels")),
    ),
    "hostile": Storm(
        "as storm, with hostile objects and edits, thieves, lying front ends, throttling, clocks and CRDs",
        hostile_workload,
        rates=HOSTILE,
    ),
    "crowd": Storm(
        "a gang of thousands among small ones", large_gang_workload, rates=LARGE, storm_s=25.0, is_slow=True
    ),
    "web": Storm("sets of groups that list one another", linked_groups_workload, is_slow=True),
    "preempting": Storm(
        "too small a cluster, four priorities",
        partial(preempting_workload, stubborn=False),
        settings=replace(FENCED, permit_wait_s=15.0),
        storm_s=60.0,
    ),
    "claims": Storm(
        "gangs of the whole cluster behind a stream, where room is kept for groups passed twice",
        walltimes_workload,
        settings=replace(FENCED, permit_wait_s=15.0, queueing=QueueingSettings(2, mode="hard")),
        storm_s=60.0,
    ),
    "budget": Storm(
        "as claims, and only once what a claim keeps idle is earned",
        walltimes_workload,
        settings=replace(FENCED, permit_wait_s=15.0, queueing=QueueingSettings(2, mode="budget")),
        storm_s=60.0,
    ),
    "overrun": Storm(
        "as claims, and what runs past its stated walltime is evicted for them",
        partial(walltimes_workload, longest_s=120.0),
        settings=replace(
            FENCED,
            permit_wait_s=15.0,
            queueing=QueueingSettings(2, mode="hard", on_overrun="yield"),
        ),
        storm_s=60.0,
    ),
    "overtime": Storm(
        "as claims, and what runs past its stated walltime is evicted; some of it would never end",
        overtime_workload,
        settings=replace(
            FENCED,
            permit_wait_s=15.0,
            queueing=QueueingSettings(2, mode="hard", on_overrun="evict"),
        ),
        storm_s=60.0,
    ),
    "queues": Storm(
        "three teams, two of which get back what is guaranteed to them, with claims at a bound of two",
        queue_guarantees_workload,
        settings=replace(FENCED, permit_wait_s=15.0, queueing=SETTINGS.queueing, queues=SETTINGS.queues),
        make=make_with_queues,
        storm_s=60.0,
    ),
    "tenants": Storm(
        "as claims, lending or preempting, of three namespaces, none of which may learn of another",
        tenants_workload,
        settings=replace(FENCED, permit_wait_s=15.0, queueing=TENANTS.queueing, queues=TENANTS.queues),
        make=make_with_tenants,
        storm_s=45.0,
    ),
    "storing": Storm(
        "as volumes, of three namespaces with disruption budgets, none of which may learn of another",
        storing_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
        simulation=VolumeSimulation,
    ),
    "lending": Storm(
        "teams of which one has borrowed the cluster, and the others get back what is guaranteed to them",
        lending_workload,
        settings=replace(FENCED, permit_wait_s=15.0, queues=SETTINGS.queues),
        make=make_with_queues,
        storm_s=25.0,
    ),
    "limits": Storm(
        "queues with limits, gangs that need all of one, and small pods that fit below it",
        limited_queues.queue_limits_workload,
        settings=replace(
            FENCED,
            permit_wait_s=15.0,
            queueing=limited_queues.SETTINGS.queueing,
            queues=limited_queues.SETTINGS.queues,
        ),
        make=limited_queues.make_with_limits,
        storm_s=45.0,
    ),
    "duel": Storm(
        "as storm, by two schedulers, each of which may believe that it leads",
        make=make_follower,
        is_duel=True,
    ),
    "foreseen": Storm(
        "as duel, and gangs in line are listed in the fence before they are placed",
        make=make_follower,
        is_duel=True,
        foresees=True,
    ),
    "racks": Storm(
        "as storm, of gangs that must be in one rack or block, or would rather be",
        topology_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
    ),
    "wordings": Storm(
        "as storm, of gangs in other systems' dialects, with roles, and of pods with constraints on devices",
        dialects_workload,
        rates=replace(STORM, unread=0.1),
    ),
    "choosy": Storm(
        "as storm, of pods with selectors, affinity, tolerations, spread and ports; labels and taints change",
        constrained_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
    ),
    "links": Storm(
        "as storm, of pods that ask for bandwidth; agents report what nodes have left, or fall silent",
        bandwidth_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
    ),
    "late": Storm(
        "a full cluster, of gangs that wait for who comes late or never, and for victims that stay",
        late_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
        storm_s=75.0,
    ),
    "volumes": Storm(
        "as storm, of gangs with claims; volumes, claims and what nodes may attach change and get lost",
        volumes_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
        simulation=VolumeSimulation,
    ),
    "dra": Storm(
        "as storm, of gangs with resource claims; another allocator takes devices, claims and slices change",
        mixed_claims_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
        is_slow=True,
        simulation=ClaimSimulation,
    ),
    "dra-duel": Storm(
        "as dra, by two schedulers, each of which may believe that it leads",
        mixed_claims_workload,
        settings=replace(FENCED, permit_wait_s=15.0),
        make=make_follower,
        simulation=ClaimDuel,
    ),
    "moody": Storm(
        "as others, with plugins that refuse, raise and make gangs wait, in spells; most with claims",
        fickle_workload,
        rates=FICKLE,
        simulation=FickleSimulation,
    ),
    "reloads": Storm(
        "as others, with moods, volumes or a duel in some seeds, and every few seconds another configuration",
        reloads_workload,
        simulation=start_reloads,
    ),
    "unfenced": Storm("as storm, without a fence, and without late binds", rates=ROUGH, settings=Settings()),
}
_BESIDE_HOSTILE = (
    *("limits", "queues", "lending", "claims", "overtime"),
    *("volumes", "racks", "wordings", "preempting", "labels", "late", "choosy"),
)
_BESIDE_SICK = (
    *("overrun", "overtime", "lending", "limits"),
    *("volumes", "racks", "wordings", "preempting", "labels", "choosy"),
)
_BESIDE_CLAIMS = ("volumes", "racks", "wordings", "preempting", "sick", "unwind", "late", "choosy")
_BESIDE_DUEL = (
    *("claims", "overtime", "preempting", "racks", "wordings"),
    *("sick", "hostile", "labels", "late", "choosy"),
)


def _mixes(storms: Mapping[str, Storm]) -> tuple[Storm, ...]:
    """Combines storms with faults or settings of others: each alone was quiet where two at once were not."""
    sick = storms["sick"].settings
    failing = {"on_failure": sick.devices.on_failure, "failure_grace_s": sick.devices.failure_grace_s}
    found = [replace(storms[name], rates=storms["hostile"].rates) for name in _BESIDE_HOSTILE]
    for name in _BESIDE_SICK:
        own = storms[name].settings
        both = replace(own, devices=replace(own.devices, **failing), on_partial_bind=sick.on_partial_bind)
        found.append(replace(storms[name], settings=both))
    for name in _BESIDE_CLAIMS:
        bounded = replace(storms[name].settings, queueing=QueueingSettings(2, mode="hard"))
        found.append(replace(storms[name], settings=bounded))
    for k, name in enumerate(_BESIDE_DUEL):
        found.append(replace(storms[name], make=make_follower, is_duel=True, foresees=k % 2 == 1))
    return tuple(found)


STORMS["mixed"] = Storm("two of these at once", mixes=_mixes(STORMS))
_SILENT = f"apiVersion: {KUBE_API_VERSION}\nkind: {KUBE_KIND}\n"
_BY_DEFAULT = parse_config(_SILENT, source="the default", plugins=IN_TREE).settings.queueing
_INSTALLED = replace(FENCED, permit_wait_s=15.0, queueing=_BY_DEFAULT)
STORMS["installed"] = Storm(
    "as storm, preempting, claims or late, with the queueing of a configuration that says nothing about it",
    mixes=tuple(
        replace(STORMS[name], settings=_INSTALLED) for name in ("storm", "preempting", "claims", "late")
    ),
)


class Case(msgspec.Struct, frozen=True):
    """One seed of a storm, with the remaining part of its workload and faults.

    recount_every: steps of a scheduler between recounts of its counts.
    """

    storm: Storm
    seed: int
    workload: Workload
    rates: Rates
    recount_every: int = 1

    def run(self) -> Simulation | Duel:
        """Runs the storm, then calm until all is at rest. Raises: Broken."""
        sim = self.begun()
        sim.run_for(self.storm.storm_s)
        sim.settle()
        return sim

    def begun(self) -> Simulation | Duel:
        """Returns it before anything has happened."""
        storm = self.storm
        start = partial(Duel, foresees=storm.foresees) if storm.is_duel else storm.simulation
        return start(
            self.seed,
            self.workload,
            rates=self.rates,
            settings=storm.settings,
            make=storm.make,
            recount_every=self.recount_every,
        )

    def failure(self) -> Broken | None:
        """Runs it; returns the violation, if any."""
        try:
            self.run()
        except Broken as broken:
            return broken
        return None


def case(storm: Storm, seed: int) -> Case:
    """Returns the whole of a seed."""
    if storm.mixes:
        storm = storm.mixes[seed % len(storm.mixes)]
    return Case(storm, seed, storm.workload(seed), storm.rates)


class Shrunk(msgspec.Struct, frozen=True):
    """A failing case, minimized as far as the tries allowed."""

    case: Case
    broken: Broken
    size_before: int
    n_tries: int

    @property
    def faults(self) -> list[str]:
        """The kinds of faults that are left."""
        return _faults(self.case)


def _faults(one: Case) -> list[str]:
    """The kinds of events with its rates, each of which may be left out."""
    rates = one.rates
    names = [name for name in Rates.__struct_fields__ if name not in _MEASURES and getattr(rates, name)]
    if rates.mischief_per_s:
        names += mischief.DEEDS
        if one.storm.simulation in (ClaimSimulation, ClaimDuel):
            names += dict.fromkeys(trouble.DEEDS)
    if rates.misuse_per_s:
        names += misuse.DEEDS
    if rates.sick_per_s:
        names += sick_devices.DEEDS
    if rates.bad_spells:
        names += [kind.name for kind in KINDS]
    return [name for name in names if name not in rates.without]


def shrink(failing: Case, broken: Broken, *, max_tries: int = 120) -> Shrunk:
    """Cuts down to the shortest failing prefix of arrivals, without arrivals and faults that are not needed.

    Any failure counts, so the final one may differ from `broken`.
    """
    tries = _Tries(failing, broken, max_tries)
    workload = failing.workload
    for n in range(len(workload.arrivals)):
        if tries.take(replace(tries.case, workload=workload.prefix(n))):
            break
    for one in reversed(tries.case.workload.everything):
        tries.take(replace(tries.case, workload=tries.case.workload.without(one)))
    for pace in _PACES:
        if getattr(tries.case.rates, pace):
            tries.take(replace(tries.case, rates=replace(tries.case.rates, **{pace: 0.0})))
    for name in _faults(tries.case):
        without = tries.case.rates.without | {name}
        tries.take(replace(tries.case, rates=replace(tries.case.rates, without=without)))
    return Shrunk(tries.case, tries.broken, len(workload.everything), tries.n)


class _Tries:
    """The smallest failing case so far."""

    def __init__(self, failing: Case, broken: Broken, left: int) -> None:
        self.case = failing
        self.broken = broken
        self.n = 0
        self._left = left

    def take(self, smaller: Case) -> bool:
        """Takes the smaller case if it fails too; returns whether it does."""
        if self.n >= self._left:
            return False
        self.n += 1
        broken = smaller.failure()
        if broken is None:
            return False
        self.case, self.broken = smaller, broken
        return True
