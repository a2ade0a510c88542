"""Each field of each kind that is read is known, in every Kubernetes that is supported.

For a new version of Kubernetes run `python -m tests.fields.generate` with its version added. Then read the
fields that these tests name, or list them with the reason why they decide nothing, or refuse them, in
gangsched.model.known_fields or in the dialect of a PodGroup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gangsched.doctor.checks import NEWEST, OLDEST
from gangsched.model.dialects import core
from gangsched.model.fields import EVERYTHING, Tree, paths_of, steps, tree_of
from gangsched.model.known_fields import KINDS
from tests.fields.generate import FILE, ROOTS

TYPES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
VERSIONS: list[str] = TYPES.pop("versions")
NOT_OF_THE_API = {
    "gangsched.io/unreadable",
    "spec.gangsched.io/not-understood",
    "status.conditions[].observedGeneration",
}
"""Marks of ours, and a field of pods' conditions; nodes' are decoded by the same struct."""


def known(kind: str) -> Tree:
    if kind.startswith("PodGroup"):
        fields = core.DIALECT.fields
        others = ("kind", "apiVersion", "metadata.**", "status.**")
        refused = [f"{path}.{EVERYTHING}" for path in (*fields.refused, *fields.wishes)]
        return tree_of((*fields.read, *fields.without_effect, *refused, *others))
    struct, fields = KINDS[kind]
    return tree_of((*paths_of(struct), *fields.read, *fields.without_effect, *fields.refused))


def unknown(types: dict[str, Any], root: str, tree: Tree, at: str = "") -> Iterator[str]:
    """Paths of a type's fields that are not in the tree."""
    for field, (kind, _) in types[root].items():
        path = f"{at}.{field}" if at else field
        below = tree.get(field)
        if below is None:
            yield path
            continue
        struct = kind
        while struct[:2] in ("[]", "{}"):
            step = struct[:2]
            path = f"{path}[]" if step == "[]" else f"{path}.{{}}"
            struct, below = struct[2:], below.get(step, below)
        if EVERYTHING not in below and struct:
            yield from unknown(types, struct, below, path)


@pytest.mark.parametrize("kind", ROOTS)
def test_every_field_is_read_or_decides_nothing_for_a_reason_or_is_refused(kind: str) -> None:
    assert list(unknown(TYPES, ROOTS[kind], known(kind))) == []


def test_every_kubernetes_that_is_supported_is_in_the_list() -> None:
    minors = [f"v0.{minor}." for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert [any(one.startswith(minor) for one in VERSIONS) for minor in minors] == [True] * len(minors)
    assert len(VERSIONS) == len(minors)


@pytest.mark.parametrize(
    ("kind", "type_", "field", "path"),
    [
        ("Pod", "core/v1.PodSpec", "gangName", "spec.gangName"),
        ("Pod", "core/v1.TopologySpreadConstraint", "strict", "spec.topologySpreadConstraints[].strict"),
        ("Pod", "core/v1.Container", "share", "spec.containers[].share"),
        ("Node", "core/v1.Taint", "untilTime", "spec.taints[].untilTime"),
        ("CSIDriver", "storage/v1.CSIDriverSpec", "only", "spec.only"),
        (
            "PodGroup v1beta1",
            "scheduling/v1beta1.GangSchedulingPolicy",
            "maxCount",
            "spec.schedulingPolicy.gang.maxCount",
        ),
    ],
)
def test_a_field_of_the_next_version_is_named(kind: str, type_: str, field: str, path: str) -> None:
    types = TYPES | {type_: {**TYPES[type_], field: ["", "1.38"]}}
    assert path in list(unknown(types, ROOTS[kind], known(kind)))


def exists(path: str, root: str) -> bool:
    """Whether some version has the field."""
    kind = root
    for step in steps(path):
        if step == EVERYTHING:
            return True
        if step in ("[]", "{}"):
            if not kind.startswith(step):
                return False
            kind = kind[2:]
            continue
        fields = TYPES.get(kind.replace("[]", "").replace("{}", ""))
        if fields is None or step not in fields:
            return False
        kind = fields[step][0]
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_listed_that_no_version_has_or_that_is_read(kind: str) -> None:
    struct, fields = KINDS[kind]
    listed = (*fields.read, *fields.without_effect, *fields.refused)
    assert [path for path in listed if not exists(path, ROOTS[kind])] == []
    read = set(paths_of(struct)) - NOT_OF_THE_API
    assert [path for path in read if not exists(path, ROOTS[kind])] == []
    assert read.isdisjoint(fields.without_effect)
    assert all(fields.without_effect.values())


def test_no_field_of_pod_groups_is_listed_that_no_version_has() -> None:
    fields = core.DIALECT.fields
    roots = [root for kind, root in ROOTS.items() if kind.startswith("PodGroup")]
    listed = (*fields.read, *fields.without_effect, *fields.refused)
    assert [path for path in listed if not any(exists(path, root) for root in roots)] == []
