"""What the options of the kinds switch on, and what no recording can say: reviews of this server's own user,
kinds without their protection finalizers, refusals that print a type of Go's."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.kinds import bootstrap, builtin_strategies
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.strategy import Object
from tests.apiserver.kinds.embedded import Embedded


def registry(**options: bool) -> Registry:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    made = Registry(now=lambda: now, rng=Random(7), strategies=builtin_strategies(**options))
    bootstrap(made)
    return made


def pod(name: str = "p", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "c"}], **spec}}


def test_pods_run_as_the_account_default_where_that_is_switched_on() -> None:
    made = registry(service_accounts=True)
    item = made.create(made.resource("pods"), pod(), namespace="default")
    assert item.decode()["spec"]["serviceAccountName"] == "default"
    item = made.create(made.resource("pods"), pod("q", serviceAccountName="robot"), namespace="default")
    assert item.decode()["spec"]["serviceAccountName"] == "robot"


def test_a_new_node_is_tainted_where_that_is_switched_on() -> None:
    made = registry(not_ready_taint=True)
    item = made.create(made.resource("nodes"), {"metadata": {"name": "n"}})
    assert item.decode()["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]


@pytest.mark.parametrize("protection", [True, False])
def test_a_core_pod_group_is_protected_unless_that_is_switched_off(protection: bool) -> None:
    made = registry(podgroup_protection=protection)
    groups = made.resource("podgroups.scheduling.k8s.io")
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    made.create(groups, {"metadata": {"name": "g"}, "spec": spec}, namespace="default")
    assert (made.delete(groups, "default", "g") is not None) == protection


@pytest.mark.parametrize("keeps", [True, False])
def test_a_core_pod_group_keeps_its_claims_where_that_is_switched_on(keeps: bool) -> None:
    made = registry(podgroup_claims=keeps)
    groups = made.resource("podgroups.scheduling.k8s.io")
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": claims}
    item = made.create(groups, {"metadata": {"name": "g"}, "spec": spec}, namespace="default")
    assert item.decode()["spec"].get("resourceClaims") == (claims if keeps else None)


def test_bootstrap_may_come_twice() -> None:
    made = registry()
    bootstrap(made)
    assert made.store.count("/namespaces") == 4
    assert made.store.count("scheduling.k8s.io/priorityclasses") == 2


def test_a_bound_pod_can_be_found_by_its_node() -> None:
    made = registry()
    item = made.create(made.resource("pods"), pod(nodeName="n1"), namespace="default")
    assert item.fields["spec.nodeName"] == "n1"
    assert item.fields["status.phase"] == "Pending"


def test_a_claim_goes_when_the_last_pod_that_mounts_it_is_gone() -> None:
    made = registry()
    claims, pods = made.resource("persistentvolumeclaims"), made.resource("pods")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    item = made.create(claims, {"metadata": {"name": "data"}, "spec": spec}, namespace="default")
    assert item.decode()["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    made.create(pods, pod(volumes=[volume]), namespace="default")

    assert made.delete(claims, "default", "data") is not None
    assert made.find(claims, "default", "data") is not None
    made.delete(pods, "default", "p")
    assert made.find(claims, "default", "data") is None


def test_a_volume_that_nothing_is_bound_to_goes_when_it_is_deleted() -> None:
    made = registry()
    volumes = made.resource("persistentvolumes")
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    made.create(volumes, {"metadata": {"name": "v"}, "spec": spec})
    made.delete(volumes, "", "v")
    assert made.find(volumes, "", "v") is None


def test_a_services_addresses_are_its_own() -> None:
    embedded = Embedded()
    services = "/api/v1/namespaces/default/services"
    addresses = {
        embedded.send("POST", services, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})[1][
            "spec"
        ]["clusterIP"]
        for name in ("a", "b", "c")
    }
    assert len(addresses) == 3


def test_who_am_i_and_what_may_i() -> None:
    embedded = Embedded()
    code, me = embedded.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert (code, me["status"]["userInfo"]["username"]) == (200, "system:admin")
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = embedded.send("POST", path, {"spec": {"namespace": "default"}})[1]["status"]
    assert rules["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


def test_a_jobs_template_stays_but_a_suspended_one_may_be_sent_elsewhere() -> None:
    embedded = Embedded()
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}}
    for name, suspend in (("runs", False), ("waits", True)):
        body = {"metadata": {"name": name}, "spec": {"template": template, "suspend": suspend}}
        assert embedded.send("POST", jobs, body)[0] == 200
    elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}}
    kind = "application/merge-patch+json"
    code, refused = embedded.send("PATCH", f"{jobs}/runs", elsewhere, kind)
    assert (code, [each["field"] for each in refused["details"]["causes"]]) == (422, ["spec.template"])
    assert embedded.send("PATCH", f"{jobs}/waits", elsewhere, kind)[0] == 200


def test_the_difference_that_a_refused_pod_update_prints_names_the_field() -> None:
    embedded = Embedded()
    pods = "/api/v1/namespaces/default/pods"
    embedded.send("POST", pods, pod())
    code, refused = embedded.send(
        "PATCH", f"{pods}/p", {"spec": {"schedulerName": "x"}}, "application/merge-patch+json"
    )
    assert code == 422
    assert '- "schedulerName": "default-scheduler"' in refused["message"]
    assert '+ "schedulerName": "x"' in refused["message"]


@pytest.mark.parametrize(
    ("method", "subresource", "refused"),
    [
        ("GET", "log", "cannot read logs of"),
        ("GET", "exec", "cannot run a command in"),
        ("POST", "exec", "cannot run a command in"),
        ("POST", "attach", "cannot attach to"),
        ("POST", "portforward", "cannot forward a port to"),
    ],
)
def test_what_would_reach_into_a_pod_is_a_clear_no(method: str, subresource: str, refused: str) -> None:
    embedded = Embedded()
    pods = "/api/v1/namespaces/default/pods"
    embedded.send("POST", pods, pod(nodeName="n1"))
    code, said = embedded.send(method, f"{pods}/p/{subresource}", None)
    assert (code, said["reason"]) == (501, "NotImplemented")
    why = "the nodes of this cluster are simulated, nothing runs in its pods"
    assert said["message"] == f"{refused} pod default/p: {why}"
    assert embedded.send(method, f"{pods}/nobody/{subresource}", None)[0] == 404


def test_a_dry_run_of_a_binding_still_refuses() -> None:
    made = registry()
    made.create(made.resource("pods"), pod(nodeName="n1"), namespace="default")
    context = made.context(made.resource("pods"), "default", "p")
    context.subresource, context.dry_run = "binding", True
    body = {"metadata": {"name": "p"}, "target": {"name": "n2"}}
    with pytest.raises(StatusError, match='pod p is already assigned to node "n1"'):
        made.strategy(made.resource("pods")).create_subresource(body, context)
