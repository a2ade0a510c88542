"""Workloads with resource claims: their nodes, devices, classes and shared claims, drawn from a seed.

Gangs of pods with claims of their own, one or two each, with one for all of them, with both, or some of their
pods without any. Not here: what becomes of claims (lab.sim.world.resource_claims).
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from gangsched.lab.sim.objects import make_node, make_pod, make_pod_group
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.world.actors import CONTROLLED_KEY, RUN_KEY
from gangsched.lab.sim.world.resource_claims import objects
from gangsched.lab.sim.world.resource_claims.objects import EXTENDED, NET, Objects, slice_of
from gangsched.lab.sim.world.volumes import HOST
from gangsched.model.objects import Node, Pod, PodResourceClaim, ResourceRequirements, SchedulingGroup
from gangsched.model.resource_claims.objects import CLAIMS, DEVICE_CLASSES, SLICES, ResourceClaim

_OWN = ("one", "one", "two", "pair", "four", "big", "part", "parts")


def resource_claims_workload(seed: int, *, n_arrivals: int = 14, over_s: float = 30.0) -> Workload:
    """Returns gangs most of whose pods use resource claims; `devices_of` has what they can get."""
    rng = Random(f"{seed}-resource-claims")
    nodes = tuple(make_claim_node(f"n{i}") for i in range(rng.randint(2, 4)))
    net = (NET,) if has_net(seed) else ()
    arrivals = []
    for serial in range(n_arrivals):
        name, n = f"g{serial}", rng.choice((1, 1, 2, 2, 3, 4))
        own = {RUN_KEY: f"{rng.uniform(2.0, 12.0):.2f}"}
        if rng.random() < 0.6:
            own[CONTROLLED_KEY] = "true"
        # Where all claims depend on one another each trial of a preemption solves all of them.
        gpus, priority = rng.choice((0, 0, 0, 1)), 0 if net else rng.choice((0, 0, 0, 5))
        entries = _entries(rng, name, n, net)
        pods = tuple(
            _using(
                make_pod(
                    f"{name}-{k}",
                    group=name if n > 1 else "",
                    min_members=n if n > 1 else 0,
                    gpus=gpus,
                    priority=priority,
                    annotations=own,
                ),
                entries[k],
            )
            for k in range(n)
        )
        arrivals.append(Arrival(over_s * serial / n_arrivals * rng.uniform(0.8, 1.2), pods))
    return Workload(nodes, tuple(arrivals))


def mixed_claims_workload(seed: int) -> Workload:
    """As resource_claims_workload; with a third of the seeds gangs beside that ask for GPUs as an extended
    resource, which a class serves, and on some node a plugin."""
    if seed % 3 != 1:
        return resource_claims_workload(seed)
    rng = Random(f"{seed}-extended-resources")
    workload = resource_claims_workload(seed, n_arrivals=8)
    first, *others = workload.nodes
    if rng.random() < 0.5:
        allocatable = {**(first.status.allocatable or {}), EXTENDED: str(rng.randint(1, 4))}
        first = replace(first, status=replace(first.status, allocatable=allocatable))
    arrivals = list(workload.arrivals)
    for serial in range(8):
        name, n, amount = f"x{serial}", rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3))
        own = {RUN_KEY: f"{rng.uniform(2.0, 12.0):.2f}"}
        if rng.random() < 0.6:
            own[CONTROLLED_KEY] = "true"
        priority, group = rng.choice((0, 0, 5)), name if n > 1 else ""
        pods = (
            make_pod(
                f"{name}-{k}",
                group=group,
                min_members=n if group else 0,
                gpus=0,
                priority=priority,
                annotations=own,
            )
            for k in range(n)
        )
        arrivals.append(Arrival(30.0 * rng.random(), tuple(_asking(pod, amount) for pod in pods)))
    return Workload((first, *others), tuple(sorted(arrivals, key=lambda one: one.at_s)))


def _asking(pod: Pod, amount: int) -> Pod:
    [container] = pod.spec.containers
    stated = container.resources
    asked = {**((stated.requests if stated is not None else None) or {}), EXTENDED: amount}
    own = replace(container, resources=ResourceRequirements(requests=asked))
    return replace(pod, spec=replace(pod.spec, containers=[own]))


def group_claims_workload(seed: int, *, n_arrivals: int = 5, over_s: float = 30.0) -> Workload:
    """As resource_claims_workload, with gangs of the core API beside, whose PodGroups list a claim for all of
    their pods."""
    rng = Random(f"{seed}-group-claims")
    workload = resource_claims_workload(seed, n_arrivals=9, over_s=over_s)
    net = (NET,) if has_net(seed) else ()
    arrivals = []
    for serial in range(n_arrivals):
        name, n = f"c{serial}", rng.choice((1, 2, 3, 4))
        claim = f"{rng.choice(('one', 'two', *net))}.{name}"
        entries = [PodResourceClaim("all", resource_claim_name=claim)]
        if rng.random() < 0.3:
            entries.append(PodResourceClaim("it", resource_claim_template_name=rng.choice(("one", "two"))))
        own = {RUN_KEY: f"{rng.uniform(2.0, 12.0):.2f}"}
        pods = [_using(make_pod(f"{name}-{k}", gpus=0, annotations=own), entries) for k in range(n)]
        group = SchedulingGroup(name)
        listed = [{"name": "all", "resourceClaimName": claim}]
        spec = {"schedulingPolicy": {"gang": {"minCount": rng.randint(1, n)}}, "resourceClaims": listed}
        arrivals.append(
            Arrival(
                over_s * rng.random(),
                tuple(replace(pod, spec=replace(pod.spec, scheduling_group=group)) for pod in pods),
                make_pod_group(name, spec=spec),
                "core",
                rng.choice((0.0, 0.0, 0.3)),
            )
        )
    return replace(workload, arrivals=(*workload.arrivals, *arrivals))


def has_net(seed: int) -> bool:
    """Whether some devices are reached from several nodes, by which all claims depend on one another."""
    return seed % 3 == 0


def _entries(rng: Random, name: str, n: int, net: tuple[str, ...]) -> list[list[PodResourceClaim]]:
    """By pod: the claims that it uses. net: the template of devices that several nodes reach, if there are
    such."""
    kind = rng.choice(("own", "own", "own", "two", "mixed", "shared", "both", "none"))
    template = rng.choice((*_OWN, *net))
    own = [PodResourceClaim("it", resource_claim_template_name=template)]
    shared = [PodResourceClaim("all", resource_claim_name=f"{rng.choice(('one', 'two', *net))}.{name}")]
    if kind == "two":
        more = rng.choice(("one", "part", *net))
        own.append(PodResourceClaim("more", resource_claim_template_name=more))
    found = {"own": own, "two": own, "mixed": own, "shared": shared, "both": own + shared, "none": []}[kind]
    n_with = rng.randint(1, n) if kind == "mixed" else n
    return [found if k < n_with else [] for k in range(n)]


def make_claim_node(name: str) -> Node:
    """A node that pools of devices can name."""
    node = make_node(name, gpus=8)
    labels = {**(node.metadata.labels or {}), HOST: name}
    return replace(node, metadata=replace(node.metadata, labels=labels))


def devices_of(workload: Workload, seed: int) -> Objects:
    """What there is at first: classes, slices, and the claims that pods name."""
    rng = Random(f"{seed}-devices")
    found: list[tuple[str, Any]] = [(DEVICE_CLASSES, one) for one in objects.classes()]
    names = [node.metadata.name for node in workload.nodes]
    for name in names:
        found.append((SLICES, slice_of(objects.gpus(name, rng.choice((2, 4, 6, 8))))))
        if rng.random() < 0.6:
            found += [(SLICES, slice_of(raw)) for raw in objects.divided(name)]
    if has_net(seed):
        found.append((SLICES, slice_of(objects.net(tuple(names[:2]), rng.randint(1, 3)))))
    found += [(CLAIMS, one) for one in shared_claims(workload)]
    return tuple(found)


def shared_claims(workload: Workload) -> tuple[ResourceClaim, ...]:
    """The claims that pods name; each begins with its template's name."""
    named = {
        entry.resource_claim_name
        for arrival in workload.arrivals
        for pod in arrival.pods
        for entry in pod.spec.resource_claims or ()
        if entry.resource_claim_name is not None
    }
    return tuple(objects.claim(one, one.partition(".")[0], f"uid-{one}") for one in sorted(named))


def _using(pod: Pod, entries: list[PodResourceClaim]) -> Pod:
    return replace(pod, spec=replace(pod.spec, resource_claims=entries or None))
