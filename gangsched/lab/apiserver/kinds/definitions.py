"""CustomResourceDefinitions: each adds a resource at run time; deleting it removes the resource and its
objects.

Lives here: the strategy of definitions. Not here: the objects they define (custom_objects.py), schemas and
their problems (schema/). A definition is established with the next write after its creation, so that clients
see both states, as with the real server, where a controller does it. Source: k8s.io/apiextensions-apiserver
pkg/registry/customresourcedefinition, pkg/apis/apiextensions/ {v1/defaults.go,validation},
pkg/controller/{status,establish,finalizer} of Kubernetes 1.37.
"""

from __future__ import annotations

import json
import re

from gangsched.api_rules import names
from gangsched.api_rules.names import Problems, name_problems
from gangsched.api_rules.status import FieldProblem, invalid_value, required
from gangsched.lab.apiserver.kinds.custom_objects import CustomStrategy
from gangsched.lab.apiserver.resources import STATUS_VERBS, Resource, Subresource
from gangsched.lab.apiserver.schema.definitions import schema_problems, schema_warnings
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, keep, keep_all_but_status

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_APPROVAL = "api-approved.kubernetes.io"
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?\Z")
_STAGES = {"": 2, "beta": 1, "alpha": 0}


class DefinitionStrategy(Strategy):
    has_generation = True
    says_grace = False

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        _default(obj)
        stored = [each.get("name") for each in obj["spec"]["versions"] if each.get("storage")]
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }
        _warn(obj, context)

    def prepare_for_update(self, new: Object, old: Object, context: Context) -> None:
        if context.subresource == "status":
            keep_all_but_status(new, old)
            return
        _default(new)
        keep("status", new, old)
        known = new["status"].get("storedVersions") or []
        stored = [each.get("name") for each in new["spec"]["versions"] if each.get("storage")]
        new["status"]["storedVersions"] = [*known, *(each for each in stored if each not in known)]
        _warn(new, context)

    def validate(self, new: Object, old: Object | None, context: Context) -> list[FieldProblem]:
        if context.subresource == "status" or (old is not None and new["spec"] == old["spec"]):
            return []
        return _problems(new, old)

    def before_delete(self, obj: Object, context: Context) -> None:
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata:
            return
        metadata["deletionTimestamp"] = context.timestamp()
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
        conditions = obj["status"].get("conditions") or []
        says = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        obj["status"]["conditions"] = [
            *conditions,
            _condition("Terminating", "InstanceDeletionPending", says, context.timestamp()),
        ]

    def after_create(self, item: Item, context: Context) -> None:
        _establish(item, context)

    def after_update(self, item: Item, before: Item, context: Context) -> None:
        definition = item.decode()
        finalizers = definition["metadata"].get("finalizers") or []
        if "deletionTimestamp" in definition["metadata"]:
            if CLEANUP in finalizers:
                context.cluster.unserve(key_of(definition))
                context.cluster.modify(context.resource, "", item.name, _without_cleanup)
        elif definition["spec"] != before.decode()["spec"]:
            _establish(item, context)


def key_of(definition: Object) -> str:
    """The key of the resource that it defines."""
    spec = definition["spec"]
    return f"{spec['group']}/{spec['names']['plural']}"


def resource_of(definition: Object) -> Resource:
    """Returns the resource; its served versions differ only in name, the first is preferred and stored."""
    spec, own = definition["spec"], definition["spec"]["names"]
    served = [each for each in spec["versions"] if each.get("served")]
    served.sort(key=lambda each: _priority(each["name"]), reverse=True)
    has_status = any("status" in (each.get("subresources") or {}) for each in served)
    status = (Subresource("status", own["kind"], STATUS_VERBS),) if has_status else ()
    return Resource(
        group=spec["group"],
        versions=tuple(each["name"] for each in served),
        plural=own["plural"],
        singular=own["singular"],
        kind=own["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(own.get("shortNames") or ()),
        categories=tuple(own.get("categories") or ()),
        subresources=status,
        list_kind=own["listKind"],
        custom=True,
    )


def _priority(name: str) -> tuple[int, ...]:
    """Sorts v2, v1, v1beta2, v1alpha1 in this order; other names last. Source: apimachinery pkg/version."""
    match = _VERSION.match(name)
    if match is None:
        return (-1,)
    return (_STAGES[match[2] or ""], int(match[1]), int(match[3] or 0))


def _establish(item: Item, context: Context) -> None:
    definition = item.decode()
    resource = resource_of(definition)
    if not resource.versions:
        context.cluster.unserve(resource.key)
        return
    context.cluster.serve(resource, CustomStrategy(definition))
    now = context.timestamp()

    def accept(new: Object) -> None:
        status = new["status"]
        status["acceptedNames"] = dict(new["spec"]["names"])
        if not status.get("conditions"):
            status["conditions"] = [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
                _condition(
                    "Established", "InitialNamesAccepted", "the initial names have been accepted", now
                ),
            ]

    context.cluster.modify(context.resource, "", item.name, accept)


def _without_cleanup(definition: Object) -> None:
    kept = [each for each in definition["metadata"]["finalizers"] if each != CLEANUP]
    definition["metadata"]["finalizers"] = kept


def _condition(type_: str, reason: str, message: str, now: str) -> Object:
    return {
        "type": type_,
        "status": "True",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _default(definition: Object) -> None:
    spec = definition["spec"] = definition.get("spec") or {}
    spec.setdefault("conversion", {"strategy": "None"})
    spec["versions"] = spec.get("versions") or []
    own = spec["names"] = spec.get("names") or {}
    if kind := own.get("kind"):
        own.setdefault("singular", kind.lower())
        own.setdefault("listKind", f"{kind}List")


def _warn(definition: Object, context: Context) -> None:
    for each in schema_warnings(definition["spec"]["versions"]):
        context.warn(each)


def _problems(new: Object, old: Object | None) -> Problems:
    spec, problems = new["spec"], list[FieldProblem]()
    own, group = spec["names"], spec.get("group") or ""
    name = new["metadata"].get("name") or ""
    plural = own.get("plural") or ""
    if name and name != f"{plural}.{group}":
        problems.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        problems.append(required("spec.group"))
    else:
        problems += names.subdomain("spec.group", group)
        if "." not in group:
            problems.append(invalid_value("spec.group", group, "should be a domain with at least one dot"))
        problems += _approval(new, group)
    scope = spec.get("scope") or ""
    problems += names.one_of("spec.scope", scope, ("Cluster", "Namespaced"))
    problems += _versions(spec["versions"])
    for key in ("plural", "singular", "kind", "listKind"):
        value = own.get(key) or ""
        if not value:
            problems.append(required(f"spec.names.{key}"))
        elif key in ("plural", "singular"):
            problems += names.label1035(f"spec.names.{key}", value)
        else:
            # The kinds' names are labels that may have capitals.
            says = "may have mixed case, but should otherwise match: "
            problems += [
                invalid_value(f"spec.names.{key}", value, says + each)
                for each in name_problems(value.lower(), "label1035")
            ]
    for index, short in enumerate(own.get("shortNames") or ()):
        problems += names.label1035(f"spec.names.shortNames[{index}]", short)
    problems += schema_problems(spec["versions"])
    if not new["status"].get("storedVersions"):
        says = "Invalid value: null: must have at least one stored version"
        problems.append(FieldProblem("status.storedVersions", "FieldValueInvalid", says))
    if old is not None:
        before = old["spec"]
        for key, now, was in (
            ("spec.scope", scope, before["scope"]),
            ("spec.names.kind", own.get("kind"), before["names"]["kind"]),
            ("spec.group", group, before["group"]),
            ("spec.names.plural", plural, before["names"]["plural"]),
        ):
            if now != was:
                problems.append(invalid_value(key, now, "field is immutable"))
    return problems


def _approval(definition: Object, group: str) -> Problems:
    if not group.endswith((".k8s.io", ".kubernetes.io")) or group.endswith((".x-k8s.io",)):
        return []
    if (definition["metadata"].get("annotations") or {}).get(_APPROVAL):
        return []
    return [
        required(
            f"metadata.annotations[{_APPROVAL}]",
            f'protected groups must have approval annotation "{_APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )
    ]


def _versions(versions: list[Object]) -> Problems:
    problems: Problems = []
    given = [each.get("name") or "" for each in versions]
    for index, name in enumerate(given):
        problems += names.label1035(f"spec.versions[{index}].name", name)
    if len(given) == 1:
        problems += names.label1035("spec.version", given[0])
    if len(set(given)) != len(given):
        problems.append(_printed(versions, "must contain unique version names"))
    if sum(1 for each in versions if each.get("storage")) != 1:
        problems.append(_printed(versions, "must have exactly one version marked as storage version"))
    return problems


def _printed(versions: list[Object], says: str) -> FieldProblem:
    """Returns the problem with the versions as Go prints them; a schema shared by all is kept elsewhere."""
    text = json.dumps(
        [
            {
                "Name": each.get("name") or "",
                "Served": bool(each.get("served")),
                "Storage": bool(each.get("storage")),
                "Deprecated": bool(each.get("deprecated")),
                "DeprecationWarning": each.get("deprecationWarning"),
                "Schema": None,
                "Subresources": each.get("subresources"),
                "AdditionalPrinterColumns": each.get("additionalPrinterColumns"),
                "SelectableFields": each.get("selectableFields"),
            }
            for each in versions
        ],
        separators=(",", ":"),
    )
    return FieldProblem("spec.versions", "FieldValueInvalid", f"Invalid value: {text}: {says}")
