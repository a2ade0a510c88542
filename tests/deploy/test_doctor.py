"""`gangsched doctor` on a real API server: what is wrong with an installation, one fault after the other."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import anyio.abc
import msgspec
import pytest
import yaml
from msgspec.structs import replace

from gangsched.command.cli import main
from gangsched.config import LeaderElectionSettings, default_config, parse_config
from gangsched.config.documents import file_with
from gangsched.doctor import checks, cluster_checks
from gangsched.doctor.command import _rights
from gangsched.doctor.findings import Finding, Work, exit_code
from gangsched.doctor.reading import (
    DeviceClass,
    DeviceClassSpec,
    Facts,
    Lease,
    Meta,
    ResourceSlice,
    SliceSpec,
    _read_clock,
)
from gangsched.doctor.reading import _all as read_all
from gangsched.doctor.rights import OPTIONAL, ROLE, Right, asked, needed, optional
from gangsched.extension.loading import KnownPlugins
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.controlplane.processes import ADMIN
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Pod, PodResourceClaim
from gangsched.plugins import IN_TREE
from tests.deploy.conftest import DEPLOY, Audited
from tests.deploy.rights import granted
from tests.support.processes import until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def test_the_rights_that_are_asked_about_are_those_of_the_role() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text(encoding="utf-8")))
    role = granted(documents, "gangsched", "gangsched-system")
    asked = [*needed("gangsched-system"), *OPTIONAL]
    assert {tuple(right) for right in asked} == {tuple(right) for right in role}
    assert len(asked) == len(set(asked))


def test_the_rights_a_configuration_needs_are_checked_and_named_with_what_grants_them() -> None:
    ours = "devices: {repairAnnotations: true}\ninferGangs: [Job]\n"
    text = file_with(ours)
    own = text.replace("profiles:", "leaderElection: {resourceName: b, resourceNamespace: c}\nprofiles:")
    config = parse_config(own, source="", plugins=IN_TREE)
    rights = asked("gangsched-system", config)
    lease = Right("update", "coordination.k8s.io", "leases", "c", "b-fence")
    repair, jobs = Right("patch", "", "pods"), Right("watch", "batch", "jobs")
    facts = Facts(("gangsched-system", "gangsched"), datetime.now(UTC), rights=rights)
    facts.refused = {lease, repair, jobs, Right("list", "", "nodes")} & set(rights)
    told = {one.text.partition(" may not ")[2]: one.cure for one in checks.check_rights(facts)}
    assert told == {
        "list nodes": "kubectl apply -f deploy/rbac.yaml",
        "patch pods": "kubectl apply -k deploy/device-plugin-hand-off/",
        "watch jobs.batch": "kubectl apply -k deploy/infer-jobs/",
        "update leases.coordination.k8s.io b-fence in c": "In deploy/rbac.yaml have the Role gangsched-lease"
        " grant c/b, then: kubectl apply -f deploy/rbac.yaml",
    }
    assert not [right for right in rights if right.namespace == "gangsched-system"]


@pytest.mark.parametrize(
    "date", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 01 Jan 2001 00:00:00 +99999999999999999999"]
)
async def test_a_date_that_no_calendar_has_is_not_read(date: str) -> None:
    """As a proxy before the API server may write it."""

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: {date}\r\n\r\n".encode())

    facts = Facts(("gangsched-system", "gangsched"), datetime.now(UTC))
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, answer)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        credentials = await load_credentials(kubeconfig="", master=f"http://127.0.0.1:{port}")
        async with ApiClient(credentials) as client:
            await _read_clock(client, facts)
        group.cancel_scope.cancel()
    assert facts.unread["ahead_s"]


def test_without_a_configuration_the_rights_are_those_of_the_role() -> None:
    election: dict[str, str | bool] = {"resource_namespace": "gangsched-system"}
    config = default_config(IN_TREE, election_flags=election)
    rights = asked("gangsched-system", config)
    assert tuple(rights) == needed("gangsched-system")
    assert set(rights.values()) == {"kubectl apply -f deploy/rbac.yaml"}


def test_the_rights_to_what_plugins_follow_are_checked_and_named_with_what_grants_them() -> None:
    """Without these rights `System` spreads nothing."""
    args = """
- schedulerName: gangsched
  pluginConfig:
  - name: PodTopologySpread
    args: {defaultingType: System}
  - name: LoadAware
    args: {metricsServerSeconds: 15}
  plugins: {multiPoint: {enabled: [{name: LoadAware}]}}
"""
    text = file_with("").partition("profiles:")[0] + f"profiles: {args}"
    rights = _rights("gangsched-system", parse_config(text, source="", plugins=IN_TREE), KnownPlugins())
    usual = (ROLE, "kubectl apply -f deploy/resource-claims.yaml")
    more = {
        str(right): cure for right, cure in rights.items() if cure not in usual and right.resource != "leases"
    }
    assert more == {
        "list nodes.metrics.k8s.io": "kubectl apply -k deploy/metrics-server/",
        **{
            f"{verb} {kind}": "kubectl apply -k deploy/default-spreading/"
            for kind in ("replicasets.apps", "replicationcontrollers", "services", "statefulsets.apps")
            for verb in ("list", "watch")
        },
    }
    own = asked("gangsched-system", default_config(IN_TREE), ("leases.example.com", "nodes"))
    assert own[Right("watch", "example.com", "leases")] == (
        "In deploy/rbac.yaml have the ClusterRole gangsched grant it, then: kubectl apply -f deploy/rbac.yaml"
    )


def test_the_rights_to_write_claims_are_those_of_their_file() -> None:
    documents = yaml.safe_load_all((DEPLOY / "resource-claims.yaml").read_text())
    granting = "kubectl apply -f deploy/resource-claims.yaml"
    rights = _rights("gangsched-system", default_config(IN_TREE), KnownPlugins())
    role = {tuple(right) for right in granted(documents, "gangsched", "gangsched-system")}
    assert {tuple(right) for right, cure in rights.items() if cure == granting} == role


def test_a_scheduler_that_evicts_nobody_is_not_asked_whether_it_may() -> None:
    settings = parse_config(file_with("allowEviction: false\n"), source="", plugins=IN_TREE).settings
    assert {str(right) for right in set(OPTIONAL) - set(optional(settings))} == {
        "create pods/eviction",
        "delete pods",
    }
    assert optional(default_config(IN_TREE).settings) == OPTIONAL


def test_what_could_not_be_looked_at_is_not_well() -> None:
    well, dark = Finding("a", "ok", ""), Finding("b", "unknown", "")
    assert [exit_code(one) for one in ([well], [well, dark], [dark, Finding("c", "problem", "")])] == [
        0,
        4,
        3,
    ]
    assert exit_code([well, Finding("d", "warning", "")]) == 0


class Answers:
    """In a client's place: one answer to everything."""

    def __init__(self, answer: Json) -> None:
        self._answer = json.dumps(answer).encode()

    async def get(self, path: str, query: Json, *, timeout_s: float) -> bytes:
        return self._answer


def test_a_lease_of_a_time_without_a_zone_is_left_out_and_ends_nothing() -> None:
    at = "2026-01-01T00:00:00"
    found: list[list[Finding]] = []
    for renewed in (at, f"{at}Z"):
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed}
        meta = {"name": "gangsched", "namespace": "kube-system", "managedFields": [{"time": f"{at}Z"}]}
        client = cast("ApiClient", Answers({"items": [{"metadata": meta, "spec": spec}]}))
        facts = Facts(("gangsched-system", "gangsched"), datetime.now(UTC))
        facts.leases = anyio.run(read_all, client, "/leases", Lease)
        found.append(list(checks.check_leases(facts, LeaderElectionSettings(leader_elect=True), Work())))
    assert [[one.level for one in each] for each in found] == [["problem"], ["problem"]]
    assert [each[0].text.partition(":")[0] for each in found] == [
        "there is no Lease kube-system/gangsched",
        "the Lease kube-system/gangsched has expired",
    ]


SERVED = ("gangsched",)


def _found_of(facts: Facts, *pods: Json, served: tuple[str, ...] = SERVED) -> dict[str, list[Finding]]:
    """What is said of the installation where these are its pods, by check."""
    election = LeaderElectionSettings(leader_elect=True, resource_namespace="gangsched-system")
    work = cluster_checks.work_of([msgspec.convert(pod, Pod) for pod in pods], served, facts.now)
    found = [
        *checks.check_policies(facts, work, with_agents=False),
        *checks.check_replicas(facts, work),
        *checks.check_leases(facts, election, work),
    ]
    return {name: [one for one in found if one.check == name] for name in ("policies", "replicas", "lease")}


def _nothing_applied(now: datetime) -> Facts:
    facts = Facts(("gangsched-system", "gangsched"), now)
    facts.policies, facts.policy_bindings, facts.leases, facts.deployments = [], [], [], []
    return facts


def _pod(name: str, *, bound: datetime | None, made: datetime, scheduler: str = "gangsched") -> Json:
    conditions = []
    if bound is not None:
        at = bound.strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]
    spec: Json = {"schedulerName": scheduler, "containers": [{"name": "main"}]}
    if bound is not None:
        spec["nodeName"] = "n0"
    created = made.strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}


NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
AGO = NOW - timedelta(minutes=2)


def test_where_pods_are_bound_without_leader_election_nothing_is_a_problem() -> None:
    """The cluster of getting-started: nothing of deploy/ is applied, and a gang runs."""
    pods = [_pod(f"train-{i}", bound=NOW - timedelta(seconds=12), made=AGO) for i in range(4)]
    found = _found_of(_nothing_applied(NOW), *pods)
    assert {one.level for each in found.values() for one in each} == {"warning"}
    [lease] = found["lease"]
    assert lease.text == (
        "there is no Lease gangsched-system/gangsched, and 4 pods are bound, the last one 12 s ago:"
        " a scheduler without leader election does it"
    )
    assert found["replicas"][0].text == (
        "there is no Deployment gangsched in gangsched-system; one that runs elsewhere does its work:"
        " 4 pods are bound, the last one 12 s ago"
    )


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ([], "no replica has ever led, and no pod is bound"),
        (
            [_pod("a", bound=AGO, made=AGO), _pod("b", bound=None, made=AGO)],
            "1 pod is bound, the last one 2 min",
        ),
        ([_pod("a", bound=AGO, made=AGO, scheduler="default-scheduler")], "and no pod is bound"),
    ],
    ids=["no pod", "one waits unseen", "another's"],
)
def test_where_no_pod_is_scheduled_a_lease_that_is_not_there_is_a_problem(
    pods: list[Json], told: str
) -> None:
    found = _found_of(_nothing_applied(NOW), *pods)
    assert [one.level for one in (*found["lease"], *found["policies"])] == ["problem"] * 3
    assert told in found["lease"][0].text


def test_a_lease_that_has_expired_is_no_problem_where_pods_are_bound_since() -> None:
    facts = _nothing_applied(NOW)
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": AGO.isoformat()}
    lease = {"metadata": {"name": "gangsched", "namespace": "gangsched-system"}, "spec": spec}
    facts.leases = [msgspec.convert(lease, Lease, strict=False)]
    [before] = _found_of(facts, _pod("a", bound=AGO - timedelta(minutes=9), made=AGO))["lease"]
    [since] = _found_of(facts, _pod("a", bound=AGO + timedelta(minutes=1), made=AGO))["lease"]
    assert (before.level, since.level) == ("problem", "warning")
    assert "has expired: one renewed it 120 s ago" in before.text
    assert since.text.startswith("nobody holds the Lease gangsched-system/gangsched, and 1 pod is bound")


def _dynamic(*pods: Pod, offered: int = 0, allocating: tuple[str, ...] = ()) -> Finding:
    facts = Facts(("gangsched-system", "gangsched"), AGO)
    facts.device_classes = [DeviceClass(Meta("gpu.nvidia.com"), DeviceClassSpec(GPU))]
    facts.slices = [ResourceSlice(Meta("s"), SliceSpec("gpu.nvidia.com", "n0"))]
    nodes = [make_node("n0", gpus=offered, listed=False)]
    [found] = cluster_checks.check_dynamic(facts, nodes, pods, ["gangsched"], allocating)
    return found


def test_devices_of_dynamic_resource_allocation_are_a_problem_for_who_asks_for_them() -> None:
    asks = make_pod("a", gpus=1)
    claims_one = make_pod("b", gpus=0)
    claims_one = replace(claims_one, spec=replace(claims_one.spec, resource_claims=[PodResourceClaim("gpu")]))
    for pod in (asks, claims_one):
        found = _dynamic(pod)
        assert found.level == "problem"
        assert found.text == (
            "gpu.nvidia.com offers devices by Dynamic Resource Allocation on 1 node (n0), which gangsched"
            f" does not allocate to them: in vain 1 pod of its own waits for some ({pod.key})"
        )
        assert "default-scheduler" in found.cure
    assert _dynamic(claims_one, allocating=("gangsched",)).level == "ok"
    assert _dynamic(asks, allocating=("gangsched",)).level == "problem"
    assert _dynamic(asks, offered=8).level == "ok"  # a device plugin offers them as well
    assert _dynamic(make_pod("c", gpus=0)).level == "ok"
    others = replace(asks, spec=replace(asks.spec, scheduler_name="default-scheduler"))
    assert _dynamic(others).level == "ok"


def test_without_slices_nothing_is_reported_of_dynamic_resource_allocation() -> None:
    facts = Facts(("gangsched-system", "gangsched"), AGO)
    assert not list(cluster_checks.check_dynamic(facts, [], [make_pod("a", gpus=1)], ["gangsched"]))


class Examined:
    """A server, and what the doctor says about it now."""

    def __init__(self, plane: Audited, capsys: pytest.CaptureFixture[str]) -> None:
        self.plane = plane
        self._capsys = capsys
        self.code = -1

    def look(self) -> dict[str, list[tuple[str, str, str]]]:
        """(level, text, cure) of each finding, by check."""
        self._capsys.readouterr()
        self.code = main(["doctor", "-o", "json", f"--kubeconfig={self.plane.kubeconfig}"])
        by_check: dict[str, list[tuple[str, str, str]]] = {}
        for one in json.loads(self._capsys.readouterr().out):
            by_check.setdefault(one["check"], []).append((one["level"], one["text"], one["cure"]))
        return by_check

    def node(self, name: str, gpus: int, listed: list[str] | None) -> None:
        devices = (
            None if listed is None else json.dumps({GPU: [{"id": i, "health": "Healthy"} for i in listed]})
        )
        annotations = {} if devices is None else {"gangsched.io/devices": devices}
        self.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "annotations": annotations}})
        status = {"allocatable": {GPU: str(gpus), "cpu": "8", "pods": "10"}, "capacity": {GPU: str(gpus)}}
        self.plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE)

    def pod(self, name: str, *, scheduler: str = "gangsched", node: str = "", **metadata: Any) -> None:
        container = {"name": "main", "image": "i"}
        spec: Json = {"containers": [container], "schedulerName": scheduler}
        if node:
            spec["nodeName"] = node
        self.plane.request("POST", PODS, {"metadata": {"name": name, **metadata}, "spec": spec})

    def lease(self, holder: str, renewed: datetime, *, namespace: str = "gangsched-system") -> None:
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": 15,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        path = LEASES.format(namespace)
        there = {item["metadata"]["name"] for item in self.plane.request("GET", path)["items"]}
        if "gangsched" in there:
            self.plane.request("PATCH", f"{path}/gangsched", {"spec": spec}, content_type=MERGE)
        else:
            self.plane.request("POST", path, {"metadata": {"name": "gangsched"}, "spec": spec})


def claims(device: str) -> Json:
    return {"annotations": {"gangsched.io/allocated-devices": json.dumps({"main": {GPU: [device]}})}}


@pytest.fixture
def examined(
    audited: Audited, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Examined:
    """What has just happened counts as settled: nothing here is an hour old."""
    monkeypatch.setattr(cluster_checks, "_UNSEEN_S", -60.0)
    monkeypatch.setattr(cluster_checks, "_SETTLED_S", -60.0)
    return Examined(audited, capsys)


@pytest.mark.real
def test_each_fault_is_found_and_comes_with_what_mends_it(examined: Examined) -> None:
    """One after the other, on one server."""
    nothing_is_installed(examined)
    two_pods_claim_one_device(examined)
    parts_are_missing(examined)
    nobody_leads_or_two_do(examined)
    nodes_and_pods_are_not_as_they_should_be(examined)
    devices_are_offered_by_slices_alone(examined)


def devices_are_offered_by_slices_alone(examined: Examined) -> None:
    assert "devices" not in examined.look()
    resource = "/apis/resource.k8s.io/v1"
    examined.plane.request(
        "POST",
        f"{resource}/deviceclasses",
        {"metadata": {"name": "tpu"}, "spec": {"extendedResourceName": "example.com/tpu"}},
    )
    devices = [{"name": "tpu-0"}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "tpu.example.com", "nodeName": "tpus", "pool": pool, "devices": devices}
    examined.plane.request("POST", f"{resource}/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    [(level, text, _)] = examined.look()["devices"]
    assert (level, "on 1 node (tpus)" in text) == ("ok", True)
    container = {"name": "main", "image": "i", "resources": {"limits": {"example.com/tpu": "1"}}}
    pod = {"metadata": {"name": "asks"}, "spec": {"containers": [container], "schedulerName": "gangsched"}}
    examined.plane.request("POST", PODS, pod)
    [(level, text, cure)] = examined.look()["devices"]
    assert level == "problem"
    assert "default/asks" in text
    assert "schedulerName: default-scheduler" in cure


def nothing_is_installed(examined: Examined) -> None:
    found = examined.look()
    assert examined.code == 3
    (level, text, cure), *optional = found["rights"]
    assert [one[0] for one in optional] == ["warning"] * len(OPTIONAL)
    assert level == "problem"
    assert text.startswith("system:serviceaccount:gangsched-system:gangsched may not create")
    assert cure == "kubectl apply -f deploy/rbac.yaml"
    assert [one[0] for one in found["policies"]] == ["problem", "problem"]
    assert found["flowschemas"][0][0] == "warning"
    assert found["replicas"][0][::2] == ("warning", "kubectl apply -k deploy/")
    assert "there is no Lease gangsched-system/gangsched" in found["lease"][0][1]
    assert [found[check][0][0] for check in ("version", "clock", "gangs", "pods")] == ["ok"] * 4


def two_pods_claim_one_device(examined: Examined) -> None:
    """From before the policies."""
    examined.node("n0", 2, ["g0", "g1"])
    for name in ("a", "b"):
        examined.pod(name, node="n0", **claims("g0"))
    assert examined.look()["drift"] == [
        (
            "problem",
            "n0: nvidia.com/gpu g0 is claimed by default/a and default/b",
            "kubectl -n default delete pod b, and see who wrote its annotation",
        )
    ]


def parts_are_missing(examined: Examined) -> None:
    """All is applied, and no controller here runs the Deployment."""
    plane = examined.plane
    plane.kubectl("apply", "-k", str(DEPLOY))
    # The API server follows roles by a watch: they count a moment after they are written.
    until(lambda: examined.look()["rights"][0][0] == "ok", "the rights are given")
    found = examined.look()
    assert [found[check][0][0] for check in ("rights", "policies", "flowschemas")] == ["ok"] * 3
    assert found["replicas"] == [
        (
            "problem",
            "no scheduler runs: none of 2 replicas is ready",
            "kubectl -n gangsched-system describe deployment/gangsched",
        )
    ]
    plane.kubectl("delete", "-f", str(DEPLOY / "flowschemas.yaml"))
    actions = {"spec": {"validationActions": ["Audit"]}}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gangsched-reserved-keys"
    plane.request("PATCH", path, actions, content_type=MERGE)
    found = examined.look()
    schemas = "gangsched-leader-election, gangsched, gangsched-reviews"
    assert f"{schemas} not applied" in found["flowschemas"][0][1]
    assert "gangsched-reserved-keys has no binding that denies" in found["policies"][0][1]


def nobody_leads_or_two_do(examined: Examined) -> None:
    now = datetime.now(UTC)
    examined.lease("one", now + timedelta(minutes=5))
    examined.lease("two", now + timedelta(minutes=5), namespace="kube-system")
    found = examined.look()
    leads, (level, text, _) = found["lease"]
    assert leads == ("ok", "one leads", "")
    assert level == "problem"
    assert "another scheduler leads by the Lease kube-system/gangsched: two" in text
    holders, own = found["clock"]
    assert (holders[0], own[0]) == ("warning", "ok")
    assert "the clock of one is" in holders[1]
    assert "ahead of the API server's" in holders[1]
    examined.lease("two", now - timedelta(minutes=5), namespace="kube-system")
    examined.lease("one", now - timedelta(minutes=5))
    [(level, text, cure)] = examined.look()["lease"]
    assert level == "problem"
    assert "has expired: one renewed it 3" in text
    assert cure.startswith("kubectl -n gangsched-system logs")
    examined.lease("", now)
    assert "has no holder" in examined.look()["lease"][0][1]


def nodes_and_pods_are_not_as_they_should_be(examined: Examined) -> None:
    examined.node("bare", 4, None)
    examined.node("short", 1, ["s0", "s1"])
    gang: Json = {
        "labels": {"gangsched.io/pod-group": "half"},
        "annotations": {"gangsched.io/min-members": "2"},
    }
    examined.pod("half-0", node="short", **gang)
    examined.pod("half-1", **gang)
    examined.pod("lost", scheduler="gangshed")
    found = examined.look()
    bare, no_agent = found["agents"]
    assert "no list of devices on 1 node (bare)" in bare[1]
    assert no_agent[::2] == ("warning", "kubectl apply -k deploy/agent/")
    [(level, text, _)] = found["inventory"]
    assert level == "warning"
    assert text.startswith("short lists 2 healthy nvidia.com/gpu, and kubelet offers 1:")
    assert found["gangs"] == [
        (
            "problem",
            "gang default/half runs in part: 1 of 2 members",
            "gangsched explain default/half says what the others lack: make room, or delete its pods.",
        )
    ]
    waits, unserved = found["pods"]
    assert " for 'gangsched', which has reported no reason: no replica schedules" in waits[1]
    assert waits[2].endswith("; gangsched explain default/half")
    assert unserved[1].startswith("the pod default/lost names the scheduler 'gangshed'")
    assert "did you mean gangsched?" in unserved[1]


@pytest.mark.real
def test_it_changes_nothing(examined: Examined) -> None:
    log = examined.plane.audit_log
    before = len(log.read_text().splitlines())
    examined.look()
    lines = [json.loads(line) for line in log.read_text().splitlines()[before:]]
    mine = [line for line in lines if line["user"]["username"] == ADMIN]
    did = {(line["verb"], (line.get("objectRef") or {}).get("resource", "")) for line in mine}
    assert ("list", "pods") in did
    assert {one for one in did if one[0] not in ("get", "list")} == {("create", "subjectaccessreviews")}
