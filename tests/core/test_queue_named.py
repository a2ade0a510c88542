"""A pod that names a queue which does not take it: what its message and the explanation say."""

from __future__ import annotations

from gangsched.core.explaining.explain import Explanation, explain
from tests.core.queued import pods, queued
from tests.support.scenario import Cluster


def told(namespace: str, queue: str) -> tuple[Cluster, Explanation]:
    c = queued(
        "queues: [{name: all, queues: [{name: research, namespaces: [a]},"
        " {name: production, namespaces: ['a*']}]}]"
    )
    c.submit(pods(namespace, "p", annotations={"gangsched.io/queue": queue})).run()
    [group] = c.groups()
    return c, explain(c.scheduler, group, c.now_s)


def test_a_queue_that_does_not_exist_is_reported_with_the_nearest_and_never_as_room_for_it() -> None:
    c, found = told("a", "reserch")
    problem = (
        "queue reserch: no queue of this name takes pods of the namespace a; those that do: research,"
        " production; did you mean research?"
    )
    assert c.said("p") == f"Fairness: {problem}"
    assert found.answer == f"Pod a/p names a queue that does not take it: {problem}"
    assert found.cures == (
        "Correct gangsched.io/queue in the pods' template, and on the pods that exist: they are looked at"
        " again at once. Which namespaces a queue takes is in the scheduler's configuration.",
    )


def test_the_message_does_not_tell_another_tenants_queue_from_one_that_does_not_exist() -> None:
    assert told("a-b", "research")[1].answer == (
        "Pod a-b/p names a queue that does not take it: queue research: no queue of this name takes"
        " pods of the namespace a-b; those that do: production."
    )
    answers = {told("a-b", name)[1].answer.replace(name, "NAME") for name in ("research", "all", "none")}
    assert len(answers) == 1, "whether there is a queue of that name is not told where it takes no pods"
    assert (
        "no queue of this name takes pods of the namespace c; nor does another."
        in told("c", "none")[1].answer
    )


def test_a_gang_of_two_queues_is_told_of_the_one_that_is_at_its_limit() -> None:
    """Its first pod is in a queue with room: Admit asks for each pod's queue, and so does the explanation."""
    c = queued(
        "queues: [{name: small, namespaces: [a], limit: {nvidia.com/gpu: 2}},"
        " {name: large, namespaces: ['a*']}]"
    )
    c.submit(pods("a", "first", gpus=2, annotations={"gangsched.io/queue": "small"})).run()
    for name in ("large", "small"):
        own = {"gangsched.io/queue": name}
        c.submit(pods("a", f"train-{name}", group="train", min_members=2, annotations=own))
    c.run()
    [group] = [one for one in c.groups() if one.is_gang]
    assert group.message == "Fairness: queue small: 2 of 2 nvidia.com/gpu used, needs 1"
    assert explain(c.scheduler, group, c.now_s).answer.startswith(
        "Queue small is at its limit: 2 of 2 nvidia.com/gpu are used, and it needs 1, 1 too many."
    )
