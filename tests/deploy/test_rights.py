"""The scheduler as deploy/ makes it, on a real kube-apiserver: its account, its configuration, its rights.

What the role grants is compared with what the audit log says was used over a run that needs everything: a
verb that is missing fails the test, and so does one that nobody needs.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.command.cli import _parser
from gangsched.lab.controlplane.daemon import free_ports
from tests.deploy.conftest import DEPLOY, Audited
from tests.deploy.rights import Right, Used, granted, missing, unused, used
from tests.kube.scripted import status
from tests.real.cluster import PODS, Cluster, checked
from tests.real.controllers import Controllers
from tests.real.owners import make_owner, refuse
from tests.real.process import Scheduler, binding_gate, service_account
from tests.real.shapes import SHAPES, SIZE
from tests.web.measured import samples

pytestmark = pytest.mark.real

NAMESPACE, ACCOUNT = "gangsched-system", "gangsched"
THEIRS = ("Volcano", "KAI", "Koordinator's PodGroup")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


@pytest.fixture(scope="module")
def applied(audited: Audited) -> Audited:
    """`kubectl apply -k deploy/`, strictly validated."""
    said = audited.kubectl("apply", "-k", str(DEPLOY), "--validate=strict")
    assert "deployment.apps/gangsched created" in said
    audited.kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io")
    return audited


@pytest.fixture
def cluster(applied: Audited, tmp_path: Path) -> Iterator[Cluster]:
    with checked(applied, tmp_path) as made:
        yield made


def find(base: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    [found] = [d for d in base if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    return found


def test_applying_it_again_changes_nothing(applied: Audited) -> None:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangsched"
    before = applied.request("GET", path)["metadata"]["generation"]
    applied.kubectl("apply", "-k", str(DEPLOY), "--validate=strict")
    assert applied.request("GET", path)["metadata"]["generation"] == before


def test_its_pods_are_what_the_namespace_admits(applied: Audited, base: list[dict[str, Any]]) -> None:
    template = find(base, "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "one"}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All&fieldValidation=Strict"
    made = applied.request("POST", path, {**pod, "spec": template["spec"]})
    assert made["spec"]["priority"] == 1_000_000_000
    # Without what the restricted standard asks for it is refused: the namespace enforces it.
    careless = {key: value for key, value in template["spec"].items() if key != "securityContext"}
    with pytest.raises(Exception, match="violates PodSecurity"):
        applied.request("POST", path, {**pod, "spec": careless})


def test_requests_go_where_kube_schedulers_go(applied: Audited) -> None:
    """The API server says in its answer's headers which FlowSchema a request fell under."""
    schemas = applied.request("GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")["items"]
    uids = {schema["metadata"]["uid"]: schema["metadata"]["name"] for schema in schemas}
    token = applied.kubectl("create", "token", ACCOUNT, f"--namespace={NAMESPACE}").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "made-up"}}
    access = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "anybody", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    }
    seen = {}
    for path, body in (
        ("/api/v1/pods", None),
        (f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gangsched", None),
        ("/apis/authentication.k8s.io/v1/tokenreviews", review),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", access),
    ):
        request = urllib.request.Request(
            applied.base_url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(applied.ca_file))
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                headers = answer.headers
        except urllib.error.HTTPError as error:  # the lease may not be there yet
            headers = error.headers
        seen[path.rpartition("/")[2]] = uids[headers["X-Kubernetes-PF-FlowSchema-UID"]]
    assert seen == {
        "pods": "gangsched",
        "gangsched": "gangsched-leader-election",
        "tokenreviews": "gangsched-reviews",
        "subjectaccessreviews": "gangsched-reviews",
    }


def test_only_the_pages_can_be_connected_to(applied: Audited, base: list[dict[str, Any]]) -> None:
    """The policy that was applied names the pods and the port that their container listens on."""
    path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/gangsched"
    spec = applied.request("GET", path)["spec"]
    template = find(base, "Deployment")["spec"]["template"]
    wanted = spec["podSelector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    listens = [{"port": one["containerPort"], "protocol": one["protocol"]} for one in container["ports"]]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": listens}]


def test_two_replicas_run_the_main_job_with_these_rights_and_no_others(
    cluster: Cluster, base: list[dict[str, Any]], applied: Audited
) -> None:
    config = cluster.directory / "scheduler.yaml"
    name = find(base, "ConfigMap", "gangsched-config")["metadata"]["name"]
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
    core, ours = yaml.safe_load_all(applied.request("GET", path)["data"]["scheduler.yaml"])
    ours["queues"] = [{"name": "research", "namespaces": ["default"]}]  # what it has held is kept in a Lease
    config.write_text(yaml.safe_dump_all([core, ours]))
    first_of = {"lost-0"}

    def lets_through(pod: str, _: int) -> bool:
        if pod == "part-1":  # it goes while its gang is being bound
            applied.request("DELETE", "/api/v1/namespaces/default/pods/part-1")
        if pod in first_of:  # nobody knows what came of its first bind
            first_of.discard(pod)
            return False
        return True

    for kind in ("JobSet", "LeaderWorkerSet", "RayCluster", "Workload", "MPIJob"):
        Controllers(cluster).install(kind)
    for crd in (crd for name in THEIRS for crd in SHAPES[name].crds):
        applied.kubectl("apply", "-f", "-", input=json.dumps(crd))
        applied.kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}")
    cluster.nodes(7, gpus=8, racks=2)
    ports = free_ports(2)
    answer = status(500, reason="InternalError", message="oops")
    with binding_gate(applied, cluster.directory, lets_through, answer=answer) as (_, gate):
        leader = Scheduler(config, gate, cluster.directory / "first.log", port=ports[0])
        cluster.schedulers.append(leader)
        cluster.eventually(lambda: " leading " in leader.said, "the first one leads")
        account = service_account(applied, cluster.directory / "account.yaml")
        follower = Scheduler(config, account, cluster.directory / "second.log", port=ports[1])
        cluster.schedulers.append(follower)
        for dialect in ("ours", "core", "coscheduling", "lightweight"):
            cluster.gang(dialect, pods=4, gpus=1, dialect=dialect)
        cluster.gang("lost", pods=2, gpus=1)
        cluster.whole("ours", "core", "coscheduling", "lightweight", "lost")
        _other_systems_groups_are_told(cluster)
        cluster.gang("large", pods=4, gpus=8, dialect="core")
        cluster.whole("large")
        cluster.gang("too-large", pods=4, gpus=8, dialect="coscheduling")
        cluster.held("too-large", says="Insufficient nvidia.com/gpu")
        cluster.gang("part", pods=2, gpus=1, annotations={"gangsched.io/on-partial-bind": "unwind"})
        cluster.picture.until(lambda: not cluster.members("part"), "what was bound of part is given back")
        _a_gang_makes_room_for_itself(cluster, applied)
        _claims_are_bound_before_their_pod(cluster, applied)
        _members_that_were_refused_are_asked_about(cluster)
        _what_only_dra_offers_is_served_by_a_claim(cluster, applied)
        _resource_claims_are_allocated_before_their_pods_are_bound(cluster, applied)
        _metrics_are_read_with_a_token(cluster, applied, ports[0])
        _the_follower_is_ready_and_takes_over(cluster, leader, ports[1])
        cluster.gang("last", pods=2, gpus=1)
        cluster.whole("last")
        follower.stop_cleanly()
    _one_without_election_writes_its_name(cluster, config, account)
    rights = granted(base, ACCOUNT, NAMESPACE)
    needs = used(applied.audit_log, USER)
    assert not missing(rights, needs)
    # Asked for by the API server itself, in no request of its own; and once the answer to a write was lost
    # (tests/real/test_resource_claims_rights.py needs both); and once an attempt has left a claim
    # (tests/real/test_extended_resources.py).
    seen_elsewhere = {
        ("patch", "resourceclaims/binding"),
        ("get", "resourceclaims"),
        ("delete", "resourceclaims"),
    }
    assert {(one.verb, one.resource) for one in unused(rights, needs)} == seen_elsewhere


def _what_only_dra_offers_is_served_by_a_claim(cluster: Cluster, plane: Audited) -> None:
    """A DeviceClass says which resource it stands for, and the scheduler makes the claim."""
    classes, slices = (f"/apis/resource.k8s.io/v1/{kind}" for kind in ("deviceclasses", "resourceslices"))
    spec = {"extendedResourceName": "example.com/dra"}
    plane.request("POST", classes, {"metadata": {"name": "dra.example.com"}, "spec": spec})
    pool = {"name": "n0-dra", "generation": 1, "resourceSliceCount": 1}
    gpus = {"driver": "dra.example.com", "pool": pool, "nodeName": "n0", "devices": [{"name": "gpu-0"}]}
    plane.request("POST", slices, {"metadata": {"name": "n0-dra"}, "spec": gpus})
    amount = {"resources": {"requests": {"example.com/dra": "1"}, "limits": {"example.com/dra": "1"}}}
    container = {"name": "main", "image": "busybox", **amount}
    cluster.gang("dra", pods=1, gpus=0, containers=[container])
    cluster.whole("dra")
    [claim] = plane.request("GET", CLAIMS)["items"]
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    cluster.delete("dra")
    for path in (f"{slices}/n0-dra", f"{classes}/dra.example.com"):
        plane.request("DELETE", path)


def _resource_claims_are_allocated_before_their_pods_are_bound(cluster: Cluster, plane: Audited) -> None:
    driver = "gpu.example.com"
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    gpus = {"driver": driver, "pool": pool, "nodeName": "n0", "devices": [{"name": "gpu-0"}]}
    request = {"name": "gpu", "exactly": {"deviceClassName": driver}}
    made = {
        "/apis/resource.k8s.io/v1/deviceclasses": ("gpu.example.com", {}),
        "/apis/resource.k8s.io/v1/resourceslices": ("n0-gpus", gpus),
        CLAIMS: ("shared-gpu", {"devices": {"requests": [request]}}),
    }
    for path, (name, spec) in made.items():
        plane.request("POST", path, {"metadata": {"name": name}, "spec": spec})
    cluster.gang(
        "claiming", pods=2, gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared-gpu"}]
    )
    cluster.whole("claiming")
    allocated = plane.request("GET", f"{CLAIMS}/shared-gpu")["status"]
    assert len(allocated["reservedFor"]) == 2
    cluster.delete("claiming")
    for path, (name, _) in reversed(made.items()):
        plane.request("DELETE", f"{path}/{name}")


def _members_that_were_refused_are_asked_about(cluster: Cluster) -> None:
    """Why a gang's controller could not make all of it is in the events of its object."""
    owner = make_owner(cluster, "refused")
    cluster.gang("refused", pods=1, min_count=2, gpus=1, metadata={"ownerReferences": [owner]})
    refuse(cluster, owner, "exceeded quota: gpus")
    cluster.held("refused", says="Job refused could not create more: exceeded quota: gpus", members=1)
    cluster.delete("refused")
    cluster.plane.kubectl("delete", "job", "refused", "--cascade=background")


def _other_systems_groups_are_told(cluster: Cluster) -> None:
    """PodGroups of theirs with pods that name them; the status is where each kind has it."""
    for shape in (SHAPES[name] for name in THEIRS):
        for path, group in shape.objects(SIZE):
            if "scheduling.sigs.k8s.io" not in path:  # Koordinator's has no such field
                group["spec"]["priorityClassName"] = "gangsched"
            cluster.plane.request("POST", path, group)
        pods = shape.pods(SIZE)
        for pod in pods:
            pod["spec"]["containers"][0]["resources"] = {}
            cluster.plane.request("POST", PODS, pod)
        names = [pod["metadata"]["name"] for pod in pods]
        cluster.whole(*names)
        cluster.eventually(lambda path=shape.status: _is_told(cluster, path), f"{shape.status} says so")
        cluster.delete(*names)


def _is_told(cluster: Cluster, path: str) -> bool:
    return bool(cluster.plane.request("GET", path).get("status"))


def _a_gang_makes_room_for_itself(cluster: Cluster, plane: Audited) -> None:
    """Against a budget over everybody, so that nobody can be evicted and somebody must be deleted."""
    plane.request(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "urgent"}, "value": 1000},
    )
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    made = {"metadata": {"name": "all"}, "spec": {"selector": {}, "maxUnavailable": 0}}
    plane.request("POST", budgets, made)
    counts = {"disruptionsAllowed": 0, "currentHealthy": 9, "desiredHealthy": 9, "expectedPods": 9}
    status = {"status": {"observedGeneration": 1, **counts}}
    plane.request("PATCH", f"{budgets}/all/status", status, content_type="application/merge-patch+json")
    cluster.gang("urgent", pods=4, gpus=8, priorityClassName="urgent")
    cluster.whole("urgent")
    cluster.delete("urgent")
    plane.request("DELETE", f"{budgets}/all")


def _claims_are_bound_before_their_pod(cluster: Cluster, plane: Audited) -> None:
    """One gets a volume that there is, for the other one is made; the test does what controllers do."""
    merge = "application/merge-patch+json"
    classes, volumes = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    storage = {"storage": "1Gi"}
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "d.example.com")):
        waits = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        plane.request("POST", classes, {"metadata": {"name": name}, **waits})
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": storage}}
        spec["storageClassName"] = name
        plane.request("POST", claims, {"metadata": {"name": name}, "spec": spec})
    disk: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "capacity": storage}
    disk |= {"storageClassName": "there", "nfs": {"server": "s", "path": "/"}}
    plane.request("POST", volumes, {"metadata": {"name": "there"}, "spec": disk})
    phase = {"status": {"phase": "Available"}}
    plane.request("PATCH", f"{volumes}/there/status", phase, content_type=merge)
    mounted = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("there", "made")]
    cluster.gang("stored", pods=1, gpus=1, volumes=mounted)
    chosen = "volume.kubernetes.io/selected-node"

    def asked() -> bool:
        given = plane.request("GET", f"{volumes}/there")["spec"].get("claimRef", {})
        claim = plane.request("GET", f"{claims}/made")
        return given.get("name") == "there" and chosen in claim["metadata"].get("annotations", {})

    cluster.eventually(asked, "both claims are provided for")
    assert cluster.n_bound("stored") == 0
    uid = plane.request("GET", f"{claims}/made")["metadata"]["uid"]
    disk |= {"storageClassName": "made"}
    disk |= {"claimRef": {"namespace": "default", "name": "made", "uid": uid}}
    plane.request("POST", volumes, {"metadata": {"name": "made"}, "spec": disk})
    for name in ("there", "made"):
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        bound = {"metadata": {"annotations": done}, "spec": {"volumeName": name}}
        plane.request("PATCH", f"{claims}/{name}", bound, content_type=merge)
    cluster.whole("stored")


def _metrics_are_read_with_a_token(cluster: Cluster, plane: Audited, port: int) -> None:
    """As Prometheus would: a service account with the role that deploy/ has for it."""
    plane.kubectl("create", "serviceaccount", "prometheus", f"--namespace={NAMESPACE}")
    token = plane.kubectl("create", "token", "prometheus", f"--namespace={NAMESPACE}").strip()
    url = f"https://127.0.0.1:{port}/metrics"
    assert _get(url, token)[0] == 403
    plane.kubectl(
        "create",
        "clusterrolebinding",
        "prometheus",
        "--clusterrole=gangsched-metrics-reader",
        f"--serviceaccount={NAMESPACE}:prometheus",
    )
    # What was answered a moment ago is remembered for ten seconds.
    cluster.eventually(lambda: _get(url, token)[0] == 200, "the metrics are read")
    values = samples(_get(url, token)[1])
    assert values["leader_election_master_status{name=gangsched}"] == 1
    assert values["scheduler_schedule_attempts_total{result=scheduled}"] >= 22
    assert values["gangsched_partial_gangs"] == 0
    # lost-0's, and those of pods whose condition was being written: they name a version that is no more.
    answers = [one.code for one in used(plane.audit_log, USER) if one.right.resource == "pods/binding"]
    assert values["gangsched_bind_unknown_total"] == 1 + answers.count(409)
    assert _get(f"https://127.0.0.1:{port}/readyz", "") == (200, "ok")


def _the_follower_is_ready_and_takes_over(cluster: Cluster, leader: Scheduler, port: int) -> None:
    """What its pages say before and after the leader is asked to end."""
    page, status = f"https://127.0.0.1:{port}", "leader_election_master_status{name=gangsched}"
    token = cluster.plane.token

    def leads() -> float:
        return samples(_get(f"{page}/metrics", token)[1])[status]

    assert _get(f"{page}/readyz?verbose", "")[0] == 200
    assert leads() == 0
    leader.stop_cleanly()
    cluster.eventually(leads, "the follower leads")
    assert _get(f"{page}/readyz/leaderElection", token) == (200, "ok")


def _one_without_election_writes_its_name(cluster: Cluster, config: Path, account: Path) -> None:
    """Into a Lease that the last one has left, so that another one would know of it."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    cluster.plane.request("POST", leases, {"metadata": {"name": "gangsched-alone"}})
    alone = Scheduler(config, account, cluster.directory / "alone.log", flags=["--leader-elect=false"])
    cluster.schedulers.append(alone)

    def is_written() -> bool:
        lease = cluster.plane.request("GET", f"{leases}/gangsched-alone")
        return bool(lease.get("spec", {}).get("holderIdentity"))

    cluster.eventually(is_written, "its name is in the Lease")
    alone.stop_cleanly()


def _get(url: str, token: str) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    context = ssl._create_unverified_context()  # its certificate is made for the run
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_arguments_of_the_deployment_are_the_commands(base: list[dict[str, Any]]) -> None:
    [container] = find(base, "Deployment")["spec"]["template"]["spec"]["containers"]
    args = _parser(container["args"]).parse_args(container["args"])
    [port] = container["ports"]
    assert args.secure_port == port["containerPort"]
    volume = next(v for v in container["volumeMounts"] if args.config.startswith(v["mountPath"]))
    assert args.config == f"{volume['mountPath']}/scheduler.yaml"
    volumes = find(base, "Deployment")["spec"]["template"]["spec"]["volumes"]
    [source] = [v["configMap"]["name"] for v in volumes if v["name"] == volume["name"]]
    assert source == find(base, "ConfigMap", "gangsched-config-")["metadata"]["name"], "it has its hash"


# -- the comparison itself -----------------------------------------------------------------------------

LIST_PODS = Right("list", "", "pods")
LEASE = Right("update", "coordination.k8s.io", "leases", "ns", "gangsched")


def test_a_right_that_is_missing_or_not_used_is_found() -> None:
    asked = [Used(Right("list", "", "pods", "default"), 200)]
    assert not missing([LIST_PODS], asked)
    assert not unused([LIST_PODS], asked)
    assert missing([], asked) == asked
    assert missing([LIST_PODS], [Used(LIST_PODS, 403)]), "refused"
    assert unused([LIST_PODS, LEASE], asked) == {LEASE}
    other = Used(LEASE._replace(name="another"), 200)
    assert missing([LEASE], [other]) == [other]
    assert unused([LEASE], [other]) == {LEASE}


def test_a_role_is_read_by_its_bindings(tmp_path: Path) -> None:
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "ns"}
    role = {"kind": "Role", "metadata": {"name": "r", "namespace": "ns"}}
    rule = {"apiGroups": ["g"], "resources": ["x"], "verbs": ["get"], "resourceNames": ["one"]}
    ref = {"kind": "Role", "name": "r"}
    binding = {"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "ns"}, "roleRef": ref}
    documents = [{**role, "rules": [rule]}, {**binding, "subjects": [subject]}]
    assert granted(documents, "a", "ns") == {Right("get", "g", "x", "ns", "one")}
    assert granted(documents, "b", "ns") == set()
    log = tmp_path / "log"
    ref = {"resource": "pods", "subresource": "binding", "namespace": "d", "name": "p"}
    event = {"user": {"username": "me"}, "verb": "create", "objectRef": ref, "responseStatus": {"code": 201}}
    log.write_text(json.dumps(event) + "\n" + json.dumps({**event, "user": {"username": "you"}}) + "\n")
    assert used(log, "me") == [Used(Right("create", "", "pods/binding", "d", "p"), 201)]
