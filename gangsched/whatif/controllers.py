"""Makes the pods that controllers make from their objects, in the fields that scheduling reads. Pure.

Jobs as the Job controller builds them; JobSets as JobSet 0.12 does, LeaderWorkerSets as LWS 0.10, with the
labels by which the core recognizes their gangs; replicas of the apps group. Only the number that exists at
once counts, not how pods are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from gangsched.errors import ConfigError
from gangsched.lab.apiserver.simulated.jobs.pods import build
from gangsched.model.owners import job_sets, leader_worker_sets

Json = dict[str, Any]
_MAX_PODS = 10_000


def pods_of(document: Json) -> Iterator[Json]:
    """Yields the pods as documents, with names. Raises: ConfigError, with the field."""
    makers: Mapping[str, Callable[[Json], Iterator[Json]]] = {
        "Pod": _pod,
        "Job": _job,
        "JobSet": _job_set,
        "LeaderWorkerSet": _leader_worker_set,
        "Deployment": _replicas,
        "ReplicaSet": _replicas,
        "StatefulSet": _replicas,
    }
    return makers[document["kind"]](document)


KINDS = frozenset(("Pod", "Job", "JobSet", "LeaderWorkerSet", "Deployment", "ReplicaSet", "StatefulSet"))


def _pod(document: Json) -> Iterator[Json]:
    yield document


def _job(document: Json, more_labels: Mapping[str, str] | None = None) -> Iterator[Json]:
    spec = _object(document, "spec")
    _template(spec, "template", "spec.")
    parallelism = _count(spec, "parallelism", 1, "spec.")
    n_pods = min(parallelism, _count(spec, "completions", parallelism, "spec."))
    is_indexed = spec.get("completionMode") == "Indexed"
    for k in range(_bounded(n_pods, "spec.parallelism")):
        pod = build(document, k if is_indexed else None)
        pod["metadata"]["name"] = f"{document['metadata']['name']}-{k}"
        pod["metadata"]["labels"] |= more_labels or {}
        yield pod


def _job_set(document: Json) -> Iterator[Json]:
    meta = document["metadata"]
    for i, one in enumerate(_list(_object(document, "spec"), "replicatedJobs", "spec.")):
        field = f"spec.replicatedJobs[{i}]."
        template = _object(one, "template", field)
        for k in range(_bounded(_count(one, "replicas", 1, field), f"{field}replicas")):
            name = f"{meta['name']}-{one.get('name', i)}-{k}"
            job = {
                "metadata": {"name": name, "uid": f"{meta['uid']}-{i}-{k}"},
                "spec": _object(template, "spec", f"{field}template."),
            }
            labels = {
                job_sets.NAME_KEY: meta["name"],
                job_sets.UID_KEY: meta["uid"],
                job_sets.ROLE_KEY: str(one.get("name", i)),
                job_sets.ATTEMPT_KEY: "0",
            }
            yield from _job(job, labels)


def _leader_worker_set(document: Json) -> Iterator[Json]:
    meta, spec = document["metadata"], _object(document, "spec")
    template = _object(spec, "leaderWorkerTemplate", "spec.")
    size = _count(template, "size", 1, "spec.leaderWorkerTemplate.")
    workers = leaders = _template(template, "workerTemplate", "spec.leaderWorkerTemplate.")
    if template.get("leaderTemplate"):
        leaders = _template(template, "leaderTemplate", "spec.leaderWorkerTemplate.")
    n_replicas = _count(spec, "replicas", 1, "spec.")
    _bounded(n_replicas * size, "spec.replicas x size")
    for replica in range(n_replicas):
        for worker in range(size):
            name = f"{meta['name']}-{replica}" + (f"-{worker}" if worker else "")
            pod = _from_template(leaders if worker == 0 else workers, name, document)
            pod["metadata"]["labels"] |= {
                leader_worker_sets.NAME_KEY: meta["name"],
                leader_worker_sets.REPLICA_KEY: str(replica),
                leader_worker_sets.WORKER_KEY: str(worker),
            }
            pod["metadata"]["annotations"][leader_worker_sets.SIZE_KEY] = str(size)
            yield pod


def _replicas(document: Json) -> Iterator[Json]:
    spec = _object(document, "spec")
    template = _template(spec, "template", "spec.")
    for k in range(_bounded(_count(spec, "replicas", 1, "spec."), "spec.replicas")):
        yield _from_template(template, f"{document['metadata']['name']}-{k}", document)


def _from_template(template: Json, name: str, owner: Json) -> Json:
    pod = deepcopy({"metadata": template["metadata"], "spec": template["spec"]})
    pod["metadata"] |= {
        "name": name,
        "labels": pod["metadata"].get("labels") or {},
        "annotations": pod["metadata"].get("annotations") or {},
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    return pod


def _template(where: Json, name: str, field: str) -> Json:
    """Returns a checked pod template, without the lists that scheduling does not read."""
    found = _object(where, name, field)
    field = f"{field}{name}."
    spec = _object(found, "spec", field)
    for listed in ("containers", "initContainers"):
        if listed == "containers" or spec.get(listed) is not None:
            for container in _list(spec, listed, f"{field}spec."):
                container.pop("env", None)
    meta = found["metadata"] = _object(found, "metadata", field) if found.get("metadata") else {}
    meta.pop("finalizers", None)
    for texts in ("labels", "annotations"):
        if meta.get(texts) is not None:
            _object(meta, texts, f"{field}metadata.")
    return found


def _object(where: Json, name: str, field: str = "") -> Json:
    found = where.get(name)
    if not isinstance(found, dict):
        raise ConfigError("is missing, or is not an object", path=f"{field}{name}")
    return found


def _list(where: Json, name: str, field: str) -> list[Json]:
    found = where.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigError("is missing, or is not a list of objects", path=f"{field}{name}")
    return found


def _count(where: Json, name: str, default: int, field: str) -> int:
    found = where.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise ConfigError(f"{found!r} is not a whole number from 0 on", path=f"{field}{name}")
    return found


def _bounded(n_pods: int, field: str) -> int:
    if n_pods > _MAX_PODS:
        raise ConfigError(f"makes {n_pods} pods; at most {_MAX_PODS} are looked at", path=field)
    return n_pods
