"""Questions to a selector, an expression and a device, and our answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from gangsched.model.cel import selector
from gangsched.model.cel.compiler import compile_tree
from gangsched.model.cel.selector import SelectableDevice
from gangsched.model.cel.syntax import parse
from gangsched.model.cel.values import STEP_LIMIT, Aborted, Fault, Run, SelectorError
from gangsched.model.resource_claims.objects import Attribute

YES, NO, ERROR, REFUSED = "yes", "no", "error", "refused"
Question = Mapping[str, Any]
"""An expression, and a device as a ResourceSlice has it, with its driver."""


def view(question: Question) -> SelectableDevice:
    """The device of a question. Raises: SelectorError."""
    return SelectableDevice(
        question.get("driver", ""),
        {name: msgspec.convert(one, Attribute) for name, one in question.get("attributes", {}).items()},
        {name: one["value"] for name, one in question.get("capacity", {}).items()},
        shareable=bool(question.get("allowMultipleAllocations")),
    )


def answer(question: Question) -> str:
    """What we say."""
    try:
        return YES if selector.compile(question["expression"]).matches(view(question)) else NO
    except SelectorError:
        return ERROR


def steps(question: Question) -> int:
    """The steps that we take."""
    compiled = compile_tree(parse(question["expression"]), question["expression"])
    run = Run(view(question).variables, compiled.n_slots)
    with suppress(Fault, Aborted):
        compiled.step(run)
    return STEP_LIMIT - run.left
