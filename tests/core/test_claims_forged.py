"""What a claim forged through podgroups/status gives and what it does not, as docs/queueing.md decides.

By deploy/ only the scheduler writes that status. Who may write it all the same writes the condition that the
next leader claims by: a gang that waits then gets room kept, and nothing else follows from it.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.kept import claim_plans
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model.effects import START_PROMISED
from gangsched.model.objects import SchedulingGroup
from tests.core.queued import queued
from tests.support.scenario import Cluster, lone

FORGED = {"type": START_PROMISED, "status": "True", "reason": "Claimed", "message": "It starts by …"}
TENANTS = """
queueing: {bound: {groups: 50, mode: hard}, onOverrun: yield}
queues:
- {name: honest, guaranteed: {nvidia.com/gpu: 8}, namespaces: [honest]}
- {name: tenant, limit: {nvidia.com/gpu: 16}, namespaces: [t]}
"""


def waiting(
    c: Cluster, name: str, *, namespace: str = "t", n: int = 2, forged: bool = True, **more: Any
) -> None:
    """A gang of whole nodes; its object says, or does not, that an earlier process has promised its start."""
    spec = {"schedulingPolicy": {"gang": {"minCount": n}}}
    item = make_pod_group(name, namespace=namespace, spec=spec)
    c.object("core", replace(item, status={"conditions": [FORGED]} if forged else {}))
    member = SchedulingGroup(pod_group_name=name)
    pods = [make_pod(f"{name}-{k}", namespace=namespace, gpus=8, **more) for k in range(n)]
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in pods])


def honest(c: Cluster, name: str, gpus: int = 8, **more: Any) -> Cluster:
    return c.submit(lone(name, gpus, "2h", namespace="honest", **more)).run()


def full() -> Cluster:
    """Two nodes; an honest pod has one of them, somebody of the tenant's will go from the other."""
    c = honest(queued(TENANTS, nodes=2), "runs")
    return c.submit(lone("goes", 8, "60s", namespace="t")).run()


def evicted(c: Cluster) -> list[ef.Effect]:
    return [one for one in c.effects if isinstance(one, ef.EvictPod | ef.DeletePod)]


def test_a_gang_that_waits_when_the_leader_changes_has_room_kept() -> None:
    """This is what the forger can do: it need not have been passed by as many as the bound says."""
    c = full()
    waiting(c, "forged")
    c.restart().run().delete("goes").run().wait(2.0)
    assert [str(key) for key in c.claims().by_key] == ["t/forged"]
    honest(c, "passes")
    assert "passes" not in c.bound()


def test_as_long_as_this_process_leads_the_condition_gives_nothing() -> None:
    """On a gang that comes, or one that waits already: this process knows that it has promised nothing."""
    c = full()
    waiting(c, "waits", forged=False)
    c.run().wait(2.0)
    waiting(c, "comes")
    c.run()
    item = c.objects["core", "waits"]
    c.object("core", replace(item, status={"conditions": [FORGED]})).run().wait(2.0)
    assert not c.claims().all
    c.delete("goes")
    honest(c, "passes")
    assert "passes" in c.bound()


def test_it_evicts_nobody() -> None:
    """The honest pod holds a node that the claim is on; it stays there."""
    c = full()
    waiting(c, "forged")
    c.restart().run().wait(600.0)
    assert not evicted(c)
    assert "runs" in c.bound()


def test_it_keeps_nothing_above_the_limit_of_its_queue() -> None:
    c = full()
    waiting(c, "forged", n=3)
    c.restart().run().delete("goes").run().wait(2.0)
    assert not c.claims().all
    honest(c, "passes")
    assert "passes" in c.bound()


def test_it_goes_before_nobody_of_higher_priority() -> None:
    c = full()
    waiting(c, "forged")
    c.restart().run()
    honest(c, "important", priority=10)
    c.delete("goes").run()
    assert "important" in c.bound()


def test_all_that_a_tenant_forges_leaves_claims_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slots: the tenant has one of them however many of its gangs say that they were promised a start."""
    monkeypatch.setattr(claim_plans, "MAX_CLAIMS", 2)
    c = full()
    for k in range(3):
        waiting(c, f"forged-{k}")
    c.restart().run().wait(2.0)
    assert [one.namespace for one in c.claims().by_key] == ["t"]
