"""The Helm chart is what kustomize makes of deploy/, changed as values say; wrong values are refused."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched import __version__
from gangsched.agent.settings import AgentFlags, parse_parts
from gangsched.config import parse_config
from gangsched.errors import ConfigError
from gangsched.plugins import IN_TREE
from tests.deploy.generate_chart import CHART, COMPONENTS, DEPLOY, kustomize, objects, stale
from tests.deploy.helm import NAMESPACE, RELEASE, Helm, Refused, found_helm

Json = dict[str, Any]
SPREAD = [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}]
SELECTOR_SPREAD = {"score": {"enabled": [{"name": "SelectorSpread"}]}}
AGENT_VALUES = {"nvidia": "nvidia", "load": "load", "labels": "labels", "device-plugin": "devicePlugin"}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return found_helm(tmp_path_factory.mktemp("helm"))


def by_name(documents: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Each object by kind, namespace and name; no two have the same."""
    found = {(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]): d for d in documents}
    assert len(found) == len(documents)
    return found


def find(documents: list[Json], kind: str, name: str = "") -> Json:
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    return found


def names(documents: list[Json]) -> set[tuple[str, str]]:
    return {(d["kind"], d["metadata"]["name"]) for d in documents}


# -- the same as kustomize's ---------------------------------------------------------------------------


def test_what_the_chart_has_from_deploy_is_of_today() -> None:
    try:
        changed = list(stale())
    except ConfigError as error:
        pytest.skip(f"no kubectl: {error}")
    assert not changed, "run `make chart`"


def test_by_default_it_is_the_base_but_for_the_namespace_that_helm_makes(helm: Helm) -> None:
    base = by_name(objects(kustomize(DEPLOY)))
    namespace = base.pop(("Namespace", "", NAMESPACE))
    assert by_name(helm.rendered()) == base
    assert by_name(helm.rendered(namespace__create=True)) == {**base, ("Namespace", "", NAMESPACE): namespace}


@pytest.mark.parametrize(
    "parts", [some for n in range(len(COMPONENTS) + 1) for some in combinations(COMPONENTS, n)], ids="+".join
)
def test_the_agent_is_what_its_components_make_of_it(
    helm: Helm, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    here = tmp_path / "agent"
    here.mkdir()
    upward = "../" * len(here.parts[1:]) + str(DEPLOY).lstrip("/")
    combined = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{upward}/agent"],
        # In the order in which the chart applies them, which is that of their lists' new entries.
        "components": [f"{upward}/agent-{part}/component" for part in sorted(parts)],
    }
    (here / "kustomization.yaml").write_text(yaml.safe_dump(combined))
    values = {f"agent__{AGENT_VALUES[part]}": True for part in parts}
    rendered = by_name(helm.rendered(agent__enabled=True, **values))
    without = by_name(helm.rendered())
    assert {key: one for key, one in rendered.items() if key not in without} == by_name(
        objects(kustomize(here))
    )


@pytest.mark.parametrize(
    ("overlay", "values"),
    [
        ("device-plugin-hand-off", {"config__gangsched": {"devices": {"repairAnnotations": True}}}),
        ("infer-jobs", {"config__gangsched": {"inferGangs": ["JobSet", "Job"]}}),
        ("infer-jobs", {"config__gangsched": {"profiles": [{"schedulerName": "a", "inferGangs": ["Job"]}]}}),
        ("default-spreading", {"config__scheduler": {"profiles": [{"schedulerName": "a"}, {}]}}),
        (
            "default-spreading",
            {"config__scheduler": {"profiles": [{"pluginConfig": SPREAD, "plugins": SELECTOR_SPREAD}]}},
        ),
        ("metrics-server", {"metricsServer__enabled": True}),
        ("env-hand-off", {"policies__envHandOff__enabled": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_overlays_come_by_value(helm: Helm, overlay: str, values: Json) -> None:
    rendered, without = by_name(helm.rendered(**values)), by_name(helm.rendered())
    added = {key: one for key, one in rendered.items() if key not in without and key[0] != "ConfigMap"}
    assert added == by_name(objects(kustomize(DEPLOY / overlay)))


def test_its_version_is_gangscheds() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


# -- values --------------------------------------------------------------------------------------------


def paths(values: Json, at: str = "") -> Iterator[str]:
    """Every value that values.yaml has, as a path; a map that is empty there is a value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from paths(value, f"{at}{key}.")
        else:
            yield f"{at}{key}"


def known(schema: Json, at: str = "") -> Iterator[str]:
    for key, one in schema["properties"].items():
        if "properties" in one:
            yield from known(one, f"{at}{key}.")
        elif one.get("$ref") == "#/$defs/switch":
            yield f"{at}{key}.enabled"
        else:
            yield f"{at}{key}"


def test_every_value_is_documented_and_known_to_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(paths(values)) == set(known(schema)) - {"global"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"image": {"tg": "1"}}, "at '/image': additional properties 'tg' not allowed"),
        ({"image__digest": "sha256:1"}, "at '/image/digest': 'sha256:1' does not match pattern"),
        ({"image__repository": ""}, "at '/image/repository'"),
        ({"image__repository": "r.example:5000/gangsched:1"}, "what follows the last colon is image.tag"),
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
        ({"scheduler__replicas": "two"}, "at '/scheduler/replicas': got string, want integer"),
        ({"scheduler__resources": {"limit": {}}}, "at '/scheduler/resources': additional properties 'limit'"),
        ({"scheduler__extraArgs": ["v=2"]}, "at '/scheduler/extraArgs/0': 'v=2' does not match pattern"),
        (
            {"config__gangsched": {"settleSecond": 9}},
            "at '/config/gangsched': additional properties 'settleSecond'",
        ),
        ({"config__gangsched": {"onPartialBind": "undo"}}, "must be one of 'complete', 'unwind'"),
        ({"config__scheduler": {"profiles": [{"name": "a"}]}}, "at '/config/scheduler/profiles/0'"),
        ({"agent": {"config": {"load": {"enabled": "yes"}}}}, "at '/agent/config/load/enabled': got string"),
        ({"policies__envHandOff": {"resource": "gpu"}}, "at '/policies/envHandOff/resource': 'gpu' does not"),
        ({"serviceMonitor__interval": "often"}, "at '/serviceMonitor/interval': 'often' does not match"),
        ({"agent__load": True}, "agent-load is wanted, but agent.enabled is false"),
        (
            {"config__scheduler": {"leaderElection": {"leaderElect": False}}},
            "two schedulers would both decide",
        ),
        ({"scheduler__extraArgs": ["--leader-elect=false"]}, "say it in config.scheduler.leaderElection"),
        (
            {"config__scheduler": {"leaderElection": {"resourceNamespace": "kube-system"}}},
            "resourceNamespace is kube-system, but the role allows leases in the release's namespace alone",
        ),
        ({"priorityClass__name": "high"}, "set priorityClass.create to false too"),
        (
            {"serviceMonitor": {"enabled": True, "prometheus": {"namespace": "m"}}},
            "are said together, or neither",
        ),
        (
            {"prometheusRule": {"enabled": True, "without": ["GangschedJurnal"]}},
            "prometheusRule.without: there is no alert GangschedJurnal; there are GangschedDown, ",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_with_its_place(helm: Helm, values: Json, says: str) -> None:
    with pytest.raises(Refused) as refused:
        helm.rendered(**values)
    assert says in str(refused.value)


def test_a_key_with_nothing_after_its_colon_is_as_by_default_or_missed(helm: Helm, tmp_path: Path) -> None:
    """As when all that stands below it is commented out: Helm then takes the chart's own value away."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def told(without: set[str]) -> str:
        given: Json = json.loads(json.dumps(values))
        for section in ("agent", "serviceMonitor", "prometheusRule"):
            given[section]["enabled"] = True
        for path in without:
            *sections, key = path.split(".")
            reduce(operator.getitem, sections, given)[key] = None
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(given))
        return helm("template", RELEASE, str(CHART), f"--values={tmp_path / 'values.yaml'}")

    empty = {
        path for path in paths(values) if reduce(operator.getitem, path.split("."), values) in ({}, [], "")
    }
    assert told(empty) == told({"config", "serviceMonitor.prometheus"} | empty_outside(empty)) == told(set())
    for missed in (set(paths(values)) - empty, set(values) - {"config"}, {"policies.envHandOff"}):
        with pytest.raises(Refused) as refused:
            told(missed)
        said = re.findall("'(\\w+)'", "".join(re.findall("missing propert(.*)", str(refused.value))))
        assert sorted(said) == sorted(path.rpartition(".")[2] for path in missed)


def empty_outside(empty: set[str]) -> set[str]:
    """Those that are in none of the sections left empty as a whole."""
    return {path for path in empty if not path.startswith(("config.", "serviceMonitor.prometheus."))}


def test_the_pods_are_as_values_say(helm: Helm) -> None:
    toleration = {"key": "control", "operator": "Exists"}
    mount = {"name": "plugins", "mountPath": "/plugins", "readOnly": True}
    volume = {"name": "plugins", "configMap": {"name": "mine"}}
    rendered = helm.rendered(
        image={"repository": "registry.example/gangsched", "tag": "9", "pullSecrets": ["pull"]},
        agent={
            "enabled": True,
            "nvidia": True,
            "resources": {"limits": {"memory": "1Gi"}},
            "nodeSelector": {"a": "b"},
        },
        priorityClass={"create": False, "name": "system-cluster-critical"},
        scheduler={
            "replicas": 3,
            "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}},
            "extraArgs": ["-v=2", "--plugin=/plugins/mine.py"],
            "extraVolumes": [volume],
            "extraVolumeMounts": [mount],
            "podAnnotations": {"note": "x"},
            "nodeSelector": {"role": "control"},
            "tolerations": [toleration],
            "affinity": {"nodeAffinity": {}},
        },
    )
    deployment, daemon_set = find(rendered, "Deployment")["spec"], find(rendered, "DaemonSet")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["metadata"]["annotations"] == {"note": "x"}
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == "registry.example/gangsched:9"
    assert container["args"][0] == "scheduler"
    assert container["args"][-2:] == ["-v=2", "--plugin=/plugins/mine.py"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "256Mi"},
        "limits": {"memory": "8Gi"},
    }
    assert container["volumeMounts"][-1] == mount
    assert pod["volumes"][-1] == volume
    assert pod["tolerations"][-1] == toleration
    assert len(pod["tolerations"]) == 3
    assert pod["nodeSelector"] == {"role": "control"}
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert ("PriorityClass", "gangsched") not in names(rendered)
    agent = daemon_set["template"]["spec"]
    assert agent["containers"][0]["image"] == container["image"]
    assert agent["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert agent["nodeSelector"] == {"a": "b", "nvidia.com/gpu.present": "true"}
    assert "image: r.example:5000/gangsched:0" in helm(
        "template", RELEASE, str(CHART), "--set=image.repository=r.example:5000/gangsched"
    )
    digest = "sha256:" + "a" * 64
    [container] = find(helm.rendered(image__digest=digest), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == f"gangsched@{digest}"


def test_the_configuration_is_merged_and_what_follows_from_it_is_done(helm: Helm) -> None:
    rendered = helm.rendered(
        config={
            "scheduler": {"leaderElection": {"resourceName": "mine"}, "profiles": [{"schedulerName": "ai"}]},
            "gangsched": {
                "allowEviction": False,
                "fence": False,
                "devices": {"allocationIn": "labels", "repairAnnotations": True},
                "tracing": {"endpoint": "http://collector:4318", "samplingRatio": 0},
            },
        },
        policies__envHandOff={"enabled": True, "resource": "example.com/fpga", "variable": "FPGAS"},
    )
    made = find(rendered, "ConfigMap")
    config = parse_config(made["data"]["scheduler.yaml"], source="", plugins=IN_TREE)
    assert [profile.scheduler_name for profile in config.profiles] == ["ai"]
    assert config.leader_election.leader_elect
    assert (config.leader_election.lease_duration_s, config.leader_election.resource_namespace) == (
        15,
        NAMESPACE,
    )
    assert not config.settings.allow_eviction
    assert not config.settings.fence
    assert config.settings.settle_s == 30
    assert (config.tracing.endpoint, config.tracing.sampling_ratio) == (
        "http://collector:4318/v1/traces",
        0,
    )
    role = find(rendered, "Role", "gangsched-lease")
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [
        ["mine", "mine-fence", "mine-queues", "mine-alone"]
    ]
    given = names(rendered)
    assert not {one for one in given if one[1] == "gangsched-evict"}
    assert ("ClusterRole", "gangsched-repair") in given
    policy = find(rendered, "MutatingAdmissionPolicy", "gangsched-env-hand-off")
    says = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert says["profiles"] == "['ai']"
    assert says["resource"] == "'example.com/fpga'"
    assert says["prefix"] == "'fpga.example.com.visible-devices.gangsched.io'"
    assert says["variable"] == "'FPGAS'"
    assert says["carriedBy"] == "'labels'"
    unnamed = helm.rendered(config__scheduler={"profiles": []}, policies__envHandOff={"enabled": True})
    policy = find(unnamed, "MutatingAdmissionPolicy", "gangsched-env-hand-off")
    assert {"name": "profiles", "expression": "['default-scheduler']"} in policy["spec"]["variables"]


def test_its_notes_name_the_schedulers_of_the_configuration(helm: Helm) -> None:
    def said(*values: str) -> str:
        return helm("install", RELEASE, str(CHART), "--dry-run=client", *values)

    assert "the pods that say `schedulerName: gangsched`.\n" in said()
    profiles = '--set-json=config.scheduler.profiles=[{"schedulerName": "a"}, {}]'
    assert "say `schedulerName: a` or `schedulerName: default-scheduler`.\n" in said(profiles)
    assert "say `schedulerName: default-scheduler`.\n" in said("--set-json=config.scheduler.profiles=[]")


def test_another_configuration_is_rolled_out(helm: Helm) -> None:
    before, after = helm.rendered(), helm.rendered(config__gangsched={"settleSeconds": 9})
    volumes = [find(one, "Deployment")["spec"]["template"]["spec"]["volumes"][0] for one in (before, after)]
    mounted = [volume["configMap"]["name"] for volume in volumes]
    assert mounted == [find(one, "ConfigMap")["metadata"]["name"] for one in (before, after)]
    assert mounted[0] != mounted[1]


def test_the_agents_configuration_is_read_as_one(helm: Helm) -> None:
    plugin = {"resource": "a.io/b", "handOff": "device-plugin", "env": {"B": "{ids}"}}
    wanted = {"heartbeatSeconds": 5, "load": {"periodSeconds": 7}, "plugins": [plugin]}
    rendered = helm.rendered(agent={"enabled": True, "load": True, "devicePlugin": True, "config": wanted})
    data = find(rendered, "ConfigMap", "gangsched-agent")["data"]
    settings = parse_parts(list(data.items()), flags=AgentFlags(node_name="n"), environ={})
    assert settings.heartbeat_s == 5
    assert settings.devices == ("/etc/gangsched/devices",)
    assert (settings.probes.load.enabled, settings.probes.load.period_seconds) == (True, 7)
    assert [one.resource for one in settings.plugins] == ["a.io/b"]


def test_it_can_live_in_another_namespace(helm: Helm) -> None:
    text = helm("template", "other", str(CHART), "--namespace=batch")
    rendered = objects(text)
    assert {d["metadata"]["namespace"] for d in rendered if "namespace" in d["metadata"]} == {"batch"}
    policy = find(rendered, "ValidatingAdmissionPolicy", "gangsched-reserved-keys-binding")
    [condition] = policy["spec"]["matchConditions"]
    assert "'system:serviceaccount:batch:gangsched'" in condition["expression"]
    assert "gangsched-system" not in text


def test_names_that_yaml_would_read_as_numbers_stay_names(helm: Helm) -> None:
    prometheus = {"serviceAccount": "7", "namespace": "0x1"}
    rendered = objects(
        helm(
            *("template", RELEASE, str(CHART), "--namespace=2026"),
            "--set=agent.enabled=true,metricsServer.enabled=true,serviceMonitor.enabled=true",
            f"--set-json=serviceMonitor.prometheus={json.dumps(prometheus)}",
        )
    )
    numbers = re.findall(r"(?:: |\[|, )2026\b", json.dumps(rendered))
    assert numbers == []
    made = find(rendered, "ConfigMap", "gangsched-config")["data"]["scheduler.yaml"]
    config = parse_config(made, source="", plugins=IN_TREE)
    assert config.leader_election.resource_namespace == "2026"
    [subject] = find(rendered, "ClusterRoleBinding", "gangsched-metrics-reader")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "7", "namespace": "0x1"}


POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("policies__reservedKeys", {*POLICIES}),
        ("networkPolicy__enabled", {"NetworkPolicy"}),
        ("priorityClass__create", {"PriorityClass", *POLICIES}),
        ("podDisruptionBudget__enabled", {"PodDisruptionBudget"}),
        ("flowSchemas__enabled", {"FlowSchema"}),
    ],
)
def test_only_what_is_switched_off_is_left_out(helm: Helm, value: str, kinds: set[str]) -> None:
    without, all_ = names(helm.rendered(**{value: False})), names(helm.rendered())
    assert without < all_
    assert {kind for kind, _ in all_ - without} == kinds
    assert not {kind for kind, _ in without} & (kinds - POLICIES)
    of_class = {"gangsched-priority-class"} if value.startswith("priorityClass") else set[str]()
    left_out = {name for kind, name in all_ - without if kind in POLICIES}
    reserved = {"gangsched-reserved-keys", "gangsched-reserved-keys-binding"}
    assert left_out == of_class | (reserved if value.startswith("policies") else set[str]())


def test_alerts_are_those_of_deploy_in_the_releases_namespace(helm: Helm) -> None:
    of_deploy = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
    whole = find(
        helm.rendered(prometheusRule={"enabled": True, "labels": {"release": "x"}}), "PrometheusRule"
    )
    assert whole["spec"] == of_deploy["spec"]
    assert whole["metadata"]["namespace"] == NAMESPACE
    assert whole["metadata"]["labels"] == {"app.kubernetes.io/name": "gangsched", "release": "x"}
    fewer = find(
        helm.rendered(prometheusRule={"enabled": True, "without": ["GangschedJournalGap"]}), "PrometheusRule"
    )
    left_out = {one["alert"] for one in whole["spec"]["groups"][0]["rules"]} - {
        one["alert"] for one in fewer["spec"]["groups"][0]["rules"]
    }
    assert left_out == {"GangschedJournalGap"}


def test_metrics_are_collected_by_a_service_monitor(helm: Helm) -> None:
    prometheus = {"serviceAccount": "prometheus", "namespace": "monitoring"}
    who = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    rendered = helm.rendered(
        serviceMonitor={"enabled": True, "labels": {"release": "x"}, "prometheus": prometheus},
        networkPolicy={"from": who},
    )
    monitor, service = find(rendered, "ServiceMonitor"), find(rendered, "Service", "gangsched")
    assert monitor["metadata"]["labels"]["release"] == "x"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    binding = find(rendered, "ClusterRoleBinding", "gangsched-metrics-reader")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}
    ]
    assert find(rendered, "NetworkPolicy")["spec"]["ingress"][0]["from"] == who
