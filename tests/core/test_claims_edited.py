"""Claims whose own pods, or those that they wait for, are edited."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_pod_group
from gangsched.model.objects import SchedulingGroup
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.test_claims import bounded
from tests.support.scenario import gang, lone


@pytest.mark.parametrize("where", ["pod", "object"])
@pytest.mark.parametrize("after_s", [5.0, 500.0])
def test_who_waits_for_an_end_that_is_edited_starts_sooner_at_once(where: str, after_s: float) -> None:
    """However short a time ago its claim was planned."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    c = bounded(bound=1)
    [pod] = lone("holds", 8, "2h" if where == "pod" else "")
    if where == "object":
        c.object("core", make_pod_group("held", spec=spec, annotations={WALLTIME_KEY: "2h"}))
        pod = replace(pod, spec=replace(pod.spec, scheduling_group=SchedulingGroup(pod_group_name="held")))
    c.submit(pod).run().submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "3h")).run()
    assert c.claim("large").start_s == 7201.0
    c.wait(after_s)
    if where == "object":
        c.object("core", make_pod_group("held", spec=spec, annotations={WALLTIME_KEY: "10m"}))
    else:
        pod = c.pod("holds")
        c.update(pod, metadata=replace(pod.metadata, annotations={WALLTIME_KEY: "10m"}))
    c.run().wait(5.0)
    assert c.claim("large").start_s == 601.0
    c.submit(lone("hour", 8, "1h")).run()
    assert not c.pod("hour").spec.node_name


@pytest.mark.parametrize("after_s", [10.0, 100.0])
def test_who_waits_for_two_ends_is_promised_the_later_once_the_other_has_come_early(after_s: float) -> None:
    """However short a time ago its claim was planned."""
    c = bounded(nodes=2, bound=1)
    c.submit(lone("two-hours", 6, "2h")).run().submit(lone("an-hour", 8, "1h")).run()
    c.submit(gang("large", pods=2, gpus=8)).run().submit(lone("passes", 1, "30m")).run()
    c.submit(lone("fills", 1, "30m")).run()
    assert c.claim("large").start_s == 7201.0
    c.wait(after_s).delete("two-hours").run().wait(61.0)
    assert c.claim("large").start_s == 3601.0
    assert not c.submit(lone("late", 1, "90m")).run().pod("late").spec.node_name


def test_a_pod_whose_walltime_becomes_shorter_than_the_time_to_a_claim_starts_at_once() -> None:
    c = bounded(bound=1)
    c.submit(lone("holds", 8, "2h")).run().submit(gang("large", pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("late", 8, "3h"), lone("later", 8, "3h")).run()
    assert c.claim("large").start_s == 7201.0
    started = [name for name in ("late", "later") if c.pod(name).spec.node_name]
    for name in started:
        c.delete(name)
    c.run().wait(20.0)
    waits = c.pod("later" if started == ["late"] else "late")
    assert not waits.spec.node_name
    c.update(waits, metadata=replace(waits.metadata, annotations={WALLTIME_KEY: "1h"})).run()
    assert c.pod(waits.metadata.name).spec.node_name
