"""Kinds on which nothing acts here: manifests with them are accepted, and get the real server's defaults.

Lives here: ConfigMaps, Secrets, Services, RBAC, FlowSchemas and storage classes. RBAC is stored, not
enforced; a Service gets an address on which nothing listens. Only rules that people meet with kubectl are
checked: keys, immutable ConfigMaps and references to roles.
Source: pkg/apis/{core,rbac,flowcontrol,storage}/... of Kubernetes 1.37.
"""

from __future__ import annotations

import base64
import json
import re
from ipaddress import ip_network

from gangsched.api_rules.names import Problems
from gangsched.api_rules.status import FieldProblem, forbidden_field, invalid_value, required
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

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


class RoleStrategy(Strategy):
    name_rule = "path"

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        if not obj.get("rules"):
            obj["rules"] = None

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        self.prepare_for_create(new, context)


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
        reference = new["roleRef"]
        if old is None or reference == old.get("roleRef"):
            return []
        printed = {go: reference.get(go[0].lower() + go[1:], "") for go in ("Kind", "Name")}
        printed = {"APIGroup": reference["apiGroup"], **printed}
        text = json.dumps(printed, separators=(",", ":"))
        says = f"Invalid value: {text}: field is immutable"
        return [FieldProblem("roleRef", "FieldValueInvalid", says)]


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
    # The first address is the API server's own in every cluster.
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
