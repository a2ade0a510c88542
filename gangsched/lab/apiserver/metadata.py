"""The rules of metadata for every kind: names, labels, annotations, finalizers, owners; what an update keeps.

Lives here: checks of one object's metadata, and copying from the old object to the new. Not here: the rules
of a name (api_rules.names), and when they are checked (registry.py). Called by the registry only. Source:
k8s.io/apimachinery pkg/api/validation/objectmeta.go, pkg/util/validation/validation.go and k8s.io/apiserver
pkg/registry/rest/{create,update}.go.
"""

from __future__ import annotations

from random import Random
from typing import Any

from gangsched.api_rules.names import label_value_problems, name_problems, qualified_name_problems
from gangsched.api_rules.status import (
    TOO_LONG,
    FieldProblem,
    field_problem,
    forbidden_field,
    invalid_value,
    required,
)

Object = dict[str, Any]

MAX_ANNOTATIONS_BYTES = 256 * 2**10
MAX_GENERATED_NAME = 63
# k8s.io/apimachinery pkg/util/rand: no vowels, and no characters that look alike.
_SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")


def generated_name(base: str, rng: Random) -> str:
    """Returns generateName followed by five characters."""
    return base[: MAX_GENERATED_NAME - 5] + "".join(rng.choice(_SUFFIX_CHARACTERS) for _ in range(5))


def label_problems(labels: Any, field: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for key, value in (labels or {}).items():
        wrong = qualified_name_problems(key, "a valid label key")
        found += [invalid_value(field, key, each) for each in wrong]
        found += [invalid_value(field, value, each) for each in label_value_problems(value)]
    return found


def problems(metadata: Object, *, namespaced: bool, name_rule: str) -> list[FieldProblem]:
    """Returns what is wrong with an object's metadata (ValidateObjectMeta)."""
    found: list[FieldProblem] = []
    generate = metadata.get("generateName")
    if generate:
        # The generated suffix is always valid: only the prefix is checked.
        found += [
            invalid_value("metadata.generateName", generate, each)
            for each in name_problems(generate.rstrip("-") or generate, name_rule)
        ]
    name = metadata.get("name") or ""
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    else:
        found += [invalid_value("metadata.name", name, each) for each in name_problems(name, name_rule)]
    if namespaced:
        found += [
            invalid_value("metadata.namespace", metadata["namespace"], each)
            for each in name_problems(metadata["namespace"], "label")
        ]
    found += label_problems(metadata.get("labels"), "metadata.labels")
    found += _annotation_problems(metadata.get("annotations") or {})
    found += _owner_problems(metadata.get("ownerReferences") or [])
    found += _finalizer_problems(metadata.get("finalizers") or [])
    return found


def _annotation_problems(annotations: Object) -> list[FieldProblem]:
    field = "metadata.annotations"
    found: list[FieldProblem] = []
    n_bytes = 0
    for key, value in annotations.items():
        found += [invalid_value(field, key, each) for each in qualified_name_problems(key.lower())]
        n_bytes += len(key.encode()) + len(value.encode())
    if n_bytes > MAX_ANNOTATIONS_BYTES:
        found.append(field_problem(TOO_LONG, field, f"may not be more than {MAX_ANNOTATIONS_BYTES} bytes"))
    return found


def _owner_problems(owners: list[Object]) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    controllers: list[Object] = []
    for owner in owners:
        field = "metadata.ownerReferences"
        version = owner.get("apiVersion") or ""
        if not version.rpartition("/")[2]:
            found.append(invalid_value(f"{field}.apiVersion", version, "version must not be empty"))
        for key in ("kind", "name", "uid"):
            if not owner.get(key):
                found.append(invalid_value(f"{field}.{key}", owner.get(key) or "", "must not be empty"))
        if owner.get("controller"):
            controllers.append(owner)
    if len(controllers) > 1:
        first, second = (f"{each.get('kind')}/{each.get('name')}" for each in controllers[:2])
        found.append(
            invalid_value(
                "metadata.ownerReferences",
                owners,
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{first} and {second}",
            )
        )
    return found


def _finalizer_problems(finalizers: list[str]) -> list[FieldProblem]:
    field = "metadata.finalizers"
    found: list[FieldProblem] = []
    for each in finalizers:
        found += [invalid_value(field, each, says) for says in qualified_name_problems(each)]
        if "/" not in each and each not in _STANDARD_FINALIZERS:
            found.append(
                invalid_value(
                    field, each, "name is neither a standard finalizer name nor is it fully qualified"
                )
            )
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        found.append(
            invalid_value(
                field,
                finalizers,
                "finalizer orphan and finalizer foregroundDeletion cannot be both set",
            )
        )
    return found


# Fields that only the server writes: kept from the old object if the request omits them, rejected if they
# differ.
_IMMUTABLE = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def carry_over(new: Object, old: Object) -> list[FieldProblem]:
    """Copy the fields that only the server writes into `new`; returns those that the request tried to change.

    Both are metadata. Source: rest.BeforeUpdate, ValidateObjectMetaAccessorUpdate.
    """
    found: list[FieldProblem] = []
    for key in _IMMUTABLE:
        if new.get(key) is None or (key == "deletionGracePeriodSeconds" and key not in old):
            new.pop(key, None)
            if key in old:
                new[key] = old[key]
        elif new[key] != old.get(key):
            found.append(invalid_value(f"metadata.{key}", new[key], "field is immutable"))
    for key in ("creationTimestamp", "generation", "selfLink"):
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)
    if old.get("deletionTimestamp"):
        added = [each for each in new.get("finalizers") or () if each not in (old.get("finalizers") or ())]
        if added:
            shown = ", ".join(f'"{each}"' for each in sorted(added))
            found.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{shown}}}",
                )
            )
    return found
