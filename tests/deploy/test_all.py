"""deploy/all, the one command for a cluster: the sum of its parts, accepted whole, traced into its Jaeger."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from gangsched import __version__
from gangsched.lab.controlplane.assets import JAEGER_VERSION, Assets
from gangsched.lab.controlplane.processes import ControlPlane
from tests.conftest import found_jaeger
from tests.deploy.conftest import DEPLOY
from tests.deploy.doors import Json
from tests.deploy.generate_chart import kustomize, objects
from tests.deploy.test_chart import by_name, find
from tests.deploy.test_chart_installed import Installed, config_maps
from tests.real.process import Scheduler, service_account
from tests.real.traced import trace_of

pytestmark = pytest.mark.real

ALL = DEPLOY / "all"
NAMESPACE = "gangsched-system"
OTLP, QUERY = 4318, 16686


def container_of(documents: list[Json], name: str) -> Json:
    """The one container of a Deployment."""
    [found] = by_name(documents)["Deployment", NAMESPACE, name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(container: Json) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", ())}


def test_it_is_the_sum_of_its_parts(assets: Assets) -> None:
    parts = by_name(objects(kustomize(DEPLOY)) + objects(kustomize(DEPLOY / "agent")))
    tracing = list(yaml.safe_load_all((DEPLOY / "tracing" / "jaeger.yaml").read_text()))
    all_ = by_name(objects(kustomize(ALL)))
    scheduler = all_["Deployment", NAMESPACE, "gangsched"]["spec"]["template"]["spec"]["containers"][0]
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in environment(scheduler)
    del scheduler["env"]
    assert all_ == {**parts, **by_name(tracing)}


def test_its_image_is_this_version_for_scheduler_and_agents(assets: Assets) -> None:
    documents = objects(kustomize(ALL))
    agent = find(documents, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    for container in (container_of(documents, "gangsched"), agent):
        assert container["image"] == f"gangsched:{__version__}"
    assert container_of(documents, "gangsched-jaeger")["image"].endswith(
        f":{JAEGER_VERSION.removeprefix('v')}"
    )


def test_the_traces_go_where_jaeger_listens_and_is_let_in(assets: Assets) -> None:
    documents = objects(kustomize(ALL))
    url = urlsplit(environment(container_of(documents, "gangsched"))["OTEL_EXPORTER_OTLP_ENDPOINT"])
    service = find(documents, "Service", "gangsched-jaeger")
    assert (url.hostname, url.port) == (f"{service['metadata']['name']}.{NAMESPACE}.svc", OTLP)
    listens = {
        one["name"]: one["containerPort"] for one in container_of(documents, "gangsched-jaeger")["ports"]
    }
    assert {one["port"]: listens[one["targetPort"]] for one in service["spec"]["ports"]} == {
        OTLP: OTLP,
        QUERY: QUERY,
    }
    pods = by_name(documents)
    jaeger = pods["Deployment", NAMESPACE, "gangsched-jaeger"]["spec"]["template"]["metadata"]["labels"]
    scheduler = pods["Deployment", NAMESPACE, "gangsched"]["spec"]["template"]["metadata"]["labels"]
    policy = pods["NetworkPolicy", NAMESPACE, "gangsched-jaeger"]["spec"]
    assert service["spec"]["selector"].items() <= jaeger.items()
    assert policy["podSelector"]["matchLabels"].items() <= jaeger.items()
    [rule] = policy["ingress"]
    assert [one["port"] for one in rule["ports"]] == [OTLP]
    assert [one["podSelector"]["matchLabels"].items() <= scheduler.items() for one in rule["from"]] == [True]


def test_it_is_accepted_and_a_gang_is_traced(plane: ControlPlane, tmp_path: Path) -> None:
    cluster = Installed(plane, tmp_path)
    try:
        cluster.nodes(2, gpus=8)  # before the policies, which let agents alone list devices
        plane.kubectl("apply", "-k", str(ALL), "--validate=strict")
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangsched"
        generation = plane.request("GET", path)["metadata"]["generation"]
        plane.kubectl("apply", "-k", str(ALL), "--validate=strict")
        assert plane.request("GET", path)["metadata"]["generation"] == generation
        _the_namespace_admits_its_pods(plane)
        cluster.set_up()
        [made] = config_maps(plane)
        (tmp_path / "scheduler.yaml").write_text(made["data"]["scheduler.yaml"])
        account = service_account(plane, tmp_path / "account.yaml")
        jaeger_env = environment(container_of(objects(kustomize(ALL)), "gangsched-jaeger"))
        with found_jaeger(jaeger_env) as jaeger:
            env = {"OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.endpoint}  # by its Service in a cluster
            log = tmp_path / "scheduler.log"
            cluster.schedulers.append(Scheduler(tmp_path / "scheduler.yaml", account, log, env=env))
            cluster.gang("train", pods=2, gpus=8, dialect="core")
            cluster.whole("train")
            tree = trace_of(cluster, jaeger, cluster.members("train")[0])
            assert len(tree.named("Bind")) == 1
            cluster.check()
    finally:
        cluster.close()


def _the_namespace_admits_its_pods(plane: ControlPlane) -> None:
    """The restricted standard is enforced there, for Jaeger too."""
    for name in ("gangsched", "gangsched-jaeger"):
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
        template = plane.request("GET", path)["spec"]["template"]
        pod = {**template, "metadata": {**template["metadata"], "name": "one"}}
        plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All&fieldValidation=Strict", pod)


@pytest.mark.parametrize("storage", ["memory", "badger"])
def test_jaeger_starts_with_either_storage(assets: Assets, tmp_path: Path, storage: str) -> None:
    env = environment(container_of(objects(kustomize(ALL)), "gangsched-jaeger"))
    env["SPAN_STORAGE_TYPE"] = storage
    for name, value in env.items():
        if value.startswith("/badger/"):
            env[name] = str(tmp_path / value.removeprefix("/badger/"))
    with found_jaeger(env) as jaeger:
        assert jaeger.traces(service="none") == []
    assert (tmp_path / "values").is_dir() is (storage == "badger")
