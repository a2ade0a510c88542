"""What if: files as `kubectl apply` takes them, with all that belongs to a job and what controllers make."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from gangsched.config import Settings
from gangsched.errors import ApiError, ConfigError
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from gangsched.model.owners import DEFAULT_INFERRED
from gangsched.model.text.quantity import to_int
from gangsched.whatif.answer import Answer
from gangsched.whatif.cluster import Cluster, UnknownClasses, read_class, runtime
from gangsched.whatif.files import read_documents
from gangsched.whatif.manifests import Manifests, kinds_of, read_manifests, runtimes_named
from gangsched.whatif.question import Question, check, examine
from tests.support.scenario import cluster
from tests.whatif.test_counts import printed
from tests.whatif.test_trial import NOW, snapshot_of

GPU = "nvidia.com/gpu"
AS_INSTALLED = Settings(allow_eviction=False, infer_gangs={"gangsched": DEFAULT_INFERRED})
NOTHING = Cluster()
Json = dict[str, Any]


def template(gpus: int = 8, scheduler: str = "gangsched", **spec: Any) -> Json:
    container = {"name": "node", "image": "i", "resources": {"limits": {GPU: gpus}}}
    return {"spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container], **spec}}


def named(api_version: str, kind: str, spec: Any = None, *, name: str = "a", **more: Any) -> Json:
    found = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}
    return found if spec is None else {**found, "spec": spec}


def read(*documents: Json, known: Cluster = NOTHING) -> Manifests:
    text = yaml.safe_dump_all(documents)
    kinds = kinds_of(snapshot_of(cluster(nodes=0), AS_INSTALLED).scheduler)
    return read_manifests(read_documents([("job.yaml", text)]), kinds, known)


def asked(*documents: Json, nodes: int = 4, known: Cluster = NOTHING) -> Answer:
    snapshot = snapshot_of(cluster(nodes=nodes), AS_INSTALLED)
    manifests = check(read(*documents, known=known), snapshot, ["gangsched"], way="give --config")
    return examine(Question(), snapshot, manifests, 1.0, NOW)


def gangs(answer: Answer) -> list[tuple[str, str, int]]:
    """Returns (name, when it starts, its number of pods) of each."""
    return [(one.name, one.starts, len(one.members) + len(one.unplaced)) for one in answer.gangs]


def gpus_of(pod: Pod) -> int:
    requests = [container.resources and container.resources.requests for container in pod.spec.containers]
    return sum(to_int(str(one[GPU])) for one in requests if one and GPU in one)


JOB = named("batch/v1", "Job", {"template": template(8)})
BESIDE = [
    named("v1", "Namespace", name="ml"),
    named("v1", "Service", {"clusterIP": None, "selector": {"app": "a"}}),
    named("v1", "ConfigMap", data={"run.sh": "echo", "1": "2"}),
    named("v1", "Secret", stringData={"token": "t"}),
    named("v1", "ServiceAccount"),
    named("rbac.authorization.k8s.io/v1", "Role", rules=[]),
    named("policy/v1", "PodDisruptionBudget", {"minAvailable": 1}),
    named("v1", "PersistentVolumeClaim", {"accessModes": ["ReadWriteOnce"]}),
    named("scheduling.run.ai/v2", "Queue", {"resources": {}}),
    named("kueue.x-k8s.io/v1beta1", "LocalQueue", {"clusterQueue": "c"}),
    named("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": {}}),
    named("example.com/v1", "Widget", {"size": 3}),
]


def test_what_makes_no_pods_is_left_out_with_a_line_and_the_job_is_answered() -> None:
    found = asked(*BESIDE, JOB)
    assert gangs(found) == [("default/a-0", "now", 1)]
    assert found.notes == [
        "ConfigMap a, Secret a, ServiceAccount a, Role a: they make no pods",
        "Queue a, LocalQueue a: queues of another system; gangsched's own are in its configuration"
        " (docs/queues.md)",
        "Widget a: whether they make pods is not known here: if they do, give the pods",
    ]
    assert "Of the files: ConfigMap a, Secret a, " in printed(found)


@pytest.mark.parametrize("one", BESIDE, ids=lambda one: str(one["kind"]))
def test_each_of_them_alone_has_no_pod_and_the_error_says_so(one: Json) -> None:
    with pytest.raises(ConfigError, match=r"^job\.yaml: there is no pod in it"):
        read(one)


def test_a_long_list_of_what_is_left_out_is_one_bounded_line() -> None:
    maps = [named("v1", "ConfigMap", name=f"m{k}") for k in range(500)]
    (note,) = asked(*maps, JOB).notes
    assert note.endswith("ConfigMap m9, and 490 more: they make no pods")


@pytest.mark.parametrize(
    ("api_version", "kind", "error"),
    [
        ("batch/v1", "Jobb", "'Jobb' cannot be made into pods here; did you mean Job?"),
        ("v1", "Confgmap", "'Confgmap' cannot be made into pods here"),
        ("apps/v1", "Job", "there is no Job in 'apps'; it is in batch"),
        ("jobset.x-k8s.io/v1alpha2", "Jobset", "did you mean JobSet?"),
        (
            "jobsets.x-k8s.io/v1alpha2",
            "JobSet",
            "there is no JobSet in 'jobsets.x-k8s.io'; it is in jobset.x-k8s.io",
        ),
        ("apps/v1beta2", "Deployment", "'apps/v1beta2' is not served; Deployment is of apps/v1"),
        ("ray.io/v1", "Raycluster", "did you mean RayCluster?"),
    ],
)
def test_a_misspelt_kind_is_not_left_out(api_version: str, kind: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(JOB, named(api_version, kind, {"template": template()}))
    assert error in str(caught.value)
    assert str(caught.value).startswith("job.yaml, document 2: ")


def test_a_kind_of_the_same_name_in_a_foreign_group_is_not_ours() -> None:
    """Its fields are others: it is not read as if it were Kubernetes' own."""
    found = read(JOB, named("infra.example.com/v1", "Deployment", {"machines": 3}))
    assert len(found.pods) == 1
    assert found.notes == [
        "Deployment a: whether they make pods is not known here: if they do, give the pods"
    ]


def test_the_pods_of_another_scheduler_are_left_out_with_a_line() -> None:
    pods = template(1, scheduler="", restartPolicy="Always")
    web = named("apps/v1", "Deployment", {"replicas": 3, "template": pods}, name="web")
    found = asked(web, JOB)
    assert gangs(found) == [("default/a-0", "now", 1)]
    assert found.notes == ["3 pods of the scheduler default-scheduler: left out"]
    with pytest.raises(ConfigError, match="the scheduler 'default-scheduler'; this configuration serves"):
        asked(web)
    misspelt = named("batch/v1", "Job", {"template": template(1, scheduler="gangshed")}, name="b")
    with pytest.raises(ConfigError, match="names the scheduler 'gangshed'; did you mean gangsched"):
        asked(JOB, misspelt)


# -- priorities ----------------------------------------------------------------------------------------------


def test_a_class_of_the_file_counts_wherever_it_stands() -> None:
    high = named("scheduling.k8s.io/v1", "PriorityClass", name="high", value=7, preemptionPolicy="Never")
    pod = named("v1", "Pod", template(8, priorityClassName="high")["spec"])
    for documents in ((high, pod), (pod, high)):
        (one,) = read(*documents).pods
        assert (one.spec.priority, one.spec.preemption_policy) == (7, "Never")
    with pytest.raises(ConfigError, match="no PriorityClass 'hihg'; did you mean high"):
        read(high, named("v1", "Pod", template(8, priorityClassName="hihg")["spec"]))
    with pytest.raises(ConfigError, match="is no PriorityClass"):
        read(named("scheduling.k8s.io/v1", "PriorityClass", value="many"), pod)


def test_the_default_class_counts_for_pods_that_name_none() -> None:
    classes = {
        name: read_class({"metadata": {"name": name}, "value": value, "globalDefault": True})
        for name, value in (("usual", 100), ("least", 50))
    }
    (one,) = read(named("v1", "Pod", template(1)["spec"]), known=Cluster(classes)).pods
    assert one.spec.priority == 50, "of several the API server takes the least"
    (one,) = read(named("v1", "Pod", template(1, priority=3)["spec"]), known=Cluster(classes)).pods
    assert one.spec.priority == 3


def test_classes_that_may_not_be_listed_and_one_of_the_file() -> None:
    high = named("scheduling.k8s.io/v1", "PriorityClass", name="high", value=7)
    pods = [
        named("v1", "Pod", template(1, priorityClassName=name)["spec"], name=name)
        for name in ("high", "other")
    ]
    found = read(high, *pods, known=Cluster(UnknownClasses()))
    assert [one.spec.priority for one in found.pods] == [7, 0]


# -- Ray -----------------------------------------------------------------------------------------------------


def ray_cluster(**spec: Any) -> Json:
    workers = {
        "groupName": "gpus",
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 4,
        "template": template(8),
    }
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [workers], **spec}


def test_a_ray_cluster_is_the_gang_that_the_scheduler_infers() -> None:
    found = asked(named("ray.io/v1", "RayCluster", ray_cluster()))
    assert gangs(found) == [("default/a", "now", 3)]
    assert sorted(one.name for one in found.gangs[0].members) == [
        "a-gpus-worker-0",
        "a-gpus-worker-1",
        "a-head",
    ]
    short = asked(named("ray.io/v1", "RayCluster", ray_cluster()), nodes=1)
    assert gangs(short) == [("default/a", "not", 3)], "all replicas are needed, and one fits"
    elastic = asked(named("ray.io/v1", "RayCluster", ray_cluster(enableInTreeAutoscaling=True)), nodes=1)
    assert gangs(elastic) == [("default/a", "now", 3)]
    assert len(elastic.gangs[0].members) == 2, "under the autoscaler it starts with minReplicas"


@pytest.mark.parametrize(
    ("group", "n_workers"),
    [
        ({"replicas": 3, "numOfHosts": 4}, 12),
        ({"replicas": 1, "minReplicas": 2}, 2),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"minReplicas": 2}, 2),
        ({}, 0),
        ({"replicas": 3, "suspend": True}, 0),
    ],
)
def test_workers_are_as_many_as_its_operator_makes(group: Json, n_workers: int) -> None:
    groups = [{"groupName": "g", "template": template(1), **group}]
    found = read(named("ray.io/v1", "RayCluster", ray_cluster(workerGroupSpecs=groups)))
    assert len(found.pods) == 1 + n_workers


def test_the_head_has_the_autoscalers_container() -> None:
    head, *_ = read(named("ray.io/v1", "RayCluster", ray_cluster(enableInTreeAutoscaling=True))).pods
    assert [one.resources.requests for one in head.spec.containers[1:] if one.resources] == [
        {"cpu": "500m", "memory": "512Mi"}
    ]


def test_a_ray_job_is_its_cluster_and_its_submitter() -> None:
    job = {"entrypoint": "python run.py", "rayClusterSpec": ray_cluster()}
    found = asked(named("ray.io/v1", "RayJob", job))
    assert gangs(found) == [("default/a-cluster", "now", 3)]
    assert found.notes == ["1 pod of the scheduler default-scheduler: left out"]
    own = asked(named("ray.io/v1", "RayJob", {**job, "submitterPodTemplate": template(0)}))
    assert gangs(own) == [("default/a-cluster", "now", 3), ("default/a-0", "now", 1)]
    for mode, n_pods in (("HTTPMode", 3), ("InteractiveMode", 3), ("SidecarMode", 3), ("K8sJobMode", 4)):
        assert len(read(named("ray.io/v1", "RayJob", {**job, "submissionMode": mode})).pods) == n_pods
    with pytest.raises(ConfigError, match=r"spec\.submissionMode: 'K8s' is none of K8sJobMode"):
        read(named("ray.io/v1", "RayJob", {**job, "submissionMode": "K8s"}))


def test_a_ray_service_and_a_run_of_a_ray_cron_job_are_clusters_too() -> None:
    service = asked(named("ray.io/v1", "RayService", {"rayClusterConfig": ray_cluster()}))
    assert gangs(service) == [("default/a-cluster", "now", 3)]
    cron = {
        "schedule": "* * * * *",
        "jobTemplate": {"rayClusterSpec": ray_cluster(), "submissionMode": "HTTPMode"},
    }
    found = asked(named("ray.io/v1", "RayCronJob", cron))
    assert gangs(found) == [("default/a-run-cluster", "now", 3)]
    assert found.notes == ["RayCronJob a: one run of it is looked at"]


# -- Kubeflow ------------------------------------------------------------------------------------------------


def replicas(**counts: int) -> Json:
    return {role: {"replicas": n, "template": template(8)} for role, n in counts.items()}


def test_a_training_job_without_a_group_is_pods_by_themselves_and_says_so() -> None:
    found = asked(
        named("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=2)})
    )
    assert gangs(found) == [(f"default/a-{end}", "now", 1) for end in ("master-0", "worker-0", "worker-1")]
    (note,) = found.notes
    assert note.startswith("PyTorchJob a: each of their pods starts by itself, as no group is named")


def test_a_scheduling_policy_makes_it_the_gang_that_the_operator_makes() -> None:
    for policy, n_nodes, starts in (({"minAvailable": 2}, 2, "now"), ({"queue": "q"}, 2, "not")):
        spec = {
            "pytorchReplicaSpecs": replicas(Master=1, Worker=2),
            "runPolicy": {"schedulingPolicy": policy},
        }
        found = asked(named("kubeflow.org/v1", "PyTorchJob", spec), nodes=n_nodes)
        assert gangs(found) == [("default/a", starts, 3)]
        assert "with the PodGroup that the operator makes" in found.notes[0]


def test_annotations_in_its_templates_make_it_a_gang_too() -> None:
    grouped = template(8)
    grouped["metadata"] = {
        "labels": {"gangsched.io/pod-group": "ours"},
        "annotations": {"gangsched.io/min-members": "3"},
    }
    roles = {role: {"replicas": n, "template": grouped} for role, n in (("Master", 1), ("Worker", 2))}
    found = asked(named("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": roles}))
    assert (gangs(found), found.notes) == ([("default/ours", "now", 3)], [])


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("TFJob", "tfReplicaSpecs"),
        ("XGBoostJob", "xgbReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
    ],
)
def test_their_like_are_read_by_their_own_field(kind: str, field: str) -> None:
    assert len(read(named("kubeflow.org/v1", kind, {field: replicas(Worker=2)})).pods) == 2
    with pytest.raises(ConfigError, match=rf"spec\.{field}: is missing"):
        read(named("kubeflow.org/v1", kind, {"replicaSpecs": {}}))


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_an_mpi_job_has_a_launcher_and_workers(version: str) -> None:
    spec = {
        "mpiReplicaSpecs": replicas(Launcher=1, Worker=2),
        "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
    }
    found = read(named(f"kubeflow.org/{version}", "MPIJob", spec))
    assert [pod.metadata.name for pod in found.pods] == ["a-launcher", "a-worker-0", "a-worker-1"]
    assert gangs(asked(named(f"kubeflow.org/{version}", "MPIJob", spec))) == [("default/a", "now", 3)]


# -- TrainJobs -----------------------------------------------------------------------------------------------


def of_runtime(kind: str = "ClusterTrainingRuntime", **spec: Any) -> Json:
    jobs = [
        {"name": "init", "template": {"spec": {"template": template(0)}}},
        {
            "name": "node",
            "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"template": template(4)},
            },
        },
    ]
    job_set = {"template": {"spec": {"replicatedJobs": jobs}}}
    return named(
        "trainer.kubeflow.org/v1alpha1",
        kind,
        {"mlPolicy": {"numNodes": 2, "torch": {}}, **job_set, **spec},
        name="torch",
    )


def train_job(**spec: Any) -> Json:
    return named("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, **spec})


def test_a_train_job_is_the_job_set_that_its_runtime_makes() -> None:
    found = asked(of_runtime(), train_job())
    assert gangs(found) == [("default/a", "now", 3)]
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {GPU: 8}}}
    pods = read(train_job(trainer=trainer), of_runtime()).pods
    assert [(pod.metadata.name, gpus_of(pod)) for pod in pods] == [
        ("a-init-0-0", 0),
        *((f"a-node-0-{k}", 8) for k in range(3)),
    ]


def test_its_runtime_is_looked_for_in_the_cluster() -> None:
    key = ("ClusterTrainingRuntime", "", "torch")
    assert list(runtimes_named(read_documents([("f", yaml.safe_dump(train_job()))]), "default")) == [key]
    assert len(read(train_job(), known=Cluster(runtimes={key: of_runtime()})).pods) == 3
    with pytest.raises(ConfigError, match=r"spec\.runtimeRef\.name: there is no Cluster\w+ 'torch'"):
        read(train_job())
    own = train_job(runtimeRef={"kind": "TrainingRuntime", "name": "torch"})
    assert len(read(of_runtime("TrainingRuntime"), own).pods) == 3
    with pytest.raises(ConfigError, match="there is no TrainingRuntime 'torch'"):
        read(of_runtime(), own)


def test_patches_of_a_train_job_reach_the_pods_that_they_name() -> None:
    change = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": change}}}}]
    patched = train_job(
        runtimePatches=[{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    )
    older = train_job(podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": change}])
    for job in (patched, older):
        pods = read(of_runtime(), job).pods
        selected = [pod.metadata.name for pod in pods if pod.spec.node_selector == {"disk": "ssd"}]
        assert selected == ["a-node-0-0", "a-node-0-1"]
        assert gpus_of(pods[1]) == 4, "the container is still there"


def test_a_runtimes_pod_group_policy_counts() -> None:
    policies: tuple[Json, ...] = ({"coscheduling": {"scheduleTimeoutSeconds": 60}}, {"volcano": {}})
    for policy in policies:
        found = read(of_runtime(podGroupPolicy=policy), train_job())
        (group,) = [one for one in found.others if isinstance(one, ev.PodGroupAdded)]
        assert (group.item.spec or {})["minMember"] == 3
        assert gangs(asked(of_runtime(podGroupPolicy=policy), train_job())) == [("default/a", "now", 3)]


def test_one_runtime_serves_several_jobs() -> None:
    other = {**train_job(trainer={"numNodes": 4}), "metadata": {"name": "b"}}
    found = read(of_runtime(), train_job(trainer={"numNodes": 1}), other)
    assert [pod.metadata.name.partition("-")[0] for pod in found.pods] == ["a"] * 2 + ["b"] * 5


class _Client:
    """An API server that has one runtime."""

    def __init__(self, code: int = 0, body: bytes = b"") -> None:
        self.asked: list[str] = []
        self._code, self._body = code, body

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        self.asked.append(path)
        if self._code:
            raise ApiError("no", code=self._code)
        return self._body


async def test_a_runtime_of_the_cluster_is_asked_for_by_its_path() -> None:
    client: Any = _Client(body=msgspec.json.encode(of_runtime()))
    assert await runtime(client, ("TrainingRuntime", "ml", "torch")) == of_runtime()
    assert await runtime(client, ("ClusterTrainingRuntime", "", "a/b")) is not None
    assert client.asked == [
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainingruntimes/torch",
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/a%2Fb",
    ]
    absent: Any = _Client(404)
    assert await runtime(absent, ("ClusterTrainingRuntime", "", "torch")) is None
    for wrong in (_Client(403), _Client(body=b"[")):
        refused: Any = wrong
        with pytest.raises(ApiError):
            await runtime(refused, ("ClusterTrainingRuntime", "", "torch"))


# -- others --------------------------------------------------------------------------------------------------


def test_a_run_of_a_cron_job_a_wrapper_and_a_list() -> None:
    job = {"completionMode": "Indexed", "parallelism": 2, "completions": 2, "template": template(8)}
    cron = named("batch/v1", "CronJob", {"schedule": "@daily", "jobTemplate": {"spec": job}})
    found = asked(cron)
    assert gangs(found) == [("default/a-run-0", "now", 1), ("default/a-run-1", "now", 1)]
    assert found.notes == ["CronJob a: one run of it is looked at"]
    wrapped = named("batch/v1", "Job", job, name="inner")
    wrapper = named(
        "workload.codeflare.dev/v1beta2",
        "AppWrapper",
        {"components": [{"template": named("v1", "ConfigMap")}, {"template": wrapped}]},
    )
    both = read({"apiVersion": "v1", "kind": "List", "items": [wrapper, cron]})
    assert [pod.metadata.name for pod in both.pods] == ["inner-0", "inner-1", "a-run-0", "a-run-1"]


def test_a_volcano_job_is_its_pod_group_and_pods() -> None:
    tasks = [
        {"name": "ps", "replicas": 1, "template": template(0, scheduler="")},
        {"name": "worker", "replicas": 3, "minAvailable": 2, "template": template(8, scheduler="")},
    ]
    job = named(
        "batch.volcano.sh/v1alpha1", "Job", {"schedulerName": "gangsched", "minAvailable": 3, "tasks": tasks}
    )
    assert gangs(asked(job)) == [("default/a", "now", 4)]
    assert gangs(asked(job, nodes=1)) == [("default/a", "not", 4)]


def test_a_suspended_job_is_looked_at_as_if_it_were_resumed() -> None:
    found = asked(named("batch/v1", "Job", {"suspend": True, "template": template(8)}))
    assert (gangs(found), found.notes) == (
        [("default/a-0", "now", 1)],
        ["Job a: suspended, and looked at as if it were not"],
    )


def test_a_field_without_a_value_is_as_good_as_absent() -> None:
    """As for the API server; a template's `metadata:` with nothing after it is usual."""
    spec = ray_cluster()
    spec["workerGroupSpecs"][0]["template"]["metadata"] = None
    spec["headGroupSpec"]["template"]["spec"]["nodeSelector"] = None
    assert gangs(asked(named("ray.io/v1", "RayCluster", spec))) == [("default/a", "now", 3)]


def test_what_is_of_the_cluster_gets_no_namespace() -> None:
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}
    found = read(named("v1", "PersistentVolume", volume), named("v1", "Namespace"), JOB)
    kept = [one.object for one in found.others if isinstance(one, ev.ObjectPut)]
    assert [one.metadata.namespace for one in kept] == ["", ""]


@pytest.mark.parametrize(
    "document",
    [
        named("ray.io/v1", "RayJob", {"rayClusterSpec": []}),
        named("ray.io/v1", "RayJob", {"rayClusterSpec": {"headGroupSpec": {"template": 3}}}),
        named("ray.io/v1", "RayService", {"rayClusterConfig": 1}),
        named(
            "ray.io/v1", "RayCluster", {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [3]}
        ),
        named("ray.io/v1", "RayCluster", ray_cluster(autoscalerOptions=[], enableInTreeAutoscaling=True)),
        named("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": [1]}}),
        named("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas(Worker=10**9)}),
        named("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": replicas(Worker=1), "runPolicy": 3}),
        named("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": "torch"}),
        named("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"kind": "Pod", "name": "x"}}),
        named("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": ["x"]}}),
        named("batch.volcano.sh/v1alpha1", "Job", {"tasks": {"a": 1}}),
        named("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": "x", "template": template()}]}),
        named("batch/v1", "CronJob", {"jobTemplate": {"spec": 3}}),
        named("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": None}]}),
        named(
            "workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": {"kind": "Pod"}}]}
        ),
    ],
    ids=lambda one: f"{one['kind']}-{len(str(one))}",
)
def test_a_mistake_in_any_of_them_is_an_error_with_its_place(document: Json) -> None:
    with pytest.raises(ConfigError) as caught:
        read(JOB, document)
    assert str(caught.value).startswith("job.yaml, document 2: ")


def test_a_mistake_in_a_runtime_is_an_error_too() -> None:
    for wrong in ({}, {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": 3}]}}}):
        runtime_of = named("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", wrong, name="torch")
        with pytest.raises(ConfigError, match="ClusterTrainingRuntime torch"):
            read(runtime_of, train_job())
