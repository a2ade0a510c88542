"""Why a gang does not run: each place where one can rest has an answer that names what it waits for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import Explanation, explain
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.kept.kept import Kept
from gangsched.lab.sim.objects import RACK, make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import (
    Affinity,
    ClaimVolume,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
    Pod,
    SchedulingGate,
    SelectorRequirement,
    Taint,
    Volume,
)
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.test_start_together_in_words import core as core_gang
from tests.core.test_start_together_in_words import coscheduling as coscheduling_gang
from tests.core.test_start_together_in_words import with_two_of_a_name
from tests.support.scenario import Cluster, cluster, gang, with_annotations

GPU = "nvidia.com/gpu"


def told(c: Cluster, name: str) -> Explanation:
    """The explanation, which changes nothing."""
    before = [(g.state, g.attempts, g.since_s) for g in c.groups()]
    found = explain(c.scheduler, c.group(name), c.now_s)
    assert not c.scheduler.advance(c.now_s)
    assert [(g.state, g.attempts, g.since_s) for g in c.groups()] == before
    return found


def selecting(pods: list[Pod], **labels: str) -> list[Pod]:
    return [replace(pod, spec=replace(pod.spec, node_selector=labels)) for pod in pods]


def owned(pods: list[Pod]) -> list[Pod]:
    job = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="u", controller=True)
    return [replace(pod, metadata=replace(pod.metadata, owner_references=[job])) for pod in pods]


def reserving(gpus: int = 8, nodes: int = 2) -> Cluster:
    """d/evaluate has reserved half of the nodes and waits in Permit for a member more."""
    c = cluster(nodes=nodes, gpus=gpus)
    total = {"gangsched.io/total-members": "9"}
    c.submit(with_annotations(gang("evaluate", pods=nodes // 2, gpus=gpus), total)).run()
    assert c.state("evaluate") == "waiting"
    return c


def test_no_room_says_how_many_fit_what_is_most_free_and_what_holds_the_rest() -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("old", pods=1, gpus=2)).run()
    c.submit(gang("train", pods=2, gpus=8)).run().wait(4.0)
    found = told(c, "train")
    assert found.answer.startswith(
        f"1 of 2 members fit. Member train-1 needs 8 {GPU} on one node; after its other members are placed,"
        " the suitable node with most left has 6 free (n0)."
    )
    assert (found.position, found.n_waiting, found.state) == (1, 1, "unschedulable")
    [nearest, own] = found.near
    assert (nearest.node, nearest.asked, nearest.free) == ("n0", "8", "6")
    assert nearest.held_by == ("d/old (2 bound)",)
    assert (own.node, own.free, own.held_by) == ("n1", "0", ("1 of its own other members",))
    assert [(one.plugin, one.nodes) for one in found.reasons] == [("NodeResourcesFit", 2)]
    assert found.cures == (
        f"Make room for 1 more of its members (each member needs 8 {GPU} on one node): end what runs there,"
        " add 1 such node, or ask for less.",
    )
    assert found.then.startswith("It is tried again when something changes that may help, or in ")
    assert "Of these, 1 had room until its other members were placed there." in c.said("train-0")


def test_a_cluster_without_nodes_is_reported_as_such() -> None:
    """Who asked was to compare nodeSelectors with nodes, or to correct the name of the resource."""
    c = cluster(nodes=0).submit(gang("train", pods=2, gpus=8), gang("plain", pods=1, gpus=0)).run()
    for name, n in (("train", "2 members fit"), ("plain", "1 member fits")):
        found = told(c, name)
        assert found.answer.startswith(f"0 of {n}. Member {name}-0 has no place: the cluster has no node.")
        assert found.cures == ("Add nodes.",)


def test_what_is_only_reserved_is_named_in_the_condition_as_well() -> None:
    c = reserving().submit(gang("train", pods=2, gpus=8)).run()
    reserved = f"8 {GPU} are reserved by d/evaluate."
    assert c.said("train-0").endswith(reserved)
    found = told(c, "train")
    assert found.answer.endswith(reserved)
    assert "d/evaluate (8 reserved)" in [who for near in found.near for who in near.held_by]
    waiting = told(c, "evaluate")
    assert waiting.answer == (
        "Room for 1 pod of it is reserved on n0, and Permit waits: 1 of 9 members are here (GangScheduling)."
    )
    assert waiting.cures[0].endswith("lower the number that is required (gangsched.io/total-members).")
    assert waiting.next_s is not None


def test_a_gang_larger_than_the_cluster_is_reported() -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("train", pods=4, gpus=8)).run()
    small = "Too few nodes suit it: with nothing else running, 2 of 4 would fit."
    assert c.said("train-0").endswith(small)
    assert told(c, "train").cures == (
        "Waiting does not help: with nothing else running it would not fit either. Add up to 2 such nodes"
        f" (each member needs 8 {GPU} on one node), or ask for less.",
    )


def test_members_that_run_say_nothing_about_how_many_more_empty_nodes_would_take() -> None:
    """They may be smaller than the new one, or run on a node that takes no new one."""
    c = cluster(nodes=2).submit(gang("train", pods=3, gpus=1)).run().submit(make_pod("other", gpus=8)).run()
    c.submit(gang("train", pods=1, gpus=8, min_members=3, first=3)).run()
    assert c.said("train-3").endswith("2 Insufficient nvidia.com/gpu.")
    assert told(c, "train").cures[0].startswith("Make room for 1 more of its members")
    assert c.delete("other").run().wait(2.0).placed("train", on=2)

    c = cluster(nodes=2).submit(gang("train", pods=1, gpus=8)).run().submit(make_pod("other", gpus=8)).run()
    node = c.nodes[c.pod("train-0").spec.node_name]
    c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    c.submit(gang("train", pods=1, gpus=8, min_members=1, first=1)).run()
    assert c.said("train-1").endswith("1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.")


def test_a_new_member_that_no_node_could_take_is_told_so_though_others_run() -> None:
    c = cluster(nodes=2).submit(gang("train", pods=3, gpus=1)).run()
    c.submit(gang("train", pods=1, gpus=9, min_members=3, first=3)).run()
    assert c.said("train-3").endswith(
        "No node that suits it is large enough, even with nothing else running."
    )
    assert told(c, "train").cures[0].startswith("Waiting does not help")


def test_a_label_that_no_node_has_is_named_with_what_may_be_meant() -> None:
    c = Cluster()
    node = make_node("n0")
    labels = {"gpu-model": "hopper", "zone": "a"}
    tainted = replace(node.spec, taints=[Taint("gpu", "yes", "NoSchedule")])
    c.node(replace(node, metadata=replace(node.metadata, labels=labels), spec=tainted))
    c.submit(selecting(gang("value", pods=1), **{"gpu-model": "hoper"})).run()
    assert c.said("value-0").endswith("nodeSelector: no node has gpu-model=hoper; did you mean hopper?")
    c.submit(selecting(gang("key", pods=1), **{"gpu-modle": "hopper"})).run()
    assert c.said("key-0").endswith("nodeSelector: no node has the label gpu-modle; did you mean gpu-model?")
    assert "did you mean hopper?" in told(c, "value").answer


def test_a_taint_is_named_with_its_key() -> None:
    node = make_node("n0")
    c = Cluster().node(replace(node, spec=replace(node.spec, taints=[Taint("gpu", "a100", "NoSchedule")])))
    c.submit(gang("train", pods=1)).run()
    assert "1 node(s) had untolerated taint(s) {gpu=a100:NoSchedule}" in c.said("train-0")


def test_a_required_node_affinity_that_no_node_can_match_is_named() -> None:
    c = Cluster()
    node = make_node("n0")
    c.node(replace(node, metadata=replace(node.metadata, labels={"gpu-model": "hopper"})))

    def requiring(name: str, *values: str) -> list[Pod]:
        terms = [
            NodeSelectorTerm(match_expressions=[SelectorRequirement("gpu-model", "In", [one])])
            for one in values
        ]
        required = NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector(terms))
        affinity = Affinity(node_affinity=required)
        return [replace(p, spec=replace(p.spec, affinity=affinity)) for p in gang(name, pods=1, gpus=9)]

    c.submit(requiring("train", "hoper", "hopr")).run()
    assert c.said("train-0").endswith("nodeAffinity: no node has gpu-model=hoper; did you mean hopper?")
    c.submit(requiring("either", "hoper", "hopper")).run()
    assert "nodeAffinity" not in c.said("either-0").partition("available")[2]


def test_unhealthy_devices_are_named_with_their_node() -> None:
    c = Cluster()
    sick = make_node("n0", gpus=2)
    text = (sick.metadata.annotations or {})["gangsched.io/devices"].replace("Healthy", "Unhealthy", 1)
    c.node(replace(sick, metadata=replace(sick.metadata, annotations={"gangsched.io/devices": text})))
    c.submit(gang("train", pods=1, gpus=2)).run()
    assert c.said("train-0").endswith(" on n0."), c.said("train-0")
    assert "Unhealthy: " in c.said("train-0")


def test_members_that_are_missing_are_owed_by_their_controller() -> None:
    c = cluster().submit(owned(gang("train", pods=3, min_members=8))).run()
    found = told(c, "train")
    assert found.answer == "3 of 8 members exist, 5 are missing."
    assert found.cures[0].startswith(
        "Job train creates its pods: see whether it could (kubectl -n d describe job"
    )
    assert "ResourceQuota" in found.cures[0]
    c.submit(gang("lone", pods=1, min_members=2)).run()
    assert told(c, "lone").cures[0].startswith("No controller owns its pods")
    assert told(c, "lone").cures[0].endswith("lower the number that is required (gangsched.io/min-members).")


def refused(c: Cluster, message: str) -> None:
    """The server's answer to the last question about a controller's events."""
    asked = c.all(ef.ReadRefusals)[-1]
    c.tell(ev.RefusalsRead(asked.group, asked.kind, asked.name, message))


QUOTA = 'Error creating: pods "train-3" is forbidden: exceeded quota: gpus, used: requests.nvidia.com/gpu=16'


def test_members_that_were_refused_say_by_whom() -> None:
    c = cluster().submit(owned(gang("train", pods=3, min_members=8))).run()
    assert not c.all(ef.ReadRefusals)
    c.wait(6.0)
    [asked] = c.all(ef.ReadRefusals)
    assert (asked.uid, asked.kind, asked.namespace, asked.name) == ("u", "Job", "d", "train")
    assert c.said("train-0").endswith("3 of 8 exist")
    refused(c, QUOTA)
    assert c.said("train-0").endswith(f"3 of 8 exist; Job train could not create more: {QUOTA}")
    found = told(c, "train")
    assert found.answer == f"3 of 8 members exist, 5 are missing. Job train could not create more: {QUOTA}."
    assert found.cures[0].startswith("Raise the ResourceQuota that is named")
    refused(c, "")
    assert c.said("train-0").endswith("3 of 8 exist")


def test_refusals_are_read_again_ever_more_rarely_while_the_gang_gathers() -> None:
    c = cluster().submit(owned(gang("train", pods=3, min_members=5))).run()
    n_by_time = []
    for _ in range(4):
        c.wait(60.0)
        n_by_time.append(len(c.all(ef.ReadRefusals)))
        c.submit(owned(gang("train", pods=1, min_members=5, first=9))).delete("train-9")  # news of members
    assert n_by_time == [2, 3, 4, 4]
    refused(c, QUOTA)
    c.submit(owned(gang("train", pods=2, min_members=5, first=3))).run()
    assert c.placed("train")
    n = len(c.all(ef.ReadRefusals))
    c.wait(2000.0)
    assert len(c.all(ef.ReadRefusals)) == n
    refused(c, QUOTA)  # it comes late
    assert told(c, "train").answer.startswith("It has started")


def test_nobody_is_asked_about_where_no_controller_owes_a_member() -> None:
    c = cluster().submit(gang("train", pods=1, min_members=2)).run().wait(100.0)
    assert not c.all(ef.ReadRefusals)


def test_holders_that_say_when_they_end_are_named_with_it() -> None:
    began = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings()))
    for name, walltime in (("old", "3h10m"), ("short", "30m"), ("endless", "")):
        stated = {"gangsched.io/walltime": walltime} if walltime else {}
        c.submit(with_annotations(gang(name, pods=1, gpus=4), stated)).run()
        pod = c.pod(f"{name}-0")
        c.update(pod, status=replace(pod.status, phase="Running", start_time=began))
    c.submit(gang("train", pods=2, gpus=8)).run()
    ends = (
        f"d/short holds 4 {GPU} until about 2026-11-23 12:30 UTC (by its walltime);"
        " d/old 4 until about 2026-11-23 15:10 UTC (by its walltime)."
    )
    assert c.said("train-0").endswith(ends)
    assert told(c, "train").answer.endswith(ends)


def test_without_queueing_ends_are_shown_only_by_explain() -> None:
    c = cluster(nodes=1, gpus=8)
    c.submit(with_annotations(gang("old", pods=1, gpus=8), {"gangsched.io/walltime": "1h"})).run()
    pod = c.pod("old-0")
    c.update(pod, status=replace(pod.status, start_time=datetime(2026, 11, 23, 12, 0, tzinfo=UTC)))
    c.submit(gang("train", pods=1, gpus=8)).run()
    assert c.said("train-0").endswith(f"Insufficient {GPU}.")
    assert f"d/old holds 8 {GPU} until about 2026-11-23 13:00 UTC" in told(c, "train").answer


def test_what_is_reserved_is_reported_with_the_time_at_which_it_is_given_back() -> None:
    c = reserving().submit(gang("train", pods=2, gpus=8)).run()
    deadline_s = c.group("evaluate").deadline_s
    at_noon_s = datetime(2026, 11, 23, 12, 0, tzinfo=UTC).timestamp()
    found = explain(c.scheduler, c.group("train"), c.now_s, ago_s=at_noon_s - deadline_s)
    assert found.answer.endswith(f"8 {GPU} are reserved by d/evaluate until 12:00:00 UTC.")


def test_a_refused_eviction_is_reported_until_the_pod_goes_after_all() -> None:
    c = cluster(nodes=1)
    c.evictions = "429"
    c.submit(make_pod("kept", gpus=8)).run()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    assert "the API server refuses 1 of the evictions" in told(c, "high").answer
    c.evictions = "slow"
    c.wait(4.0)
    assert c.pod("kept").metadata.deletion_timestamp is not None
    found = told(c, "high")
    assert found.answer == "Room is reserved for it, and it waits for 1 pod to go: d/kept."
    assert found.cures[0].startswith("See why it takes long")


def test_of_a_group_that_waits_for_victims_only_members_with_a_place_have_reserved_something() -> None:
    """Three more of it are pending, which come where there is room later."""
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(make_pod("slow", gpus=8)).run()
    c.submit(gang("high", pods=4, gpus=8, priority=10, min_members=1)).run()
    assert c.state("high") == "waiting"
    c.submit(gang("next", pods=1, gpus=8, priority=5)).run()
    assert f"8 {GPU} are reserved by d/high." in told(c, "next").answer
    assert f" 8 {GPU} are reserved by d/high." in c.said("next-0")


def test_what_is_kept_for_other_groups_is_not_called_its_own_other_members() -> None:
    """Pods that ask for the same share a template, whichever group they are of."""
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(make_pod("slow", gpus=8)).run()
    c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
    c.submit(gang("next", pods=1, gpus=8, priority=5)).run()
    found = told(c, "next")
    assert "; the suitable node with most left has 0 free (n0)" in found.answer
    assert "other members" not in found.answer
    assert [near.held_by for near in found.near] == [("d/slow (8 bound)",)]


def test_a_reservation_that_waits_for_a_grace_period_of_years_is_named_without_a_time_of_day() -> None:
    for grace_s in (10**6, 10**15):
        c = cluster(nodes=1)
        c.evictions = "slow"
        slow = make_pod("slow", gpus=8)
        c.submit(replace(slow, spec=replace(slow.spec, termination_grace_period_seconds=grace_s))).run()
        c.submit(gang("high", pods=1, gpus=8, priority=10)).run()
        c.submit(gang("next", pods=1, gpus=8, priority=5)).run()
        assert (
            f"8 {GPU} are reserved by d/high."
            in explain(c.scheduler, c.group("next"), c.now_s, ago_s=0.0).answer
        )


def test_a_group_whose_object_is_missing() -> None:
    pod = make_pod("train-0", labels={"scheduling.x-k8s.io/pod-group": "train"})
    c = cluster().submit([pod]).run()
    assert "no such object exists in d" in told(c, "train").answer


def test_gates_are_named() -> None:
    pods = gang("train", pods=2)
    gates = [SchedulingGate("kueue.x-k8s.io/admission")]
    c = cluster().submit([replace(pod, spec=replace(pod.spec, scheduling_gates=gates)) for pod in pods]).run()
    found = told(c, "train")
    assert found.answer == "2 pods of it wait for scheduling gates: kueue.x-k8s.io/admission."


def test_a_single_pod_node_or_member_is_in_the_singular() -> None:
    pods = gang("gated", pods=1)
    gates = [SchedulingGate("kueue.x-k8s.io/admission")]
    gated = [replace(pod, spec=replace(pod.spec, scheduling_gates=gates)) for pod in pods]
    c = cluster(nodes=1, gpus=8).submit(gated).submit(gang("train", pods=1)).run()
    assert told(c, "gated").answer == "1 pod of it waits for scheduling gates: kueue.x-k8s.io/admission."
    assert "gang d/train: 1 pod bound to 1 node" in [event.message for event in c.all(ef.RecordEvent)]
    c.submit(selecting(gang("none", pods=1), gpu="h100")).run()
    assert told(c, "none").answer.startswith("0 of 1 member fits. Member none-0 cannot use the only node.")


def test_a_contradiction_is_reported_as_such() -> None:
    pods = gang("train", pods=1, min_members=2) + gang("train", pods=1, min_members=3, first=1)
    c = cluster().submit(pods).run()
    found = told(c, "train")
    assert found.answer.startswith("It cannot be scheduled as it is written: ")
    assert found.cures[0].endswith("if these are two gangs, give one of them another name.")
    assert found.needed is None


def test_a_walltime_that_cannot_be_read_is_reported_also_where_nothing_waits_for_it() -> None:
    c = cluster().submit(with_annotations(gang("train", pods=2), {WALLTIME_KEY: "4 hours"})).run()
    assert c.placed("train")
    assert told(c, "train").cures == (
        "Correct its walltime, which counts as not stated: pod train-0: metadata.annotations:"
        " gangsched.io/walltime: '4 hours' is not a duration; examples: 90s, 5m, 1h30m.",
    )


def test_a_gang_that_waits_for_a_misspelt_one_is_told_which_may_be_meant() -> None:
    c = cluster().submit(gang("other", pods=1)).run()
    together = {"gangsched.io/groups": '["d/othr"]'}
    found = told(c.submit(with_annotations(gang("train", pods=2), together)).run(), "train")
    assert found.cures == (
        "Create d/othr, or correct gangsched.io/groups so that each lists the others; did you mean d/other?",
    )


def test_a_gang_that_waits_for_one_of_two_of_the_same_name_is_told_so() -> None:
    c = cluster(nodes=1)
    c.submit(core_gang(c, "b", "train", prefix="core-b"), coscheduling_gang(c, "b", "train", prefix="co-b"))
    together = {"gangsched.io/groups": '["d/b"]'}
    found = told(c.submit(with_annotations(gang("train", pods=2), together)).run(), "train")
    assert found.cures == (
        "d/b is the name of several gangs (core, coscheduling), and this one is stated as gangsched: rename"
        " all but the one that is meant.",
    )


def test_device_constraints_that_cannot_be_read_are_reported_with_a_cure() -> None:
    wrong = {
        '{"nvidia.com/gpus": {"sameNUMA": true}}': "no container asks for nvidia.com/gpus; did you mean"
        " nvidia.com/gpu?",
        '{"nvidia.com/gpu": {"sameNuma": true}}': "nvidia.com/gpu: Object contains unknown field `sameNuma`;"
        " what can be asked: sameNUMA, linked, model, minMemory.",
    }
    for text, said in wrong.items():
        own = {"gangsched.io/device-constraints": text}
        found = told(cluster().submit(with_annotations(gang("train", pods=2), own)).run(), "train")
        assert found.answer == (
            "It cannot be scheduled as it is written: gang d/train: member train-0:"
            f" metadata.annotations: gangsched.io/device-constraints: {said}"
        )
        assert found.cures == ("Correct what the answer names in the pods' template.",)


def test_a_claim_that_does_not_exist_is_reported_with_a_cure() -> None:
    volume = Volume(name="data", persistent_volume_claim=ClaimVolume(claim_name="daat"))
    pod = make_pod("train")
    found = told(cluster().submit(replace(pod, spec=replace(pod.spec, volumes=[volume]))).run(), "train")
    assert found.answer == 'persistentvolumeclaim "daat" not found.'
    assert found.cures[0].startswith("Create what is named, in the pods' namespace, or correct its name")


def test_a_gang_that_waits_for_its_victims() -> None:
    c = cluster(nodes=1, gpus=8)
    c.evictions = "slow"
    c.submit(gang("low", pods=1, gpus=8)).run().submit(gang("high", pods=1, gpus=8, priority=10)).run()
    found = told(c, "high")
    assert found.answer == "Room is reserved for it, and it waits for 1 pod to go: d/low-0."
    c.submit(gang("later", pods=1, gpus=8, priority=5)).run()
    assert "reserved by d/high" in told(c, "later").answer + c.said("later-0")


def test_binds_on_their_way_and_without_a_clear_answer() -> None:
    c = cluster()
    c.answer = lambda bind: "hold"
    c.submit(gang("train", pods=2)).run()
    assert told(c, "train").answer == "It is being bound: 0 of 2 are bound; of the others, 2 are sent."
    c = cluster()
    c.answer = lambda bind: "unknown"
    c.submit(gang("train", pods=2)).run()
    assert "2 had no clear answer and are read back" in told(c, "train").answer


def test_a_gang_bound_in_part() -> None:
    c = cluster(nodes=2, gpus=8)
    c.answer = lambda bind: "ok" if bind.name == "train-0" else "409"
    c.submit(gang("train", pods=2, gpus=8)).run()
    found = told(c, "train")
    assert found.bound == 1
    assert found.answer.startswith("1 of 2 members run"), found.answer


def test_backoff_says_until_when() -> None:
    c = reserving()
    c.tell(ev.GroupRejected(c.group("evaluate").key, "admin", "not now"))
    found = told(c, "evaluate")
    assert found.state == "backoff"
    assert found.then == "It is tried again in 1 s (failure 1)."


def test_a_gang_that_has_started_reports_that() -> None:
    c = cluster().submit(gang("train", pods=2)).run()
    found = told(c, "train")
    assert (found.answer, found.position) == ("It has started: 2 of 2 members are bound.", 0)


def test_a_bad_text_is_escaped_and_lists_are_bounded() -> None:
    bad: dict[str, Any] = {"gangsched.io/min-members": "\x1b[31m<b>" + "x" * 5000}
    c = cluster().submit(with_annotations(gang("train", pods=1), bad)).run()
    found = told(c, "train")
    assert found.answer.isprintable()
    assert len(found.answer) <= 1024
    c = cluster(nodes=30, gpus=8).submit(gang("large", pods=31, gpus=8)).run()
    assert len(told(c, "large").near) == 5


def test_nodes_that_are_equally_near_are_in_the_order_of_their_names() -> None:
    c = Cluster()
    for name in ("n7", "n2", "n9", "n1", "n4", "n3", "n8"):
        c.node(make_node(name, gpus=8 if name == "n9" else 4))
    c.submit(gang("large", pods=2, gpus=8)).run()
    found = told(c, "large")
    assert [near.node for near in found.near] == ["n1", "n2", "n3", "n4", "n7"]
    assert "has 4 free (n1)" in found.answer


def test_a_rack_constraint_names_the_rack() -> None:
    c = cluster(nodes=4, racks=2)
    spec = {"gangsched.io/topology": f"required: {RACK}"}
    c.submit(with_annotations(gang("train", pods=3, gpus=8), spec)).run()
    assert f"no {RACK} has room for 3 members: r0 could take 2, r1 could take 2. In r0: " in c.said("train-0")
    assert "node(s) were outside of r0" in [one.reason for one in told(c, "train").reasons]


def test_it_names_the_gangs_that_room_is_kept_for_and_what_may_fill_it() -> None:
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(with_annotations([make_pod("holds", gpus=8)], {WALLTIME_KEY: "600s"})).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    c.submit(with_annotations([make_pod("before", gpus=8)], {WALLTIME_KEY: "10s"})).run()
    c.delete("before").run()
    c.submit(with_annotations([make_pod("passes", gpus=8)], {WALLTIME_KEY: "2h"})).run().wait(5.0)
    found = explain(c.scheduler, c.group("passes"), c.now_s)
    assert "8 nvidia.com/gpu are kept for d/large, which is promised to start by 2026-01-01 00:11 UTC." in (
        found.answer
    )
    assert found.cures[0].startswith("State a walltime (the annotation gangsched.io/walltime)")
    assert "are kept for d/large" in c.said("passes")
    found = explain(c.scheduler, c.group("large"), c.now_s)
    assert found.answer.startswith(
        "It starts by 2026-01-01 00:11 UTC: room is kept for it on 2 nodes."
        " That is on n0, n1; first 1 pod there ends: d/holds. "
    )


def test_a_gang_that_would_fit_is_told_which_of_its_set_is_short_of_members() -> None:
    """The last attempt failed for lack of room for the other group, which has lost a member since."""
    c = cluster(nodes=1)
    lists = {"gangsched.io/groups": '["d/one", "d/two"]'}
    c.submit(with_annotations(gang("one", pods=2, gpus=2), lists))
    c.submit(with_annotations(gang("two", pods=2, gpus=4), lists)).run()
    assert c.state("one") == c.state("two") == "unschedulable"
    found = told(c.delete("two-1").run(), "one")
    assert found.answer == (
        "It starts together with groups that are not all there: d/two (1 of 2 members exist). There is room"
        " for it now."
    )
    assert found.cures == (
        "See what d/two waits for: gangsched explain d/two; or take it out of gangsched.io/groups.",
    )


def test_a_gang_of_a_chain_is_told_what_the_group_next_to_it_waits_for() -> None:
    """Its set ends with a group that it does not list itself."""
    c = cluster(nodes=1)
    for name, near, pods in (("one", ("two",), 2), ("two", ("one", "three"), 2), ("three", ("two",), 2)):
        listed = {GROUPS_KEY: json.dumps([f"d/{other}" for other in (name, *near)])}
        c.submit(with_annotations(gang(name, pods=pods, gpus=2), listed))
    assert c.run().state("one") == "unschedulable"
    found = told(c.delete("three-1").run(), "one")
    assert "not all there: d/three (1 of 2 members exist)." in found.answer
    assert "See what d/three waits for: gangsched explain d/three; or take" in found.cures[0]
    found = told(c.delete("three-0").run(), "one")
    assert "not all there: d/three (does not exist, or does not list it)." in found.answer
    assert found.cures[0] == "Create d/three; or take it out of gangsched.io/groups."


def test_a_set_in_which_two_have_one_name_is_told_what_to_correct() -> None:
    c = cluster(nodes=2, settings=Settings(permit_wait_s=5.0))
    for pods in with_two_of_a_name(c):
        c.submit(pods)
    found = told(c.run().wait(40.0), "b")
    assert found.answer.endswith("gangsched.io/groups cannot tell them apart: rename one of them.")
    assert found.cures == ("Correct what the answer names: a name, or the lists in gangsched.io/groups.",)


def test_a_gang_that_names_one_which_does_not_name_it_is_told_where_to_add_it() -> None:
    c = cluster().submit(gang("other", pods=2)).run()
    found = told(
        c.submit(with_annotations(gang("train", pods=2), {GROUPS_KEY: '["d/other"]'})).run(), "train"
    )
    assert found.cures == (
        "d/other exists, and does not list d/train: add it to the gangsched.io/groups of d/other.",
    )


def test_a_plugin_that_fails_while_it_is_explained_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims ask Admit what the group's queue may have, and a plugin of outside may raise anything."""

    def fails(self: Kept, unit: object, short: object) -> list[str]:
        raise PluginError("Quota", "Admit", "ValueError: no such project")

    c = cluster(nodes=1)
    c.submit(make_pod("fits", gpus=8)).run().submit(make_pod("waits", gpus=8, preempts=False)).run()
    monkeypatch.setattr(Kept, "describe", fails)
    assert told(c, "waits").answer == "plugin Quota failed in Admit: ValueError: no such project."


def test_nodes_to_add_are_counted_for_now_and_for_when_the_others_have_ended() -> None:
    c = cluster(nodes=2)
    c.submit(make_pod("runs", gpus=8)).run().submit(gang("wide", pods=3, gpus=8)).run()
    assert told(c, "wide").cures == (
        "Waiting does not help: with nothing else running it would not fit either. Add 1 such node"
        f" (each member needs 8 {GPU} on one node) and wait for room on the others, add up to 2 such nodes to"
        " start at once, or ask for less.",
    )


def test_a_node_that_has_less_than_nothing_free_is_named_all_the_same() -> None:
    c = cluster(nodes=1, listed=False)
    c.submit(make_pod("runs", gpus=8)).run()
    allocatable = {**(c.nodes["n0"].status.allocatable or {}), GPU: 4}
    c.node(replace(c.nodes["n0"], status=replace(c.nodes["n0"].status, allocatable=allocatable)))
    c.submit(make_pod("waits", gpus=2)).run()
    assert told(c, "waits").answer == (
        "Pod waits needs 2 nvidia.com/gpu on one node; the suitable node with most left has 0 free (n0)."
    )


def test_a_pod_with_terms_about_others_reports_that_room_alone_may_not_suffice() -> None:
    c = cluster(nodes=1)
    c.submit(make_pod("runs", gpus=8)).run()
    port = make_pod("port", gpus=2)
    [main] = port.spec.containers
    ports = [ContainerPort(container_port=80, host_port=80)]
    c.submit(replace(port, spec=replace(port.spec, containers=[replace(main, ports=ports)]))).run()
    assert "on one node, where its affinity, spread and host ports allow it" in told(c, "port").cures[0]
