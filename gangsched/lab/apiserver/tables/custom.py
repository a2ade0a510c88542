"""The rows of custom resources, by the columns in their definition.

Lives here: additionalPrinterColumns and the part of JSONPath that they use: fields, quoted fields, indices,
`[*]`, and filters that compare one field with one value. Any other path leaves its cells empty. Called by
printer.py. Source: k8s.io/apiextensions-apiserver pkg/registry/customresource/tableconvertor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from gangsched.lab.apiserver.storage.codec import encode
from gangsched.lab.apiserver.tables.ages import INVALID, UNKNOWN, since
from gangsched.lab.apiserver.tables.columns import NAME, Cells, Column, Kind, Object

# One step of a path: from one value to the values below it.
_Step = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""\.?\[(?P<all>\*)\] | \.(?P<every>\*)
      | \.?(?P<field>(?:[^.\[\]\\]|\\.)+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]
      | \[\?\(\s*@(?P<path>[^=!<>]+?)\s*(?P<operator>==|!=)\s*(?P<value>.+?)\s*\)\]""",
    re.VERBOSE,
)
_AGE_COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def kind_of(definitions: Sequence[Object] | None) -> Kind:
    """Returns how a custom resource is printed; `definitions`: its version's additionalPrinterColumns."""
    given = definitions or [_AGE_COLUMN]
    columns = [
        Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("priority", 0),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
        )
        for each in given
    ]
    paths = [parse(each["jsonPath"]) for each in given]

    def cells(obj: Object, now: datetime) -> Cells:
        found = [_first(path, obj) for path in paths]
        shown = (_cell(column.type, value, now) for column, value in zip(columns, found, strict=True))
        return [obj["metadata"].get("name", ""), *shown]

    return Kind((NAME, *columns), cells)


def parse(path: str) -> tuple[_Step, ...] | None:
    """The steps of a path; None if it is not understood."""
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _TOKEN.match(path, at)
        if found is None:
            return None
        at = found.end()
        step = _step(found)
        if step is None:
            return None
        steps.append(step)
    return tuple(steps)


def _step(found: re.Match[str]) -> _Step | None:
    if found["all"] or found["every"]:
        return _every
    if found["index"] is not None:
        return _at_index(int(found["index"]))
    if found["operator"]:
        return _filter(found["path"], found["operator"], found["value"])
    name = found["quoted"] if found["quoted"] is not None else re.sub(r"\\(.)", r"\1", found["field"])
    return _field(name)


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _field(name: str) -> _Step:
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _at_index(index: int) -> _Step:
    def step(value: Any) -> Iterable[Any]:
        if not isinstance(value, list) or not -len(value) <= index < len(value):
            return ()
        return (value[index],)

    return step


def _filter(path: str, operator: str, literal: str) -> _Step | None:
    steps = parse(path.strip())
    if steps is None:
        return None
    wanted = _literal(literal)

    def step(value: Any) -> Iterable[Any]:
        if not isinstance(value, list):
            return ()
        found = ((each, _first(steps, each)) for each in value)
        return [each for each, has in found if has is not None and (has == wanted) is (operator == "==")]

    return step


def _literal(text: str) -> Any:
    if text[:1] in "'\"" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _first(path: tuple[_Step, ...] | None, obj: Any) -> Any:
    """Returns the first value at the path; None if there is none."""
    if path is None:
        return None
    values: list[Any] = [obj]
    for step in path:
        values = [found for value in values for found in step(value)]
        if not values:
            return None
    return values[0]


def _cell(type_: str, value: Any, now: datetime) -> Any:
    if value is None:
        return None
    if type_ == "string":
        return _text(value)
    if type_ == "date":
        return _age(value, now)
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if type_ == "integer" else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return encode(value).decode()


def _age(value: Any, now: datetime) -> str | None:
    if not isinstance(value, str):
        return None
    return since(value, now) if value and value != INVALID else UNKNOWN
