"""Agents as processes on a real kube-apiserver, under the rights that deploy/agent gives them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from gangsched.agent.node import MAX_ANNOTATION_BYTES, annotation_bytes
from gangsched.agent.sources.registers import HAMI, VOLCANO, Register
from gangsched.errors import ApiError
from gangsched.lab.controlplane.processes import ControlPlane
from tests.agent.process import GPU, KEY, MERGE, Site
from tests.real.process import Scheduler, service_account, write_config
from tests.support.bodies import Json, gang, pod

pytestmark = pytest.mark.real

PODS = "/api/v1/namespaces/default/pods"
PLAIN: Json = {"cpu": "1", "terminationGracePeriodSeconds": 0}


def hold(plane: ControlPlane, name: str, node: str, *ids: str) -> None:
    """A pod on the node that has these GPUs, as the scheduler's Binding leaves it."""
    notes = {"gangsched.io/allocated-devices": json.dumps({"main": {GPU: list(ids)}})}
    plane.request("POST", PODS, pod(name, annotations=notes, nodeName=node))


def end(plane: ControlPlane, name: str) -> None:
    plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_an_inventory_appears_and_follows_its_files(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a", "b")
    agent = site.agent("n1")
    site.says("n1", a="Healthy", b="Healthy")
    site.devices("n1", "a", "b", sick=("b",))
    site.says("n1", a="Healthy", b="Unhealthy")
    site.file("n1", '{"nvidia.com/gpu": [{"id": 5}]}')
    site.until(lambda: "nvidia.com/gpu[0].id: 5 is not text" in agent.said, "the mistake is said")
    assert site.listed("n1") == {"a": "Healthy", "b": "Unhealthy"}
    site.devices("n1", "a", "b", "c")
    site.says("n1", a="Healthy", b="Healthy", c="Healthy")
    agent.stop()
    assert agent.process.returncode == 0
    assert site.listed("n1") is not None, "what is written stays when the agent ends"


def test_a_device_that_a_pod_holds_is_not_forgotten_not_by_a_new_agent_either(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a", "b", "c")
    agent = site.agent("n1")
    site.says("n1", a="Healthy", b="Healthy", c="Healthy")
    hold(site.plane, "p", "n1", "a", "b")
    site.devices("n1", "b")
    site.says("n1", b="Healthy", a="Unhealthy")
    agent.process.send_signal(signal.SIGKILL)
    site.devices("n1")
    site.agent("n1")
    site.says("n1", a="Unhealthy", b="Unhealthy")
    end(site.plane, "p")
    site.says("n1")


def test_an_api_server_that_goes_away_is_waited_for(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a")
    agent = site.agent("n1")
    site.says("n1", a="Healthy")
    site.plane.kill_apiserver()
    site.devices("n1", "a", sick=("a",))
    site.until(lambda: "cannot reach" in agent.said, "the agent notices")
    site.plane.start_apiserver()
    site.says("n1", a="Unhealthy")


def test_a_node_recreated_under_its_name_gets_its_inventory(site: Site) -> None:
    before = site.node("n1")
    site.devices("n1", "a")
    site.agent("n1", "--heartbeat=1")
    site.says("n1", a="Healthy")
    site.plane.request("DELETE", "/api/v1/nodes/n1")
    after = site.node("n1")
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    site.says("n1", a="Healthy")


def test_what_a_stranger_writes_is_reported_with_his_name_and_put_right(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a")
    agent = site.agent("n1", "--heartbeat=1")
    site.says("n1", a="Healthy")
    site.plane.kubectl("annotate", "node", "n1", "--overwrite", f"{KEY}={{}}")
    site.until(lambda: "was changed by 'kubectl-annotate' at 20" in agent.said, "the stranger is named")
    site.says("n1", a="Healthy")


def test_two_agents_for_one_node_notice_each_other(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a")
    (site.directory / "other").mkdir()
    one = site.agent("n1", "--heartbeat=1")
    site.devices("other", "b")
    log = f"--devices={site.directory / 'other'}"
    other = site.agent("n1", "--heartbeat=1", log)
    for agent in (one, other):
        site.until(lambda a=agent: "was changed by 'gangsched-agent_" in a.said, "it is noticed")  # type: ignore[misc]


def test_other_annotations_and_labels_are_left_alone(site: Site) -> None:
    site.node("n1")
    patch = {
        "metadata": {"annotations": {"mine": "x"}, "labels": {"l": "y"}},
        "spec": {"unschedulable": True},
    }
    site.plane.request("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE)
    site.devices("n1", "a")
    site.agent("n1")
    site.says("n1", a="Healthy")
    node = site.plane.request("GET", "/api/v1/nodes/n1")
    assert node["metadata"]["annotations"]["mine"] == "x"
    assert node["metadata"]["labels"]["l"] == "y"
    assert node["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    ("flag", "of", "register", "sick"),
    [
        (
            "--from-hami",
            HAMI,
            '[{"id":"GPU-h","count":10,"devmem":8192,"type":"NVIDIA-T4","health":true}]',
            '[{"id":"GPU-h","count":10,"devmem":8192,"type":"NVIDIA-T4"}]',
        ),
        (
            "--from-volcano",
            VOLCANO,
            "GPU-h,10,8192,NVIDIA-T4,true,hami-core:",
            "GPU-h,10,8192,NVIDIA-T4,false,hami-core:",
        ),
    ],
    ids=["hami", "volcano"],
)
def test_the_registers_of_others_are_read(
    site: Site, flag: str, of: Register, register: str, sick: str
) -> None:
    site.node("n1")
    patch = {"metadata": {"annotations": {of.key: register}}}
    site.plane.request("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE)
    site.agent("n1", flag)
    site.until(lambda: site.listed("n1", of.resource) == {"GPU-h": "Healthy"}, "its GPU is listed")
    patch = {"metadata": {"annotations": {of.key: sick}}}
    site.plane.request("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE)
    site.until(lambda: site.listed("n1", of.resource) == {"GPU-h": "Unhealthy"}, "and its health followed")


def test_a_gang_gets_what_agents_published_and_nothing_that_turned_unhealthy(
    site: Site, tmp_path: Path
) -> None:
    plane = site.plane
    for i in range(2):
        site.node(f"n{i}")
        site.devices(f"n{i}", *(f"G{i}-{k}" for k in range(4)))
        site.agent(f"n{i}")
    for i in range(2):
        site.says(f"n{i}", **{f"G{i}-{k}": "Healthy" for k in range(4)})
    plane.kubectl("apply", "-f", str(Path("deploy/rbac.yaml").resolve()))
    account = service_account(plane, tmp_path / "scheduler.kubeconfig")
    scheduler = Scheduler(write_config(tmp_path / "config.yaml"), account, tmp_path / "scheduler.log")
    try:
        for member in gang("g", pods=4, limits={GPU: 2}, **PLAIN):
            plane.request("POST", PODS, member)
        site.until(lambda: all(ids_of(plane, f"g-{k}") for k in range(4)), "the gang is bound")
        given = [device for k in range(4) for device in ids_of(plane, f"g-{k}")]
        assert sorted(given) == [f"G{i}-{k}" for i in range(2) for k in range(4)]
        for k in range(4):
            end(plane, f"g-{k}")
        for i in range(2):
            names = [f"G{i}-{k}" for k in range(4)]
            site.devices(f"n{i}", *names, sick=(names[1],))
            site.says(f"n{i}", **{name: "Unhealthy" if name == names[1] else "Healthy" for name in names})
        for member in gang("h", pods=6, limits={GPU: 1}, **PLAIN):
            plane.request("POST", PODS, member)
        plane.request("POST", PODS, pod("late", schedulerName="gangsched", limits={GPU: 1}, **PLAIN))
        site.until(lambda: all(ids_of(plane, f"h-{k}") for k in range(6)), "the second gang is bound")
        given = [device for k in range(6) for device in ids_of(plane, f"h-{k}")]
        assert sorted(given) == [f"G{i}-{k}" for i in range(2) for k in (0, 2, 3)]
        site.until(lambda: "Insufficient healthy devices" in why_not(plane, "late"), "the last one waits")
        site.devices("n0", *(f"G0-{k}" for k in range(4)))
        site.until(lambda: ids_of(plane, "late") == ["G0-1"], "until the device is well again")
    finally:
        scheduler.kill()


def ids_of(plane: ControlPlane, name: str) -> list[str]:
    notes = plane.request("GET", f"{PODS}/{name}")["metadata"].get("annotations", {})
    held = json.loads(notes.get("gangsched.io/allocated-devices", "{}"))
    return [device for sets in held.values() for device in sets.get(GPU, [])]


def why_not(plane: ControlPlane, name: str) -> str:
    conditions = plane.request("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions)


# -- the command line ---------------------------------------------------------------------------------------


def test_dry_run_prints_what_would_be_written_and_writes_nothing(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a")
    done = site.dry_run("--node-name=n1", f"--devices={site.directory / 'n1'}")
    assert done.returncode == 0
    assert done.stderr == f"gangsched: changes to what the Node lists now: {GPU} a new, Healthy\n"
    assert json.loads(done.stdout) == {GPU: [{"id": "a", "health": "Healthy"}]}
    assert site.listed("n1") is None


def test_dry_run_says_what_is_wrong_and_ends_with_2(site: Site) -> None:
    site.node("n1")
    site.file("n1", "{")
    done = site.dry_run("--node-name=n1", f"--devices={site.directory / 'n1'}")
    assert done.returncode == 2
    assert "gpus.json: is not JSON: line 1, column 2" in done.stderr


def test_dry_run_that_finds_nothing_says_where_it_looked(site: Site) -> None:
    site.node("n1")
    done = site.dry_run("--node-name=n1", "--devices=/nowhere/at/all")
    assert done.returncode == 2
    assert "no devices found; looked at: /nowhere/at/all: no such file or directory" in done.stderr
    assert (
        "/nowhere/at/all: no such file or directory, and there has been none since the start" in done.stderr
    )


def test_dry_run_with_a_misspelt_path_empties_no_list(site: Site) -> None:
    listed = {KEY: json.dumps({GPU: [{"id": "gpu-0", "health": "Healthy"}]})}
    site.node("n1")
    path = "/api/v1/nodes/n1"
    site.plane.request("PATCH", path, {"metadata": {"annotations": listed}}, content_type=MERGE)
    done = site.dry_run("--node-name=n1", "--devices=/nowhere/at/all")
    assert done.returncode == 2
    assert "changes to what the Node lists now: none" in done.stderr
    assert '"gpu-0"' in done.stdout


def test_a_node_that_is_not_there_is_one_line(site: Site) -> None:
    site.node("worker-1")
    done = site.dry_run("--node-name=worker-l")
    assert done.returncode == 2
    # Who may list nodes is told the nearest name; an agent may not.
    assert done.stderr == "gangsched: --node-name: there is no node 'worker-l'\n"
    site.kubeconfig = site.plane.kubeconfig
    done = site.dry_run("--node-name=worker-l")
    assert done.stderr == "gangsched: --node-name: there is no node 'worker-l'; did you mean worker-1?\n"


def test_a_missing_right_is_one_line_with_its_verb(site: Site) -> None:
    site.node("n1")
    site.plane.kubectl("delete", "clusterrolebinding", "gangsched-agent")
    done = site.dry_run("--node-name=n1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the verb is get on nodes" in done.stderr


def test_the_agent_may_write_no_pod_and_delete_no_node(site: Site) -> None:
    may = site.plane.kubectl(
        "auth", "can-i", "--list", "--as=system:serviceaccount:gangsched-agent:gangsched-agent"
    )
    rights = {
        line.split()[0]: line.split("[")[-1].rstrip("] ")
        for line in may.splitlines()
        if line.startswith(("nodes", "pods"))
    }
    assert rights == {"nodes": "get patch", "pods": "list watch"}


def test_a_write_that_the_server_refuses_is_reported_and_tried_again(site: Site) -> None:
    site.node("n1")
    site.devices("n1", "a")
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-agent"
    rules = site.plane.request("GET", role)["rules"]
    less = [{**rules[0], "verbs": ["get"]}, *rules[1:]]
    site.plane.request("PATCH", role, {"rules": less}, content_type=MERGE)
    agent = site.agent("n1")
    site.until(lambda: "the verb is patch on nodes" in agent.said, "the missing verb is named")
    site.plane.request("PATCH", role, {"rules": rules}, content_type=MERGE)
    site.says("n1", a="Healthy")


def test_the_server_takes_just_as_many_bytes_as_we_think(site: Site) -> None:
    """What `node.MAX_ANNOTATION_BYTES` and its reckoning stand on."""
    site.node("n1")
    path = "/api/v1/nodes/n1"
    room = MAX_ANNOTATION_BYTES - len("ke") - len("ü".encode())
    for n_bytes, fits in ((room, True), (room + 1, False)):
        value = "x" * (n_bytes - annotation_bytes({KEY: ""}))
        notes = {"ke": "ü", KEY: value}
        body = {"metadata": {"annotations": notes}}
        if fits:
            site.plane.request("PATCH", path, body, content_type=MERGE)
        else:
            with pytest.raises(ApiError, match="may not be more than 262144 bytes"):
                site.plane.request("PATCH", path, body, content_type=MERGE)
