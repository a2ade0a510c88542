"""Gangs that no pod names: each controller's pods start whole or not at all, by its object or their marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import OURS, STRANGER, make_node, make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import ObjectMeta, Pod, SchedulingGroup
from gangsched.model.owners import DEFAULT_INFERRED, ORDERED, OwnerName
from gangsched.model.pod_group import GROUP_LABEL, MIN_MEMBERS_KEY
from gangsched.model.workloads import Namespace
from tests import controllers as made
from tests.core.test_reconfigure import reconfigured
from tests.support.scenario import Cluster, cluster, with_annotations

ALL = Settings(infer_gangs={OURS: ORDERED})
BY_DEFAULT = Settings(infer_gangs={OURS: DEFAULT_INFERRED})
ROLES = {"driver": (1, 1), "workers": (1, 3)}


class Kind(NamedTuple):
    """Four pods of one controller; object: None where all is on the pods. again: the next attempt's."""

    pods: Callable[[], list[made.Json]]
    object: Callable[[], made.Json] | None
    again: Callable[[], list[made.Json]]
    prefix: str


KINDS = {
    "Job": Kind(
        lambda: made.job_pods("a", 4),
        lambda: made.job("a", parallelism=4),
        lambda: made.job_pods("a", 4, uid="next"),
        "a-",
    ),
    "JobSet": Kind(
        lambda: made.job_set_pods("a", ROLES),
        lambda: made.job_set("a", ROLES),
        lambda: made.job_set_pods("a", ROLES, attempt=1),
        "a-",
    ),
    "LeaderWorkerSet": Kind(
        lambda: made.leader_worker_pods("a", size=4),
        None,
        lambda: made.leader_worker_pods("a", size=4, revision="7a01"),
        "a-",
    ),
    "RayCluster": Kind(
        lambda: made.ray_pods("a", workers=3),
        lambda: made.ray_cluster("a", workers=3),
        lambda: made.ray_pods("a", workers=3),
        "a-",
    ),
    "Kueue pod group": Kind(
        lambda: made.kueue_group_pods("a", 4), None, lambda: made.kueue_group_pods("a", 4), "a-"
    ),
    "Kueue Workload": Kind(
        lambda: made.admitted_pods("a", "job-a-1f2e", 4),
        lambda: made.workload("job-a-1f2e", asked=6, admitted=4),
        lambda: made.admitted_pods("a", "job-a-1f2e", 4),
        "a-",
    ),
}


def of(kind: Kind, *, nodes: int, settings: Settings = ALL, served: bool = True) -> Cluster:
    """A cluster that knows the kind's object."""
    c = cluster(nodes=nodes, settings=settings)
    if kind.object is not None and served:
        c.tell(ev.OwnerPut(made.owner(kind.object())))
    elif kind.object is None:
        c.tell(ev.KindMissing("owners.LeaderWorkerSet"))
    return c


def all_said(c: Cluster) -> str:
    return "\n".join(w.message for w in c.all(ef.WritePodCondition))


@pytest.mark.parametrize("name", KINDS)
def test_the_last_pod_is_waited_for_and_then_all_of_them_start(name: str) -> None:
    kind = KINDS[name]
    c = of(kind, nodes=4)
    pods = made.decoded(kind.pods())
    c.submit(pods[:-1]).run().wait(6.0)
    assert c.n_bound() == 0
    assert "waits for members: 3 of 4 exist" in all_said(c)
    c.submit(pods[-1:]).run()
    assert c.n_bound() == 4
    c.five_more_turns_change_nothing()


@pytest.mark.parametrize("name", KINDS)
def test_one_node_short_and_none_of_them_starts(name: str) -> None:
    kind = KINDS[name]
    c = of(kind, nodes=3).submit(made.decoded(kind.pods())).run().wait(30.0)
    assert c.n_bound() == 0
    assert "Insufficient nvidia.com/gpu" in all_said(c)


def test_pods_of_a_kind_that_cannot_be_read_wait_for_its_object_and_nobody_else_does() -> None:
    """Their labels alone would do if it were known that there is no such kind: its object may say more."""
    c = Cluster(ALL, synced=False)
    for k in range(5):
        c.node(make_node(f"n{k}", gpus=8))
    for kind in c.scheduler.kinds:
        unread = ev.KindMissing(kind, is_unread=True)
        c.tell(unread if kind == "owners.LeaderWorkerSet" else ev.KindSynced(kind))
    c.submit(made.decoded(made.leader_worker_pods("a", size=4)), make_pod("other-0", gpus=1)).run()
    assert c.placed("other")
    assert c.untouched("a")
    c.wait(10.0)
    assert "LeaderWorkerSet d/a, which has not been seen (yet)" in all_said(c)
    c.tell(ev.KindMissing("owners.LeaderWorkerSet")).run()
    assert c.placed("a")


@pytest.mark.parametrize("name", KINDS)
def test_the_next_attempt_starts_whole_too(name: str) -> None:
    kind = KINDS[name]
    c = of(kind, nodes=4).submit(made.decoded(kind.pods())).run()
    assert c.n_bound() == 4
    c.delete(*[pod.metadata.name for pod in c.pods.values()])
    again = made.decoded(kind.again())
    again = [replace(p, metadata=replace(p.metadata, uid=f"{p.metadata.uid}-again")) for p in again]
    c.submit(again[:-1]).run()
    assert c.n_bound() == 0
    c.submit(again[-1:]).run()
    assert c.n_bound() == 4


@pytest.mark.parametrize("name", KINDS)
def test_pods_recreated_while_the_old_ones_end_start_together_again(name: str) -> None:
    """As when Kueue takes an admission back and gives it again: the name is the same, the pods are others."""
    kind = KINDS[name]
    c = of(kind, nodes=8).submit(made.decoded(kind.pods())).run()
    old = [pod.metadata.name for pod in c.pods.values()]
    for each in old:
        c.leave(each)
    again = [
        replace(
            p, metadata=replace(p.metadata, name=f"{p.metadata.name}-again", uid=f"{p.metadata.uid}-again")
        )
        for p in made.decoded(kind.pods())
    ]
    c.submit(again[:3]).run()
    assert c.n_bound() == 4, "the old ones hold their nodes, and none of the new ones starts"
    c.submit(again[3:]).run()
    assert c.n_bound() == 8
    c.delete(*old)
    assert c.n_bound() == 4
    c.five_more_turns_change_nothing()


def test_after_a_restart_pods_that_end_do_not_count_for_the_new_ones() -> None:
    kind = KINDS["Kueue Workload"]
    assert kind.object is not None
    c = of(kind, nodes=8).submit(made.decoded(kind.pods())).run()
    for each in [pod.metadata.name for pod in c.pods.values()]:
        c.leave(each)
    again = [
        replace(
            p, metadata=replace(p.metadata, name=f"{p.metadata.name}-again", uid=f"{p.metadata.uid}-again")
        )
        for p in made.decoded(kind.pods())
    ]
    c.submit(again[:3]).restart().tell(ev.OwnerPut(made.owner(kind.object()))).run()
    assert c.n_bound() == 4
    assert c.submit(again[3:]).run().n_bound() == 8


def test_one_pod_that_is_replaced_starts_by_itself_while_the_others_run() -> None:
    c = of(KINDS["JobSet"], nodes=4).submit(made.decoded(KINDS["JobSet"].pods())).run()
    [pod, *_] = made.decoded(KINDS["JobSet"].pods())
    c.leave(pod.metadata.name)
    c.submit(replace(pod, metadata=replace(pod.metadata, name="a-new", uid="another")))
    assert c.run().n_bound() == 4, "there is no room yet"
    c.delete(pod.metadata.name).run().wait(2.0)
    assert c.n_bound() == 4


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.object is not None])
def test_pods_whose_owner_comes_late_wait_for_it_and_report_that(name: str) -> None:
    kind = KINDS[name]
    assert kind.object is not None
    c = of(kind, nodes=4, served=False)
    c.submit(made.decoded(kind.pods())).run().wait(6.0)
    assert c.n_bound() == 0
    owner = made.owner(kind.object())
    assert f"waits for {owner.named}, which has not been seen (yet)" in all_said(c)
    c.tell(ev.OwnerPut(owner)).run()
    assert c.n_bound() == 4


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_inferred_where_nobody_asked_for_it(name: str) -> None:
    kind = KINDS[name]
    c = of(kind, nodes=3, settings=Settings()).submit(made.decoded(kind.pods())).run()
    # A label that names Kueue's own group is refused rather than passed over (foreignMarkers).
    assert c.n_bound() == (0 if name == "Kueue pod group" else 3)


@pytest.mark.parametrize("name", KINDS)
def test_after_a_restart_a_gang_that_runs_is_left_alone_and_one_that_waits_waits(name: str) -> None:
    kind = KINDS[name]
    c = of(kind, nodes=4).submit(made.decoded(kind.pods())).run()
    owners = [] if kind.object is None else [ev.OwnerPut(made.owner(kind.object()))]
    c.restart().tell(*owners).run().five_more_turns_change_nothing()
    assert c.n_bound() == 4


def test_a_job_is_left_alone_by_default_and_one_without_indices_always() -> None:
    c = cluster(nodes=4, settings=BY_DEFAULT).submit(made.decoded(made.job_pods("a", 3))).run()
    assert c.n_bound() == 3
    c = cluster(nodes=4, settings=ALL).tell(
        ev.OwnerPut(made.owner(made.job("a", parallelism=4, indexed=False)))
    )
    c.submit(made.decoded(made.job_pods("a", 3, indexed=False))).run()
    assert c.n_bound() == 3


def test_a_job_starts_with_as_many_as_run_at_a_time_and_goes_on_one_by_one() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.job("a", parallelism=3, completions=9))))
    pods = made.decoded(made.job_pods("a", 4))
    assert c.submit(pods[:2]).run().n_bound() == 0
    assert c.submit(pods[2:3]).run().n_bound() == 3
    c.phase("a-0", "Succeeded")
    c.submit(pods[3:]).run()
    assert c.pod("a-3").spec.node_name


def test_an_explicit_group_always_wins() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    own = {GROUP_LABEL: "mine"}
    pods = made.decoded(made.job_set_pods("a", ROLES))[:2]
    pods = [
        replace(p, metadata=replace(p.metadata, labels={**(p.metadata.labels or {}), **own})) for p in pods
    ]
    c.submit(with_annotations(pods, {MIN_MEMBERS_KEY: "2"})).run()
    assert c.n_bound() == 2
    assert c.group_names() == ["d/mine"]


def in_core_group(pods: list[Pod], name: str) -> list[Pod]:
    return [replace(p, spec=replace(p.spec, scheduling_group=SchedulingGroup(name))) for p in pods]


@pytest.mark.parametrize("is_late", [False, True], ids=["PodGroup first", "PodGroup last"])
def test_a_basic_pod_group_of_the_job_controller_asks_for_nothing(is_late: bool) -> None:
    """With the gate WorkloadWithJob every Job has one, and each pod names it."""
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(made.job("a", parallelism=4))))
    basic = make_pod_group("a-1f2e", spec={"schedulingPolicy": {"basic": {}}})
    if not is_late:
        c.object("core", basic)
    pods = in_core_group(made.decoded(made.job_pods("a", 4)), "a-1f2e")
    assert c.submit(pods[:3]).run().n_bound() == 0
    if is_late:
        assert c.object("core", basic).run().n_bound() == 0
    assert c.submit(pods[3:]).run().n_bound() == 4


def test_a_gang_that_the_job_asks_for_in_its_own_words_wins() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(made.job("a", parallelism=4))))
    c.object("core", make_pod_group("a-1f2e", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}))
    pods = in_core_group(made.decoded(made.job_pods("a", 2)), "a-1f2e")
    assert c.submit(pods).run().n_bound() == 2


def test_min_members_makes_a_controllers_gang_elastic() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    pods = with_annotations(made.decoded(made.job_set_pods("a", ROLES)), {MIN_MEMBERS_KEY: "2"})
    assert c.submit(pods[:1]).run().n_bound() == 0
    assert c.submit(pods[1:2]).run().n_bound() == 2
    assert c.submit(pods[2:]).run().n_bound() == 4


# -- JobSets ------------------------------------------------------------------------------------------------


def test_pods_of_an_old_attempt_do_not_count_for_the_new_one() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    c.submit(made.decoded(made.job_set_pods("a", ROLES))).run()
    again = made.decoded(made.job_set_pods("a", ROLES, attempt=1))
    c.submit(again[:3]).run()
    assert c.n_bound() == 4
    c.submit(again[3:]).run()
    assert c.n_bound() == 8


@pytest.mark.parametrize("how", ["InOrder", "dependsOn"])
def test_a_job_set_that_starts_in_order_starts_each_of_its_jobs_whole(how: str) -> None:
    item = made.job_set("a", ROLES)
    if how == "InOrder":
        item["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    else:
        item["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    c = cluster(nodes=3, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    driver, *workers = made.decoded(made.job_set_pods("a", ROLES))
    assert c.submit(driver).run().n_bound() == 1
    c.submit(workers[:2]).run()
    assert c.n_bound() == 1, "the others of its role are waited for"
    c.submit(workers[2:]).run()
    assert c.n_bound() == 1, "one node short"
    [told] = [e.message for e in c.all(ef.RecordEvent) if e.reason == "NotOneGang"]
    assert "JobSet d/a is not one gang, each of its roles is a gang of its own" in told
    assert how in told


def test_a_job_set_with_exclusive_topology_is_no_gang_and_one_pod_reports_that() -> None:
    item = made.job_set("a", ROLES, annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"})
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    pods = made.decoded(made.job_set_pods("a", ROLES))
    for k in range(4):
        c.submit(pods[k]).run()
        assert c.n_bound() == k + 1
    [told] = [e.message for e in c.all(ef.RecordEvent) if e.reason == "NotOneGang"]
    assert "its pods are started one by one: annotation alpha.jobset.sigs.k8s.io/exclusive-topology" in told


def test_pods_that_came_before_the_job_set_are_grouped_again_when_it_is_seen() -> None:
    item = made.job_set("a", ROLES, startupPolicy={"startupPolicyOrder": "InOrder"})
    c = cluster(nodes=4, settings=ALL)
    driver, *workers = made.decoded(made.job_set_pods("a", ROLES))
    c.submit(driver).run()
    assert c.n_bound() == 0
    c.tell(ev.OwnerPut(made.owner(item))).run()
    assert c.n_bound() == 1
    assert c.submit(workers).run().n_bound() == 4


def test_templates_of_another_scheduler_are_not_waited_for() -> None:
    item = made.job_set("a", ROLES)
    item["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] = ""
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    driver, *workers = made.decoded(made.job_set_pods("a", ROLES))
    c.submit(replace(driver, spec=replace(driver.spec, scheduler_name="default-scheduler")))
    assert c.submit(workers[:2]).run().n_bound() == 0
    assert c.submit(workers[2:]).run().n_bound() == 3


# -- LeaderWorkerSets ---------------------------------------------------------------------------------------


def test_a_leader_that_must_be_ready_first_starts_alone_and_then_its_workers_as_a_gang() -> None:
    item = made.leader_worker_set("a", size=4, policy="LeaderReady")
    c = cluster(nodes=3, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    leader, *workers = made.decoded(made.leader_worker_pods("a", size=4))
    assert c.submit(leader).run().n_bound() == 1
    c.submit(workers[:2]).run()
    assert c.n_bound() == 1
    c.submit(workers[2:]).run()
    assert c.n_bound() == 1, "two nodes for three workers"
    assert "Insufficient" in c.said(workers[0].metadata.name)


@pytest.mark.parametrize("is_exclusive", [False, True])
def test_a_leader_that_starts_alone_says_that_no_room_is_kept_for_its_workers(*, is_exclusive: bool) -> None:
    """Two leaders start on four nodes, and none of their workers ever will."""
    c = cluster(nodes=4, settings=ALL)
    marks = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"} if is_exclusive else {}
    policy = "LeaderCreated" if is_exclusive else "LeaderReady"
    c.tell(ev.OwnerPut(made.owner(made.leader_worker_set("a", size=4, replicas=2, policy=policy))))
    for k in range(2):
        pods = made.leader_worker_pods("a", size=4, replica=k, workers=range(1), annotations=marks)
        c.submit(made.decoded(pods)).run()
    assert c.n_bound() == 2
    (told,) = [one.message for one in c.all(ef.RecordEvent) if one.reason == "NotOneGang"]
    assert "its leader is started alone, and no room is kept for its workers (3), which may find none" in told
    group = c.groups()[0]
    answer = explain(c.scheduler, group, c.now_s).answer
    assert answer.startswith("It has started: 1 of 1 members are bound.")
    assert "LeaderWorkerSet d/a: its leader is started alone" in answer
    assert ("gangsched.io/topology" if is_exclusive else "LeaderCreated") in answer


def test_an_update_that_waits_for_its_own_old_pods_says_what_lets_it_go_on() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.leader_worker_set("a", size=2, replicas=2))))
    for k in range(2):
        c.submit(made.decoded(made.leader_worker_pods("a", size=2, replica=k))).run()
    assert c.n_bound() == 4
    new = made.decoded(made.leader_worker_pods("a", size=2, replica=2, revision="7a01"))
    c.submit(new).run().wait(1.0)
    assert c.n_bound() == 4
    assert (
        "4 pods of former revisions of LeaderWorkerSet d/a hold room, and its update waits for them; "
        "spec.rolloutStrategy.rollingUpdateConfiguration with maxUnavailable of at least 1 and maxSurge 0"
    ) in all_said(c)
    other = made.decoded(made.leader_worker_pods("b", size=2))
    before = len(c.all(ef.WritePodCondition))
    c.tell(ev.OwnerPut(made.owner(made.leader_worker_set("b", size=2)))).submit(other).run().wait(1.0)
    said = [w.message for w in c.all(ef.WritePodCondition)[before:] if w.name.startswith("b-")]
    assert said
    assert not any("former revisions" in message for message in said)


def test_exclusive_topology_of_a_leader_is_seen_on_the_pod() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.KindMissing("owners.LeaderWorkerSet"))
    marks = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    leader, *workers = made.decoded(made.leader_worker_pods("a", size=3, annotations=marks))
    assert c.submit(leader).run().n_bound() == 1
    assert c.submit(workers[:1]).run().n_bound() == 1
    assert c.submit(workers[1:]).run().n_bound() == 3


def test_replicas_and_revisions_are_gangs_of_their_own() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.KindMissing("owners.LeaderWorkerSet"))
    first = made.decoded(made.leader_worker_pods("a", size=2))
    second = made.decoded(made.leader_worker_pods("a", size=2, replica=1))
    c.submit(first[:1], second[:1]).run()
    assert c.n_bound() == 0
    assert c.submit(first[1:]).run().n_bound() == 2


def test_a_size_that_is_no_number_is_refused_with_the_reason() -> None:
    c = cluster(nodes=4, settings=ALL)
    pods = with_annotations(
        made.decoded(made.leader_worker_pods("a", size=2)), {"leaderworkerset.sigs.k8s.io/size": "-1"}
    )
    c.submit(pods).run()
    assert c.n_bound() == 0
    assert "leaderworkerset.sigs.k8s.io/size: '-1', it should be a whole number from 1 to" in c.said("a-0")


def test_a_gang_of_two_schedulers_is_refused_where_only_the_pods_say_how_many() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.KindMissing("owners.LeaderWorkerSet"))
    leader, *workers = made.decoded(made.leader_worker_pods("a", size=3))
    c.submit(replace(leader, spec=replace(leader.spec, scheduler_name=STRANGER)), workers).run().wait(6.0)
    assert c.n_bound() == 0
    assert "members name different schedulers" in all_said(c)


# -- Ray ----------------------------------------------------------------------------------------------------


def test_a_cluster_that_scales_starts_with_its_least_and_grows() -> None:
    item = made.ray_cluster("a", workers=3, min_workers=1, autoscaling=True)
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    head, *workers = made.decoded(made.ray_pods("a", workers=3))
    assert c.submit(head).run().n_bound() == 0
    assert c.submit(workers[:1]).run().n_bound() == 2
    assert c.submit(workers[1:]).run().n_bound() == 4


def test_hosts_of_a_replica_are_counted_and_the_submitter_is_not() -> None:
    c = cluster(nodes=5, settings=ALL).tell(
        ev.OwnerPut(made.owner(made.ray_cluster("a", workers=2, hosts=2)))
    )
    c.submit(made.decoded([made.ray_submitter("a", gpus=0)])).run()
    assert c.n_bound() == 1
    pods = made.decoded(made.ray_pods("a", workers=4))
    assert c.submit(pods[:4]).run().n_bound() == 1
    assert c.submit(pods[4:]).run().n_bound() == 6


# -- a minimum for each role -----------------------------------------------------------------------------


def ray_of_two(head_gpus: int = 0) -> tuple[made.Json, list[Pod], list[Pod]]:
    """Under the autoscaler: a head, one worker of `gpus` at least and three now, two of `big`."""
    item = made.ray_cluster("a", workers=3, min_workers=1, autoscaling=True)
    groups = item["spec"]["workerGroupSpecs"]
    groups.append({**groups[0], "groupName": "big", "replicas": 2, "minReplicas": 2})
    first = made.decoded(made.ray_pods("a", workers=3))
    big = made.ray_pods("a", workers=2, first=10, head=False, gpus=16)
    for one in big:
        one["metadata"]["labels"]["ray.io/group"] = "big"
    return item, first, made.decoded(big)


@pytest.mark.parametrize("backwards", [False, True])
def test_workers_of_one_group_do_not_start_for_those_of_another_that_never_fit(*, backwards: bool) -> None:
    item, first, big = ray_of_two()
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    c.submit([*big, *first] if backwards else [*first, *big]).run().wait(700.0)
    assert c.n_bound() == 0
    assert "role big: " in all_said(c)
    for k in range(2):
        c.node(make_node(f"large-{k}", gpus=16))
    assert c.run().wait(30.0).n_bound() == 6


def test_workers_of_one_group_are_not_counted_for_those_of_another_that_do_not_exist() -> None:
    item, first, big = ray_of_two()
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    assert c.submit(first).run().wait(6.0).n_bound() == 0
    assert "role big: 0 of 2" in all_said(c)
    c.node(make_node("large-0", gpus=16)).node(make_node("large-1", gpus=16))
    assert c.submit(big).run().wait(30.0).n_bound() == 6


def test_an_elastic_cluster_needs_its_head() -> None:
    item = made.ray_cluster("a", workers=4)
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    pods = with_annotations(made.decoded(made.ray_pods("a", workers=4)), {MIN_MEMBERS_KEY: "2"})
    assert c.submit(pods[1:]).run().wait(6.0).n_bound() == 0
    assert c.submit(pods[:1]).run().wait(6.0).n_bound() == 5


def test_a_cluster_whose_pods_are_gangs_of_their_own_needs_no_head() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(made.ray_cluster("a", workers=4))))
    pods = with_annotations(made.decoded(made.ray_pods("a", workers=4)), {MIN_MEMBERS_KEY: "1"})
    assert c.submit(pods[1:3]).run().wait(6.0).n_bound() == 2


def test_an_elastic_replica_needs_its_leader() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(made.leader_worker_set("a", size=4))))
    pods = with_annotations(made.decoded(made.leader_worker_pods("a", size=4)), {MIN_MEMBERS_KEY: "2"})
    assert c.submit(pods[1:]).run().wait(6.0).n_bound() == 0
    assert c.submit(pods[:1]).run().wait(6.0).n_bound() == 4


def two_sets(n_main: int, n_side: int, *, reclaimable: int = 0) -> made.Json:
    item = made.workload("w", asked=n_main, admitted=n_main, reclaimable=reclaimable)
    side = {**item["spec"]["podSets"][0], "name": "side", "count": n_side}
    item["spec"]["podSets"].append(side)
    assigned = item["status"]["admission"]["podSetAssignments"]
    assigned.append({**assigned[0], "name": "side", "count": n_side})
    return item


def test_pod_sets_of_a_workload_are_counted_each() -> None:
    """Surplus pods of one set, as a controller makes them when it replaces, do not count for another."""
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(two_sets(2, 2))))
    main = made.decoded(made.admitted_pods("a", "w", 4))
    side = made.admitted_pods("b", "w", 2)
    for one in side:
        one["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "side"
    assert c.submit(main).run().wait(6.0).n_bound() == 0
    assert c.submit(made.decoded(side)).run().wait(6.0).n_bound() == 6


def test_pods_of_a_workload_that_name_no_pod_set_are_counted_together() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(two_sets(2, 2))))
    pods = made.admitted_pods("a", "w", 4)
    for one in pods:
        del one["metadata"]["labels"]["kueue.x-k8s.io/podset"]
    assert c.submit(made.decoded(pods)).run().wait(6.0).n_bound() == 4


def test_what_has_succeeded_counts_for_its_own_role() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(two_sets(2, 2, reclaimable=1))))
    main = made.decoded(made.admitted_pods("a", "w", 1))
    side = made.admitted_pods("b", "w", 2)
    for one in side:
        one["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "side"
    assert c.submit(made.decoded(side)).run().wait(6.0).n_bound() == 0
    assert c.submit(main).run().wait(6.0).n_bound() == 3


def test_replicated_jobs_of_a_job_set_are_counted_each() -> None:
    c = cluster(nodes=8, settings=ALL).tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    pods = made.decoded(made.job_set_pods("a", ROLES))
    spare = replace(pods[-1], metadata=replace(pods[-1].metadata, name="spare", uid="spare"))
    assert c.submit([*pods[1:], spare]).run().wait(6.0).n_bound() == 0
    assert c.submit(pods[:1]).run().wait(6.0).n_bound() == 5


# -- Kueue --------------------------------------------------------------------------------------------------


def test_gated_pods_are_not_counted_and_the_last_gate_starts_the_gang() -> None:
    c = cluster(nodes=4, settings=ALL)
    gates = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
    c.submit(made.decoded(made.kueue_group_pods("a", 3, gates=gates))).run()
    for k in range(3):
        assert c.n_bound() == 0
        pod = c.pod(f"a-{k}")
        one = pod.spec.scheduling_gates
        assert one is not None
        c.update(pod, spec=replace(pod.spec, scheduling_gates=one[1:])).run()
        assert c.n_bound() == 0
        pod = c.pod(f"a-{k}")
        c.update(pod, spec=replace(pod.spec, scheduling_gates=None)).run()
    assert c.n_bound() == 3


def test_a_workload_that_lost_its_admission_is_waited_for() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.workload("w", asked=2, admitted=None))))
    c.submit(made.decoded(made.admitted_pods("a", "w", 2))).run().wait(6.0)
    assert c.n_bound() == 0
    assert "gang d/w waits for Workload d/w, which is not admitted by Kueue (yet)" in all_said(c)
    c.tell(ev.OwnerPut(made.owner(made.workload("w", asked=2, admitted=2)))).run()
    assert c.n_bound() == 2


def test_what_serves_or_is_elastic_is_no_gang() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.submit(made.decoded(made.kueue_group_pods("a", 1, total=4, serving=True))).run()
    c.tell(ev.OwnerPut(made.owner(made.workload("w", asked=4, admitted=4, elastic=True))))
    c.submit(made.decoded(made.admitted_pods("b", "w", 1))).run()
    assert c.n_bound() == 2


# -- what can never gather ----------------------------------------------------------------------------------


def explicit(pods: list[Pod], n: int) -> list[Pod]:
    named = [
        replace(p, metadata=replace(p.metadata, labels={**(p.metadata.labels or {}), GROUP_LABEL: "g"}))
        for p in pods
    ]
    return with_annotations(named, {MIN_MEMBERS_KEY: str(n)})


def test_an_explicit_gang_over_a_job_set_in_order_gets_the_reason_why_it_never_gathers() -> None:
    item = made.job_set("a", ROLES, startupPolicy={"startupPolicyOrder": "InOrder"})
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(item)))
    c.submit(explicit(made.decoded(made.job_set_pods("a", ROLES))[:1], 4)).run().wait(6.0)
    said = all_said(c)
    assert "waits for members: 1 of 4 exist; JobSet d/a never has all its pods at once" in said
    assert "InOrder" in said
    assert "take startupPolicy out" in said


def test_an_explicit_gang_over_a_leader_that_must_be_ready_is_reported() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.leader_worker_set("a", size=3, policy="LeaderReady"))))
    c.submit(explicit(made.decoded(made.leader_worker_pods("a", size=3))[:1], 3)).run().wait(6.0)
    never = "LeaderWorkerSet d/a never has all its pods at once: spec.startupPolicy is LeaderReady"
    assert never in all_said(c)


def test_an_mpi_job_whose_launcher_waits_for_the_workers_is_reported() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.mpi_job("a", policy="WaitForWorkersReady"))))
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 3}))
    c.submit(made.decoded(made.mpi_workers("a", 2))).run().wait(6.0)
    said = all_said(c)
    assert "MPIJob d/a never has all its pods at once: spec.launcherCreationPolicy" in said
    assert "minAvailable to the number of workers" in said


def test_a_gang_that_is_only_slow_is_not_told_that_it_never_gathers() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.OwnerPut(made.owner(made.mpi_job("a"))))
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 3}))
    c.submit(made.decoded(made.mpi_workers("a", 2))).run().wait(6.0)
    assert "never" not in all_said(c)


# -- namespaces, kinds, configurations, hostile objects -----------------------------------------------------


def namespace(name: str, label: str | None) -> ev.ObjectPut:
    labels = {} if label is None else {"gangsched.io/infer-gangs": label}
    version = str(abs(hash((name, label))) % 10**9)
    return ev.ObjectPut(
        "namespaces",
        Namespace(ObjectMeta(name=name, uid=f"uid-{name}", resource_version=version, labels=labels)),
    )


def test_a_namespace_says_for_itself_what_is_inferred() -> None:
    c = cluster(nodes=4, settings=BY_DEFAULT)
    c.tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    pods = made.decoded(made.job_set_pods("a", ROLES))
    assert c.submit(pods[:2]).run().n_bound() == 0
    c.tell(namespace("other", "none")).run()
    assert c.n_bound() == 0
    c.tell(namespace("d", "none")).run()
    assert c.n_bound() == 2
    c.delete(*[pod.metadata.name for pod in c.pods.values()])
    c.tell(namespace("d", "Job.JobSet"))
    assert c.submit(pods[:3]).run().n_bound() == 0
    c.tell(namespace("d", None))
    assert c.submit(pods[3:]).run().n_bound() == 4


def test_a_kind_that_only_a_namespace_asks_for_is_followed_from_then_on() -> None:
    c = cluster(nodes=4, settings=BY_DEFAULT)
    assert not c.scheduler.newly_watched()
    assert "owners.Job" not in c.scheduler.kinds
    c.tell(namespace("d", "Job"))
    assert c.scheduler.newly_watched() == ("owners.Job",)
    assert not c.scheduler.newly_watched()
    c.submit(made.decoded(made.job_pods("a", 2))).run()
    assert c.n_bound() == 0
    c.submit(make_pod("lone", gpus=1)).run()
    assert c.n_bound() == 1, "others do not wait for it"
    c.tell(ev.KindSynced("owners.Job"), ev.OwnerPut(made.owner(made.job("a", parallelism=2)))).run()
    assert c.n_bound() == 3


def test_a_namespace_that_asks_for_nonsense_is_reported() -> None:
    c = cluster(nodes=4, settings=BY_DEFAULT).tell(namespace("d", "JobSett"))
    [told] = [e for e in c.all(ef.RecordEvent) if e.kind == "Namespace"]
    assert "'JobSett' is not one of LeaderWorkerSet, JobSet" in told.message
    assert "did you mean JobSet?" in told.message


def test_a_kind_that_is_not_served_is_reported_and_waited_for() -> None:
    c = cluster(nodes=4, settings=ALL).tell(ev.KindMissing("owners.JobSet"))
    c.submit(made.decoded(made.job_set_pods("a", ROLES))).run().wait(6.0)
    assert c.n_bound() == 0
    assert "the API server does not serve this kind or does not let the scheduler read it" in all_said(c)
    c.tell(ev.KindSynced("owners.JobSet"), ev.OwnerPut(made.owner(made.job_set("a", ROLES)))).run()
    assert c.n_bound() == 4


def test_an_object_that_cannot_be_read_costs_its_own_gang_alone() -> None:
    c = cluster(nodes=8, settings=ALL)
    c.tell(
        ev.ObjectRefused("JobSet", "d", "a", "uid-a", "Expected int - at $.spec.replicatedJobs[0].replicas")
    )
    c.tell(ev.OwnerPut(made.owner(made.job_set("b", ROLES))))
    c.submit(made.decoded([*made.job_set_pods("a", ROLES), *made.job_set_pods("b", ROLES)])).run()
    assert c.placed("b")
    assert c.untouched("a")
    assert "JobSet d/a: Expected int" in c.said("a-driver-0-0-a0")
    c.tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES)))).run().wait(2.0)
    assert c.placed("a")


def test_what_is_known_of_owners_goes_with_them() -> None:
    c = cluster(nodes=4, settings=ALL)
    for k in range(5):
        item = made.owner(made.job_set(f"a{k}", ROLES))
        c.tell(ev.OwnerPut(item)).submit(made.decoded(made.job_set_pods(f"a{k}", ROLES))).run()
        assert c.n_bound() == 4
        c.delete(*[pod.metadata.name for pod in c.pods.values()])
        c.tell(ev.OwnerGone(item.named, item.uid))
    owners: Any = c.scheduler.owners
    assert [len(one) for one in (owners._known, owners._groups, owners._owner_of)] == [0, 0, 0]


def test_an_owner_that_goes_first_leaves_a_running_gang_as_it_was() -> None:
    item = made.owner(made.job_set("a", ROLES))
    c = (
        cluster(nodes=4, settings=ALL)
        .tell(ev.OwnerPut(item))
        .submit(made.decoded(made.job_set_pods("a", ROLES)))
        .run()
    )
    c.tell(ev.OwnerGone(OwnerName("JobSet", "d", "a"), item.uid)).run()
    assert c.n_bound() == 4
    assert c.group("a").definition is not None
    c.five_more_turns_change_nothing()


def test_another_configuration_takes_effect_on_what_waits() -> None:
    c = cluster(nodes=4, settings=ALL)
    c.tell(ev.OwnerPut(made.owner(made.job_set("a", ROLES))))
    c.submit(made.decoded(made.job_set_pods("a", ROLES))[:2]).run()
    assert c.n_bound() == 0
    reconfigured(c, dict(c.profiles()), Settings())
    assert c.n_bound() == 2


def test_pods_without_marks_are_what_they_were() -> None:
    c = cluster(nodes=2, settings=ALL).submit(make_pod("a", gpus=8)).run()
    assert c.n_bound() == 1
