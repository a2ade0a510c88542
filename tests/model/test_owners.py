"""What is read of controllers' objects and of the marks on their pods, and what a hostile one costs."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from gangsched.config.documents.ours import OurDocument
from gangsched.kube.watch.decode import followed
from gangsched.kube.watch.watch_state import WatchState
from gangsched.model import events as ev
from gangsched.model.owners import (
    DEFAULT_INFERRED,
    INFERRED,
    ORDERED,
    OWNER_KINDS,
    Start,
    claim_of,
    kinds_read,
    owners_of,
)
from gangsched.model.owners.owner import Owner, Role
from gangsched.model.pod_group import MAX_MEMBERS
from tests import controllers as made

ROLES = {"driver": (1, 1), "workers": (2, 4)}


def roles(owner: Owner) -> dict[str, int]:
    return {role.name: role.count for role in owner.roles}


def test_the_defaults_of_the_configuration_are_those_of_the_table() -> None:
    assert set(OurDocument().infer_gangs) == set(DEFAULT_INFERRED)
    assert set(ORDERED) == set(INFERRED)
    assert {one.owner_kind for one in INFERRED.values()} | {"MPIJob"} == set(OWNER_KINDS)


def test_jobs_are_read_only_where_jobs_are_inferred() -> None:
    assert "owners.Job" not in kinds_read(DEFAULT_INFERRED)
    assert "owners.Job" in kinds_read(("Job",))
    assert kinds_read(()) == ()


def test_a_job_set_has_replicas_times_what_runs_at_a_time() -> None:
    item = made.job_set("a", ROLES)
    item["spec"]["replicatedJobs"][1]["template"]["spec"]["completions"] = 3
    assert roles(made.owner(item)) == {"driver": 1, "workers": 6}
    del item["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"]
    del item["spec"]["replicatedJobs"][1]["replicas"]
    assert roles(made.owner(item)) == {"driver": 1, "workers": 1}


def test_exclusive_topology_by_node_labels_is_no_hindrance() -> None:
    marks = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    assert made.owner(made.job_set("a", ROLES, annotations=marks)).start is Start.NO_GANG
    by_label = {**marks, "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    assert made.owner(made.job_set("a", ROLES, annotations=by_label)).start is Start.AT_ONCE
    item = made.job_set("a", ROLES)
    item["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"annotations": marks}
    assert made.owner(item).start is Start.NO_GANG


@pytest.mark.parametrize(
    ("bounds", "n"),
    [
        ({"replicas": 3, "maxReplicas": 2}, 2),
        ({"replicas": 3, "minReplicas": 4}, 4),
        ({"replicas": None, "minReplicas": 1}, 1),
        ({"replicas": 3, "maxReplicas": 2_147_483_647}, 3),
        ({"replicas": 3, "maxReplicas": None}, 3),
        ({"replicas": 3, "maxReplicas": -1}, 0),
    ],
)
def test_a_ray_cluster_has_as_many_workers_as_kuberay_makes(bounds: dict[str, Any], n: int) -> None:
    cluster = made.ray_cluster("a", workers=3)
    cluster["spec"]["workerGroupSpecs"][0] |= bounds
    assert roles(made.owner(cluster)) == {"headgroup": 1, "gpus": n}


def test_a_ray_cluster_has_its_replicas_or_under_the_autoscaler_its_least() -> None:
    assert roles(made.owner(made.ray_cluster("a", workers=3, hosts=2))) == {"headgroup": 1, "gpus": 6}
    scales = made.ray_cluster("a", workers=3, min_workers=1, autoscaling=True)
    assert roles(made.owner(scales)) == {"headgroup": 1, "gpus": 1}
    scales["spec"]["workerGroupSpecs"][0]["suspend"] = True
    assert roles(made.owner(scales)) == {"headgroup": 1, "gpus": 0}


def test_a_workload_counts_as_admitted_or_if_unknown_as_requested() -> None:
    item = made.workload("a", asked=5, admitted=4)
    assert roles(made.owner(item)) == {"main": 4}
    del item["status"]["admission"]["podSetAssignments"][0]["count"]
    assert roles(made.owner(item)) == {"main": 5}
    assert made.owner(made.workload("a", asked=5, admitted=None)).waits == "is not admitted by Kueue (yet)"


def test_pods_of_other_schedulers_are_left_out_where_the_templates_tell() -> None:
    both = Owner(made.owner(made.job_set("a", ROLES)).named, "", (Role("a", 2, "x"), Role("b", 3, "")))
    assert both.n_pods("x") == 2
    assert both.n_pods("default-scheduler") == 3
    # Set on the pods by somebody else: no template names it.
    assert both.n_pods("y") == 3
    assert both.n_pods("x", "b") == 0


def test_a_controller_that_knows_more_of_the_order_goes_first() -> None:
    """A JobSet that Kueue admitted is the JobSet's gang; a Job that it admitted is the Workload's."""
    marks = {"kueue.x-k8s.io/workload": "w"}
    [pod, *_] = made.decoded(made.job_set_pods("a", ROLES))
    pod.metadata.annotations = {**(pod.metadata.annotations or {}), **marks}
    claim = claim_of(pod, ORDERED)
    assert claim is not None
    assert claim.dialect == "jobset"
    [pod, *_] = made.decoded(made.job_pods("a", 2, annotations=marks))
    claim = claim_of(pod, ORDERED)
    assert claim is not None
    assert (claim.dialect, claim.group) == ("kueue-workload", "w")


def test_the_submitter_of_a_ray_job_and_a_lone_pod_belong_to_no_gang() -> None:
    for pod in made.decoded([made.ray_submitter("a"), made.pod("b"), made.pod("c", labels={"app": "x"})]):
        assert claim_of(pod, ORDERED) is None
        assert owners_of(pod) == ()


# -- hostile objects ----------------------------------------------------------------------------------------

_BAD: tuple[Any, ...] = (
    *(-1, 2**31, 2**63, 2**70, 1.5, "many", True, [], {}, "9" * 400),
    *([[]] * 3, {"a": {"b": 1}}, "\x00\u202e", MAX_MEMBERS + 1),
)


def objects() -> list[made.Json]:
    return [
        made.job("a", parallelism=2),
        made.job_set("a", ROLES, startupPolicy={"startupPolicyOrder": "InOrder"}),
        made.leader_worker_set("a", size=2),
        made.ray_cluster("a", workers=2),
        made.workload("a", asked=2, admitted=2),
        made.mpi_job("a"),
    ]


def spoilt(value: Any, rng: Random, *, depth: int = 0) -> Any:
    """Something in it is another thing."""
    if depth > 1 and rng.random() < 0.2:
        return rng.choice(_BAD)
    if isinstance(value, dict) and value:
        key = rng.choice(sorted(value))
        return {**value, key: spoilt(value[key], rng, depth=depth + 1)}
    if isinstance(value, list) and value:
        at = rng.randrange(len(value))
        return [*value[:at], spoilt(value[at], rng, depth=depth + 1), *value[at + 1 :]]
    return rng.choice(_BAD)


@pytest.mark.parametrize("seed", range(6))
def test_the_watch_goes_on_after_any_object_and_its_numbers_are_bounded(seed: int) -> None:
    rng = Random(seed)
    for item in objects():
        kind = followed(f"owners.{item['kind']}")
        state = WatchState(kind, version=kind.versions[0])
        head = {"kind": f"{item['kind']}List", "apiVersion": kind.api_version(kind.versions[0])}
        state.page(json.dumps({**head, "metadata": {"resourceVersion": "1"}, "items": []}).encode())
        for version in range(2, 120):
            meta = {
                "name": f"a{version}",
                "namespace": "d",
                "uid": f"u{version}",
                "resourceVersion": str(version),
            }
            odd = {**item, "spec": spoilt(item["spec"], rng), "metadata": {**item["metadata"], **meta}}
            line = json.dumps({"type": "ADDED", "object": odd}).encode() + b"\n"
            [event] = state.lines(line)
            assert state.failure is None, (seed, odd)
            assert isinstance(event, ev.OwnerPut | ev.ObjectRefused), (seed, odd)
            if isinstance(event, ev.OwnerPut) and not event.owner.problem:
                assert 0 <= sum(role.count for role in event.owner.roles) <= MAX_MEMBERS, (seed, odd)


def test_a_deleted_owner_is_reported_by_name() -> None:
    kind = followed("owners.JobSet")
    state = WatchState(kind, version="v1alpha2")
    item = made.job_set("a", ROLES)
    meta = {"name": "a", "namespace": "d", "uid": "u", "resourceVersion": "2"}
    head = {"kind": "JobSetList", "apiVersion": "jobset.x-k8s.io/v1alpha2"}
    page = {**head, "metadata": {"resourceVersion": "3"}, "items": [{**item, "metadata": meta}]}
    put, _ = state.page(json.dumps(page).encode())
    assert isinstance(put, ev.OwnerPut)
    gone = {"type": "DELETED", "object": {**item, "metadata": {**meta, "resourceVersion": "4"}}}
    [event] = state.lines(json.dumps(gone).encode() + b"\n")
    assert event == ev.OwnerGone(put.owner.named, "u")


def test_an_object_with_too_many_pods_is_reported() -> None:
    owner = made.owner(made.job_set("a", {"workers": (1000, 1000)}))
    assert owner.problem == "JobSet d/a has 1000000 pods, at most 100000 can be a gang"
    with pytest.raises(msgspec.ValidationError, match="<= 100000"):
        made.owner(made.job_set("a", {"workers": (MAX_MEMBERS + 1, 1)}))
