"""The cluster of a model: what its actors make of the recording, without a core."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.journal.records import FORMAT, Start
from gangsched.lab.counterfactual.cluster import Cluster
from gangsched.lab.counterfactual.day import Day, Life, OtherEvent
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import OwnerReference
from gangsched.model.owners.jobs import INDEX_KEY, claim


def test_a_pod_that_is_recreated_is_of_the_job_that_it_was_of() -> None:
    """Pods of an Indexed Job are a gang by their owner: without it each came back alone."""
    pod = make_pod("train-0", annotations={INDEX_KEY: "0"})
    owner = OwnerReference("batch/v1", "Job", "train", "uid-job", controller=True)
    pod = replace(pod, metadata=replace(pod.metadata, owner_references=[owner]))
    placed = replace(pod, spec=replace(pod.spec, node_name="n0"))
    life = Life(pod, 0.0, was_bound=True, bound_s=-1.0, node="n0", placed=placed)
    day = Day(
        began_wall_s=0.0,
        length_s=100.0,
        lives={life.uid: life},
        others=[OtherEvent(0.0, ev.NodeAdded(make_node("n0", gpus=8)))],
        kinds={"pods": True, "nodes": True},
        start=Start(FORMAT, 0.0, 0.0, True, "", {}, {}),
    )
    heard: list[ev.Event] = []
    model = Cluster(day, (pod.spec.scheduler_name,), heard.append)
    model.begin()
    model.timeline.advance_to(1.0)
    model.carry_out(ef.EvictPod(life.uid, pod.metadata.namespace, pod.metadata.name, "a cause"))
    model.timeline.advance_to(60.0)
    first, second = [event.pod for event in heard if isinstance(event, ev.PodAdded)]
    assert (first.metadata.name, first.metadata.uid) != (second.metadata.name, second.metadata.uid)
    assert claim(first) is not None
    assert claim(second) == claim(first)
