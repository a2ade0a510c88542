"""`bench --core`: decisions in memory. Parsed events go in, effects come out, no API.

Each size is measured in a process of its own, so that its peak memory is its own and no other size's garbage
is collected meanwhile. Run by lab.bench.command; the process is `python -m
gangsched.lab.bench.speed.core_speed NODES GANGS SIZE GPUS ROUNDS`, which prints its figures as JSON.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from rich.console import Console
from rich.table import Table

from gangsched.config import default_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import GangschedError
from gangsched.lab.bench.figures import Spread, spread
from gangsched.lab.bench.progress import Progress
from gangsched.lab.bench.rounds import meters
from gangsched.lab.bench.rounds.workload import (
    NAMESPACE,
    PodRef,
    Shape,
    group_name,
    members,
    node,
    pod_document,
    pod_name,
)
from gangsched.lab.bench.speed import (
    claim_speed,
    early_stop_speed,
    load_speed,
    member_speed,
    packing_speed,
    victims_speed,
    volume_speed,
)
from gangsched.lab.bench.speed.claim_speed import ClaimSpeed
from gangsched.lab.bench.speed.early_stop_speed import EarlyStopSpeed
from gangsched.lab.bench.speed.load_speed import LoadSpeed
from gangsched.lab.bench.speed.member_speed import MemberSpeed
from gangsched.lab.bench.speed.packing_speed import PackingCost
from gangsched.lab.bench.speed.victims_speed import VictimsSpeed
from gangsched.lab.bench.speed.volume_speed import VolumeSpeed
from gangsched.lab.bench.tables import of_spread, print_conditions, print_targets, text
from gangsched.lab.bench.targets import Target, at_least, at_most
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.process.garbage_collection import GarbageCollection, as_in_a_scheduler

SIZES = (
    ("1,000 nodes", Shape(n_nodes=1000, n_gangs=875, gang_size=8, gpus=8)),
    ("10,000 nodes", Shape(n_nodes=10_000, n_gangs=875, gang_size=8, gpus=8)),
    ("100,000 nodes", Shape(n_nodes=100_000, n_gangs=875, gang_size=8, gpus=8)),
    ("one gang of 1,000", Shape(n_nodes=5000, n_gangs=1, gang_size=1000, gpus=8)),
)
NAMES = tuple(name for name, _ in SIZES)
TIMEOUT_S = 900.0
_MEMBER_ROUNDS = 15
_PACKING_GANGS, _PACKING_ROUNDS = 200, 5


class CoreRound(msgspec.Struct):
    """Microseconds a gang: for the events of its pods, for deciding, and for the events of their binds."""

    ingest_us: float
    decide_us: float
    confirm_us: float

    @property
    def total_us(self) -> float:
        """All three."""
        return self.ingest_us + self.decide_us + self.confirm_us


class CoreSize(msgspec.Struct):
    """The results of one size; `load_s` is the time in which the core took all nodes in."""

    shape: Shape
    rounds: list[CoreRound]
    load_s: float
    peak_memory_mib: float


class CoreReport(msgspec.Struct):
    """The whole run."""

    conditions: dict[str, str | int | float]
    sizes: dict[str, CoreSize]
    gangs_per_s: dict[str, Spread]
    members: MemberSpeed
    ten_times_the_nodes: float
    loads: LoadSpeed
    lone_pods: EarlyStopSpeed
    victims: VictimsSpeed
    volumes: VolumeSpeed
    claims: ClaimSpeed
    packing: list[PackingCost]
    targets: list[Target]


def run(n_rounds: int, progress: Progress) -> CoreReport:
    """Runs all sizes, one after the other. Raises: GangschedError when a process fails."""
    sizes: dict[str, CoreSize] = {}
    for name, shape in SIZES:
        with progress.phase(f"{name}: {n_rounds} rounds"):
            arguments = (*msgspec.structs.astuple(shape), n_rounds)
            sizes[name] = msgspec.json.decode(in_own_process(__name__, arguments), type=CoreSize)
    asked = (member_speed.N_NODES, member_speed.GROUP_SIZE, _MEMBER_ROUNDS)
    with progress.phase(f"groups of {member_speed.GROUP_SIZE} with all plugins on: {_MEMBER_ROUNDS} rounds"):
        members = msgspec.json.decode(in_own_process(member_speed.__name__, asked), type=MemberSpeed)
    with progress.phase(f"bandwidth and load, {load_speed.N_NODES:,} nodes"):
        loads = load_speed.measure()
    with progress.phase(f"lone pods with and without an early stop, {early_stop_speed.N_NODES:,} nodes"):
        lone_pods = early_stop_speed.measure()
    with progress.phase(f"searches for victims on {victims_speed.N_NODES:,} full nodes"):
        victims = victims_speed.measure()
    with progress.phase(f"gangs with persistent volumes, {volume_speed.N_NODES:,} nodes"):
        volumes = volume_speed.measure()
    with progress.phase(f"gangs with resource claims, {claim_speed.N_NODES:,} nodes"):
        claims = claim_speed.measure()
    wanted = (packing_speed.N_NODES, _PACKING_GANGS, _PACKING_ROUNDS)
    with progress.phase(f"packing by weight, {packing_speed.N_NODES:,} nodes: {_PACKING_ROUNDS} rounds"):
        packing = msgspec.json.decode(in_own_process(packing_speed.__name__, wanted), type=list[PackingCost])
    return assemble(sizes, members, loads, lone_pods, victims, volumes, claims, packing)


def assemble(
    sizes: dict[str, CoreSize],
    members: MemberSpeed,
    loads: LoadSpeed,
    lone_pods: EarlyStopSpeed,
    victims: VictimsSpeed,
    volumes: VolumeSpeed,
    claims: ClaimSpeed,
    packing: list[PackingCost],
) -> CoreReport:
    """Computes the report from what was measured."""
    speeds = {name: spread([1e6 / r.total_us for r in size.rounds]) for name, size in sizes.items()}
    totals = {name: spread([r.total_us for r in size.rounds]) for name, size in sizes.items()}
    small, large = totals[NAMES[0]], totals[NAMES[1]]
    assert small is not None
    assert large is not None
    ratio = large.median / small.median
    decide = spread([r.decide_us / 1000 for r in sizes[NAMES[3]].rounds])
    targets = [
        at_least("gangs of 8 a second on 1,000 nodes", 5000, speeds[NAMES[0]]),
        at_most("cost of a gang on 10,000 nodes, by that on 1,000", 10, ratio, "x"),
        at_most("peak memory with 100,000 nodes of 8 GPUs", 4096, sizes[NAMES[2]].peak_memory_mib, "MiB"),
        at_most("decision on one gang of 1,000 on 5,000 nodes", 10, decide, "ms"),
        at_most("RemainingBandwidth and LoadAware, filter and score, 5,000 nodes", 200, loads.total_us, "us"),
        # A lease is renewed every two seconds, and nothing else happens in one turn.
        at_most("a search for victims on 5,000 full nodes", 1000, victims.longest_ms, "ms"),
        at_most("decision on a gang of 8 with volumes on 5,000 nodes", 25, volumes.longest_ms, "ms"),
        at_most(
            "first decision on a gang of 8 with resource claims on 5,000 nodes", 300, claims.cold_ms, "ms"
        ),
        at_most("each later one", 3, claims.warm_ms, "ms"),
        at_most("one after a slice has changed", 10, claims.changed_ms, "ms"),
        at_most("its refusal where all devices are taken", 10, claims.refused_ms, "ms"),
        # Of 1,000 a second: 5% of a core.
        at_most("a claim of others while 10,000 groups wait", 50, claims.event_us, "us"),
    ]
    for name in (member_speed.PLAIN, member_speed.CONSTRAINED, member_speed.BY_NODE):
        cost = members.costs[name]
        targets += [
            at_most(f"first member of a group of 100, {name}", 2, spread(cost.first_ms), "ms"),
            at_most("each next one", 50, spread(cost.next_us), "us"),
        ]
    worst = max(packing_speed.ratio(cost, packing) for cost in packing)
    targets.append(at_most("a decision with packing by weight, by one without", 1.5, worst, "x"))
    conditions: dict[str, str | int | float] = {
        "cores": meters.n_cores(),
        "python": sys.version.split()[0],
        "rounds": len(sizes[NAMES[0]].rounds),
    }
    found = {name: value for name, value in speeds.items() if value is not None}
    return CoreReport(
        *(
            conditions,
            sizes,
            found,
            members,
            ratio,
            loads,
            lone_pods,
            victims,
            volumes,
            claims,
            packing,
            targets,
        )
    )


def in_own_process(module: str, arguments: Sequence[int]) -> bytes:
    """Runs the module with these arguments and returns what it prints. Raises: GangschedError if it fails."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise GangschedError(f"{module} {arguments} failed:\n{done.stderr.decode()[-2000:]}")
    return done.stdout


def measure(shape: Shape, n_rounds: int) -> CoreSize:
    """Measures one size, in this process: the nodes, then rounds of adding, deciding, confirming,
    deleting."""
    scheduler, load_s = _loaded(shape)
    with as_in_a_scheduler() as garbage:
        # The first one warms up.
        rounds = [_round(scheduler, garbage, shape, number) for number in range(n_rounds + 1)][1:]
    return CoreSize(shape, rounds, load_s, meters.peak_memory_bytes(os.getpid()) / 2**20)


def _loaded(shape: Shape) -> tuple[Scheduler, float]:
    config = default_config(IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings)
    load_s = 0.0
    # In portions, as pages of a list come: what is parsed and not taken in yet is not the core's memory.
    for first in range(0, shape.n_nodes, 500):
        nodes = [node(i, shape.gpus) for i in range(first, min(first + 500, shape.n_nodes))]
        at_s = time.perf_counter()
        scheduler.handle([ev.NodeAdded(one) for one in nodes], 0.0)
        load_s += time.perf_counter() - at_s
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    return scheduler, load_s


def _round(scheduler: Scheduler, garbage: GarbageCollection, shape: Shape, number: int) -> CoreRound:
    prefix, now_s = f"c{number}", 10.0 * (number + 1)
    n_before = shape.n_nodes + number * 2 * shape.n_pods
    pods = [_pod(prefix, ref, shape, n_before + n) for n, ref in enumerate(members(shape))]
    gangs = [pods[first : first + shape.gang_size] for first in range(0, len(pods), shape.gang_size)]
    gc.collect()
    at_s = [time.perf_counter()]
    for gang in gangs:
        scheduler.handle([ev.PodAdded(pod) for pod in gang], now_s)
        garbage.between_turns()
    at_s.append(time.perf_counter())
    effects: list[ef.Effect] = []
    while (answer := scheduler.schedule_next(now_s + 1)) is not None:
        effects += answer
        garbage.between_turns()
    at_s.append(time.perf_counter())
    binds = [effect for effect in effects if isinstance(effect, ef.BindPod)]
    if len(binds) != shape.n_pods:
        raise GangschedError(f"{len(binds)} of {shape.n_pods} pods were placed")
    for first in range(0, len(binds), shape.gang_size):
        some = binds[first : first + shape.gang_size]
        scheduler.handle([ev.BindSucceeded(bind.uid, bind.attempt) for bind in some], now_s + 2)
        garbage.between_turns()
    at_s.append(time.perf_counter())
    scheduler.validate()
    scheduler.handle([ev.PodDeleted(pod) for pod in pods], now_s + 3)
    ingest, decide, confirm = ((after - before) * 1e6 / shape.n_gangs for before, after in pairwise(at_s))
    return CoreRound(ingest, decide, confirm)


def _pod(prefix: str, ref: PodRef, shape: Shape, version: int) -> Pod:
    """Makes a pod with our label and annotation; without a group object, as there is no API."""
    document = pod_document(prefix, ref, "gangsched")
    del document["spec"]["schedulingGroup"]
    document["metadata"] |= {
        "uid": f"{NAMESPACE}-{pod_name(prefix, ref)}",
        "resourceVersion": str(version),
        "labels": {GROUP_LABEL: group_name(prefix, ref.gang)},
        "annotations": {MIN_MEMBERS_KEY: str(shape.gang_size)},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def print_report(done: CoreReport, console: Console) -> None:
    """Prints the tables and the promises."""
    print_conditions(done.conditions, console)
    table = Table(title="microseconds a gang: median (min..max)", title_justify="left")
    for column in (
        "",
        "gangs",
        "pods heard of",
        "decision",
        "confirmation",
        "gangs/s",
        "load, s",
        "MiB",
    ):
        table.add_column(column, justify="right" if column else "left")
    for name, size in done.sizes.items():
        parts = [
            spread([r.ingest_us for r in size.rounds]),
            spread([r.decide_us for r in size.rounds]),
            spread([r.confirm_us for r in size.rounds]),
            done.gangs_per_s.get(name),
        ]
        of = f"{size.shape.n_gangs} of {size.shape.gang_size}"
        ends = (text(size.load_s), text(size.peak_memory_mib))
        table.add_row(name, of, *(of_spread(part) for part in parts), *ends)
    console.print(table)
    console.print(_members_table(done.members))
    floor = spread(done.members.floor_ms)
    console.print(
        f"of which a plugin's own code, asked to filter and to score {member_speed.N_NODES:,} nodes and"
        f" nothing else: {of_spread(floor)} ms; where one node takes the group it is asked about few of them"
    )
    loads = done.loads
    console.print(
        f"bandwidth and load on {load_speed.N_NODES:,} nodes: RemainingBandwidth filter"
        f" {loads.bandwidth_filter_us:.0f} us, score {loads.bandwidth_score_us:.0f} us; LoadAware score"
        f" {loads.load_score_us:.0f} us"
    )
    lone = done.lone_pods
    console.print(
        f"a lone pod on {early_stop_speed.N_NODES:,} nodes: {lone.all_nodes_us:.0f} us with all scored,"
        f" {lone.early_stop_us:.0f} us with the early stop of percentageOfNodesToScore 0"
    )
    victims = done.victims
    console.print(
        f"a search for victims on {victims_speed.N_NODES:,} full nodes (40,000 pods):"
        f" {victims.lone_ms:.0f} ms for a lone pod, {victims.gang_ms:.0f} ms for a gang of"
        f" {victims_speed.N_MEMBERS}, {victims.one_a_rack_ms:.0f} ms for one with a member a rack"
    )
    volumes = done.volumes
    console.print(
        f"a decision on a gang of {volume_speed.N_MEMBERS} on {volume_speed.N_NODES:,} nodes:"
        f" {volumes.none_ms:.2f} ms without volumes, {volumes.shared_ms:.1f} ms with a claim that all share,"
        f" {volumes.own_ms:.1f} ms with a claim each, {volumes.made_ms:.1f} ms if volumes are to be made"
    )
    claims = done.claims
    console.print(
        f"a decision on a gang of {claim_speed.N_MEMBERS} with a resource claim each on"
        f" {claim_speed.N_NODES:,} nodes (40,000 devices): {claims.cold_ms:.0f} ms the first time, then"
        f" {claims.warm_ms:.1f} ms, {claims.changed_ms:.1f} ms after a slice has changed,"
        f" {claims.refused_ms:.1f} ms where all devices are taken; a claim of others, while"
        f" {claim_speed.N_WAITING:,} groups wait: {claims.event_us:.0f} us"
    )
    console.print(packing_speed.table(done.packing))
    print_targets(done.targets, console)


def _members_table(members: MemberSpeed) -> Table:
    title = f"groups of {member_speed.GROUP_SIZE} on {member_speed.N_NODES:,} nodes, all plugins on"
    table = Table(title=title, title_justify="left")
    for column in ("", "first member, ms", "each next, us"):
        table.add_column(column, justify="right" if column else "left")
    for name, cost in members.costs.items():
        table.add_row(name, of_spread(spread(cost.first_ms)), of_spread(spread(cost.next_us)))
    return table


def main(arguments: Sequence[str]) -> int:
    """The process of one size."""
    n_nodes, n_gangs, gang_size, gpus, n_rounds = (int(value) for value in arguments)
    done = measure(Shape(n_nodes=n_nodes, n_gangs=n_gangs, gang_size=gang_size, gpus=gpus), n_rounds)
    sys.stdout.buffer.write(msgspec.json.encode(done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
