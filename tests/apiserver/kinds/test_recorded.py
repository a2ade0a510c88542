"""Every case of cases/ answered as a real kube-apiserver 1.37.1 answered it (recorded/, by recording.py)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apiserver.kinds.embedded import Embedded
from tests.apiserver.kinds.recording import Case, files, load, play, recorded

_SPEC = re.compile(r"Invalid value: \{.*\}: field is immutable")
_COMPILER = re.compile(r"compilation failed: .*", re.DOTALL)
CASES = [case for file in files() for case in load(file)]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_answers_are_the_real_servers(case: Case) -> None:
    embedded = Embedded()
    embedded.namespace("case-1")
    said = play(case, embedded.send, "case-1")
    truth = recorded(case.file)[case.name]
    for step, ours, theirs in zip(case.steps, said, truth, strict=True):
        assert comparable(ours) == comparable(theirs), f"{step.verb} {step.path} {step.body}"


def comparable(answer: list[Any]) -> list[Any]:
    """Without what is not compared: how two specs differ (printed of another type), what a compiler says, and
    the order of causes, in which Go prints a map's entries as they come."""
    code, body = answer
    if isinstance(body, dict) and body.get("kind") == "Status":
        body = dict(body, message=_cut(body.get("message")))
        if details := body.get("details"):
            causes = [
                dict(cause, message=_cut(cause.get("message"))) for cause in details.get("causes") or ()
            ]
            body["details"] = dict(details, causes=sorted(causes, key=_key))
            if len(causes) > 1 and (at := body["message"].find(" is invalid: [")) > 0:
                body["message"] = body["message"][:at]
    return [code, body]


def _key(cause: dict[str, str]) -> tuple[str, str]:
    return cause.get("field", ""), cause.get("message", "")


def _cut(message: str | None) -> str | None:
    if message is None:
        return None
    message = message.partition("\n@@")[0]
    message = _SPEC.sub("Invalid value: {}: field is immutable", message)
    return _COMPILER.sub("compilation failed", message)
