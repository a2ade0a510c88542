"""What if: each number of its answer beside a plain count of the cluster that was asked about."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import msgspec
from msgspec.structs import replace
from rich.console import Console

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_pod
from gangsched.model import events as ev
from gangsched.model.objects import OwnerReference, Pod
from gangsched.model.workloads import PodDisruptionBudget
from gangsched.whatif.answer import Answer
from gangsched.whatif.command import print_answer
from gangsched.whatif.manifests import Manifests
from gangsched.whatif.question import Question, examine
from tests.support.scenario import cluster, gang, on_node
from tests.whatif.test_trial import NOW, running, snapshot_of, whatif


def owned(pod: Pod, kind: str) -> Pod:
    owners = (OwnerReference("v1", kind, "owner", "u", controller=True),)
    return replace(pod, metadata=replace(pod.metadata, owner_references=owners))


def printed(answer: Answer) -> str:
    out = StringIO()
    print_answer(answer, Console(file=out, width=400, highlight=False))
    return out.getvalue()


# -- evicted -------------------------------------------------------------------------------------------------


def test_what_goes_for_others_that_wait_is_not_evicted_for_it() -> None:
    """Two low pods fill two nodes; one node goes to the urgent pod that waits, and nobody has to go for this
    one, which finds the third node empty."""
    c = cluster(nodes=2).submit(make_pod("low-a", gpus=8), make_pod("low-b", gpus=8)).run()
    c.pods["waits"] = make_pod("waits", gpus=8, priority=10)  # its eviction is not sent yet
    found = whatif(c, make_pod("new", gpus=8, priority=5), settings=Settings(), add_nodes=1, like="n0")
    assert found.starts_now
    (one,) = found.gangs
    for_others = 0 if one.members[0].node == "n0-added-1" else 1
    assert len(found.evicted) == for_others, found.evicted


def test_those_that_go_for_it_alone_are_counted() -> None:
    c = cluster(nodes=2).submit(make_pod("low-a", gpus=8), make_pod("low-b", gpus=8)).run()
    c.pods["waits"] = make_pod("waits", gpus=8, priority=10)
    found = whatif(c, make_pod("new", gpus=8, priority=10), settings=Settings())
    assert found.starts_now
    assert len(found.evicted) == 1
    assert "It would evict 1 pod: d/low-" in printed(found)


def test_a_pod_that_a_disruption_budget_keeps_is_deleted_for_it_as_it_would_be() -> None:
    """The scheduler deletes what the API server would not evict, as kube-scheduler does."""
    c = cluster(nodes=1).submit(make_pod("kept", gpus=8, labels={"app": "db"})).run()
    item = {
        "metadata": {"name": "all", "namespace": "d", "uid": "b1"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    budget = ev.ObjectPut("poddisruptionbudgets.policy", msgspec.convert(item, PodDisruptionBudget))
    job = Manifests([make_pod("urgent", gpus=8, priority=10)], [budget])
    found = examine(Question(preempt=True), snapshot_of(c, Settings()), job, 1.0, NOW)
    assert (found.starts_now, found.evicted) == (True, ["d/kept"])


def test_a_long_list_of_the_evicted_says_how_many_more_there_are() -> None:
    c = cluster(nodes=3).submit(*(make_pod(f"low-{k}", gpus=1) for k in range(24))).run()
    found = whatif(c, *gang("big", pods=3, gpus=8, priority=10), settings=Settings())
    assert len(found.evicted) == 24
    text = printed(found)
    assert "It would evict 24 pods: " in text
    assert text.rstrip().endswith(", and 4 more")


# -- starts --------------------------------------------------------------------------------------------------


def test_a_gang_of_which_some_have_no_room_does_not_all_start_now() -> None:
    found = whatif(cluster(nodes=2), *gang("a", pods=5, gpus=4, min_members=2))
    (one,) = found.gangs
    assert (one.starts, len(one.members), len(one.unplaced)) == ("now", 4, 1)
    assert not found.starts_now, "exit code 0 says that all of it does"
    assert "4 of 5 pods on 2 nodes, 1 more has no room yet" in printed(found)


def test_two_gangs_that_start_at_the_same_end_are_both_told_so() -> None:
    c = cluster(nodes=1).submit(running("long", since=timedelta(0), walltime="1h", gpus=8)).run()
    found = whatif(c, make_pod("a", gpus=4), make_pod("b", gpus=4))
    assert [(one.starts, one.in_s, one.after) for one in found.gangs] == [("later", 3600.0, ["d/long"])] * 2


def test_of_gangs_that_start_at_different_ends_each_has_its_own() -> None:
    c = cluster(nodes=2)
    c.submit(running("short", since=timedelta(0), walltime="1h", gpus=8)).run()
    c.submit(running("long", since=timedelta(0), walltime="3h", gpus=8)).run()
    found = whatif(c, make_pod("a", gpus=8), make_pod("b", gpus=8), make_pod("never", gpus=16))
    assert {one.name.rpartition("/")[2]: (one.starts, one.in_s) for one in found.gangs} == {
        "a": ("later", 3600.0),
        "b": ("later", 10_800.0),
        "never": ("not", None),
    }


# -- what runs -----------------------------------------------------------------------------------------------


def test_running_pods_without_an_end_are_those_that_may_end_some_day() -> None:
    """A service counts; what has ended, a DaemonSet's pod and kubelet's own do not, nor does what ends."""
    c = cluster(nodes=1)
    c.submit(running("service", since=timedelta(hours=1), gpus=8)).run()
    c.submit(running("job", since=timedelta(hours=1), walltime="4h", gpus=0)).run()
    for name, kind in (("exporter", "DaemonSet"), ("proxy", "Node")):
        c.pods[name] = owned(on_node(running(name, since=timedelta(hours=1), gpus=0)), kind)
    ended = on_node(running("ended", since=timedelta(hours=2), gpus=0))
    c.pods["ended"] = replace(ended, status=replace(ended.status, phase="Succeeded"))
    found = whatif(c, *gang("a", pods=2, gpus=8))
    assert found.endless == 1
    assert "When it would start" not in printed(found)  # it does not fit on an empty node either
    found = whatif(c, *gang("a", pods=1, gpus=8))
    assert found.endless == 1
    assert "(1 running pod states none)" in printed(found)


def test_a_drained_node_keeps_what_a_drain_leaves_on_it() -> None:
    c = cluster(nodes=1).submit(running("old", since=timedelta(hours=1), gpus=8)).run()
    for name, kind in (("exporter", "DaemonSet"), ("proxy", "Node")):
        c.pods[name] = owned(on_node(running(name, since=timedelta(hours=1), gpus=0)), kind)
    ended = on_node(running("ended", since=timedelta(hours=2), gpus=0))
    c.pods["ended"] = replace(ended, status=replace(ended.status, phase="Failed"))
    assert whatif(c, make_pod("a"), drain=["n0"]).changes == ["n0 drained, 1 pod gone from it"]


def test_one_is_reported_as_one() -> None:
    c = cluster(nodes=1).submit(make_pod("old", gpus=8)).run()
    assert whatif(c, make_pod("a"), without=["d/old"]).changes == ["without d/old, 1 pod"]
    assert "1 of 1 pod on 1 node\n" in printed(whatif(cluster(nodes=1), make_pod("a", gpus=8)))
    text = printed(whatif(c, make_pod("a", gpus=8)))
    assert "\n  1 node: " in text
