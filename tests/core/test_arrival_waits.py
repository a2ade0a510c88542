"""Where the shortest go first, the first in line may be passed for seven tenths of what the order of arrival
would have let anybody wait, and has a claim then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.cache.queues.tree import QUEUE_KEY
from gangsched.lab.sim.objects import at, make_node, make_pod, make_pod_group
from gangsched.model.objects import CustomObject, Pod
from gangsched.model.pod_group import COSCHEDULING_LABEL
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.queued import pods, queued, reconfigured
from tests.core.test_kept_now import walled
from tests.support.scenario import Cluster, gang, lone

_HARD = "queueing: {bound: {groups: auto, mode: hard}}"
_ALL = "queues: [{name: all, order: shortest, namespaces: [d]}]"
_WEEK_S = 7 * 86_400.0
_UNTIL_CLAIM = 0.7


def two_nodes(queues: str = _ALL) -> Cluster:
    return queued(f"{_HARD}\n{queues}", nodes=2)


def one_waits_for_all(c: Cluster) -> Cluster:
    """`long` needs both nodes for an hour; one is held for months, by another queue, and one is free."""
    c.submit(walled(pods("x", "holds", gpus=8), "4000h")).run()
    return c.submit(walled(gang("long", pods=2, gpus=8), "1h")).run()


def is_passed(c: Cluster) -> bool:
    """Whether one that would run past any claim may start now; it is gone then."""
    c.submit(lone("asks", 4, "5000h")).run()
    found = bool(c.pod("asks").spec.node_name)
    c.delete("asks").run()
    assert (c.claims().claim(c.group("long")) is None) == found
    return found


def another_waits(c: Cluster) -> Cluster:
    """In the order of arrival it would wait for `long` to have run: an hour of the whole cluster."""
    return c.submit(walled(gang("other", pods=2, gpus=8), "30m")).run()


def test_it_has_a_claim_at_once_where_nobody_would_have_waited() -> None:
    assert not is_passed(one_waits_for_all(two_nodes()))


def test_it_is_passed_for_most_of_what_another_would_have_waited() -> None:
    c = another_waits(one_waits_for_all(two_nodes()))
    # Nothing has ended yet, so that pods are taken to run for half of their walltimes.
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_how_long_pods_run_is_learned_from_those_that_have_left() -> None:
    c = two_nodes()
    for k in range(13):
        c.submit(walled(gang(f"quick-{k}", pods=8, gpus=1), "1000s")).run()
        assert c.placed(f"quick-{k}", on=1)
        c.wait(100.0).delete(*(f"quick-{k}-{i}" for i in range(8))).run()
    another_waits(one_waits_for_all(c))
    assert is_passed(c.wait(_UNTIL_CLAIM * 360.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_what_is_learned_counts_for_waits_that_were_noted_before() -> None:
    c = another_waits(one_waits_for_all(two_nodes()))
    for k in range(13):
        c.submit(walled(gang(f"quick-{k}", pods=8, gpus=1), "1000s")).run()
        assert c.placed(f"quick-{k}", on=1)
        c.wait(50.0).delete(*(f"quick-{k}-{i}" for i in range(8))).run()
    # They ran for a twentieth of their walltimes.
    assert not is_passed(c.wait(1.0))


def test_who_leaves_is_not_waited_for() -> None:
    c = one_waits_for_all(two_nodes())
    for name in ("gives-up", "as-well"):
        c.submit(walled(gang(name, pods=2, gpus=8), "100h")).run()
        c.delete(f"{name}-0", f"{name}-1").run()
    another_waits(c)
    # `as-well` would have waited for `long` alone, as `other` does.
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_who_names_another_queue_by_now_is_not_waited_for() -> None:
    both = "queues: [{name: all, order: shortest, namespaces: [d]}, {name: beside, namespaces: ['d*']}]"
    c = one_waits_for_all(two_nodes(both))
    c.submit(walled(gang("moves", pods=2, gpus=8), "100h")).run()
    for name in ("moves-0", "moves-1"):
        pod = c.pod(name)
        own = {**(pod.metadata.annotations or {}), QUEUE_KEY: "beside"}
        c.update(pod, metadata=replace(pod.metadata, annotations=own))
    another_waits(c.run().wait(400.0))  # it has been tried again by then
    # That one would have waited for `long` alone, in a queue to which half of the cluster is due.
    assert is_passed(c.wait(_UNTIL_CLAIM * 3600.0 - 460.0))
    assert not is_passed(c.wait(120.0))


@pytest.mark.long
def test_a_wait_is_forgotten_after_a_week() -> None:
    c = one_waits_for_all(two_nodes())
    c.submit(walled(gang("gives-up", pods=2, gpus=8), "3000h")).run()
    another_waits(c).delete("gives-up-0", "gives-up-1").run()
    assert is_passed(c.wait(_WEEK_S - 60.0))
    assert not is_passed(c.wait(120.0))


@pytest.mark.parametrize(
    ("holds", "wait_s"),
    [
        pytest.param(0, 1800.0 * 8, id="what is due to it, an eighth"),
        pytest.param(4, (1800.0 + 20 * 3600.0 / 4) * 4, id="what it holds, if that is more"),
    ],
)
def test_a_queue_with_a_small_part_takes_longer(holds: int, wait_s: float) -> None:
    c = two_nodes(
        "queues: [{name: all, order: shortest, namespaces: [d]}, {name: more, share: 7, namespaces: [x]}]"
    )
    if holds:
        c.submit(lone("mine", holds, "40h")).run()
    another_waits(one_waits_for_all(c))
    assert is_passed(c.wait(_UNTIL_CLAIM * wait_s - 60.0))
    assert not is_passed(c.wait(120.0))


def test_a_walltime_that_nobody_knows_counts_as_none() -> None:
    c = one_waits_for_all(two_nodes())
    c.submit(gang("unknown", pods=2, gpus=8)).run()
    another_waits(c)
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_what_runs_in_its_queue_would_have_been_waited_for() -> None:
    c = two_nodes()
    c.submit(lone("runs", 4, "8h")).run().wait(4 * 3600.0)
    one_waits_for_all(c)
    # A quarter of the cluster for four hours more, of which it runs for half.
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_after_a_restart_what_runs_has_run_for_as_long_as_its_kubelet_says() -> None:
    c = two_nodes()
    c.submit(lone("runs", 4, "8h")).run()
    runs = c.pod("runs")
    c.update(runs, status=replace(runs.status, phase="Running", start_time=at(c.now_s)))
    one_waits_for_all(c.wait(4 * 3600.0).restart())
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_what_runs_counts_from_when_the_shortest_go_first() -> None:
    c = queued("onPartialBind: complete", nodes=2)
    c.submit(lone("runs", 4, "8h")).run().wait(4 * 3600.0)
    reconfigured(c, f"queueing: {{bound: {{groups: auto, mode: hard}}}}\n{_ALL}")
    one_waits_for_all(c)
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_who_is_reserved_again_runs_from_then_on() -> None:
    c = two_nodes()
    c.answer = lambda bind: "422"
    c.submit(lone("runs", 4, "8h")).run()
    c.answer = lambda bind: "ok"
    c.wait(3600.0)
    assert c.pod("runs").spec.node_name
    began_s = c.group("runs").since_s
    assert c.queue_book().running_s("all", began_s) == pytest.approx(8 * 3600.0 / 4)


def test_who_has_outrun_its_walltime_counts_as_none() -> None:
    c = two_nodes()
    c.submit(lone("runs", 2, "8h")).run()
    c.submit(lone("late", 2, "1h")).run()
    one_waits_for_all(c.wait(4 * 3600.0)).delete("late").run()
    # An eighth of the cluster for four hours more, of which it runs for half.
    assert is_passed(c.wait(_UNTIL_CLAIM * 900.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_what_runs_counts_by_the_cluster_as_it_is_now() -> None:
    c = two_nodes()
    c.submit(lone("runs", 4, "8h")).run().wait(4 * 3600.0)
    for name in ("n2", "n3"):
        c.node(make_node(name, gpus=8))
        c.submit(walled(pods("x", f"holds-{name}", gpus=8), "4000h")).run()
    one_waits_for_all(c)
    # An eighth of the cluster, which was a quarter of it when it started.
    assert is_passed(c.wait(_UNTIL_CLAIM * 900.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def test_little_is_kept_of_thousands_that_have_ended_early() -> None:
    c = two_nodes()
    c.submit(lone("runs", 4, "8h")).run()
    for k in range(1100):
        c.submit(lone(f"quick-{k}", 1, "40h")).run().delete(f"quick-{k}").run()
    assert len(c.queue_book()._ends) <= 1001
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(8 * 3600.0 / 4)


def test_who_waits_in_a_queue_that_is_renamed_goes_on_waiting_there() -> None:
    c = another_waits(one_waits_for_all(two_nodes())).wait(600.0)
    reconfigured(c, f"{_HARD}\n{_ALL.replace('name: all', 'name: new')}")
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 660.0))
    assert not is_passed(c.wait(120.0))


def test_who_comes_to_a_renamed_queue_would_have_waited_for_those_that_were_there_before() -> None:
    c = one_waits_for_all(two_nodes())
    reconfigured(c, f"{_HARD}\n{_ALL.replace('name: all', 'name: new')}")
    another_waits(c)
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def half_an_hour_is_waited_for(c: Cluster) -> None:
    """A quarter of the cluster for four hours more, of which it runs for half."""
    one_waits_for_all(c)
    assert is_passed(c.wait(_UNTIL_CLAIM * 1800.0 - 60.0))
    assert not is_passed(c.wait(120.0))


def running(c: Cluster, those: list[Pod]) -> Cluster:
    """They hold a quarter of the cluster, and have done so for four hours."""
    c.submit(those).run()
    for pod in those:
        now = c.pod(pod.metadata.name)
        c.update(now, status=replace(now.status, phase="Running", start_time=at(c.now_s)))
    return c.wait(4 * 3600.0)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="neither queues nor walltimes"),
        pytest.param(_ALL.replace("order: shortest, ", ""), id="queues in the order of arrival"),
    ],
)
def test_what_runs_counts_once_the_configuration_says_that_the_shortest_go_first(before: str) -> None:
    c = running(queued(before, nodes=2), lone("runs", 4, "8h"))
    half_an_hour_is_waited_for(reconfigured(c, f"{_HARD}\n{_ALL}"))


def test_other_defaults_count_for_what_runs() -> None:
    c = running(queued(f"queueing: {{defaultWalltime: 8h}}\n{_ALL}", nodes=2), lone("runs", 4))
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(4 * 3600.0 / 4)
    reconfigured(c, f"queueing: {{defaultWalltime: 12h}}\n{_ALL}").wait(1.0).submit(lone("next", 1)).run()
    both_s = 8 * 3600.0 / 4 + 12 * 3600.0 / 16
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(both_s, abs=1.0)


def test_a_walltime_that_is_edited_counts_as_it_is_now() -> None:
    c = running(two_nodes(), walled(gang("runs", pods=2, gpus=2), "5h"))
    one_waits_for_all(c)
    c.update(*walled([c.pod("runs-1")], "8h")).run().delete("long-0", "long-1").run()
    half_an_hour_is_waited_for(c)


def test_a_walltime_that_the_last_to_start_is_edited_to_counts_for_those_that_ran_before() -> None:
    c = two_nodes().submit(walled(gang("runs", pods=2, gpus=1), "5h")).run()
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(2 * 5 * 3600.0 / 16)
    c.submit(walled(gang("runs", pods=1, gpus=1, min_members=2, first=2), "5h")).run()
    c.update(*walled([c.pod("runs-2")], "8h"))
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(3 * 8 * 3600.0 / 16)


def test_a_member_that_comes_later_and_leaves_counts_for_those_that_ran_before_while_it_is_there() -> None:
    c = two_nodes().submit(walled(gang("runs", pods=2, gpus=1), "1h")).run()
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(2 * 3600.0 / 16)
    c.submit(walled(gang("runs", pods=1, gpus=1, min_members=2, first=2), "4h")).run()
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(3 * 4 * 3600.0 / 16)
    c.delete("runs-2").run()
    assert c.queue_book().running_s("all", c.now_s) == pytest.approx(2 * 3600.0 / 16)


@pytest.mark.parametrize("how", ["edited", "after a restart"])
def test_a_walltime_of_a_gangs_object_counts(how: str) -> None:
    def says(walltime: str) -> CustomObject:
        return make_pod_group("runs", spec={"minMember": 2}, annotations={WALLTIME_KEY: walltime})

    c = two_nodes().object("coscheduling", says("5h" if how == "edited" else "8h"))
    running(c, [make_pod(f"runs-{k}", gpus=2, labels={COSCHEDULING_LABEL: "runs"}) for k in range(2)])
    if how == "edited":
        one_waits_for_all(c).delete("long-0", "long-1").run()
        c.object("coscheduling", says("8h"))
    else:
        c.restart()
    half_an_hour_is_waited_for(c)


def test_a_walltime_may_be_edited_of_a_gang_of_which_the_last_has_ended() -> None:
    def says(walltime: str) -> CustomObject:
        return make_pod_group("runs", spec={"minMember": 1}, annotations={WALLTIME_KEY: walltime})

    c = two_nodes().object("coscheduling", says("5h"))
    c.submit(make_pod("runs-0", gpus=2, labels={COSCHEDULING_LABEL: "runs"})).run()
    c.phase("runs-0", "Succeeded").object("coscheduling", says("8h")).run()
    assert c.queue_book().running_s("all", c.now_s) == 0.0
