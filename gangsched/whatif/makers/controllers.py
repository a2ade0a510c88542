"""Makes the pods that controllers make from their objects, in the fields that scheduling reads. Pure.

Jobs as the Job controller builds them; JobSets as JobSet 0.12 does, LeaderWorkerSets as LWS 0.10, with the
labels by which the core recognizes their gangs; replicas of the apps group. Only the number that exists at
once counts, not how pods are replaced. Here too: the table of all kinds that make pods (MAKERS). Not here:
kinds whose controllers make other objects (unfolding), and what Ray makes (ray).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gangsched.api_rules.job_pods import build
from gangsched.model.owners import job_sets, leader_worker_sets
from gangsched.whatif.makers import ray
from gangsched.whatif.makers.templates import (
    Json,
    bounded,
    count_in,
    list_in,
    object_in,
    pod_of,
    template_in,
)


def _pod(document: Json) -> Iterator[Json]:
    yield document


def _job(document: Json, more_labels: Mapping[str, str] | None = None) -> Iterator[Json]:
    spec = object_in(document, "spec")
    template_in(spec, "template", "spec.")
    parallelism = count_in(spec, "parallelism", 1, "spec.")
    n_pods = min(parallelism, count_in(spec, "completions", parallelism, "spec."))
    is_indexed = spec.get("completionMode") == "Indexed"
    for k in range(bounded(n_pods, "spec.parallelism")):
        pod = build(document, k if is_indexed else None)
        pod["metadata"]["name"] = f"{document['metadata']['name']}-{k}"
        pod["metadata"]["labels"] |= more_labels or {}
        yield pod


def _job_set(document: Json) -> Iterator[Json]:
    meta = document["metadata"]
    for i, one in enumerate(list_in(object_in(document, "spec"), "replicatedJobs", "spec.")):
        field = f"spec.replicatedJobs[{i}]."
        template = object_in(one, "template", field)
        for k in range(bounded(count_in(one, "replicas", 1, field), f"{field}replicas")):
            name = f"{meta['name']}-{one.get('name', i)}-{k}"
            job = {
                "metadata": {"name": name, "uid": f"{meta['uid']}-{i}-{k}"},
                "spec": object_in(template, "spec", f"{field}template."),
            }
            labels = {
                job_sets.NAME_KEY: meta["name"],
                job_sets.UID_KEY: meta["uid"],
                job_sets.ROLE_KEY: str(one.get("name", i)),
                job_sets.ATTEMPT_KEY: "0",
            }
            yield from _job(job, labels)


def _leader_worker_set(document: Json) -> Iterator[Json]:
    meta, spec = document["metadata"], object_in(document, "spec")
    template = object_in(spec, "leaderWorkerTemplate", "spec.")
    size = count_in(template, "size", 1, "spec.leaderWorkerTemplate.")
    workers = leaders = template_in(template, "workerTemplate", "spec.leaderWorkerTemplate.")
    if template.get("leaderTemplate"):
        leaders = template_in(template, "leaderTemplate", "spec.leaderWorkerTemplate.")
    n_replicas = count_in(spec, "replicas", 1, "spec.")
    bounded(n_replicas * size, "spec.replicas x size")
    for replica in range(n_replicas):
        for worker in range(size):
            name = f"{meta['name']}-{replica}" + (f"-{worker}" if worker else "")
            pod = pod_of(leaders if worker == 0 else workers, name, document)
            pod["metadata"]["labels"] |= {
                leader_worker_sets.NAME_KEY: meta["name"],
                leader_worker_sets.REPLICA_KEY: str(replica),
                leader_worker_sets.WORKER_KEY: str(worker),
            }
            pod["metadata"]["annotations"][leader_worker_sets.SIZE_KEY] = str(size)
            yield pod


def _replicas(document: Json) -> Iterator[Json]:
    spec = object_in(document, "spec")
    template = template_in(spec, "template", "spec.")
    for k in range(bounded(count_in(spec, "replicas", 1, "spec."), "spec.replicas")):
        yield pod_of(template, f"{document['metadata']['name']}-{k}", document)


MAKERS: Mapping[tuple[str, str], Callable[[Json], Iterator[Json]]] = {
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicas,
    ("batch", "Job"): _job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("apps", "Deployment"): _replicas,
    ("apps", "ReplicaSet"): _replicas,
    ("apps", "StatefulSet"): _replicas,
    ("ray.io", "RayCluster"): ray.cluster,
}
"""By API group and kind; each yields the pods of a completed document, with names."""
