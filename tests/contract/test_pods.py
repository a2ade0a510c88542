"""Pods as they are accepted: what is filled in, what is admitted, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.api import CORE, Api, Json
from tests.contract.objects import gated, unique
from tests.support.bodies import container, node, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{why}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for why in ("not-ready", "unreachable")
]


def test_what_is_filled_in(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a")).ok(201)
    assert made["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": TOLERATIONS,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


def test_what_is_filled_in_around_more(api: Api) -> None:
    main = container(
        image="busybox:1.36",
        ports=[{"containerPort": 80}],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        readinessProbe={"httpGet": {"port": 80}},
        resources={"limits": {"cpu": "0.5", "memory": "1024Mi", "nvidia.com/gpu": 8}},
    )
    volumes = [{"name": "c", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}}]
    made = api.post(api.at("pods"), pod("a", containers=[main], volumes=volumes)).ok(201)
    [shown] = made["spec"]["containers"]
    assert shown["imagePullPolicy"] == "IfNotPresent"
    assert shown["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert shown["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert shown["readinessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    quantities = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "8"}
    assert shown["resources"] == {"limits": quantities, "requests": quantities}
    assert made["spec"]["volumes"] == [
        {"name": "c", "configMap": {"name": "c", "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]
    assert made["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(api: Api, resources: Json, quality: str) -> None:
    made = api.post(api.at("pods"), pod("a", containers=[container(resources=resources)])).ok(201)
    assert made["status"]["qosClass"] == quality


def test_a_gated_pod_reports_that(api: Api) -> None:
    made = api.post(api.at("pods"), gated("a")).ok(201)
    [condition] = made["status"]["conditions"]
    assert {key: condition[key] for key in ("type", "status", "reason", "message")} == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def test_a_status_sent_along_is_dropped(api: Api) -> None:
    made = api.post(api.at("pods"), {**pod("a"), "status": {"phase": "Running"}}).ok(201)
    assert made["status"]["phase"] == "Pending"


def test_priority_comes_from_its_class(api: Api) -> None:
    name = unique("important")
    api.post(CLASSES, {"metadata": {"name": name}, "value": 77, "preemptionPolicy": "Never"}).ok(201)
    # Admission of the real server reads classes from a watch.
    first = api.eventually(lambda: api.post(api.at("pods"), pod("a", priorityClassName=name)), 201)
    made = first.ok(201)["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (77, "Never")
    made = api.post(api.at("pods"), pod("b", priorityClassName="system-node-critical")).ok(201)["spec"]
    assert made["priority"] == 2000001000
    api.post(api.at("pods"), pod("c", priorityClassName="nobody")).no(
        403, "Forbidden", 'pods "c" is forbidden: no PriorityClass with name nobody was found'
    )
    api.post(api.at("pods"), pod("c", priority=5)).no(
        403,
        "Forbidden",
        'pods "c" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name',
    )


def test_a_pod_may_come_with_its_node(api: Api) -> None:
    made = api.post(api.at("pods"), pod("a", nodeName="some-node")).ok(201)
    assert made["spec"]["nodeName"] == "some-node"


BAD: tuple[tuple[Json, str], ...] = (
    ({"containers": []}, "spec.containers: Required value"),
    ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
    (
        {"containers": [container("a"), container("a")]},
        'spec.containers[1].name: Duplicate value: "a"',
    ),
    (
        {"containers": [container("A")]},
        "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    ),
    (
        {"restartPolicy": "Sometimes"},
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    (
        {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        {"containers": [container(resources={"requests": {"nvidia.com/gpu": "1"}})]},
        "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    (
        {"containers": [container(resources={"limits": {"nvidia.com/gpu": "500m"}})]},
        '[spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer, spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer]',
    ),
    (
        {"containers": [container(resources={"requests": {"cpu": "-1"}})]},
        'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        {"tolerations": [{"key": "a", "operator": "Equals"}]},
        'spec.tolerations[0].operator: Unsupported value: "Equals": supported values: "Equal", "Exists"',
    ),
    (
        {"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]},
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    (
        {"schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/c"}]},
        'spec.schedulingGates[1]: Duplicate value: "a.b/c"',
    ),
    (
        {"schedulingGates": [{"name": "a.b/c"}], "nodeName": "n"},
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    (
        {"terminationGracePeriodSeconds": -1, "activeDeadlineSeconds": 0},
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
)


@pytest.mark.parametrize(
    ("spec", "problem"), BAD, ids=[problem.partition(":")[0] + str(at) for at, (_, problem) in enumerate(BAD)]
)
def test_pods_that_are_refused(api: Api, spec: Any, problem: str) -> None:
    api.post(api.at("pods"), pod("a", **spec)).no(422, "Invalid", f'Pod "a" is invalid: {problem}')


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"containers": [container(resources={"requests": {"cpu": "lots"}})]},
            "quantities must match the regular expression",
        ),
        (
            {"containers": [container(resources={"requests": {"cpu": "1e99999999999999999999"}})]},
            "unable to parse quantity's suffix",
        ),
        ({"containers": "one"}, "json: cannot unmarshal string into Go struct field"),
        ({"hostNetwork": "yes"}, "json: cannot unmarshal string into Go struct field"),
        ({"priority": "high"}, "json: cannot unmarshal string into Go struct field"),
    ],
)
def test_pods_that_cannot_be_read(api: Api, spec: Any, says: str) -> None:
    answer = api.post(api.at("pods"), pod("a", **spec))
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert answer.body["message"].startswith('Pod in version "v1" cannot be handled as a Pod: ')
    assert says in answer.body["message"]


def test_nodes_are_registered(api: Api) -> None:
    name = unique("node")
    made = api.post(
        f"{CORE}/nodes", node(name, labels={"rack": "r1"}, annotations={"gangsched.io/devices": "{}"})
    ).ok(201)
    # As the TaintNodesByCondition plugin is off in the control plane of the tests, taints are not compared.
    assert "providerID" not in made["spec"]
    room = {"cpu": "64", "memory": "512Gi", "pods": 110, "nvidia.com/gpu": 8}
    status = {"capacity": room, "allocatable": room}
    changed = api.patch(f"{CORE}/nodes/{name}/status", {"status": status}).ok()["status"]
    assert changed["allocatable"] == {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    cordoned = api.patch(f"{CORE}/nodes/{name}", {"spec": {"unschedulable": True}}).ok()
    assert cordoned["spec"]["unschedulable"] is True
    found = api.get(f"{CORE}/nodes", fieldSelector="spec.unschedulable=true").ok()["items"]
    assert name in [each["metadata"]["name"] for each in found]
    taint = {"key": "a", "value": "b", "effect": "Sometimes"}
    answer = api.patch(f"{CORE}/nodes/{name}", {"spec": {"taints": [taint]}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    api.delete(f"{CORE}/nodes/{name}").ok()


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_a_pod_without_a_node_cannot_be_reached_into(api: Api, subresource: str) -> None:
    api.post(api.at("pods"), pod("a")).ok(201)
    answer = api.post(api.at("pods", "a", subresource), None, command="ls", stdin="true")
    answer.no(400, "BadRequest", "pod a does not have a host assigned")
