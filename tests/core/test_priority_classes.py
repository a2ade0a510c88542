"""A PodGroup of another system that names a class of priority: it counts where the pods have none."""

from __future__ import annotations

import msgspec
import pytest

from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.workloads import PRIORITY_CLASSES, PriorityClass
from tests.support.scenario import Cluster, cluster

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
def test_a_gang_goes_first_by_the_class_that_its_object_names(dialect: str) -> None:
    c = cluster(nodes=2)
    put(c, "urgent", 1000)
    c.submit(make_pod("low-0", gpus=8), make_pod("low-1", gpus=8)).run()
    c.submit(gang_of(c, dialect, "a", "urgent")).run().wait(30.0)
    assert c.placed("a", on=2)
    assert {pod.metadata.name for pod in c.pods.values()} == {"a-0", "a-1"}


@each_dialect
def test_the_priority_of_the_pods_goes_before_the_class(dialect: str) -> None:
    c = cluster(nodes=2)
    put(c, "urgent", 1000)
    c.submit(make_pod("other-0", gpus=8, priority=10), make_pod("other-1", gpus=8, priority=10)).run()
    c.submit(gang_of(c, dialect, "a", "urgent", priority=5)).run().wait(30.0)
    assert c.untouched("a")


def test_what_every_pod_is_given_is_no_priority_of_its_own() -> None:
    c = cluster(nodes=2)
    put(c, "urgent", 1000)
    put(c, "usual", 10, is_default=True)
    pods = gang_of(c, "volcano", "a", "urgent", priority=10)
    c.submit(pods).run()
    assert c.group("a").priority == 1000


def test_the_kind_is_asked_for_once_and_only_where_a_group_names_a_class() -> None:
    c = cluster(nodes=2)
    gang_of(c, "volcano", "a", "")
    assert c.scheduler.newly_watched() == ()
    gang_of(c, "kai", "b", "urgent")
    assert c.scheduler.newly_watched() == (PRIORITY_CLASSES,)
    gang_of(c, "kai", "c", "urgent")
    assert c.scheduler.newly_watched() == ()


def test_a_class_that_comes_late_changes_and_goes() -> None:
    c = cluster(nodes=1)
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
