"""The defaults that kube-apiserver fills into the spec of a pod or pod template.

Lives here: defaults by version (as decoding applies them). Not here: admission and
validation. Nowhere: defaults inside downwardAPI and projected volumes. Called by pods, jobs and deployments.
Source: pkg/apis/core/v1/defaults.go, zz_generated.defaults.go of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules.canonical import canonical_list, tidy

Object = dict[str, Any]

GRACE_S = 30
FILE_MODE = 0o644
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(pod: Object) -> None:
    """A pod's own defaults and its spec's, in place. Raises: StatusError (400, not a quantity)."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    default_spec(spec, "Pod")
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for key in ("containers", "initContainers"):
        for container in spec.get(key) or ():
            _requests_from_limits(container["resources"])
            if spec.get("hostNetwork"):
                for port in container.get("ports") or ():
                    if "hostPort" not in port and "containerPort" in port:
                        port["hostPort"] = port["containerPort"]
    spec.setdefault("enableServiceLinks", True)


def default_template(template: Object, kind: str) -> None:
    """The pod template of an object of `kind`, in place."""
    metadata = template.get("metadata")
    if metadata is None:
        template["metadata"] = {}
    default_spec(template.setdefault("spec", {}), kind)


def default_spec(spec: Object, kind: str) -> None:
    """The defaults common to pods and pod templates."""
    tidy(spec)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", GRACE_S),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        if key not in spec:
            spec[key] = value
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    for key in _CONTAINER_LISTS:
        for container in spec.get(key) or ():
            _default_container(container, kind)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    canonical_list(spec.get("overhead"), kind)


def _default_container(container: Object, kind: str) -> None:
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image") or "")
    if "terminationMessagePath" not in container:
        container["terminationMessagePath"] = "/dev/termination-log"
    if "terminationMessagePolicy" not in container:
        container["terminationMessagePolicy"] = "File"
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources:
        canonical_list(resources.get("limits"), kind)
        canonical_list(resources.get("requests"), kind)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _default_field_ref(source)
            if reference := source.get("resourceFieldRef"):
                reference.setdefault("divisor", "0")
    for probe in _PROBES:
        if found := container.get(probe):
            _default_probe(found)
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _default_handler(handler)


def _default_field_ref(source: Object) -> None:
    reference = source.get("fieldRef")
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _default_probe(probe: Object) -> None:
    for key, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(key):
            probe[key] = value
    _default_handler(probe)


def _default_handler(handler: Object) -> None:
    if (http := handler.get("httpGet")) is not None:
        http.setdefault("path", "/")
        http.setdefault("scheme", "HTTP")
    if (grpc := handler.get("grpc")) is not None:
        grpc.setdefault("service", "")


def _default_volume(volume: Object) -> None:
    if (len(volume) == 1 and "name" in volume) or not volume:
        volume["emptyDir"] = {}
    elif "configMap" in volume:
        volume["configMap"].setdefault("defaultMode", FILE_MODE)
    elif "secret" in volume:
        volume["secret"].setdefault("defaultMode", FILE_MODE)
    elif "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if limit := (volume.get("emptyDir") or {}).get("sizeLimit"):
        sizes = {"sizeLimit": limit}
        canonical_list(sizes, "Pod")
        volume["emptyDir"]["sizeLimit"] = sizes["sizeLimit"]


def _requests_from_limits(resources: Object) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, limit in limits.items():
            requests.setdefault(name, limit)


def pull_policy(image: str) -> str:
    """Returns Always for the tag `latest`, stated or implied; IfNotPresent for another tag or a digest."""
    if not image:
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if (tag or ("" if digest else "latest")) == "latest" else "IfNotPresent"
