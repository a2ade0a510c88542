"""What one object costs: CPU of the turns that a heavy object causes, with 5,000 nodes and 50,000 pods.

`python -m tests.hostile.turns [NAME…] --nodes 5000 --pods 50000`. For each of tests.hostile.heavy: the event
that brings it, its turns, a look by `explain`; and a good pod beside 20 that are bound. For each long list of
a PodGroup or a controller's object (tests.hostile.owners): reading it, its event and the turns of its pods, a
change of it, and so on. Ends with 1 where one of them takes more than a second of CPU. Tests count work
instead (tests/core/test_turn_cost.py).
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from gangsched.config import parse_config
from gangsched.config.documents import file_with
from gangsched.core.explaining import explain
from gangsched.core.scheduler import Scheduler
from gangsched.model import events as ev
from gangsched.model.objects import CustomObject, Node, Pod
from gangsched.model.owners import ORDERED, OWNER_KINDS
from gangsched.model.pod_group import DIALECTS
from gangsched.model.text.bounded import lenient_decoder
from gangsched.plugins import IN_TREE, build_profiles
from tests.hostile.heavy import BOUND, HEAVY, MOST_BYTES, heavy_pod
from tests.hostile.owners import GROUP_KINDS, LONG, HostileOwners, Long
from tests.hostile.things import Thing
from tests.support.inside import Inside

MOST_S = 1.0
N_BOUND = 20


def scheduler_of(n_nodes: int, n_pods: int) -> Scheduler:
    """A cluster in which every pod has a label of its own, and somebody's selector looks at it."""
    config = parse_config(file_with(f"inferGangs: [{', '.join(ORDERED)}]"), source="f.yaml", plugins=IN_TREE)
    scheduler = Scheduler(build_profiles(config), config.settings)
    scheduler.handle([ev.NodeAdded(_node(i)) for i in range(n_nodes)], 0.0)
    scheduler.handle([ev.KindSynced(kind) for kind in scheduler.kinds], 0.0)
    scheduler.handle([ev.PodAdded(_bound(i, n_nodes)) for i in range(n_pods)], 0.0)
    return scheduler


def _node(i: int) -> Node:
    labels = {
        "kubernetes.io/hostname": f"n{i}",
        "topology.kubernetes.io/zone": f"z{i % 10}",
        "number": str(i),
    }
    room = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    return msgspec.convert(
        {"metadata": {"name": f"n{i}", "uid": f"n{i}", "labels": labels}, "status": {"allocatable": room}},
        Node,
    )


def _bound(i: int, n_nodes: int) -> Pod:
    body = heavy_pod(f"b{i}", namespace=f"team{i % 50}")
    body["metadata"]["labels"] = {"app": f"a{i % 100}", "id": f"p{i}"}
    body["spec"]["nodeName"] = f"n{i % n_nodes}"
    return as_pod(body)


def as_pod(body: dict[str, Any]) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def turns(scheduler: Scheduler, pods: Iterable[Pod], now_s: float, n_most: int = 3) -> None:
    """The event and what follows from it."""
    scheduler.handle([ev.PodAdded(pod) for pod in pods], now_s)
    for _ in range(n_most):
        if scheduler.schedule_next(now_s) is None:
            break


def _cpu_s(work: Callable[[], object]) -> float:
    gc.disable()
    at_s = time.process_time()
    work()
    spent_s = time.process_time() - at_s
    gc.enable()
    return spent_s


def _explained(scheduler: Scheduler, pod: Pod, now_s: float) -> object:
    info = Inside(scheduler).pod_infos().get(pod.metadata.uid)
    return None if info is None or info.group is None else explain.explain(scheduler, info.group, now_s)


def _retried(scheduler: Scheduler, now_s: float) -> None:
    scheduler.advance(now_s)
    turns(scheduler, [], now_s)


def measure(scheduler: Scheduler, name: str, n_bytes: int, now_s: float) -> dict[str, float]:
    """CPU seconds: the event and turns, explain, a retry, another pod that leaves, deletion."""
    pod = as_pod(HEAVY[name]("heavy", n_bytes))
    found = {"turns": _cpu_s(lambda: turns(scheduler, [pod], now_s))}
    found["explain"] = _cpu_s(lambda: _explained(scheduler, pod, now_s))
    found["retry"] = _cpu_s(lambda: _retried(scheduler, now_s + 400))
    found["others"] = _cpu_s(
        lambda: turns(scheduler, [as_pod(heavy_pod(f"good{name}", namespace="team0"))], now_s + 401)
    )
    found["gone"] = _cpu_s(lambda: scheduler.handle([ev.PodDeleted(pod)], now_s + 402))
    scheduler.handle([ev.PodDeleted(as_pod(heavy_pod(f"good{name}", namespace="team0")))], now_s + 403)
    return found


def measure_bound(scheduler: Scheduler, name: str, n_nodes: int, now_s: float) -> dict[str, float]:
    """CPU seconds: 20 of them bound, then a new template in a namespace that they are about."""
    bodies = [BOUND[name](f"bound{k}", MOST_BYTES) for k in range(N_BOUND)]
    for k, body in enumerate(bodies):
        body["metadata"]["namespace"] = "evil"
        body["spec"]["nodeName"] = f"n{k % n_nodes}"
        for at, terms in enumerate((body["spec"].get("affinity") or {}).get("podAntiAffinity", {}).values()):
            for i, term in enumerate(terms):
                if "labelSelector" in term:
                    term["labelSelector"]["matchExpressions"][0]["values"] = [f"v{k}-{at}-{i}"]
    pods = [as_pod(body) for body in bodies]
    found = {"bound, each": _cpu_s(lambda: turns(scheduler, pods, now_s)) / N_BOUND}
    good = heavy_pod("good", namespace="team0")
    good["metadata"]["labels"] = {"app": "new"}
    good["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": 1}]
    good["spec"]["volumes"] = [{"name": "v", "awsElasticBlockStore": {"volumeID": "own"}}]
    found["good pod"] = _cpu_s(lambda: turns(scheduler, [as_pod(good)], now_s + 1))
    found["gone, each"] = (
        _cpu_s(lambda: scheduler.handle([ev.PodDeleted(pod) for pod in pods], now_s + 2)) / 20
    )
    scheduler.handle([ev.PodDeleted(as_pod(good))], now_s + 3)
    return found


def read(kind: str, body: bytes, *, again: bool = False) -> ev.Event | None:
    """The event of an object, as the watch tells it; None where it cannot be decoded."""
    try:
        if kind in OWNER_KINDS:
            owner = OWNER_KINDS[kind]
            return ev.OwnerPut(owner.read(lenient_decoder(owner.wire)(body)))
        item = lenient_decoder(CustomObject)(body)
    except msgspec.MsgspecError:
        return None
    group, version = GROUP_KINDS[kind]
    [dialect] = [one.name for one in DIALECTS if group in {each.api_group for each in one.kinds}]
    put = ev.PodGroupUpdated if again else ev.PodGroupAdded
    return put(dialect, f"{group}/{version}", item)


def measure_long(scheduler: Scheduler, long: Long, n_bytes: int, now_s: float) -> dict[str, float]:
    """CPU seconds: reading the object, its event, the turns of its pods, a change of it, explain, a retry."""
    body = long.make("long", n_bytes)
    body["metadata"] |= {"namespace": "default", "uid": "uid-long", "resourceVersion": "1"}
    text = msgspec.json.encode(body)
    told: list[ev.Event | None] = []
    found = {"read": _cpu_s(lambda: told.append(read(long.kind, text)))}
    [event] = told
    if event is None:
        return found
    bodies = HostileOwners(Random(0)).pods_of(Thing("", long.kind, body))
    for one in bodies:
        one["metadata"] |= {"namespace": "default", "uid": f"uid-{one['metadata']['name']}"}
    pods = [as_pod(one) for one in bodies]
    found["put"] = _cpu_s(lambda: scheduler.handle([event], now_s))
    found["turns"] = _cpu_s(lambda: turns(scheduler, pods, now_s))
    body["metadata"]["resourceVersion"] = "2"
    changed = read(long.kind, msgspec.json.encode(body), again=True)
    found["changed"] = _cpu_s(lambda: scheduler.handle([changed] if changed else [], now_s + 1))
    found["explain"] = _cpu_s(lambda: _explained(scheduler, pods[0], now_s + 2))
    found["retry"] = _cpu_s(lambda: _retried(scheduler, now_s + 400))
    found["gone"] = _cpu_s(lambda: scheduler.handle([ev.PodDeleted(pod) for pod in pods], now_s + 402))
    if isinstance(event, ev.PodGroupAdded):
        scheduler.handle([ev.PodGroupDeleted(event.dialect, event.api_version, event.item)], now_s + 403)
    elif isinstance(event, ev.OwnerPut):
        scheduler.handle([ev.OwnerGone(event.owner.named, event.owner.uid)], now_s + 403)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="part of a name; without any, all")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--bytes", type=int, default=MOST_BYTES)
    given = parser.parse_args()
    at_s = time.process_time()
    scheduler = scheduler_of(given.nodes, given.pods)
    print(f"{given.nodes} nodes, {given.pods} pods: {time.process_time() - at_s:.1f} s", flush=True)
    gc.freeze()
    worst = 0.0
    # Somebody looks at the label that tells all pods apart.
    looks = HEAVY["pod anti-affinity by ids"]("looks", 1_000)
    turns(scheduler, [as_pod(looks)], 1.0)
    longs = {str(one): one for one in LONG}
    for at, name in enumerate([*HEAVY, *(f"bound: {one}" for one in BOUND), *longs]):
        if given.names and not any(one in name for one in given.names):
            continue
        now_s = 1000.0 * (at + 1)
        if name.startswith("bound: "):
            found = measure_bound(scheduler, name.removeprefix("bound: "), given.nodes, now_s)
        elif name in longs:
            found = measure_long(scheduler, longs[name], given.bytes, now_s)
        else:
            found = measure(scheduler, name, given.bytes, now_s)
        worst = max(worst, *found.values())
        print(f"{name:68}", "  ".join(f"{what} {cpu_s:.3f}" for what, cpu_s in found.items()), flush=True)
    print(f"worst: {worst:.2f} s of CPU, at most {MOST_S:.0f}")
    return 1 if worst > MOST_S else 0


if __name__ == "__main__":
    sys.exit(main())
