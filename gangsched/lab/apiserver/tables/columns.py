"""The parts of a table: columns, and for each kind the function that makes an object's cells.

Called by the files of this package alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

Object = dict[str, Any]
Cells = list[Any]


class Column(NamedTuple):
    """A column; with a `priority` above 0, only `-o wide` shows it."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def as_json(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class Kind(NamedTuple):
    """How one kind is printed; `cells` gets an object and the time, and fills every column.

    `conditions`: those of a row; `order`: sorts a list's rows if not by name.
    """

    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], Cells]
    conditions: Callable[[Object], list[Object]] | None = None
    order: Callable[[Object], Any] | None = None


NAME = Column("Name", format="name")
AGE = Column("Age")


def columns(*names: str | Column, wide: tuple[str | Column, ...] = ()) -> tuple[Column, ...]:
    """Returns NAME and these columns; those given by name are of type string."""
    shown = [each if isinstance(each, Column) else Column(each) for each in names]
    hidden = [each if isinstance(each, Column) else Column(each) for each in wide]
    return (NAME, *shown, *(each._replace(priority=1) for each in hidden))
