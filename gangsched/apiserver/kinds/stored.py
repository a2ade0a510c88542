"""Kinds that nothing acts on here; defaults and validation give manifests the real server's answers.

Lives here: ConfigMaps, Secrets, Services, RBAC, FlowSchemas and storage classes. RBAC is stored, not
enforced; a Service gets an address that nothing listens on.
Source: pkg/apis/{core,rbac,flowcontrol,storage}/... of Kubernetes 1.37.
"""

from __future__ import annotations

import base64
import json
import re
from ipaddress import ip_network

from gangsched.apiserver.kinds import names
from gangsched.apiserver.kinds.names import Problems
from gangsched.apiserver.status import FieldProblem, forbidden_field, invalid_value, required
from gangsched.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

_KEY = re.compile(r"[-._a-zA-Z0-9]+\Z")
_KEY_SAYS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_RBAC = "rbac.authorization.k8s.io"
SERVICE_RANGE = ip_network("10.96.0.0/12")


class DataStrategy(Strategy):
    """ConfigMaps, and the rules that Secrets share with them."""

    _maps: tuple[str, ...] = ("data", "binaryData")

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        for key in self._maps:
            if not obj.get(key):
                obj.pop(key, None)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems: Problems = []
        for field in self._maps:
            for key in new.get(field) or {}:
                if not _KEY.match(key):
                    problems.append(invalid_value(f"{field}[{key}]", key, _KEY_SAYS))
                elif field == "data" and key in (new.get("binaryData") or {}):
                    says = "duplicate of key present in binaryData"
                    problems.append(invalid_value(f"data[{key}]", key, says))
        if old is not None and old.get("immutable"):
            says = "field is immutable when `immutable` is set"
            if not new.get("immutable"):
                problems.append(forbidden_field("immutable", says))
            problems += [forbidden_field(key, says) for key in self._maps if new.get(key) != old.get(key)]
        return problems


class SecretStrategy(DataStrategy):
    _maps = ("data",)

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        if plain := obj.pop("stringData", None):
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}
        obj["type"] = obj.get("type") or "Opaque"
        super().prepare_for_create(obj, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems = super().validate(new, old, context)
        if old is not None and new["type"] != old.get("type"):
            problems.append(invalid_value("type", new["type"], "field is immutable"))
        return problems


class RoleStrategy(Strategy):
    name_rule = "path"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        if not obj.get("rules"):
            obj["rules"] = None

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        problems: Problems = []
        for index, rule in enumerate(new["rules"] or ()):
            no_verbs = [] if rule.get("verbs") else [required(f"rules[{index}].verbs")]
            if rule.get("nonResourceURLs"):
                problems += no_verbs
                continue
            if not rule.get("apiGroups"):
                says = "resource rules must supply at least one api group"
                problems.append(required(f"rules[{index}].apiGroups", says))
            if not rule.get("resources"):
                says = "resource rules must supply at least one resource"
                problems.append(required(f"rules[{index}].resources", says))
            problems += no_verbs
        return problems


class RoleBindingStrategy(Strategy):
    name_rule = "path"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        reference = obj["roleRef"] = obj.get("roleRef") or {}
        reference["apiGroup"] = reference.get("apiGroup") or _RBAC
        for subject in obj.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = _RBAC

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        reference, problems = new["roleRef"], list[FieldProblem]()
        kinds = ("Role", "ClusterRole") if context.resource.namespaced else ("ClusterRole",)
        problems += names.one_of("roleRef.kind", reference.get("kind") or "", kinds)
        for index, subject in enumerate(new.get("subjects") or ()):
            at = f"subjects[{index}]"
            kind = subject.get("kind") or ""
            problems += names.one_of(f"{at}.kind", kind, ("ServiceAccount", "User", "Group"))
            if not subject.get("name"):
                problems.append(required(f"{at}.name"))
            if kind == "ServiceAccount" and not subject.get("namespace"):
                problems.append(required(f"{at}.namespace"))
        if not reference.get("name"):
            problems.append(required("roleRef.name"))
        if old is not None and reference != old.get("roleRef"):
            printed = {go: reference.get(go[0].lower() + go[1:], "") for go in ("Kind", "Name")}
            printed = {"APIGroup": reference["apiGroup"], **printed}
            text = json.dumps(printed, separators=(",", ":"))
            says = f"Invalid value: {text}: field is immutable"
            problems.append(FieldProblem("roleRef", "FieldValueInvalid", says))
        return problems


class ServiceStrategy(Strategy):
    name_rule = "label"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default_service(obj)
        spec = obj["spec"]
        if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
            spec["clusterIP"] = _free_address(context)
        if address := spec.get("clusterIP"):
            spec["clusterIPs"] = [address]
        if spec["type"] != "ExternalName":
            dual = spec.get("clusterIP") == "None" and not spec.get("selector")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual else ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
        obj["status"] = {"loadBalancer": {}}

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            return
        _default_service(new)
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if key not in new["spec"]:
                keep(key, new["spec"], old["spec"])
        keep("status", new, old)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        spec, problems = new["spec"], list[FieldProblem]()
        ports = spec.get("ports") or []
        if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
            problems.append(required("spec.ports"))
        for index, port in enumerate(ports):
            at = f"spec.ports[{index}]"
            problems += names.port_number(f"{at}.port", port.get("port") or 0)
            problems += names.one_of(f"{at}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
            problems += names.port(f"{at}.targetPort", port["targetPort"])
            if len(ports) > 1 and not port.get("name"):
                problems.append(required(f"{at}.name"))
        if old is not None and spec.get("clusterIP") != old["spec"].get("clusterIP"):
            says = "may not change once set"
            problems.append(invalid_value("spec.clusterIPs[0]", [spec.get("clusterIP")], says))
        return problems


def _default_service(service: Object) -> None:
    spec = service["spec"] = service.get("spec") or {}
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port") or 0


def _free_address(context: Context) -> str:
    taken = {
        item.decode()["spec"].get("clusterIP")
        for item in context.cluster.list(context.cluster.resource("services"))
    }
    # The first is the API server's own in every cluster.
    free = (str(each) for number, each in enumerate(SERVICE_RANGE.hosts()) if number)
    return next(each for each in free if each not in taken)


class FlowStrategy(Strategy):
    """FlowSchemas and PriorityLevelConfigurations: nothing is throttled here."""

    has_generation = True

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        spec = obj["spec"] = obj.get("spec") or {}
        if context.resource.plural == "flowschemas" and not spec.get("matchingPrecedence"):
            spec["matchingPrecedence"] = 1000
        obj["status"] = {}


class StorageClassStrategy(Strategy):
    def prepare_for_create(self, obj: Object, context: Context) -> None:
        for key, value in (("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate")):
            obj[key] = obj.get(key) or value

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        return [] if new.get("provisioner") else [required("provisioner")]
