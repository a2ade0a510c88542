"""What `explain` advises is a cure: with as many nodes as it names, the group fits.

Asked in storms of several kinds every few seconds, about every group that does not fit. The nodes are added
to a second scheduler that has received the same cluster, and no other group that waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import Explanation, explain
from gangsched.core.types.group import Group, GroupState
from gangsched.lab.sim.objects import inventory
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.model import events as ev
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import Node

N_SEEDS, EVERY_S = 8, 6.0
_SUCH = re.compile(r"([0-9]+) such node")
_RESTING = (GroupState.UNSCHEDULABLE, GroupState.BACKOFF)


def nodes_to_add(found: Explanation) -> int:
    """Returns how many nodes the cures say are enough to start at once; 0 if they name none."""
    named = [int(n) for cure in found.cures for n in _SUCH.findall(cure)]
    return named[-1] if named else 0


def such_nodes(sim: Simulation, name: str, n: int) -> Iterator[Node]:
    """Nodes like the one of that name when it was new, with nothing on them."""
    like = sim.first_nodes[name]
    for k in range(n):
        own = dict(like.metadata.annotations or {})
        if INVENTORY_KEY in own:
            own[INVENTORY_KEY] = inventory(f"new-{k}", 8)
        labels = sim.received.nodes[name].metadata.labels
        meta = replace(like.metadata, name=f"new-{k}", uid=f"uid-new-{k}", annotations=own, labels=labels)
        yield replace(like, metadata=meta)


def fits_with(sim: Simulation, group: Group, nodes: Iterator[Node]) -> bool:
    scheduler, received = sim._make(sim.settings), sim.received
    events: list[ev.Event] = [ev.NodeAdded(node) for node in (*received.nodes.values(), *nodes)]
    events += [ev.PodGroupAdded(of.dialect, "v", item) for of, item in received.groups.items()]
    there = [pod for uid, pod in received.pods.items() if pod.spec.node_name or uid in group.members]
    events += [ev.PodAdded(pod) for pod in there]
    served = sim.api.streams
    events += [ev.KindSynced(kind) if kind in served else ev.KindMissing(kind) for kind in scheduler.kinds]
    scheduler.handle(events, sim.timeline.now_s)
    while scheduler.schedule_next(sim.timeline.now_s) is not None:
        pass
    return scheduler.shared.groups[group.key].n_assumed > 0


@pytest.mark.parametrize("storm", ["storm", "racks", "preempting"])
def test_the_nodes_that_are_named_are_enough(storm: str) -> None:
    n_asked = 0
    for seed in range(N_SEEDS):
        sim = case(STORMS[storm], seed).begun()
        assert isinstance(sim, Simulation)
        for _ in range(int(STORMS[storm].storm_s / EVERY_S)):
            sim.run_for(EVERY_S)
            shared, now_s = sim.scheduler.shared, sim.timeline.now_s
            for group in [*shared.groups.values()] if sim.scheduler.is_synced and not sim.inbox else ():
                if group.state not in _RESTING or group.n_bound or shared.siblings(group):
                    continue
                found = explain(sim.scheduler, group, now_s)
                n = nodes_to_add(found)
                if n and found.near:
                    n_asked += 1
                    nodes = such_nodes(sim, found.near[0].node, n)
                    assert fits_with(sim, group, nodes), f"{storm} {seed}, {now_s} s: {found}"
    assert n_asked > N_SEEDS
