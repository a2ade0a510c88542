"""What the embedded API server does not answer as a real one does: the whole list, each with its reason.

test_differences.py asks both servers: a row whose difference has gone away fails there and is taken out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.contract.api import CORE, MERGE, TABLE, Api, Json
from tests.contract.objects import binding, config_map, unique
from tests.support.bodies import pod
from tests.support.processes import until

PROTOBUF = "application/vnd.kubernetes.protobuf"


DEVICES = "/apis/resource.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Difference(NamedTuple):
    """`ask` one server something; `real` and `embedded` are what each answers."""

    name: str
    reason: str
    ask: Callable[[Api], Any]
    real: Any
    embedded: Any


def _code(path: str, **rest: Any) -> Callable[[Api], int]:
    return lambda api: api.get(path, **rest).code


def _protobuf(api: Api) -> int:
    return api.get(api.at("pods"), accept=PROTOBUF).code


def _without_a_token(api: Api) -> int:
    connection = api.connect()
    connection.request("GET", api.at("pods"))
    code = connection.getresponse().status
    connection.close()
    return code


def _nobody_may(api: Api) -> bool:
    asked = {"user": "nobody", "resourceAttributes": {"verb": "delete", "resource": "nodes"}}
    said = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked}).ok(201)
    return bool(said["status"]["allowed"])


def _column_descriptions(api: Api) -> bool:
    columns = api.get(api.at("pods"), accept=TABLE).ok()["columnDefinitions"]
    return all(each["description"] for each in columns)


def _log_of_a_bound_pod(api: Api) -> int:
    api.post(api.at("pods"), pod("a")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("a")).ok(201)
    return api.get(api.at("pods", "a", "log")).code


def _log_of_a_pod_without_a_node(api: Api) -> int:
    api.post(api.at("pods"), pod("a")).ok(201)
    return api.get(api.at("pods", "a", "log")).code


def _exec_in_a_bound_pod(api: Api) -> int:
    api.post(api.at("pods"), pod("a")).ok(201)
    api.post(api.at("pods", "a", "binding"), binding("a")).ok(201)
    return api.post(api.at("pods", "a", "exec"), None, command="ls").code


def _proxy(api: Api) -> int:
    api.post(api.at("pods"), pod("a")).ok(201)
    return api.get(api.at("pods", "a", "proxy")).code


def _scale(api: Api) -> int:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    sent = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    group = "/apis/apps/v1"
    api.post(api.at("deployments", group=group), sent).ok(201)
    return api.get(api.at("deployments", "d", "scale", group=group)).code


def _token(api: Api) -> int:
    api.post(api.at("serviceaccounts"), {"metadata": {"name": "a"}}).ok(201)
    return api.post(api.at("serviceaccounts", "a", "token"), {"spec": {}}).code


def _policy_is_enforced(api: Api) -> bool:
    """Whether a validating policy that refuses everything refuses a config map."""
    group = "/apis/admissionregistration.k8s.io/v1"
    name = unique("never")
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": namespace},
            "validations": [{"expression": "false"}],
        },
    }
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    api.post(f"{group}/validatingadmissionpolicies", policy).ok(201)
    api.post(f"{group}/validatingadmissionpolicybindings", bound).ok(201)

    def try_it() -> Any:
        return api.post(api.at("configmaps"), config_map("a"), dryRun="All")

    # The real server takes note of a policy in the background.
    return try_it().code == 422 if api.name == "embedded" else api.eventually(try_it, 422).code == 422


def _gadgets(api: Api, size: Json, **version: Any) -> str:
    """Defines a kind with a `size`; the path of its objects, once it is served."""
    plural = unique("gadgets").replace("-", "")
    group = f"{plural}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer", **size}}}}
    definition = {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Gadget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).ok(201)
    path = api.at(plural, group=f"/apis/{group}/v1")
    api.eventually(lambda: api.get(path))
    return path


def _cel_rule(api: Api) -> int:
    """What a custom object gets that breaks a rule of x-kubernetes-validations."""
    rule = {"rule": "self > 5", "message": "too small"}
    path = _gadgets(api, {"x-kubernetes-validations": [rule]})
    sent = {"apiVersion": f"{path.split('/')[2]}/v1", "kind": "Gadget", "metadata": {"name": "a"}, "size": 1}
    return api.post(path, sent).code


def _selectable_field(api: Api) -> int:
    path = _gadgets(api, {}, selectableFields=[{"jsonPath": ".size"}])
    return api.get(path, fieldSelector="size=1").code


def _nonsense_that_nothing_reads(api: Api) -> int:
    source = {"path": "/x", "type": "nonsense"}
    return api.post(api.at("pods"), pod("a", volumes=[{"name": "v", "hostPath": source}])).code


def _managers_of_a_pod(api: Api) -> bool:
    return "managedFields" in api.post(api.at("pods"), pod("a")).ok(201)["metadata"]


def _names_of_go(api: Api) -> bool:
    api.post(api.at("pods"), pod("a")).ok(201)
    answer = api.patch(api.at("pods", "a"), {"spec": {"hostNetwork": True}})
    assert "pod updates may not change fields other than" in answer.body["message"]
    return '"HostNetwork"' in answer.body["message"]


def _marked_default(api: Api) -> bool:
    group = "/apis/storage.k8s.io/v1/storageclasses"
    name = unique("storage")
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.post(group, {"metadata": {"name": name, "annotations": annotations}, "provisioner": "a.b/c"}).ok(201)
    rows = api.get(group, accept=TABLE).ok()["rows"]
    api.delete(f"{group}/{name}").ok()
    return any(row["cells"][0].endswith(" (default)") for row in rows)


def _kinds_are_described(api: Api) -> bool:
    schemas = api.get("/openapi/v3/api/v1").ok()["components"]["schemas"]
    return bool(schemas["io.k8s.api.core.v1.PodSpec"].get("description"))


def _quota_kinds(api: Api) -> bool:
    return "resourcequotas" in {each["name"] for each in api.get(CORE).ok()["resources"]}


def _claim(name: str, **exactly: Any) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def _selector(expression: str) -> Callable[[Api], int]:
    sent = _claim("c", selectors=[{"cel": {"expression": expression}}])
    return lambda api: api.post(api.at("resourceclaims", group=DEVICES), sent).code


def _allocates_without_the_right(api: Api) -> tuple[int, int]:
    """What a user gets who may patch the status of claims: at first without, then with the right to bind."""
    user = unique("user")
    path = api.at("resourceclaims", group=DEVICES)
    api.post(path, _claim("c")).ok(201)
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    body = json.dumps({"status": {"allocation": {"devices": {"results": [result]}}}})
    headers = api.headers | {"Impersonate-User": user, "Content-Type": MERGE}

    def patch() -> int:
        connection = api.connect()
        connection.request("PATCH", f"{path}/c/status", body, headers)
        code = connection.getresponse().status
        connection.close()
        return code

    def allow(subresource: str) -> None:
        role = unique("role")
        rule = {
            "apiGroups": ["resource.k8s.io"],
            "resources": [f"resourceclaims/{subresource}"],
            "verbs": ["patch"],
        }
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        api.post(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": [rule]}).ok(201)
        api.post(
            f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]},
        ).ok(201)

    allow("status")
    # The real server takes note of rights in the background: 403 until the first, 422 until the second.
    codes = [patch()]

    def patched(*wanted: int) -> bool:
        codes.append(patch())
        return codes[-1] in wanted

    until(lambda: patched(200, 422), "the status may be patched")
    without = codes[-1]
    allow("binding")
    until(lambda: patched(200), "the claim may be allocated")
    return without, codes[-1]


def _parameters_with_blanks(api: Api) -> int:
    """A label for a claim whose parameters were sent with a blank in them."""
    body = _claim("c")
    opaque = {"driver": "gpu.example.com", "parameters": {"mode": "shared"}}
    body["spec"]["devices"]["config"] = [{"opaque": opaque}]
    path = api.at("resourceclaims", group=DEVICES)
    api.post(path, json.dumps(body, separators=(", ", ": ")).encode()).ok(201)
    return api.patch(f"{path}/c", {"metadata": {"labels": {"a": "b"}}}).code


DIFFERENCES = (
    Difference(
        "managed fields of what programs write",
        "Pods, nodes, events and leases are written by programs many times a second: their fields get managers "
        "only once somebody applies them on the server's side, or where kubectl creates them.",
        _managers_of_a_pod,
        real=True,
        embedded=False,
    ),
    Difference(
        "authentication",
        "The embedded server is for one person on his own machine: it listens on loopback and lets everybody in.",
        _without_a_token,
        real=403,
        embedded=200,
    ),
    Difference(
        "authorization",
        "For the same reason nobody is refused: roles are kept, and every review says yes.",
        _nobody_may,
        real=False,
        embedded=True,
    ),
    Difference(
        "the comparison behind a refused update of a pod",
        "The sentence is the same; of the two specs that follow line by line, the real server prints the names "
        "of Go's fields, the embedded one those that the user wrote.",
        _names_of_go,
        real=True,
        embedded=False,
    ),
    Difference(
        "protobuf answers",
        "JSON and YAML are all it answers in; every client of Kubernetes accepts JSON as well.",
        _protobuf,
        real=200,
        embedded=406,
    ),
    Difference(
        "descriptions of columns",
        "kubectl does not print them, and the sentences are Kubernetes' own.",
        _column_descriptions,
        real=True,
        embedded=False,
    ),
    Difference(
        "the mark of the default storage class",
        "A list prints `(default)` behind its name there; nothing here acts on a storage class.",
        _marked_default,
        real=True,
        embedded=False,
    ),
    Difference(
        "descriptions of whole kinds in `kubectl explain`",
        "Descriptions are those of the installed client's models, which describe plain fields, but neither "
        "kinds nor fields that refer to another kind.",
        _kinds_are_described,
        real=True,
        embedded=False,
    ),
    Difference(
        "logs of a pod on a node",
        "No container runs, so there is no log: 501 says so. The real server fails to find the node.",
        _log_of_a_bound_pod,
        real=404,
        embedded=501,
    ),
    Difference(
        "logs of a pod without a node",
        "The real server answers with nothing at all; the clear no is of more use.",
        _log_of_a_pod_without_a_node,
        real=204,
        embedded=400,
    ),
    Difference(
        "exec, attach and port-forward to a pod on a node",
        "No container runs, so there is nothing to reach into: 501 says so. The real server fails to find the "
        "node.",
        _exec_in_a_bound_pod,
        real=404,
        embedded=501,
    ),
    Difference(
        "proxy, resize, ephemeral containers",
        "There is nothing to reach into; the subresources are absent from discovery as well.",
        _proxy,
        real=400,
        embedded=404,
    ),
    Difference(
        "scale",
        "Deployments are kept so that files with them are accepted; nobody runs them here.",
        _scale,
        real=200,
        embedded=404,
    ),
    Difference(
        "tokens of service accounts",
        "Without authentication nobody needs one.",
        _token,
        real=201,
        embedded=404,
    ),
    Difference(
        "admission policies and webhooks",
        "They are kept, not enforced: that would take an interpreter of CEL.",
        _policy_is_enforced,
        real=True,
        embedded=False,
    ),
    Difference(
        "CEL rules in a definition's schema",
        "The same: accepted with a warning, not evaluated.",
        _cel_rule,
        real=422,
        embedded=201,
    ),
    Difference(
        "fields that custom objects may be selected by",
        "A definition's selectableFields are kept, and nothing here selects custom objects by a field.",
        _selectable_field,
        real=200,
        embedded=400,
    ),
    Difference(
        "rules about what no scheduler reads",
        "Fields that no scheduler reads and no simulated kubelet acts on are kept as they are sent: probes, hooks, "
        "security contexts, variables, host names, DNS, the details of a volume, a node's addresses; likewise "
        "what is in Deployments, Services and roles.",
        _nonsense_that_nothing_reads,
        real=422,
        embedded=201,
    ),
    Difference(
        "kinds without a use here",
        "Kinds that no scheduler reads and that the simulated cluster does not run are not served: daemon sets, "
        "stateful sets, replica sets, cron jobs, quotas, ingresses, endpoints, autoscalers and the like.",
        _code("/apis/apps/v1/daemonsets"),
        real=200,
        embedded=404,
    ),
    Difference(
        "quotas and limit ranges",
        "Their admission is not simulated; `kubectl describe namespace` has no lines about them.",
        _quota_kinds,
        real=True,
        embedded=False,
    ),
    Difference(
        "metrics of the API server",
        "It has none; the scheduler's metrics are the scheduler's.",
        _code("/metrics"),
        real=200,
        embedded=404,
    ),
    Difference(
        "the right to allocate a claim of devices",
        "Nobody is asked for rights, so `resourceclaims/binding` is not asked for either (from 1.36 on it is).",
        _allocates_without_the_right,
        real=(422, 200),
        embedded=(200, 200),
    ),
    Difference(
        "types in selectors of devices",
        "They are compiled as gangsched evaluates them: types are not checked, and one that does not fit is an "
        "error when the selector is evaluated.",
        _selector("device.driver"),
        real=422,
        embedded=201,
    ),
    Difference(
        "the cost of selectors of devices",
        "It is not estimated beforehand; an evaluation that takes too many steps is stopped.",
        _selector(
            "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, "
            "device.attributes.all(d, a + b + c + d != ''))))"
        ),
        real=422,
        embedded=201,
    ),
    Difference(
        "parameters of drivers that were sent with blanks",
        "A real server keeps their bytes and compares these, so that JSON that it has written anew is a change: "
        "a claim whose parameters have blanks, or <, > or & unescaped, cannot be patched outside of its status, "
        "nor by a strategic patch or by apply where their keys are not in order. Here their values count.",
        _parameters_with_blanks,
        real=422,
        embedded=200,
    ),
)
