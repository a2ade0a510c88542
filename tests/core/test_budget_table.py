"""The table of docs/queueing.md of what a claim keeps idle is what the core does, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsched.lab.sim.objects import make_pod
from tests.core.queued import queued
from tests.support.scenario import gang

PAGE = Path(__file__).parents[2] / "docs" / "queueing.md"
RUN_S, N_NODES = 64.0, 8
MODES = {"`hard`": "mode: hard"} | {
    f"`budget`, {n}": f"mode: budget, idlePercent: {n}" for n in (40, 20, 10, 5)
}


def measured(mode: str) -> tuple[int, float, float]:
    """(pods that pass the gang, seconds until it starts, part of the nodes that was idle until then). The
    pods in its way end 8 s apart, three more always wait, and nothing is saved when the gang comes."""
    c = queued(f"queueing: {{bound: {{{mode}, groups: 8, protects: gangs}}}}", nodes=N_NODES, gpus=1)
    first = [f"first-{k}" for k in range(N_NODES)]
    c.submit([make_pod(name, gpus=1) for name in first]).run()
    began_s, idle, n_made = c.now_s, 0.0, 0
    ends_s = {name: began_s + 1.0 + RUN_S / N_NODES * k for k, name in enumerate(first)}
    running = set(first)
    c.submit(gang("large", pods=N_NODES, gpus=1)).run()
    while True:
        while sum(not pod.spec.node_name for pod in c.pods.values()) < 3 + N_NODES:
            c.submit(make_pod(f"next-{n_made}", gpus=1)).run()
            n_made += 1
        if c.placed("large"):
            break
        new = {pod.metadata.name for pod in c.pods.values() if pod.spec.node_name} - running
        running |= new
        ends_s |= dict.fromkeys(new, c.now_s + RUN_S)
        idle += N_NODES - len(ends_s)
        assert c.now_s < began_s + 3600.0
        c.wait(1.0)
        for name in [name for name, at_s in ends_s.items() if at_s <= c.now_s]:
            del ends_s[name]
            c.delete(name).run()
    took_s = c.now_s - began_s
    return len(running) - N_NODES, took_s, idle / (N_NODES * took_s)


@pytest.mark.parametrize("row", MODES)
def test_the_page_says_what_a_claim_costs(row: str) -> None:
    n_passes, took_s, idle = measured(MODES[row])
    assert f"| {row} | {n_passes} | {took_s:.0f} s | {idle:.0%} |".replace("%", " %") in PAGE.read_text()
