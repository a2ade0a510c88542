"""The other kinds that a user's files and kubectl bring along: accepted, completed, refused alike."""

from __future__ import annotations

from tests.contract.api import CORE, Api, Json
from tests.contract.objects import causes, unique
from tests.support.bodies import container

BATCH = "/apis/batch/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_namespaces(api: Api) -> None:
    name = unique("team")
    made = api.post(f"{CORE}/namespaces", {"metadata": {"name": name}}).ok(201)
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    marked = api.delete(f"{CORE}/namespaces/{name}").ok()
    assert marked["status"]["phase"] == "Terminating"
    assert marked["metadata"]["deletionTimestamp"]
    answer = api.post(f"{CORE}/namespaces/{name}/configmaps", {"metadata": {"name": "a"}})
    said = answer.no(
        403,
        "Forbidden",
        f'configmaps "a" is forbidden: unable to create new content in namespace {name} because it is being terminated',
    )
    assert causes(said)[0][0] == "NamespaceTerminating"
    # What a namespace's controller does once it is empty.
    marked["spec"]["finalizers"] = []
    api.put(f"{CORE}/namespaces/{name}/finalize", marked).ok()
    api.get(f"{CORE}/namespaces/{name}").no(404, "NotFound", f'namespaces "{name}" not found')


def test_the_namespaces_of_every_cluster(api: Api) -> None:
    names = {each["metadata"]["name"] for each in api.get(f"{CORE}/namespaces").ok()["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names
    answer = api.delete(f"{CORE}/namespaces/default")
    answer.no(403, "Forbidden", 'namespaces "default" is forbidden: this namespace may not be deleted')


def job(name: str = "j", **spec: object) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def test_a_job_gets_a_selector_of_its_own(api: Api) -> None:
    made = api.post(api.at("jobs", group=BATCH), job()).ok(201)
    uid = made["metadata"]["uid"]
    spec = made["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    counts = (
        "parallelism",
        "completions",
        "backoffLimit",
        "completionMode",
        "suspend",
        "podReplacementPolicy",
    )
    assert {key: spec[key] for key in counts} == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert made["metadata"]["generation"] == 1


def test_jobs_that_are_refused(api: Api) -> None:
    path = api.at("jobs", group=BATCH)
    wrong = job()
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    api.post(path, wrong).no(
        422,
        "Invalid",
        'Job.batch "j" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    )
    api.post(path, job(parallelism=-1)).no(
        422,
        "Invalid",
        'Job.batch "j" is invalid: spec.parallelism: Invalid value: -1: must be greater than or equal to 0',
    )
    api.post(path, job(parallelism=2, completions=2)).ok(201)
    answer = api.patch(api.at("jobs", "j", group=BATCH), {"spec": {"completions": 3}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert api.patch(api.at("jobs", "j", group=BATCH), {"spec": {"suspend": True}}).ok()["spec"]["suspend"]


def test_a_service_gets_an_address(api: Api) -> None:
    made = api.post(
        api.at("services"),
        {"metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}},
    ).ok(201)["spec"]
    assert made["clusterIP"].startswith("10.")
    assert made["clusterIPs"] == [made["clusterIP"]]
    assert made["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert (made["type"], made["sessionAffinity"]) == ("ClusterIP", "None")
    headless = api.post(
        api.at("services"), {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    ).ok(201)["spec"]
    assert headless["clusterIPs"] == ["None"]


def test_secrets_take_plain_text(api: Api) -> None:
    made = api.post(api.at("secrets"), {"metadata": {"name": "s"}, "stringData": {"a": "hi"}}).ok(201)
    assert (made["data"], made["type"]) == ({"a": "aGk="}, "Opaque")
    assert "stringData" not in made
    answer = api.post(api.at("secrets"), {"metadata": {"name": "t"}, "data": {"a": "not base64!"}})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


def test_settings_can_be_made_immutable(api: Api) -> None:
    api.post(api.at("configmaps"), {"metadata": {"name": "a"}, "data": {"a": "1"}, "immutable": True}).ok(201)
    api.patch(api.at("configmaps", "a"), {"data": {"a": "2"}}).no(
        422,
        "Invalid",
        'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set',
    )


def test_a_deployment_is_kept(api: Api) -> None:
    labels = {"app": "gangsched"}
    sent = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
        },
    }
    path = api.at("deployments", group="/apis/apps/v1")
    made = api.post(path, sent, fieldValidation="Strict").ok(201)
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"
    assert made["spec"]["progressDeadlineSeconds"] == 600
    changed = api.patch(f"{path}/d", {"spec": {"replicas": 3}}).ok()
    assert changed["metadata"]["generation"] == 2


def test_rights_are_kept(api: Api) -> None:
    role = {
        "metadata": {"name": "system:reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    made = api.post(api.at("roles", group=RBAC), role, fieldValidation="Strict").ok(201)
    assert made["rules"] == role["rules"]
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "system:reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "gangsched", "namespace": api.namespace}],
    }
    api.post(api.at("rolebindings", group=RBAC), binding).ok(201)
    other = {"roleRef": {**binding["roleRef"], "name": "other"}}  # type: ignore[dict-item]
    answer = api.patch(api.at("rolebindings", "b", group=RBAC), other)
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"].startswith(
        'RoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: Invalid value: '
    )


def test_a_disruption_budget(api: Api) -> None:
    path = api.at("poddisruptionbudgets", group="/apis/policy/v1")
    made = api.post(
        path,
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    ).ok(201)
    assert made["status"]["disruptionsAllowed"] == 0
    answer = api.post(path, {"metadata": {"name": "c"}, "spec": {"minAvailable": 1, "maxUnavailable": 1}})
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert "minAvailable and maxUnavailable cannot be both set" in answer.body["message"]


def test_who_am_i_and_may_i(api: Api) -> None:
    group = "/apis/authorization.k8s.io/v1"
    asked = {
        "spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "namespace": api.namespace}}
    }
    said = api.post(f"{group}/selfsubjectaccessreviews", asked).ok(201)
    assert said["status"]["allowed"] is True
    mine = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).ok(201)
    assert mine["status"]["userInfo"]["username"]
    assert "system:masters" in mine["status"]["userInfo"]["groups"]
    rules = api.post(f"{group}/selfsubjectrulesreviews", {"spec": {"namespace": api.namespace}}).ok(201)
    assert any(
        rule["verbs"] == ["*"] and rule["resources"] == ["*"] for rule in rules["status"]["resourceRules"]
    )
    api.get(f"{group}/selfsubjectaccessreviews").no(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def test_priority_classes_of_every_cluster(api: Api) -> None:
    found = api.get("/apis/scheduling.k8s.io/v1/priorityclasses").ok()["items"]
    values = {each["metadata"]["name"]: each["value"] for each in found}
    assert values["system-cluster-critical"] == 2000000000
    answer = api.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": unique("p")}, "value": 2000000000}
    )
    assert answer.code == 422
    assert answer.body["kind"] == "Status"


def test_claims_and_volumes(api: Api) -> None:
    claim = {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    made = api.post(api.at("persistentvolumeclaims"), claim).ok(201)
    assert made["status"] == {"phase": "Pending"}
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert made["spec"]["volumeMode"] == "Filesystem"
