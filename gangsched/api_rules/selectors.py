"""Label selectors in objects' specs: read, and matched.

Not here: selectors of requests, as text, and of fields (lab.apiserver.storage.selectors).
Source: k8s.io/apimachinery pkg/labels/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

import msgspec


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label; `operator` is in, notin, =, !=, exists, !, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in" | "=":
                return value is not None and value in self.values
            case "notin" | "!=":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        limit = int(next(iter(self.values)))
        if value is None or not is_integer(value):
            return False
        return int(value) > limit if self.operator == "gt" else int(value) < limit


class LabelSelector(msgspec.Struct, frozen=True):
    """All of its requirements must hold; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of_object(cls, selector: Mapping[str, Any] | None) -> Self | None:
        """From an object's `{matchLabels, matchExpressions}`; None, which matches nothing, if it is absent.

        An empty selector matches everything. The operators have been validated.
        """
        if selector is None:
            return None
        found = [
            Requirement(key, "=", frozenset([value]))
            for key, value in sorted((selector.get("matchLabels") or {}).items())
        ]
        operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
        for each in selector.get("matchExpressions") or ():
            operator = operators[each["operator"]]
            found.append(Requirement(each["key"], operator, frozenset(each.get("values") or ())))
        return cls(tuple(found))

    @property
    def everything(self) -> bool:
        return not self.requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


def is_integer(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]+", text) is not None
