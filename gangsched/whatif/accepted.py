"""Whether the API server would take a manifest: by Kubernetes' own rules (api_rules).

Lives here: what is refused, and what is taken but is probably a mistake. Not here: admission, such as quotas,
webhooks and policies, which only the cluster knows. Pure. Called by manifests, after its own checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any, NamedTuple

from gangsched.api_rules import jobs, pod_validation
from gangsched.api_rules.pod_defaults import default_pod, default_template
from gangsched.api_rules.schema.catalog import builtin
from gangsched.api_rules.schema.decode import DecodeFailed, decode
from gangsched.api_rules.schema.quantities import BadText, quantity
from gangsched.api_rules.status import FieldProblem, StatusError, not_supported
from gangsched.errors import ConfigError
from gangsched.model.owners import READ_KINDS, replicas

Json = dict[str, Any]
_POD, _JOB = "io.k8s.api.core.v1.Pod", "io.k8s.api.batch.v1.Job"
_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
# Less memory than a container's first process takes.
_MIB = 2**20
_IN_BYTES = ("memory", "ephemeral-storage", "hugepages-")
_MAX_TOLD = 5
_GROUPS = {"Pod": "", "CronJob": "batch"} | {kind: one.group for kind, one in READ_KINDS.items()}


class _Part(NamedTuple):
    """A part of a manifest that is of a kind of Kubernetes itself. field: where it is; schema: its type's
    name; problems: fills in defaults and validates; spec: where in it the pods' spec is."""

    field: str
    body: Json
    schema: str
    problems: Callable[[Json], Sequence[FieldProblem]]
    spec: tuple[str, ...]


def check(document: Json) -> list[str]:
    """Returns probable mistakes, each with its field; none for kinds that are not of Kubernetes itself.

    document: in a form that can be made into pods. Raises: ConfigError, for what would be refused.
    """
    warnings: list[str] = []
    for part in _parts(document):
        try:
            found = decode(builtin().named(part.schema), deepcopy(part.body))
        except DecodeFailed as error:
            raise ConfigError(
                f"the API server would refuse it: {error}", path=part.field.rstrip(".")
            ) from None
        warnings += (
            f"{part.field}{path}: unknown field, which kubectl refuses" for path in found.unknown[:_MAX_TOLD]
        )
        warnings += _amounts(part, found.obj)
        try:
            problems = part.problems(found.obj)
        except StatusError as error:
            raise ConfigError(
                f"the API server would refuse it: {error}", path=part.field.rstrip(".")
            ) from None
        if problems:
            first, n_more = problems[0], len(problems) - 1
            more = f" (and {n_more} more)" if n_more else ""
            raise ConfigError(
                f"the API server would refuse it: {first.message}{more}", path=f"{part.field}{first.field}"
            )
    return warnings[:_MAX_TOLD]


def _parts(document: Json) -> Iterator[_Part]:
    spec = document.get("spec") or {}
    to_pods = "spec", "template"
    match _kind(document):
        case "Pod":
            yield _Part("", document, _POD, _pod, ("spec",))
        case "Job":
            yield _Part("", document, _JOB, jobs.creation_problems, (*to_pods, "spec"))
        case "JobSet":
            for i, one in enumerate(spec["replicatedJobs"]):
                name = f"{document['metadata']['name']}-{one.get('name', i)}-0"
                job = _with_policy({"metadata": {"name": name, "uid": name}, "spec": one["template"]["spec"]})
                field = f"spec.replicatedJobs[{i}].template."
                yield _Part(field, job, _JOB, jobs.creation_problems, (*to_pods, "spec"))
        case "LeaderWorkerSet":
            for key in ("leaderTemplate", "workerTemplate"):
                if found := spec["leaderWorkerTemplate"].get(key):
                    yield _Part(f"spec.leaderWorkerTemplate.{key}.", found, _TEMPLATE, _template, ("spec",))
        case "CronJob":
            name = document["metadata"]["name"]
            made = {"metadata": {"name": name, "uid": name}, "spec": spec["jobTemplate"]["spec"]}
            yield _Part("spec.jobTemplate.", made, _JOB, jobs.creation_problems, (*to_pods, "spec"))
        case kind if kind in replicas.KINDS:
            yield _Part("spec.template.", spec["template"], _TEMPLATE, _template_of_replicas, ("spec",))


def _kind(document: Json) -> str:
    """Returns the kind; "" for one of the same name in another group."""
    kind, group = document["kind"], document["apiVersion"].rpartition("/")[0]
    return kind if _GROUPS.get(kind) == group else ""


def _with_policy(job: Json) -> Json:
    """Returns the Job as the JobSet's webhook completes it (JobSet 0.12, pkg/webhooks/jobset_webhook.go)."""
    job = deepcopy(job)
    pods = job["spec"]["template"]["spec"]
    pods["restartPolicy"] = pods.get("restartPolicy") or "OnFailure"
    return job


def _pod(pod: Json) -> Sequence[FieldProblem]:
    default_pod(pod)
    return pod_validation.creation_problems(pod)


def _template(template: Json) -> Sequence[FieldProblem]:
    default_template(template, "PodTemplate")
    return pod_validation.spec_problems("spec", template["spec"])


def _template_of_replicas(template: Json) -> Sequence[FieldProblem]:
    problems = [*_template(template)]
    if (policy := template["spec"]["restartPolicy"]) != "Always":
        problems.append(not_supported("spec.restartPolicy", policy, ("Always",)))
    return problems


def _amounts(part: _Part, body: Json) -> Iterator[str]:
    """Yields amounts of bytes that are certainly mistakes: fractions, and less memory than any process
    takes."""
    field, spec = ".".join(part.spec), body
    for name in part.spec:
        spec = spec.get(name) or {}
    for listed in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(listed) or ()):
            resources = container.get("resources") or {}
            for key in ("limits", "requests"):
                for resource, text in (resources.get(key) or {}).items():
                    if key == "requests" and (resources.get("limits") or {}).get(resource) == text:
                        continue  # as the limit, which has been looked at
                    if resource.startswith(_IN_BYTES) and (problem := _odd(resource, str(text))):
                        yield f"{part.field}{field}.{listed}[{i}].resources.{key}.{resource}: {problem}"


def _odd(resource: str, text: str) -> str:
    try:
        value = Decimal(quantity(text).value)
    except BadText:
        return ""  # its validation says so
    is_tiny = resource == "memory" and 0 < value < _MIB
    if value == int(value) and not is_tiny:
        return ""
    digits = text.rstrip("m")
    meant = f"; did you mean {digits}Mi?" if digits.isdecimal() else ""
    return f"{text} is {value.normalize():f} bytes{meant}"
