"""Checks a round's result: every pod on a node, every device assigned once, every write in one piece. Pure.

Takes the watcher's log and the server's last list. Returns problems in words; an empty result is good.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gangsched.errors import ParseError
from gangsched.lab.bench.figures import percentile
from gangsched.lab.bench.rounds.watch_log import Seen, first_binds
from gangsched.lab.bench.rounds.workload import RESOURCE
from gangsched.model.devices.annotations import ALLOCATED_KEY, DeviceInventory, parse_allocation
from gangsched.model.objects import Pod
from gangsched.model.pod_group import RANK_KEY
from gangsched.model.text.printable import several

MAX_GANGS_OPEN = 16
"""The binds that are in flight at once; if more gangs are bound in part at one moment, binds did not go gang
by gang."""


class Gangs(msgspec.Struct, frozen=True):
    """How gangs were bound: milliseconds from a gang's first bind to its last, and how many gangs were bound
    in part at one moment."""

    span_p50_ms: float
    span_p99_ms: float
    span_max_ms: float
    most_open: int


class Findings(msgspec.Struct, frozen=True):
    """What the watch and the list show about a round."""

    problems: list[str]
    n_bound: int
    first_bind_ns: int
    last_bind_ns: int
    gangs: Gangs | None


def check(
    log: Sequence[Seen],
    final: Sequence[Pod],
    *,
    gang_size: int,
    gpus: int,
    inventories: Mapping[str, DeviceInventory] | None,
    gang_by_gang: bool = False,
) -> Findings:
    """Examines one round; `inventories` by node, if the scheduler writes device IDs."""
    binds = first_binds(list(log))
    problems = [
        *_unbound(final, binds),
        *_moved(log),
        *_overcommitted(final, gpus),
        *_partial_gangs(final),
    ]
    if inventories is not None:
        problems += [*_split_writes(log, binds), *_devices(final, inventories), *_ranks(final, gang_size)]
    gangs = _gangs(binds)
    if gang_by_gang and gangs is not None and gangs.most_open > MAX_GANGS_OPEN:
        problems.append(
            f"{gangs.most_open} gangs were bound in part at one moment, at most {MAX_GANGS_OPEN} expected"
        )
    times = [seen.at_ns for seen in binds.values()]
    return Findings(problems, len(binds), min(times, default=0), max(times, default=0), gangs)


def _say(one: str, more: str, examples: Sequence[str]) -> list[str]:
    """one, more: what is wrong, in singular and plural."""
    return [f"{several(len(examples), one, more)}, first {examples[0]}"] if examples else []


def _unbound(final: Sequence[Pod], binds: Mapping[str, Seen]) -> list[str]:
    unseen = [pod.key for pod in final if pod.spec.node_name and pod.metadata.uid not in binds]
    return [
        *_say("pod is not bound", "pods are not bound", [pod.key for pod in final if not pod.spec.node_name]),
        *_say(
            "pod is bound in the list and not in the watch",
            "pods are bound in the list and not in the watch",
            unseen,
        ),
    ]


def _moved(log: Sequence[Seen]) -> list[str]:
    nodes: dict[str, str] = {}
    moved = []
    for seen in log:
        node = seen.pod.spec.node_name
        if node and nodes.setdefault(seen.pod.metadata.uid, node) != node:
            moved.append(seen.pod.key)
    return _say("pod changed its node", "pods changed their node", moved)


def _overcommitted(final: Sequence[Pod], gpus: int) -> list[str]:
    used = Counter(pod.spec.node_name for pod in final if pod.spec.node_name)
    return _say(
        "node has more pods than GPUs",
        "nodes have more pods than GPUs",
        sorted(node for node, n in used.items() if n > gpus),
    )


def _partial_gangs(final: Sequence[Pod]) -> list[str]:
    bound: dict[str, set[bool]] = defaultdict(set)
    for pod in final:
        bound[_gang_of(pod)].add(bool(pod.spec.node_name))
    return _say(
        "gang is bound in part",
        "gangs are bound in part",
        sorted(gang for gang, sets in bound.items() if len(sets) > 1),
    )


def _split_writes(log: Sequence[Seen], binds: Mapping[str, Seen]) -> list[str]:
    """Node and devices must appear together and stay as they are."""
    late = [
        seen.pod.key for seen in binds.values() if ALLOCATED_KEY not in (seen.pod.metadata.annotations or {})
    ]
    early, changed = [], []
    written: dict[str, str] = {}
    for seen in log:
        text = (seen.pod.metadata.annotations or {}).get(ALLOCATED_KEY)
        if text is None:
            continue
        if not seen.pod.spec.node_name:
            early.append(seen.pod.key)
        elif written.setdefault(seen.pod.metadata.uid, text) != text:
            changed.append(seen.pod.key)
    return [
        *_say("pod got its node without its devices", "pods got their node without their devices", late),
        *_say("pod got its devices without its node", "pods got their devices without their node", early),
        *_say("pod had its devices changed", "pods had their devices changed", changed),
    ]


def _devices(final: Sequence[Pod], inventories: Mapping[str, DeviceInventory]) -> list[str]:
    holders: dict[str, str] = {}
    none, wrong_count, foreign, unhealthy, twice = [], [], [], [], []
    for pod in final:
        if not pod.spec.node_name:
            continue
        try:
            ids = _ids(pod)
        except ParseError:
            none.append(pod.key)
            continue
        known = inventories.get(pod.spec.node_name)
        if len(ids) != _asked(pod):
            wrong_count.append(pod.key)
        for device_id in ids:
            index = known.index.get(device_id) if known is not None else None
            if known is None or index is None:
                foreign.append(f"{pod.key}: {device_id} on {pod.spec.node_name}")
            elif not known.healthy >> index & 1:
                unhealthy.append(f"{pod.key}: {device_id}")
            if holders.setdefault(device_id, pod.key) != pod.key or ids.count(device_id) > 1:
                twice.append(f"{device_id}: {holders[device_id]} and {pod.key}")
    return [
        *_say("pod has no readable devices", "pods have no readable devices", none),
        *_say(
            "pod has more or fewer devices than it asked for",
            "pods have more or fewer devices than they asked for",
            wrong_count,
        ),
        *_say("device is not of the pod's node", "devices are not of the pod's node", foreign),
        *_say("device is not healthy", "devices are not healthy", unhealthy),
        *_say("device was given out twice", "devices were given out twice", twice),
    ]


def _ids(pod: Pod) -> list[str]:
    allocation = parse_allocation((pod.metadata.annotations or {}).get(ALLOCATED_KEY, ""))
    return [device_id for sets in allocation.values() for device_id in sets.get(RESOURCE, ())]


def _asked(pod: Pod) -> int:
    total = 0
    for container in pod.spec.containers:
        requests = container.resources.requests if container.resources else None
        total += int((requests or {}).get(RESOURCE, 0))
    return total


def _ranks(final: Sequence[Pod], gang_size: int) -> list[str]:
    ranks: dict[str, list[str]] = defaultdict(list)
    for pod in final:
        if pod.spec.node_name:
            ranks[_gang_of(pod)].append((pod.metadata.annotations or {}).get(RANK_KEY, ""))
    expected = sorted(str(rank) for rank in range(gang_size))
    wrong = [gang for gang, found in ranks.items() if len(found) == gang_size and sorted(found) != expected]
    return _say(
        "gang has ranks other than 0, 1, 2 and so on",
        "gangs have ranks other than 0, 1, 2 and so on",
        sorted(wrong),
    )


def _gangs(binds: Mapping[str, Seen]) -> Gangs | None:
    order = [(_gang_of(seen.pod), seen.at_ns) for seen in binds.values()]
    if not order:
        return None
    times: dict[str, list[int]] = defaultdict(list)
    for gang, at_ns in order:
        times[gang].append(at_ns)
    spans = [(max(at) - min(at)) / 1e6 for at in times.values()]
    most = _most_open([gang for gang, _ in order])
    return Gangs(percentile(spans, 0.5), percentile(spans, 0.99), max(spans), most)


def _most_open(order: Iterable[str]) -> int:
    """Returns the most gangs that have begun and are not complete at one place of the order."""
    names = list(order)
    left = Counter(names)
    begun: set[str] = set()
    most = 0
    for name in names:
        left[name] -= 1
        begun.add(name)
        most = max(most, len(begun))
        if not left[name]:
            begun.discard(name)
    return most


def _gang_of(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return group.pod_group_name if group is not None else pod.key
