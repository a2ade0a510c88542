"""What if: what a namespace's LimitRanges and ResourceQuotas set and refuse, as the API server does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.errors import ApiError, ConfigError
from gangsched.model import events as ev
from gangsched.whatif.admission import Limits
from gangsched.whatif.cluster import Cluster, limits_of
from gangsched.whatif.trial import Trial
from tests.support.scenario import cluster
from tests.whatif.test_counts import printed
from tests.whatif.test_trial import snapshot_of
from tests.whatif.test_whole_files import AS_INSTALLED, GPU, asked, gangs, named, read, template

Json = dict[str, Any]


def job(n_pods: int, **spec: Any) -> Json:
    return named(
        "batch/v1", "Job", {"parallelism": n_pods, "completions": n_pods, "template": template(8, **spec)}
    )


def quota(hard: Json, **spec: Any) -> Json:
    return named("v1", "ResourceQuota", {"hard": hard, **spec}, name="q")


def limit_range(**item: Any) -> Json:
    return named("v1", "LimitRange", {"limits": [{"type": "Container", **item}]}, name="l")


def of_cluster(*objects: Json) -> Cluster:
    by_kind: dict[str, dict[tuple[str, str], Json]] = {"LimitRange": {}, "ResourceQuota": {}}
    for one in objects:
        by_kind[one["kind"]]["default", one["metadata"]["name"]] = one
    return Cluster(limits=Limits(by_kind["LimitRange"], by_kind["ResourceQuota"]))


@pytest.mark.parametrize("hard", [{f"requests.{GPU}": 24}, {"pods": "3"}, {"count/pods": 3}])
def test_pods_over_a_quota_of_the_file_are_not_counted_as_starting(hard: Json) -> None:
    found = asked(job(4), quota(hard))
    assert [one for one in gangs(found) if one[1] == "now"] == [
        (f"default/a-{k}", "now", 1) for k in range(3)
    ]
    (refused,) = [one for one in found.gangs if one.starts == "unread"]
    assert (refused.name, refused.unplaced) == ("default/a", ["a-3"])
    assert refused.problem.startswith("the API server would refuse 1 pod of it: ResourceQuota q: ")
    assert not found.starts_now
    assert "24 at most, 24 used, 8 more asked" in printed(found) or "3 at most, 3 used" in printed(found)


def test_what_is_in_use_counts_and_a_file_changes_the_limit_alone() -> None:
    there = quota({f"requests.{GPU}": 16}) | {"status": {"used": {f"requests.{GPU}": "16"}}}
    found = asked(job(1), known=of_cluster(there))
    assert gangs(found) == [("default/a", "unread", 1)]
    raised = asked(job(1), quota({f"requests.{GPU}": 24}), known=of_cluster(there))
    assert gangs(raised) == [("default/a-0", "now", 1)]
    with_two = asked(job(2), quota({f"requests.{GPU}": 24}), known=of_cluster(there))
    assert gangs(with_two) == [("default/a-0", "now", 1), ("default/a", "unread", 1)]


def test_a_gang_of_which_a_pod_is_refused_does_not_start() -> None:
    jobs = [
        {"name": "w", "template": {"spec": {"parallelism": 4, "completions": 4, "template": template(8)}}}
    ]
    job_set = named("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})
    found = asked(job_set, quota({"pods": 3}))
    assert [(one.name, one.starts) for one in found.gangs] == [("default/a", "not"), ("default/a", "unread")]
    assert found.gangs[0].why is not None
    assert "3 of 4 members exist" in found.gangs[0].why.answer


def test_a_quota_demands_that_each_container_states_what_it_limits() -> None:
    (refused,) = asked(job(1), quota({"limits.memory": "64Gi"})).gangs
    assert refused.problem.endswith("ResourceQuota q: must specify limits.memory for node")
    defaulted = asked(job(1), quota({"limits.memory": "64Gi"}), limit_range(default={"memory": "32Gi"}))
    assert gangs(defaulted) == [("default/a-0", "now", 1)]
    (refused,) = asked(
        job(1), quota({"limits.memory": "64Gi"}), limit_range(default={"memory": "65Gi"})
    ).gangs
    assert "limits.memory: 64Gi at most, 0 used, 65Gi more asked" in refused.problem


@pytest.mark.parametrize(
    ("scopes", "spec", "is_refused"),
    [
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, True),
        ({"scopes": ["BestEffort"]}, {}, False),
        ({"scopes": ["NotBestEffort"]}, {}, True),
        ({"scopes": ["PriorityClass"]}, {}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "Other", "operator": "Exists"}]}}, {}, False),
    ],
)
def test_a_scope_says_which_pods_a_quota_is_for(scopes: Json, spec: Json, is_refused: bool) -> None:
    found = asked(job(1, **spec), quota({"pods": 0}, **scopes))
    assert (gangs(found)[0][1] == "unread") == is_refused


@pytest.mark.parametrize(
    ("operator", "values", "is_refused"),
    [("In", ["high"], True), ("In", ["low"], False), ("NotIn", ["low"], True), ("Exists", None, True)],
)
def test_a_scope_by_class_reads_the_class_that_is_admitted(
    operator: str, values: list[str] | None, is_refused: bool
) -> None:
    """The default class counts too: the API server writes it into the pod before quotas are looked at."""
    match = {"scopeName": "PriorityClass", "operator": operator, **({"values": values} if values else {})}
    by_class = quota({"pods": 0}, scopeSelector={"matchExpressions": [match]})
    high = named("scheduling.k8s.io/v1", "PriorityClass", name="high", value=9, globalDefault=True)
    for one in (job(1), job(1, priorityClassName="high")):
        assert (gangs(asked(high, by_class, one))[0][1] == "unread") == is_refused


def test_a_limit_range_sets_what_a_container_does_not_state() -> None:
    (pod,) = read(
        job(1), limit_range(default={"cpu": "4"}, defaultRequest={"cpu": "2", "memory": "1Gi"})
    ).pods
    (container,) = pod.spec.containers
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "2", "memory": "1Gi", GPU: 8}
    (pod,) = read(job(1), limit_range(max={"cpu": "4"})).pods
    assert pod.spec.containers[0].resources is not None
    assert (pod.spec.containers[0].resources.requests or {})["cpu"] == "4", "its maximum, without a default"
    elsewhere = limit_range(default={"cpu": "4"})
    elsewhere["metadata"]["namespace"] = "other"
    (pod,) = read(job(1), elsewhere).pods
    assert pod.spec.containers[0].resources is not None
    assert "cpu" not in (pod.spec.containers[0].resources.requests or {})


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ({"max": {GPU: 4}}, f"LimitRange: at most 4 {GPU} a Container, its limit is 8"),
        ({"min": {GPU: 16}}, f"LimitRange: at least 16 {GPU} a Container, its request is 8"),
        ({"type": "Pod", "max": {GPU: 4}}, f"LimitRange: at most 4 {GPU} a Pod, its limit is 8"),
        ({"type": "Pod", "max": {"cpu": 4}}, "LimitRange: at most 4 cpu a Pod, no limit is stated"),
    ],
)
def test_a_pod_outside_a_range_is_refused(item: Json, error: str) -> None:
    (refused,) = asked(job(1), limit_range(**item)).gangs
    assert refused.problem == f"the API server would refuse 1 pod of it: {error}"


def test_init_containers_and_sidecars_count_as_kubernetes_counts_them() -> None:
    def container(name: str, gpus: int, **more: Any) -> Json:
        return {"name": name, "image": "i", "resources": {"limits": {GPU: gpus}}, **more}

    spec = template(2)["spec"]
    spec["initContainers"] = [container("a", 1, restartPolicy="Always"), container("b", 5), container("c", 3)]
    pod = named("v1", "Pod", spec)
    assert gangs(asked(pod, quota({f"requests.{GPU}": 6})))[0][1] == "now", "5 beside the sidecar's 1"
    assert gangs(asked(pod, quota({f"requests.{GPU}": 5})))[0][1] == "unread"


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (quota({"pods": "many"}), r"document 2: spec\.hard\.pods: 'many' is not a quantity"),
        (quota([]), r"document 2: spec\.hard: is missing, or is not an object"),  # type: ignore[arg-type]
        (quota({}, scopes=3), r"document 2: spec\.scopes: is not a list"),
        (
            quota({}, scopeSelector={"matchExpressions": [1]}),
            r"spec\.scopeSelector\.matchExpressions: is missing",
        ),
        (limit_range(default={"cpu": "x"}), r"document 2: spec\.limits\[0\]\.default\.cpu: 'x' is not"),
        (named("v1", "LimitRange", {"limits": 3}), r"document 2: spec\.limits: is missing"),
        (quota({f"r{k}": 1 for k in range(1001)}), "names 1001 resources, at most 1000"),
    ],
)
def test_a_mistake_in_them_is_named_with_its_place(document: Json, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        read(job(1), document)


def test_an_unreadable_quantity_in_a_pod_is_an_error_of_the_pod() -> None:
    broken = job(1)
    broken["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: "x"}}
    with pytest.raises(ConfigError, match="pod a-0: "):
        read(broken, quota({f"requests.{GPU}": 1}))


class _Client:
    def __init__(self, bodies: dict[str, bytes]) -> None:
        self._bodies = bodies

    async def get(self, path: str, *, timeout_s: float) -> bytes:
        return self._bodies[path.rpartition("/")[2]]


async def test_those_of_the_cluster_are_listed_by_namespace() -> None:
    empty = msgspec.json.encode({"items": []})
    client: Any = _Client(
        {"limitranges": empty, "resourcequotas": msgspec.json.encode({"items": [quota({"pods": 1})]})}
    )
    assert await limits_of(client, "ml") == Limits({}, {("ml", "q"): quota({"pods": 1})})
    for wrong in (b"[", b'{"items": [3]}'):
        broken: Any = _Client({"limitranges": empty, "resourcequotas": wrong})
        with pytest.raises(ApiError, match="resourcequotas"):
            await limits_of(broken, "ml")


def test_a_namespace_keeps_the_labels_that_the_file_does_not_name() -> None:
    """Else the file's Namespace would lift what its label says about gangs and what selects it."""

    def labels(**given: str) -> Json:
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": given}}

    there, applied = [
        next(one for one in read(labels(**given), job(1)).others if isinstance(one, ev.ObjectPut))
        for given in ({"team": "a", "tier": "1"}, {"tier": "2"})
    ]
    trial = Trial(snapshot_of(cluster(nodes=1), AS_INSTALLED), 1.0)
    there.object.metadata.uid = "as the cluster gave it"
    trial.core.handle([there], 1.0)
    trial.submit((), [applied])
    kept = trial.core.shared.cache.objects.objects("namespaces")["", "ml"].metadata.labels
    assert kept == {"team": "a", "tier": "2", "kubernetes.io/metadata.name": "ml"}
