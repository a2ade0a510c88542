"""What may be wrong with a pod's containers.

Lives here: names, images, ports, environment, probes, security contexts. Not here: requests and limits
(resource_validation.py), volumes (volume_validation.py). Called by pod_validation.py.
Source: pkg/apis/core/validation/validation.go of Kubernetes 1.37.
"""

from __future__ import annotations

import json
from typing import Any

from gangsched.apiserver.kinds import names, resource_validation, volume_validation
from gangsched.apiserver.kinds.names import INT32_MAX, Problems
from gangsched.apiserver.metadata import qualified_name_problems
from gangsched.apiserver.status import (
    FieldProblem,
    duplicate_value,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)

Object = dict[str, Any]

_FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KNOWN_FIELD_PATHS = (
    *_FIELD_PATHS,
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
    "status.nominatedNodeName",
    "spec.hostNetwork",
    "spec.serviceAccount",
)
_RESOURCE_FIELDS = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NOT_IN_INIT = "may not be set for init containers without restartPolicy=Always"


def containers(field: str, found: list[Object], volumes: set[str], claims: frozenset[str]) -> Problems:
    """A pod's regular containers."""
    if not found:
        return [required(field)]
    problems: Problems = []
    seen: set[str] = set()
    for index, container in enumerate(found):
        at = f"{field}[{index}]"
        problems += _common(at, container, volumes, claims)
        name = container.get("name") or ""
        if name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        seen.add(name)
        problems += _hooks(at, container)
    return problems + _host_port_conflicts(field, found)


def init_containers(
    field: str, found: list[Object], regular: list[Object], volumes: set[str], claims: frozenset[str]
) -> Problems:
    problems: Problems = []
    seen = {each.get("name") or "" for each in regular}
    for index, container in enumerate(found):
        at = f"{field}[{index}]"
        problems += _common(at, container, volumes, claims)
        policy = container.get("restartPolicy")
        if policy is not None and policy != "Always":
            problems.append(not_supported(f"{at}.restartPolicy", policy, ("Always", "Never", "OnFailure")))
        name = container.get("name") or ""
        if name in seen:
            problems.append(duplicate_value(f"{at}.name", name))
        elif name:
            seen.add(name)
        problems += _host_port_conflicts(field, [container])
        if policy == "Always":
            problems += _hooks(at, container)
        else:
            problems += [
                forbidden_field(f"{at}.{key}", _NOT_IN_INIT)
                for key in ("lifecycle", *_PROBES)
                if key in container
            ]
    return problems


def _common(field: str, container: Object, volumes: set[str], claims: frozenset[str]) -> Problems:
    problems: Problems = []
    name, image = container.get("name") or "", container.get("image") or ""
    problems += names.label(f"{field}.name", name) if name else [required(f"{field}.name")]
    if not image:
        problems.append(required(f"{field}.image"))
    problems += names.one_of(
        f"{field}.terminationMessagePolicy",
        container["terminationMessagePolicy"],
        ("File", "FallbackToLogsOnError"),
    )
    if "ports" in container:
        problems += _ports(f"{field}.ports", container["ports"])
    if "env" in container:
        problems += _environment(f"{field}.env", container["env"])
    if "envFrom" in container:
        problems += _environment_from(f"{field}.envFrom", container["envFrom"])
    if "volumeMounts" in container:
        problems += volume_validation.mounts(f"{field}.volumeMounts", container["volumeMounts"], volumes)
    problems += names.one_of(
        f"{field}.imagePullPolicy", container["imagePullPolicy"], ("Always", "IfNotPresent", "Never")
    )
    if container["resources"]:
        problems += resource_validation.requirements(f"{field}.resources", container["resources"], claims)
    if context := container.get("securityContext"):
        problems += _security_context(f"{field}.securityContext", context)
    return problems


def _ports(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for index, port in enumerate(found):
        at = f"{field}[{index}]"
        if name := port.get("name"):
            wrong = names.port_name(f"{at}.name", name)
            if not wrong and name in seen:
                wrong = [duplicate_value(f"{at}.name", name)]
            seen.add(name)
            problems += wrong
        number = port.get("containerPort") or 0
        problems += (
            names.port_number(f"{at}.containerPort", number) if number else [required(f"{at}.containerPort")]
        )
        if host := port.get("hostPort"):
            problems += names.port_number(f"{at}.hostPort", host)
        problems += names.one_of(f"{at}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
    return problems


def _host_port_conflicts(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for index, container in enumerate(found):
        for position, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            text = f"{port['protocol']}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if text in seen:
                problems.append(duplicate_value(f"{field}[{index}].ports[{position}].hostPort", text))
            seen.add(text)
    return problems


def _environment(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    for index, variable in enumerate(found):
        at = f"{field}[{index}]"
        name = variable.get("name") or ""
        if not name:
            problems.append(required(f"{at}.name"))
        elif not all(" " <= each <= "~" and each != "=" for each in name):
            problems.append(
                invalid_value(
                    f"{at}.name",
                    name,
                    "a valid environment variable name must consist only of printable ASCII characters other "
                    "than '='",
                )
            )
        if (source := variable.get("valueFrom")) is not None:
            problems += _value_from(f"{at}.valueFrom", source, variable.get("value") or "")
    return problems


def _value_from(field: str, source: Object, value: str) -> Problems:
    problems: Problems = []
    given = [each for each in _SOURCES if source.get(each) is not None]
    for each in given:
        at, reference = f"{field}.{each}", source[each]
        if each == "fieldRef":
            problems += _field_ref(at, reference)
        elif each == "resourceFieldRef":
            resource = reference.get("resource") or ""
            if not resource:
                problems.append(required(f"{at}.resource"))
            elif resource not in _RESOURCE_FIELDS and ".hugepages-" not in resource:
                problems.append(not_supported(f"{at}.resource", resource, _RESOURCE_FIELDS))
        elif each in ("configMapKeyRef", "secretKeyRef"):
            problems += names.subdomain(f"{at}.name", reference.get("name") or "")
            if not reference.get("key"):
                problems.append(required(f"{at}.key"))
    if not given:
        says = f"must specify one of: {', '.join(f'`{each}`' for each in _SOURCES[:-1])} or `{_SOURCES[-1]}`"
        problems.append(invalid_value(field, "", says))
    elif value:
        problems.append(invalid_value(field, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        problems.append(invalid_value(field, "", "may not have more than one field specified at a time"))
    return problems


def _field_ref(field: str, reference: Object) -> Problems:
    path = reference.get("fieldPath") or ""
    if not path:
        return [required(f"{field}.fieldPath")]
    if path.endswith("']") and "['" in path:
        base, _, key = path[:-2].partition("['")
        if base in ("metadata.annotations", "metadata.labels"):
            key = key.lower() if base == "metadata.annotations" else key
            return [invalid_value(field, key, each) for each in qualified_name_problems(key)]
        path = base
    if path not in _KNOWN_FIELD_PATHS:
        says = f"error converting fieldPath: field label not supported: {path}"
        return [invalid_value(f"{field}.fieldPath", path, says)]
    return names.one_of(f"{field}.fieldPath", path, _FIELD_PATHS)


def _environment_from(field: str, found: list[Object]) -> Problems:
    problems: Problems = []
    for index, source in enumerate(found):
        given = [each for each in ("configMapRef", "secretRef") if source.get(each) is not None]
        for each in given:
            name = source[each].get("name") or ""
            at = f"{field}[{index}].{each}.name"
            problems += names.subdomain(at, name) if name else [required(at)]
        if not given:
            problems.append(invalid_value(field, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            problems.append(invalid_value(field, "", "may not have more than one field specified at a time"))
    return problems


def _hooks(field: str, container: Object) -> Problems:
    problems: Problems = []
    if lifecycle := container.get("lifecycle"):
        for hook in ("postStart", "preStop"):
            if (handler := lifecycle.get(hook)) is not None:
                problems += _handler(f"{field}.lifecycle.{hook}", handler)
    for name in _PROBES:
        if (probe := container.get(name)) is None:
            continue
        at = f"{field}.{name}"
        problems += _handler(at, probe)
        for key in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            problems += names.nonnegative(f"{at}.{key}", probe.get(key) or 0)
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            problems.append(invalid_value(f"{at}.successThreshold", probe["successThreshold"], "must be 1"))
    return problems


def _handler(field: str, handler: Object) -> Problems:
    given = [each for each in _HANDLERS if handler.get(each) is not None]
    if not given:
        return [required(field, "must specify a handler type")]
    problems: Problems = []
    kind, action = given[0], handler[given[0]]
    if kind == "exec" and not action.get("command"):
        problems.append(required(f"{field}.exec.command"))
    elif kind in ("httpGet", "tcpSocket", "grpc"):
        problems += names.port(f"{field}.{kind}.port", action.get("port"))
        if kind == "httpGet":
            problems += names.one_of(f"{field}.httpGet.scheme", action["scheme"], ("HTTP", "HTTPS"))
    return problems + [
        forbidden_field(f"{field}.{each}", "may not specify more than 1 handler type") for each in given[1:]
    ]


# The fields of the Go type in their order: the one message that prints a whole value prints them.
_GO_SECURITY_CONTEXT = [
    "capabilities",
    "privileged",
    "seLinuxOptions",
    "windowsOptions",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "procMount",
    "seccompProfile",
    "appArmorProfile",
]


def _security_context(field: str, context: Object) -> Problems:
    problems: Problems = []
    for key in ("runAsUser", "runAsGroup"):
        if (value := context.get(key)) is not None:
            problems += names.in_range(f"{field}.{key}", value, 0, INT32_MAX)
    problems += seccomp(f"{field}.seccompProfile", context.get("seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        whole = {
            ("SELinuxOptions" if key == "seLinuxOptions" else key[0].upper() + key[1:]): context.get(key)
            for key in _GO_SECURITY_CONTEXT
        }
        printed = json.dumps(whole, separators=(",", ":"))
        says = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        problems.append(FieldProblem(field, "FieldValueInvalid", f"Invalid value: {printed}: {says}"))
    return problems


def seccomp(field: str, profile: Object | None) -> Problems:
    if profile is None:
        return []
    type_ = profile.get("type") or ""
    if not type_:
        return [required(f"{field}.type", "type is required when seccompProfile is set")]
    problems = names.one_of(f"{field}.type", type_, ("Localhost", "RuntimeDefault", "Unconfined"))
    if type_ == "Localhost" and not profile.get("localhostProfile"):
        problems.append(required(f"{field}.localhostProfile", "must be set when seccomp type is Localhost"))
    return problems
