"""A PodGroup that asks for a priority: it orders its own queue, and counts like its pods' own only where the
configuration lists the class."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod, SchedulingGroup
from gangsched.model.workloads import PRIORITY_CLASSES, PriorityClass
from tests.core.queued import queued
from tests.support.scenario import Cluster, cluster, gang

LISTED = Settings(pod_group_classes=frozenset({"urgent"}))
NAMING = {"volcano": "scheduling.k8s.io/group-name", "kai": "pod-group-name"}
each_dialect = pytest.mark.parametrize("dialect", NAMING)


def put(c: Cluster, name: str, value: int, *, version: int = 1, is_default: bool = False) -> None:
    meta = ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(version))
    c.tell(ev.ObjectPut(PRIORITY_CLASSES, PriorityClass(meta, value, is_default)))


def gang_of(c: Cluster, dialect: str, name: str, class_name: str, *, priority: int = 0) -> list[Pod]:
    spec = {"minMember": 2, "priorityClassName": class_name}
    c.object(dialect, make_pod_group(name, spec=spec))
    own = {NAMING[dialect]: name}
    return [make_pod(f"{name}-{k}", gpus=8, annotations=own, priority=priority) for k in range(2)]


@each_dialect
def test_a_gang_goes_first_by_a_listed_class_that_its_object_names(dialect: str) -> None:
    c = cluster(settings=LISTED, nodes=2)
    put(c, "urgent", 1000)
    c.submit(make_pod("low-0", gpus=8), make_pod("low-1", gpus=8)).run()
    c.submit(gang_of(c, dialect, "a", "urgent")).run().wait(30.0)
    assert c.placed("a", on=2)
    assert {pod.metadata.name for pod in c.pods.values()} == {"a-0", "a-1"}


@each_dialect
def test_the_priority_of_the_pods_goes_before_the_class(dialect: str) -> None:
    c = cluster(settings=LISTED, nodes=2)
    put(c, "urgent", 1000)
    c.submit(make_pod("other-0", gpus=8, priority=10), make_pod("other-1", gpus=8, priority=10)).run()
    c.submit(gang_of(c, dialect, "a", "urgent", priority=5)).run().wait(30.0)
    assert c.untouched("a")


def test_what_every_pod_is_given_is_no_priority_of_its_own() -> None:
    c = cluster(settings=LISTED, nodes=2)
    put(c, "urgent", 1000)
    put(c, "usual", 10, is_default=True)
    pods = gang_of(c, "volcano", "a", "urgent", priority=10)
    c.submit(pods).run()
    assert c.group("a").priority == 1000


@each_dialect
def test_a_class_that_is_not_listed_evicts_nothing(dialect: str) -> None:
    c = cluster(nodes=2)
    put(c, "urgent", 1000)
    c.submit(make_pod("other-0", gpus=8), make_pod("other-1", gpus=8)).run()
    c.submit(gang_of(c, dialect, "a", "urgent")).run().wait(30.0)
    assert c.untouched("a")
    assert (c.group("a").priority, c.group("a").wished_priority) == (0, 1000)
    told = explain(c.scheduler, c.group("a"), now_s=c.now_s).cures
    assert any("asks for priority 1000 (PriorityClass urgent), and its pods have 0" in one for one in told)


@pytest.mark.parametrize("name", ["urgent", ""])
def test_the_number_of_a_core_pod_group_evicts_nothing_unless_its_class_is_listed(name: str) -> None:
    """The value is the class's: a number that the object states beside it counts for nothing more."""
    for settings, priority in ((Settings(), 0), (LISTED, 1000 if name else 0)):
        c = cluster(settings=settings, nodes=2)
        put(c, "urgent", 1000)
        c.submit(make_pod("other-0", gpus=8), make_pod("other-1", gpus=8)).run()
        gang = {"gang": {"minCount": 2}}
        spec = {"schedulingPolicy": gang, "priority": 2_000_000_000, "priorityClassName": name}
        c.object("core", make_pod_group("a", spec=spec))
        pods = [make_pod(f"a-{k}", gpus=8) for k in range(2)]
        named = SchedulingGroup(pod_group_name="a")
        c.submit(*(replace(pod, spec=replace(pod.spec, scheduling_group=named)) for pod in pods))
        c.run().wait(30.0)
        assert c.group("a").priority == priority
        assert c.placed("a") is (priority > 0)


def test_a_pod_group_may_ask_for_less_than_its_pods_have() -> None:
    c = cluster(nodes=2)
    put(c, "low", -10)
    c.submit(gang_of(c, "volcano", "a", "low")).run()
    assert c.group("a").priority == -10


def test_in_one_queue_the_class_orders_groups_of_equal_priority() -> None:
    c = queued("queues: [{name: q, namespaces: [d]}]", nodes=8)
    put(c, "urgent", 1000)
    c.submit(gang_of(c, "kai", "first", ""), gang_of(c, "kai", "urgent", "urgent"))
    c.submit(gang_of(c, "kai", "above", "", priority=1)).run()
    assert c.bind_order() == ["above", "urgent", "first"]


def test_without_queues_the_class_orders_nothing_as_all_tenants_stand_in_one_line() -> None:
    c = cluster(nodes=8)
    put(c, "urgent", 1000)
    c.submit(gang_of(c, "kai", "first", ""), gang_of(c, "kai", "urgent", "urgent")).run()
    assert c.bind_order() == ["first", "urgent"]


def test_a_running_gang_is_as_important_as_its_least_important_member() -> None:
    """Otherwise one pod with a scarce class would give its priority to whatever joins its gang."""
    c = cluster(nodes=2)
    c.submit(gang("a", pods=1, min_members=1, priority=1000)).run()
    c.submit(gang("a", pods=8, first=1, min_members=1)).run()
    assert c.group("a").priority == 0


def test_the_kind_is_asked_for_once_and_only_where_a_group_names_a_class() -> None:
    c = cluster(nodes=2)
    gang_of(c, "volcano", "a", "")
    assert c.scheduler.newly_watched() == ()
    gang_of(c, "kai", "b", "urgent")
    assert c.scheduler.newly_watched() == (PRIORITY_CLASSES,)
    gang_of(c, "kai", "c", "urgent")
    assert c.scheduler.newly_watched() == ()


def test_a_class_that_comes_late_changes_and_goes() -> None:
    c = cluster(settings=LISTED, nodes=1)
    c.submit(gang_of(c, "kai", "a", "urgent")).run()
    seen = [c.group("a").priority]
    put(c, "urgent", 1000)
    seen.append(c.group("a").priority)
    put(c, "urgent", 7, version=2)
    seen.append(c.group("a").priority)
    c.tell(ev.ObjectGone(PRIORITY_CLASSES, "", "urgent", "uid-urgent"))
    seen.append(c.group("a").priority)
    assert seen == [0, 1000, 7, 0]


def test_a_class_whose_value_no_pod_could_have_is_refused() -> None:
    wrong = {"metadata": {"name": "a"}, "value": 2**31}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, PriorityClass)
