"""What Kueue has admitted passes the limits of queues, where the file says so, up to the admitted amounts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.lab.sim.objects import make_pod
from gangsched.model import events as ev
from gangsched.model.effects import DeletePod, EvictPod
from gangsched.model.objects import OwnerReference, Pod
from gangsched.model.owners import OWNER_KINDS, OwnerName
from tests.core.queued import GPU, queued, reconfigured
from tests.support.long import all_but
from tests.support.scenario import Cluster, gang

LIMIT = 4
TREE = f"""
queues:
- name: all
  limit: {{{GPU}: 12}}
  queues:
  - {{name: tenant, limit: {{{GPU}: {LIMIT}}}, namespaces: [t]}}
  - {{name: second, limit: {{{GPU}: 2}}, namespaces: ["t*"]}}
"""
PASSES = "fairness: {kueueAdmission: passesLimits}\n" + TREE
Json = dict[str, Any]


def workload(
    name: str = "w",
    *,
    owners: Iterable[str] = ("uid-job",),
    gpus: str = "8",
    n: int = 8,
    ended: int = 0,
    namespace: str = "t",
    meta: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    usage: Mapping[str, Any] | None = None,
    **conditions: str,
) -> Json:
    """As Kueue writes it; conditions: by type, Admitted among them unless it is stated otherwise."""
    status: Json = {
        "conditions": [{"type": t, "status": s} for t, s in {"Admitted": "True", **conditions}.items()],
        "admission": {
            "podSetAssignments": [
                {"name": "main", "count": n, "resourceUsage": dict(usage or {GPU: gpus, "cpu": "64"})}
            ]
        },
    }
    if ended:
        status["reclaimablePods"] = [{"name": "main", "count": ended}]
    references = [{"kind": "Job", "name": "j", "uid": uid} for uid in owners]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "ownerReferences": references,
            **(meta or {}),
        },
        "spec": {"podSets": [{"name": "main", "count": n}], **(spec or {})},
        "status": status,
    }


def told(c: Cluster, *workloads: Json) -> Cluster:
    kind = OWNER_KINDS["Workload"]
    for one in workloads:
        c.tell(ev.OwnerPut(kind.read(msgspec.convert(one, kind.wire))))
    return c


def jobs(n: int = 8, job: str = "uid-job", first: int = 0, **more: Any) -> list[Pod]:
    return [owned(pod, job) for pod in plain(n, "p", first, **more)]


def owned(pod: Pod, uid: str) -> Pod:
    by = [OwnerReference("batch/v1", "Job", "j", uid, controller=True)]
    return replace(pod, metadata=replace(pod.metadata, owner_references=by))


def plain(n: int, name: str = "q", first: int = 0, **more: Any) -> list[Pod]:
    more.setdefault("namespace", "t")
    return [make_pod(f"{name}{k}", **more) for k in range(first, first + n)]


def held(c: Cluster, name: str = "") -> int:
    there = (pod for pod in c.pods.values() if pod.spec.node_name and not pod.is_terminal)
    return sum(pod.metadata.name.startswith(name) for pod in there)


@pytest.mark.parametrize(("tree", "n"), [(TREE, LIMIT), (PASSES, 8)], ids=["not-set", "set"])
def test_pods_of_an_admitted_workload_pass_limits_only_where_the_file_says_so(tree: str, n: int) -> None:
    c = told(queued(tree, nodes=3), workload())
    assert held(c.submit(jobs()).settled()) == n


@pytest.mark.parametrize("owns", ["the pod", "its controller", "its JobSet"])
def test_the_workload_owns_the_pod_its_controller_or_its_job_set(owns: str) -> None:
    if owns == "the pod":
        pods, uids = plain(8), [f"uid-t-q{k}" for k in range(8)]
    elif owns == "its controller":
        pods, uids = jobs(), ["uid-job"]
    else:
        pods, uids = plain(8, labels={"jobset.sigs.k8s.io/jobset-uid": "uid-js"}), ["uid-js"]
    c = told(queued(PASSES, nodes=3), workload(owners=uids))
    assert held(c.submit(pods).settled()) == 8


@pytest.mark.parametrize(
    "one",
    [
        workload(Admitted="False"),
        workload(Finished="True"),
        workload(Evicted="True"),
        workload(spec={"active": False}),
        workload(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        workload(namespace="other"),
        workload(owners=()),
        workload(owners=("uid-another",)),
        workload(gpus="0"),
        workload(gpus="-8"),
        workload(gpus="many"),
        workload(usage={"cpu": "64"}),
        workload(ended=8),
    ],
    ids=lambda one: str(one["metadata"] | one["status"])[:80],
)
def test_others_pass_no_limit(one: Json) -> None:
    c = told(queued(PASSES, nodes=3), one)
    assert held(c.submit(jobs()).settled()) == LIMIT


def test_naming_a_workload_is_not_being_owned_by_it() -> None:
    said = {"kueue.x-k8s.io/workload": "w"}
    labels = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "q"}
    c = told(queued("inferGangs: []\n" + PASSES, nodes=3), workload())
    assert held(c.submit(plain(8, annotations=said, labels=labels)).settled()) == LIMIT


def test_no_more_than_what_is_admitted_passes() -> None:
    c = told(queued(PASSES, nodes=3), workload(gpus="3", n=3))
    assert held(c.submit(jobs(12)).settled()) == LIMIT + 3
    assert held(told(c, workload(gpus="3", n=3, ended=2)).settled()) == LIMIT + 3  # nothing is evicted
    c.delete("p0")
    c.delete("p1")
    assert held(c.settled()) == LIMIT + 1


def test_what_passes_leaves_the_limit_to_others() -> None:
    for first, second in ((jobs(), plain(6)), (plain(6), jobs())):
        c = told(queued(PASSES, nodes=3), workload())
        c.submit(first).settled().submit(second).settled()
        assert (held(c, "p"), held(c, "q")) == (8, LIMIT)


def test_the_limit_of_the_queue_above_is_passed_too() -> None:
    c = told(queued(PASSES, nodes=4), workload(gpus="20", n=20))
    c.submit(jobs(20)).settled()
    c.submit(plain(6)).settled()
    assert (held(c, "p"), held(c, "q")) == (20, LIMIT)


def test_a_gang_passes_whole_or_not_at_all() -> None:
    c = told(queued(PASSES, nodes=3), workload(gpus="5", n=5))
    pods = [owned(pod, "uid-job") for pod in gang("g", pods=10, namespace="t")]
    assert held(c.submit(pods).settled()) == 0
    assert held(told(c, workload(gpus="6", n=6)).settled()) == 10


def test_pods_that_wait_start_when_kueue_admits_and_wait_again_when_it_takes_that_back() -> None:
    c = queued(PASSES, nodes=3)
    assert held(c.submit(jobs()).settled()) == LIMIT
    assert held(told(c, workload(gpus="6", n=6)).run()) == LIMIT + 4
    c.tell(ev.OwnerGone(OwnerName("Workload", "t", "w"), "uid-w"))
    assert held(c.submit(jobs(4, first=8)).settled()) == 8
    for k in range(4):
        c.delete(f"p{k}")
    assert held(c.settled()) == LIMIT


def test_one_that_never_fits_its_limit_starts_once_it_is_admitted() -> None:
    c = queued(PASSES, nodes=3)
    pods = [owned(pod, "uid-job") for pod in gang("g", pods=8, namespace="t")]
    assert held(c.submit(pods).settled()) == 0
    assert held(told(c, workload()).run()) == 8


def test_a_reload_sets_it_and_takes_it_back() -> None:
    c = told(queued(TREE, nodes=3), workload())
    assert held(c.submit(jobs()).settled()) == LIMIT
    assert held(reconfigured(c, PASSES).settled()) == 8
    reconfigured(c, TREE)
    c.delete("p0")
    assert held(c.submit(jobs(2, first=8)).settled()) == 7


def test_explain_counts_what_does_not_pass() -> None:
    c = told(queued(PASSES, nodes=3), workload(gpus="8", n=8))
    c.submit([*jobs(), *plain(5)]).settled()
    [waits] = [pod for pod in c.pods.values() if not pod.spec.node_name]
    info = c.pod_info(waits.metadata.name)
    assert info.group is not None
    said = explain(c.scheduler, info.group, c.now_s).answer
    assert "Queue tenant is at its limit: 4 of 4 nvidia.com/gpu are used, and it needs 1, 1 too many." in said


def test_pods_that_pass_a_limit_are_not_evicted_for_one_that_does_not() -> None:
    """They give nothing back there; less important ones within the limit do."""
    c = told(queued(PASSES, nodes=3), workload())
    c.submit([*jobs(), *plain(4)]).settled()
    c.submit(make_pod("high", namespace="t", priority=100)).settled()
    gone = [one.name for one in c.effects if isinstance(one, EvictPod | DeletePod)]
    assert len(gone) == 1
    assert gone[0].startswith("q")


def test_pods_that_are_taken_from_their_owner_make_no_room_for_others() -> None:
    c = told(queued(PASSES, nodes=4), workload())
    c.submit([*jobs(), *plain(4)]).settled()
    for pod in list(c.pods.values()):
        c.update(owned(pod, "uid-nothing"))
    c.restart()
    told(c, workload())
    assert held(c.submit(jobs(8, first=8)).settled()) == LIMIT + 8
    for k in range(8):
        c.delete(f"p{k}")
    assert held(c.settled()) == LIMIT + 8


@pytest.mark.parametrize("seed", all_but(5, range(40)))
def test_use_never_exceeds_the_limits_and_what_is_admitted_whatever_is_written(seed: int) -> None:
    """A tenant creates, edits and deletes pods, and names owners and queues as it likes; Kueue admits."""
    rng = random.Random(seed)
    c, n = queued(PASSES, nodes=5), 0
    admitted, known = dict[str, int](), dict[str, Json]()
    uids = ["uid-a", "uid-b", "uid-c", ""]

    def forged(pod: Pod) -> Pod:
        labels = {"jobset.sigs.k8s.io/jobset-uid": rng.choice(uids)}
        one = owned(pod, rng.choice(uids))
        return replace(one, metadata=replace(one.metadata, labels={**(pod.metadata.labels or {}), **labels}))

    for _ in range(60):
        there = list(c.pods.values())
        step = rng.randrange(5)
        if step == 0:
            name, gpus = rng.choice("wxy"), rng.randrange(5)
            admitted[name] = max(gpus, admitted.get(name, 0))
            pods = [f"uid-t-q{k}" for k in range(9)]
            owners = rng.sample(uids[:3], rng.randrange(1, 3)) + rng.sample(pods, 2)
            known[name] = workload(name, gpus=str(gpus), owners=owners)
            told(c, known[name])
        elif step == 1 and there:
            c.update(forged(rng.choice(there)))
        elif step == 2 and there:
            c.delete(rng.choice(there).metadata.name)
        elif step == 3 and rng.random() < 0.3:
            told(c.restart(), *known.values())
        else:
            queue = rng.choice(["", "tenant", "second"])
            more: Json = {"annotations": {"gangsched.io/queue": queue}} if queue else {}
            c.submit([forged(pod) for pod in plain(2, first=n, **more)])
            n += 2
        c.run()
        top = sum(admitted.values())
        used = {name: c.queue_book().used(name).get(GPU, 0) for name in ("all", "tenant", "second")}
        assert used["second"] <= 2, f"{seed=}"
        assert used["tenant"] <= LIMIT + top, f"{seed=}"
        assert used["all"] <= LIMIT + 2 + top, f"{seed=}"
