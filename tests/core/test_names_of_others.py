"""What is written where a tenant reads names no object of another tenant; explain does, by its own right.

The judge tenants-apart looks for such names in every storm; here are stories of two namespaces each.
"""

from __future__ import annotations

import pytest

from gangsched.config import Settings
from gangsched.core.explaining.explain import Explanation, explain
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from gangsched.model.text.printable import clean, clean_for, in_full, marked, seen_from
from tests.core.queued import pods, queued
from tests.core.test_claims_and_guarantees import claimed
from tests.support.scenario import Cluster, cluster, gang


def written(c: Cluster, namespace: str) -> list[str]:
    """Everything that readers of the namespace see; of Nodes and the like, with "", too."""
    texts = []
    for one in c.effects:
        if (
            isinstance(one, ef.RecordEvent | ef.WritePodCondition | ef.DeletePod)
            and one.namespace == namespace
        ):
            texts.append(one.message)
        elif isinstance(one, ef.WritePodGroupStatus) and one.namespace == namespace:
            texts.append(str(one.status))
    return texts


def explained(c: Cluster, name: str, *, to_tenant: bool) -> Explanation:
    return explain(c.scheduler, c.group(name), c.now_s, ago_s=1_800_000_000.0, to_tenant=to_tenant)


# -- marks ---------------------------------------------------------------------------------------------------


def test_a_list_of_names_is_whole_for_administrators_and_counted_for_others() -> None:
    text = f"waiting for {marked('pod', ['a/x', 'b/y', 'b/z'])} to go"
    assert in_full(text) == "waiting for a/x, b/y, b/z to go"
    assert seen_from("a", text) == "waiting for a/x and 2 pods of other namespaces to go"
    assert seen_from("b", text) == "waiting for b/y, b/z and a pod of another namespace to go"
    assert seen_from("c", text) == "waiting for 3 pods of other namespaces to go"
    assert seen_from("", text) == "waiting for 3 pods of other namespaces to go"


def test_a_namespace_whose_name_begins_alike_is_another_one() -> None:
    assert seen_from("a", marked("gang", ["a-b/x"], lead="gang ")) == "a gang of another namespace"
    assert seen_from("a-b", marked("gang", ["a/x"])) == "a gang of another namespace"


@pytest.mark.parametrize("n", range(1, 20))
def test_a_text_that_is_cut_within_a_mark_shows_no_names(n: int) -> None:
    text = f"for {marked('pod', ['secret/one', 'secret/two'])}"[:-n]
    assert "secret" not in clean_for("a", text)


MARKS = ("\ue000", "\ue001", "\ue002")


@pytest.mark.parametrize("forged", [*MARKS, "\ue000pod\ue001\ue001b/x\ue002", "\ue000\ue002"])
def test_marks_in_a_name_are_escaped(forged: str) -> None:
    """A webhook's answer or an annotation may have any characters."""
    text = marked("pod", [f"b/{forged}"])
    assert not set(MARKS) & set(clean(text) + clean_for("a", text) + clean(forged))
    assert "b/" not in clean_for("a", text)


def test_many_names_are_bounded() -> None:
    text = marked("pod", [f"b/{k}" for k in range(1000)])
    assert len(text) < 1000
    assert seen_from("a", text) == "more than 64 pods of other namespaces"
    assert in_full(text) == "b/0, b/1, b/2, b/3, …"


# -- stories -------------------------------------------------------------------------------------------------


def test_victims_of_another_namespace_are_counted_and_do_not_read_who_took_their_place() -> None:
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(pods("b", "secret-project", "secret-too", gpus=4)).run()
    c.submit(gang("a", pods=2, gpus=4, namespace="a", priority=9)).run()
    assert len(c.all(ef.EvictPod)) == 2
    told = " ".join(written(c, "a"))
    assert "waiting for 2 pods of lower priority to go: 2 pods of other namespaces" in told
    assert "secret" not in told
    assert "Preempted by a gang of another namespace on node n0" in written(c, "b")
    assert "a/a" not in " ".join(written(c, "b"))
    full, ours = (explained(c, "a", to_tenant=to_tenant) for to_tenant in (False, True))
    assert "b/secret-project" in full.answer
    assert "b/secret-too" in full.told
    assert "secret" not in str(ours)


def test_victims_that_are_deleted_do_not_read_for_whom() -> None:
    a = "{name: a, guaranteed: {nvidia.com/gpu: 8}, namespaces: [a]}"
    c = queued(f"queues: [{a}, {{name: b, namespaces: [b]}}]")
    c.evictions = "500"
    c.submit(pods("b", "victim", gpus=8)).run()
    c.submit(pods("a", "secret-project", gpus=8)).run().wait(30.0)
    assert [one.name for one in c.all(ef.DeletePod)] == ["victim"]
    assert "gangsched: evicted for a pod of another namespace" in " ".join(written(c, "b"))
    assert "a/secret" not in " ".join(written(c, "b"))


def test_victims_that_would_go_are_counted_where_nothing_is_evicted() -> None:
    c = cluster(nodes=1, settings=Settings(allow_eviction=False, tells_victims=True))
    c.submit(pods("b", "secret-project", gpus=8)).run()
    c.submit(pods("a", "a0", gpus=8, priority=9)).run()
    assert "in place of 1 pod of lower priority: a pod of another namespace" in c.said("a0")
    assert "b/secret-project" in explained(c, "a0", to_tenant=False).told


def test_what_is_kept_for_a_gang_of_another_namespace_does_not_name_it() -> None:
    c = claimed(reclaim="never")
    c.submit(gang("g", pods=2, gpus=4, namespace="a")).run()
    assert "are kept for a gang of another namespace, which is promised to start by" in c.said("g-0")
    assert "b/large" in str(explained(c, "g", to_tenant=False))
    for name in ("b/large", "b/holds", "b/passes"):
        assert name not in " ".join(written(c, "a")) + str(explained(c, "g", to_tenant=True))


def test_holders_and_reservations_of_others_are_not_named() -> None:
    """A gang that waits for members holds half, and a pod with a stated end the other half."""
    c = queued("queueing: {}\nqueues: [{name: all, namespaces: ['*']}]", nodes=1)
    own = {"gangsched.io/total-members": "3"}
    c.submit(gang("secret", pods=2, gpus=2, namespace="b", annotations=own)).run()
    c.submit(pods("b", "hidden", gpus=4, annotations={"gangsched.io/walltime": "1h"})).run()
    c.submit(pods("a", "a0", gpus=8)).run()
    assert "4 nvidia.com/gpu are reserved by a gang of another namespace" in c.said("a0")
    full, ours = (str(explained(c, "a0", to_tenant=to_tenant)) for to_tenant in (False, True))
    assert "a pod of another namespace" in ours
    for name in ("b/secret", "b/hidden"):
        assert name in full
        assert name not in ours + " ".join(written(c, "a"))


def test_who_holds_a_limit_is_named_for_administrators_alone() -> None:
    c = queued("queues: [{name: q, limit: {nvidia.com/gpu: 4}, namespaces: [a, b]}]")
    c.submit(pods("b", "secret", gpus=4)).run().submit(pods("a", "a0")).run()
    assert "Held by b/secret (4)." in explained(c, "a0", to_tenant=False).answer
    assert "Held by a pod of another namespace (4)." in explained(c, "a0", to_tenant=True).answer


def test_whether_a_group_of_another_namespace_exists_is_not_reported() -> None:
    """Neither by a name that is nearly right, nor by what its list has."""
    answers = []
    for others in ([], gang("train", pods=1, namespace="b"), gang("trian", pods=1, namespace="b")):
        c = cluster(nodes=1).submit(others).run()
        own = {"gangsched.io/groups": '["a/x", "b/train"]'}
        c.submit(gang("x", pods=1, namespace="a", annotations=own)).run()
        answers.append((explained(c, "x", to_tenant=True).cures, c.said("x-0")))
    assert answers[0] == answers[1] == answers[2]


def test_a_name_nearly_right_is_looked_for_in_its_own_namespace() -> None:
    for namespace, is_near in (("a", True), ("b", False)):
        c = cluster(nodes=1).submit(gang("train", pods=1, namespace=namespace)).run()
        missing = make_pod("x", namespace="a", labels={"scheduling.x-k8s.io/pod-group": "trian"})
        c.submit(missing).run().wait(70.0)
        cures = " ".join(explained(c, "trian", to_tenant=False).cures)
        assert ("did you mean train." in cures) is is_near


def test_an_operators_name_is_for_operators() -> None:
    message = f"rejected by {marked('user', ['system:serviceaccount:team-b:ci'])}: over budget"
    assert clean_for("a", message) == "rejected by an operator: over budget"
    assert clean(message) == "rejected by system:serviceaccount:team-b:ci: over budget"


def test_what_a_gang_of_another_namespace_loses_by_preemption_does_not_name_the_one_that_took_it() -> None:
    c = cluster(nodes=1)
    c.submit(
        gang("waits", pods=1, gpus=8, namespace="b", annotations={"gangsched.io/total-members": "2"})
    ).run()
    c.submit(pods("a", "secret", gpus=8, priority=9)).run()
    assert "gave its reservations back: preempted by a pod of another namespace" in c.said("waits-0")


def test_conditions_keep_the_names_of_their_own_namespace() -> None:
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(pods("a", "mine", gpus=8)).run().submit(pods("a", "a0", gpus=8, priority=9)).run()
    assert "waiting for 1 pod of lower priority to go: a/mine" in c.said("a0")


def test_the_pages_of_all_groups_name_them() -> None:
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(pods("b", "secret", gpus=8)).run().submit(pods("a", "a0", gpus=8, priority=9)).run()

    assert "b/secret" in clean(c.group("a0").message)
