"""Makes the pods of MPIJobs, and of the training operator's jobs: PyTorchJobs, TFJobs and their like.

Sources: mpi-operator 0.7 `pkg/controller`, training-operator 1.9 `pkg/controller.v1/common`. Whether these
operators make a PodGroup follows from their flags, which no manifest shows: it is made where the job states
runPolicy.schedulingPolicy, which has no other use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gangsched.model.owners import mpi_jobs
from gangsched.model.pod_group import COSCHEDULING_LABEL
from gangsched.whatif.makers.templates import (
    Json,
    bounded,
    count_in,
    object_in,
    object_of,
    optional_in,
    pod_of,
    template_in,
)

GROUP = "kubeflow.org"
_REPLICAS: Mapping[str, str] = {
    "MPIJob": "mpiReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
KINDS = tuple(_REPLICAS)
_REPLICA_TYPE_KEY = "training.kubeflow.org/replica-type"
_REPLICA_INDEX_KEY = "training.kubeflow.org/replica-index"
_ROLE_KEY = "training.kubeflow.org/job-role"


def job(document: Json) -> Iterator[Json]:
    """Yields its PodGroup if it asks for one, then its pods, role by role."""
    kind, name = document["kind"], document["metadata"]["name"]
    spec = object_in(document, "spec")
    is_mpi = kind == mpi_jobs.KIND
    operator = mpi_jobs.OPERATOR if is_mpi else f"{kind.lower()}-controller"
    field = f"spec.{_REPLICAS[kind]}"
    roles = object_in(spec, _REPLICAS[kind], "spec.")
    counts, pods = 0, []
    for role in roles:
        one = object_in(roles, role, f"{field}.")
        template = template_in(one, "template", f"{field}.{role}.")
        n_pods = count_in(one, "replicas", 1, f"{field}.{role}.")
        counts = bounded(counts + n_pods, f"{field}.{role}.replicas")
        for k in range(n_pods):
            in_order = f"{name}-{str(role).lower()}-{k}"
            is_launcher = is_mpi and role == "Launcher"
            pod = pod_of(template, f"{name}-launcher" if is_launcher else in_order, document)
            pod |= {"apiVersion": "v1", "kind": "Pod"}
            pod["metadata"]["labels"] |= {
                mpi_jobs.JOB_KEY: name,
                mpi_jobs.OPERATOR_KEY: operator,
                _ROLE_KEY if is_mpi else _REPLICA_TYPE_KEY: str(role).lower(),
                _REPLICA_INDEX_KEY: str(k),
            }
            pods.append(pod)
    policy = optional_in(optional_in(spec, "runPolicy", "spec."), "schedulingPolicy", "spec.runPolicy.")
    if policy:
        least = count_in(policy, "minAvailable", counts, "spec.runPolicy.schedulingPolicy.")
        yield object_of(document, "scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": least})
        for pod in pods:
            pod["metadata"]["labels"][COSCHEDULING_LABEL] = name
    yield from pods
