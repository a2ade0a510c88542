"""deploy/agent on a real kube-apiserver: accepted as it is, and its policies hold what roles cannot say."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.agent.settings import AgentFlags, AgentSettings, parse_parts
from gangsched.command.cli import _parser
from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.report import DEVICE_REPORT_KEY
from tests.agent.process import ACCOUNT, DEPLOY, KEY, MERGE, NAMESPACE, Site, kubeconfig_of
from tests.deploy.doors import APPLY, FORCED, JSON_PATCH, STRATEGIC, Answer, Person
from tests.support.processes import until

pytestmark = pytest.mark.real

NODES = "/api/v1/nodes"
NAMES = ("own-1", "own-2")
LISTED = "nvidia.com.devices.gangsched.io/gpu"
SICK = "nvidia.com.unhealthy-devices.gangsched.io/gpu"
KEYS = (KEY, DEVICE_REPORT_KEY, LISTED, SICK)
OWN = "own-1"


@pytest.fixture(scope="module")
def plane(littered_plane: ControlPlane) -> Iterator[ControlPlane]:
    """deploy/agent applied, and taken away again: nobody else could write inventories."""
    littered_plane.kubectl("apply", "-k", str(DEPLOY), "--validate=strict")
    try:
        for name in NAMES:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            littered_plane.request("POST", NODES, {"metadata": metadata})
        until(lambda: anybody_may(littered_plane) is False)
        yield littered_plane
    finally:
        littered_plane.kubectl("delete", "-k", str(DEPLOY), "--ignore-not-found", "--wait=false")
        littered_plane.kubectl("delete", "node", *NAMES, "--ignore-not-found")
        until(lambda: anybody_may(littered_plane) is True)


def anybody_may(plane: ControlPlane) -> bool:
    """Make a node with an inventory."""
    try:
        plane.request(
            "POST", f"{NODES}?dryRun=All", {"metadata": {"name": "probe", "annotations": {KEY: "{}"}}}
        )
    except ApiError as error:
        if error.code == 403:
            return False
        raise
    return True


def token(plane: ControlPlane, node: str = "") -> str:
    """As a kubelet asks for it, bound to an agent's pod on this node; without `node` bound to nothing."""
    bound: list[str] = []
    if node:
        spec = {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "containers": [{"name": "agent", "image": "gangsched"}],
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        made = plane.request("POST", path, {"metadata": {"generateName": "agent-"}, "spec": spec})["metadata"]
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={made['name']}"]
        bound += [f"--bound-object-uid={made['uid']}"]
    return plane.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}", *bound).strip()


def patch(plane: ControlPlane, bearer: str, path: str, body: Any) -> tuple[int, str]:
    """The code of the answer, and its message where it is a refusal."""
    request = urllib.request.Request(
        plane.base_url + path,
        method="PATCH",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {bearer}", "Content-Type": MERGE},
    )
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return int(answer.status), ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.loads(error.read())["message"])


def notes(value: str | None = "{}", key: str = KEY) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


def test_an_agent_writes_the_inventory_of_its_own_node_alone(plane: ControlPlane) -> None:
    bearer = token(plane, "own-1")
    assert patch(plane, bearer, f"{NODES}/own-1", notes()) == (200, "")
    assert patch(plane, bearer, f"{NODES}/own-1", notes(key=DEVICE_REPORT_KEY)) == (200, "")
    code, said = patch(plane, bearer, f"{NODES}/own-2", notes())
    assert code == 403
    assert "its token is of a pod on own-1, this is own-2" in said
    assert patch(plane, bearer, f"{NODES}/own-1/status", notes())[0] == 403, "its role has no such verb"


@pytest.mark.parametrize(
    "forbidden",
    [
        notes(key="other"),
        notes(key="gangsched.io/gang"),
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
        {"metadata": {"finalizers": ["a.b/c"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    ],
    ids=str,
)
def test_an_agent_writes_nothing_else_of_its_node(plane: ControlPlane, forbidden: dict[str, Any]) -> None:
    code, said = patch(plane, token(plane, "own-1"), f"{NODES}/own-1", forbidden)
    assert code == 403
    assert "an agent writes of its node the annotations gangsched.io/devices, " in said
    assert "gangsched.io/remaining-bandwidth, gangsched.io/load, and nothing else of it but labels" in said


def test_a_token_that_names_no_node_writes_none(plane: ControlPlane) -> None:
    code, said = patch(plane, token(plane), f"{NODES}/own-1", notes())
    assert code == 403
    assert "its token names no node, this is own-1" in said


def test_nobody_else_writes_an_inventory(plane: ControlPlane) -> None:
    assert patch(plane, token(plane, "own-1"), f"{NODES}/own-1", notes()) == (200, "")
    for path in (f"{NODES}/own-1", f"{NODES}/own-1/status"):
        for value, key in (('{"a/b":[]}', KEY), (None, KEY), ("x", DEVICE_REPORT_KEY)):
            code, said = patch(plane, plane.token, path, notes(value, key))
            assert code == 403
            assert f"{key} is written by the node agents" in said
            assert "admin may not" in said
        assert patch(plane, plane.token, path, notes("x", key="other"))[0] == 200
    with pytest.raises(ApiError, match="is written by the node agents"):
        plane.request("POST", NODES, {"metadata": {"name": "own-3", "annotations": {KEY: "{}"}}})


@pytest.mark.parametrize("key", ["gangsched.io/remaining-bandwidth", "gangsched.io/load"])
def test_what_a_node_measures_is_written_by_its_agent_alone(plane: ControlPlane, key: str) -> None:
    assert patch(plane, token(plane, "own-1"), f"{NODES}/own-1", notes("{}", key=key)) == (200, "")
    code, said = patch(plane, plane.token, f"{NODES}/own-1", notes('{"egressMBps": 1}', key=key))
    assert code == 403
    assert f"{key} is written by the node agents" in said


def test_an_agent_works_under_them(plane: ControlPlane, tmp_path: Path) -> None:
    account = kubeconfig_of(plane, token(plane, "own-2"), tmp_path / "agent.kubeconfig")
    site = Site(plane, tmp_path, account)
    try:
        site.devices("own-2", "a")
        site.agent("own-2")
        site.says("own-2", a="Healthy")
        site.devices("own-1", "b")
        stray = site.agent("own-1")
        site.until(lambda: "is of a pod on own-2, this is own-1" in stray.said, "the stray is refused")
    finally:
        site.close()


# -- every door ----------------------------------------------------------------------------------------


Door = Callable[[Person, str, str], Answer]


def field_of(key: str) -> str:
    return "labels" if key in (LISTED, SICK) else "annotations"


def _said(key: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {field_of(key): {key: value}}}


def _patch(kind: str, subresource: str = "") -> Door:
    def door(who: Person, key: str, value: str) -> Answer:
        path, body = f"{NODES}/{OWN}{subresource}", _said(key, value)
        if kind == JSON_PATCH:
            escaped = key.replace("~", "~0").replace("/", "~1")
            found = who.send("GET", f"{NODES}/{OWN}").body["metadata"].get(field_of(key))
            patch = [{"op": "add", "path": f"/metadata/{field_of(key)}/{escaped}", "value": value}]
            if found is None:
                patch = [{"op": "add", "path": f"/metadata/{field_of(key)}", "value": {key: value}}]  # type: ignore[dict-item]
            return who.send("PATCH", path, patch, kind)
        if kind == APPLY:
            body = {"apiVersion": "v1", "kind": "Node", **body}
            body["metadata"]["name"] = OWN
            path += f"?{FORCED}"
        return who.send("PATCH", path, body, kind)

    return door


def _put(subresource: str = "") -> Door:
    def door(who: Person, key: str, value: str) -> Answer:
        node = who.send("GET", f"{NODES}/{OWN}").body
        node["metadata"].setdefault(field_of(key), {})[key] = value
        return who.send("PUT", f"{NODES}/{OWN}{subresource}", node)

    return door


def _post(who: Person, key: str, value: str) -> Answer:
    return who.send("POST", NODES, {"metadata": {"name": "own-3", **_said(key, value)["metadata"]}})


PATCHES = {
    "merge": _patch(MERGE),
    "strategic": _patch(STRATEGIC),
    "json": _patch(JSON_PATCH),
    "apply": _patch(APPLY),
}
OTHERS = {
    "put": _put(),
    "put-status": _put("/status"),
    "merge-status": _patch(MERGE, "/status"),
    "strategic-status": _patch(STRATEGIC, "/status"),
    "apply-status": _patch(APPLY, "/status"),
    "post": _post,
}


@pytest.fixture(scope="module")
def agent(plane: ControlPlane) -> Person:
    return Person(plane, token(plane, OWN))


@pytest.fixture(scope="module")
def stray(plane: ControlPlane) -> Person:
    """An agent of another node."""
    return Person(plane, token(plane, "own-2"))


@pytest.fixture
def admin(plane: ControlPlane) -> Person:
    return Person(plane, plane.token)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("door", PATCHES)
def test_the_agent_writes_its_own_and_nobody_else_does(
    door: str, key: str, agent: Person, stray: Person, admin: Person
) -> None:
    answer = PATCHES[door](agent, key, "mine")
    assert answer.code == 200, answer.message
    assert answer.body["metadata"][field_of(key)][key] == "mine"
    for other, why in ((stray, "its token is of a pod on own-2"), (admin, f"{key} is written by the node")):
        refused = PATCHES[door](other, key, "forged")
        assert (refused.code, why in refused.message) == (403, True), refused.message
        taken = other.send("PATCH", f"{NODES}/{OWN}", _said(key, None), MERGE)
        assert taken.code == 403
    assert admin.send("GET", f"{NODES}/{OWN}").body["metadata"][field_of(key)][key] == "mine"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("door", OTHERS)
def test_no_other_request_writes_an_agents_keys(door: str, key: str, agent: Person, admin: Person) -> None:
    """For agents by their role, which has get and patch on nodes alone."""
    before = admin.send("GET", f"{NODES}/{OWN}").body["metadata"].get(field_of(key), {}).get(key)
    assert OTHERS[door](agent, key, "forged").code == 403
    refused = OTHERS[door](admin, key, "forged")
    assert refused.code == 403, refused.body
    assert f"{key} is written by the node agents" in refused.message
    assert admin.send("GET", f"{NODES}/{OWN}").body["metadata"].get(field_of(key), {}).get(key) == before


def test_an_agent_takes_its_labels_and_its_list_away_and_nothing_else(agent: Person, admin: Person) -> None:
    """As it does when it is told to write the other of the two."""
    for key in (KEY, LISTED, SICK):
        assert PATCHES["merge"](agent, key, "mine").code == 200
        assert agent.send("PATCH", f"{NODES}/{OWN}", _said(key, None), MERGE).code == 200
    assert PATCHES["merge"](agent, DEVICE_REPORT_KEY, "{}").code == 200
    assert agent.send("PATCH", f"{NODES}/{OWN}", _said(DEVICE_REPORT_KEY, None), MERGE).code == 403
    for label in ("kubernetes.io/hostname", "gpu.nvidia.com.visible-devices.gangsched.io/x", "own"):
        answer = agent.send("PATCH", f"{NODES}/{OWN}", {"metadata": {"labels": {label: "x"}}}, MERGE)
        assert answer.code == 403
        assert "nothing else of it but labels that list its devices" in answer.message
    assert admin.send("PATCH", f"{NODES}/{OWN}", {"metadata": {"labels": {"own": "x"}}}, MERGE).code == 200


# -- what is applied ------------------------------------------------------------------------------------


def test_nobody_can_connect_to_an_agent(plane: ControlPlane) -> None:
    """The policy that was applied means the DaemonSet's pods, and lets nobody in."""
    path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/gangsched-agent"
    spec = plane.request("GET", path)["spec"]
    daemonsets = plane.request("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets")["items"]
    (labels,) = [one["spec"]["template"]["metadata"]["labels"] for one in daemonsets]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    assert spec["policyTypes"] == ["Ingress"]
    assert "ingress" not in spec


OVERLAYS = ("agent", "agent-nvidia", "agent-load", "agent-labels", "agent-device-plugin")
COMPONENTS = OVERLAYS[1:]


def built(plane: ControlPlane, folder: Path) -> tuple[dict[str, Any], AgentSettings]:
    """The pod of the DaemonSet that kustomize makes of a folder, and what its agent reads of its files.

    Its arguments are the command line's; the ConfigMap's files are where they say.
    """
    objects = list(yaml.safe_load_all(plane.kubectl("kustomize", str(folder))))
    [daemonset] = [one for one in objects if one["kind"] == "DaemonSet"]
    [files] = [one for one in objects if one["kind"] == "ConfigMap"]
    pod: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [volume] = [one for one in pod["volumes"] if one["name"] == "config"]
    assert volume["configMap"]["name"] == files["metadata"]["name"]
    args = _parser(container["args"]).parse_args(container["args"])
    assert {"name": "config", "mountPath": args.config, "readOnly": True} in container["volumeMounts"]
    parts = sorted(files["data"].items())
    settings = parse_parts(parts, flags=AgentFlags(), environ={"NODE_NAME": "n"})
    assert set(settings.devices) <= {mount["mountPath"] for mount in container["volumeMounts"]}
    return pod, settings


def composed(tmp_path: Path, *components: str) -> Path:
    """A user's own kustomization of the agent with these components."""
    tmp_path.mkdir(exist_ok=True)

    def path(*names: str) -> str:
        return os.path.relpath(DEPLOY.parent.joinpath(*names), tmp_path.resolve())

    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [path("agent")],
        "components": [path(name, "component") for name in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return tmp_path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_overlays_are_accepted_and_their_agents_can_read_their_files(
    plane: ControlPlane, overlay: str
) -> None:
    folder = DEPLOY.with_name(overlay)
    said = plane.kubectl("apply", "-k", str(folder), "--dry-run=server", "--validate=strict")
    assert "daemonset.apps/gangsched-agent" in said
    _, settings = built(plane, folder)
    assert settings.probes.is_on is (overlay == "agent-load")
    assert settings.in_labels is (overlay == "agent-labels")
    assert bool(settings.plugins) is (overlay == "agent-device-plugin")


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_each_variant_says_that_it_takes_the_place_of_the_others(overlay: str) -> None:
    head = (DEPLOY.with_name(overlay) / "kustomization.yaml").read_text().split("apiVersion:")[0]
    assert "instead of deploy/agent/" in head
    assert "applying another one takes back what this one switched on" in head
    assert 'docs/devices.md, "The node agent"' in head


def needs_kubelets_sockets(pod: dict[str, Any], settings: AgentSettings) -> None:
    kubelet = settings.kubelet
    folders = {
        kubelet.device_plugins,
        str(Path(kubelet.pod_resources).parent),
        str(Path(kubelet.pods_api).parent),
    }
    assert folders <= {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume} >= folders
    assert pod["securityContext"]["runAsUser"] == 0
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_device_plugins_overlay_mounts_what_its_configuration_needs(plane: ControlPlane) -> None:
    needs_kubelets_sockets(*built(plane, DEPLOY.with_name("agent-device-plugin")))


def test_the_load_overlay_measures_all_four_terms(plane: ControlPlane) -> None:
    """The disk by a probe on the node's own disk, where the agent may write; the network of the host."""
    pod, settings = built(plane, DEPLOY.with_name("agent-load"))
    probes = settings.probes
    assert probes.bandwidth.enabled
    assert probes.load.enabled
    assert probes.load.disk_probe
    [mount] = [m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == probes.load.disk_probe]
    assert not mount.get("readOnly")
    [volume] = [one for one in pod["volumes"] if one["name"] == mount["name"]]
    assert "medium" not in volume["emptyDir"], "in memory there is no disk to measure"
    assert pod["hostNetwork"] is True


def test_an_agent_may_say_on_its_node_what_has_no_data(plane: ControlPlane, tmp_path: Path) -> None:
    account = kubeconfig_of(plane, token(plane, OWN), tmp_path / "agent.kubeconfig")
    site = Site(plane, tmp_path, account)
    config = tmp_path / "agent.yaml"
    document = {
        "load": {"enabled": True, "windowSeconds": 1, "cpuMHz": 2000},
        "bandwidth": {"totalMBps": 125},
    }
    config.write_text(json.dumps({"apiVersion": "gangsched.io/v1", "kind": "AgentConfiguration", **document}))
    path = "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=reason=NotMeasured"

    def told() -> list[str]:
        found = plane.request("GET", path)["items"]
        return [one["note"] for one in found if one["regarding"]["name"] == OWN]

    try:
        site.agent(OWN, f"--config={config}")
        site.until(told, "the Event NotMeasured")
        [note] = told()
        assert "disk: its throughput is not known: set load.diskMBps, or load.diskProbe" in note
    finally:
        site.close()


@pytest.mark.parametrize("order", [COMPONENTS, COMPONENTS[::-1]], ids=["there", "back"])
def test_components_go_together_in_any_order(
    plane: ControlPlane, order: tuple[str, ...], tmp_path: Path
) -> None:
    folder = composed(tmp_path / "own", *order)
    said = plane.kubectl("apply", "-k", str(folder), "--dry-run=server", "--validate=strict")
    assert "daemonset.apps/gangsched-agent" in said
    pod, settings = built(plane, folder)
    assert settings.probes.bandwidth.enabled
    assert settings.probes.load.enabled
    assert settings.plugins
    assert settings.in_labels
    assert settings.devices, "the base's own file is there still"
    assert pod["hostNetwork"] is True
    assert pod["runtimeClassName"] == "nvidia"
    needs_kubelets_sockets(pod, settings)
